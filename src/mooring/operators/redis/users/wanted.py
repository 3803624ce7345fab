"""A user as it is to be, without its passwords."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mooring.operators.redis.users.accounts import DEFAULT

__all__ = ["OPEN", "WantedUser"]


@dataclass(frozen=True, kw_only=True)
class WantedUser:
    """One user: declared, the default user, or an account of the operator's."""

    name: str
    rules: tuple[str, ...] = ()
    enabled: bool = True
    own: bool = False
    """The rules are the operator's: what an older version does not know is left out of them."""
    where: str = ""
    """The field that declares it."""
    missing: str = ""
    """Why there is no password."""

    @property
    def open(self) -> bool:
        """The default user as it is where nobody declares it."""
        return self is OPEN or self == OPEN


OPEN: Final = WantedUser(name=DEFAULT, rules=("~*", "&*", "+@all"), own=True)
"""The default user as it is where nobody declares it."""
