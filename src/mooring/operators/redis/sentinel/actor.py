"""Glue: look at the cluster, let the planner decide, carry it out, say what happened.

Every decision is in `plan`, every object in `specs`, every database effect in `steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace as changed
from typing import Any, ClassVar, TypeVar

from msgspec.structs import replace
from prometheus_client import Gauge

from mooring.actor import Act, Actor, Context, Outcome, Related, Terminal, Wait, run_actor
from mooring.actor.children import Drift
from mooring.kube.errors import NotFound
from mooring.kube.object import Key, Object, ObjectMetadata, metadata_of, to_dict
from mooring.kube.objects import apps, core, policy
from mooring.kube.patches import MergePatch
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.redis.sentinel import moves
from mooring.operators.redis.sentinel.inputs import Gathering, Inputs
from mooring.operators.redis.sentinel.listen import Listener
from mooring.operators.redis.sentinel.names import (
    INPUTS,
    MANAGED_SELECTOR,
    ROLE,
    Names,
    cluster_of,
    selector_of,
)
from mooring.operators.redis.sentinel.plan import ALL_DATA, held_back, next_step
from mooring.operators.redis.sentinel.settings import render_live
from mooring.operators.redis.sentinel.snapshot import Observed, Snapshot
from mooring.operators.redis.sentinel.specs import Found, Specs
from mooring.operators.redis.sentinel.status import (
    CREATING,
    Head,
    Readiness,
    headed,
    legacy_head,
    pointed_anew,
    readiness,
    topology_status,
)
from mooring.operators.redis.sentinel.steps import StepFailed, Steps, is_database_move
from mooring.operators.redis.sentinel.takeover import Predecessor, made_by_another
from mooring.operators.redis.sentinel.topology import SENTINEL_PORT
from mooring.operators.redis.sentinel.types import (
    LegacyCondition,
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    spec_of,
)
from mooring.operators.workload.adoption import put_template, rolls_itself, stop_rolling
from mooring.operators.workload.claims import own_claims, owned
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.index import ClusterIndex, keys_of
from mooring.operators.workload.scope import Scoped
from mooring.operators.workload.template import mounted_config_maps
from mooring.operators.workload.unknown_fields import UnknownFields
from mooring.runtime import Manager

__all__ = ["NAME", "SentinelActor", "register"]

NAME = "redis-sentinel"
LOOK_AGAIN = 60.0
"""Seconds between two looks at a cluster that is in sync.

What goes wrong is told at once, by the sentinels or by a pod's readiness; a value that somebody set on a server by
hand is all that nobody tells.
"""
LOOK_FOR_PREDECESSOR = 10.0
"""Seconds between two looks whether UCloud's operator still runs."""
K = TypeVar("K", bound=Object)
AFTER_FAILURE = 0.2
"""Seconds before a step that did not get through is considered anew."""


