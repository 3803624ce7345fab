"""The actors of what runs under a Deployment and has no state: proxies and dashboards.

A Deployment surges one pod and misses none. A proxy hands no session over when it stops, so it is rolled only when its
own declaration changed: the template in place is kept until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    InSync,
    Move,
    Outcome,
    Planned,
    Report,
    Terminal,
    Verdict,
    Wait,
)
from mooring.kube.object import Key, Object, controller_of
from mooring.kube.objects import apps, core, policy
from mooring.operators.matrixone import kruise
from mooring.operators.matrixone.conditions import with_synced
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.depends import log_set_of, needs_cn_set, needs_log_set
from mooring.operators.matrixone.names import INPUTS, SQL, ProxyNames, UINames
from mooring.operators.matrixone.remedies import remedies_of
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.specs import Credential, LogService, ProxySpecs, UISpecs
from mooring.operators.matrixone.stateful import kept_configs, same_template
from mooring.operators.matrixone.takeover import orphans
from mooring.operators.matrixone.takeover_steps import Declared, release, take_over
from mooring.operators.matrixone.types import LogSet, ProxySet, ProxySetStatus, WebUI, WebUIStatus
from mooring.operators.workload.credentials import secret_value
from mooring.operators.workload.effects import delete_pod
from mooring.operators.workload.moves import DeletePod
from mooring.operators.workload.pods import Pod, pod_of
from mooring.operators.workload.rollout import hopeless

__all__ = ["ProxySetActor", "WebUIActor"]

T = TypeVar("T", ProxySet, WebUI)
_DEFAULT: Final = Credential(username="dump", password="111")  # noqa: S106 - what every server begins with


@dataclass(frozen=True, kw_only=True)
class Inputs(Generic[T]):
    """What a pass found."""

    owner: T = field(repr=False)
    log_set: LogSet | None = field(default=None, repr=False)
    found: apps.Deployment | None = field(default=None, repr=False)
    credential: Credential = field(default=_DEFAULT, repr=False)
    waiting: str = ""
    blocked: Terminal | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One look at a Deployment."""

    replicas: int
    ready: int = 0
    updated: int = 0
    there: int = 0
    seen: bool = False
    """Its controller has seen the newest declaration."""
    stuck: str = ""
    """Why its pods make no progress, by its own word."""
    waiting: str = ""
    """Which dependency holds back a change of its pods."""
    now: datetime
    pods: tuple[Pod, ...] = ()
    """Those of the Deployment."""
    left: tuple[Pod, ...] = ()
    """Pods of a workload that is gone: those that upstream's operator had."""


def decide(snapshot: Snapshot) -> Verdict:
    """There is nothing to do beside its objects, for the Deployment rolls by itself; but for pods that a take-over left."""
    done = snapshot.updated >= snapshot.replicas and snapshot.there == snapshot.updated == snapshot.ready
    if snapshot.seen and done:
        for pod in snapshot.left:
            if pod.terminating:
                return Wait("PodsEnding", f"{pod.name} ends", after=1.0)
            why = f"{pod.name} is of upstream's operator; {snapshot.ready} pods of the Deployment serve in its place"
            return DeletePod(component="proxy", pod=pod.name, uid=pod.uid, version=pod.version, why=why)
        if snapshot.waiting:
            return Wait("DependenciesNotReady", snapshot.waiting, after=5.0)
        return InSync()
    text = f"{snapshot.ready} of {snapshot.replicas} pods are ready, {snapshot.updated} are as declared"
    if snapshot.stuck:
        text = f"{text}: {snapshot.stuck}"
    bad = next((one for one in snapshot.pods if hopeless(one, snapshot.now)), None)
    if bad is not None:
        text = f"{text}; {bad.name}: {bad.trouble_message}"
    if snapshot.stuck or bad is not None:
        return Wait(
            "RollHalted" if bad is None or snapshot.stuck else bad.trouble, text, after=5.0, stalled=True
        )
    return Wait("PodsStarting", text, after=5.0)


