"""The actor of a RedisCluster: reads, lets the planner decide, and carries out one move.

Every decision is in `plan`, every object in `specs`, every effect on servers in `steps`, everything shown in `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from mooring.actor import Context, Move, Outcome, Related, Report, Verdict, Wait
from mooring.kube.object import Key
from mooring.kube.objects import apps, core, networking, policy
from mooring.operators.backup.restore_rules import Restore
from mooring.operators.backup.restores import Look
from mooring.operators.redis import SCOPE_ANNOTATION
from mooring.operators.redis.backup.actor import register_backups
from mooring.operators.redis.cluster import events, passwords
from mooring.operators.redis.cluster.backup import ClusterBackupActor, ClusterScheduleActor
from mooring.operators.redis.cluster.effects import carry_out, correct_children, end, record_notes
from mooring.operators.redis.cluster.failover import suspects
from mooring.operators.redis.cluster.inputs import (
    DEPENDENCIES,
    Inputs,
    read_inputs,
    read_snapshot,
    references,
    secret_names,
    users_of,
    zones_of,
)
from mooring.operators.redis.cluster.measures import PUBLISH, Measures
from mooring.operators.redis.cluster.names import MANAGED_SELECTOR, Names, cluster_of
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.pulse import Pulse
from mooring.operators.redis.cluster.report import held, not_begun, refusal, report, step_failed
from mooring.operators.redis.cluster.restore import ClusterRestores
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.takeover import Takeover
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    status_of,
)
from mooring.operators.redis.cluster.validate import FOREGROUND
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.passwords.seen import logins
from mooring.operators.workload import actor as workload
from mooring.operators.workload.actor import DatabaseActor
from mooring.operators.workload.process import standing_still
from mooring.operators.workload.unknown_fields import UnknownFields
from mooring.runtime import Manager

__all__ = ["NAME", "ClusterActor", "register"]

NAME = "redis-cluster"
LOOK_AGAIN = 15.0
"""Seconds between two looks at a cluster that is in sync; pods' changes come at once."""
TIMEOUT = 20 * 60.0
"""Seconds in which a cluster is made or changed before it is called Failed; what runs is left as it is."""


Pass = Context[RedisCluster]


