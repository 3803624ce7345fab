"""The names of large and busy keys, where ``spec.keyReport`` asks for them: SCAN, a few hundred keys at a time.

Each look goes on where the last one ended, so that all keys are seen sooner or later: a million keys of a master take about
four hours. The status changes at most every five minutes, and only where names or rounded numbers did. Busy keys are known
only to servers whose maxmemory-policy is LFU. Names are kept as the servers sent them, and shown fit for reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from redis.crc import key_slot

from mooring.kube.object import Key
from mooring.operators.redis.cluster.sizes import is_calm
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.topology import Live
from mooring.operators.redis.cluster.types import KeyReportSpec, KeyReportStatus, KnownKey
from mooring.operators.redis.dial import Dial, DialError, Link, Refused
from mooring.operators.redis.info import pairs

__all__ = ["BIG", "BUSY", "NUMBER", "KeySurvey", "Sample", "chosen", "readable"]

NUMBER: Final = 10
"""Keys of each kind that are named, where nothing is declared."""
BIG: Final = 1 << 20
"""Bytes from which a key counts as large, where nothing is declared."""
BUSY: Final = 20
"""OBJECT FREQ from which a key counts as busy: about a thousand accesses within minutes, by Redis' defaults."""
PAGES: Final = 4
"""SCANs of each master in one look."""
PAGE: Final = 250
"""Keys that one SCAN looks at, about."""
PUBLISH: Final = 300.0
"""Seconds between two changes of the status at least."""
_NEAR: Final = 5
"""What is shown stays while what is measured differs by less than this part of it: measurements go up and down."""
_LONGEST: Final = 100
"""Characters of a name that are shown."""


@dataclass(frozen=True)
class Sample:
    """One key at one moment, by its name as the server sent it."""

    key: str
    pod: str
    bytes: int
    frequency: int = 0


@dataclass
class _Survey:
    cursors: dict[str, str] = field(default_factory=dict)
    """By node id, where SCAN goes on."""
    found: dict[str, Sample] = field(default_factory=dict)
    """The keys worth naming, by name."""
    looked: float | None = None
    published: float | None = None


class KeySurvey:
    """Looks for the keys of every cluster that asks for it."""

    def __init__(self, *, period: float, publish: float = PUBLISH) -> None:
        self._period, self._publish = period, publish
        self._surveys: dict[Key, _Survey] = {}

    async def look(
        self,
        key: Key,
        snapshot: Snapshot,
        spec: KeyReportSpec | None,
        before: KeyReportStatus | None,
        *,
        dial: Dial,
        password: str,
    ) -> KeyReportStatus | None:
        """Scan a part, where the cluster is at rest and a look is due; what the status should name.

        ``before`` is what it names now: it stays until a change is due.
        """
        if spec is None:
            self.forget(key)
            return None
        one = self._surveys.setdefault(key, _Survey())
        now = monotonic()
        if not is_calm(snapshot) or (one.looked is not None and now - one.looked < self._period):
            return before
        one.looked = now
        one.published = now if one.published is None else one.published
        due = now - one.published >= self._publish
        parts = await asyncio.gather(
            *(_scan(one, master, dial, password) for master in snapshot.owners),
            *(_again(one, before, master, dial, password) for master in snapshot.owners if due),
        )
        one.found |= {sample.key: sample for part in parts for sample in part}
        known = chosen(one.found.values(), spec, before)
        one.found = {sample.key: sample for samples in known for sample in samples}
        if not due:
            return before
        one.published = now
        return _report(*known, before)

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        self._surveys.pop(key, None)


def chosen(
    found: Iterable[Sample], spec: KeyReportSpec, before: KeyReportStatus | None = None
) -> tuple[list[Sample], list[Sample]]:
    """The largest and the busiest of them that are worth naming; those that are named stay until others clearly exceed them."""
    samples, (big, hot) = list(found), _shown(before)
    least = BIG if spec.min_bytes is None else spec.min_bytes
    return (
        _first([(one, one.bytes) for one in samples], _number(spec.big), least=least, shown=big),
        _first([(one, one.frequency) for one in samples], _number(spec.hot), least=BUSY, shown=hot),
    )


