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
from mooring.actor.children import Drift
from mooring.cache import Informer
from mooring.kube.errors import BadRequest, Forbidden, Invalid
from mooring.kube.object import Key, Object, controller_of, to_dict
from mooring.kube.objects import apps, core, policy
from mooring.operators.redis.cluster import events, moves, passwords
from mooring.operators.redis.cluster.inputs import Gathering
from mooring.operators.redis.cluster.names import MANAGED_SELECTOR, cluster_of
from mooring.operators.redis.cluster.pair import leader_of
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.retries import Tries, failed, got_through, said_of
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.specs import Found, Specs, template_lines
from mooring.operators.redis.cluster.status import SLOTS_FAILED, UNEXPECTED, described, phase_of, progress
from mooring.operators.redis.cluster.steps import StepFailed, Steps, is_database_move
from mooring.operators.redis.cluster.takeover import (
    bears_labels,
    label,
    leader,
    made_by_another,
    pods_selector,
    refusal,
    select_ours,
)
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    password_of,
    pod_of,
)
from mooring.operators.redis.cluster.validate import FOREGROUND, unmet, warnings
from mooring.operators.redis.dial import Dial, DialError
from mooring.operators.workload.adoption import put_template, rolls_itself, stop_rolling
from mooring.operators.workload.claims import own_claims, owned
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.index import ClusterIndex, keys_of
from mooring.operators.workload.scope import Scoped
from mooring.operators.workload.template import mounted_config_maps
from mooring.operators.workload.unknown_fields import UnknownFields
from mooring.runtime import Manager, rfc3339

__all__ = ["NAME", "ClusterActor", "register"]

