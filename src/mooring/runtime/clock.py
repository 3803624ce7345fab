"""The clock everything in the runtime takes (it lives with the caches, the lowest layer that waits)."""

from mooring.cache.clock import Clock, Deadline, SystemClock, Timer, Watchdog, rfc3339

__all__ = ["Clock", "Deadline", "SystemClock", "Timer", "Watchdog", "rfc3339"]
