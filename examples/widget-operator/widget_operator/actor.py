"""The rooms put together; `mooring.actor.Planned` has their order."""

from collections.abc import Sequence

from mooring.actor import Context, Move, Outcome, Planned, Related, Report, Verdict, run_actor
from mooring.kube.objects import apps, core
from mooring.operators.workload import effects
from mooring.operators.workload.moves import DeletePod, RestoreTemplate, WriteTemplate
from mooring.operators.workload.statefulset import set_key
from mooring.runtime import Manager

from widget_operator import inputs, plan, snapshot, status
from widget_operator.inputs import Inputs
from widget_operator.snapshot import Snapshot
from widget_operator.specs import INPUTS, Specs
from widget_operator.types import Widget


class WidgetActor(Planned[Widget, Inputs, Snapshot]):
    kind = Widget
    name = "widget"
    owns = (core.Service, apps.StatefulSet)
    related = (Related(core.Pod, set_key),)

    async def inputs(self, ctx: Context[Widget]) -> Inputs:
        return inputs.read(ctx)

    def children(self, ctx: Context[Widget], inputs: Inputs) -> Outcome | None:
        if inputs.paused:
            return None
        drift = ctx.children.settle(Specs(ctx.key.name, inputs).objects, given=None)
        if drift.foreign:
            return ctx.wait("NameTaken", f"{drift.taken}; delete or rename it", stalled=True)
        return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift)) if drift else None

    async def snapshot(self, ctx: Context[Widget], inputs: Inputs) -> Snapshot:
        return snapshot.look(inputs, Specs(ctx.key.name, inputs), ctx.now())

    def plan(self, snapshot: Snapshot) -> Verdict:
        return plan.next_step(snapshot)

    def report(self, ctx: Context[Widget], inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
        return status.report(snapshot, verdict, Specs(ctx.key.name, inputs).selector)

    async def step(self, ctx: Context[Widget], inputs: Inputs, snapshot: Snapshot, move: Move) -> None:
        match move:
            case WriteTemplate():
                specs = Specs(ctx.key.name, inputs)
                await effects.write_template(ctx, specs.declared(), annotations={INPUTS: specs.inputs})
            case RestoreTemplate(inputs=good) if inputs.found is not None:
                await effects.restore_template(ctx, move, inputs.found, annotations={INPUTS: good})
            case DeletePod():
                await effects.delete_pod(ctx, move)


def register(
    manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = (), workers: int = 8
) -> None:
    """Put the operator onto a manager; see `mooring.operators.operator.Operator`."""
    run_actor(WidgetActor(), manager, namespaces=namespaces, workers=workers)