class SentinelActor(Actor[RedisCluster]):
    """Observe and act upon one RedisCluster."""

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
        self._all_pods = _belongings(manager, core.Pod, namespaces)
        self._all_claims = _belongings(manager, core.PersistentVolumeClaim, namespaces)
        self._wake: Callable[[Key], None] = lambda key: None
        self.listener = Listener(lambda key: self._wake(key), self._dial)
        self._healthy = _gauge(manager)
        self._lost = manager.metrics.gauge(
            "redis_operator_controller_data_lost",
            "How often this process saw a redis cluster come back without any of its data.",
            ["namespace", "name"],
        )
        self.related = (
            Related(core.Pod, _cluster_key, label_selector=MANAGED_SELECTOR),
            Related(core.PersistentVolumeClaim, _cluster_key, label_selector=MANAGED_SELECTOR),
            Related(metadata_of(core.Secret), self._users_of_secret),
            Related(core.ConfigMap, self._users_of_config_map),
        )

    def wake_with(self, wake: Callable[[Key], None]) -> None:
        """How the listener brings a cluster's next look forward."""
        self._wake = wake

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
        try:
            self._healthy.remove(key.namespace, key.name)
        except KeyError:
            return

    async def observe(self, ctx: Context[RedisCluster]) -> Outcome:
        """One look and the one thing to do now."""
        if left := await self._left_to_predecessor(ctx):
            return left
        gathering = self._gathering(ctx)
        for name in gathering.secrets():
            await ctx.children.read(core.Secret, name)
        inputs = gathering.inputs()
        if isinstance(inputs, Wait | Terminal):
            return self._refused(ctx, inputs)
        specs = Specs(ctx.obj, inputs.found)
        if not inputs.wanted.paused and (step := self._children(ctx, specs, inputs)):
            return step
        await self._unknown.read(ctx)
        observed, recorded = await gathering.snapshot(self._dial(), specs, inputs)
        self._listen(ctx, observed)
        snapshot = Snapshot(inputs.wanted, observed, recorded, ctx.now())
        status = topology_status(_status(ctx), snapshot, specs.names)
        ctx.show(self._with_entry(ctx, status, specs.names))
        verdict = held_back(inputs.wanted, next_step(inputs.wanted, observed, recorded, snapshot.now))
        return self._conclude(ctx, snapshot, verdict, inputs)

    # --- what is there -------------------------------------------------------------------------------------

    async def _left_to_predecessor(self, ctx: Context[RedisCluster]) -> Wait | None:
        """Nothing is written that UCloud's operator may write as well, its own conditions included."""
        if not made_by_another(ctx):
            return None
        leader = await self._predecessor.leader(ctx.key.namespace)
        if leader is None:
            return None
        self.forget(ctx.key)
        message = (
            f"UCloud's operator runs in pod {leader} and looks after this cluster; nothing is touched until it has "
            "ended: scale its Deployment to 0"
        )
        return ctx.wait("LegacyOperatorRunning", message, after=LOOK_FOR_PREDECESSOR, stalled=True)

    def _gathering(self, ctx: Context[RedisCluster]) -> Gathering:
        return Gathering(ctx.obj, _Cached(ctx, self._all_pods, self._all_claims), _status(ctx))

    def _listen(self, ctx: Context[RedisCluster], observed: Observed) -> None:
        pods = [one.pod for one in observed.topology.watchers]
        addresses = [Address(pod.ip, SENTINEL_PORT) for pod in pods if pod.ip and pod.running]
        self.listener.listen(ctx.key, addresses)

    # --- children ------------------------------------------------------------------------------------------

    def _children(self, ctx: Context[RedisCluster], specs: Specs, inputs: Inputs) -> Outcome | None:
        keep = self._mounted(ctx, inputs.found)
        drift = ctx.children.settle(specs.objects, given=inputs.found, keep=keep, unowned=specs.unowned())
        if drift.foreign:
            taken = "; ".join(str(one) for one in drift.foreign)
            return self._refused(
                ctx,
                ctx.wait("NameTaken", f"{taken}; rename the cluster, or delete that object", stalled=True),
            )
        if rolled := [
            one for one in (inputs.found.redis, inputs.found.sentinel) if one and rolls_itself(one)
        ]:
            return ctx.act("TakeOverStrategy", _take_over_strategy, ctx, rolled)
        if drift:
            ctx.events.normal(ctx.obj, "Ensure", str(drift))
            return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift))
        wrong = [claim for claim in inputs.claims.values() if owned(ctx.obj, claim) is specs.keeps_claims]
        if wrong and _storage_declared(ctx.obj):
            return ctx.act("OwnClaims", own_claims, ctx, wrong, not specs.keeps_claims)
        return None

    def _mounted(self, ctx: Context[RedisCluster], found: Found) -> list[tuple[type[Object], str]]:
        """Content-named ConfigMaps that a pod or a template in place still refers to."""
        kept = set(mounted_config_maps((found.redis, found.sentinel), self._pods(ctx)))
        if _status(ctx).rolls:  # the template that may be put back names one that no pod mounts any more
            immutable = [one for one in ctx.children.of(core.ConfigMap) if one.immutable]
            kept |= {(core.ConfigMap, one.metadata.name or "") for one in immutable}
        return sorted(kept, key=lambda one: one[1])

    # --- the look ------------------------------------------------------------------------------------------

    def _pods(self, ctx: Context[RedisCluster]) -> list[core.Pod]:
        return self._all_pods.of(ctx.key)

    # --- conclusions ---------------------------------------------------------------------------------------

    def _conclude(
        self, ctx: Context[RedisCluster], snapshot: Snapshot, verdict: moves.Verdict, inputs: Inputs
    ) -> Outcome:
        ready = readiness(snapshot)
        self._healthy.labels(ctx.key.namespace, ctx.key.name).set(1.0 if ready.ready else 0.0)
        head = legacy_head(_status(ctx), spec_of(ctx.obj), snapshot, verdict, ready)
        blocked = inputs.blocked
        if blocked is not None and not isinstance(verdict, moves.Move):
            head = head._replace(
                type="Failed", reason="Cluster failed", message=f"{blocked.reason}: {blocked.message}"
            )
        if ready.ready and head == CREATING:  # a new cluster is ready when it is Healthy, in one write
            ready = Readiness(False, "Creating", f"{ready.message}; the rest of the cluster is being made")
        ctx.ready(ready.ready, ready.reason, ready.message)
        # What is shown only with the next wait would be announced twice.
        written = not isinstance(verdict, moves.Move) or isinstance(verdict, moves.Record | moves.Resize)
        self._show_head(ctx, head, announce=written)
        if isinstance(verdict, moves.Move):
            return self._act(ctx, verdict, inputs)
        if isinstance(verdict, moves.Wait):
            return ctx.wait(verdict.reason, verdict.message, after=verdict.after, stalled=verdict.stalled)
        if blocked is not None:
            return blocked
        unmet = self._unmet(ctx, inputs)
        if unmet:
            return ctx.wait("NotAsDeclared", "; ".join(unmet), after=LOOK_AGAIN, stalled=True)
        return ctx.in_sync(again=LOOK_AGAIN)

    def _act(self, ctx: Context[RedisCluster], move: moves.Move, inputs: Inputs) -> Act:
        if isinstance(move, moves.Record):
            ctx.show(_recorded(_status(ctx), move))
            if move.last_failover is not None:
                self._announce_failover(ctx, move.last_failover, move.why)
            return ctx.act("Record", _nothing, message=move.why, record=True)
        if isinstance(move, moves.PublishPassword | moves.SwitchPassword):
            ctx.events.normal(ctx.obj, "PasswordChanged", move.why)
        if isinstance(move, moves.PublishPassword):
            return ctx.act(move.name, self._publish_password, ctx, move, inputs, message=move.why)
        if is_database_move(move):
            if ctx.obj.status and any(one.type == "Healthy" for one in ctx.obj.status.conditions or ()):
                ctx.events.normal(ctx.obj, "CheckAndHeal", f"{move.name}: {move.why}")
            return ctx.act(move.name, self._database, ctx, move, inputs.found.kept, message=move.why)
        resize = isinstance(move, moves.Resize)
        return ctx.act(move.name, self._kubernetes, ctx, move, inputs, message=move.why, record=resize)

    def _announce_failover(self, ctx: Context[RedisCluster], made: moves.LastFailover, why: str) -> None:
        if made.loss_bound == ALL_DATA:
            ctx.events.warning(ctx.obj, "DataLost", f"{why}; lost: {made.loss_bound}")
            self._lost.labels(ctx.key.namespace, ctx.key.name).inc()
        else:
            ctx.events.normal(ctx.obj, "Failover", why)

    async def _database(self, ctx: Context[RedisCluster], move: moves.Move, kept: Kept) -> bool:
        """A step that does not get through is no failure of the cluster: the next look decides anew."""
        ctx.log.info("step", step=move.name, why=move.why)
        try:
            done = await Steps(self._dial(), kept=kept, sleep=self._manager.clock.sleep).run(move)
        except (StepFailed, DialError) as error:
            ctx.log.warning("step did not get through", step=move.name, error=str(error))
            await self._manager.clock.sleep(AFTER_FAILURE)
            return False
        status = _status(ctx)
        if done.config is not None:
            key, result = done.config
            status = replace(status, config={**(status.config or {}), key: result})
        if done.lost_bytes is not None and status.last_failover is not None:
            status = replace(status, last_failover=replace(status.last_failover, lost_bytes=done.lost_bytes))
        if isinstance(move, moves.Monitor):
            status = pointed_anew(status, {one.name for one in move.sentinels}, now=ctx.now())
        if status != _status(ctx):
            ctx.show(status)
            await ctx.record()
        return True

    async def _publish_password(
        self, ctx: Context[RedisCluster], move: moves.PublishPassword, inputs: Inputs
    ) -> bool:
        """The sentinels first: what they cannot be told must not be what a restarting server asks for."""
        if not await self._database(ctx, move, inputs.found.kept):
            return False
        found = changed(inputs.found, kept=inputs.found.kept.published())
        await ctx.children.apply(self._drift(ctx, Specs(ctx.obj, found), found))
        status = _status(ctx)
        if status.password is not None:  # the old one stays valid for its time from now on
            ctx.show(replace(status, password=replace(status.password, since=ctx.now())))
            await ctx.record()
        return True

    async def _kubernetes(self, ctx: Context[RedisCluster], move: moves.Move, inputs: Inputs) -> None:
        """The moves that are writes to Kubernetes: whole objects, applied as always."""
        ctx.log.info("step", step=move.name, why=move.why)
        found = inputs.found
        match move:
            case moves.DeletePod():
                await ctx.client.delete(
                    core.Pod,
                    move.pod,
                    namespace=ctx.key.namespace,
                    uid=move.uid,
                    resource_version=move.version or None,
                )
                return
            case moves.PublishConfig():
                found = changed(found, live=render_live(move.values))
            case moves.LabelRoles():
                for pod, role in sorted(move.roles.items(), key=lambda one: one[1] == "master"):
                    body = {"metadata": {"labels": {ROLE: role}}}
                    await ctx.client.patch(core.Pod, pod, MergePatch(body), namespace=ctx.key.namespace)
                return
            case moves.StagePassword():
                declared, _ = self._gathering(ctx).declared_password()
                if declared is None:
                    return
                found = changed(found, kept=found.kept.staged(declared))
            case moves.Resize():
                found = changed(found, replicas={move.component: move.replicas})
            case moves.WriteTemplate():
                specs = Specs(ctx.obj, changed(found, roll=frozenset({move.component})))
                made = specs.redis_set() if move.component == "redis" else specs.sentinel_set()
                assert made.spec is not None
                await ctx.children.apply(self._drift(ctx, specs, found, but=apps.StatefulSet))
                template = to_dict(made.spec.template or core.PodTemplateSpec())
                await put_template(ctx, made, template, annotations={INPUTS: specs.inputs(move.component)})
                return
            case moves.RestoreTemplate():
                await self._restore(ctx, move, found)
                return
        await ctx.children.apply(self._drift(ctx, Specs(ctx.obj, found), found))

    def _drift(
        self, ctx: Context[RedisCluster], specs: Specs, found: Found, *, but: type[Object] | None = None
    ) -> Drift:
        objects = [one for one in specs.objects() if but is None or not isinstance(one, but)]
        kept = [(type(one), one.metadata.name or "") for one in specs.objects()]
        return ctx.children.diff(objects, keep=[*kept, *self._mounted(ctx, found)], unowned=specs.unowned())

    async def _restore(self, ctx: Context[RedisCluster], move: moves.RestoreTemplate, found: Found) -> None:
        """The template as its revision kept it; what it mounts is still there, since pods mount it."""
        live = found.redis if move.component == "redis" else found.sentinel
        if live is None:
            return
        try:
            revision = await self._manager.client.live.get(
                apps.ControllerRevision, move.revision, namespace=ctx.key.namespace
            )
        except NotFound:
            ctx.log.warning("the last good template is gone", revision=move.revision)
            status = _status(ctx)
            rolls = status.rolls or {}
            lost = {**rolls, move.component: replace(rolls[move.component], revision="")}
            ctx.show(replace(status, rolls=lost))
            await ctx.record()
            return
        kept = ((revision.data or {}).get("spec") or {}).get("template") or {}
        template = {name: value for name, value in kept.items() if name != "$patch"}
        await put_template(ctx, live, template, annotations={INPUTS: move.inputs})

    def refused(self, ctx: Context[RedisCluster], why: Wait) -> None:
        """UCloud's newest condition says it too."""
        self._show_failed(ctx, why)

    def _refused(self, ctx: Context[RedisCluster], why: Wait | Terminal) -> Outcome:
        """The declaration cannot be met and nothing runs yet."""
        self._healthy.labels(ctx.key.namespace, ctx.key.name).set(0.0)
        self._show_failed(ctx, why)
        return why

    def _show_failed(self, ctx: Context[RedisCluster], why: Wait | Terminal) -> None:
        self._show_head(ctx, Head("Failed", "Cluster failed", f"{why.reason}: {why.message}"), announce=True)

    def _show_head(self, ctx: Context[RedisCluster], head: Head, *, announce: bool) -> None:
        status = _status(ctx)
        have = status.conditions or []
        renewed = headed(have, head, generation=ctx.obj.metadata.generation, now=ctx.now())
        ctx.show(replace(status, conditions=renewed))
        if announce and renewed != list(have):
            self._announce(ctx, renewed[0])

    def _announce(self, ctx: Context[RedisCluster], head: LegacyCondition) -> None:
        reason, message = head.type or "", head.message or ""
        if reason == "Failed":
            ctx.events.warning(ctx.obj, reason, message)
        else:
            reason = "ScalingDown" if head.reason == "Scaling down" else reason
            ctx.events.normal(ctx.obj, "Updating" if reason == "Upgrading" else reason, message)

    def _unmet(self, ctx: Context[RedisCluster], inputs: Inputs) -> list[str]:
        """What a cluster that works well still cannot follow of its declaration, each with its field."""
        status = _status(ctx)
        said = [
            f"spec.config.{key}: {result.message}"
            for key, result in sorted((status.config or {}).items())
            if result.message and result.state != "Clamped"
        ]
        storage = Specs(ctx.obj, inputs.found).unlike_declared(inputs.claims)
        return [*said, *([storage] if storage else []), *self._unknown.of(ctx.key)]

    def _with_entry(
        self, ctx: Context[RedisCluster], status: RedisClusterStatus, names: Names
    ) -> RedisClusterStatus:
        service = ctx.children.find(core.Service, names.sentinel)
        labels = selector_of(ctx.key.namespace, ctx.key.name, "redis")
        return replace(
            status,
            sentinel_ip=service.spec.cluster_ip if service and service.spec else None,
            selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        )

    # --- who is told of what -------------------------------------------------------------------------------

    def _dial(self) -> Dial:
        return Dial(fence=self._manager.fence.check)

    def _clusters(self, namespace: str) -> Collection[RedisCluster]:
        return self._manager.client.list(RedisCluster, namespace=namespace)

    def _users_of_secret(self, secret: ObjectMetadata) -> list[Key]:
        name, namespace = secret.metadata.name, secret.metadata.namespace or ""
        return [
            Key(namespace, one.metadata.name or "")
            for one in self._clusters(namespace)
            if one.spec and one.spec.password_secret and one.spec.password_secret.name == name
        ]

    def _users_of_config_map(self, config_map: core.ConfigMap) -> list[Key]:
        name, namespace = config_map.metadata.name, config_map.metadata.namespace or ""
        return [
            Key(namespace, one.metadata.name or "")
            for one in self._clusters(namespace)
            if one.spec and one.spec.shutdown_config_map == name
        ]

    async def take_up(self) -> None:
        """See `Scoped`."""
        await self._scoped.take_up(lambda key: self._wake(key))


