"""The passwords of a cluster, and what servers say of them.

The fixed Secret of a cluster holds the password in force, the next one while a change is under way, and the one
before, so that the operator can still reach a server that comes back late. Decisions, status and logs know them by name
alone (`password`, `next`, `previous`); the texts stay in `Kept`, and no hash of one is kept either.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mooring.operators.redis.dial import Login, Refused
from mooring.operators.redis.info import pairs
from mooring.operators.redis.users.accounts import OPERATOR, REPLICA
from mooring.operators.workload.credentials import Kept

__all__ = [
    "ASKED",
    "SENTINEL_USER",
    "Auth",
    "auth_of",
    "logins",
    "quoted",
    "told_auth",
    "unusable",
]

ASKED: Final = (
    ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "GET", "masterauth"),
    ("ACL", "GETUSER", "default"),
    ("CONFIG", "GET", "masteruser"),
)
"""What `told_auth` reads."""
SENTINEL_USER: Final = "mooring"
"""The user of the sentinels that may change what they watch; the default user, for clients, may only ask."""
LONGEST = 511
"""Bytes; Redis takes no more."""


@dataclass(frozen=True, kw_only=True)
class Auth:
    """Which of our passwords one server takes, and presents to its master."""

    accepts: frozenset[str] = frozenset()
    presents: frozenset[str] = frozenset()
    two: bool = False
    """It can take two at once (6.0)."""


def logins(kept: Kept) -> tuple[Login, ...]:
    """What the operator tries on a server, in this order."""
    account = kept.accounts.get(OPERATOR)
    return (*([(OPERATOR, account)] if account else []), *kept.keys)


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


def told_auth(kept: Kept, requirepass: Any, masterauth: Any, user: Any, masteruser: Any) -> Auth | None:
    """Which of our passwords it takes; the texts it shows go no further.

    ``None`` where the default user is off: its passwords do not count, and nothing has to be changed about them. A server
    that presents an account of its own presents every password.
    """
    if isinstance(requirepass, Refused) or isinstance(masterauth, Refused):
        return None
    default = None if isinstance(user, Refused) else _user(user)
    if default is not None and "off" in _words(default.get("flags")):
        return None
    auth = auth_of(
        kept,
        requirepass=pairs(requirepass).get("requirepass", ""),
        masterauth=pairs(masterauth).get("masterauth", ""),
        user=default,
    )
    if not isinstance(masteruser, Refused) and pairs(masteruser).get("masteruser") == REPLICA:
        return replace(auth, presents=frozenset(kept.named()))
    return auth


def _user(answer: Any) -> Mapping[str, Any]:
    return answer if isinstance(answer, Mapping) else dict(zip(answer[::2], answer[1::2], strict=False))


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
