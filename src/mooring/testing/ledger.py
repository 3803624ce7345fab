"""A writer that remembers: every acknowledged write, every confirmation, and what is left of them.

    mooring ledger --sentinel 10.96.0.20:26379 --password-file secret --rate 200 --seconds 60
    mooring ledger --cluster 10.96.0.30:6379 --seconds 60

Each write sets a key of its own. Two losses are counted apart: writes the master acknowledged, and among them
those a replica had confirmed (``WAIT 1``). The second must be 0 wherever a confirmed copy survives; the first
is what a fail-over may cost. The client keeps its connection until an error, as plain ones do: it is what a planned
switch has to reckon with. With ``follow`` it also goes where a sentinel's ``+switch-master`` says, as Jedis does.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any, ClassVar

from mooring.operators.redis.dial import Address, Dial, DialError, Link, Login, Refused

__all__ = ["Ledger", "Outage", "Report", "parse_address"]


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A pause between two acknowledged writes, in seconds since the start."""

    at: float
    seconds: float
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a run amounted to."""

    written: int
    acknowledged: int
    confirmed: int
    lost_acknowledged: int
    lost_confirmed: int
    longest_gap: float
    lost_seconds: float = 0.0
    """From the first to the last acknowledged write that is lost."""
    outages: tuple[Outage, ...] = ()
    lost_keys: tuple[str, ...] = ()
    errors: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """The report for people."""
        lines = [
            f"writes tried         {self.written}",
            f"acknowledged         {self.acknowledged}, lost {self.lost_acknowledged} of {self.lost_seconds:.2f} s",
            f"confirmed by WAIT 1  {self.confirmed}, lost {self.lost_confirmed}",
            f"longest gap          {self.longest_gap:.2f} s",
        ]
        return "\n".join([*lines, *self.details()])

    def details(self) -> list[str]:
        """Every gap, and the errors by name."""
        lines = [f"  gap of {one.seconds:.2f} s at {one.at:.1f} s  {one.error}" for one in self.outages]
        return lines + [f"  {count} x {name}" for name, count in sorted(self.errors.items())]


class Ledger:
    """Writes until stopped, then checks; one per run.

    Give ``address`` for one server, or ``sentinels`` to be led to the master and follow it. ``rate`` is in
    writes per second, 0 means as fast as they are answered; every ``wait_every``-th write is confirmed by WAIT. A gap counts from ``gap_from``
    seconds; one that lasts to the end of the writing counts too. Without a reply for ``patience`` seconds the
    ledger looks up the master again, so the gap of a server that hangs is measured in steps of that size. With ``tls`` every connection
    is encrypted. A connection is given ``connect`` seconds: 0.5 by default, with TLS 5.
    """

    parts = 1
    """Parts of the data that are written and timed each by itself."""

    #: What `check` raises when no server could be asked.
    unanswered: ClassVar = (DialError,)

    def __init__(
        self,
        *,
        address: Address | None = None,
        sentinels: Sequence[Address] = (),
        master_name: str = "mymaster",
        password: str | Sequence[Login] = "",
        rate: float = 200.0,
        wait_every: int = 2,
        gap_from: float = 0.3,
        prefix: str = "",
        patience: float = 1.0,
        follow: bool = False,
        tls: ssl.SSLContext | None = None,
        connect: float | None = None,
    ) -> None:
        if (address is None) == (not sentinels):
            raise ValueError("give either the address of a server or those of sentinels")
        self._address = address
        self._sentinels = tuple(sentinels)
        self._master_name = master_name
        self._password = password
        self._interval = 1.0 / rate if rate else 0.0
        self._wait_every = max(1, wait_every)
        self._gap_from = gap_from
        self._prefix = prefix or f"ledger:{secrets.token_hex(4)}"
        if connect is None:
            connect = 0.5 if tls is None else 5.0
        self._dial = Dial(connect_timeout=connect, reply_timeout=patience, tls=tls, clear=())
        self._acknowledged: dict[str, tuple[str, float]] = {}
        self._confirmed: set[str] = set()
        self._written = 0
        self._started = 0.0
        self._last_ack: dict[int, float] = {}
        self._longest = 0.0
        self._outages: list[Outage] = []
        self._errors: dict[str, int] = {}
        self._last_error = ""
        self._follow = follow
        self._followed = True
        self._at: Address | None = None
        self._told: Address | None = None
        self._switched = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def acknowledged(self) -> int:
        """Writes acknowledged so far."""
        return len(self._acknowledged)

    @property
    def longest_gap(self) -> float:
        """The longest pause between acknowledged writes so far, in seconds."""
        return self._longest

    @property
    def silence(self) -> float:
        """Seconds since the last acknowledged write, to that part of the data which waits the longest; at first infinite."""
        return monotonic() - min(self._last_ack.get(part, -inf) for part in range(self.parts))

    def stop(self) -> None:
        """End the writing after the write under way."""
        self._stop.set()

    def reset_gap(self) -> None:
        """Measure the longest gap anew from now."""
        self._longest = 0.0
        self._outages.clear()

    async def write(self, seconds: float | None = None) -> None:
        """Write until `stop`, or for that long."""
        end = self._begin(seconds)
        listeners = [asyncio.create_task(self._listen(one)) for one in self._sentinels if self._follow]
        try:
            while not self._stop.is_set() and monotonic() < end:
                try:
                    await self._until_switched(self._write_connected(end))
                except DialError as error:
                    self._note(error)
                    await self._pause(0.02)
        finally:
            for one in listeners:
                one.cancel()
            await asyncio.gather(*listeners, return_exceptions=True)
            self._end()

    async def _write_connected(self, end: float) -> None:
        self._at = await self._master()
        async with self._dial.link(self._at, password=self._password) as link:
            await self._write_on(link, end)

    async def _until_switched(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it, or as much of it as there is time for until another master is told of."""
        self._switched.clear()
        tasks = asyncio.create_task(work), asyncio.create_task(self._switched.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, sentinel: Address) -> None:
        while True:
            with contextlib.suppress(DialError):
                async for said in self._dial.listen(sentinel, patterns=["+switch-master"]):
                    if said and (words := said.split())[0] == self._master_name:
                        self._go_to(Address(words[3], int(words[4])))
            await asyncio.sleep(0.5)

    def _go_to(self, master: Address) -> None:
        if master != self._at:  # else another sentinel told of it before
            self._told = master
            self._switched.set()

    def _begin(self, seconds: float | None) -> float:
        """When to end."""
        self._started = monotonic()
        self._last_ack.clear()
        return self._started + seconds if seconds else float("inf")

    def _end(self) -> None:
        """Count the pauses that nothing has ended."""
        now = monotonic()
        for part in range(self.parts):
            self._note_gap(self._last(part), now)

    def _last(self, part: int) -> float:
        return self._last_ack.get(part, self._started)

    async def _write_on(self, link: Link, end: float) -> None:
        due = monotonic()
        while not self._stop.is_set() and (now := monotonic()) < end:
            if due > now:
                await self._pause(due - now)
            due = max(due + self._interval, now - 1.0)
            key = f"{self._prefix}:{self._written}"
            value = secrets.token_hex(8)
            self._written += 1
            await link.call("SET", key, value)
            self._acknowledge(key, value)
            if self._written % self._wait_every == 0:
                await self._confirm(link, key)

    async def _confirm(self, link: Link, key: str) -> None:
        # A master that nobody follows still acknowledges: waiting long each time would slow the loss down.
        confirmed = await link.call("WAIT", 1, 200 if self._followed else 20) >= 1
        self._followed = confirmed
        if confirmed:
            self._confirmed.add(key)

    def _acknowledge(self, key: str, value: str, *, part: int = 0) -> None:
        """``part`` says for which part of the data a pause counts."""
        now = monotonic()
        self._note_gap(self._last_ack.get(part, now), now)
        self._last_ack[part] = now
        self._last_error = ""
        self._acknowledged[key] = (value, now)

    def _note_gap(self, began: float, ended: float) -> None:
        self._longest = max(self._longest, gap := ended - began)
        if gap >= self._gap_from:
            self._outages.append(Outage(at=began - self._started, seconds=gap, error=self._last_error))

    def _note(self, error: DialError) -> None:
        kind = error.reply.split(" ", 1)[0] if isinstance(error, Refused) else "no answer"
        self._errors[kind] = self._errors.get(kind, 0) + 1
        self._last_error = str(error)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _master(self) -> Address:
        if self._address is not None:
            return self._address
        if self._told is not None:  # not every sentinel has heard of it yet
            told, self._told = self._told, None
            return told
        last: DialError | None = None
        for sentinel in self._sentinels:
            try:
                async with self._dial.link(sentinel) as link:
                    found = await link.call("SENTINEL", "get-master-addr-by-name", self._master_name)
            except DialError as error:
                last = error
                continue
            if found:
                return Address(str(found[0]), int(found[1]))
        raise last or Refused("no sentinel knows the master", "NOMASTER")

    async def check(self, *, patience: float = 30.0, at: Address | None = None) -> Report:
        """Read every acknowledged key from the master; waits up to ``patience`` seconds for one to answer.

        ``at`` is where the master is, when the sentinels are not to be believed.
        """
        deadline = monotonic() + patience
        while True:
            try:
                lost = await self._missing(at)
                break
            except DialError:
                if monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)
        times = [self._acknowledged[key][1] for key in lost]
        return Report(
            written=self._written,
            acknowledged=len(self._acknowledged),
            confirmed=len(self._confirmed),
            lost_acknowledged=len(lost),
            lost_confirmed=sum(1 for key in lost if key in self._confirmed),
            longest_gap=round(self._longest, 3),
            lost_seconds=round(max(times) - min(times), 3) if times else 0.0,
            outages=tuple(self._outages),
            lost_keys=tuple(lost[:20]),
            errors=dict(self._errors),
        )

    async def _missing(self, at: Address | None) -> list[str]:
        lost: list[str] = []
        keys = list(self._acknowledged)
        async with self._dial.link(
            at or await self._master(), password=self._password, reply_timeout=10.0
        ) as link:
            if (await link.call("ROLE"))[0] != "master":
                raise Refused("the server named as master is not one", "READONLY")
            for start in range(0, len(keys), 500):
                chunk = keys[start : start + 500]
                answers = await link.pipeline([("GET", key) for key in chunk])
                for key, answer in zip(chunk, answers, strict=True):
                    if isinstance(answer, Refused):
                        raise answer
                    if answer != self._acknowledged[key][0]:
                        lost.append(key)
        return lost


def parse_address(text: str, *, port: int) -> Address:
    """``host[:port]``, ``[v6]:port``."""
    host, separator, number = text.rpartition(":")
    if not separator or (":" in host and not host.endswith("]")):
        return Address(text.strip("[]"), port)
    return Address(host.strip("[]"), int(number))