class _Cached:
    """The objects around a cluster, from the caches."""

    def __init__(
        self,
        ctx: Context[RedisCluster],
        pods: ClusterIndex[core.Pod],
        claims: ClusterIndex[core.PersistentVolumeClaim],
    ) -> None:
        self._ctx, self._pods, self._claims = ctx, pods, claims

    def find(self, kind: type[K], name: str) -> K | None:
        return self._ctx.children.find(kind, name)

    def pods(self) -> list[core.Pod]:
        return self._pods.of(self._ctx.key)

    def claims(self) -> list[core.PersistentVolumeClaim]:
        return self._claims.of(self._ctx.key)


# --- small readings ----------------------------------------------------------------------------------------


def _status(ctx: Context[RedisCluster]) -> RedisClusterStatus:
    return ctx.status if isinstance(ctx.status, RedisClusterStatus) else RedisClusterStatus()


def _recorded(status: RedisClusterStatus, move: moves.Record) -> RedisClusterStatus:
    """The status with what has to be known before the next step."""
    operation = move.operation or (None if move.finish else status.operation)
    return replace(
        status,
        lineage=move.lineage or status.lineage,
        operation=operation,
        last_failover=move.last_failover or status.last_failover,
        config=status.config if move.config is None else dict(move.config) or None,
        password=status.password
        if move.password is None
        else (move.password if move.password.phase else None),
        rolls=status.rolls if move.rolls is None else dict(move.rolls) or None,
        quarantined=status.quarantined if move.quarantined is None else sorted(move.quarantined),
    )


