"""The actor: watches, and the rooms of a pass put together.

Every decision is in `plan`, every object in `specs`, every effect in `steps` and `effects`, every text in `status` and
`events`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from msgspec import structs

from mooring.actor import Context, Move, Outcome, Planned, Related, Report, Verdict, run_actor
from mooring.cache.store import Transition
from mooring.kube.errors import Conflict
from mooring.kube.object import Key, key_of
from mooring.kube.objects import apps, batch, core, policy
from mooring.operators.mysql import compatible, effects
from mooring.operators.mysql.access import turned
from mooring.operators.mysql.archive.poll import Archivers
from mooring.operators.mysql.archive.shown import hindered, news, shown, with_condition
from mooring.operators.mysql.archive.workload import is_archiver, root_of
from mooring.operators.mysql.backup.actor import register_backups
from mooring.operators.mysql.backup.restore import MySQLRestores
from mooring.operators.mysql.inputs import DEPENDENCIES, Inputs, read_inputs, references, secret_names
from mooring.operators.mysql.metrics import Metrics
from mooring.operators.mysql.moves import DatabaseMove, Follow, Record, Tune
from mooring.operators.mysql.names import COMPONENT, MANAGED_SELECTOR, cluster_of, selector
from mooring.operators.mysql.plan import decide
from mooring.operators.mysql.servers import Databases, Servers
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.status import after_failure, after_step, first_of, report, roots_of
from mooring.operators.mysql.trial import is_trial, with_trial
from mooring.operators.mysql.tuning import after as tuned
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus
from mooring.operators.workload.cpu import CPU, CPUReader
from mooring.operators.workload.growing import Growing
from mooring.operators.workload.index import ClusterIndex, keys_of
from mooring.operators.workload.ownership import SizeOwners
from mooring.operators.workload.scope import Scoped
from mooring.operators.workload.surroundings import Surroundings
from mooring.operators.workload.volumes import Refusals
from mooring.runtime import Manager

__all__ = ["NAME", "CompatibleActor", "MySQLActor", "register"]

NAME = "mysql"


LATE: Final = 0.05
"""Seconds until a cache that is late is looked at again."""


class MySQLActor(Planned[MySQLCluster, Inputs, Snapshot]):
    """Observes one MySQLCluster and acts upon it."""

    kind = MySQLCluster
    name = NAME
    owns = (core.Service, core.ConfigMap, apps.StatefulSet, apps.Deployment, policy.PodDisruptionBudget)
    owns_by_metadata = (core.Secret,)
    dependencies = DEPENDENCIES

    def __init__(
        self,
        manager: Manager,
        *,
        scope: str = "all",
        namespaces: Sequence[str] = (),
        databases: Databases | None = None,
    ) -> None:
        self.scoped = Scoped(manager, self.kind, operator=NAME, scope=scope)
        index = partial(
            ClusterIndex, manager, selector=MANAGED_SELECTOR, cluster_of=cluster_of, namespaces=namespaces
        )
        self._pods: ClusterIndex[core.Pod] = index(core.Pod)
        self._claims: ClusterIndex[core.PersistentVolumeClaim] = index(core.PersistentVolumeClaim)
        self._trials: ClusterIndex[batch.Job] = index(batch.Job)
        self.wake: Callable[[Key], None] = lambda key: None
        """Brings the next pass over a cluster forward."""
        self.databases = databases or Servers(manager.fence.check, lambda key: self.wake(key))
        self._metrics = Metrics(manager)
        self.archivers = Archivers(manager, lambda key: self.wake(key))
        self._hindered = effects.Hindered()
        self._owners = SizeOwners(manager.client.live, "size")
        self._cpu = CPUReader(manager.client.live)
        self._refusals = Refusals()
        self.growing = Growing(
            manager,
            operator=self.name,
            container="mysql",
            path="/var/lib/mysql",
            wake=lambda key: self.wake(key),
        )
        self._nodes = manager.informers.of(core.Node) if scope != "namespaced" else None
        self.related = [
            Related(kind, partial(keys_of, cluster_of=cluster_of), label_selector=MANAGED_SELECTOR)
            for kind in (core.Pod, core.PersistentVolumeClaim, batch.Job)
        ]
        self._restores = MySQLRestores(manager, self.name, namespaces=namespaces)
        self.related += self._restores.related
        if self._nodes is not None and not namespaces:
            clusters = partial(manager.client.list, self.kind)
            on_node = Related(
                core.Node, lambda _: [key_of(one) for one in clusters()], changed=_is_cordoned_anew
            )
            self.related.append(on_node)

    def manages(self, obj: MySQLCluster) -> bool:
        """By scope; what another process manages is left alone."""
        ours = self.scoped.manages(obj)
        if not ours:
            self.forget(Key(obj.metadata.namespace or "", obj.metadata.name or ""))
        return ours

    def forget(self, key: Key) -> None:
        """Drop the metrics and the pulse."""
        self.databases.forget(key)
        self.archivers.forget(key)
        self._hindered.clear(key)
        self._owners.forget(key)
        self._cpu.forget(key)
        self._refusals.clear(key)
        self.growing.forget(key)
        self._metrics.forget(key)

    async def inputs(self, ctx: Context[MySQLCluster]) -> Inputs | Outcome:
        """The declaration and the objects around it, from the caches; the Secrets it names are read."""
        for name in secret_names(ctx.obj):
            await ctx.children.read(core.Secret, name)
        await self._restores.read(ctx)
        found = [ctx.children.find(kind, name) for kind, name in references(ctx.obj)]
        seen = self._pods.of(ctx.key)
        pods = [one for one in seen if not (is_trial(one) or is_archiver(one))]
        around = [*found, *pods, *self._claims.of(ctx.key), *self._nodes_of(pods)]
        inputs = read_inputs(ctx.obj, Surroundings(around), now=ctx.now())
        if isinstance(inputs, Inputs):
            refused = self._refusals.of(ctx.key, inputs.growth.volumes)
            storage = ctx.obj.spec.storage if ctx.obj.spec is not None else None
            spec = storage.autogrow if storage is not None else None
            filling = self.growing.decide(ctx, spec, inputs.status.autogrow, inputs.growth)
            inputs = inputs.measured(refused, filling)
            return with_trial(inputs, self._trials.of(ctx.key), seen, now=ctx.now())
        return inputs

    def _nodes_of(self, pods: Sequence[core.Pod]) -> list[core.Node | None]:
        names = sorted({(pod.spec.node_name if pod.spec else None) or "" for pod in pods} - {""})
        return [self._nodes.get(Key("", name)) for name in names] if self._nodes is not None else []

    def children(self, ctx: Context[MySQLCluster], inputs: Inputs) -> Outcome | None:
        """The step that brings the child objects in line, unless the cluster is paused."""
        if inputs.wanted.paused:
            return None
        return self._restores.observe(ctx, inputs) or effects.correct_children(
            ctx, inputs, self._hindered, self._refusals
        )

    async def snapshot(self, ctx: Context[MySQLCluster], inputs: Inputs) -> Snapshot:
        """Ask every server; raises `Conflict` when the status that decisions rest on was written meanwhile.

        Asking takes seconds where servers hang. What is decided is written onto the newest status in the cache, so it must
        not rest on an older one: that of a process that led before, and was held up.
        """
        snapshot = await self.databases.look(ctx.key, inputs, now=ctx.now)
        if (scaling := snapshot.wanted.scaling) is not None:
            observed = replace(snapshot.observed, size_owner=await self._owners.of(ctx.obj))
            if observed.reads is not None and "CPU" in scaling.targets:
                observed = replace(observed, cpu=await self._cpu_of(ctx))
            snapshot = replace(snapshot, observed=observed)
        live = ctx.client.find(self.kind, ctx.key.name, namespace=ctx.key.namespace)
        if live is not None and roots_of(live.status or MySQLClusterStatus()) != roots_of(snapshot.status):
            message = f"the status of {ctx.key} was written while its servers were asked"
            raise Conflict(message, status=409, reason="Conflict")
        return snapshot

    async def _cpu_of(self, ctx: Context[MySQLCluster]) -> CPU:
        pods = [one for one in self._pods.of(ctx.key) if not (is_trial(one) or is_archiver(one))]
        chosen = selector(ctx.key.name)
        return await self._cpu.of(ctx.key, pods, selector=chosen, container=COMPONENT, now=ctx.now())

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `plan`."""
        return decide(snapshot)

    def report(
        self, ctx: Context[MySQLCluster], inputs: Inputs, snapshot: Snapshot, verdict: Verdict
    ) -> Report:
        """See `status`."""
        made = report(inputs, snapshot, verdict)
        assert isinstance(made.status, MySQLClusterStatus)
        self._metrics.show(ctx.key, made.status, ready=bool(made.ready.status))
        before = made.status.archive
        status = self._with_archive(ctx, made.status, snapshot.now)
        return replace(made, status=status, notes=[*made.notes, *news(before, status.archive)])

    def _with_archive(
        self, ctx: Context[MySQLCluster], status: MySQLClusterStatus, now: datetime
    ) -> MySQLClusterStatus:
        """The status with what the archiver of the cluster said last."""
        archive = None
        if ctx.obj.spec is not None and ctx.obj.spec.archive is not None:
            recorded = (
                status.archive.last_recoverable if status.archive else None
            ) or datetime.fromisoformat(ctx.obj.metadata.creation_timestamp or "")
            heard = self.archivers.follow(ctx.key, self._archiver(ctx.key), recorded=recorded)
            archive = shown(status.archive, heard, prefix=root_of(ctx.obj), now=now)
            if why := self._hindered.why(ctx.key):
                archive = hindered(status.archive, why, prefix=root_of(ctx.obj), now=now)
        else:
            self.archivers.forget(ctx.key)
        conditions = with_condition(status.conditions or (), archive, now=now)
        return structs.replace(status, archive=archive, conditions=conditions)

    def _archiver(self, key: Key) -> str:
        """Address of the pod that archives; "" while there is none."""
        pods = [one for one in self._pods.of(key) if is_archiver(one) and not one.metadata.deletion_timestamp]
        newest = max(pods, key=lambda one: one.metadata.creation_timestamp or "", default=None)
        return (newest.status.pod_ip if newest is not None and newest.status is not None else None) or ""

    async def step(
        self, ctx: Context[MySQLCluster], inputs: Inputs, snapshot: Snapshot, move: Move
    ) -> MySQLClusterStatus | bool:
        """Carry out a move on the servers, or on Kubernetes."""
        status = _status(ctx)
        if isinstance(move, Record):  # it is written already
            return status
        if first_of(move) is None and not await self._is_recorded(ctx, snapshot):
            await ctx.clock.sleep(LATE)  # a cache is late: what was decided may be of an earlier term
            return False
        if not isinstance(move, DatabaseMove):
            return after_step(await effects.carry_out(ctx, inputs, move, status), None)
        if isinstance(move, Follow) and move.again:
            found = replace(inputs.found, credentials=inputs.credentials.published())
            inputs, status = replace(inputs, found=found), turned(status, move)
        done = await self.databases.carry_out(inputs, move)
        await ctx.did(f"{move.name}: {move.why}")
        if isinstance(move, Tune):
            status = tuned(status, move)
        return False if done.partial else after_step(status, done.config)

    async def _is_recorded(self, ctx: Context[MySQLCluster], snapshot: Snapshot) -> bool:
        """Whether the API server still has the status that a move without a record of its own was decided from."""
        live = await ctx.client.live.get(self.kind, ctx.key.name, namespace=ctx.key.namespace)
        return roots_of(live.status or MySQLClusterStatus()) == roots_of(snapshot.status)

    def failed(
        self, ctx: Context[MySQLCluster], snapshot: Snapshot, move: Move, message: str
    ) -> MySQLClusterStatus | None:
        """The failure is recorded, so that the next process waits as long as this one."""
        return after_failure(snapshot, move, message, _status(ctx))


