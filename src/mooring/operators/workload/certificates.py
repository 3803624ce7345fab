"""Certificates of a cluster's servers: those that the operator makes and renews, and those that a user gives.

Pods mount one Secret of the cluster, whatever the certificates come from: a user's are checked and copied, so that a pair
that does not match never reaches a server. What was trusted before is kept beside, since servers show their old certificate
until they have read the new one.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from mooring.kube.objects import core
from mooring.operators.workload.credentials import secret_value
from mooring.runtime.webhooks_certificates import CertificateError, Certificates, Lifetimes, renewed

__all__ = [
    "AUTHORITY",
    "CERTIFICATE",
    "EARLIER",
    "KEY",
    "CertificateError",
    "ends",
    "given",
    "issued",
    "trust",
]

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
EARLIER: Final = "ca-earlier.crt"
"""Entry with the authority before this one, while servers are given new certificates."""
_LIFETIMES: Final = Lifetimes()


def issued(found: core.Secret | None, *, names: Sequence[str], now: datetime) -> dict[str, str]:
    """The data of a Secret with certificates for these host names and addresses; as found where nothing is due.

    They are valid for 90 days and renewed 30 days before their end; the authority for a year, renewed without a gap.
    """
    try:
        known = Certificates.from_secret(found.data if found is not None else None)
    except CertificateError:
        known = None
    return renewed(known, names=names, now=now, lifetimes=_LIFETIMES).to_secret()


def given(secret: core.Secret, copy: core.Secret | None, *, now: datetime) -> dict[str, str]:
    """The data of the cluster's Secret with a user's certificate; raises `CertificateError` for one that no server could use.

    ``copy`` is the cluster's Secret as it is.
    """
    texts = {name: secret_value(secret, name) for name in (CERTIFICATE, KEY, AUTHORITY)}
    missing = next((name for name in (CERTIFICATE, KEY) if not texts[name].strip()), None)
    if missing:
        raise CertificateError(f"{missing} is missing or empty")
    try:
        leaf = x509.load_pem_x509_certificates(texts[CERTIFICATE].encode())[0]
        if texts[AUTHORITY]:
            x509.load_pem_x509_certificates(texts[AUTHORITY].encode())
    except ValueError as error:
        raise CertificateError(f"{CERTIFICATE} or {AUTHORITY} holds no certificate in PEM") from error
    try:
        key = serialization.load_pem_private_key(texts[KEY].encode(), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{KEY} holds no private key in PEM without a passphrase") from error
    if _public(key.public_key()) != _public(leaf.public_key()):
        raise CertificateError(f"{CERTIFICATE} and {KEY} do not belong together")
    if leaf.not_valid_after_utc <= now:
        raise CertificateError(f"{CERTIFICATE} ended on {leaf.not_valid_after_utc:%Y-%m-%d}")
    before, earlier = secret_value(copy, AUTHORITY), secret_value(copy, EARLIER)
    if before and before != texts[AUTHORITY]:
        earlier = before
    texts[EARLIER] = earlier
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items() if text}


def ends(data: Mapping[str, str]) -> str:
    """When the certificate ends, as servers report what they show: ``Jan  2 15:04:05 2026 GMT``; "" for none."""
    text = base64.b64decode(data.get(CERTIFICATE, ""))
    if not text:
        return ""
    end = x509.load_pem_x509_certificates(text)[0].not_valid_after_utc.astimezone(UTC)
    return f"{end:%b} {end.day:2} {end:%H:%M:%S %Y} GMT"


def trust(data: Mapping[str, str]) -> ssl.SSLContext:
    """How to connect to servers with these certificates: by address, so that only the authority is checked."""
    texts = [base64.b64decode(data.get(name, "")).decode() for name in (AUTHORITY, EARLIER)]
    return _context("\n".join(text for text in texts if text))


@lru_cache(maxsize=1000)
def _context(authorities: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authorities or None)
    context.check_hostname = False
    # A user's certificate may be its own authority, and need not follow every rule of RFC 5280.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not authorities:
        context.verify_mode = ssl.CERT_NONE
    return context


def _public(key: object) -> bytes:
    made: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return made
