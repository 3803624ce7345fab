"""The campaign of the MySQL operator: runs without faults, and planted mistakes, at least one for each monitor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any
from unittest import mock

import pytest
from bench.campaign import WORKLOADS
from msgspec.structs import replace

from bench import mysql_model
from mooring.kube import Client
from mooring.kube.objects import apps
from mooring.operators.mysql import applier, failover, plan, switchover
from mooring.operators.mysql.moves import Promote, Switch
from mooring.operators.mysql.replication import demote_others
from mooring.operators.mysql.specs import Specs
from mooring.testing.faults import Plan
from mooring.testing.workload import Workload, play

FLAVORS = pytest.mark.parametrize("of", ["mysql", "mysql97"], ids=["mariadb", "mysql"])


@FLAVORS
async def test_replicas_whose_appliers_stand_still_apply_again(of: str) -> None:
    trace = await play(WORKLOADS[f"{of}-applier"](), Plan())

    assert not trace.violations, trace.violations[:10]
    assert sum(1 for at, _ in trace.requests if at.startswith("DELETE") and "/pods/demo-" in at) == 2
    assert not any(one.stuck for one in mysql_model.newest().processes.values())


def behind(of: str, *pods: str) -> Workload:
    """The primary is lost while these replicas lack what it wrote last."""
    whole = WORKLOADS[f"{of}-failover"]()

    async def lose_primary(client: Client) -> None:
        for pod in pods:
            mysql_model.fall_behind(pod)
        for step in whole.steps:
            await step(client)

    return changed(whole, steps=(lose_primary,))


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "whole"])
async def test_an_old_primary_of_mysql_keeps_its_data_where_what_nobody_acknowledged_is_cut(
    cut: bool,
) -> None:
    with mock.patch.object(failover, "CUT", frozenset({"mysql"} if cut else ())):
        trace = await play(behind("mysql97", "demo-1", "demo-2"), Plan())

    assert not trace.violations, trace.violations[:10]
    old = mysql_model.newest().of("demo-0")
    assert old is not None
    assert (len(old.volume.files) == 2) is cut, "a start before the loss and one after it, or a new volume"


@FLAVORS
async def test_of_two_replicas_the_one_that_acknowledged_more_leads(of: str) -> None:
    trace = await play(behind(of, "demo-1"), Plan())

    assert not trace.violations, trace.violations[:10]
    assert [one.pod for one in mysql_model.newest().processes.values() if not one.read_only] == ["demo-2"]


# --- planted mistakes ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A mistake, the workload that meets it, and what a monitor says."""

    patch: Callable[[], AbstractContextManager[object]]
    workload: Callable[[], Workload]
    says: str


def all_at_once() -> AbstractContextManager[object]:
    """Does not look whether the others suffice."""
    return mock.patch.object(applier, "_needed", return_value=False)


def those_that_leave_count() -> AbstractContextManager[object]:
    """Takes a replica whose pod is being deleted for one that acknowledges, since its server still answers."""
    whole = applier._needed

    def needed(snapshot: Any, one: Any) -> bool:
        members = [changed(it, pod=changed(it.pod, terminating=False)) for it in snapshot.topology.members]
        return whole(changed(snapshot, topology=changed(snapshot.topology, members=members)), one)

    return mock.patch.object(applier, "_needed", needed)


def any_replica_may_lead() -> AbstractContextManager[object]:
    """Promotes the first replica of the ack set, whatever the others received."""
    return mock.patch.object(failover, "_most_advanced", lambda snapshot, votes: votes[0])


def _at_once(**more: Any) -> AbstractContextManager[object]:
    """A switch that promotes the candidate while the old primary takes writes."""
    whole = switchover.hand_over

    def hand_over(snapshot: Any, member: Any, server: Any, **why: Any) -> Any:
        verdict = whole(snapshot, member, server, **why)
        if not isinstance(verdict, Switch):
            return verdict
        heir = snapshot.topology.member(verdict.candidate.name)
        base = changed(snapshot, status=verdict.first)
        promotion = failover.take_over(
            base, (heir, heir.server), position=heir.server.received, cause="Planned"
        )
        assert isinstance(promotion, Promote)
        return changed(promotion, **more)

    return mock.patch.object(switchover, "hand_over", hand_over)


