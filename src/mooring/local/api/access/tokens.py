"""ServiceAccount tokens: JWTs signed with the server's own key (ES256)."""

from __future__ import annotations

import base64
import hashlib
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

__all__ = ["BOUND", "ISSUER", "Authority", "Claims", "TokenError"]

ISSUER = "https://kubernetes.default.svc.cluster.local"
#: What a token can be bound to, as its claims name it.
BOUND = ("pod", "secret", "node")
_ALGORITHM, _SIZE = "ES256", 32
#: Seconds by which the clock of who signed may be ahead of ours.
_LEEWAY = 60.0
#: The issuer of the tokens in Secrets, and how their claims begin.
_LASTING_ISSUER, _LASTING = "kubernetes/serviceaccount", "kubernetes.io/serviceaccount/"
#: What a token raises that is not what it should be.
_BROKEN = (InvalidSignature, ValueError, KeyError, TypeError, RecursionError, msgspec.MsgspecError)


class TokenError(ValueError):
    """A token that is not valid; the text never holds the token and may be empty."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Whom a ServiceAccount token speaks for, and until when (seconds since 1970)."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    expires: float
    #: Name and UID of what it is bound to, by kind (see BOUND).
    bound: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    #: A token of a Secret, good while that Secret holds it.
    lasting: bool = False
    #: Before it, the token is not good.
    begins: float = 0.0


class Authority:
    """Signs and verifies ServiceAccount tokens; without a key it makes one on first use."""

    def __init__(self, key_pem: bytes | None = None) -> None:
        self._pem = key_pem

    @staticmethod
    def new_key() -> bytes:
        """Return a new private key, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self._pem or self.new_key(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("the ServiceAccount key must be an elliptic-curve (P-256) key")
        return key

    @cached_property
    def _key_id(self) -> str:
        public = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return _text(hashlib.sha256(public).digest())

    def sign(self, claims: Claims, *, now: datetime) -> str:
        """Return a token."""
        subject = f"system:serviceaccount:{claims.namespace}:{claims.name}"
        about: dict[str, Any] = {
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.name, "uid": claims.uid},
        }
        for kind, (name, uid) in claims.bound.items():
            about[kind] = {"name": name, "uid": uid} if uid else {"name": name}
        issued = int(now.timestamp())
        payload = {
            "aud": list(claims.audiences),
            "exp": int(claims.expires),
            "iat": issued,
            "iss": ISSUER,
            "jti": claims.id,
            "kubernetes.io": about,
            "nbf": issued,
            "sub": subject,
        }
        return self._signed(payload)

    def sign_lasting(self, secret: tuple[str, str], *, account: str, uid: str) -> str:
        """Return the token of a Secret (namespace and name) for an account; it never expires."""
        namespace, name = secret
        payload = {
            "iss": _LASTING_ISSUER,
            f"{_LASTING}namespace": namespace,
            f"{_LASTING}secret.name": name,
            f"{_LASTING}service-account.name": account,
            f"{_LASTING}service-account.uid": uid,
            "sub": f"system:serviceaccount:{namespace}:{account}",
        }
        return self._signed(payload)

    def _signed(self, payload: Mapping[str, Any]) -> str:
        header = {"alg": _ALGORITHM, "kid": self._key_id}
        signed = _text(msgspec.json.encode(header)) + "." + _text(msgspec.json.encode(payload))
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return signed + "." + _text(r.to_bytes(_SIZE, "big") + s.to_bytes(_SIZE, "big"))

    def verify(self, token: str, *, now: datetime, audiences: Sequence[str] = (ISSUER,)) -> Claims:
        """Return whom a token speaks for; raises TokenError."""
        signed, _, signature = token.rpartition(".")
        header, _, content = signed.partition(".")
        try:
            raw = _bytes(signature)
            if len(raw) != 2 * _SIZE:
                raise TokenError
            encoded = encode_dss_signature(
                int.from_bytes(raw[:_SIZE], "big"), int.from_bytes(raw[_SIZE:], "big")
            )
            self._key.public_key().verify(encoded, signed.encode(), ec.ECDSA(hashes.SHA256()))
            # Nothing of a token is decoded before its signature is known to be ours.
            if msgspec.json.decode(_bytes(header))["alg"] != _ALGORITHM:
                raise TokenError
            claims = _claims(msgspec.json.decode(_bytes(content)))
        except _BROKEN as error:
            raise TokenError from error
        if not set(audiences) & set(claims.audiences):
            theirs, ours = _quoted(claims.audiences), _quoted(audiences)
            raise TokenError(f"token audiences {theirs} is invalid for the target audiences {ours}")
        if claims.begins > now.timestamp() + _LEEWAY:
            raise TokenError("service account token is not valid yet")
        if claims.expires <= now.timestamp():
            raise TokenError("service account token has expired")
        return claims

    def key_set(self) -> Mapping[str, Any]:
        """Return the JSON Web Key Set that verifies the tokens."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": self._key_id,
            "crv": "P-256",
            "alg": _ALGORITHM,
            "x": _text(numbers.x.to_bytes(_SIZE, "big")),
            "y": _text(numbers.y.to_bytes(_SIZE, "big")),
        }
        return {"keys": [key]}


def _claims(payload: Any) -> Claims:
    if payload["iss"] == _LASTING_ISSUER:
        return Claims(
            namespace=payload[f"{_LASTING}namespace"],
            name=payload[f"{_LASTING}service-account.name"],
            uid=payload[f"{_LASTING}service-account.uid"],
            audiences=(ISSUER,),
            expires=math.inf,
            bound={"secret": (payload[f"{_LASTING}secret.name"], "")},
            id="",
            lasting=True,
        )
    if payload["iss"] != ISSUER:
        raise TokenError
    about = payload["kubernetes.io"]
    account = about["serviceaccount"]
    return Claims(
        namespace=about["namespace"],
        name=account["name"],
        uid=account["uid"],
        audiences=tuple(payload["aud"]),
        expires=float(payload["exp"]),
        begins=float(payload.get("nbf", 0)),
        bound={kind: (about[kind]["name"], about[kind].get("uid", "")) for kind in BOUND if about.get(kind)},
        id=payload["jti"],
    )


def _quoted(texts: Sequence[str]) -> str:
    return "[" + " ".join(f'"{text}"' for text in texts) + "]"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
