"""Orders of the gate: what a new replica begins with."""

from __future__ import annotations

import pytest

from mooring.operators.mysql import gate
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import Open
from mooring.operators.mysql.types import TailCut

from .builders import Scene, at, healthy


def _new_replica(scene: Scene) -> gate.Order:
    verdict = scene.recreated("demo-2", volume="another").settled().decide()
    assert isinstance(verdict, Open)
    order = gate.parse(verdict.orders["demo-2"])
    assert order is not None
    return order


def test_a_new_replica_joins_by_replication_while_binary_logs_reach_back() -> None:
    assert _new_replica(healthy().server("demo-0", purged=Position())).seed == ""


def test_a_new_replica_begins_with_a_copy_of_a_replica_where_they_do_not() -> None:
    order = _new_replica(healthy().server("demo-0", purged=at("0-10-50")))
    assert order.seed.startswith("demo-1")
    assert order.role == "replica"


def test_the_primary_is_copied_where_no_replica_has_everything() -> None:
    scene = healthy().server("demo-0", purged=at("0-10-50")).link("demo-1", io_running=False)
    assert _new_replica(scene).seed.startswith("demo-0")


def test_a_replica_that_had_the_data_is_not_copied_again() -> None:
    verdict = healthy().server("demo-0", purged=at("0-10-50")).restarted("demo-2").settled().decide()
    assert isinstance(verdict, Open)
    assert "seed" not in verdict.orders["demo-2"]


@pytest.mark.parametrize(
    ("words", "order"),
    [
        ({}, "2 replica 7"),
        ({"fresh": True}, "2 replica 7 fresh"),
        (
            {"fresh": True, "seed": "demo-1.demo.default.svc"},
            "2 replica 7 fresh seed demo-1.demo.default.svc",
        ),
        ({"seed": "demo-1"}, "2 replica 7 seed demo-1"),
        ({"cut": TailCut(file="binlog.000003", position=99)}, "2 replica 7 cut binlog.000003 99"),
    ],
)
def test_orders_are_written_and_read(words: dict[str, object], order: str) -> None:
    assert gate.order_line(2, "replica", 7, **words) == order  # type: ignore[arg-type]
    parsed = gate.parse(order)
    assert parsed is not None
    assert gate.order_line(2, "replica", 7, parsed.cut, fresh=parsed.fresh, seed=parsed.seed) == order
