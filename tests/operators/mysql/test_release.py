"""Orders of the gate: what a new replica begins with."""

from __future__ import annotations

import pytest

from mooring.operators.mysql import gate
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import DeletePod, LabelRoles, Open, Wait
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


def test_a_new_replica_copies_a_long_history_though_all_of_it_is_there() -> None:
    long = healthy().server("demo-0", purged=Position(), executed=at("0-10-2001"))
    assert _new_replica(long).seed
    short = healthy().server("demo-0", purged=Position(), executed=at("0-10-2000"))
    assert _new_replica(short).seed == ""


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


def _spoilt(scene: Scene, name: str) -> Scene:
    """Its data is to be made again, and its container waits at its gate."""
    return scene.known(name, reseed="it has transactions of its own", synced=False).restarted(name)


@pytest.mark.parametrize("away", ["gone", "another volume"])
def test_no_data_is_set_aside_while_no_primary_answers(away: str) -> None:
    scene = _spoilt(healthy(size=2), "demo-1")
    scene = scene.gone("demo-0") if away == "gone" else scene.recreated("demo-0", volume="another")

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    assert gate.parse(verdict.orders["demo-1"]) is not None
    assert "fresh" not in verdict.orders["demo-1"]
    assert verdict.first is not None
    assert (verdict.first.members or {})["demo-1"].reseed


def test_no_data_is_set_aside_before_the_primary_takes_writes() -> None:
    scene = _spoilt(healthy().restarted("demo-0"), "demo-1").restarted("demo-2")

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    assert not any("fresh" in text for text in verdict.orders.values())
    assert "fresh" in _order_of(_spoilt(healthy().server("demo-0", purged=Position()), "demo-1"), "demo-1")
    mysql = _spoilt(healthy(flavor="mysql"), "demo-1").pod("demo-1", role="").settled()
    waits = mysql.decide()
    assert isinstance(waits, Wait)
    assert waits.reason == "HistoryUnknown"


def _order_of(scene: Scene, name: str) -> str:
    verdict = scene.decide()
    assert isinstance(verdict, Open)
    return verdict.orders[name]


def test_an_empty_server_is_not_chosen_in_place_of_a_lost_primary() -> None:
    scene = healthy(size=2, switch_to="demo-1").gone("demo-0").has("demo-1", "").fenced("demo-1")
    scene = scene.see(primary_unreachable=30.0)

    for spoilt in (scene.known("demo-1", joined=False, synced=False), scene.known("demo-1", reseed="x")):
        verdict = spoilt.known("demo-1", synced=False).decide()
        assert isinstance(verdict, Wait)
        assert verdict.reason == "Lost"
        assert "demo-1 is empty" in verdict.message


def test_a_held_server_is_not_started_and_the_wait_says_so() -> None:
    held = _spoilt(healthy(reclone=False).server("demo-0", purged=Position()), "demo-2")

    verdict = held.pod("demo-2", role="").settled().decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "Diverged"
    assert verdict.stalled
    assert "demo-2 is held and is not started" in verdict.message
    outage = held.restarted("demo-0").restarted("demo-1").decide()
    assert isinstance(outage, Open)
    assert set(outage.orders) == {"demo-0", "demo-1"}


def test_mariadb_is_copied_while_commits_wait_and_lists_no_binary_logs() -> None:
    waiting = healthy(size=2).semi("demo-0", waiting=3).server("demo-0", purged=None)
    opened = waiting.recreated("demo-1", volume="another").settled().decide()
    assert isinstance(opened, Open)
    assert opened.orders["demo-1"].endswith("seed demo-0.demo.default.svc")

    spoilt = waiting.known("demo-1", reseed="purged", joined=False, synced=False).has("demo-1", "")
    spoilt = spoilt.link("demo-1", io_running=False)
    verdict = spoilt.decide()
    assert not isinstance(verdict, LabelRoles)
    assert isinstance(verdict, DeletePod)
    assert verdict.pod == "demo-1"


def test_only_a_replica_has_its_tail_cut() -> None:
    scene = healthy(size=2, flavor="mysql").known("demo-0", cut=TailCut(file="binlog.000002", position=5))
    scene = scene.restarted("demo-0").known("demo-1", synced=False)

    assert _order_of(scene, "demo-0").split()[1:2] == ["primary"]
    assert "cut" not in _order_of(scene, "demo-0")
