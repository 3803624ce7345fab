"""Which reconcile is running: for log lines, and to tell our own writes from others'."""

from __future__ import annotations

import secrets
from contextvars import ContextVar

from mooring.kube.object import Key

__all__ = ["Pass", "current_pass"]

_RUN = secrets.token_hex(3)


class Pass:
    """One worker's current reconcile; the same object serves all passes of that worker.

    ``controller`` is the controller's name, ``key`` the object it works on, ``None`` between two passes;
    ``shard`` the one the object belongs to, ``None`` without sharding.
    """

    __slots__ = ("_number", "controller", "key", "shard")

    _count = 0

    def __init__(self, controller: str) -> None:
        self.controller = controller
        self.key: Key | None = None
        self.shard: int | None = None
        self._number = 0

    def begin(self, key: Key) -> None:
        """A pass over ``key`` starts, under a new id."""
        Pass._count += 1
        self._number = Pass._count
        self.key = key

    def end(self) -> None:
        """The pass is over."""
        self.key = None
        self.shard = None

    @property
    def id(self) -> str:
        """Unique among all passes of all processes, near enough: for finding the lines of one pass."""
        return f"{_RUN}-{self._number:x}"


_current: ContextVar[Pass | None] = ContextVar("mooring_pass", default=None)


def current_pass() -> Pass | None:
    """The pass this code runs in, ``None`` outside of any."""
    current = _current.get()
    return current if current is not None and current.key is not None else None


def enter(current: Pass) -> None:
    """The running task (and those it starts) works for this pass from now on."""
    _current.set(current)