class CompatibleActor(MySQLActor):
    """The same for the tutorial's kind."""

    kind = compatible.MySQLCluster
    name = f"{NAME}-compatible"


def _is_cordoned_anew(change: Transition[core.Node]) -> bool:
    """A node takes no more pods, or takes them again."""
    before, now = (bool(one and one.spec and one.spec.unschedulable) for one in (change.old, change.new))
    return before is not now


def _status(ctx: Context[MySQLCluster]) -> MySQLClusterStatus:
    return ctx.status if isinstance(ctx.status, MySQLClusterStatus) else MySQLClusterStatus()


def register(
    manager: Manager,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    workers: int = 8,
    backups: bool = True,
    databases: Databases | None = None,
) -> None:
    """Put the operator onto a manager: a controller for each of its kinds, but for ``backups=False`` those of backups.

    ``databases``: a model of the servers.
    """
    for kind in (MySQLActor, CompatibleActor):
        actor = kind(manager, scope=scope, namespaces=namespaces, databases=databases)
        _register(actor, manager, namespaces, workers, scope)
    if backups:
        register_backups(manager, scope=scope, namespaces=namespaces, workers=workers)


def _register(
    actor: MySQLActor, manager: Manager, namespaces: Sequence[str], workers: int, scope: str
) -> None:
    run_actor(actor, manager, namespaces=namespaces, workers=workers)
    controller: Any = next(one for one in manager.controllers if one.name == actor.name)
    actor.wake = controller.enqueue
    manager.serve(f"{actor.name} servers", actor.databases.serve)
    manager.serve(f"{actor.name} archives", actor.archivers.serve)
    manager.serve(f"{actor.name} volumes", actor.growing.run)
    if scope == "all":
        manager.serve(f"{actor.name} scopes", lambda: actor.scoped.take_up(controller.enqueue))
