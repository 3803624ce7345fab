"""Certificate requests: what is signed, for how long, what is refused, and what is forgotten."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.local.controllers.bed import Bed, running
from tests.local.controllers.builders import NOW, ago, make

from mooring.kube.objects.certificates import CertificateSigningRequest
from mooring.kube.patches import MergePatch
from mooring.local.api.tls import ensure_certificates
from mooring.local.controllers.signing import IssueError, Issuer, refused
from mooring.local.controllers.signing.controller import remaining

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET, SERVING = f"{CLIENT}-kubelet", "kubernetes.io/kubelet-serving"
HOUR = 3600


def csr(common: str = "somebody", *groups: str, names: tuple[x509.GeneralName, ...] = ()) -> Any:
    """A request for a new key."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    files = ensure_certificates(tmp_path, ["localhost"])
    return Issuer.load(files.authority.read_bytes(), files.authority_key)


def issued(issuer: Issuer, request: Any, *usages: str, **options: Any) -> x509.Certificate:
    pem = issuer.issue(request, usages, now=options.pop("now", datetime.now(UTC)), **options)
    return x509.load_pem_x509_certificate(pem)


def test_a_certificate_says_what_the_request_says_and_is_the_authoritys(issuer: Issuer) -> None:
    request = csr("somebody", "dev", names=(x509.DNSName("a.example.com"),))
    certificate = issued(issuer, request, "client auth", "digital signature")
    certificate.verify_directly_issued_by(issuer.certificate)
    assert certificate.subject == request.subject
    assert certificate.public_key() == request.public_key()
    assert list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == [
        x509.DNSName("a.example.com")
    ]
    purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    flags = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert flags.digital_signature
    assert not flags.key_cert_sign
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    ("seconds", "lives"),
    [
        (None, 365 * 24 * HOUR - 300),
        (60, 600),
        (HOUR, HOUR),
        (10 * HOUR, 10 * HOUR - 300),
        (10**9, 365 * 24 * HOUR - 300),
    ],
)
def test_a_life_is_at_least_ten_minutes_and_at_most_a_year(
    issuer: Issuer, seconds: int | None, lives: int
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    certificate = issued(issuer, csr(), "client auth", now=now, seconds=seconds)
    assert certificate.not_valid_after_utc - now == timedelta(seconds=lives)
    assert certificate.not_valid_before_utc == now - timedelta(minutes=5)


def test_no_certificate_outlives_its_authority(issuer: Issuer) -> None:
    end = issuer.certificate.not_valid_after_utc
    assert issued(issuer, csr(), "client auth", now=end - timedelta(days=9)).not_valid_after_utc == end
    with pytest.raises(IssueError, match="expired"):
        issuer.issue(csr(), ["client auth"], now=end)
    with pytest.raises(IssueError, match="unrecognized usage values: nonsense"):
        issuer.issue(csr(), ["nonsense"], now=NOW)


NODE = ("system:node:n1", "system:nodes")
DNS, MAIL = x509.DNSName("n1"), x509.RFC822Name("a@example.com")


@pytest.mark.parametrize(
    ("signer", "request_", "usages", "why"),
    [
        (CLIENT, csr(), ["client auth", "key encipherment"], ""),
        (CLIENT, csr(), ["key encipherment"], "missing required usage"),
        (CLIENT, csr(), ["client auth", "server auth"], "invalid usage for client certificate: server auth"),
        (KUBELET, csr(*NODE), ["client auth", "digital signature"], ""),
        (KUBELET, csr("system:node:n1", "dev"), ["client auth", "digital signature"], "subject organization"),
        (KUBELET, csr("n1", "system:nodes"), ["client auth", "digital signature"], "subject common name"),
        (KUBELET, csr(*NODE, names=(DNS,)), ["client auth", "digital signature"], "DNS subjectAltNames"),
        (KUBELET, csr(*NODE), ["client auth"], "usages did not match"),
        (SERVING, csr(*NODE, names=(DNS,)), ["server auth", "digital signature", "key encipherment"], ""),
        (SERVING, csr(*NODE), ["server auth", "digital signature"], "DNS or IP subjectAltName is required"),
        (
            SERVING,
            csr(*NODE, names=(DNS, MAIL)),
            ["server auth", "digital signature"],
            "Email subjectAltNames",
        ),
        ("example.com/other", csr(), ["client auth"], "unrecognized signerName"),
    ],
)
def test_each_signer_signs_only_its_own_kind(signer: str, request_: Any, usages: list[str], why: str) -> None:
    told = refused(signer, request_, usages)
    assert told.startswith(why)
    assert bool(told) == bool(why)


@pytest.mark.parametrize(
    ("created", "decided", "left"),
    [
        (0, None, 24 * HOUR),
        (HOUR, None, 23 * HOUR),
        (25 * HOUR, None, -HOUR),
        (HOUR, 60, HOUR - 60),
        (0, 2 * HOUR, -HOUR),
    ],
)
def test_requests_are_forgotten_in_time(created: int, decided: int | None, left: float) -> None:
    conditions = [{"type": "Approved", "status": "True", "lastUpdateTime": ago(decided)}] if decided else []
    request = make(
        CertificateSigningRequest, "r", {"status": {"conditions": conditions}}, creationTimestamp=ago(created)
    )
    assert remaining(request, NOW) == left


# --- on the plane ---------------------------------------------------------------------------------------


def asking(request: Any, *usages: str, signer: str = CLIENT) -> dict[str, Any]:
    pem = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    return {"spec": {"request": pem, "signerName": signer, "usages": list(usages)}}


async def approve(bed: Bed, name: str) -> None:
    conditions = [{"type": "Approved", "status": "True", "reason": "Test", "message": "m"}]
    body = MergePatch({"status": {"conditions": conditions}})
    await bed.client.patch(CertificateSigningRequest, name, body, subresource="approval")


async def test_only_what_is_approved_is_signed(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "pki", ["localhost"])
    authority = files.authority.read_text()
    async with running(tmp_path, authority=authority, authority_key=files.authority_key) as (bed, _):
        kind = CertificateSigningRequest
        for name, usages in (("good", ["client auth"]), ("bad", ["server auth"]), ("waits", ["client auth"])):
            await bed.create(kind, name, asking(csr(), *usages))
        for name in ("good", "bad"):
            await approve(bed, name)

        async def signed() -> bool:
            status = (await bed.get(kind, "good")).status
            return bool(status and status.certificate)

        async def refusal() -> bool:
            status = (await bed.get(kind, "bad")).status
            return status is not None and any(c.type == "Failed" for c in status.conditions or ())

        await bed.eventually(signed, "a certificate")
        await bed.eventually(refusal, "a refusal")
        good, bad, waits = [(await bed.get(kind, name)).status for name in ("good", "bad", "waits")]
        assert good is not None
        assert bad is not None
        issued_ = x509.load_pem_x509_certificate(base64.b64decode(good.certificate or ""))
        issued_.verify_directly_issued_by(x509.load_pem_x509_certificate(files.authority.read_bytes()))
        assert [(c.type, c.reason) for c in bad.conditions or ()] == [
            ("Approved", "Test"),
            ("Failed", "SignerValidationFailure"),
        ]
        assert bad.certificate is None
        assert waits is None or waits.certificate is None
