"""Keys and certificates of one embedded control plane, made once and kept in its data directory."""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Pki", "load_or_make", "write_private"]

YEARS = timedelta(days=3650)
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Pki:
    """What a server needs: the CA for its clients, its own certificate, the administrator's token."""

    ca: bytes
    certificate: Path
    key: Path
    token: str
    service_account_key: bytes

    def server_context(self) -> ssl.SSLContext:
        """TLS settings for the listening side."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self.certificate, self.key)
        return context


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def load_or_make(directory: Path, *, addresses: Iterable[str]) -> Pki:
    """Read the keys in ``directory``, making those that are missing.

    The server's certificate is made anew when ``addresses`` holds one that it does not bear, or when it is
    about to expire; the CA and the token stay, so kubeconfigs remain valid.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key_path, ca_path = directory / "ca.key", directory / "ca.crt"
    if not ca_path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(ca_key_path, _pem(key))
        write_private(
            ca_path, _certificate(key, key, "mooring-ca", None, ()).public_bytes(serialization.Encoding.PEM)
        )
    ca_key = serialization.load_pem_private_key(ca_key_path.read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    wanted = {ipaddress.ip_address(a) for a in addresses}
    certificate, key_path = directory / "server.crt", directory / "server.key"
    if not _covers(certificate, wanted):
        server_key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.load_pem_x509_certificate(ca_path.read_bytes())
        made = _certificate(server_key, ca_key, "mooring-apiserver", issuer, wanted)
        write_private(key_path, _pem(server_key))
        write_private(certificate, made.public_bytes(serialization.Encoding.PEM))
    token_path, account_path = directory / "admin.token", directory / "sa.key"
    if not token_path.exists():
        write_private(token_path, secrets.token_urlsafe(32).encode())
    if not account_path.exists():
        write_private(account_path, _pem(ec.generate_private_key(ec.SECP256R1())))
    return Pki(
        ca_path.read_bytes(), certificate, key_path, token_path.read_text().strip(), account_path.read_bytes()
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _covers(path: Path, wanted: set[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bool:
    if not path.exists():
        return False
    found = x509.load_pem_x509_certificate(path.read_bytes())
    if found.not_valid_after_utc - datetime.now(UTC) < timedelta(days=30):
        return False
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return wanted <= set(names.get_values_for_type(x509.IPAddress))


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    name: str,
    issuer: x509.Certificate | None,
    addresses: Iterable[ipaddress.IPv4Address | ipaddress.IPv6Address],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC) - timedelta(minutes=5)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + YEARS)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if issuer is None:
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    else:
        names = [x509.DNSName(n) for n in (*NAMES, "kubernetes.default.svc.cluster.local")]
        alternative = x509.SubjectAlternativeName([*names, *(x509.IPAddress(a) for a in addresses)])
        builder = builder.add_extension(alternative, critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(signer, hashes.SHA256())
