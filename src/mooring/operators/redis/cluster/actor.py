"""Glue: look at the cluster, let the planner decide, carry it out, say what happened.

Every decision is in `plan`, every object in `specs`, every effect on servers in `steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace as changed
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from mooring.actor import Act, Actor, Context, Outcome, Related, Wait, run_actor
from mooring.cache import Informer
from mooring.kube.object import Key, Object
from mooring.kube.objects import apps, core, policy
from mooring.operators.redis.belongings import Belongings, keys_of, mounted_config_maps, own_claims, owned
from mooring.operators.redis.cluster import moves, rekey
from mooring.operators.redis.cluster.gather import Gathering
from mooring.operators.redis.cluster.look import Look
from mooring.operators.redis.cluster.names import MANAGED_SELECTOR, cluster_of
from mooring.operators.redis.cluster.pair import leader_of
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.report import described, phase_of, progress
from mooring.operators.redis.cluster.specs import Specs, template_lines
from mooring.operators.redis.cluster.steps import StepFailed, Steps, is_database_move
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    password_of,
    pod_of,
)
from mooring.operators.redis.cluster.validate import unmet, warnings
from mooring.operators.redis.dial import Dial, DialError
from mooring.operators.redis.passwords import Kept
from mooring.operators.redis.scoped import Scoped
from mooring.operators.redis.unknown import UnknownFields
from mooring.runtime import Manager, rfc3339

__all__ = ["NAME", "ClusterActor", "register"]

NAME = "redis-cluster"
LOOK_AGAIN = 15.0
"""Seconds between two looks at a cluster that is in sync; pods' changes come at once."""
TIMEOUT = 20 * 60.0
"""Seconds in which a cluster is made or changed before it is called Failed; what runs is left as it is."""
AFTER_FAILURE = 0.2
"""Seconds before a step that did not get through is considered anew."""
K = TypeVar("K", bound=Object)


