"""The actor of a RedisCluster: reads, lets the planner decide, and carries out one move.

Every decision is in `plan`, every object in `specs`, every effect on servers in `steps`, everything shown in `report`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from mooring.actor import Context, Move, Outcome, Planned, Related, Report, Verdict, Wait, run_actor
from mooring.kube.object import Key
from mooring.kube.objects import apps, core, networking, policy
from mooring.operators.backup.restore_rules import Restore
from mooring.operators.backup.restores import Look
from mooring.operators.redis import SCOPE_ANNOTATION
from mooring.operators.redis.backup.actor import register_backups
from mooring.operators.redis.cluster import events, passwords
from mooring.operators.redis.cluster.backup import ClusterBackupActor, ClusterScheduleActor
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
from mooring.operators.redis.cluster.names import MANAGED_SELECTOR, cluster_of
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.pulse import Pulse
from mooring.operators.redis.cluster.report import (
    Early,
    failure,
    held,
    not_begun,
    refusal,
    report,
    step_failed,
)
from mooring.operators.redis.cluster.restore import ClusterRestores
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.takeover import RENAME, Takeover
from mooring.operators.redis.cluster.topology import Node
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    status_of,
)
from mooring.operators.redis.cluster.validate import FOREGROUND
from mooring.operators.redis.cluster.writes import carry_out, mounted, record_notes
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.passwords import logins
from mooring.operators.workload.claims import own_claims, owned
from mooring.operators.workload.growing import Growing, record
from mooring.operators.workload.index import ClusterIndex, keys_of
from mooring.operators.workload.process import stands_still
from mooring.operators.workload.scope import Scoped
from mooring.operators.workload.surroundings import Surroundings
from mooring.operators.workload.unknown_fields import UnknownFields
from mooring.operators.workload.volumes import Refusals, grow
from mooring.runtime import Manager

__all__ = ["NAME", "ClusterActor", "register"]

NAME = "redis-cluster"
LOOK_AGAIN = 15.0
"""Seconds between two looks at a cluster that is in sync; pods' changes come at once."""
TIMEOUT = 20 * 60.0
"""Seconds in which a cluster is made or changed before it is called Failed; what runs is left as it is."""


Pass = Context[RedisCluster]