def _first(
    measured: Iterable[tuple[Sample, int]], most: int, *, least: int, shown: Mapping[str, int]
) -> list[Sample]:
    weights = [
        (number + number // _NEAR if readable(one.key) in shown else number, one) for one, number in measured
    ]
    worth = sorted((-weight, one.key, one) for weight, one in weights if weight >= least)
    return [one for _, _, one in worth[:most]]


def _shown(before: KeyReportStatus | None) -> tuple[dict[str, int], dict[str, int]]:
    """What the status names now: bytes and frequencies by name."""
    big, hot = ((before.big or ()), (before.hot or ())) if before is not None else ((), ())
    return {one.key: one.bytes or 0 for one in big}, {one.key: one.frequency or 0 for one in hot}


def _number(declared: int | None) -> int:
    return NUMBER if declared is None else declared


def _report(
    big: Sequence[Sample], hot: Sequence[Sample], before: KeyReportStatus | None = None
) -> KeyReportStatus:
    """What the status names, in numbers that do not change with every write, the largest first."""
    sizes, uses = _shown(before)
    large = [
        KnownKey(key=name, pod=one.pod, bytes=_steady(sizes.get(name), one.bytes, _rounded(one.bytes)))
        for one in big
        for name in (readable(one.key),)
    ]
    busy = [
        KnownKey(
            key=name,
            pod=one.pod,
            frequency=_steady(uses.get(name), one.frequency, one.frequency // 10 * 10, least=10),
        )
        for one in hot
        for name in (readable(one.key),)
    ]
    return KeyReportStatus(
        big=sorted(large, key=lambda one: (-(one.bytes or 0), one.key)) or None,
        hot=sorted(busy, key=lambda one: (-(one.frequency or 0), one.key)) or None,
    )


def _steady(shown: int | None, measured: int, rounded: int, *, least: int = 0) -> int:
    """The number that is shown already while it is near, else the new one."""
    near = shown is not None and abs(measured - shown) <= max(shown // _NEAR, least)
    return shown if near and shown is not None else rounded


def _rounded(number: int) -> int:
    """To two digits: 1234567 is 1200000."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return number // unit * unit


def readable(key: str) -> str:
    """A name fit for showing: bytes that are no text as ``\\xff``, and cut after 100 characters."""
    text = key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


async def _scan(one: _Survey, master: Live, dial: Dial, password: str) -> list[Sample]:
    found: list[Sample] = []
    try:
        async with dial.link(master.node.address, password=password, exact=True) as link:
            lfu = await _counts(link)
            for _ in range(PAGES):
                cursor, keys = await link.call("SCAN", one.cursors.get(master.id, "0"), "COUNT", PAGE)
                found += await _measured(link, master.name, keys, lfu=lfu)
                one.cursors[master.id] = str(cursor)
                if str(cursor) == "0":
                    break
    except DialError:
        pass  # it is asked again in the next look
    return found


async def _again(
    one: _Survey, before: KeyReportStatus | None, master: Live, dial: Dial, password: str
) -> list[Sample]:
    """The keys that are known already, as they are now; those that are gone are forgotten."""
    listed = (*((before.big if before else None) or ()), *((before.hot if before else None) or ()))
    names = {*one.found, *(known.key for known in listed)}
    mine = sorted(name for name in names if master.slots >> _slot(name) & 1)
    try:
        async with dial.link(master.node.address, password=password, exact=True) as link:
            found = await _measured(link, master.name, mine, lfu=await _counts(link))
    except DialError:
        return []
    for gone in set(mine) - {sample.key for sample in found}:
        one.found.pop(gone, None)
    return found


def _slot(key: str) -> int:
    return int(key_slot(key.encode("utf-8", "surrogateescape")))


async def _counts(link: Link) -> bool:
    """Whether the server counts how often keys are used."""
    return "lfu" in pairs(await link.call("CONFIG", "GET", "maxmemory-policy")).get("maxmemory-policy", "")


async def _measured(link: Link, pod: str, keys: Sequence[str], *, lfu: bool) -> list[Sample]:
    """Those of the keys that are there."""
    asked: list[tuple[str, ...]] = [("MEMORY", "USAGE", key) for key in keys]
    if lfu:
        asked += [("OBJECT", "FREQ", key) for key in keys]
    answers: list[Any] = await link.pipeline(asked) if asked else []
    if refused := next((one for one in answers if isinstance(one, Refused) and "NOPERM" in one.reply), None):
        raise refused
    usage, used = answers[: len(keys)], answers[len(keys) :] or [0] * len(keys)
    return [
        Sample(key, pod, size, often if isinstance(often, int) else 0)
        for key, size, often in zip(keys, usage, used, strict=True)
        if isinstance(size, int)
    ]