class ClusterActor(Actor[RedisCluster]):
    """Observe and act upon one RedisCluster."""

    kind = RedisCluster
    name: ClassVar[str] = NAME
    owns: ClassVar[Sequence[type[Object]]] = (
        core.Service,
        core.ConfigMap,
        core.Secret,
        apps.StatefulSet,
        policy.PodDisruptionBudget,
    )
    conditions_path: ClassVar[str] = "standardConditions"

    def __init__(
        self,
        manager: Manager,
        *,
        namespaces: Sequence[str] = (),
        scope: str = "all",
        timeout: float = TIMEOUT,
        look_again: float = LOOK_AGAIN,
        grace: float = rekey.GRACE,
    ) -> None:
        self._grace = grace
        self._manager = manager
        self._scoped = Scoped(manager, RedisCluster, operator=NAME, scope=scope)
        self._timeout = timedelta(seconds=timeout)
        self._look_again = look_again
        self._pods = _belongings(manager, core.Pod, namespaces)
        self._claims = _belongings(manager, core.PersistentVolumeClaim, namespaces)
        self._nodes = manager.informers.of(core.Node) if scope != "namespaced" else None
        self._said: dict[Key, datetime] = {}
        self._unknown = UnknownFields(manager, RedisClusterSpec)
        self.related = (
            Related(core.Pod, _cluster_key, label_selector=MANAGED_SELECTOR),
            Related(core.PersistentVolumeClaim, _cluster_key, label_selector=MANAGED_SELECTOR),
            Related(core.ConfigMap, self._users_of_config_map),
        )

    def manages(self, obj: RedisCluster) -> bool:
        """By scope; what another process manages is left alone."""
        return self._scoped.manages(obj)

    async def take_up(self, wake: Callable[[Key], None]) -> None:
        """See `Scoped`."""
        await self._scoped.take_up(wake)

    def forget(self, key: Key) -> None:
        """When progress was last told, and which fields are not known, is all that is kept in memory."""
        self._said.pop(key, None)
        self._unknown.forget(key)

    def refused(self, ctx: Context[RedisCluster], why: Wait) -> None:
        """HarmonyCloud's reason says it too; what runs keeps its phase."""
        status = _status(ctx)
        phase = status.phase if status.formed_cluster_before else "Failed"
        ctx.show(replace(status, phase=phase, reason=why.message, reason_type="InvalidArgs"))

    async def observe(self, ctx: Context[RedisCluster]) -> Outcome:
        """One look and the one thing to do now."""
        gathering = Gathering(ctx.obj, _Cached(ctx, self._pods, self._nodes), _status(ctx))
        paused = gathering.paused
        if gathering.live is None and (outcome := self._not_begun(ctx, gathering, paused=paused)):
            return outcome
        if not paused and (step := self._children(ctx, gathering)):
            return step
        await self._unknown.read(ctx)
        dial = self._dial(gathering)
        look = await gathering.look(dial, ctx.now())
        self._show(ctx, gathering, look)
        verdict = next_step(look)
        if not paused and look.recorded.formed and _may_rekey(gathering, verdict):
            change = await gathering.next_password(dial, look.seen, ctx.now(), grace=self._grace)
            verdict = change or verdict
        return self._conclude(ctx, gathering, look, verdict, paused=paused)

    # --- before there is anything --------------------------------------------------------------------------

    def _not_begun(self, ctx: Context[RedisCluster], gathering: Gathering, *, paused: bool) -> Outcome | None:
        if paused:
            message = "spec.pause: nothing is created while it is true; set it to false to begin"
            ctx.show(replace(_status(ctx), reason=message, reason_type="Paused"))
            return ctx.wait("Paused", message, after=self._look_again)
        if gathering.blocked is not None:
            blocked = gathering.blocked
            ctx.show(
                replace(_status(ctx), phase="Failed", reason=blocked.message, reason_type=blocked.reason)
            )
            return ctx.wait(blocked.reason, blocked.message, after=self._look_again, stalled=True)
        return None

    def _children(self, ctx: Context[RedisCluster], gathering: Gathering) -> Outcome | None:
        drift = ctx.children.diff(gathering.specs.objects(), keep=self._mounted(ctx, gathering))
        if drift.foreign:
            message = "; ".join(map(str, drift.foreign)) + "; rename the cluster, or delete that object"
            ctx.show(replace(_status(ctx), phase="Failed", reason=message, reason_type="NameTaken"))
            return ctx.wait("NameTaken", message, stalled=True)
        if drift:
            if gathering.live is None:
                ctx.events.normal(ctx.obj, "CreateClusterStart", str(drift))
            return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift))
        goes = gathering.claims_go
        wrong = [claim for claim in self._claims.of(ctx.key) if owned(ctx.obj, claim) is not goes]
        return ctx.act("OwnClaims", own_claims, ctx, wrong, goes) if wrong else None

    def _mounted(self, ctx: Context[RedisCluster], gathering: Gathering) -> list[tuple[type[Object], str]]:
        """Content-named ConfigMaps that a pod or the template in place still refers to."""
        return mounted_config_maps([gathering.live], self._pods.of(ctx.key))

    # --- the look ------------------------------------------------------------------------------------------

    def _show(self, ctx: Context[RedisCluster], gathering: Gathering, look: Look) -> None:
        hosts = {
            pod.metadata.name or "": (pod.status.host_ip if pod.status else None) or ""
            for pod in self._pods.of(ctx.key)
        }
        status = described(
            _status(ctx), look, names=gathering.names, namespace=ctx.key.namespace, hosts=hosts
        )
        if status.slot_plan is not None:
            plan = progress(status.slot_plan, look, last=self._said.get(ctx.key))
            if plan is not status.slot_plan:
                self._said[ctx.key] = look.now
                status = replace(status, slot_plan=plan)
        ctx.show(status)

    def _conclude(
        self,
        ctx: Context[RedisCluster],
        gathering: Gathering,
        look: Look,
        verdict: moves.Verdict,
        *,
        paused: bool,
    ) -> Outcome:
        blocked = gathering.blocked
        before = _status(ctx).phase
        status = phase_of(_status(ctx), look, verdict, blocked, timeout=self._timeout)
        ctx.show(status)
        serving = leader_of(look) is not None or (bool(look.seen.owners) and not look.seen.absent_owners)
        ready = look.recorded.formed and serving
        said = status.reason or "all slots are served"
        ctx.ready(ready, "Serving" if ready else status.phase or "Creating", said)
        if paused:
            todo = (
                f"; {verdict.name} is left undone: {verdict.why}" if isinstance(verdict, moves.Move) else ""
            )
            message = f"spec.pause: nothing is changed{todo}"
            ctx.show(replace(status, phase=before, reason=message, reason_type="Paused"))
            return ctx.wait("Paused", message, after=self._look_again)
        if status.phase == "Running" and before not in ("Running", None):
            ctx.events.normal(ctx.obj, _SUCCESS.get(before or "", "UpgradeClusterSuccess"), said)
        if status.phase == "Failed" and before != "Failed":
            failed = "CreateClusterFailed" if before in ("", None, "Creating") else "UpgradeClusterFailed"
            ctx.events.warning(ctx.obj, failed, said)
        if isinstance(verdict, moves.Move):
            return self._act(ctx, gathering, verdict)
        if isinstance(verdict, moves.Wait):
            return ctx.wait(verdict.reason, verdict.message, after=verdict.after, stalled=verdict.stalled)
        if blocked is not None:
            return ctx.wait(blocked.reason, blocked.message, after=self._look_again, stalled=True)
        if left := [*_unmet(ctx.obj, gathering), *self._unknown.of(ctx.key)]:
            return ctx.wait("NotAsDeclared", "; ".join(left), after=self._look_again, stalled=True)
        return ctx.in_sync(
            "; ".join(warnings(ctx.obj)) or "everything is as declared", again=self._look_again
        )

    # --- acting --------------------------------------------------------------------------------------------

    def _act(self, ctx: Context[RedisCluster], gathering: Gathering, move: moves.Move) -> Act:
        if isinstance(move, moves.Record):
            ctx.show(_recorded(_status(ctx), move))
            if move.plan is not None:
                event = "ReshareSlots" if move.plan.kind == "Reshard" else "RebalanceSlots"
                ctx.events.normal(ctx.obj, event, move.why)
            return ctx.act("Record", _nothing, message=move.why, record=True)
        if told := _EVENTS.get(type(move)):
            ctx.events.normal(ctx.obj, told, move.why)
        if isinstance(move, rekey.PasswordMove):
            if isinstance(move, rekey.Publish | rekey.Switch):
                ctx.events.normal(ctx.obj, "PasswordChanged", move.why)
            return ctx.act(move.name, self._rekey, ctx, gathering, move, message=move.why)
        if is_database_move(move):
            return ctx.act(move.name, self._database, ctx, gathering, move, message=move.why)
        resize = isinstance(move, moves.Resize)
        return ctx.act(move.name, self._kubernetes, ctx, gathering, move, message=move.why, record=resize)

    async def _database(self, ctx: Context[RedisCluster], gathering: Gathering, move: moves.Move) -> None:
        """A step that does not get through is no failure of the cluster: the next look decides anew."""
        ctx.log.info("step", step=move.name, why=move.why)
        try:
            await Steps(self._dial(gathering), password=gathering.found.kept.password).run(move)
        except (StepFailed, DialError) as error:
            ctx.log.warning("step did not get through", step=move.name, error=str(error))
            await self._manager.clock.sleep(AFTER_FAILURE)

    async def _rekey(
        self, ctx: Context[RedisCluster], gathering: Gathering, move: rekey.PasswordMove
    ) -> None:
        """A step of a change of the password: on the servers, or in the Secret that restarting ones read."""
        ctx.log.info("step", step=move.name, why=move.why)
        found, declared = gathering.found, password_of(gathering.spec)
        match move:
            case rekey.Stage():
                found = changed(found, kept=found.kept.staged(declared))
            case rekey.Publish():
                found = changed(found, kept=found.kept.published(), published=rfc3339(ctx.now()))
            case rekey.Drop():
                found = changed(found, kept=Kept(password=found.kept.password), published="")
            case _:
                try:
                    await rekey.carry_out(self._dial(gathering), move, found.kept)
                except DialError as error:
                    ctx.log.warning("step did not get through", step=move.name, error=str(error))
                    await self._manager.clock.sleep(AFTER_FAILURE)
                return
        drift = ctx.children.diff(Specs(ctx.obj, found).objects(), keep=self._mounted(ctx, gathering))
        await ctx.children.apply(drift)

    async def _kubernetes(self, ctx: Context[RedisCluster], gathering: Gathering, move: moves.Move) -> None:
        """The moves that are writes to Kubernetes: whole objects, applied as always."""
        ctx.log.info("step", step=move.name, why=move.why)
        found = gathering.found
        match move:
            case moves.DeletePod():
                await ctx.client.delete(core.Pod, move.pod, namespace=ctx.key.namespace, uid=move.uid)
                return
            case moves.Resize():
                found = changed(found, replicas=move.replicas)
            case moves.WriteTemplate():
                found = changed(found, rewrite=True)
            case moves.RestoreTemplate():
                good = await self._template_of(ctx, move.revision)
                found = changed(found, good=good, why=move.why)
        drift = ctx.children.diff(Specs(ctx.obj, found).objects(), keep=self._mounted(ctx, gathering))
        await ctx.children.apply(drift)

    async def _template_of(self, ctx: Context[RedisCluster], revision: str) -> core.PodTemplateSpec:
        """The pods' template that a revision kept; raises `NotFound` when it is gone."""
        kept = await self._manager.client.live.get(
            apps.ControllerRevision, revision, namespace=ctx.key.namespace
        )
        template = ((kept.data or {}).get("spec") or {}).get("template") or {}
        return msgspec.convert(
            {name: value for name, value in template.items() if name != "$patch"}, core.PodTemplateSpec
        )

    def _dial(self, gathering: Gathering) -> Dial:
        return Dial(fence=self._manager.fence.check, keys=gathering.found.kept.keys)

    # --- who is told of what -------------------------------------------------------------------------------

    def _clusters(self, namespace: str) -> Collection[RedisCluster]:
        return self._manager.client.list(RedisCluster, namespace=namespace)

    def _users_of_config_map(self, config_map: core.ConfigMap) -> list[Key]:
        name, namespace = config_map.metadata.name, config_map.metadata.namespace or ""
        return [
            Key(namespace, one.metadata.name or "")
            for one in self._clusters(namespace)
            if pod_of(one.spec or RedisClusterSpec()).configmap == name
        ]


