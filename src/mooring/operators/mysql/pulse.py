"""The pulse of every primary: asked each second on a connection of its own, so that a pass finds out what no watch tells.

Nothing is decided here. A primary that does not answer, or whose connection ends, brings the next pass forward, and the time
since it last answered is what `Observed.primary_unreachable` shows. It is forgotten with the process, as a metric is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mooring.kube.object import Key
from mooring.operators.mysql.dial import Dial, DialError, Link, Login
from mooring.operators.mysql.snapshot import ALIVE

__all__ = ["Pulse"]

PERIOD: Final = 1.0
"""Seconds between two questions, and the time that an answer may take."""
_WAITING: Final = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN "
    "('Rpl_semi_sync_master_wait_sessions', 'Rpl_semi_sync_source_wait_sessions')"
)
"""Sessions that wait for an acknowledgement now, whichever flavour it is."""


@dataclass
class _Beat:
    """What is known of one primary."""

    host: str
    login: Login = field(repr=False)
    task: asyncio.Task[None] | None = None
    last: float = 0.0
    """When it answered last."""
    silent: bool = False
    """It did not answer the newest question."""


class Pulse:
    """One task for each primary."""

    def __init__(
        self, dial: Dial, wake: Callable[[Key], None], *, monotonic: Callable[[], float] = monotonic
    ) -> None:
        self._dial = dial
        self._wake = wake
        self._monotonic = monotonic
        self._beats: dict[Key, _Beat] = {}

    def follow(self, key: Key, host: str, login: Login) -> None:
        """From now on ask this server; the time of another one is forgotten."""
        beat = self._beats.get(key)
        if beat is not None and beat.host == host and beat.login == login:
            return
        self.forget(key)
        if host:
            beat = self._beats[key] = _Beat(host, login, last=self._monotonic())
            beat.task = asyncio.create_task(self._ask(key, beat), name=f"pulse of {key}")

    def forget(self, key: Key) -> None:
        """The cluster is gone, or has no primary."""
        if (beat := self._beats.pop(key, None)) is not None and beat.task is not None:
            beat.task.cancel()

    def seen(self, key: Key, *, answers: bool) -> float:
        """A pass asked it too; the seconds for which it has not answered."""
        beat = self._beats.get(key)
        if beat is None:
            return 0.0
        self._note(beat, answers=answers)
        return self._monotonic() - beat.last if beat.silent else 0.0

    def close(self) -> None:
        """End all tasks."""
        for key in list(self._beats):
            self.forget(key)

    def _note(self, beat: _Beat, *, answers: bool) -> None:
        beat.silent = not answers
        if answers:
            beat.last = self._monotonic()

    async def _ask(self, key: Key, beat: _Beat) -> None:
        while True:
            alive = True
            try:
                link = await self._dial.session(beat.host, beat.login, timeout=PERIOD)
                try:
                    await self._on(key, link, beat)
                finally:
                    link.close()
            except DialError as error:
                alive = error.word in ALIVE
            self._note(beat, answers=alive)
            if not alive:
                self._wake(key)
            await asyncio.sleep(PERIOD)

    async def _on(self, key: Key, link: Link, beat: _Beat) -> None:
        """Ask until there is no answer; raises `DialError` then, at once where the connection ends.

        Writes that wait for an acknowledgement at two questions bring the next pass forward as well.
        """
        ended = asyncio.create_task(link.closed())
        try:
            waited = False
            while not ended.done():
                rows = await link.query(_WAITING)
                self._note(beat, answers=True)
                waits = any(str(row.get("Value")) not in ("0", "") for row in rows)
                if waits and waited:
                    self._wake(key)
                waited = waits
                await asyncio.wait([ended], timeout=PERIOD)
            await link.query("SELECT 1")
        finally:
            ended.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await ended
