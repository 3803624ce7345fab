"""Hash slots as sets, and the arithmetic of moving them between nodes.

A set of slots is an integer with one bit per slot: union, difference and counting are single operations on it,
however many nodes tell their view. HarmonyCloud's two strategies follow what redis-cli does: every source gives
its lowest slots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

__all__ = [
    "ALL",
    "TOTAL",
    "Slots",
    "Transfer",
    "after",
    "assign",
    "count",
    "drain",
    "each",
    "level",
    "level_sizes",
    "lowest",
    "parse",
    "ranges",
    "shares",
    "show",
    "size_of",
    "span",
    "take",
]

Slots = int
"""A set of slots: bit n stands for slot n."""

TOTAL: Final = 16384
EVEN: Final = 0.05
"""Share by which a node may hold more than the mean once sizes are level."""
ALL: Final[Slots] = (1 << TOTAL) - 1


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Slots that go from one node to another, both by id."""

    source: str
    target: str
    slots: Slots


def span(first: int, last: int) -> Slots:
    """The slots from ``first`` to ``last``, both included."""
    return ((1 << (last - first + 1)) - 1) << first


def parse(text: str) -> Slots:
    """``"0-99,200"`` or ``"0-99 200"`` as a set; raises `ValueError` for anything else."""
    found = 0
    for word in text.replace(",", " ").split():
        first, _, last = word.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < TOTAL:
            raise ValueError(f"{word}: slots go from 0 to {TOTAL - 1}")
        found |= span(low, high)
    return found


def ranges(slots: Slots) -> list[tuple[int, int]]:
    """The set as ranges, both ends included."""
    found, at = [], 0
    while slots:
        gap = (slots & -slots).bit_length() - 1
        slots >>= gap
        length = (~slots & (slots + 1)).bit_length() - 1
        found.append((at + gap, at + gap + length - 1))
        slots >>= length
        at += gap + length
    return found


def each(slots: Slots) -> Iterator[int]:
    """The slots one by one, lowest first."""
    for first, last in ranges(slots):
        yield from range(first, last + 1)