class _Cached:
    """The objects around a cluster, from the caches."""

    def __init__(
        self,
        ctx: Context[RedisCluster],
        pods: Belongings[core.Pod],
        nodes: Informer[core.Node] | None,
    ) -> None:
        self._ctx, self._pods, self._nodes = ctx, pods, nodes

    def find(self, kind: type[K], name: str) -> K | None:
        return self._ctx.children.find(kind, name)

    def pods(self) -> list[core.Pod]:
        return self._pods.of(self._ctx.key)

    def node(self, name: str) -> core.Node | None:
        return self._nodes.get(Key("", name)) if self._nodes is not None else None


_EVENTS: dict[type[moves.Move], str] = {
    moves.Claim: "InitCluster",
    moves.Attach: "AddSlave",
    moves.Meet: "AddMaster",
    moves.Resize: "ScalePod",
    moves.Release: "DeleteNode",
    moves.Promote: "Failover",
    moves.WriteTemplate: "UpgradeClusterStart",
    moves.RestoreTemplate: "UpgradeClusterFailed",
    moves.HandOver: "Failover",
    moves.DeletePod: "DeletePod",
}
_SUCCESS = {"Creating": "CreateClusterSuccess"}


def _status(ctx: Context[RedisCluster]) -> RedisClusterStatus:
    return ctx.status if isinstance(ctx.status, RedisClusterStatus) else RedisClusterStatus()


