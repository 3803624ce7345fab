"""Who gives which slots to whom: exact, nothing lost, nothing given twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.operators.redis.cluster.slots import (
    ALL,
    TOTAL,
    Slots,
    Transfer,
    assign,
    count,
    drain,
    each,
    level,
    lowest,
    parse,
    ranges,
    shares,
    show,
    span,
)

sets = st.lists(st.integers(0, TOTAL - 1), max_size=50).map(lambda many: sum(1 << one for one in set(many)))


def named(*parts: Slots) -> dict[str, Slots]:
    return {f"n{at}": part for at, part in enumerate(parts)}


def after(owned: dict[str, Slots], transfers: list[Transfer]) -> dict[str, Slots]:
    """Carry the transfers out; every slot must be where it is taken from."""
    now = dict(owned)
    for one in transfers:
        assert one.slots
        assert one.slots & ~now[one.source] == 0, "a slot is taken from somebody who does not have it"
        now[one.source] &= ~one.slots
        now[one.target] = now.get(one.target, 0) | one.slots
    assert sum(count(one) for one in now.values()) == sum(count(one) for one in owned.values())
    return now


@given(sets)
def test_a_set_is_read_back_from_its_text(slots: Slots) -> None:
    assert parse(show(slots)) == slots
    assert list(each(slots)) == [slot for low, high in ranges(slots) for slot in range(low, high + 1)]
    assert count(slots) == len(list(each(slots)))


@given(sets, st.integers(0, 60))
def test_the_lowest_are_the_lowest(slots: Slots, number: int) -> None:
    assert list(each(lowest(slots, number))) == list(each(slots))[:number]


@pytest.mark.parametrize("text", ["16384", "5-3", "a", "-1"])
def test_what_is_no_slot_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


@given(st.integers(1, 60))
def test_a_new_cluster_is_shared_out_evenly_and_wholly(masters: int) -> None:
    parts = shares(masters)
    assert sum(parts) == ALL
    sizes = [count(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_three_shares_are_those_of_redis_cli() -> None:
    assert [show(part) for part in shares(3)] == ["0-5460", "5461-10922", "10923-16383"]


def test_a_fourth_master_gets_4096_of_the_lowest_slots_of_each() -> None:
    moves = level({**named(*shares(3)), "new": 0})
    assert [(one.source, count(one.slots)) for one in moves] == [("n0", 1365), ("n1", 1366), ("n2", 1365)]
    assert moves[0].slots == span(0, 1364)
    assert {count(part) for part in after({**named(*shares(3)), "new": 0}, moves).values()} == {4096}


@given(st.integers(1, 8), st.integers(0, 5))
def test_levelling_ends_level_whatever_it_begins_with(old: int, new: int) -> None:
    owned = {**named(*shares(old)), **{f"new{at}": 0 for at in range(new)}}
    sizes = [count(part) for part in after(owned, level(owned)).values()]
    assert max(sizes) - min(sizes) <= 1


def test_a_level_cluster_is_left_alone() -> None:
    assert level(named(*shares(5))) == []


def test_a_thousand_of_two_equal_sources_are_500_and_500() -> None:
    owned = {**named(*shares(4)), "new": 0}
    moves = assign(owned, target="new", number=1000, sources=["n2", "n1"])
    assert [(one.source, count(one.slots)) for one in moves] == [("n2", 500), ("n1", 500)]
    assert moves[0].slots == span(8192, 8691)


def test_the_largest_source_gives_the_ceiling() -> None:
    owned = {"a": span(0, 99), "b": span(100, 399), "new": 0}
    moves = assign(owned, target="new", number=10, sources=["a", "b"])
    assert [(one.source, count(one.slots)) for one in moves] == [("b", 8), ("a", 2)]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.data())
def test_exactly_as_many_as_asked_for_are_assigned(sizes: list[int], data: st.DataObject) -> None:
    owned, at = {}, 0
    for number, size in enumerate(sizes):
        owned[f"n{number}"] = span(at, at + size - 1)
        at += size
    number = data.draw(st.integers(1, at))
    result = after({**owned, "new": 0}, assign(owned, target="new", number=number, sources=list(owned)))
    assert count(result["new"]) == number


def test_more_than_the_sources_have_is_refused() -> None:
    with pytest.raises(ValueError, match="5 slots are asked of nodes that have 4"):
        assign({"a": span(0, 3)}, target="new", number=5, sources=["a"])


@given(st.integers(2, 8), st.data())
def test_leavers_give_everything_and_the_rest_ends_level(masters: int, data: st.DataObject) -> None:
    leaving = data.draw(st.integers(1, masters - 1))
    owned = named(*shares(masters))
    gone = list(owned)[-leaving:]
    result = after(owned, drain(owned, gone))
    assert all(result[node] == 0 for node in gone)
    sizes = [count(part) for node, part in result.items() if node not in gone]
    assert max(sizes) - min(sizes) <= 1


def test_the_emptiest_take_first() -> None:
    owned = {"full": span(0, 9999), "bare": span(10000, 10009), "gone": span(10010, 10109)}
    assert [(one.target, count(one.slots)) for one in drain(owned, ["gone"])] == [("bare", 100)]
