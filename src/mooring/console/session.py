"""Who is signed in: sealed cookies, and the link that signs in once.

SignedOut    there is no session, or it has ended; ``reason`` says which

A session is a cookie that only this process can read or make (AES-GCM under a key of its own), so there is nothing to
store. It ends after half an hour without a request, after twelve hours in any case, and when its user signs out.
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
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mooring.cache import Clock

__all__ = ["Session", "Sessions", "SignedOut"]

#: Seconds without a request, seconds in all, and seconds after which the cookie is renewed.
IDLE, LONGEST, RENEW = 30 * 60.0, 12 * 3600.0, 60.0
#: Bytes of a cookie: browsers keep 4096 with its name and attributes.
COOKIE_LIMIT: Final = 3800
#: Sessions that were ended before their time, at most.
MOST_ENDED: Final = 10_000

_NONCE: Final = 12


class SignedOut(Exception):
    """There is no session: ``missing``, ``expired`` or ``invalid``."""

    def __init__(self, reason: Literal["missing", "expired", "invalid"]) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One signed-in browser: it acts with its ``token``, or with the ``own`` credential that the console was started with."""

    id: str
    own: bool = False
    user: str
    groups: tuple[str, ...] = ()
    csrf: str = field(repr=False)
    token: str = field(default="", repr=False)
    born: float
    seen: float

    @property
    def identity(self) -> str:
        """Whose rights these are, for caches of decisions."""
        return hashlib.sha256(self.token.encode()).hexdigest() if not self.own else "own"


class Sessions:
    """Makes, seals and reads sessions; ``port`` keeps apart the cookies of two consoles on one host."""

    def __init__(self, clock: Clock, *, port: int) -> None:
        self.cookie = f"mooring-console-{port}"
        self._clock = clock
        self._key = AESGCM(AESGCM.generate_key(256))
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

    def begin(self, *, user: str, groups: tuple[str, ...] = (), token: str | None) -> Session:
        """A new session; without a token one that acts with the console's own credential."""
        if token == "":
            raise ValueError("an empty token is nobody's")
        now = self._now()
        return Session(
            own=token is None,
            id=secrets.token_urlsafe(16),
            user=user,
            groups=groups,
            csrf=secrets.token_urlsafe(24),
            token=token or "",
            born=now,
            seen=now,
        )

    def seal(self, session: Session) -> str:
        """The cookie's value; raises `ValueError` when the session does not fit into one."""
        nonce = secrets.token_bytes(_NONCE)
        # The groups only serve to be shown once; a cookie has no room for hundreds of them.
        plain = msgspec.json.encode(replace(session, groups=()))
        sealed = base64.urlsafe_b64encode(
            nonce + self._key.encrypt(nonce, plain, self.cookie.encode())
        ).decode()
        if len(sealed) > COOKIE_LIMIT:
            raise ValueError("the credential is too long for a session cookie")
        return sealed

    def read(self, cookies: Mapping[str, str]) -> Session:
        """The session of a request; raises `SignedOut`."""
        sealed = cookies.get(self.cookie)
        if not sealed:
            raise SignedOut("missing")
        try:
            raw = base64.urlsafe_b64decode(sealed.encode())
            plain = self._key.decrypt(raw[:_NONCE], raw[_NONCE:], self.cookie.encode())
            session = msgspec.json.decode(plain, type=Session)
        except (ValueError, InvalidTag, msgspec.MsgspecError) as error:
            raise SignedOut("invalid") from error
        self.check(session)
        return session

    def check(self, session: Session) -> None:
        """Raise `SignedOut` when the session is over."""
        now = self._now()
        if now - session.seen > IDLE or now - session.born > LONGEST or session.id in self._ended:
            raise SignedOut("expired")

    def renewed(self, session: Session) -> Session | None:
        """The session as of now, None while the cookie it came in is recent."""
        now = self._now()
        return replace(session, seen=now) if now - session.seen > RENEW else None

    def end(self, session: Session) -> None:
        """End a session: its cookie is of no use any more, wherever it is."""
        now = self._now()
        self._ended = {key: born for key, born in self._ended.items() if now - born <= LONGEST}
        while len(self._ended) >= MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[session.id] = session.born

    def _now(self) -> float:
        return self._clock.boottime()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
