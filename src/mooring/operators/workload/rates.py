"""How fast counters of servers grow, from two passes of this process; forgotten with it, as a metric is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from time import monotonic
from typing import Final

from mooring.kube.object import Key

__all__ = ["Rates"]

_EARLY: Final = 0.9
"""Share of a period after which a measurement is due: passes do not come to the millisecond."""


class Rates:
    """Growth per second of one counter of each server."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[float, Mapping[str, tuple[Hashable, int]]]] = {}
        """When each cluster was measured, and the counter of each server's process."""

    def of(
        self, key: Key, counters: Mapping[str, tuple[Hashable, int]], *, period: float
    ) -> Mapping[str, float] | None:
        """The rates since the last measurement, by server; ``None`` while none is due.

        ``counters`` are the process that counts and its count, by server: a process that restarted has no rate.
        ``period`` is in seconds.
        """
        now = monotonic()
        last = self._last.get(key)
        if last is not None and now - last[0] < _EARLY * period:
            return None
        self._last[key] = (now, counters)
        if last is None:
            return None
        seconds, before = now - last[0], last[1]
        return {
            name: (count - before[name][1]) / seconds
            for name, (process, count) in counters.items()
            if name in before and before[name][0] == process and count >= before[name][1]
        }

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        self._last.pop(key, None)
