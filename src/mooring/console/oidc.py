"""Sign-in by OpenID Connect: the authorization code flow with PKCE (RFC 7636), entirely on the server's side.

OidcError        the provider did not sign the user in; the message is for the log and for the user
  Refused        it said no

The browser holds no token but in the sealed session. What must be remembered between the two halves of a sign-in is in
a sealed cookie as well, so that any replica can take the second half.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp
import msgspec

from mooring.cache import Clock
from mooring.console.jwt import TokenError, check_claims, key_id, verified
from mooring.console.keys import Keys
from mooring.console.session import Person
from mooring.console.settings import Oidc, is_loopback

__all__ = ["FLOW_SECONDS", "Flow", "OidcError", "Provider", "Refused", "SignedIn"]

#: Seconds a sign-in may take; a provider's description and its keys count; between two reads for an unknown key.
FLOW_SECONDS, DESCRIPTION_SECONDS, KEYS_SECONDS, KEYS_AGAIN = 600.0, 3600.0, 600.0, 10.0
#: Seconds for an answer of the provider, bytes of one, groups of a user.
ANSWER_SECONDS, ANSWER_LIMIT, MOST_GROUPS = 10.0, 1024 * 1024, 200
_LABEL: Final = b"signin"


class OidcError(Exception):
    """The provider did not sign the user in."""


class Refused(OidcError):
    """The provider said no: it will not say yes when it is asked again."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a sign-in that has begun."""

    state: str
    nonce: str
    verifier: str
    to: str
    born: float


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed in, with which ID token, until when (seconds since 1970); ``refresh`` is a token for the next one."""

    person: Person
    token: str
    ends: float
    subject: str
    refresh: str = ""


class Provider:
    """One OpenID provider; ``back`` is where it sends browsers back to."""

    def __init__(self, settings: Oidc, *, back: str, keys: Keys, clock: Clock) -> None:
        """Raises `OSError` for files that cannot be read."""
        self._settings = settings
        self._back = back
        self._keys = keys
        self._clock = clock
        file = settings.client_secret_file
        self._secret = Path(file).read_text().strip() if file else ""
        self._tls: ssl.SSLContext | bool = (
            ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else True
        )
        self._http: aiohttp.ClientSession | None = None
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}
        self._lock = asyncio.Lock()

    async def begin(self, to: str) -> tuple[str, str]:
        """Where to send a browser that wants to sign in, and the cookie's value to give to it."""
        flow = Flow(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            to=to,
            born=self._now(),
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(flow.verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._back,
            "scope": " ".join(self._settings.scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        endpoint = await self._endpoint("authorization_endpoint")
        sealed = base64.urlsafe_b64encode(self._keys.seal(msgspec.json.encode(flow), _LABEL)).decode()
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", sealed

    async def finish(self, query: Mapping[str, str], cookie: str) -> tuple[SignedIn, str]:
        """Who came back from the provider, and where they wanted to go; raises `OidcError`."""
        try:
            plain = self._keys.open(base64.urlsafe_b64decode(cookie.encode()), _LABEL)
            flow = msgspec.json.decode(plain, type=Flow)
        except (ValueError, msgspec.MsgspecError) as error:
            raise OidcError("no sign-in was begun in this browser") from error
        if not hmac.compare_digest(flow.state.encode(), query.get("state", "").encode()):
            raise OidcError("the answer belongs to another sign-in")
        if not 0 <= self._now() - flow.born + 60 <= FLOW_SECONDS + 60:
            raise OidcError("the sign-in took too long")
        if query.get("iss", self._settings.issuer) != self._settings.issuer:
            raise OidcError("the answer is of another provider")
        if "error" in query:
            raise OidcError(f"the provider refused: {query['error'][:80]!r}")
        form = {
            "grant_type": "authorization_code",
            "code": query.get("code", ""),
            "redirect_uri": self._back,
            "code_verifier": flow.verifier,
        }
        return await self._exchange(form, nonce=flow.nonce), flow.to

    async def refresh(self, token: str, subject: str) -> SignedIn:
        """The same user again, for a refresh token, which is used up where the provider gives another one.

        Raises `Refused` when the provider ended the user's session there, `OidcError`.
        """
        found = await self._exchange({"grant_type": "refresh_token", "refresh_token": token}, nonce=None)
        if found.subject != subject:
            raise Refused("the ID token is of another user")
        return found if found.refresh else msgspec.structs.replace(found, refresh=token)

    async def revoke(self, token: str) -> None:
        """Let a refresh token be of no use any more (RFC 7009); raises `OidcError` where that cannot be had."""
        place = await self._endpoint("revocation_endpoint")
        form = {"token": token, "token_type_hint": "refresh_token", "client_id": self._settings.client_id}
        await self._ask("POST", place, empty=True, data=form, headers=self._credential())

    async def _exchange(self, form: Mapping[str, str], *, nonce: str | None) -> SignedIn:
        place = await self._endpoint("token_endpoint")
        sent = {**form, "client_id": self._settings.client_id}
        answer = await self._ask("POST", place, data=sent, headers=self._credential())
        token, more = answer.get("id_token"), answer.get("refresh_token")
        if not isinstance(token, str) or not token:
            raise OidcError("the provider gave no ID token")
        found = await self._check(token, nonce)
        return msgspec.structs.replace(found, refresh=more) if isinstance(more, str) else found

    def _credential(self) -> dict[str, str]:
        headers = {}
        if self._secret:
            # RFC 6749, 2.3.1: both are encoded as in a form before they are joined.
            pair = f"{quote_plus(self._settings.client_id)}:{quote_plus(self._secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return headers

    async def _check(self, token: str, nonce: str | None) -> SignedIn:
        settings = self._settings
        try:
            claims = verified(token, await self._signers(key_id(token)))
            ends = check_claims(
                claims,
                issuer=settings.issuer,
                client_id=settings.client_id,
                nonce=nonce,
                now=self._now(),
            )
        except TokenError as error:
            raise OidcError(str(error)) from error
        if settings.username_claim == "email" and claims.get("email_verified", True) is not True:
            raise OidcError("the e-mail address is not verified")
        user = claims.get(settings.username_claim)
        if not isinstance(user, str) or not user:
            raise OidcError(f"the ID token has no text in {settings.username_claim!r}")
        found = claims.get(settings.groups_claim, [])
        groups = [found] if isinstance(found, str) else found
        if not isinstance(groups, list) or not all(isinstance(group, str) and group for group in groups):
            raise OidcError(f"the ID token has no list of texts in {settings.groups_claim!r}")
        if len(groups) > MOST_GROUPS:
            raise OidcError(f"the user is in more than {MOST_GROUPS} groups")
        named = sorted({settings.groups_prefix + group for group in groups})
        person = Person(user=settings.username_prefix + user, groups=tuple(named))
        return SignedIn(person=person, token=token, ends=ends, subject=str(claims.get("sub") or ""))

    # --- the provider's description and keys

    async def _endpoint(self, name: str) -> str:
        issuer = self._settings.issuer
        place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        description = await self._cached(place, DESCRIPTION_SECONDS)
        if description.get("issuer") != issuer:
            raise OidcError(
                f"the provider calls itself {str(description.get('issuer'))[:200]!r}, not {issuer!r}"
            )
        found = description.get(name)
        parts = urlsplit(found) if isinstance(found, str) else None
        if parts is None or not (
            parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        ):
            raise OidcError(f"the provider names no {name} that is https")
        return str(found)

    async def _signers(self, wanted: str) -> list[Mapping[str, Any]]:
        place = await self._endpoint("jwks_uri")
        keys = _keys_of(await self._cached(place, KEYS_SECONDS))
        if wanted and all(key.get("kid") != wanted for key in keys):
            # The provider has changed its keys. A stream of forged ids must not become a stream of requests.
            keys = _keys_of(await self._cached(place, KEYS_AGAIN))
        return keys

    async def _cached(self, place: str, seconds: float) -> dict[str, Any]:
        async with self._lock:
            known = self._known.get(place)
            if known is None or self._clock.monotonic() - known[0] >= seconds:
                known = self._known[place] = (self._clock.monotonic(), await self._ask("GET", place))
            return known[1]

    async def _ask(self, method: str, place: str, *, empty: bool = False, **more: Any) -> dict[str, Any]:
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
            self._http = aiohttp.ClientSession(timeout=timeout, headers={"Accept": "application/json"})
        try:
            # A redirect would lead the client's secret elsewhere.
            async with self._http.request(
                method, place, ssl=self._tls, allow_redirects=False, **more
            ) as answer:
                body = await answer.content.read(ANSWER_LIMIT)
                while len(body) < ANSWER_LIMIT and (chunk := await answer.content.read(ANSWER_LIMIT)):
                    body += chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise OidcError("the provider does not answer") from error
        try:
            found = msgspec.json.decode(body)
        except msgspec.MsgspecError:
            found = {} if empty else None
        if answer.status != 200 or not isinstance(found, dict):
            why = str(found.get("error"))[:80] if isinstance(found, dict) else ""
            kind = Refused if answer.status in (400, 401) else OidcError
            raise kind(f"the provider answered {answer.status} {why}".rstrip())
        return found

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _keys_of(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = answer.get("keys")
    if not isinstance(found, list):
        raise OidcError("the provider's keys cannot be read")
    return [key for key in found if isinstance(key, dict)]