async def _take_over_strategy(ctx: Context[RedisCluster], found: Sequence[apps.StatefulSet]) -> None:
    for one in found:
        await stop_rolling(ctx, one)


async def _nothing() -> None:
    """Recording is all there was to do."""


def _cluster_key(obj: Object) -> list[Key]:
    return keys_of(obj, cluster_of)


def _belongings(manager: Manager, kind: type[K], namespaces: Sequence[str]) -> ClusterIndex[K]:
    return ClusterIndex(
        manager, kind, selector=MANAGED_SELECTOR, cluster_of=cluster_of, namespaces=namespaces
    )


def _storage_declared(cluster: RedisCluster) -> bool:
    storage = spec_of(cluster).storage
    return storage is not None and storage.persistent_volume_claim is not None


def _gauge(manager: Manager) -> Gauge:
    return manager.metrics.gauge(
        "redis_operator_controller_cluster_healthy",
        "Status of redis clusters managed by the operator.",
        ["namespace", "name"],
    )


def register(
    manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = (), workers: int = 8
) -> None:
    """Put the operator onto a manager."""
    actor = SentinelActor(manager, scope=scope, namespaces=namespaces)
    run_actor(actor, manager, namespaces=namespaces, workers=workers)
    controller: Any = next(one for one in manager.controllers if one.name == NAME)
    actor.wake_with(lambda key: controller.enqueue(key))
    manager.serve(f"{NAME} listener", actor.listener.run)
    if scope == "all":
        manager.serve(f"{NAME} scopes", actor.take_up)
