"""The passwords of a cluster, and what servers say of them.

The fixed Secret of a cluster holds the password in force, the next one while a change is under way, and the one
before, so that a server that comes back late can still be let in. Decisions, status and logs know them by name
alone (`password`, `next`, `previous`); the texts stay in `Kept`, and no hash of one is kept either.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from mooring.operators.redis.dial import Link, Refused
from mooring.operators.redis.info import pairs

__all__ = [
    "ASKED",
    "SENTINEL_USER",
    "Auth",
    "Kept",
    "PasswordState",
    "auth_of",
    "quoted",
    "take_only",
    "told_auth",
    "unusable",
]

Label = Literal["password", "next", "previous"]
ASKED: Final = (
    ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "GET", "masterauth"),
    ("ACL", "GETUSER", "default"),
)
"""What `told_auth` reads."""
SENTINEL_USER: Final = "mooring"
"""The user of the sentinels that may change what they watch; the default user, for clients, may only ask."""
LONGEST = 511
"""Bytes; Redis takes no more."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The passwords in the fixed Secret; an empty one means that everybody is let in."""

    password: str = field(default="", repr=False)
    next: str | None = field(default=None, repr=False)
    previous: str | None = field(default=None, repr=False)
    sentinel: str = field(default="", repr=False)
    """What the operator and the sentinels show each other (`SENTINEL_USER`); clients need none."""

    def named(self) -> dict[Label, str]:
        """The texts by name."""
        pairs: tuple[tuple[Label, str | None], ...] = (
            *(("password", self.password), ("next", self.next)),
            ("previous", self.previous),
        )
        return {label: text for label, text in pairs if text is not None}

    @property
    def keys(self) -> tuple[str, ...]:
        """What to try on a server, in this order."""
        return tuple(dict.fromkeys(text for text in self.named().values() if text))

    def staged(self, declared: str) -> Kept:
        """With the next one beside the one in force."""
        return replace(self, next=declared)

    def published(self) -> Kept:
        """With the next one in force."""
        if self.next is None:
            return self
        return replace(self, password=self.next, next=None, previous=self.password)


@dataclass(frozen=True, kw_only=True)
class PasswordState:
    """What decisions need of it."""

    staged: bool = False
    """The next one is in the Secret."""
    differs: bool = False
    """Another one is declared than is or will be in force."""
    open: bool = False
    """One of the two that are being exchanged is none."""
    grace: float = 60.0
    """Seconds both are valid after the new one was published."""


@dataclass(frozen=True, kw_only=True)
class Auth:
    """Which of our passwords one server takes, and presents to its master."""

    accepts: frozenset[str] = frozenset()
    presents: frozenset[str] = frozenset()
    two: bool = False
    """It can take two at once (6.0)."""


def auth_of(kept: Kept, *, requirepass: str, masterauth: str, user: Mapping[str, object] | None) -> Auth:
    """From a server's own words; ``user`` is the default user where there are users."""
    named = kept.named()
    if user is None:
        accepts = {label for label, text in named.items() if text == requirepass}
    else:
        flags, hashes = _words(user.get("flags")), _words(user.get("passwords"))
        accepts = {
            label
            for label, text in named.items()
            if ("nopass" in flags if not text else "nopass" not in flags and _among(text, hashes))
        }
    return Auth(
        accepts=frozenset(accepts),
        presents=frozenset(
            label for label, text in named.items() if masterauth in (text, quoted(text) if text else "")
        ),
        two=user is not None,
    )


def told_auth(kept: Kept, requirepass: Any, masterauth: Any, user: Any) -> Auth | None:
    """Which of our passwords it takes; the texts it shows go no further."""
    if isinstance(requirepass, Refused) or isinstance(masterauth, Refused):
        return None
    return auth_of(
        kept,
        requirepass=pairs(requirepass).get("requirepass", ""),
        masterauth=pairs(masterauth).get("masterauth", ""),
        user=None if isinstance(user, Refused) else _user(user),
    )


def _user(answer: Any) -> Mapping[str, Any]:
    return answer if isinstance(answer, Mapping) else dict(zip(answer[::2], answer[1::2], strict=False))


async def take_only(link: Link, text: str, *, two: bool) -> None:
    """Let a server take this password and no other; "" lets everybody in. ``two``: it has users (6.0).

    CONFIG SET alone is not enough: from 7.0 on it changes nothing when ``requirepass`` has that value already, and a
    server that restarted during a change has it, with the old password added beside it for the default user.
    """
    await link.call("CONFIG", "SET", "requirepass", text)
    if two:
        await link.call("ACL", "SETUSER", "default", *(("resetpass", f">{text}") if text else ("nopass",)))


def quoted(text: str) -> str:
    """As it must stand in a line for the server to read it whole."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def _among(text: str, hashes: list[str]) -> bool:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return any(hmac.compare_digest(digest, one) for one in hashes)


def unusable(text: str) -> str:
    """Why a password cannot be used, or ""."""
    if len(text.encode()) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    if any(ord(one) < 32 or ord(one) == 127 for one in text):
        return "it holds a control character"
    return ""
