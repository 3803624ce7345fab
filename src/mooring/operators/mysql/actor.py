"""The actor: watches, and the rooms of a pass put together.

Every decision is in `plan`, every object in `specs`, every effect in `steps` and `effects`, every text in `status` and
`events`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from mooring.actor import Context, Move, Outcome, Related, Report, Verdict
from mooring.kube.errors import Conflict
from mooring.kube.object import key_of
from mooring.kube.objects import apps, batch, core, policy
from mooring.operators.mysql import compatible, effects
from mooring.operators.mysql.access import turned
from mooring.operators.mysql.archive.follow import Archives
from mooring.operators.mysql.archive.workload import is_archiver
from mooring.operators.mysql.backup.actor import register_backups
from mooring.operators.mysql.backup.restore import MySQLRestores
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.operators.mysql.inputs import DEPENDENCIES, Inputs, read_inputs, references, secret_names
from mooring.operators.mysql.metrics import Metrics
from mooring.operators.mysql.moves import DatabaseMove, Follow, Record, Tune
from mooring.operators.mysql.names import (
    COMPONENT,
    MANAGED_SELECTOR,
    OPERATOR_USER,
    Names,
    cluster_of,
    selector,
)
from mooring.operators.mysql.nodes import cordoned_anew, nodes_of
from mooring.operators.mysql.plan import decide
from mooring.operators.mysql.servers import Databases, Servers
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.status import after_failure, after_step, first_of, report, roots_of
from mooring.operators.mysql.trial import is_trial, with_trial
from mooring.operators.mysql.tuning import after as tuned
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus
from mooring.operators.workload import actor as workload
from mooring.operators.workload.actor import DatabaseActor
from mooring.operators.workload.cpu import CPUReader
from mooring.operators.workload.ownership import SizeOwners
from mooring.runtime import Manager

__all__ = ["NAME", "CompatibleActor", "MySQLActor", "register"]

NAME = "mysql"


LATE: Final = 0.05
"""Seconds until a cache that is late is looked at again."""


class MySQLActor(DatabaseActor[MySQLCluster, Inputs, Snapshot]):
    """Observes one MySQLCluster and acts upon it."""

    kind = MySQLCluster
    name = NAME
    owns = (core.Service, core.ConfigMap, apps.StatefulSet, apps.Deployment, policy.PodDisruptionBudget)
    owns_by_metadata = (core.Secret,)
    dependencies = DEPENDENCIES
    selector = MANAGED_SELECTOR
    cluster_of = staticmethod(cluster_of)
    container = COMPONENT
    path = "/var/lib/mysql"
    kept_entry = ACCOUNTS[OPERATOR_USER]

    def __init__(
        self,
        manager: Manager,
        *,
        scope: str = "all",
        namespaces: Sequence[str] = (),
        databases: Databases | None = None,
    ) -> None:
        super().__init__(manager, scope=scope, namespaces=namespaces)
        self._trials = self.indexed(batch.Job)
        servers = databases or Servers(manager.fence.check, lambda key: self.wake(key))
        self.databases = self.measuring(servers)
        self._metrics = self.measuring(Metrics(manager))
        self._archives = self.measuring(Archives(manager, lambda key: self.wake(key)))
        self._owners = self.measuring(SizeOwners(manager.client.live, "size"))
        self._cpu = self.measuring(CPUReader(manager.client.live))
        self._nodes = manager.informers.of(core.Node) if scope != "namespaced" else None
        self._restores = MySQLRestores(manager, self.name, namespaces=namespaces)
        self.related += self._restores.related
        self.serves |= {"servers": self.databases.serve, "archives": self._archives.serve}
        if self._nodes is not None and not namespaces:
            every = partial(manager.client.list, self.kind)
            self.related.append(
                Related(core.Node, lambda _: [key_of(one) for one in every()], changed=cordoned_anew)
            )

    async def inputs(self, ctx: Context[MySQLCluster]) -> Inputs | Outcome:
        """The declaration and the objects around it, from the caches; the Secrets it names are read."""
        await self.read_secrets(ctx, secret_names(ctx.obj))
        await self._restores.read(ctx)
        pods = self._servers_of(ctx)
        keeps = Names(ctx.key.name).credentials_copy
        around = self.around(ctx, references(ctx.obj), pods, *nodes_of(pods, self._nodes), keeps=keeps)
        inputs = read_inputs(ctx.obj, around, now=ctx.now(), hindrance=self.hindrances.of(ctx))
        if not isinstance(inputs, Inputs):
            return inputs
        storage = ctx.obj.spec.storage if ctx.obj.spec is not None else None
        inputs = inputs.measured(*self.volumes(ctx, storage, inputs.status.autogrow, inputs.growth))
        return with_trial(inputs, self._trials.of(ctx.key), self.pods.of(ctx.key), now=ctx.now())

    def children(self, ctx: Context[MySQLCluster], inputs: Inputs) -> Outcome | None:
        """The step that brings the child objects in line, unless the cluster is paused."""
        if inputs.wanted.paused:
            return None
        return self._restores.observe(ctx, inputs) or effects.correct_children(
            ctx, inputs, self.hindrances, self._archives.hindrances, self.refusals
        )

    async def snapshot(self, ctx: Context[MySQLCluster], inputs: Inputs) -> Snapshot:
        """Ask every server; raises `Conflict` when the status that decisions rest on was written meanwhile.

        Asking takes seconds where servers hang. What is decided is written onto the newest status in the cache, so it must
        not rest on an older one: that of a process that led before, and was held up.
        """
        snapshot = await self._measured(ctx, await self.databases.look(ctx.key, inputs, now=ctx.now))
        live = ctx.client.find(self.kind, ctx.key.name, namespace=ctx.key.namespace)
        if live is not None and roots_of(live.status or MySQLClusterStatus()) != roots_of(snapshot.status):
            message = f"the status of {ctx.key} was written while its servers were asked"
            raise Conflict(message, status=409, reason="Conflict")
        return snapshot

    async def _measured(self, ctx: Context[MySQLCluster], snapshot: Snapshot) -> Snapshot:
        """With the load, where that decides about the size."""
        if (scaling := snapshot.wanted.scaling) is None:
            return snapshot
        observed = replace(snapshot.observed, size_owner=await self._owners.of(ctx.obj))
        if observed.reads is not None and "CPU" in scaling.targets:
            pods, chosen = self._servers_of(ctx), selector(ctx.key.name)
            cpu = await self._cpu.of(ctx.key, pods, selector=chosen, container=COMPONENT, now=ctx.now())
            observed = replace(observed, cpu=cpu)
        return replace(snapshot, observed=observed)

    def _servers_of(self, ctx: Context[MySQLCluster]) -> list[core.Pod]:
        return [one for one in self.pods.of(ctx.key) if not (is_trial(one) or is_archiver(one))]

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
        status, notes = self._archives.added(
            made.status,
            ctx.obj,
            self.pods.of(ctx.key),
            hindrance=self._archives.hindrances.of(ctx),
            now=snapshot.now,
        )
        return replace(made, status=status, notes=[*made.notes, *notes])

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
        workload.register(actor, namespaces=namespaces, workers=workers)
    if backups:
        register_backups(manager, scope=scope, namespaces=namespaces, workers=workers)