def show(slots: Slots) -> str:
    """The set as people write it: ``0-99,200``."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges(slots))


def count(slots: Slots) -> int:
    """How many they are."""
    return slots.bit_count()


def lowest(slots: Slots, number: int) -> Slots:
    """The ``number`` lowest of them, or all if there are fewer."""
    found = 0
    for first, last in ranges(slots):
        take = min(number, last - first + 1)
        if take <= 0:
            break
        found |= span(first, first + take - 1)
        number -= take
    return found


def shares(masters: int) -> list[Slots]:
    """Equal parts for a new cluster, in the order of the masters; sizes differ by one at most."""
    edges = [round(at * TOTAL / masters) for at in range(masters + 1)]
    return [span(low, high - 1) for low, high in pairwise(edges)]


def level(owned: Mapping[str, Slots]) -> list[Transfer]:
    """Give every node an equal part (AutoReceive); who holds most keeps one more where it does not come out even."""
    base, extra = divmod(TOTAL, len(owned))
    by_size = sorted(owned, key=lambda node: -count(owned[node]))
    quota = {node: base + (1 if at < extra else 0) for at, node in enumerate(by_size)}
    receivers = [node for node in owned if count(owned[node]) < quota[node]]
    return _pour(
        [(node, owned[node], count(owned[node]) - quota[node]) for node in owned],
        [(node, quota[node] - count(owned[node])) for node in receivers],
    )


def size_of(slots: Slots, sizes: Sequence[int]) -> int:
    """How much they hold together; ``sizes`` has one number for each slot there is."""
    return sum(sizes[slot] for slot in each(slots))


def level_sizes(owned: Mapping[str, Slots], sizes: Sequence[int]) -> list[Transfer]:
    """Bring every node near the mean size with few slots: the fullest gives its largest that fit, the emptiest takes them.

    A slot moves once at most, and every node that has slots keeps one. Where no slot makes the fullest node smaller
    than the next would become, nothing more moves: one large slot is not sent around.
    """
    have = {node: size_of(slots, sizes) for node, slots in owned.items()}
    mean = sum(have.values()) / len(have)
    # Ascending, so that the largest that fits is found by its size and the smallest is the first.
    kept = {node: sorted(each(slots), key=lambda slot: sizes[slot]) for node, slots in owned.items()}
    moved: dict[tuple[str, str], Slots] = {}
    while mean:
        source, target = max(have, key=lambda node: have[node]), min(have, key=lambda node: have[node])
        if have[source] <= mean * (1 + EVEN) or len(kept[source]) < 2:
            break
        room = min(have[source] - mean * (1 - EVEN), mean * (1 + EVEN) - have[target])
        filled = bisect_right(kept[source], 0, key=lambda slot: sizes[slot])
        at = max(filled, bisect_right(kept[source], room, key=lambda slot: sizes[slot]) - 1)
        if at >= len(kept[source]) or (size := sizes[kept[source][at]]) >= have[source] - have[target]:
            break
        moved[source, target] = moved.get((source, target), 0) | (1 << kept[source].pop(at))
        have[source] -= size
        have[target] += size
    return [Transfer(source=source, target=target, slots=slots) for (source, target), slots in moved.items()]


def drain(owned: Mapping[str, Slots], leavers: Iterable[str]) -> list[Transfer]:
    """Spread everything the leavers have over the rest, the emptiest first."""
    gone = list(leavers)
    stay = {node: count(slots) for node, slots in owned.items() if node not in gone}
    if not stay:
        raise ValueError("no node is left to take the slots")
    total = sum(count(owned[node]) for node in gone)
    return _pour([(node, owned[node], count(owned[node])) for node in gone], _filled(stay, total))


def assign(owned: Mapping[str, Slots], *, target: str, number: int, sources: Sequence[str]) -> list[Transfer]:
    """Take ``number`` slots from the named sources in proportion to what they have (AssignReceive).

    The largest gives the ceiling of its part, the others the floor; what rounding leaves over comes from the
    largest again. Raises `ValueError` when they have fewer, or none are asked for.
    """
    if unknown := [node for node in sources if node not in owned]:
        raise ValueError(f"{unknown[0]} is not a master with slots")
    order = sorted(dict.fromkeys(sources), key=lambda node: -count(owned[node]))
    total = sum(count(owned[node]) for node in order)
    if number < 1:
        raise ValueError("no slots are asked for; a new master gets one at least")
    if number > total:
        raise ValueError(f"{number} slots are asked of nodes that have {total}")
    gives: dict[str, int] = {}
    left = number
    for at, node in enumerate(order):
        part = number * count(owned[node])
        gives[node] = min(left, -(-part // total) if at == 0 else part // total)
        left -= gives[node]
    for node in order:
        more = min(left, count(owned[node]) - gives[node])
        gives[node] += more
        left -= more
    return _pour([(node, owned[node], gives[node]) for node in order], [(target, number)])


def take(owned: Mapping[str, Slots], *, target: str, number: int, sources: Sequence[str]) -> list[Transfer]:
    """As `assign`, of sources that keep some: one without slots would be the next to be given them."""
    transfers = assign(owned, target=target, number=number, sources=sources)
    left = after(owned, transfers)
    if bare := [node for node in sources if not left[node]]:
        raise ValueError(f"{bare[0]} would keep none of its {count(owned[bare[0]])} slots; ask for fewer")
    return transfers


def after(owned: Mapping[str, Slots], transfers: Iterable[Transfer]) -> dict[str, Slots]:
    """Who has which slots once these have moved."""
    now = dict(owned)
    for one in transfers:
        now[one.source] &= ~one.slots
        now[one.target] = now.get(one.target, 0) | one.slots
    return now


def _filled(have: Mapping[str, int], total: int) -> list[tuple[str, int]]:
    """How much each gets of ``total`` so that the emptiest come first and all end as level as possible."""
    order = sorted(have, key=lambda node: have[node])
    for number in range(len(order), 0, -1):
        base, extra = divmod(total + sum(have[node] for node in order[:number]), number)
        if have[order[number - 1]] <= base:
            break
    return [
        (node, want)
        for at, node in enumerate(order[:number])
        if (want := base + (1 if at < extra else 0) - have[node])
    ]


def _pour(gives: Sequence[tuple[str, Slots, int]], takes: Sequence[tuple[str, int]]) -> list[Transfer]:
    """Pair givers and takers in order; a giver's lowest slots go first."""
    found: list[Transfer] = []
    supply = [(node, slots, number) for node, slots, number in gives if number > 0]
    for target, wanted in takes:
        left = wanted
        while left > 0 and supply:
            source, slots, number = supply.pop(0)
            part = lowest(slots, min(left, number))
            found.append(Transfer(source=source, target=target, slots=part))
            moved = count(part)
            left -= moved
            if number > moved:
                supply.insert(0, (source, slots & ~part, number - moved))
    return found
