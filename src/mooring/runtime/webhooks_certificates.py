"""Certificates of the webhook server: an authority of our own, renewed before it ends, without a gap.

All of it lies in one Secret that every replica reads. What to do next follows from the certificates and the
time alone (`renewed`), so any replica that leads goes on where another stopped:

1. a new authority is added to the bundle; the serving certificate stays that of the old one;
2. after `Lifetimes.overlap`, when every configuration carries the bundle, the new one signs a serving
   certificate;
3. after another overlap, when every replica serves it, the old authority leaves the bundle.

At any moment a client with the current bundle, or with the one before it, trusts what any replica serves.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["CertificateError", "Certificates", "Lifetimes", "renewed"]

#: Certificates are valid from this long before they were made: clocks of machines differ.
BACKDATE: Final = timedelta(minutes=5)
_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")


class CertificateError(Exception):
    """A Secret does not hold usable certificates; the message names the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """How long certificates are valid, and how long before their end (``..._left``) they are renewed.

    ``overlap`` is how long a step of a rotation is left to spread before the next builds on it.
    """

    authority: timedelta = timedelta(days=365)
    authority_left: timedelta = timedelta(days=120)
    serving: timedelta = timedelta(days=90)
    serving_left: timedelta = timedelta(days=30)
    overlap: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if not self.authority > self.authority_left > self.serving > self.serving_left > 2 * self.overlap:
            raise ValueError(
                "authority > authority_left > serving > serving_left > 2 * overlap must hold: a serving "
                f"certificate must not outlive its authority; got {self}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What the Secret holds: authorities to trust (the signing one first), its key, and what is served."""

    authorities: tuple[x509.Certificate, ...]
    authority_key: ec.EllipticCurvePrivateKey
    serving: x509.Certificate
    serving_key: ec.EllipticCurvePrivateKey

    @property
    def bundle(self) -> bytes:
        """The authorities in PEM, for a ``caBundle``."""
        return b"".join(_pem(one) for one in self.authorities)

    def to_secret(self) -> dict[str, str]:
        """The ``data`` of the Secret."""
        values = (self.bundle, _key_pem(self.authority_key), _pem(self.serving), _key_pem(self.serving_key))
        return {name: base64.b64encode(value).decode() for name, value in zip(_KEYS, values, strict=True)}

    @classmethod
    def from_secret(cls, data: Mapping[str, str] | None) -> Certificates:
        """Read the ``data`` of the Secret; raises `CertificateError` naming the key that is unusable."""
        found: dict[str, bytes] = {}
        for name in _KEYS:
            try:
                found[name] = base64.b64decode((data or {})[name], validate=True)
            except (KeyError, binascii.Error) as error:
                raise CertificateError(f"{name} is missing or not base64") from error
        try:
            made = cls(
                authorities=tuple(x509.load_pem_x509_certificates(found["ca.crt"])),
                authority_key=_key(found["ca.key"]),
                serving=x509.load_pem_x509_certificate(found["tls.crt"]),
                serving_key=_key(found["tls.key"]),
            )
        except (ValueError, TypeError) as error:
            raise CertificateError(f"no certificates in PEM: {type(error).__name__}") from error
        for certificate, key in ((made.authorities[0], made.authority_key), (made.serving, made.serving_key)):
            if certificate.public_key() != key.public_key():
                raise CertificateError("a certificate and its key do not belong together")
        return made

    def load_into(self, context: ssl.SSLContext) -> None:
        """Serve with this certificate from the next handshake on; the key never touches a disk."""
        descriptor = os.memfd_create("webhook-certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, _pem(self.serving) + _key_pem(self.serving_key))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)


def renewed(
    found: Certificates | None,
    *,
    names: Sequence[str],
    now: datetime,
    lifetimes: Lifetimes,
    trusted: bool = True,
    peers: bool = False,
) -> Certificates:
    """The next step of a rotation, or ``found`` itself when there is nothing to do.

    ``names`` are the host names and addresses to serve. ``trusted`` says that every configuration carries
    the bundle of ``found``. ``peers``: servers show the certificate to one another as clients too.
    """
    if found is None or found.authorities[0].not_valid_after_utc <= now:
        authority, key = _new_authority(now, lifetimes)
        serving, serving_key = _new_serving(
            authority, key, names=names, now=now, lifetimes=lifetimes, peers=peers
        )
        return Certificates(
            authorities=(authority,), authority_key=key, serving=serving, serving_key=serving_key
        )
    signer = found.authorities[0]
    if signer.not_valid_after_utc - now < lifetimes.authority_left:
        authority, key = _new_authority(now, lifetimes)
        return replace(found, authorities=(authority, *found.authorities), authority_key=key)
    if _wanting(found, names=names, now=now, lifetimes=lifetimes) and (
        _known(found, now=now, lifetimes=lifetimes, trusted=trusted)
    ):
        serving, serving_key = _new_serving(
            signer, found.authority_key, names=names, now=now, lifetimes=lifetimes, peers=peers
        )
        return replace(found, serving=serving, serving_key=serving_key)
    if len(found.authorities) > 1 and _superseded(found, now=now, lifetimes=lifetimes):
        return replace(found, authorities=(signer,))
    return found


def _wanting(found: Certificates, *, names: Sequence[str], now: datetime, lifetimes: Lifetimes) -> bool:
    """The serving certificate has to be made anew."""
    serving = found.serving
    present = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        serving.not_valid_after_utc - now < lifetimes.serving_left
        or serving.issuer != found.authorities[0].subject
        or not set(_alternative(names)) <= set(present)
    )


def _known(found: Certificates, *, now: datetime, lifetimes: Lifetimes, trusted: bool) -> bool:
    """Clients had time to learn of the signing authority; or what is served is no good to them anyway."""
    if len(found.authorities) == 1 or found.serving.not_valid_after_utc <= now:
        return True
    return trusted and _age(found.authorities[0], now) >= lifetimes.overlap


def _superseded(found: Certificates, *, now: datetime, lifetimes: Lifetimes) -> bool:
    """Every replica had time to serve the certificate of the signing authority."""
    signed = found.serving.issuer == found.authorities[0].subject
    return signed and _age(found.serving, now) >= lifetimes.overlap


def _age(certificate: x509.Certificate, now: datetime) -> timedelta:
    return now - certificate.not_valid_before_utc - BACKDATE


def _new_authority(
    now: datetime, lifetimes: Lifetimes
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A name of its own for each, so that a chain fits one authority only.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"mooring-webhook-ca-{serial:040x}")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    built = (
        _builder(name, name, key, now=now, life=lifetimes.authority)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    return built.sign(key, hashes.SHA256()), key


def _new_serving(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    *,
    names: Sequence[str],
    now: datetime,
    lifetimes: Lifetimes,
    peers: bool,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if peers else [])]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mooring-webhook")])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    built = (
        _builder(name, authority.subject, key, now=now, life=lifetimes.serving)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternative(names)), critical=False)
        .add_extension(issuer, critical=False)
    )
    return built.sign(authority_key, hashes.SHA256()), key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    dated = builder.not_valid_before(now - BACKDATE).not_valid_after(now + life)
    return dated.public_key(key.public_key())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an elliptic-curve key")
    return key
