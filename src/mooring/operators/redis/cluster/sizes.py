"""What each slot's data takes, and the names of large and busy keys: measured by small samples, spread over passes.

Nothing here holds a server up. Each look asks every master for a part of its slots or keys, by commands whose work is
bounded, in pipelines of a few hundred; a whole round takes minutes (see `BUDGET`). What was measured is forgotten with
the process, as a metric is. Slots keep what was measured of them when they move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from mooring.kube.object import Key
from mooring.operators.redis.cluster.slots import TOTAL, Slots, each
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.topology import Live
from mooring.operators.redis.dial import Dial, DialError, Link, Refused

__all__ = ["BUDGET", "SAMPLE", "SlotSizes", "stats_of"]

BUDGET: Final = 256
"""Slots of each master that one look samples; of servers that count bytes themselves it is `RANGE`."""
SAMPLE: Final = 4
"""Keys of a slot whose memory is asked for; of a slot with more keys they stand for the others."""
RANGE: Final = 2048
"""Slots in one CLUSTER SLOT-STATS."""
PIPELINE: Final = 64
"""Slots whose commands are sent together."""
BYTES: Final = "memory-bytes"
"""The number of CLUSTER SLOT-STATS that tells a slot's memory; no server up to Redis 8.2 has it."""


@dataclass
class _Round:
    """How far the measurement of one cluster is."""

    sizes: list[int] = field(default_factory=lambda: [-1] * TOTAL)
    """By slot; -1 where it was not measured yet."""
    at: dict[str, int] = field(default_factory=dict)
    """By node id, the slot from which the next look goes on."""
    last: float | None = None
    """When the last look began."""
    counts_itself: dict[str, bool] = field(default_factory=dict)
    """By node id, whether its server tells the bytes of its slots; asked once."""


class SlotSizes:
    """The sizes of the slots of every cluster that asks for them."""

    def __init__(self, *, period: float) -> None:
        self._period = period
        self._rounds: dict[Key, _Round] = {}

    async def look(self, key: Key, snapshot: Snapshot, dial: Dial, *, password: str) -> tuple[int, ...]:
        """Measure a part, where the cluster is at rest and a look is due; the sizes once all slots were measured.

        ``password`` as `Dial.link` takes it. A master that does not answer is asked again in the next look.
        """
        if not snapshot.wanted.by_size:
            self.forget(key)
            return ()
        found = self._rounds.setdefault(key, _Round())
        now = monotonic()
        if is_calm(snapshot) and (found.last is None or now - found.last >= self._period):
            found.last = now
            await asyncio.gather(*(_measure(found, one, dial, password) for one in snapshot.owners))
        return tuple(found.sizes) if min(found.sizes) >= 0 else ()

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        self._rounds.pop(key, None)


def is_calm(snapshot: Snapshot) -> bool:
    """Nothing goes on that a measurement would disturb, or that would disturb it."""
    recorded = snapshot.recorded
    whole = snapshot.complete and not snapshot.seen.absent_owners
    return whole and recorded.formed and recorded.plan is None and not snapshot.wanted.paused


async def _measure(found: _Round, one: Live, dial: Dial, password: str) -> None:
    try:
        async with dial.link(one.node.address, password=password, exact=True) as link:
            if found.counts_itself.get(one.id) is not False:
                begin = found.at.get(one.id, 0)
                part = range(begin, min(begin + RANGE, TOTAL))
                told = await _told(link, part)
                found.counts_itself[one.id] = told is not None
                if told is not None:
                    _keep(found, one, {slot: told.get(slot, 0) for slot in part if one.slots >> slot & 1})
                    found.at[one.id] = part.stop % TOTAL
                    return
                found.at[one.id] = 0
            chosen = _next(one.slots, found.at.get(one.id, 0))
            for start in range(0, len(chosen), PIPELINE):
                part_of = chosen[start : start + PIPELINE]
                _keep(found, one, await _sampled(link, part_of))
                found.at[one.id] = (part_of[-1] + 1) % TOTAL
    except DialError:
        return  # unknown is not empty: what was measured before stays


def _keep(found: _Round, one: Live, sizes: Mapping[int, int]) -> None:
    for slot, size in sizes.items():
        found.sizes[slot] = size


def _next(slots: Slots, begin: int) -> list[int]:
    """The slots that the next look samples: from where the last one ended, and from the first again at the end."""
    mine = list(each(slots))
    return ([slot for slot in mine if slot >= begin] or mine)[:BUDGET]


async def _told(link: Link, part: range) -> dict[int, int] | None:
    """The bytes of each slot by the server's own word; ``None`` of one that does not tell."""
    try:
        answer = await link.call("CLUSTER", "SLOT-STATS", "SLOTSRANGE", part.start, part.stop - 1)
    except Refused:
        return None
    stats = dict(stats_of(answer))
    if any(BYTES not in one for one in stats.values()):
        return None
    return {slot: one[BYTES] for slot, one in stats.items()}


def stats_of(answer: Any) -> Iterator[tuple[int, dict[str, int]]]:
    """What CLUSTER SLOT-STATS tells of each slot: its numbers by name."""
    for slot, told in answer:
        flat = [item for pair in told.items() for item in pair] if isinstance(told, Mapping) else told
        yield int(slot), {str(name): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


async def _sampled(link: Link, slots: Sequence[int]) -> dict[int, int]:
    """Keys times the mean memory of a few of them."""
    answers = await link.pipeline(
        [
            *(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots),
            *(("CLUSTER", "GETKEYSINSLOT", slot, SAMPLE) for slot in slots),
        ]
    )
    if refused := next((one for one in answers if isinstance(one, Refused)), None):
        raise refused
    counts, names = answers[: len(slots)], answers[len(slots) :]
    flat = [key for keys in names for key in keys]
    usage = iter(await link.pipeline([("MEMORY", "USAGE", key) for key in flat]) if flat else ())
    sizes = {}
    for slot, count, keys in zip(slots, counts, names, strict=True):
        known = [size for size in (next(usage) for _ in keys) if isinstance(size, int)]
        if known or not count:
            sizes[slot] = round(count * sum(known) / len(known)) if known else 0
    return sizes
