"""Whatever the planner waits for, the message says what would end it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operators.redis.sentinel.builders import healthy

from mooring.operators.redis import sentinel
from mooring.operators.redis.sentinel.moves import Wait
from mooring.operators.redis.sentinel.plan import held_back
from mooring.operators.redis.sentinel.unblock import SAYS_SO, UNBLOCKS

PLANNING = ("plan", "changes", "roll", "passwords", "quorum")


def reasons() -> Iterator[str]:
    """Every reason that is written out in a wait of the planner."""
    for module in PLANNING:
        tree = ast.parse((Path(sentinel.__file__).parent / f"{module}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Wait":
                given = [word.value for word in node.keywords if word.arg == "reason"]
                for part in ast.walk(given[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value


def test_every_reason_to_wait_has_a_way_out() -> None:
    known = set(reasons())
    assert len(known) > 20
    assert known - SAYS_SO - UNBLOCKS.keys() == set()
    assert (SAYS_SO | UNBLOCKS.keys()) - known == set()


@pytest.mark.parametrize("reason", sorted(UNBLOCKS))
def test_it_is_said_beside_what_is_waited_for(reason: str) -> None:
    said = held_back(healthy().wanted, Wait(reason=reason, message="this"))
    assert isinstance(said, Wait)
    assert said.message == f"this; {UNBLOCKS[reason]}"
