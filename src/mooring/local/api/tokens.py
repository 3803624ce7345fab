"""ServiceAccount tokens: JWTs signed with the server's own key (ES256)."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

__all__ = ["ISSUER", "Authority", "Claims", "TokenError"]

ISSUER = "https://kubernetes.default.svc.cluster.local"
_SIZE = 32


class TokenError(ValueError):
    """A token that is not valid; the text never holds the token."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Whom a ServiceAccount token speaks for, and until when."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    expires: float
    pod: str = ""
    pod_uid: str = ""


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
        bound: dict[str, Any] = {
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.name, "uid": claims.uid},
        }
        if claims.pod:
            bound["pod"] = {"name": claims.pod, "uid": claims.pod_uid}
        issued = int(now.timestamp())
        payload = {
            "aud": list(claims.audiences),
            "exp": int(claims.expires),
            "iat": issued,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": bound,
            "nbf": issued,
            "sub": subject,
        }
        header = {"alg": "ES256", "kid": self._key_id}
        signed = _text(msgspec.json.encode(header)) + "." + _text(msgspec.json.encode(payload))
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return signed + "." + _text(r.to_bytes(_SIZE, "big") + s.to_bytes(_SIZE, "big"))

    def verify(self, token: str, *, now: datetime, audiences: Sequence[str] = (ISSUER,)) -> Claims:
        """Return whom a token speaks for; raises TokenError."""
        signed, _, signature = token.rpartition(".")
        try:
            raw = _bytes(signature)
            encoded = encode_dss_signature(
                int.from_bytes(raw[:_SIZE], "big"), int.from_bytes(raw[_SIZE:], "big")
            )
            self._key.public_key().verify(encoded, signed.encode(), ec.ECDSA(hashes.SHA256()))
            payload = msgspec.json.decode(_bytes(signed.partition(".")[2]))
            bound = payload["kubernetes.io"]
            account, pod = bound["serviceaccount"], bound.get("pod") or {}
            claims = Claims(
                namespace=bound["namespace"],
                name=account["name"],
                uid=account["uid"],
                audiences=tuple(payload["aud"]),
                expires=payload["exp"],
                pod=pod.get("name", ""),
                pod_uid=pod.get("uid", ""),
            )
        except (InvalidSignature, ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise TokenError("the token is not one this server signed") from error
        if claims.expires <= now.timestamp():
            raise TokenError("the token has expired")
        if not set(audiences) & set(claims.audiences):
            raise TokenError("the token is for other audiences")
        return claims

    def key_set(self) -> Mapping[str, Any]:
        """Return the JSON Web Key Set that verifies the tokens."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": self._key_id,
            "crv": "P-256",
            "alg": "ES256",
            "x": _text(numbers.x.to_bytes(_SIZE, "big")),
            "y": _text(numbers.y.to_bytes(_SIZE, "big")),
        }
        return {"keys": [key]}


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
