"""The actor of DNSets: the rooms of a pass put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from mooring.actor import ConditionState, Context, Move, Note, Outcome, Planned, Report, Terminal, Verdict
from mooring.cache import rfc3339
from mooring.kube.object import Object
from mooring.kube.objects import apps, core, policy
from mooring.operators.matrixone.conditions import with_synced
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.depends import NO_LOG_SET, log_set_of, needs_log_set
from mooring.operators.matrixone.dnset.plan import COMPONENT, PAUSE, Snapshot, decide
from mooring.operators.matrixone.dnset.specs import lasting
from mooring.operators.matrixone.identity import tn_uuid
from mooring.operators.matrixone.logset.specs import DATA
from mooring.operators.matrixone.names import INPUTS, DNNames
from mooring.operators.matrixone.remedies import remedies_of
from mooring.operators.matrixone.sets import Surroundings, blocked_by, related
from mooring.operators.matrixone.specs import DNSpecs, LogService
from mooring.operators.matrixone.stateful import Found, claims_by_id, correct, step
from mooring.operators.matrixone.takeover import reserved_trouble
from mooring.operators.matrixone.takeover_steps import Declared, release, take_in
from mooring.operators.matrixone.types import DNSet, DNSetSpec, DNSetStatus, LogSet, Store
from mooring.operators.workload.pods import Pod, pods_of
from mooring.operators.workload.rollout import RecordRolls, Rollout
from mooring.operators.workload.statefulset import made_from, state_of

__all__ = ["DNSetActor"]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pass found outside MatrixOne."""

    dn_set: DNSet = field(repr=False)
    log_set: LogSet = field(repr=False)
    found: Found = field(repr=False)
    waiting: str = ""
    blocked: Terminal | None = None
    asked: str = ""

    @property
    def spec(self) -> DNSetSpec:
        """The declaration."""
        return self.dn_set.spec or DNSetSpec()

    @property
    def status(self) -> DNSetStatus:
        """What earlier passes recorded."""
        return self.dn_set.status or DNSetStatus()


