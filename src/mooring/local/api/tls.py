"""The server's certificates: an authority of its own, and a serving certificate signed by it."""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Certificates", "ensure_certificates"]

_AUTHORITY_DAYS = 3650
_SERVING_DAYS = 825
#: A serving certificate is made anew when fewer days than this are left.
_RENEW_DAYS = 30


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files are; keys are readable by their owner only."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def authority_key(self) -> Path:
        """The authority's private key, which signs for others too."""
        return self.authority.with_suffix(".key")

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a listener."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["http/1.1"])
        # Whoever has a certificate of our authority may show it instead of a token.
        context.load_verify_locations(self.authority)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


def ensure_certificates(directory: Path, names: Sequence[str]) -> Certificates:
    """Return the certificates in a directory for these host names and addresses, made where needed.

    The authority stays for good, so that clients keep trusting the server after a restart on another
    address.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = Certificates(directory / "ca.crt", directory / "tls.crt", directory / "tls.key")
    authority_key = directory / "ca.key"
    if not (files.authority.exists() and authority_key.exists()):
        _make_authority(files.authority, authority_key)
        files.certificate.unlink(missing_ok=True)
    if not _serves(files, names):
        _make_serving(files, authority_key, names)
    return files


def _serves(files: Certificates, names: Sequence[str]) -> bool:
    if not (files.certificate.exists() and files.key.exists()):
        return False
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    if certificate.public_key() != key.public_key():
        return False  # the making of a new pair was cut short between its two files
    if certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=_RENEW_DAYS):
        return False
    present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(_alternative(names)) <= set(present)


def _alternative(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _make_authority(certificate: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mooring-ca")])
    built = _builder(name, name, key.public_key(), _AUTHORITY_DAYS)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    built = built.add_extension(_usage(signs=True), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    built = built.add_extension(identifier, critical=False)
    _write_key(key_file, key)
    _write(certificate, built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _make_serving(files: Certificates, authority_key: Path, names: Sequence[str]) -> None:
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mooring-api")])
    built = _builder(name, authority.subject, key.public_key(), _SERVING_DAYS)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(_usage(signs=False), critical=True)
    built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    built = built.add_extension(x509.SubjectAlternativeName(_alternative(names)), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    built = built.add_extension(issuer, critical=False)
    _write_key(files.key, key)
    _write(files.certificate, built.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )


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


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(path, pem)


def _write(path: Path, content: bytes) -> None:
    """Put a file in its place whole, readable by its owner only: nobody ever finds half of one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
