"""Slots move by the size of their data: when a move begins, how few move, and when none does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.redis.cluster.builders import Member, change, id_of, snapshot, whole

from mooring.operators.redis.cluster.moves import InSync, MoveSlots, Record
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.slots import (
    TOTAL,
    after,
    count,
    each,
    level_sizes,
    parse,
    shares,
    size_of,
)
from mooring.operators.redis.cluster.snapshot import Snapshot

MIB = 1 << 20


def weighed(extra: dict[int, int], *, base: int = 10_000, by_size: bool = True, **how: Any) -> Snapshot:
    """A cluster at rest whose slots have ``base`` bytes each, and some of them more."""
    sizes = tuple(base + extra.get(slot, 0) for slot in range(TOTAL))
    return replace(snapshot(how.pop("members", whole()), by_size=by_size, **how), sizes=sizes)


def heavy(*slots: int, each_mib: int = 10) -> dict[int, int]:
    return dict.fromkeys(slots, each_mib * MIB)


def test_the_fullest_master_gives_the_few_slots_that_make_it_too_full() -> None:
    seen = weighed(heavy(*range(100, 112)))
    verdict = next_step(seen)
    assert isinstance(verdict, Record)
    assert verdict.plan is not None
    moves = [(one.source, one.target, parse(one.slots)) for one in verdict.plan.moves or ()]
    assert {source for source, _, _ in moves} == {id_of(0)}
    assert {target for _, target, _ in moves} == {id_of(1), id_of(2)}
    moved = [slot for _, _, slots in moves for slot in each(slots)]
    assert len(moved) == verdict.plan.total == 8  # of twelve, a third stays
    assert all(100 <= slot < 112 for slot in moved)
    assert "demo-0 holds about 172.1 MiB, the mean is 92.1 MiB" in verdict.why
    moving = replace(seen, recorded=replace(seen.recorded, plan=verdict.plan))
    assert isinstance(next_step(moving), MoveSlots)


@pytest.mark.parametrize(
    "seen",
    [
        weighed(heavy(*range(100, 112)), by_size=False),
        replace(weighed({}, by_size=True), sizes=()),
        weighed(heavy(1, each_mib=7)),
        weighed(heavy(1, each_mib=300)),
        weighed(dict.fromkeys(range(1000), 4 * MIB // 3), base=MIB),
    ],
    ids=["by count", "not measured", "a few bytes", "one slot has it all", "a small share"],
)
def test_nothing_moves_without_a_good_reason(seen: Snapshot) -> None:
    assert next_step(seen) == InSync()


def test_once_level_it_stays_so() -> None:
    seen = weighed(heavy(*range(100, 112)))
    verdict = next_step(seen)
    assert isinstance(verdict, Record)
    assert verdict.plan is not None
    owned = dict(seen.seen.owners)
    for one in verdict.plan.moves or ():
        owned[one.source] &= ~parse(one.slots)
        owned[one.target] |= parse(one.slots)
    members = whole()
    for at in range(3):
        members = change(members, at, slots=owned[id_of(at)])
    assert next_step(replace(snapshot(members, by_size=True), sizes=seen.sizes)) == InSync()


def test_healing_and_scaling_come_first() -> None:
    missing = weighed(heavy(*range(100, 112)), members=change(whole(), 5, silent=True))
    assert not isinstance(next_step(missing), Record)


def test_a_new_master_gets_its_part_by_size() -> None:
    members = [*whole(), Member(ordinal=6), Member(ordinal=7, master=6)]
    seen = weighed(heavy(*range(0, 16000, 1000)), members=members, nodes=8)
    verdict = next_step(seen)
    assert isinstance(verdict, Record)
    assert verdict.plan is not None
    got = sum(size_of(parse(one.slots), seen.sizes) for one in verdict.plan.moves or ())
    assert got == pytest.approx(sum(seen.sizes) / 4, rel=0.15)
    assert verdict.plan.total < 2000  # by number it would be 4096
    empty = replace(seen, sizes=(0,) * TOTAL)
    by_number = next_step(empty)
    assert isinstance(by_number, Record)
    assert by_number.plan is not None
    assert by_number.plan.total == 4096


@given(st.integers(2, 6), st.integers(0, 1000), st.sampled_from([0.0, 0.9, 1.0]))
@settings(max_examples=30, deadline=None)
def test_leveling_loses_no_slot_moves_each_once_and_makes_nobody_fuller_than_the_fullest(
    masters: int, seed: int, empty: float
) -> None:
    random = Random(seed)
    sizes = [0 if random.random() < empty else int(random.paretovariate(1.1) * 1000) for _ in range(TOTAL)]
    owned = {f"n{at}": part for at, part in enumerate(shares(masters))}
    transfers = level_sizes(owned, sizes)
    moved = 0
    for one in transfers:
        assert one.slots & ~owned[one.source] == 0
        assert one.slots & moved == 0
        moved |= one.slots
    then = after(owned, transfers)
    assert all(then.values())
    assert sum(count(slots) for slots in then.values()) == TOTAL
    before = max(size_of(slots, sizes) for slots in owned.values())
    assert max(size_of(slots, sizes) for slots in then.values()) <= before
