"""Which operators a value of ``--operators`` stands for."""

from __future__ import annotations

import pytest

from mooring.operators.registry import OPERATORS, choose

ALL = list(OPERATORS)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("*", ALL),
        ("", ALL),
        ("none", []),
        ("redis-cluster", ["redis-cluster"]),
        ("redisCluster", ["redis-cluster"]),
        ("redis-cluster, redis-sentinel", ["redis-sentinel", "redis-cluster"]),
        ("*,-redis-sentinel", ["redis-cluster"]),
        ("*,redis-cluster", ALL),
        ("-redis-cluster,redis-cluster", []),
    ],
)
def test_names_star_and_minus_choose_operators_and_the_first_word_on_one_counts(
    value: str, names: list[str]
) -> None:
    assert [one.name for one in choose(value)] == names


def test_one_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="there is no '-redis9'"):
        choose("*,-redis9")