class _Deployed(Planned[T, Inputs[T], Snapshot]):
    owns = (core.Service, core.ConfigMap, apps.Deployment, policy.PodDisruptionBudget)

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def precede(self, ctx: Context[T]) -> Outcome | None:
        """Nothing is done while upstream's operator runs; what it made is taken over first."""
        if (waits := self._around.left_alone(ctx)) is not None:
            return waits
        main = self.main(ctx.obj)
        found = ctx.children.find(apps.Deployment, main) is not None
        step = await take_over(
            ctx,
            self._around,
            kind=kruise.CloneSet,
            main=main,
            made=found,
            pods=self._around.pods(type(ctx.obj), ctx.key),
            look=partial(self._declared, ctx),
        )
        return step or (release(ctx) if found else None)

    async def _declared(
        self,
        ctx: Context[T],
        workload: Object | None,
        claims: Sequence[core.PersistentVolumeClaim],
    ) -> Declared:
        """What it works with is taken over first."""
        unmet, blocked = ctx.unmet(), blocked_by(with_defaults(ctx.obj))
        return Declared(
            refusal=blocked.message if blocked is not None else "",
            trouble=self._around.taken_over_first(LogSet, self.log_set(ctx.obj))
            or (unmet.message if unmet is not None else ""),
        )

    def main(self, owner: T) -> str:
        """The Deployment's name."""
        raise NotImplementedError

    def objects(self, inputs: Inputs[T]) -> Iterable[Object]:
        """The child objects."""
        raise NotImplementedError

    def log_set(self, owner: T) -> Key | None:
        """The LogSet it works with."""
        return None

    def status(self, inputs: Inputs[T], snapshot: Snapshot) -> Any:
        """The status, without conditions."""
        raise NotImplementedError

    async def inputs(self, ctx: Context[T]) -> Inputs[T] | Outcome:
        """The declaration; the first pods wait for what they work with."""
        owner = with_defaults(ctx.obj)
        found = ctx.children.find(apps.Deployment, self.main(owner))
        blocked, unmet = blocked_by(owner), ctx.unmet()
        if found is None and (blocked or unmet) is not None:
            return blocked or unmet  # type: ignore[return-value]
        key = self.log_set(owner)
        log_set = ctx.client.find(LogSet, key.name, namespace=key.namespace) if key is not None else None
        return Inputs(
            owner=owner,
            log_set=with_defaults(log_set) if log_set is not None else None,
            found=found,
            waiting=unmet.message if unmet is not None else "",
            blocked=blocked,
        )

    def children(self, ctx: Context[T], inputs: Inputs[T]) -> Outcome | None:
        """The step that brings the child objects in line."""
        if inputs.blocked is not None or (inputs.log_set is None and self.log_set(inputs.owner) is not None):
            return None
        # The template in place is kept while a roll is held back, and pods of it may have to start again.
        keep = kept_configs(ctx, [inputs.found], self._around.pods(type(ctx.obj), ctx.key))
        spec = inputs.log_set.spec if inputs.log_set is not None else None
        given = (spec, inputs.waiting, inputs.credential)
        drift = ctx.children.settle(lambda: self._in_place(inputs), given=given, keep=keep)
        if drift.foreign:
            return ctx.wait(
                "NameTaken", f"{drift.taken}; rename this object, or delete that one", stalled=True
            )
        return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift)) if drift else None

    def _in_place(self, inputs: Inputs[T]) -> Iterable[Object]:
        """The Deployment with the template in place, unless the user's inputs changed and nothing holds it back."""
        for one in self.objects(inputs):
            yield (
                _keeping(one, inputs.found, hold=bool(inputs.waiting))
                if isinstance(one, apps.Deployment)
                else one
            )

    async def snapshot(self, ctx: Context[T], inputs: Inputs[T]) -> Snapshot:
        """What the Deployment's controller reports."""
        found, declared = inputs.found, inputs.owner.spec
        status = (found.status if found is not None else None) or apps.DeploymentStatus()
        stuck = next((one.message for one in status.conditions or () if _is_stuck(one)), "")
        pods = self._around.pods(type(ctx.obj), ctx.key)
        see = partial(pod_of, component="main", claims={}, born=None, remedies=remedies_of(inputs.log_set))
        held = found is not None and bool(inputs.waiting) and _inputs_of(found) != self._asked(inputs)
        return Snapshot(
            replicas=(declared.replicas if declared is not None else None) or 0,
            ready=status.ready_replicas or 0,
            updated=status.updated_replicas or 0,
            there=status.replicas or 0,
            seen=found is not None and status.observed_generation == found.metadata.generation,
            stuck=stuck or "",
            waiting=inputs.waiting if held else "",
            pods=tuple(see(one) for one in pods if _is_deployed(one)),
            left=tuple(see(one) for one in orphans(pods)),
            now=ctx.now(),
        )

    def _asked(self, inputs: Inputs[T]) -> str:
        return next((_inputs_of(one) for one in self.objects(inputs) if isinstance(one, apps.Deployment)), "")

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `decide`."""
        return decide(snapshot)

    def report(self, ctx: Context[T], inputs: Inputs[T], snapshot: Snapshot, verdict: Verdict) -> Report:
        """The status, readiness and events of one pass."""
        made = self.status(inputs, snapshot)
        conditions = with_synced(
            made.conditions,
            inputs.blocked or verdict,
            generation=inputs.owner.metadata.generation,
            now=ctx.now(),
        )
        serving = snapshot.ready + sum(one.ready and not one.terminating for one in snapshot.left)
        ready = serving >= snapshot.replicas
        text = f"{serving} of {snapshot.replicas} pods are ready"
        state = ConditionState(ready, "Serving" if ready else "NotServing", text)
        return Report(status=replace(made, conditions=conditions), ready=state, instead=inputs.blocked)

    async def step(self, ctx: Context[T], inputs: Inputs[T], snapshot: Snapshot, move: Move) -> None:
        """Delete a pod that a take-over left."""
        if isinstance(move, DeletePod):
            await delete_pod(ctx, move)


class ProxySetActor(_Deployed[ProxySet]):
    """Observes one ProxySet and acts upon it."""

    kind = ProxySet
    name: Final = "matrixone-proxyset"
    dependencies = (needs_log_set,)

    def main(self, owner: ProxySet) -> str:
        """The Deployment's name."""
        return ProxyNames(owner).main

    def log_set(self, owner: ProxySet) -> Key | None:
        """The LogSet it works with."""
        return log_set_of(owner)

    def objects(self, inputs: Inputs[ProxySet]) -> Iterable[Object]:
        """The child objects."""
        assert inputs.log_set is not None
        return ProxySpecs(inputs.owner, LogService.of(inputs.log_set)).objects()

    def status(self, inputs: Inputs[ProxySet], snapshot: Snapshot) -> ProxySetStatus:
        """Where clients connect to."""
        names = ProxyNames(inputs.owner)
        before = inputs.owner.status or ProxySetStatus()
        return replace(before, host=f"{names.main}.{names.namespace}.svc", port=SQL)


