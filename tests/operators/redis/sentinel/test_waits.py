"""Whatever the planner waits for, the message says what would end it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.operators.redis.sentinel.builders import healthy

from mooring.operators.redis import sentinel
from mooring.operators.redis.passwords import plan as passwords
from mooring.operators.redis.sentinel.moves import Wait
from mooring.operators.redis.sentinel.waits import ENDINGS, SELF_EXPLAINING
from mooring.operators.workload import rollout, waits

PLANNING = ("plan", "failover", "switchover", "changes", "roll", "passwords", "quorum", "transport", "users")


def reasons() -> Iterator[str]:
    """Every reason that is written out in a wait of the planner."""
    planning = [Path(sentinel.__file__).parent / f"{module}.py" for module in PLANNING]
    for file in (*planning, Path(passwords.__file__), Path(rollout.__file__), Path(waits.__file__)):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Wait":
                given = [*node.args, *(word.value for word in node.keywords if word.arg == "reason")]
                for part in ast.walk(given[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value


def test_every_reason_to_wait_has_a_way_out() -> None:
    known = set(reasons())
    assert len(known) > 20
    assert known - SELF_EXPLAINING - ENDINGS.keys() == set()
    assert (SELF_EXPLAINING | ENDINGS.keys()) - known == set()


def test_a_wait_of_the_planner_says_what_ends_it() -> None:
    waiting = healthy().silent("redis-2", seconds=2).settled().planned()
    assert isinstance(waiting, Wait)
    assert waiting.reason == "RedisNotAnswering"
    assert waiting.message.endswith(f"; {ENDINGS['RedisNotAnswering']}")
