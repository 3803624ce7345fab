"""Masters over zones and machines, replicas away from their masters: as well as can be, in every arrangement of pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations, product

import pytest

from mooring.operators.redis.cluster.placement import Place, best_master, choose_masters, matched

#: The zone of each machine.
MACHINES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c", "c2": "c"}


def pods(*machines: str) -> list[Place]:
    """One pod on each of these machines."""
    return [
        Place(name=f"demo-{at}", ordinal=at, node=machine, zone=MACHINES.get(machine, ""))
        for at, machine in enumerate(machines)
    ]


def shards(places: Sequence[Place], masters: int = 3) -> tuple[list[Place], list[tuple[Place, Place]]]:
    """The masters, and each replica with its own."""
    by_name = {one.name: one for one in places}
    names = choose_masters(places, number=masters)
    heads = [by_name[name] for name in names]
    pairs = matched(heads, [one for one in places if one not in heads])
    return heads, [(by_name[replica], by_name[master]) for replica, master in pairs.items()]


def beside(pairs: Sequence[tuple[Place, Place]]) -> tuple[int, int]:
    """How many replicas share a machine with their master, and how many a zone."""
    return sum(one.node == other.node for one, other in pairs), sum(
        one.zone == other.zone for one, other in pairs
    )


@pytest.mark.parametrize("machines", sorted(set(permutations("aabbcc"))))
def test_where_every_zone_has_two_pods_each_has_one_master_and_no_shard_is_in_one_zone(
    machines: tuple[str, ...],
) -> None:
    used: Counter[str] = Counter()
    numbered = []
    for zone in machines:
        used[zone] += 1
        numbered.append(f"{zone}{used[zone]}")
    heads, pairs = shards(pods(*numbered))
    assert sorted(one.zone for one in heads) == ["a", "b", "c"]
    assert beside(pairs) == (0, 0)
    assert len({master.name for _, master in pairs}) == 3


def arrangements() -> Iterator[tuple[str, ...]]:
    yield from product(("a1", "a2", "b1"), repeat=6)


def test_no_other_choice_of_replicas_is_better_however_pods_are_placed() -> None:
    for machines in arrangements():
        places = pods(*machines)
        heads, pairs = shards(places)
        replicas = [one for one in places if one not in heads]
        best = min(beside(list(zip(order, heads, strict=True))) for order in permutations(replicas))
        assert beside(pairs) == best, machines


def test_masters_share_a_machine_only_where_there_are_too_few() -> None:
    for machines in arrangements():
        heads, _ = shards(pods(*machines))
        zones = {MACHINES[one] for one in machines}
        assert len({one.zone for one in heads}) == len(zones)
        assert len({one.node for one in heads}) == len(set(machines)), machines


@pytest.mark.parametrize(
    ("there", "chosen"),
    [(("demo-0", "demo-1", "demo-3"), "demo-2"), (("demo-0", "demo-1", "demo-2"), "demo-5")],
)
def test_a_master_more_comes_into_the_zone_and_onto_the_machine_with_the_fewest(
    there: tuple[str, ...], chosen: str
) -> None:
    places = pods("a1", "b1", "c1", "a1", "b1", "a2", "b2", "c2")
    assert set(choose_masters(places, number=4, fixed=there)) - set(there) == {chosen}


@pytest.mark.parametrize(
    ("machine", "replicas", "chosen"),
    [
        ("a1", {"demo-0": 0, "demo-1": 0}, "demo-1"),
        ("b1", {"demo-0": 0, "demo-1": 0}, "demo-0"),
        ("a2", {"demo-0": 0, "demo-1": 0}, "demo-1"),
        ("a1", {"demo-0": 0, "demo-1": 1}, "demo-0"),
    ],
)
def test_a_replica_goes_to_who_has_the_fewest_and_then_away_from_its_own_place(
    machine: str, replicas: dict[str, int], chosen: str
) -> None:
    [newcomer] = pods(machine)
    assert best_master(newcomer, pods("a1", "b1"), replicas=replicas).name == chosen
