"""Ways to sign in to a console that is served: a bearer token, an OpenID provider, a proxy in front of it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from mooring.cache import Clock
from mooring.console.keys import Keys
from mooring.console.oidc import FLOW_SECONDS, OidcError, Provider, Refused, SignedIn
from mooring.console.problems import Problem
from mooring.console.proxy import TrustedProxy
from mooring.console.session import Person, Session, Sessions, SignedOut
from mooring.console.settings import Settings
from mooring.console.upstream import Upstream
from mooring.kube import ApiError, Client, Forbidden, Unauthorized
from mooring.kube.objects.authentication import SelfSubjectReview

__all__ = ["CALLBACK", "OIDC", "SignIn", "read_keys", "user_of"]

log = structlog.get_logger("mooring.console")

OIDC: Final = "/signin/oidc"
CALLBACK: Final = OIDC + "/callback"
#: Seconds in which the answer to a refresh is given again, and that a revocation may take.
REFRESHED_SECONDS, REVOKE_SECONDS = 60.0, 3.0
#: Where a sign-in may lead: pages of the console alone.
_PAGE: Final = re.compile(r"/#/[A-Za-z0-9/_.,~%?&=+:-]{0,500}")


async def user_of(client: Client) -> str:
    """The user of a client; raises `Unauthorized` for nobody's credential."""
    review = await client.create(SelfSubjectReview())
    info = review.status.user_info if review.status is not None else None
    name = info.username if info is not None else None
    if not name or name == "system:anonymous":
        raise Unauthorized("no user", status=401)
    return name


