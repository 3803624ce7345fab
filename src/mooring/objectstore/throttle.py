"""A limit of bytes per second, shared by everything that is given the same object."""

from __future__ import annotations

from mooring.cache.clock import Clock, SystemClock

__all__ = ["Throttle"]


class Throttle:
    """Lets bytes pass at a mean rate, on a clock.

    ``rate`` is in bytes per second. A pause is not made up for: after one, at most ``burst`` seconds' worth
    (default 1) passes at once. Several transfers may share a throttle; they are served in turn.
    """

    def __init__(self, rate: float, *, burst: float = 1.0, clock: Clock | None = None) -> None:
        if rate <= 0:
            raise ValueError(f"a throttle needs a rate above 0 bytes per second, not {rate:g}")
        self._rate = rate
        self._burst = burst
        self._clock = clock or SystemClock()
        self._due = self._clock.monotonic() - burst

    async def take(self, size: int) -> None:
        """Wait until that many bytes may pass."""
        now = self._clock.monotonic()
        begin = max(self._due, now - self._burst)
        self._due = begin + size / self._rate
        if self._due > now:
            await self._clock.sleep(self._due - now)
