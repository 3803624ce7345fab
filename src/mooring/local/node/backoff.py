"""When a container that ended may be started again."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CrashBackoff"]

_RESET_FACTOR = 2


@dataclass(slots=True)
class CrashBackoff:
    """The kubelet's back-off: the first restart is immediate, then ``initial`` seconds doubling to ``cap``.

    It starts anew after twice the cap without a restart. Times are seconds of a monotonic clock.
    """

    initial: float = 10.0
    cap: float = 300.0
    _delay: float = field(init=False, default=0.0)
    _last: float = field(init=False, default=0.0)

    def wait(self, *, now: float, ended: float) -> float:
        """Seconds from ``now`` until the next start, for a container that ended at ``ended``."""
        if self._delay and now - self._last > _RESET_FACTOR * self.cap:
            self._delay = 0.0
        return max(0.0, ended + self._delay - now)

    @property
    def delay(self) -> float:
        """The back-off in force, seconds."""
        return self._delay

    def started(self, *, now: float) -> None:
        """The container was started again."""
        self._delay = min(self.cap, self._delay * 2) if self._delay else min(self.initial, self.cap)
        self._last = now
