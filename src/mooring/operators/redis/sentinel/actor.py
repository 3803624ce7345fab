"""The actor: watches, and the rooms of a pass put together.

Every decision is in `plan`, every object in `specs`, every effect in `steps` and `effects`, every text in `status`,
`legacy` and `events`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from msgspec.structs import replace

from mooring.actor import Context, Move, Outcome, Planned, Related, Report, Terminal, Verdict, Wait, run_actor
from mooring.kube.object import Key, Object, ObjectMetadata, metadata_of
from mooring.kube.objects import apps, core, policy
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.dial import Address, Dial
from mooring.operators.redis.sentinel import effects, legacy
from mooring.operators.redis.sentinel.events import head_note, loses_all
from mooring.operators.redis.sentinel.inputs import (
    Inputs,
    read_inputs,
    read_snapshot,
    references,
    secret_names,
)
from mooring.operators.redis.sentinel.listen import Listener
from mooring.operators.redis.sentinel.moves import DatabaseMove, PublishPassword, Record
from mooring.operators.redis.sentinel.names import MANAGED_SELECTOR, cluster_of
from mooring.operators.redis.sentinel.plan import decide
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.status import after_step, report
from mooring.operators.redis.sentinel.steps import Steps
from mooring.operators.redis.sentinel.takeover import Predecessor, left_to
from mooring.operators.redis.sentinel.topology import SENTINEL_PORT, Topology
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterSpec, RedisClusterStatus
from mooring.operators.workload.index import ClusterIndex, keys_of
from mooring.operators.workload.scope import Scoped
from mooring.operators.workload.surroundings import Surroundings
from mooring.operators.workload.unknown_fields import UnknownFields
from mooring.runtime import Manager

__all__ = ["NAME", "SentinelActor", "register"]

NAME = "redis-sentinel"
K = TypeVar("K", bound=Object)


class SentinelActor(Planned[RedisCluster, Inputs, Snapshot]):
    """Observes one RedisCluster and acts upon it."""

    kind = RedisCluster
    name: ClassVar[str] = NAME
    owns: ClassVar[Sequence[type[Object]]] = (
        core.Service,
        core.ConfigMap,
        apps.StatefulSet,
        policy.PodDisruptionBudget,
    )
    owns_by_metadata: ClassVar[Sequence[type[Object]]] = (core.Secret,)

    def __init__(self, manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = ()) -> None:
        self._manager = manager
        self._scoped = Scoped(manager, RedisCluster, operator=NAME, scope=scope)
        self._unknown = UnknownFields(manager, RedisClusterSpec)
        self._predecessor = Predecessor(manager.client.live, manager.clock, namespaced=bool(namespaces))
        self._pods = _index(manager, core.Pod, namespaces)
        self._claims = _index(manager, core.PersistentVolumeClaim, namespaces)
        self.wake: Callable[[Key], None] = lambda key: None
        """Brings the next pass over a cluster forward."""
        self.listener = Listener(lambda key: self.wake(key), self._dial)
        labels = ["namespace", "name"]
        self._healthy = manager.metrics.gauge(
            "redis_operator_controller_cluster_healthy",
            "Status of redis clusters managed by the operator.",
            labels,
        )
        self._lost = manager.metrics.gauge(
            "redis_operator_controller_data_lost",
            "How often this process saw a redis cluster come back without any of its data.",
            labels,
        )
        self.related = (
            Related(core.Pod, _cluster_key, label_selector=MANAGED_SELECTOR),
            Related(core.PersistentVolumeClaim, _cluster_key, label_selector=MANAGED_SELECTOR),
            Related(metadata_of(core.Secret), self._users_of_secret),
            Related(core.ConfigMap, self._users_of_config_map),
        )

    def manages(self, obj: RedisCluster) -> bool:
        """By scope; what another process manages is left alone."""
        ours = self._scoped.manages(obj)
        if not ours:
            self.forget(Key(obj.metadata.namespace or "", obj.metadata.name or ""))
        return ours

    def forget(self, key: Key) -> None:
        """Drop the metric and the subscriptions."""
        self.listener.forget(key)
        self._unknown.forget(key)
        with suppress(KeyError):
            self._healthy.remove(key.namespace, key.name)

    # --- one pass ------------------------------------------------------------------------------------------

    async def precede(self, ctx: Context[RedisCluster]) -> Outcome | None:
        """Nothing is written that UCloud's operator may write as well, its own conditions included."""
        left = await left_to(self._predecessor, ctx)
        if left is not None:
            self.forget(ctx.key)
        return left

    async def inputs(self, ctx: Context[RedisCluster]) -> Inputs | Outcome:
        """The declaration and the objects around it, from the caches; the Secrets it names are read."""
        for name in secret_names(ctx.obj):
            await ctx.children.read(core.Secret, name)
        found = [ctx.children.find(kind, name) for kind, name in references(ctx.obj)]
        around = Surroundings([*found, *self._pods.of(ctx.key), *self._claims.of(ctx.key)])
        inputs = read_inputs(ctx.obj, around)
        return inputs if isinstance(inputs, Inputs) else self._refuse(ctx, inputs)

    def children(self, ctx: Context[RedisCluster], inputs: Inputs) -> Outcome | None:
        """The step that brings the child objects in line, unless the cluster is paused."""
        step = None if inputs.wanted.paused else effects.correct_children(ctx, inputs)
        return self._refuse(ctx, step) if isinstance(step, Wait) else step

    async def snapshot(self, ctx: Context[RedisCluster], inputs: Inputs) -> Snapshot:
        """Ask servers and sentinels; from now on the sentinels' events wake this cluster."""
        await self._unknown.read(ctx)
        snapshot = await read_snapshot(inputs, self._dial(), now=ctx.now)
        self._listen(ctx, snapshot.topology)
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
        self._show_health(ctx, healthy=bool(made.ready.status))
        return made

    async def step(
        self, ctx: Context[RedisCluster], inputs: Inputs, snapshot: Snapshot, move: Move
    ) -> RedisClusterStatus:
        """Carry out a move on the databases, on Kubernetes, or both: a password is told, then published."""
        status = _status(ctx)
        if isinstance(move, Record):  # it is written already
            if loses_all(move):
                self._lost.labels(ctx.key.namespace, ctx.key.name).inc()
            return status
        if isinstance(move, DatabaseMove):
            done = await Steps(self._dial(), kept=inputs.found.kept, sleep=ctx.clock.sleep).run(move)
            status = after_step(status, move, done, now=ctx.now())
            if not isinstance(move, PublishPassword):
                return status
        status = await effects.carry_out(ctx, inputs, move, status)
        if isinstance(move, PublishPassword) and status.password is not None:
            return replace(status, password=replace(status.password, since=ctx.now()))  # its grace begins
        return status

    def refused(self, ctx: Context[RedisCluster], why: Wait) -> None:
        """UCloud's newest condition names a refusal of the API server too."""
        self._show_failed(ctx, why)

    def _refuse(self, ctx: Context[RedisCluster], why: Wait | Terminal) -> Outcome:
        """The declaration cannot be met."""
        self._show_health(ctx, healthy=False)
        self._show_failed(ctx, why)
        return why

    def _show_failed(self, ctx: Context[RedisCluster], why: Wait | Terminal) -> None:
        before = _status(ctx).conditions or []
        conditions = legacy.headed(before, legacy.failed(why), now=ctx.now())
        ctx.show(replace(_status(ctx), conditions=conditions))
        if conditions != list(before):
            note = head_note(conditions[0])
            ctx.events.warning(ctx.obj, note.reason, note.message)

    def _show_health(self, ctx: Context[RedisCluster], *, healthy: bool) -> None:
        self._healthy.labels(ctx.key.namespace, ctx.key.name).set(1.0 if healthy else 0.0)

    # --- what wakes a cluster ------------------------------------------------------------------------------

    def _dial(self) -> Dial:
        return Dial(fence=self._manager.fence.check)

    def _listen(self, ctx: Context[RedisCluster], topology: Topology) -> None:
        pods = [one.pod for one in topology.watchers]
        self.listener.listen(
            ctx.key, [Address(pod.ip, SENTINEL_PORT) for pod in pods if pod.ip and pod.running]
        )

    def _users_of_secret(self, secret: ObjectMetadata) -> list[Key]:
        return self._users(
            secret.metadata, lambda spec: spec.password_secret.name if spec.password_secret else None
        )

    def _users_of_config_map(self, config_map: core.ConfigMap) -> list[Key]:
        return self._users(config_map.metadata, lambda spec: spec.shutdown_config_map)

    def _users(self, meta: ObjectMeta, named: Callable[[RedisClusterSpec], str | None]) -> list[Key]:
        """The clusters that name this object."""
        namespace = meta.namespace or ""
        clusters: Collection[RedisCluster] = self._manager.client.list(RedisCluster, namespace=namespace)
        return [
            Key(namespace, one.metadata.name or "")
            for one in clusters
            if one.spec and named(one.spec) == meta.name
        ]

    async def take_up(self) -> None:
        """See `Scoped`."""
        await self._scoped.take_up(lambda key: self.wake(key))


def _status(ctx: Context[RedisCluster]) -> RedisClusterStatus:
    return ctx.status if isinstance(ctx.status, RedisClusterStatus) else RedisClusterStatus()


def _cluster_key(obj: Object) -> list[Key]:
    return keys_of(obj, cluster_of)


def _index(manager: Manager, kind: type[K], namespaces: Sequence[str]) -> ClusterIndex[K]:
    return ClusterIndex(
        manager, kind, selector=MANAGED_SELECTOR, cluster_of=cluster_of, namespaces=namespaces
    )


def register(
    manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = (), workers: int = 8
) -> None:
    """Put the operator onto a manager."""
    actor = SentinelActor(manager, scope=scope, namespaces=namespaces)
    run_actor(actor, manager, namespaces=namespaces, workers=workers)
    controller: Any = next(one for one in manager.controllers if one.name == NAME)
    actor.wake = controller.enqueue
    manager.serve(f"{NAME} listener", actor.listener.run)
    if scope == "all":
        manager.serve(f"{NAME} scopes", actor.take_up)
