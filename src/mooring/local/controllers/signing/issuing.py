"""What may be signed for whom, and the certificate that comes of it. Pure but for reading the authority."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["SIGNERS", "IssueError", "Issuer", "refused"]

_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
_KUBELET: Final = "kubernetes.io/kube-apiserver-client-kubelet"
_SERVING: Final = "kubernetes.io/kubelet-serving"
SIGNERS: Final = frozenset((_CLIENT, _KUBELET, _SERVING))

_LIFETIME: Final = timedelta(days=365)
_SHORTEST: Final = timedelta(minutes=10)
#: How far a certificate begins in the past, for clocks that are behind; its end moves along unless it is near.
_BACKDATED: Final = timedelta(minutes=5)
_NEAR: Final = timedelta(hours=8)

_KEY_USAGES: Final = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED: Final = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
}
_SAN_KINDS: Final = {
    x509.DNSName: "DNS",
    x509.IPAddress: "IP",
    x509.RFC822Name: "Email",
    x509.UniformResourceIdentifier: "URI",
}


class IssueError(ValueError):
    """A request that cannot become a certificate; the text says why."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authority with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def load(cls, authority: bytes, key: Path) -> Issuer:
        """Return the issuer of an authority (PEM) whose key is in a file (PEM, not encrypted)."""
        loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise IssueError(f"{key} holds no elliptic curve key")
        return cls(x509.load_pem_x509_certificate(authority), loaded)

    def issue(
        self,
        request: x509.CertificateSigningRequest,
        usages: Sequence[str],
        *,
        now: datetime,
        seconds: int | None = None,
    ) -> bytes:
        """Return a certificate (PEM) for a request; `seconds` of life, at most a year, at least ten minutes."""
        wished = _LIFETIME if seconds is None else timedelta(seconds=seconds)
        lifetime = max(_SHORTEST, min(wished, _LIFETIME))
        end = now + (lifetime if lifetime < _NEAR else lifetime - _BACKDATED)
        end = min(end, self.certificate.not_valid_after_utc)
        if now >= end:
            raise IssueError(f"the signer has expired: NotAfter={end}")
        built = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self.certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
        )
        if flags := _flags(usages):
            built = built.add_extension(flags, critical=True)
        if extended := [_EXTENDED[usage] for usage in usages if usage in _EXTENDED]:
            built = built.add_extension(x509.ExtendedKeyUsage(list(dict.fromkeys(extended))), critical=False)
        if names := _names(request):
            built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return built.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _flags(usages: Collection[str]) -> x509.KeyUsage | None:
    known = set(_KEY_USAGES) | set(_EXTENDED)
    for usage in usages:
        if usage not in known:
            raise IssueError(f"unrecognized usage values: {usage}")
    wanted = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
    if not wanted:
        return None
    return x509.KeyUsage(**{name: name in wanted for name in dict.fromkeys(_KEY_USAGES.values())})


def _names(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return list(found.value)


# --- what a signer signs --------------------------------------------------------------------------------


def refused(signer: str, request: x509.CertificateSigningRequest, usages: Sequence[str]) -> str:
    """Say why a signer does not sign a request, "" when it does."""
    if signer == _CLIENT:
        return _not_a_client(usages)
    if signer == _KUBELET:
        return _not_a_node(request) or _other_names(request) or _other_usages(usages, "client auth")
    if signer == _SERVING:
        return _not_a_node(request) or _not_serving(request) or _other_usages(usages, "server auth")
    return f"unrecognized signerName: {signer}"


def _not_a_client(usages: Sequence[str]) -> str:
    for usage in usages:
        if usage not in ("digital signature", "key encipherment", "client auth"):
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"


def _not_a_node(request: x509.CertificateSigningRequest) -> str:
    def values(oid: x509.ObjectIdentifier) -> list[str]:
        return [str(attribute.value) for attribute in request.subject.get_attributes_for_oid(oid)]

    if values(NameOID.ORGANIZATION_NAME) != ["system:nodes"]:
        return "subject organization is not system:nodes"
    names = values(NameOID.COMMON_NAME)
    if not (names and names[0].startswith("system:node:")):
        return "subject common name does not begin with system:node: "
    return ""


def _present(request: x509.CertificateSigningRequest) -> set[str]:
    return {_SAN_KINDS.get(type(name), "") for name in _names(request)}


def _other_names(request: x509.CertificateSigningRequest) -> str:
    present = _present(request)
    kinds = (kind for kind in _SAN_KINDS.values() if kind in present)
    return next((f"{kind} subjectAltNames are not allowed" for kind in kinds), "")


def _not_serving(request: x509.CertificateSigningRequest) -> str:
    present = _present(request)
    if not present & {"DNS", "IP"}:
        return "DNS or IP subjectAltName is required"
    kinds = (kind for kind in ("Email", "URI") if kind in present)
    return next((f"{kind} subjectAltNames are not allowed" for kind in kinds), "")


def _other_usages(usages: Sequence[str], purpose: str) -> str:
    small = {"digital signature", purpose}
    if set(usages) in (small, small | {"key encipherment"}):
        return ""
    return f"usages did not match {sorted(small | {'key encipherment'})}"
