"""The passwords that an operator keeps in a cluster's own Secret, and where a change of them stands.

The Secret holds the password in force, the next one while a change is under way, and the previous one, so that a server
that comes back late can still be reached. Decisions, status and logs know them by label alone (`password`, `next`,
`previous`); the texts stay in `Kept`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from mooring.kube.objects import core

__all__ = ["Kept", "Label", "PasswordState", "kept_in", "secret_value"]

Label = Literal["password", "next", "previous"]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The passwords in the fixed Secret; an empty one means that no password is needed."""

    password: str = field(default="", repr=False)
    next: str | None = field(default=None, repr=False)
    previous: str | None = field(default=None, repr=False)
    sentinel: str = field(default="", repr=False)
    """What the operator and the sentinels show each other (`SENTINEL_USER`); clients need none."""
    accounts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords of the operator's own accounts on servers, by name."""

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
    retired: bool = False
    """The previous one is in the Secret: servers may still accept it."""
    published: datetime | None = None
    """When the one in force was published, while the previous one is in the Secret."""
    secret: str = ""
    """The name of the Secret."""

    @property
    def changing(self) -> bool:
        """A change was begun and has not ended."""
        return self.staged or self.retired


def kept_in(secret: core.Secret | None, declared: str) -> Kept:
    """The passwords that a cluster's Secret has; of a new cluster, or where it has none any more, the declared one."""
    have = (secret.data if secret is not None else None) or {}
    if "password" not in have:
        return Kept(password=declared)
    following, former = (secret_value(secret, one) if one in have else None for one in ("next", "previous"))
    return Kept(password=secret_value(secret, "password"), next=following, previous=former)


def secret_value(secret: core.Secret | None, key: str) -> str:
    """The text under a key of a Secret; "" where it is missing or no text."""
    try:
        return base64.b64decode(((secret.data if secret is not None else None) or {}).get(key, "")).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
