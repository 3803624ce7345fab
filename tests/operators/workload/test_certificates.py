"""Certificates of servers: made and renewed, or a user's, checked before a server sees them."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from mooring.kube.objects import core, meta
from mooring.operators.workload.certificates import CertificateError, ends, given, issued, trust

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("*.demo.shop.svc", "demo-primary", "127.0.0.1")


def secret(data: dict[str, str]) -> core.Secret:
    return core.Secret(metadata=meta.ObjectMeta(name="s"), data=data)


def pair(days: int = 30, name: str = "mine") -> dict[str, str]:
    """A user's self-signed certificate with its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(days=60))
        .not_valid_after(NOW + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    pem = built.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    texts = {"tls.crt": pem, "tls.key": private, "ca.crt": pem}
    return {each: base64.b64encode(text).decode() for each, text in texts.items()}


def authorities(data: dict[str, str]) -> int:
    return trust(data).cert_store_stats()["x509"]


def test_certificates_are_made_once_and_renewed_before_their_end() -> None:
    first = issued(None, names=NAMES, now=NOW)
    leaf = x509.load_pem_x509_certificate(base64.b64decode(first["tls.crt"]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["*.demo.shop.svc", "demo-primary"]
    assert issued(secret(first), names=NAMES, now=NOW + timedelta(days=50)) == first
    later = issued(secret(first), names=NAMES, now=NOW + timedelta(days=61))
    assert later["tls.crt"] != first["tls.crt"]
    assert later["ca.crt"] == first["ca.crt"]


def test_a_certificate_is_made_for_a_name_that_was_added() -> None:
    first = issued(None, names=NAMES, now=NOW)
    assert issued(secret(first), names=(*NAMES, "more"), now=NOW)["tls.crt"] != first["tls.crt"]


def test_a_users_pair_is_copied() -> None:
    mine = pair()
    assert given(secret(mine), None, now=NOW) == mine


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda one: one.pop("tls.key"), "tls.key is missing or empty"),
        (
            lambda one: one.update({"tls.key": pair()["tls.key"]}),
            "tls.crt and tls.key do not belong together",
        ),
        (lambda one: one.update({"tls.crt": base64.b64encode(b"x").decode()}), "holds no certificate in PEM"),
        (lambda one: one.update({"tls.key": base64.b64encode(b"x").decode()}), "holds no private key in PEM"),
        (lambda one: one.update(pair(days=-1)), "tls.crt ended on 2025-12-31"),
    ],
)
def test_a_pair_that_no_server_could_use_is_refused_with_the_reason(spoil: object, why: str) -> None:
    mine = pair()
    spoil(mine)  # type: ignore[operator]
    with pytest.raises(CertificateError, match=why):
        given(secret(mine), None, now=NOW)


def test_servers_that_still_show_the_old_certificate_are_trusted() -> None:
    first = given(secret(pair(name="old")), None, now=NOW)
    second = given(secret(pair(name="new")), secret(first), now=NOW)
    assert (authorities(first), authorities(second)) == (1, 2)
    assert given(secret(pair(name="third")), secret(second), now=NOW)["ca-earlier.crt"] == second["ca.crt"]


def test_the_same_authorities_give_the_same_context_so_that_connections_are_kept() -> None:
    mine = pair()
    assert trust(mine) is trust(dict(mine))
    assert trust({}).verify_mode == ssl.CERT_NONE


def test_the_end_of_a_certificate_is_written_as_servers_report_it() -> None:
    assert ends(pair(days=1)) == "Jan  2 00:00:00 2026 GMT"
    assert ends({}) == ""
