"""A small OpenID provider for tests, which can be told to lie."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

__all__ = ["CLIENT", "SECRET", "Provider", "running"]

CLIENT, SECRET = "mooring", "client-secret"
Json = Any


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Signer:
    """A key under an id, and how it signs."""

    def __init__(self, kid: str, algorithm: str = "RS256", bits: int = 2048) -> None:
        self.kid, self.algorithm = kid, algorithm
        self._rsa = rsa.generate_private_key(65537, bits)
        self._ec = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> Json:
        if self.algorithm == "ES256":
            point = self._ec.public_key().public_numbers()
            x, y = (b64(one.to_bytes(32, "big")) for one in (point.x, point.y))
            return {"kty": "EC", "crv": "P-256", "kid": self.kid, "x": x, "y": y}
        found = self._rsa.public_key().public_numbers()
        return {"kty": "RSA", "kid": self.kid, "use": "sig", "n": number(found.n), "e": number(found.e)}

    def sign(self, text: bytes) -> bytes:
        if self.algorithm == "ES256":
            r, s = decode_dss_signature(self._ec.sign(text, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        if self.algorithm == "PS256":
            salted = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
            return self._rsa.sign(text, salted, hashes.SHA256())
        return self._rsa.sign(text, padding.PKCS1v15(), hashes.SHA256())

    def token(self, claims: Json, **header: Json) -> str:
        head = {"alg": self.algorithm, "kid": self.kid, **header}
        text = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
        return f"{text}.{b64(self.sign(text.encode()))}"


class Provider:
    """Signs in ``claims``; ``lie`` may change the token before it is given out."""

    def __init__(self) -> None:
        self.issuer = ""
        self.keys = [Signer("one")]
        self.claims: Json = {"sub": "carol", "groups": ["dev", "ops"]}
        self.lie: Callable[[Json, Signer], str] = lambda claims, signer: signer.token(claims)
        self.described: Json = {}
        self.asked: list[str] = []
        self.refreshes: list[str] | None = None
        """Refresh tokens that are good; None: the provider gives none."""
        self.away = False
        self._codes: dict[str, dict[str, str]] = {}

    def authorize(self, place: str) -> dict[str, str]:
        """What the provider answers a browser that was sent to it: the query it comes back with."""
        assert place.startswith(f"{self.issuer}/authorize?")
        query = {name: values[0] for name, values in parse_qs(urlsplit(place).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        return {"code": code, "state": query["state"]}

    async def sign_in(self, request: web.Request) -> web.Response:
        """Signs every visitor in at once, and sends them back."""
        query = urlencode(self.authorize(f"{self.issuer}{request.path_qs}"))
        raise web.HTTPFound(f"{request.query['redirect_uri']}?{query}")

    async def describe(self, request: web.Request) -> web.Response:
        self.asked.append("description")
        named = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "revocation_endpoint": f"{self.issuer}/revoke",
        }
        return web.json_response(named | self.described)

    async def give_keys(self, request: web.Request) -> web.Response:
        self.asked.append("keys")
        return web.json_response({"keys": [key.public for key in self.keys]})

    async def give_token(self, request: web.Request) -> web.Response:
        form = await request.post()
        if self.away:
            return web.json_response({"error": "temporarily_unavailable"}, status=503)
        if form.get("grant_type") == "refresh_token":
            return self._renew(str(form.get("refresh_token")), request)
        query = self._codes.pop(str(form.get("code")), None)
        challenge = b64(hashlib.sha256(str(form.get("code_verifier")).encode()).digest())
        basic = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if (
            query is None
            or challenge != query["code_challenge"]
            or form.get("redirect_uri") != query["redirect_uri"]
            or request.headers.get("Authorization") != basic
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._given({"nonce": query["nonce"]})

    def _given(self, more: Json) -> web.Response:
        now = int(time.time())
        standard = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, **more}
        answer = {"id_token": self.lie({**standard, **self.claims}, self.keys[0])}
        if self.refreshes is not None:
            self.refreshes.append(f"refresh-{len(self.asked)}-{len(self.refreshes)}")
            answer["refresh_token"] = self.refreshes[-1]
        return web.json_response(answer)

    def _renew(self, token: str, request: web.Request) -> web.Response:
        self.asked.append("refresh")
        basic = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if (
            self.refreshes is None
            or token not in self.refreshes
            or request.headers.get("Authorization") != basic
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.refreshes.remove(token)
        return self._given({})

    async def revoke(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.asked.append("revoke")
        if self.refreshes is not None and form.get("token") in self.refreshes:
            self.refreshes.remove(str(form["token"]))
        return web.Response()


@asynccontextmanager
async def running() -> AsyncIterator[Provider]:
    """A provider on loopback."""
    provider = Provider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.describe)
    app.router.add_get("/keys", provider.give_keys)
    app.router.add_get("/authorize", provider.sign_in)
    app.router.add_post("/token", provider.give_token)
    app.router.add_post("/revoke", provider.revoke)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield provider
    finally:
        await runner.cleanup()