class ClusterActor(DatabaseActor[RedisCluster, Inputs, Snapshot]):
    """Brings one RedisCluster in line with its declaration."""

    kind = RedisCluster
    name: ClassVar[str] = NAME
    owns = (
        core.Service,
        core.ConfigMap,
        apps.StatefulSet,
        policy.PodDisruptionBudget,
        networking.NetworkPolicy,
    )
    owns_by_metadata = (core.Secret,)
    dependencies = DEPENDENCIES
    selector = MANAGED_SELECTOR
    cluster_of = staticmethod(cluster_of)
    container = "redis"
    path = "/data"
    annotation = SCOPE_ANNOTATION
    conditions_path: ClassVar[str] = "standardConditions"
    ready_metric: ClassVar[str] = "mooring_redis_cluster_ready"

    def __init__(
        self,
        manager: Manager,
        *,
        namespaces: Sequence[str] = (),
        scope: str = "all",
        timeout: float = TIMEOUT,
        look_again: float = LOOK_AGAIN,
        grace: float = passwords.GRACE,
        publish: float = PUBLISH,
    ) -> None:
        super().__init__(manager, scope=scope, namespaces=namespaces)
        self._timeout, self._look_again, self._grace = timedelta(seconds=timeout), look_again, grace
        self._nodes = manager.informers.of(core.Node) if scope != "namespaced" else None
        self._unknown = self.measuring(UnknownFields(manager, RedisClusterSpec))
        self._pulse = self.measuring(Pulse(lambda key: self.wake(key)))
        measures = Measures(manager.client.live, look_again=look_again, publish=publish)
        self._measures = self.measuring(measures)
        self._restores = ClusterRestores(manager, NAME, namespaces=namespaces)
        self._takeover = Takeover(manager, self._given, self.snapshot, namespaced=bool(namespaces))
        self.related += [Related(core.ConfigMap, self._users_of), *self._restores.related]
        self.serves["pulse"] = self._pulse.run

    def deleted(self, obj: RedisCluster) -> None:
        """Record what becomes of its objects and its data."""
        goes = ((obj.spec or RedisClusterSpec()).finalizers or "").lower() == FOREGROUND
        record_notes(self.manager.events, obj, events.of_deletion(claims_go=goes))

    def refused(self, ctx: Pass, why: Wait) -> None:
        """See `refusal`."""
        end(ctx, refusal(status_of(ctx.status), why))

    # --- the rooms of a pass -------------------------------------------------------------------------------

    async def precede(self, ctx: Pass) -> Outcome | None:
        """A cluster that HarmonyCloud's operator made is left to it, or taken over."""
        await self.read_secrets(ctx, secret_names(ctx.obj))
        live = ctx.children.find(apps.StatefulSet, ctx.key.name)
        return await self._takeover.precede(ctx, live, lambda: len(self.pods.of(ctx.key))) if live else None

    async def inputs(self, ctx: Pass) -> Inputs | Outcome:
        """Everything the declaration refers to; before there is anything, a wrong declaration is the outcome."""
        await self._unknown.read(ctx)
        inputs = self._given(ctx, self.pods.of(ctx.key), restore=await self._restores.look(ctx))
        refused, filling = self.volumes(ctx, inputs.spec.storage, inputs.status.autogrow, inputs.growth)
        inputs = replace(inputs, refused=refused, filling=filling)
        if inputs.live is not None:
            return inputs
        if early := not_begun(inputs, look_again=self._look_again):
            return end(ctx, early)
        if intent := self._restores.intend(ctx, inputs):
            if isinstance(intent, Wait):
                return end(ctx, held(inputs.status, intent))
            return intent
        outcome = None if inputs.formed else await self._takeover.still_runs(ctx)
        return outcome or inputs

    def children(self, ctx: Pass, inputs: Inputs) -> Outcome | None:
        """Apply what differs, and let the claims go or stay with the cluster."""
        if inputs.paused:
            return None
        return correct_children(ctx, inputs, self.claims.of(ctx.key), self.hindrances, self.refusals)

    async def snapshot(self, ctx: Pass, inputs: Inputs) -> Snapshot:
        """Ask the servers; from now on masters that miss a beat wake this cluster."""
        found = await read_snapshot(inputs, self._dial(inputs), ctx.now(), grace=self._grace)
        masters = {one.name: one.address for id in found.owned if (one := found.node_of(id)) and one.pod.ip}
        self._pulse.follow(ctx.key, masters, self._dial(inputs))
        missed = {name: self._pulse.missed(ctx.key, address) for name, address in masters.items()}
        found = replace(found, missed=missed)
        names = [one.name for one in suspects(found)]
        still = await standing_still(self.manager, ctx.key.namespace, names, container="redis")
        found = replace(found, still=still)
        return await self._measures.added(inputs, found, self._dial(inputs))

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `next_step`."""
        return next_step(snapshot)

    def report(self, ctx: Pass, inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
        """See `report`."""
        return report(inputs, snapshot, verdict, timeout=self._timeout, look_again=self._look_again)

    async def step(
        self, ctx: Pass, inputs: Inputs, snapshot: Snapshot, move: Move
    ) -> RedisClusterStatus | bool | None:
        """On the servers or in Kubernetes; what was to be recorded is in the status already."""
        if isinstance(move, Restore):
            await self._restores.load(ctx, inputs, snapshot, move)
            return None
        client, dial = self.manager.client.live, self._dial(inputs)
        return await carry_out(ctx, inputs, snapshot, move, client=client, dial=dial)

    def failed(self, ctx: Pass, snapshot: Snapshot, move: Move, message: str) -> RedisClusterStatus:
        """The failure is recorded, so that another process reports the same."""
        return step_failed(status_of(ctx.status), snapshot, move, message, now=ctx.now())[0]

    def _given(self, ctx: Pass, pods: Sequence[core.Pod], *, restore: Look | None = None) -> Inputs:
        return read_inputs(
            ctx.obj,
            self.around(ctx, references(ctx.obj), pods, keeps=Names(ctx.key.name).password),
            status_of(ctx.status),
            zones=zones_of(pods, self._nodes),
            unknown=tuple(self._unknown.of(ctx.key)),
            hindrance=self.hindrances.of(ctx),
            restore=restore,
            now=ctx.now(),
        )

    def _dial(self, inputs: Inputs) -> Dial:
        return Dial(fence=self.manager.fence.check, keys=logins(inputs.found.kept), tls=inputs.tls)

    def _users_of(self, one: core.ConfigMap) -> list[Key]:
        namespace = one.metadata.namespace or ""
        return users_of(one, self.manager.client.list(RedisCluster, namespace=namespace))


def register(
    manager: Manager,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    workers: int = 8,
    backups: bool = True,
    **how: float,
) -> None:
    """Put the operator onto a manager, for ``backups=False`` without the kinds of backups.

    A namespaced one does not read nodes, and so knows no zones.
    """
    actor = ClusterActor(manager, namespaces=namespaces, scope=scope, **how)
    workload.register(actor, namespaces=namespaces, workers=workers)
    if backups:
        kinds = (ClusterBackupActor, ClusterScheduleActor)
        register_backups(manager, *kinds, scope=scope, namespaces=namespaces, workers=workers)
