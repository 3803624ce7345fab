"""What `mooring why` prints about a cluster."""

from __future__ import annotations

import pytest

from mooring.operators.mysql.explain import lines


def test_a_cluster_without_a_primary_is_not_said_to_write_unsafely() -> None:
    assert not [one for one in lines({"atRisk": "the cluster has no data yet"}) if "waits" in one]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"durability": "Async"}, "A write waits for no replica"),
        ({"durability": "Strict", "acks": 1, "ackSet": ["a-1"]}, "A write waits for 1 of: a-1"),
    ],
)
def test_what_a_write_waits_for_is_said_once_somebody_leads(status: dict[str, object], said: str) -> None:
    assert said in list(lines({"term": 1, "primary": "a-0", **status}))


def test_who_else_sets_the_size_is_left_to_the_condition() -> None:
    said = "kubectl sets spec.size"
    assert not [
        one
        for one in lines({"autoscale": {"reason": "AutoscaleContested", "message": said}})
        if "Autoscale" in one
    ]
    assert f"Held: {said}" in list(lines({"autoscale": {"reason": "Held", "message": said}}))


def test_the_number_that_the_load_chose_is_said_where_the_declared_one_is_another() -> None:
    chosen = {"replicas": 4, "lastScaleTime": "2026-11-28T18:00:00Z"}
    assert "The load decides the number: 4 since 2026-11-28T18:00:00Z" in list(lines({"autoscale": chosen}))
    first = {"autoscale": {"replicas": 3}}
    assert "The load decides the number: 3, as when it began to" in list(lines(first))
