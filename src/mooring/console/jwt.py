"""ID tokens (RFC 7519), verified with the keys of their issuer (RFC 7517).

TokenError    a token that proves nothing; the message says why, and never holds the token
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

__all__ = ["LEEWAY", "TokenError", "check_claims", "key_id", "verified"]

#: Seconds that two clocks may differ; bytes of a token; bits of an RSA key at least.
LEEWAY, TOKEN_LIMIT, RSA_BITS = 60.0, 16 * 1024, 2048


class TokenError(ValueError):
    """A token that proves nothing."""


def key_id(token: str) -> str:
    """The id of the key that signed a token, "" if it names none; raises `TokenError`."""
    found = _part(token.split(".")[0]).get("kid", "")
    return found if isinstance(found, str) else ""


def verified(token: str, keys: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The claims of a token that one of the keys signed; raises `TokenError`.

    Only signatures with a public key count. A key serves one algorithm, so a token cannot choose another for it.
    """
    if len(token) > TOKEN_LIMIT:
        raise TokenError("the ID token is too long")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenError("the ID token does not have three parts")
    header, claims = _part(parts[0]), _part(parts[1])
    check = _CHECKS.get(str(header.get("alg")))
    if check is None or "crit" in header:
        raise TokenError(
            f"the ID token is signed by {str(header.get('alg'))[:20]!r}, not by {', '.join(_CHECKS)}"
        )
    kind, verify = check
    wanted = header.get("kid")
    signed, signature = f"{parts[0]}.{parts[1]}".encode(), _bytes(parts[2])
    for key in keys:
        if (
            key.get("kty") != kind
            or key.get("use", "sig") != "sig"
            or key.get("alg") not in (None, header["alg"])
        ):
            continue
        if wanted is not None and key.get("kid") != wanted:
            continue
        try:
            verify(key, signed, signature)
        except (InvalidSignature, ValueError, KeyError, TypeError):
            continue
        return claims
    raise TokenError("no key of the provider signed the ID token")


def check_claims(
    claims: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str | None, now: float
) -> float:
    """When the token ends, in seconds since 1970, after everything it must say was checked; raises `TokenError`.

    Without a ``nonce`` it answers no sign-in, but a refresh (OpenID Connect Core 12.2).
    """
    if claims.get("iss") != issuer:
        raise TokenError("the ID token is of another issuer")
    audience = claims.get("aud")
    audiences: Sequence[Any] = audience if isinstance(audience, list) else [audience]
    if client_id not in audiences:
        raise TokenError("the ID token is for another client")
    if claims.get("azp", client_id) != client_id or (len(audiences) > 1 and "azp" not in claims):
        raise TokenError("the ID token was given to another client")
    if nonce is not None and (not isinstance(claims.get("nonce"), str) or claims["nonce"] != nonce):
        raise TokenError("the ID token is not the answer to this sign-in")
    ends, issued, begins = (_number(claims, name) for name in ("exp", "iat", "nbf"))
    if ends is None or ends <= now - LEEWAY:
        raise TokenError("the ID token has expired: are the clocks right?")
    if issued is None or issued > now + LEEWAY or (begins is not None and begins > now + LEEWAY):
        raise TokenError("the ID token is of the future: are the clocks right?")
    return ends


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _part(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(_bytes(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TokenError("the ID token is not JSON") from error
    if not isinstance(found, dict):
        raise TokenError("the ID token is not an object")
    return found


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenError("the ID token is not base64url") from error


def _integer(key: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(_bytes(key[name]), "big")


def _rsa(key: Mapping[str, Any]) -> rsa.RSAPublicKey:
    public = rsa.RSAPublicNumbers(_integer(key, "e"), _integer(key, "n")).public_key()
    if public.key_size < RSA_BITS:
        raise ValueError("a short key")
    return public


def _rs256(key: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
    _rsa(key).verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())


def _ps256(key: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
    salted = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=hashes.SHA256.digest_size)
    _rsa(key).verify(signature, signed, salted, hashes.SHA256())


def _es256(key: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
    if key.get("crv") != "P-256" or len(signature) != 64:
        raise ValueError("another curve")
    numbers = ec.EllipticCurvePublicNumbers(_integer(key, "x"), _integer(key, "y"), ec.SECP256R1())
    r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
    numbers.public_key().verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))


_CHECKS: Final[dict[str, tuple[str, Callable[[Mapping[str, Any], bytes, bytes], None]]]] = {
    "RS256": ("RSA", _rs256),
    "PS256": ("RSA", _ps256),
    "ES256": ("EC", _es256),
}