class DNSetActor(Planned[DNSet, Inputs, Snapshot]):
    """Observes one DNSet and acts upon it."""

    kind = DNSet
    name: Final = "matrixone-dnset"
    owns = (core.Service, core.ConfigMap, apps.StatefulSet, policy.PodDisruptionBudget)
    related = related(DNSet, core.PersistentVolumeClaim)
    dependencies = (needs_log_set,)

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def precede(self, ctx: Context[DNSet]) -> Outcome | None:
        """Nothing is done while upstream's operator runs; what it made is taken over first."""
        if (waits := self._around.left_alone(ctx)) is not None:
            return waits
        main = DNNames(ctx.obj).main
        step = await take_in(ctx, self._around, main=main, look=partial(self._declared, ctx))
        found = ctx.children.find(apps.StatefulSet, main)
        return step or (release(ctx) if found is not None else None)

    async def _declared(
        self,
        ctx: Context[DNSet],
        workload: Object | None,
        claims: Sequence[core.PersistentVolumeClaim],
    ) -> Declared:
        """The log service is taken over first."""
        dn_set, key = with_defaults(ctx.obj), log_set_of(ctx.obj)
        unmet, blocked = ctx.unmet(), blocked_by(dn_set)
        log_set = ctx.client.find(LogSet, key.name, namespace=key.namespace) if key is not None else None
        if blocked is not None or log_set is None:
            return Declared(refusal=blocked.message if blocked is not None else NO_LOG_SET.message)
        made = DNSpecs(dn_set, LogService.of(with_defaults(log_set))).stateful_set()
        return Declared(
            digest=made_from(made, INPUTS),
            pods=made.spec.template if made.spec is not None else None,
            refusal=reserved_trouble(workload, claims),
            trouble=self._around.taken_over_first(LogSet, key)
            or (unmet.message if unmet is not None else ""),
        )

    async def inputs(self, ctx: Context[DNSet]) -> Inputs | Outcome:
        """The declaration and the objects around it; the first pods wait for the log service."""
        dn_set = with_defaults(ctx.obj)
        found = Found(
            set=ctx.children.find(apps.StatefulSet, DNNames(dn_set).main),
            pods=self._around.pods(DNSet, ctx.key),
            claims=self._around.claims(DNSet, ctx.key),
        )
        blocked = blocked_by(dn_set)
        if blocked is not None and found.set is None:
            return blocked
        unmet = ctx.unmet()
        if unmet is not None and found.set is None:
            return unmet
        key = log_set_of(dn_set)
        log_set = ctx.client.find(LogSet, key.name, namespace=key.namespace) if key is not None else None
        if log_set is None:
            return unmet or NO_LOG_SET
        waiting = unmet.message if unmet is not None else ""
        made = Inputs(
            dn_set=dn_set, log_set=with_defaults(log_set), found=found, waiting=waiting, blocked=blocked
        )
        if blocked is not None:
            return made
        asked = DNSpecs(dn_set, LogService.of(made.log_set)).inputs()
        return Inputs(dn_set=dn_set, log_set=made.log_set, found=found, waiting=waiting, asked=asked)

    def children(self, ctx: Context[DNSet], inputs: Inputs) -> Outcome | None:
        """The step that brings the child objects in line."""
        if inputs.blocked is not None:
            return None
        given = (inputs.found, inputs.log_set.spec, inputs.asked)
        return correct(ctx, inputs.found, lambda: _objects(inputs), given=given)

    async def snapshot(self, ctx: Context[DNSet], inputs: Inputs) -> Snapshot:
        """Ask HAKeeper."""
        seen = await self._around.see(log_set_of(inputs.dn_set))
        found, spec, now = inputs.found, inputs.spec, ctx.now()
        pods = pods_of(
            found.pods,
            component="main",
            owner_uid=found.uid,
            claims={},
            born=None,
            remedies=remedies_of(inputs.log_set),
        )
        asked = inputs.asked if inputs.blocked is None else made_from(found.set, INPUTS)
        replicas = (spec.replicas or 0) if inputs.blocked is None else (found.placed or 0)
        names = DNNames(inputs.dn_set)
        by_id = claims_by_id(found.claims, f"{DATA}-{names.main}-")
        volume = spec.cache_volume
        return Snapshot(
            replicas=replicas,
            placed=found.placed,
            claims={int(id): one for id, one in by_id.items() if id.isdecimal()},
            size=str(volume.size) if volume is not None and volume.size is not None else "",
            rollout=Rollout(
                component=COMPONENT,
                state=state_of(found.set, replicas=replicas, asked=asked, annotation=INPUTS),
                pods=pods,
                rolls=inputs.status.rolls or {},
                now=now,
                silent=_silent(pods, seen.view.tns if seen.view is not None else {}),
            ),
            view=seen.view,
            error=seen.error,
            waiting=inputs.waiting,
            now=now,
            paused=PAUSE in (inputs.dn_set.metadata.annotations or {}),
        )

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `plan`."""
        return decide(snapshot)

    def report(self, ctx: Context[DNSet], inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
        """The status, readiness and events of one pass."""
        before, now = inputs.status, snapshot.now
        up = [pod for pod in snapshot.pods if snapshot.serves(pod)]
        down = [pod for pod in snapshot.pods if pod not in up]
        status = replace(
            before,
            available_stores=[_store(pod, before, "Up", now) for pod in up] or None,
            failed_stores=[_store(pod, before, "Down", now) for pod in down] or None,
            rolls=(dict(verdict.rolls) if isinstance(verdict, RecordRolls) else before.rolls) or None,
            conditions=with_synced(
                before.conditions,
                inputs.blocked or verdict,
                generation=inputs.dn_set.metadata.generation,
                now=now,
            ),
        )
        ready = len(up) >= max(1, snapshot.replicas)
        text = f"{len(up)} of {snapshot.replicas} transaction nodes are heard"
        if snapshot.view is None:
            text = f"HAKeeper does not answer: {snapshot.error}"
        state = ConditionState(ready, "Serving" if ready else "NotServing", text)
        notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
        return Report(
            status=status,
            ready=state,
            notes=notes,
            instead=inputs.blocked,
            record=isinstance(verdict, RecordRolls),
        )

    async def step(self, ctx: Context[DNSet], inputs: Inputs, snapshot: Snapshot, move: Move) -> None:
        """Carry out a move."""
        if not isinstance(move, RecordRolls):  # that is written already
            await step(ctx, inputs.found, lambda: _objects(inputs), move)


def _silent(pods: list[Pod], stores: object) -> dict[str, float]:
    known = stores if isinstance(stores, dict) else {}
    return {pod.name: known[tn_uuid(pod.ordinal)].heard for pod in pods if tn_uuid(pod.ordinal) in known}


def _store(pod: Pod, before: DNSetStatus, phase: str, now: datetime) -> Store:
    known = [*(before.available_stores or ()), *(before.failed_stores or ())]
    old = next((one for one in known if one.pod_name == pod.name and one.phase == phase), None)
    since = (old.last_transition if old is not None else None) or rfc3339(now)
    reason = (pod.trouble_message or None) if phase == "Down" else None
    return Store(
        pod_name=pod.name, phase=phase, last_transition=since, uuid=tn_uuid(pod.ordinal), reason=reason
    )


def _objects(inputs: Inputs) -> Iterable[Object]:
    for one in DNSpecs(inputs.dn_set, LogService.of(inputs.log_set)).objects():
        yield lasting(one) if isinstance(one, apps.StatefulSet) else one