NAME = "redis-cluster"
LOOK_AGAIN = 15.0
"""Seconds between two looks at a cluster that is in sync; pods' changes come at once."""
TIMEOUT = 20 * 60.0
"""Seconds in which a cluster is made or changed before it is called Failed; what runs is left as it is."""
LOOK_AT_REFUSED = 5.0
"""Seconds between two looks at a cluster that HarmonyCloud's operator made and that cannot be taken over yet."""
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
        grace: float = passwords.GRACE,
    ) -> None:
        self._grace = grace
        self._namespaced = bool(namespaces)
        self._manager = manager
        self._scoped = Scoped(manager, RedisCluster, operator=NAME, scope=scope)
        self._timeout = timedelta(seconds=timeout)
        self._look_again = look_again
        self._pods = _belongings(manager, core.Pod, namespaces)
        self._claims = _belongings(manager, core.PersistentVolumeClaim, namespaces)
        self._nodes = manager.informers.of(core.Node) if scope != "namespaced" else None
        self._said: dict[Key, datetime] = {}
        self._failing = events.Failing()
        self._tries = Tries(manager.clock)
        self._last: dict[Key, RedisCluster] = {}
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
        """It was deleted. What is kept in memory is when something was last told, and what is not known; nothing else."""
        self._said.pop(key, None)
        self._failing.forget(key)
        self._tries.forget(key)
        self._unknown.forget(key)
        if (last := self._last.pop(key, None)) is not None:
            goes = ((last.spec or RedisClusterSpec()).finalizers or "").lower() == FOREGROUND
            self._tell(last, events.of_deletion(claims_go=goes))

    def refused(self, ctx: Context[RedisCluster], why: Wait) -> None:
        """HarmonyCloud's reason says it too; what runs keeps its phase."""
        status = _status(ctx)
        phase = status.phase if status.formed_cluster_before else "Failed"
        self._fail(ctx, replace(status, phase=phase, reason=why.message, reason_type="InvalidArgs"), why)

    async def observe(self, ctx: Context[RedisCluster]) -> Outcome:
        """One look and the one thing to do now."""
        self._last[ctx.key] = ctx.obj
        gathering = self._gathering(ctx, self._pods.of(ctx.key))
        paused = gathering.paused
        if gathering.live is not None and (outcome := await self._found_otherwise(ctx, gathering.live)):
            return outcome
        await self._unknown.read(ctx)
        if gathering.live is None and (outcome := self._not_begun(ctx, gathering, paused=paused)):
            return outcome
        if gathering.live is None and not gathering.formed and (outcome := await self._legacy(ctx)):
            return outcome
        if not paused and (step := self._children(ctx, gathering)):
            return step
        dial = self._dial(gathering)
        snapshot = await gathering.snapshot(dial, ctx.now())
        self._show(ctx, gathering, snapshot)
        verdict = next_step(snapshot)
        if isinstance(verdict, moves.InSync):
            self._failing.at_rest(ctx.key)
        if not paused and snapshot.recorded.formed and _may_rekey(gathering, verdict):
            change = await gathering.next_password(dial, snapshot.seen, ctx.now(), grace=self._grace)
            verdict = change or verdict
        if not paused:
            verdict = self._tries.spaced(ctx.key, verdict, snapshot)
        return self._conclude(ctx, gathering, snapshot, verdict, paused=paused)

    def _gathering(self, ctx: Context[RedisCluster], pods: Sequence[core.Pod]) -> Gathering:
        return Gathering(ctx.obj, _Cached(ctx, pods, self._nodes), _status(ctx))

    # --- what HarmonyCloud's operator made -----------------------------------------------------------------

    async def _found_otherwise(self, ctx: Context[RedisCluster], live: apps.StatefulSet) -> Outcome | None:
        """Pods of another template than ours bear other labels: nothing is decided while one of them is not seen."""
        template = live.spec.template if live.spec else None
        if template and template.metadata and bears_labels(ctx.key.name, template.metadata.labels):
            return None
        if made_by_another(ctx.obj, live):
            return await self._predecessors(ctx, live)
        there = (live.status.replicas if live.status else None) or 0
        if len(self._pods.of(ctx.key)) >= there or (ctx.obj.spec or RedisClusterSpec()).pause:
            return None
        return ctx.act("LabelPods", self._label, ctx, live, message="pods get the labels they are found by")

    async def _legacy(self, ctx: Context[RedisCluster]) -> Outcome | None:
        """A cluster that is not ours yet is left to HarmonyCloud's operator while that runs, also one still to be made."""
        holder = await leader(self._manager.client.live, self._reach(ctx), ctx.now())
        if not holder:
            return None
        message = (
            f"HarmonyCloud's operator runs as {holder} and looks after this cluster; nothing is touched until it "
            "has ended: scale its Deployment to 0"
        )
        return ctx.wait("LegacyOperatorRunning", message, after=LOOK_AT_REFUSED, stalled=True)

    async def _predecessors(self, ctx: Context[RedisCluster], live: apps.StatefulSet) -> Outcome | None:
        """Take it over, or say why not; nothing is written before its servers have been looked at."""
        if outcome := await self._legacy(ctx):
            return outcome
        gathering = self._gathering(ctx, await self._pods_of(ctx, live))
        if gathering.paused:
            return self._untouched(ctx, "Paused", "spec.pause: it is taken over once that is false")
        if gathering.blocked is not None:
            return self._untouched(ctx, gathering.blocked.reason, gathering.blocked.message)
        drift = ctx.children.diff(gathering.specs.objects())
        if drift.foreign:
            return self._untouched(ctx, "NameTaken", _taken(drift))
        snapshot = await gathering.snapshot(self._dial(gathering), ctx.now())
        if why := refusal(snapshot, gathering.specs, live, gathering.spec.replicas or 0):
            return self._untouched(ctx, "NotTakenOver", f"{why}. Until then nothing is touched")
        leads = leader_of(snapshot)
        status = replace(
            _status(ctx), formed_cluster_before=True, leader=leads.name if leads is not None else None
        )
        ctx.show(status)
        why = "a cluster that HarmonyCloud's operator made is taken over; its pods stay"
        ctx.events.normal(ctx.obj, "TakeOver", why)
        return ctx.act("TakeOver", self._take_over, ctx, gathering, live, message=why, record=True)

    def _reach(self, ctx: Context[RedisCluster]) -> str:
        """As far as a Role reaches, or everywhere."""
        return ctx.key.namespace if self._namespaced else ""

    def _untouched(self, ctx: Context[RedisCluster], reason: str, message: str) -> Wait:
        ctx.show(replace(_status(ctx), reason=message, reason_type=reason))
        return ctx.wait(reason, message, after=LOOK_AT_REFUSED, stalled=reason != "Paused")

    async def _take_over(
        self, ctx: Context[RedisCluster], gathering: Gathering, live: apps.StatefulSet
    ) -> None:
        """Labels first, so that no Service is without pods; what says that it is ours comes last, so this is repeated."""
        await self._label(ctx, live)
        names = gathering.names
        await select_ours(ctx, (ctx.children.find(core.Service, one) for one in (names.service, names.entry)))
        if rolls_itself(live):
            await stop_rolling(ctx, live)
        await self._apply(ctx, gathering, gathering.found)

    async def _pods_of(self, ctx: Context[RedisCluster], live: apps.StatefulSet) -> list[core.Pod]:
        """Asked of the API server: the cache has pods with our labels alone."""
        found = await self._manager.client.live.list(
            core.Pod, namespace=ctx.key.namespace, label_selector=pods_selector(live)
        )
        owners = ((one, controller_of(one)) for one in found.items)
        return [one for one, owner in owners if owner is not None and owner.uid == live.metadata.uid]

    async def _label(self, ctx: Context[RedisCluster], live: apps.StatefulSet) -> None:
        if not await label(ctx, live, await self._pods_of(ctx, live)):
            await self._manager.clock.sleep(AFTER_FAILURE)  # the cache has not heard of them yet

    # --- before there is anything --------------------------------------------------------------------------

    def _not_begun(self, ctx: Context[RedisCluster], gathering: Gathering, *, paused: bool) -> Outcome | None:
        unknown = self._unknown.of(ctx.key)
        if paused:
            begin = "spec.pause: nothing is created while it is true; set it to false to begin"
            message = "; ".join([begin, *unknown])
            ctx.show(replace(_status(ctx), reason=message, reason_type="Paused"))
            return ctx.wait("Paused", message, after=self._look_again)
        if gathering.blocked is not None:
            blocked = gathering.blocked
            message = "; ".join([blocked.message, *unknown])
            why = moves.Wait(reason=blocked.reason, message=message, after=self._look_again, stalled=True)
            status = replace(_status(ctx), phase="Failed", reason=message, reason_type=blocked.reason)
            return self._fail(ctx, status, why)
        return None

    def _children(self, ctx: Context[RedisCluster], gathering: Gathering) -> Outcome | None:
        drift = ctx.children.diff(gathering.specs.objects(), keep=self._mounted(ctx, gathering))
        if drift.foreign:
            why = moves.Wait(reason="NameTaken", message=_taken(drift), after=30.0, stalled=True)
            status = replace(_status(ctx), phase="Failed", reason=why.message, reason_type=why.reason)
            return self._fail(ctx, status, why)
        if drift:
            if gathering.live is None:
                nodes, formed = gathering.found.replicas or gathering.spec.replicas or 0, gathering.formed
                self._tell(ctx.obj, events.of_beginning(nodes=nodes, formed=formed))
            return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift))
        goes = gathering.claims_go
        wrong = [claim for claim in self._claims.of(ctx.key) if owned(ctx.obj, claim) is not goes]
        return ctx.act("OwnClaims", own_claims, ctx, wrong, goes) if wrong else None

    def _mounted(self, ctx: Context[RedisCluster], gathering: Gathering) -> list[tuple[type[Object], str]]:
        """Content-named ConfigMaps that a pod or the template in place still refers to."""
        return mounted_config_maps([gathering.live], self._pods.of(ctx.key))

    # --- the look ------------------------------------------------------------------------------------------

    def _show(self, ctx: Context[RedisCluster], gathering: Gathering, snapshot: Snapshot) -> None:
        hosts = {
            pod.metadata.name or "": (pod.status.host_ip if pod.status else None) or ""
            for pod in self._pods.of(ctx.key)
        }
        status = described(
            _status(ctx), snapshot, names=gathering.names, namespace=ctx.key.namespace, hosts=hosts
        )
        if status.slot_plan is not None:
            plan = progress(status.slot_plan, snapshot, last=self._said.get(ctx.key))
            if plan is not status.slot_plan:
                self._said[ctx.key] = snapshot.now
                status = replace(status, slot_plan=plan)
        ctx.show(status)

    def _conclude(
        self,
        ctx: Context[RedisCluster],
        gathering: Gathering,
        snapshot: Snapshot,
        verdict: moves.Verdict,
        *,
        paused: bool,
    ) -> Outcome:
        blocked = gathering.blocked
        before = _status(ctx)
        failing = self._failing.said(ctx.key, snapshot.now)
        status = phase_of(before, snapshot, verdict, blocked, timeout=self._timeout, failing=failing)
        ctx.show(status)
        serving = leader_of(snapshot) is not None or (
            bool(snapshot.seen.owners) and not snapshot.seen.absent_owners
        )
        ready = snapshot.recorded.formed and serving
        said = status.reason or "all slots are served"
        ctx.ready(ready, "Serving" if ready else status.phase or "Creating", said)
        if paused:
            todo = (
                f"; {verdict.name} is left undone: {verdict.why}" if isinstance(verdict, moves.Move) else ""
            )
            message = f"spec.pause: nothing is changed{todo}"
            ctx.show(replace(status, phase=before.phase, reason=message, reason_type="Paused"))
            return ctx.wait("Paused", message, after=self._look_again)
        changes = events.of_change(before, status, verdict)
        self._tell(ctx.obj, changes)
        if isinstance(verdict, moves.Move):
            failures = {UNEXPECTED, *SLOTS_FAILED.values()} & {before.reason_type, status.reason_type}
            other = bool(failures) and status.reason_type != before.reason_type
            further = self._said.get(ctx.key) == snapshot.now
            return self._act(ctx, gathering, snapshot, verdict, record=bool(changes) or other or further)
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

    def _act(
        self,
        ctx: Context[RedisCluster],
        gathering: Gathering,
        snapshot: Snapshot,
        move: moves.Move,
        *,
        record: bool,
    ) -> Act:
        """``record``: what is said now is written before; a phase that was told of is not told of again then."""
        self._tell(ctx.obj, events.of_move(move, snapshot))
        if isinstance(move, moves.Record):
            ctx.show(_recorded(_status(ctx), move))
            return ctx.act("Record", _nothing, message=move.why, record=True)
        if isinstance(move, passwords.PasswordMove):
            if isinstance(move, passwords.Publish | passwords.Switch):
                ctx.events.normal(ctx.obj, "PasswordChanged", move.why)
            return ctx.act(move.name, self._rekey, ctx, gathering, move, message=move.why, record=record)
        step = self._database if is_database_move(move) else self._kubernetes
        record = record or isinstance(move, moves.Resize | moves.Expel)
        return ctx.act(move.name, step, ctx, gathering, snapshot, move, message=move.why, record=record)

    async def _database(
        self, ctx: Context[RedisCluster], gathering: Gathering, snapshot: Snapshot, move: moves.Move
    ) -> bool:
        """A failed step does not mark the cluster as failed; the next pass decides again."""
        ctx.log.info("step", step=move.name, why=move.why)
        if isinstance(move, moves.Expel) and await self._has_pods_at(ctx, gathering, move.addresses):
            await self._manager.clock.sleep(AFTER_FAILURE)  # the cache has not heard of them yet
            return False
        try:
            await Steps(self._dial(gathering), password=gathering.found.kept.password).run(move)
        except (StepFailed, DialError) as error:
            said = said_of(move, str(error))
            ctx.log.warning("step did not get through", step=move.name, error=said)
            self._tell(ctx.obj, self._failing.failed(ctx.key, move, snapshot, said))
            if isinstance(move, moves.MoveSlots):
                self._tries.failed(ctx.key)
                await self._note(ctx, failed(_status(ctx), said, now=ctx.now()))
            else:
                self._failing.stuck(ctx.key, move, said, snapshot.now)
                await self._manager.clock.sleep(AFTER_FAILURE)
            return False
        self._failing.forget(ctx.key)
        if isinstance(move, moves.MoveSlots):
            self._tries.forget(ctx.key)
            await self._note(ctx, got_through(_status(ctx)))
            return False  # a part of the way: a slot with many keys takes as many steps as it takes
        return True

    async def _has_pods_at(
        self, ctx: Context[RedisCluster], gathering: Gathering, addresses: Collection[str]
    ) -> bool:
        """Asked of the API server: a pod that the cache does not have yet is no stranger."""
        if gathering.live is None:
            return True
        pods = await self._pods_of(ctx, gathering.live)
        ips = {(pod.status.pod_ip if pod.status else None) or "" for pod in pods}
        return any(address.rpartition(":")[0].strip("[]") in ips for address in addresses)

    async def _note(self, ctx: Context[RedisCluster], status: RedisClusterStatus) -> None:
        """Write a status down if it says more than the one there is."""
        if status != _status(ctx):
            ctx.show(status)
            await ctx.record()

    def _tell(self, cluster: RedisCluster, events: Sequence[events.Told]) -> None:
        for one in events:
            record = self._manager.events.warning if one.warning else self._manager.events.normal
            record(cluster, one.reason, one.message)

    def _fail(
        self, ctx: Context[RedisCluster], status: RedisClusterStatus, why: Wait | moves.Wait
    ) -> Outcome:
        """Show a status in which nothing can be made, and tell of it once."""
        verdict = moves.Wait(reason=why.reason, message=why.message, stalled=why.stalled)
        self._tell(ctx.obj, events.of_change(_status(ctx), status, verdict))
        ctx.show(status)
        return ctx.wait(why.reason, why.message, after=why.after, stalled=why.stalled)

    async def _rekey(
        self, ctx: Context[RedisCluster], gathering: Gathering, move: passwords.PasswordMove
    ) -> bool:
        """A step of a change of the password: on the servers, or in the Secret that restarting ones read."""
        ctx.log.info("step", step=move.name, why=move.why)
        found, declared = gathering.found, password_of(gathering.spec)
        match move:
            case passwords.Stage():
                found = changed(found, kept=found.kept.staged(declared))
            case passwords.Publish():
                found = changed(found, kept=found.kept.published(), published=rfc3339(ctx.now()))
            case passwords.Drop():
                found = changed(found, kept=Kept(password=found.kept.password), published="")
            case _:
                try:
                    await passwords.carry_out(self._dial(gathering), move, found.kept)
                except DialError as error:
                    ctx.log.warning("step did not get through", step=move.name, error=str(error))
                    await self._manager.clock.sleep(AFTER_FAILURE)
                    return False
                return True
        await self._apply(ctx, gathering, found)
        return True

    async def _kubernetes(
        self, ctx: Context[RedisCluster], gathering: Gathering, snapshot: Snapshot, move: moves.Move
    ) -> None:
        """What the API server refuses is told of by the step's own name too."""
        ctx.log.info("step", step=move.name, why=move.why)
        try:
            await self._write(ctx, gathering, move)
        except (BadRequest, Forbidden, Invalid) as error:
            self._tell(ctx.obj, self._failing.failed(ctx.key, move, snapshot, str(error)))
            raise
        self._failing.forget(ctx.key)

    async def _write(self, ctx: Context[RedisCluster], gathering: Gathering, move: moves.Move) -> None:
        """The moves that are writes to Kubernetes: whole objects, applied as always."""
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
        if Specs(ctx.obj, found).taken_over and isinstance(move, moves.WriteTemplate | moves.RestoreTemplate):
            await self._put_template(ctx, gathering, found)
        await self._apply(ctx, gathering, found)

    async def _put_template(self, ctx: Context[RedisCluster], gathering: Gathering, found: Found) -> None:
        """As a whole, since fields of HarmonyCloud's operator are in it; after what its pods will mount."""
        objects = Specs(ctx.obj, found).objects()
        rest = [one for one in objects if not isinstance(one, apps.StatefulSet)]
        kept = [(type(one), one.metadata.name or "") for one in objects]
        await ctx.children.apply(ctx.children.diff(rest, keep=[*kept, *self._mounted(ctx, gathering)]))
        for one in objects:
            if isinstance(one, apps.StatefulSet) and one.spec is not None:
                template = to_dict(one.spec.template or core.PodTemplateSpec())
                await put_template(ctx, one, template, annotations=one.metadata.annotations or {})

    async def _apply(self, ctx: Context[RedisCluster], gathering: Gathering, found: Found) -> None:
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
        pods: Sequence[core.Pod],
        nodes: Informer[core.Node] | None,
    ) -> None:
        self._ctx, self._pods, self._nodes = ctx, pods, nodes

    def find(self, kind: type[K], name: str) -> K | None:
        return self._ctx.children.find(kind, name)

    def pods(self) -> list[core.Pod]:
        return list(self._pods)

    def node(self, name: str) -> core.Node | None:
        return self._nodes.get(Key("", name)) if self._nodes is not None else None


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


