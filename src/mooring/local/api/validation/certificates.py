"""The rules of CertificateSigningRequests."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from cryptography import x509

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import duplicate, forbidden, invalid, not_supported, required
from mooring.local.api.validation.rules import Errors, JsonObject, Rules, Table, nothing

__all__ = ["RULES"]


_LEGACY: Final = "kubernetes.io/legacy-unknown"
_USAGES: Final = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system",
    "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc",
    "ocsp signing", "s/mime", "server auth", "signing", "timestamping",
)  # fmt: skip
_SHORTEST: Final = 600
_PATH: Final = "status.conditions"
#: Conditions that only an approval sets.
_DECISIONS: Final = ("Approved", "Denied")
#: Conditions that stay once they are there, and are true.
_LASTING: Final = ("Approved", "Denied", "Failed")


def _signing_request(request: JsonObject) -> Errors:
    """Yield what is wrong with a new request."""
    spec = request.get("spec") or {}
    text = spec.get("request") or ""
    if why := _unreadable(text):
        yield invalid("spec.request", text, why)
    usages = spec.get("usages") or []
    if not usages:
        yield required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield not_supported(f"spec.usages[{index}]", usage, _USAGES)
    for index, usage in enumerate(usages):
        if usage in usages[:index]:
            yield duplicate(f"spec.usages[{index}]", usage)
    yield from _signer(spec.get("signerName") or "")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, why)


def _unreadable(text: str) -> str:
    try:
        content = base64.b64decode(text)
    except (ValueError, binascii.Error) as error:
        return str(error)
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in content:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        parsed = x509.load_pem_x509_csr(content)
    except ValueError as error:
        return str(error)
    return "" if parsed.is_signature_valid else "x509: the request is not signed with its own key"


def _signer(name: str) -> Errors:
    path = "spec.signerName"
    if not name:
        yield required(path)
        return
    if name == _LEGACY:
        yield invalid(path, name, "the legacy signerName is not allowed via this API version")
        return
    domain, slash, rest = name.partition("/")
    if not slash or not rest or "/" in rest:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, why)
        return
    for text in names.dns1123_subdomain(domain):
        yield invalid(path, domain, text)
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    for text in names.dns1123_subdomain(rest):
        yield invalid(path, rest, text)


def _approval(request: JsonObject, old: JsonObject) -> Errors:
    """Yield what is wrong with an approval or a denial."""
    yield from _decision(request, old)
    if _certificate(request) != _certificate(old):
        yield forbidden("status.certificate", "updates may not set certificate content")


def _signing_status(request: JsonObject, old: JsonObject) -> Errors:
    """Yield what is wrong with what a signer writes: it neither approves nor denies."""
    yield from _decision(request, old)
    for kind in _DECISIONS:
        before, after = ([c for c in _conditions(one) if c.get("type") == kind] for one in (old, request))
        if len(after) > len(before):
            yield forbidden(_PATH, f'updates may not add a condition of type "{kind}"')
        elif len(after) == len(before) and not same(after, before):
            yield forbidden(_PATH, f'updates may not modify a condition of type "{kind}"')
    if _certificate(old) and _certificate(request) != _certificate(old):
        yield forbidden("status.certificate", "updates may not modify existing certificate content")


def _decision(request: JsonObject, old: JsonObject) -> Errors:
    """Yield what is wrong with a decision: a condition is true, contradicts no other, and is never taken back."""
    before, after = _types(old), _types(request)
    for kind in _LASTING:
        if kind in before and kind not in after:
            yield forbidden(_PATH, f'updates may not remove a condition of type "{kind}"')
    known: set[str] = set()
    for index, condition in enumerate(_conditions(request)):
        place, kind, status = f"{_PATH}[{index}]", condition.get("type") or "", condition.get("status") or ""
        if not kind:
            yield required(f"{place}.type")
        allowed = ("True",) if kind in _LASTING else ("False", "True", "Unknown")
        if not status:
            yield required(f"{place}.status")
        elif status not in allowed:
            yield not_supported(f"{place}.status", status, allowed)
        if kind in _DECISIONS and known & ({*_DECISIONS} - {kind}):
            yield invalid(f"{place}.type", kind, "Approved and Denied conditions are mutually exclusive")
        if kind in known:
            yield duplicate(f"{place}.type", kind)
        known.add(kind)


def _certificate(request: JsonObject) -> str:
    return (request.get("status") or {}).get("certificate") or ""


def _conditions(request: JsonObject) -> list[JsonObject]:
    return (request.get("status") or {}).get("conditions") or []


def _types(request: JsonObject) -> set[str]:
    return {condition.get("type") or "" for condition in _conditions(request)}


RULES: Final[Table] = {
    ("certificates.k8s.io", "CertificateSigningRequest"): Rules(
        _signing_request, nothing, _signing_status, _approval
    ),
}