class SignIn:
    """What the configuration allows besides the link of a console on loopback."""

    def __init__(
        self, settings: Settings | None, *, upstream: Upstream, sessions: Sessions, keys: Keys, clock: Clock
    ) -> None:
        """Raises `OSError`, and `ValueError` for files that do not hold what they should."""
        self._upstream = upstream
        self._sessions = sessions
        self._impersonate = settings is not None and settings.impersonate
        self.tokens = settings is None or settings.tokens
        self._proxy = TrustedProxy(settings.proxy) if settings and settings.proxy else None
        self._provider = (
            Provider(settings.oidc, back=settings.origin + CALLBACK, keys=keys, clock=clock)
            if settings and settings.oidc
            else None
        )
        self._cookie = "__Host-mooring-signin"
        self._clock = clock
        self._refreshed: dict[bytes, tuple[float, asyncio.Task[Session]]] = {}

    def ways(self) -> dict[str, Any]:
        """What the page may offer."""
        return {
            "tokens": self.tokens,
            "oidc": OIDC if self._provider is not None else None,
            "proxy": self._proxy is not None,
        }

    # --- a proxy

    def session(self, request: web.Request, *, refreshing: bool = False) -> tuple[Session, bool]:
        """The session of a request, and whether it is a new one; raises `SignedOut`, `Problem`.

        Where a proxy signs in, its session is the named user's as long as the proxy names them.
        """
        person = self._proxy.person(request) if self._proxy is not None else None
        try:
            session = self._sessions.read(request.cookies, refreshing=refreshing)
            if session.via != "proxy" or session.person == person:
                return session, False
            gone = SignedOut("invalid")
        except SignedOut as error:
            gone = error
        # A change needs the word of a session that its page has read before.
        if person is None or request.method not in ("GET", "HEAD"):
            raise gone
        self._check(person)
        log.info("signed in by the proxy", user=person.user)
        return self._sessions.begin(user=person.user, groups=person.groups, via="proxy"), True

    def _check(self, person: Person) -> Client:
        try:
            return self._upstream.acting(person)
        except ValueError as error:
            log.warning("a user was refused", user=person.user, reason=str(error))
            raise Problem(403, "ReservedName", f"The sign-in is refused: {error}.") from error

    # --- a provider

    async def leave(self, request: web.Request) -> web.Response:
        """Send the browser to the provider."""
        provider = self._known()
        wanted = request.query.get("to", "")
        try:
            place, sealed = await provider.begin(wanted if _PAGE.fullmatch(wanted) else "/")
        except OidcError as error:
            return self._refused(error)
        response = _redirect(place)
        # Lax: the way back begins on the provider's site.
        response.set_cookie(
            self._cookie,
            sealed,
            path="/",
            max_age=int(FLOW_SECONDS),
            secure=True,
            httponly=True,
            samesite="Lax",
        )
        return response

    async def arrive(self, request: web.Request) -> tuple[web.Response, Session | None]:
        """Take a browser that comes back from the provider: the answer, and the session if there is one."""
        provider = self._known()
        try:
            signed, to = await provider.finish(request.query, request.cookies.get(self._cookie, ""))
            session = await self._begin(signed)
        except (OidcError, ApiError, ValueError) as error:
            response, begun = self._refused(error), None
        else:
            response, begun = _redirect(to), session
            log.info("signed in by the provider", user=session.user, impersonated=session.impersonated)
        response.del_cookie(self._cookie, path="/", secure=True, httponly=True, samesite="Lax")
        return response, begun

    async def _begin(self, signed: SignedIn) -> Session:
        """A session with the token if the API server takes it, else one that impersonates, if that is allowed."""
        try:
            user = await user_of(self._upstream.bearer(signed.token))
        except Unauthorized:
            if not self._impersonate:
                raise OidcError("the API server does not accept the provider's tokens") from None
        else:
            # The API server counts by wall time, as a served console's sessions do.
            return self._sessions.begin(
                user=user,
                token=signed.token,
                via="oidc",
                ends=signed.ends,
                refresh=signed.refresh,
                subject=signed.subject,
            )
        person = signed.person
        try:
            await user_of(self._upstream.acting(person))
        except Forbidden as error:
            raise OidcError("the console may not act as this user, or for one of the groups") from error
        return self._sessions.begin(
            user=person.user,
            groups=person.groups,
            via="oidc",
            # Who can be asked again is asked again; a session that cannot lasts as long as any other.
            ends=signed.ends if signed.refresh else 0.0,
            refresh=signed.refresh,
            subject=signed.subject,
        )

    async def refresh(self, session: Session) -> Session:
        """The session with a new credential of the provider; raises `SignedOut` when the provider says no, `Problem`.

        Tabs that ask at once, or with the cookie of a moment ago, get the same answer: a refresh token is used once.
        """
        provider = self._known()
        if not session.refresh:
            raise Problem(400, "NothingToRefresh", "The provider gave no refresh token.")
        now = self._clock.monotonic()
        self._refreshed = {
            key: one for key, one in self._refreshed.items() if now - one[0] < REFRESHED_SECONDS
        }
        key = hashlib.sha256(session.refresh.encode()).digest()
        if key not in self._refreshed:
            self._refreshed[key] = (now, asyncio.create_task(self._refresh(provider, session)))
        task = self._refreshed[key][1]
        try:
            return await asyncio.shield(task)
        except (OidcError, ApiError, ValueError) as error:
            self._refreshed.pop(key, None)
            log.warning("a session was not refreshed", user=session.user, reason=str(error))
            if isinstance(error, (Refused, Unauthorized, Forbidden)):
                raise SignedOut("expired") from error
            raise Problem(502, "ProviderAway", f"The provider did not renew the sign-in: {error}.") from error

    async def _refresh(self, provider: Provider, session: Session) -> Session:
        signed = await provider.refresh(session.refresh, session.subject)
        new = await self._begin(signed)
        if new.user != session.user or new.impersonated != session.impersonated:
            raise Refused("the sign-in is of another user")
        # The same session: what ended it in another tab ends this one too.
        return replace(new, id=session.id, csrf=session.csrf, born=session.born)

    async def end(self, session: Session) -> None:
        """Let the provider forget a session, so that a copy of its cookie cannot be refreshed anywhere."""
        if self._provider is None or not session.refresh:
            return
        try:
            async with asyncio.timeout(REVOKE_SECONDS):
                await self._provider.revoke(session.refresh)
        except (OidcError, TimeoutError) as error:
            log.warning("the provider did not revoke a session", user=session.user, reason=str(error))

    def _known(self) -> Provider:
        if self._provider is None:
            raise Problem(404, "NoProvider", "This console has no OpenID provider.")
        return self._provider

    def _refused(self, error: Exception) -> web.Response:
        log.warning("a sign-in by the provider was refused", reason=str(error))
        return _redirect("/#/signin?refused=oidc")

    async def close(self) -> None:
        """Close connections to the provider."""
        tasks = [task for _, task in self._refreshed.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._provider is not None:
            await self._provider.close()


def read_keys(settings: Settings | None, clock: Clock) -> Keys:
    """The keys that the configuration names, else one of this process."""
    file = settings.session_keys if settings is not None else ""
    return Keys(clock, Path(file) if file else None)


def _redirect(to: str) -> web.Response:
    return web.Response(status=303, headers={"Location": to, "Cache-Control": "no-store"})