def _taken(drift: Drift) -> str:
    return "; ".join(map(str, drift.foreign)) + "; rename the cluster, or delete that object"


def _unmet(cluster: RedisCluster, gathering: Gathering) -> list[str]:
    """What a cluster that works well still does not follow of its declaration."""
    said = unmet(cluster, gathering.specs, gathering.live)
    if refused := gathering.specs.refused():
        said.append(f"spec.pod[0]: {refused}; correct it")
    _, dropped = template_lines(gathering.found.template)
    if dropped and not gathering.specs.taken_over:  # HarmonyCloud's pods need them as long as there are any
        where = f"ConfigMap {pod_of(gathering.spec).configmap}"
        said.append(f"{where}: {', '.join(dropped)} is for the operator to decide; remove it")
    return said


def _cluster_key(obj: Object) -> list[Key]:
    return keys_of(obj, cluster_of)


def _belongings(manager: Manager, kind: type[K], namespaces: Sequence[str]) -> ClusterIndex[K]:
    return ClusterIndex(
        manager, kind, selector=MANAGED_SELECTOR, cluster_of=cluster_of, namespaces=namespaces
    )


def register(
    manager: Manager,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    workers: int = 8,
    timeout: float = TIMEOUT,
    look_again: float = LOOK_AGAIN,
    grace: float = passwords.GRACE,
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