class ClusterActor(Planned[RedisCluster, Inputs, Snapshot]):
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
        self._manager = manager
        self.scoped = Scoped(manager, RedisCluster, operator=NAME, scope=scope, annotation=SCOPE_ANNOTATION)
        self._timeout, self._look_again, self._grace = timedelta(seconds=timeout), look_again, grace
        of_cluster = partial(keys_of, cluster_of=cluster_of)
        index: Any = partial(ClusterIndex, manager, selector=MANAGED_SELECTOR, namespaces=namespaces)
        self._pods = index(core.Pod, cluster_of=cluster_of)
        self._claims = index(core.PersistentVolumeClaim, cluster_of=cluster_of)
        self._nodes = manager.informers.of(core.Node) if scope != "namespaced" else None
        self._unknown = UnknownFields(manager, RedisClusterSpec)
        self.wake: Callable[[Key], None] = lambda key: None
        """Brings the next pass over a cluster forward."""
        self.pulse = Pulse(lambda key: self.wake(key))
        self._refusals = Refusals()
        self.growing = Growing(
            manager, operator=NAME, container="redis", path="/data", wake=lambda key: self.wake(key)
        )
        self._measures = Measures(manager.client.live, look_again=look_again, publish=publish)
        self._restores = ClusterRestores(manager, NAME, namespaces=namespaces)
        self._takeover = Takeover(manager, self._given, self.snapshot, namespaced=bool(namespaces))
        self.related = (
            Related(core.Pod, of_cluster, label_selector=MANAGED_SELECTOR),
            Related(core.PersistentVolumeClaim, of_cluster, label_selector=MANAGED_SELECTOR),
            Related(core.ConfigMap, self._users_of),
            *self._restores.related,
        )

    def manages(self, obj: RedisCluster) -> bool:
        """By scope; what another process manages is left alone."""
        ours = self.scoped.manages(obj)
        if not ours:
            self._stop_measuring(Key(obj.metadata.namespace or "", obj.metadata.name or ""))
        return ours

    def _stop_measuring(self, key: Key) -> None:
        self.pulse.forget(key)
        self._measures.forget(key)
        self.growing.forget(key)

    def forget(self, key: Key) -> None:
        """The cluster was deleted."""
        self._unknown.forget(key)
        self._stop_measuring(key)
        self._refusals.clear(key)

    def deleted(self, obj: RedisCluster) -> None:
        """Record what becomes of its objects and its data."""
        goes = ((obj.spec or RedisClusterSpec()).finalizers or "").lower() == FOREGROUND
        record_notes(self._manager.events, obj, events.of_deletion(claims_go=goes))

    def refused(self, ctx: Pass, why: Wait) -> None:
        """See `refusal`."""
        self._end(ctx, refusal(status_of(ctx.status), why))

    # --- the rooms of a pass -------------------------------------------------------------------------------

    async def precede(self, ctx: Pass) -> Outcome | None:
        """A cluster that HarmonyCloud's operator made is left to it, or taken over."""
        for name in secret_names(ctx.obj):
            await ctx.children.read(core.Secret, name)
        live = ctx.children.find(apps.StatefulSet, ctx.key.name)
        return await self._takeover.precede(ctx, live, lambda: len(self._pods.of(ctx.key))) if live else None

    async def inputs(self, ctx: Pass) -> Inputs | Outcome:
        """Everything the declaration refers to; before there is anything, a wrong declaration is the outcome."""
        await self._unknown.read(ctx)
        inputs = self._given(ctx, self._pods.of(ctx.key), restore=await self._restores.look(ctx))
        refused = self._refusals.of(ctx.key, inputs.growth.volumes)
        storage = inputs.spec.storage
        spec = storage.autogrow if storage is not None else None
        filling = self.growing.decide(ctx, spec, inputs.status.autogrow, inputs.growth)
        inputs = replace(inputs, refused=refused, filling=filling)
        if inputs.live is not None:
            return inputs
        if early := not_begun(inputs, look_again=self._look_again):
            return self._end(ctx, early)
        if intent := self._restores.intend(ctx, inputs):
            if isinstance(intent, Wait):
                return self._end(ctx, held(inputs.status, intent))
            return intent
        outcome = None if inputs.formed else await self._takeover.still_runs(ctx)
        return outcome or inputs

    def children(self, ctx: Pass, inputs: Inputs) -> Outcome | None:
        """Apply what differs, and let the claims go or stay with the cluster."""
        if inputs.paused:
            return None
        drift = ctx.children.diff(inputs.specs.objects(), keep=mounted(inputs))
        if drift.foreign:
            message = f"{drift.taken}; {RENAME}"
            return self._end(ctx, failure(inputs.status, message, reason="NameTaken", after=30.0))
        if drift:
            if inputs.live is None:
                nodes = inputs.orders.replicas or inputs.spec.replicas or 0
                record_notes(ctx.events, ctx.obj, events.of_beginning(nodes=nodes, formed=inputs.formed))
            return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift))
        goes = inputs.claims_go
        wrong = [claim for claim in self._claims.of(ctx.key) if owned(ctx.obj, claim) is not goes]
        if wrong:
            return ctx.act("OwnClaims", own_claims, ctx, wrong, goes)
        if inputs.filling.due:
            return ctx.act("RecordVolumes", record, ctx, inputs.status, inputs.filling)
        small = self._refusals.due(ctx.key, inputs.growth.volumes, ctx.now())
        return ctx.act("GrowVolumes", grow, ctx, small, self._refusals) if small else None

    async def snapshot(self, ctx: Pass, inputs: Inputs) -> Snapshot:
        """Ask the servers; from now on masters that miss a beat wake this cluster."""
        found = await read_snapshot(inputs, self._dial(inputs), ctx.now(), grace=self._grace)
        masters = {one.name: one.address for id in found.owned if (one := found.node_of(id)) and one.pod.ip}
        self.pulse.follow(ctx.key, masters, self._dial(inputs))
        missed = {name: self.pulse.missed(ctx.key, address) for name, address in masters.items()}
        found = replace(found, missed=missed)
        found = replace(found, still=await self._still(ctx.key.namespace, suspects(found)))
        return await self._measures.added(inputs, found, self._dial(inputs))

    async def _still(self, namespace: str, nodes: Sequence[Node]) -> frozenset[str]:
        """Whose processes do nothing, as far as their own nodes tell."""
        sockets = self._manager.sockets
        if sockets is None or not nodes:
            return frozenset()
        self._manager.fence.check()
        looks = (stands_still(sockets, namespace, one.name, container="redis") for one in nodes)
        still = zip(nodes, await asyncio.gather(*looks), strict=True)
        return frozenset(one.name for one, hangs in still if hangs)

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
        client, dial = self._manager.client.live, self._dial(inputs)
        return await carry_out(ctx, inputs, snapshot, move, client=client, dial=dial)

    def failed(self, ctx: Pass, snapshot: Snapshot, move: Move, message: str) -> RedisClusterStatus:
        """The failure is recorded, so that another process reports the same."""
        return step_failed(status_of(ctx.status), snapshot, move, message, now=ctx.now())[0]

    def _given(self, ctx: Pass, pods: Sequence[core.Pod], *, restore: Look | None = None) -> Inputs:
        single = (ctx.children.find(kind, name) for kind, name in references(ctx.obj))
        zones = zones_of(pods, self._nodes)
        unknown = tuple(self._unknown.of(ctx.key))
        return read_inputs(
            ctx.obj,
            Surroundings([*pods, *self._claims.of(ctx.key), *single]),
            status_of(ctx.status),
            zones=zones,
            unknown=unknown,
            restore=restore,
            now=ctx.now(),
        )

    def _dial(self, inputs: Inputs) -> Dial:
        return Dial(fence=self._manager.fence.check, keys=logins(inputs.found.kept), tls=inputs.tls)

    def _users_of(self, one: core.ConfigMap) -> list[Key]:
        namespace = one.metadata.namespace or ""
        return users_of(one, self._manager.client.list(RedisCluster, namespace=namespace))

    def _end(self, ctx: Pass, early: Early) -> Outcome:
        record_notes(ctx.events, ctx.obj, early.notes)
        ctx.show(early.status)
        return early.outcome


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
    run_actor(actor, manager, namespaces=namespaces, workers=workers)
    controller: Any = next(one for one in manager.controllers if one.name == NAME)
    actor.wake = controller.enqueue
    manager.serve(f"{NAME} pulse", actor.pulse.run)
    manager.serve(f"{NAME} volumes", actor.growing.run)
    actor.scoped.serve()
    if not backups:
        return
    register_backups(
        manager,
        ClusterBackupActor(manager, scope=scope, namespaces=namespaces),
        ClusterScheduleActor(manager, scope=scope, namespaces=namespaces),
        namespaces=namespaces,
        workers=workers,
    )
