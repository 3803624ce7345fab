"""TLS turned on and off in a cluster that runs: what comes next in each phase, and after each interruption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operators.redis.sentinel.builders import Scene, ago, at_gate, healthy

from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.moves import (
    Follow,
    InSync,
    MoveSentinels,
    Record,
    Repoint,
    SetTransport,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.tls import TlsProgress, next_ports, open_ports, ports_of
from mooring.operators.workload.rollout import Roll, SetState


def phase(verdict: Any) -> TlsProgress:
    assert isinstance(verdict, Record), verdict
    assert verdict.tls is not None
    return verdict.tls


def moving(scene: Scene) -> Scene:
    """Recorded to be moving by TLS; nothing has moved yet."""
    members = {name: replace(one, port=6380) for name, one in scene.members.items()}
    watchers = {name: replace(one, port=26380) for name, one in scene.watchers.items()}
    scene = replace(scene, members=members, watchers=watchers).see(transport="tls")
    return scene.record(tls=TlsProgress(transport="tls", phase="Moving"))


def opened() -> Scene:
    """TLS is declared, both ports are open everywhere, nothing uses the new one."""
    return healthy().opened("both").over("plain", "Opening").want(ports="tls")


def test_the_next_ports_are_both_until_everything_uses_the_declared_transport() -> None:
    assert next_ports(declared="tls", transport="plain", moving=False) == "both"
    assert next_ports(declared="tls", transport="tls", moving=True) == "both"
    assert next_ports(declared="tls", transport="tls", moving=False) == "tls"
    assert next_ports(declared="plain", transport="tls", moving=False) == "both"
    assert next_ports(declared="plain", transport="plain", moving=False) == "plain"
    assert next_ports(declared="both", transport="tls", moving=False) == "both"


def test_pods_tell_by_their_mark_which_ports_they_have_open() -> None:
    assert ports_of(None) == "plain"
    assert ports_of({"mooring.dev/tls": "required"}) == "tls"
    assert ports_of({"mooring.dev/tls": "both"}) == "both"
    assert open_ports([]) == "plain"
    assert open_ports(["plain", "both"]) == open_ports(["both", "tls"]) == "both"
    assert open_ports(["tls", "tls"]) == "tls"


# --- the phases of turning it on ---------------------------------------------------------------------------


def test_the_phase_is_recorded_before_a_template_is_written() -> None:
    scene = healthy().want(ports="tls").see(redis_set=SetState(replicas=3, current=False, asked="both"))
    assert phase(scene.decide()) == TlsProgress(transport="plain", phase="Opening")
    recorded = scene.record(tls=TlsProgress(transport="plain", phase="Opening"))
    begun = recorded.decide()
    assert isinstance(begun, Record)
    assert begun.rolls is not None
    assert isinstance(recorded.settled().decide(), WriteTemplate)


def test_nothing_moves_before_every_pod_has_both_ports_open() -> None:
    scene = opened()
    assert phase(scene.decide()) == TlsProgress(transport="tls", phase="Moving")
    for name in scene.members:
        late = scene.member(name, replace(scene.members[name], ports="plain"))
        assert not isinstance(late.decide(), Record | Repoint | MoveSentinels)
        assert not isinstance(scene.silent(name).decide(), Record | Repoint | MoveSentinels)
    for name in scene.watchers:
        one = {**scene.watchers, name: replace(scene.watchers[name], ports="plain")}
        assert not isinstance(replace(scene, watchers=one).decide(), Record | Repoint | MoveSentinels)
    rolling = scene.record(rolls={"redis": Roll(inputs="both", revision="one", since=ago(1))})
    verdict = rolling.decide()
    assert not (isinstance(verdict, Record) and verdict.tls)


def test_nothing_moves_to_a_port_that_the_operator_cannot_reach() -> None:
    scene = opened()
    shut = scene.member("redis-1", replace(scene.members["redis-1"], closed="10.0.0.2:6380: cannot connect"))
    verdict = shut.decide()
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("PortClosed", True)
    assert "redis-1" in verdict.message
    assert "6380" in verdict.message
    watchers = {**scene.watchers, "sentinel-2": replace(scene.watchers["sentinel-2"], closed="refused")}
    assert isinstance(replace(scene, watchers=watchers).decide(), Wait)
    # What does not move needs no other port.
    assert phase(shut.want(ports="plain").decide()) == TlsProgress(transport="plain", phase="Closing")


def test_replicas_move_one_by_one_each_in_sync_before_the_next() -> None:
    scene = moving(opened())
    first = scene.decide()
    assert isinstance(first, SetTransport)  # the master has no replication of its own to lose
    assert [one.name for one in first.targets] == ["redis-0"]
    scene = scene.server("redis-0", config={"slave-priority": "1", "tls-replication": "yes"})
    move = scene.decide()
    assert isinstance(move, Repoint)
    assert (move.target.name, move.master.address.port, move.tls) == ("redis-1", 6380, True)
    moved = scene.server(
        "redis-1",
        master=Address("10.0.0.1", 6380),
        config={"slave-priority": "1", "tls-replication": "yes"},
    )
    waits = moved.server("redis-1", link_up=False).decide()
    assert isinstance(waits, Wait)
    assert waits.reason == "ReplicaSynchronising"
    following = moved.decide()
    assert isinstance(following, Repoint)
    assert following.target.name == "redis-2"


def test_a_change_that_is_put_back_does_not_wait_for_a_replica_that_does_not_get_through() -> None:
    both = {"config": {"slave-priority": "1", "tls-replication": "yes"}}
    scene = moving(opened()).server("redis-0", **both)
    stuck = scene.server("redis-1", master=Address("10.0.0.1", 6380), link_up=False, **both)
    assert isinstance(stuck.decide(), Wait)
    assert phase(stuck.want(ports="plain").decide()) == TlsProgress(transport="plain", phase="Moving")


def test_a_replica_that_is_cut_off_moves_without_waiting_for_the_others() -> None:
    scene = moving(opened()).server("redis-0", config={"tls-replication": "yes", "slave-priority": "1"})
    scene = scene.server("redis-2", link_up=False)
    move = scene.decide()
    assert isinstance(move, Repoint)
    assert move.target.name == "redis-2"


def data_moved(phase: str = "Moving") -> Scene:
    """The servers use TLS, the sentinels do not yet."""
    plain, scene = opened(), opened().over("tls", phase)
    watchers = {name: replace(one, port=26380) for name, one in plain.watchers.items()}
    return replace(scene, watchers=watchers).want(ports="tls")


def test_sentinels_move_all_at_once_after_the_last_replica() -> None:
    move = data_moved().decide()
    assert isinstance(move, MoveSentinels)
    assert (len(move.sentinels), move.tls) == (3, True)
    # The operator died in between: those that have moved stay where they are.
    halfway = data_moved().sentinel("sentinel-0", encrypts=True, master=Address("10.0.0.1", 6380))
    rest = halfway.decide()
    assert isinstance(rest, MoveSentinels)
    assert [one.name for one in rest.sentinels] == ["sentinel-1", "sentinel-2"]


def test_no_sentinel_is_restarted_while_they_fail_over() -> None:
    scene = data_moved().sentinel("sentinel-1", flags=frozenset({"master", "failover_in_progress"}))
    assert isinstance(scene.decide(), Wait)


def test_the_old_port_is_closed_only_when_every_sentinel_has_moved() -> None:
    moved = opened().over("tls", "Moving").want(ports="tls")
    assert phase(moved.decide()) == TlsProgress(transport="tls", phase="Closing")
    missing = moved.blind("sentinel-2").decide()
    assert isinstance(missing, Wait)
    closing = moved.over("tls", "Closing").want(ports="tls")
    closing = closing.see(redis_set=SetState(replicas=3, current=False, asked="tls"))
    assert isinstance(closing.settled().decide(), WriteTemplate)


def test_at_rest_the_phase_is_empty() -> None:
    closed = healthy().opened("tls").over("tls", "Closing")
    assert phase(closed.decide()) == TlsProgress(transport="tls", phase="")
    assert isinstance(healthy().opened("tls").over("tls").decide(), InSync)
    assert isinstance(healthy().opened("both").over("tls").decide(), InSync)
    assert isinstance(healthy().decide(), InSync)


def test_plain_ports_stay_open_where_that_is_declared() -> None:
    moved = opened().over("tls", "Moving").want(ports="both")
    assert phase(moved.decide()) == TlsProgress(transport="tls", phase="")


def test_ports_alone_are_opened_and_closed_by_a_roll() -> None:
    opening = healthy().opened("tls").over("tls").want(ports="both")
    assert phase(opening.decide()) == TlsProgress(transport="tls", phase="Opening")
    assert isinstance(opening.over("tls", "Opening").want(ports="both").decide(), InSync)
    closing = healthy().opened("both").over("tls").want(ports="tls")
    assert phase(closing.decide()) == TlsProgress(transport="tls", phase="Closing")


# --- turned round, and turned off --------------------------------------------------------------------------


def test_turning_it_off_opens_the_plain_port_first() -> None:
    scene = healthy().opened("tls").over("tls").want(ports="plain")
    assert phase(scene.decide()) == TlsProgress(transport="tls", phase="Opening")
    both = healthy().opened("both").over("tls", "Opening").want(ports="plain")
    assert phase(both.decide()) == TlsProgress(transport="plain", phase="Moving")


def test_what_has_moved_moves_back_when_the_field_does() -> None:
    back = data_moved().want(ports="plain")
    # What is under way is finished for the sentinels first, or turned at once where nothing is.
    finished = opened().over("tls", "Moving").want(ports="plain")
    assert phase(finished.decide()) == TlsProgress(transport="plain", phase="Moving")
    assert isinstance(back.decide(), MoveSentinels)
    turned = opened().over("tls").see(transport="plain").want(ports="plain")
    turned = turned.record(tls=TlsProgress(transport="plain", phase="Moving"))
    members = {name: replace(one, port=6379) for name, one in turned.members.items()}
    move = replace(turned, members=members).settled().decide()
    assert isinstance(move, SetTransport)
    assert move.tls is False


def test_turned_back_before_anything_moved_only_the_pods_are_rolled_back() -> None:
    scene = opened().want(ports="plain")
    assert phase(scene.decide()) == TlsProgress(transport="plain", phase="Closing")
    rest = opened().opened("plain").over("plain", "Closing").want(ports="plain")
    assert phase(rest.decide()) == TlsProgress(transport="plain", phase="")


def test_nothing_begins_while_the_declaration_is_faulty() -> None:
    assert isinstance(healthy().want(ports="tls", roll=False).decide(), InSync)
    paused = healthy().want(ports="tls", paused=True).planned()
    assert isinstance(paused, Wait)


# --- faults meanwhile ---------------------------------------------------------------------------------------


def test_a_server_behind_the_gate_takes_the_recorded_transport_before_it_follows() -> None:
    scene = healthy().opened("both").over("tls")
    gated = at_gate()
    scene = scene.member(
        "redis-2",
        replace(scene.members["redis-2"], server=replace(gated, config={"tls-replication": "no"})),
    )
    first = scene.decide()
    assert isinstance(first, SetTransport)
    assert [one.name for one in first.targets] == ["redis-2"]
    ready = scene.server("redis-2", config={"tls-replication": "yes"}).decide()
    assert isinstance(ready, Follow)
    assert ready.master.address.port == 6380


def test_a_sentinel_that_sent_a_replica_to_the_old_port_is_corrected() -> None:
    scene = healthy().opened("both").over("tls")
    scene = scene.server("redis-1", master=Address("10.0.0.1", 6379), link_up=False)
    move = scene.decide()
    assert isinstance(move, Repoint)
    assert move.target.name == "redis-1"


@pytest.mark.parametrize("transport", ["plain", "tls"])
def test_sentinels_that_have_not_moved_yet_can_still_fail_over(transport: Any) -> None:
    scene = data_moved() if transport == "tls" else opened()
    heirs = [(one, one.server) for one in scene.members.values() if one.server and not one.server.is_master]
    assert len(scene.snapshot.useful_sentinels("10.0.0.1", heirs)) == 3