def _recorded(status: RedisClusterStatus, move: moves.Record) -> RedisClusterStatus:
    plan = None if move.drop_plan else move.plan or status.slot_plan
    formed = status.formed_cluster_before if move.formed is None else move.formed
    leader = move.leader or status.leader
    return replace(status, slot_plan=plan, formed_cluster_before=formed, leader=leader)


async def _nothing() -> None:
    """Recording is all there was to do."""


def _may_rekey(gathering: Gathering, verdict: moves.Verdict) -> bool:
    """A change begins at rest, and goes on whenever there is nothing to do that cannot wait."""
    if gathering.password_changing:
        return not isinstance(verdict, moves.Move)
    return gathering.password_differs and isinstance(verdict, moves.InSync)


def _unmet(cluster: RedisCluster, gathering: Gathering) -> list[str]:
    """What a cluster that works well still does not follow of its declaration."""
    said = unmet(cluster, gathering.specs, gathering.live)
    if refused := gathering.specs.refused():
        said.append(f"spec.pod[0]: {refused}; correct it")
    _, dropped = template_lines(gathering.found.template)
    if dropped:
        where = f"ConfigMap {pod_of(gathering.spec).configmap}"
        said.append(f"{where}: {', '.join(dropped)} is for the operator to decide; remove it")
    return said


def _cluster_key(obj: Object) -> list[Key]:
    return keys_of(obj, cluster_of)


def _belongings(manager: Manager, kind: type[K], namespaces: Sequence[str]) -> Belongings[K]:
    return Belongings(manager, kind, selector=MANAGED_SELECTOR, cluster_of=cluster_of, namespaces=namespaces)


def register(
    manager: Manager,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    workers: int = 8,
    timeout: float = TIMEOUT,
    look_again: float = LOOK_AGAIN,
    grace: float = rekey.GRACE,
) -> None:
    """Put the operator onto a manager; a namespaced one does not read nodes, and so knows no zones."""
    actor = ClusterActor(
        manager,
        namespaces=namespaces,
        scope=scope,
        timeout=timeout,
        look_again=look_again,
        grace=grace,
    )
    run_actor(actor, manager, namespaces=namespaces, workers=workers)
    if scope == "all":
        controller: Any = next(one for one in manager.controllers if one.name == NAME)
        manager.serve(f"{NAME} scopes", lambda: actor.take_up(lambda key: controller.enqueue(key)))