class WebUIActor(_Deployed[WebUI]):
    """Observes one WebUI and acts upon it."""

    kind = WebUI
    name: Final = "matrixone-webui"
    dependencies = (needs_cn_set,)
    owns_by_metadata = (core.Secret,)

    async def inputs(self, ctx: Context[WebUI]) -> Inputs[WebUI] | Outcome:
        """As for all, and the SQL user that it reads as."""
        made = await super().inputs(ctx)
        if not isinstance(made, Inputs):
            return made
        name = f"{ctx.key.name}-credential"
        secret = await ctx.children.read(core.Secret, name)
        if secret is not None:
            credential = Credential(
                username=secret_value(secret, "username"),
                password=secret_value(secret, "password"),
                version=secret.metadata.resource_version or "",
            )
            made = changed(made, credential=credential)
        for one in self.objects(made):
            if isinstance(one, core.Secret):
                await ctx.children.read(core.Secret, one.metadata.name or "")
        return made

    def main(self, owner: WebUI) -> str:
        """The Deployment's name."""
        return UINames(owner).main

    def objects(self, inputs: Inputs[WebUI]) -> Iterable[Object]:
        """The child objects."""
        return UISpecs(inputs.owner, inputs.credential).objects()

    def status(self, inputs: Inputs[WebUI], snapshot: Snapshot) -> WebUIStatus:
        """Nothing of its own."""
        return inputs.owner.status or WebUIStatus()


def _inputs_of(one: apps.Deployment) -> str:
    return (one.metadata.annotations or {}).get(INPUTS, "")


def _keeping(declared: apps.Deployment, found: apps.Deployment | None, *, hold: bool) -> apps.Deployment:
    if found is None or found.spec is None or declared.spec is None:
        return declared
    live = found.spec.template
    changed_by_user = _inputs_of(found) != _inputs_of(declared)
    if live is None or (changed_by_user and not hold):
        return declared
    if not changed_by_user and same_template(declared.spec.template, live):
        return declared
    notes = {**(declared.metadata.annotations or {}), INPUTS: _inputs_of(found)}
    metadata = replace(declared.metadata, annotations=notes, resource_version=found.metadata.resource_version)
    return replace(declared, metadata=metadata, spec=replace(declared.spec, template=found.spec.template))


def _is_deployed(pod: core.Pod) -> bool:
    """It belongs to a Deployment, which is to keep it."""
    owner = controller_of(pod)
    return owner is not None and owner.kind == "ReplicaSet" and not pod.metadata.deletion_timestamp


def _is_stuck(one: apps.DeploymentCondition) -> bool:
    return one.type == "Progressing" and one.status == "False"
