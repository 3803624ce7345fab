"""Who is signed in: sealed cookies, and the link that signs in once.

SignedOut    there is no session, or it has ended; ``reason`` says which

A session is in cookies that only holders of the keys can read or make, so there is nothing to store, and every replica
with the same keys opens it. It ends after half an hour without a request, after twelve hours in any case, with the
credential it holds, and when its user signs out.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec

from mooring.cache import Clock
from mooring.console.keys import Keys

__all__ = ["Person", "Session", "Sessions", "SignedOut", "Via", "own_session"]

#: Seconds without a request, seconds in all, and seconds after which the cookie is renewed.
IDLE, LONGEST, RENEW = 30 * 60.0, 12 * 3600.0, 60.0
#: Bytes of a cookie, and cookies of a session: browsers keep 4096 bytes with name and attributes.
COOKIE_LIMIT, COOKIES = 3800, 3
#: Sessions that were ended before their time, at most.
MOST_ENDED: Final = 10_000

Via = Literal["link", "token", "proxy", "oidc"]
"""How somebody signed in."""


class SignedOut(Exception):
    """There is no session: ``missing``, ``expired`` or ``invalid``."""

    def __init__(self, reason: Literal["missing", "expired", "invalid"]) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A user and their groups, as a proxy or a provider named them."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One signed-in browser: it acts with its ``token``, by impersonation, or with the ``own`` credential.

    ``ends`` is when its credential does, 0 for one that does not say; ``refresh`` is a provider's token for the next
    credential of ``subject``.
    """

    id: str
    own: bool = False
    impersonated: bool = False
    via: Via = "token"
    user: str
    groups: tuple[str, ...] = ()
    csrf: str = field(repr=False)
    token: str = field(default="", repr=False)
    born: float
    seen: float
    ends: float = 0.0
    refresh: str = field(default="", repr=False)
    subject: str = ""

    @property
    def identity(self) -> str:
        """Whose rights these are, for caches of decisions."""
        if self.own:
            return "own"
        if self.impersonated:
            return hashlib.sha256(msgspec.json.encode((self.user, sorted(self.groups)))).hexdigest()
        return hashlib.sha256(self.token.encode()).hexdigest()

    @property
    def person(self) -> Person:
        """Who it is."""
        return Person(user=self.user, groups=self.groups)


def own_session(user: str) -> Session:
    """The console itself, for questions about its own rights; no browser gets this."""
    return Session(id="", own=True, via="link", user=user, csrf="", born=0.0, seen=0.0)


class Sessions:
    """Makes, seals and reads sessions.

    On loopback ``port`` keeps apart the cookies of two consoles on one host. A console that is served (``served``)
    has cookies for HTTPS and its own host alone, and no session of its own credential; replicas agree on wall time.
    """

    def __init__(self, clock: Clock, *, port: int, keys: Keys | None = None, served: bool = False) -> None:
        self.cookie = "__Host-mooring-console" if served else f"mooring-console-{port}"
        self.served = served
        self._clock = clock
        self._keys = keys if keys is not None else Keys(clock)
        self._link: bytes | None = None
        self._ended: dict[str, float] = {}

    # --- the link

    def new_link(self) -> str:
        """A token that signs in once; a former one that was not used is void."""
        token = secrets.token_urlsafe(32)
        self._link = _digest(token)
        return token

    def use_link(self, token: str) -> bool:
        """Whether this is the link's token, which is thereby used up."""
        if self._link is None or not hmac.compare_digest(self._link, _digest(token)):
            return False
        self._link = None
        return True

    # --- sessions

    def begin(
        self,
        *,
        user: str,
        groups: tuple[str, ...] = (),
        token: str | None = None,
        via: Via = "token",
        ends: float = 0.0,
        refresh: str = "",
        subject: str = "",
    ) -> Session:
        """A new session; without a token one that impersonates, and by the link one of the console's credential."""
        if token == "":
            raise ValueError("an empty token is nobody's")
        if via == "link" and self.served:
            raise ValueError("a console that is served lends its credential to nobody")
        now = self.now()
        return Session(
            own=via == "link",
            impersonated=token is None and via != "link",
            via=via,
            id=secrets.token_urlsafe(16),
            user=user,
            groups=groups,
            csrf=secrets.token_urlsafe(24),
            token=token or "",
            born=now,
            seen=now,
            ends=ends,
            refresh=refresh,
            subject=subject,
        )

    def fitting(self, session: Session) -> Session:
        """The session, without its refresh token where the cookies have no room for it: it lasts as long as its token."""
        try:
            self.seal(session)
        except ValueError:
            return replace(session, refresh="")
        return session

    def seal(self, session: Session) -> dict[str, str]:
        """The cookies by name; raises `ValueError` when the session does not fit into them."""
        # Only impersonation needs the groups again.
        kept = session if session.impersonated else replace(session, groups=())
        sealed = base64.urlsafe_b64encode(self._keys.seal(msgspec.json.encode(kept), self._label)).decode()
        if len(sealed) > COOKIE_LIMIT * COOKIES:
            raise ValueError("the credential is too long for a session cookie")
        pieces = [sealed[at : at + COOKIE_LIMIT] for at in range(0, len(sealed), COOKIE_LIMIT)]
        return dict(zip(self.names, pieces, strict=False))

    @property
    def names(self) -> list[str]:
        """The names of all cookies that a session may have."""
        return [self.cookie, *(f"{self.cookie}-{number}" for number in range(2, COOKIES + 1))]

    @property
    def _label(self) -> bytes:
        return self.cookie.encode()

    def read(self, cookies: Mapping[str, str], *, refreshing: bool = False) -> Session:
        """The session of a request; raises `SignedOut`. One that is refreshed may have outlived its credential."""
        if not cookies.get(self.cookie):
            raise SignedOut("missing")
        sealed = "".join(cookies.get(name, "") for name in self.names)
        try:
            plain = self._keys.open(base64.urlsafe_b64decode(sealed.encode()), self._label)
            session = msgspec.json.decode(plain, type=Session)
            if self.served and session.own:
                raise ValueError("the console's own credential is lent to nobody")
        except (ValueError, msgspec.MsgspecError) as error:
            raise SignedOut("invalid") from error
        self.check(replace(session, ends=0.0) if refreshing and session.refresh else session)
        return session

    def remaining(self, session: Session) -> float | None:
        """Seconds until the credential of a session ends, None for one that does not say."""
        return max(0.0, session.ends - self.now()) if session.ends else None

    def check(self, session: Session) -> None:
        """Raise `SignedOut` when the session is over."""
        now = self.now()
        over = now - session.seen > IDLE or now - session.born > LONGEST or 0 < session.ends <= now
        if over or session.id in self._ended:
            raise SignedOut("expired")

    def renewed(self, session: Session) -> Session | None:
        """The session as of now, None while the cookie it came in is recent."""
        now = self.now()
        return replace(session, seen=now) if now - session.seen > RENEW else None

    def end(self, session: Session) -> None:
        """End a session: this process takes its cookie no more."""
        now = self.now()
        self._ended = {key: born for key, born in self._ended.items() if now - born <= LONGEST}
        while len(self._ended) >= MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[session.id] = session.born

    def now(self) -> float:
        """The time that sessions are measured by."""
        # Replicas share no boot time.
        return self._clock.now().timestamp() if self.served else self._clock.boottime()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