def switch_without_holding_writes() -> AbstractContextManager[object]:
    """Promotes while the old primary takes writes, and takes its replicas from it only afterwards."""
    return _at_once(others=())


def two_primaries_for_a_while() -> AbstractContextManager[object]:
    """The same, with a new primary that waits for nobody, and an old one that is demoted after all else."""
    stack = ExitStack()
    stack.enter_context(_at_once(others=(), semi_sync=False))
    rules = (*(one for one in plan._RULES if one is not demote_others), demote_others)
    stack.enter_context(mock.patch.object(plan, "_RULES", rules))
    return stack


def promoted_before_it_is_recorded() -> AbstractContextManager[object]:
    """Promotes first and records afterwards."""
    whole = failover.take_over

    def take_over(*args: Any, **more: Any) -> Any:
        verdict = whole(*args, **more)
        return changed(verdict, first=None) if isinstance(verdict, Promote) else verdict

    return mock.patch.object(failover, "take_over", take_over)


def claims_go_with_their_pods() -> AbstractContextManager[object]:
    """Deletes the data of a server that is scaled in."""
    whole = Specs.declared_set

    def declared_set(self: Specs) -> apps.StatefulSet:
        made = whole(self)
        assert made.spec is not None
        policy = apps.StatefulSetPersistentVolumeClaimRetentionPolicy(when_scaled="Delete")
        return replace(made, spec=replace(made.spec, persistent_volume_claim_retention_policy=policy))

    return mock.patch.object(Specs, "declared_set", declared_set)


def children_without_an_owner() -> AbstractContextManager[object]:
    """Leaves everything behind when the cluster goes."""
    return mock.patch.object(
        Specs, "unowned", lambda self: [(type(one), one.metadata.name or "") for one in self.objects()]
    )


LOST, BOTH = "acknowledged transactions are lost", "demo-0 and demo-2 can both acknowledge writes"
STRANGER, ALONE = "takes writes and was never recorded", "is started again, and no other replica acknowledges"
PLANTED = (
    Planted(patch=all_at_once, workload=WORKLOADS["mysql-applier"], says=ALONE),
    Planted(patch=those_that_leave_count, workload=WORKLOADS["mysql-applier"], says=ALONE),
    Planted(patch=any_replica_may_lead, workload=lambda: behind("mysql", "demo-1"), says=LOST),
    Planted(patch=any_replica_may_lead, workload=lambda: behind("mysql97", "demo-1"), says=LOST),
    Planted(patch=switch_without_holding_writes, workload=WORKLOADS["mysql-switch"], says=LOST),
    Planted(patch=switch_without_holding_writes, workload=WORKLOADS["mysql97-switch"], says=LOST),
    Planted(patch=two_primaries_for_a_while, workload=WORKLOADS["mysql-switch"], says=BOTH),
    Planted(patch=promoted_before_it_is_recorded, workload=WORKLOADS["mysql-failover"], says=STRANGER),
    Planted(
        patch=claims_go_with_their_pods,
        workload=WORKLOADS["mysql-scale"],
        says="deleted though it is to be kept: persistentvolumeclaims",
    ),
    Planted(
        patch=children_without_an_owner, workload=WORKLOADS["mysql-create"], says="made without an owner"
    ),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.patch.__name__)
async def test_a_mistake_planted_in_the_mysql_operator_is_found(planted: Planted) -> None:
    with planted.patch():
        trace = await play(planted.workload(), Plan(), until=lambda said: planted.says in said)

    assert any(planted.says in one for one in trace.violations), trace.violations[:10]
