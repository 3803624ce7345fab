"""The actor: watches, and the rooms of a pass put together.

Every decision is in `plan`, every object in `specs`, every effect in `steps` and `effects`, every text in `status`,
`legacy` and `events`.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import replace

from mooring.actor import Context, Move, Outcome, Report, Terminal, Verdict, Wait
from mooring.kube.objects import apps, core, networking, policy
from mooring.operators.redis import SCOPE_ANNOTATION
from mooring.operators.redis.backup.actor import register_backups
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.passwords.moves import PasswordMove, PublishPassword, StagePassword
from mooring.operators.redis.sentinel import effects
from mooring.operators.redis.sentinel.backup import SentinelBackupActor, SentinelScheduleActor
from mooring.operators.redis.sentinel.events import loses_all, refusal
from mooring.operators.redis.sentinel.inputs import (
    DEPENDENCIES,
    Inputs,
    read_inputs,
    read_snapshot,
    references,
    secret_names,
)
from mooring.operators.redis.sentinel.listen import Listener
from mooring.operators.redis.sentinel.metrics import Metrics
from mooring.operators.redis.sentinel.moves import DatabaseMove, Done, Record, UsersMove
from mooring.operators.redis.sentinel.names import MANAGED_SELECTOR, Names, cluster_of
from mooring.operators.redis.sentinel.plan import decide
from mooring.operators.redis.sentinel.restore import SentinelRestores
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.status import after_step, after_users, report
from mooring.operators.redis.sentinel.steps import Steps
from mooring.operators.redis.sentinel.takeover import Predecessor, left_to
from mooring.operators.redis.sentinel.topology import Topology
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterSpec, RedisClusterStatus, spec_of
from mooring.operators.workload import actor as workload
from mooring.operators.workload.actor import DatabaseActor
from mooring.operators.workload.unknown_fields import UnknownFields
from mooring.runtime import Manager

__all__ = ["NAME", "SentinelActor", "register"]

NAME = "redis-sentinel"


class SentinelActor(DatabaseActor[RedisCluster, Inputs, Snapshot]):
    """Observes one RedisCluster and acts upon it."""

    kind = RedisCluster
    name = NAME
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

    def __init__(self, manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = ()) -> None:
        super().__init__(manager, scope=scope, namespaces=namespaces)
        self._unknown = self.measuring(UnknownFields(manager, RedisClusterSpec))
        self._predecessor = Predecessor(manager.client.live, manager.clock, namespaced=bool(namespaces))
        self._listener = self.measuring(Listener(lambda key: self.wake(key), self._dial))
        self._metrics = self.measuring(Metrics(manager))
        self._restores = SentinelRestores(manager, self.name, namespaces=namespaces)
        self.related += self._restores.related
        self.serves["listener"] = self._listener.run

    # --- one pass ------------------------------------------------------------------------------------------

    async def precede(self, ctx: Context[RedisCluster]) -> Outcome | None:
        """Nothing is written that UCloud's operator may write as well, its own conditions included."""
        left = await left_to(self._predecessor, ctx)
        if left is not None:
            self.forget(ctx.key)
        return left

    async def inputs(self, ctx: Context[RedisCluster]) -> Inputs | Outcome:
        """The declaration and the objects around it, from the caches; the Secrets it names are read."""
        await self.read_secrets(ctx, secret_names(ctx.obj))
        keeps = Names(ctx.key.name).password
        around = self.around(ctx, references(ctx.obj), self.pods.of(ctx.key), keeps=keeps)
        inputs = read_inputs(ctx.obj, around, now=ctx.now(), hindrance=self.hindrances.of(ctx))
        await self._restores.read(ctx)
        if not isinstance(inputs, Inputs):
            return self._refuse(ctx, inputs)
        storage, status = spec_of(ctx.obj).storage, inputs.status.autogrow
        refused, filling = self.volumes(ctx, storage, status, inputs.growth)
        return replace(inputs, refused=refused, filling=filling)

    def children(self, ctx: Context[RedisCluster], inputs: Inputs) -> Outcome | None:
        """The step that brings the child objects in line, unless the cluster is paused."""
        if inputs.wanted.paused:
            return None
        if (step := self._restores.observe(ctx, inputs)) is not None:
            if isinstance(step, Terminal) or (isinstance(step, Wait) and step.stalled):
                return self._refuse(ctx, step)
            return step
        step = effects.correct_children(ctx, inputs, self.hindrances, self.refusals)
        return self._refuse(ctx, step) if isinstance(step, Wait) else step

    async def snapshot(self, ctx: Context[RedisCluster], inputs: Inputs) -> Snapshot:
        """Ask servers and sentinels; from now on the sentinels' events wake this cluster."""
        await self._unknown.read(ctx)
        snapshot = await read_snapshot(inputs, self._dial(inputs.tls), now=ctx.now)
        self._listen(ctx, snapshot.topology, inputs.tls)
        return snapshot

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `plan`."""
        return decide(snapshot)

    def report(
        self, ctx: Context[RedisCluster], inputs: Inputs, snapshot: Snapshot, verdict: Verdict
    ) -> Report:
        """See `status`."""
        service = ctx.children.find(core.Service, inputs.specs.names.sentinel)
        entry = service.spec.cluster_ip if service and service.spec else None
        made = report(inputs, snapshot, verdict, entry=entry, unknown=self._unknown.of(ctx.key))
        self._metrics.show(ctx.key, healthy=bool(made.ready.status))
        return made

    async def step(
        self, ctx: Context[RedisCluster], inputs: Inputs, snapshot: Snapshot, move: Move
    ) -> RedisClusterStatus:
        """Carry out a move on the databases, on Kubernetes, or both: sentinels take a password before it is published."""
        status = _status(ctx)
        if isinstance(move, Record):  # it is written already
            if loses_all(move):
                self._metrics.count_loss(ctx.key)
            return status
        found, done = inputs.found, Done()
        if isinstance(move, DatabaseMove | UsersMove | PasswordMove):
            steps = Steps(self._dial(inputs.tls), kept=found.kept, access=found.access, sleep=ctx.clock.sleep)
            done = await steps.run(move)
            status = after_step(status, move, done, now=ctx.now())
            if isinstance(move, UsersMove):
                status = after_users(status, snapshot, move, done, now=ctx.now())
            elif not isinstance(move, StagePassword | PublishPassword):
                return status
        return await effects.carry_out(ctx, inputs, move, status, done=done.users)

    def refused(self, ctx: Context[RedisCluster], why: Wait | Terminal) -> None:
        """UCloud's newest condition names what is refused, here or by the API server."""
        status, note = refusal(_status(ctx), why, now=ctx.now())
        ctx.show(status)
        if note is not None:
            ctx.events.warning(ctx.obj, note.reason, note.message)

    def _refuse(self, ctx: Context[RedisCluster], why: Wait | Terminal) -> Outcome:
        self._metrics.show(ctx.key, healthy=False)
        self.refused(ctx, why)
        return why

    def _dial(self, tls: ssl.SSLContext | None = None) -> Dial:
        return Dial(fence=self.manager.fence.check, tls=tls)

    def _listen(self, ctx: Context[RedisCluster], topology: Topology, tls: ssl.SSLContext | None) -> None:
        running = [one.address for one in topology.watchers if one.pod.ip and one.pod.running]
        self._listener.listen(ctx.key, running, tls=tls)


def _status(ctx: Context[RedisCluster]) -> RedisClusterStatus:
    return ctx.status if isinstance(ctx.status, RedisClusterStatus) else RedisClusterStatus()


def register(
    manager: Manager,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    workers: int = 8,
    backups: bool = True,
) -> None:
    """Put the operator onto a manager, for ``backups=False`` without the kinds of backups."""
    actor = SentinelActor(manager, scope=scope, namespaces=namespaces)
    workload.register(actor, namespaces=namespaces, workers=workers)
    if backups:
        kinds = (SentinelBackupActor, SentinelScheduleActor)
        register_backups(manager, *kinds, scope=scope, namespaces=namespaces, workers=workers)
