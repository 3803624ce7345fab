"""The rooms put together; `mooring.actor.Planned` has their order."""

from collections.abc import Sequence

from msgspec.structs import replace

from memcached_operator import inputs, plan, snapshot, status
from memcached_operator.dial import Dial, DialError
from memcached_operator.inputs import Inputs
from memcached_operator.plan import Configure
from memcached_operator.snapshot import Snapshot
from memcached_operator.specs import INPUTS, Specs
from memcached_operator.types import Memcached, Status
from mooring.actor import Context, Move, Outcome, Planned, Related, Report, StepFailed, Verdict, run_actor
from mooring.kube.objects import apps, core
from mooring.operators.workload import effects
from mooring.operators.workload.adoption import rolls_itself, stop_rolling
from mooring.operators.workload.moves import DeletePod, RestoreTemplate, WriteTemplate
from mooring.operators.workload.retries import failed
from mooring.operators.workload.scope import Scoped
from mooring.operators.workload.statefulset import set_key
from mooring.runtime import Manager


class MemcachedActor(Planned[Memcached, Inputs, Snapshot]):
    kind = Memcached
    name = "memcached"
    owns = (core.Service, core.ConfigMap, apps.StatefulSet)
    related = (Related(core.Pod, set_key),)

    def __init__(self, manager: Manager, *, scope: str, dial: Dial | None) -> None:
        self.scoped = Scoped(manager, Memcached, operator=self.name, scope=scope)
        self._dial = dial or Dial(manager.fence.check)

    def manages(self, obj: Memcached) -> bool:
        return self.scoped.manages(obj)

    async def inputs(self, ctx: Context[Memcached]) -> Inputs:
        return inputs.read(ctx)

    def children(self, ctx: Context[Memcached], inputs: Inputs) -> Outcome | None:
        if inputs.paused:
            return None
        specs = Specs(ctx.key.name, inputs)
        drift = ctx.children.settle(specs.objects, given=None)
        if drift.foreign:
            labels = " ".join(f"{key}={value}" for key, value in specs.labels.items())
            text = f"{drift.taken}; to have it adopted, label it {labels}"
            return ctx.wait("NameTaken", text, stalled=True)
        if inputs.found is not None and rolls_itself(inputs.found):
            return ctx.act("StopRolling", stop_rolling, ctx, inputs.found)
        return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift)) if drift else None

    async def snapshot(self, ctx: Context[Memcached], inputs: Inputs) -> Snapshot:
        return await snapshot.look(inputs, Specs(ctx.key.name, inputs), self._dial, ctx.now())

    def plan(self, snapshot: Snapshot) -> Verdict:
        return plan.next_step(snapshot)

    def report(self, ctx: Context[Memcached], inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
        return status.report(snapshot, verdict, Specs(ctx.key.name, inputs).selector)

    def failed(self, ctx: Context[Memcached], snapshot: Snapshot, move: Move, message: str) -> Status:
        recorded = snapshot.inputs.status
        return replace(recorded, failure=failed(recorded.failure, move, message, snapshot.now))

    async def step(self, ctx: Context[Memcached], inputs: Inputs, snapshot: Snapshot, move: Move) -> None:
        match move:
            case Configure(pod=pod, command=command):
                try:
                    await self._dial.change(pod.ip, command)
                except DialError as error:
                    raise StepFailed(str(error)) from error
                await ctx.did(f"{pod.name}: {command}")
            case WriteTemplate():
                specs = Specs(ctx.key.name, inputs)
                await effects.write_template(ctx, specs.declared(), annotations={INPUTS: specs.inputs})
            case RestoreTemplate(inputs=good) if inputs.found is not None:
                await effects.restore_template(ctx, move, inputs.found, annotations={INPUTS: good})
            case DeletePod():
                await effects.delete_pod(ctx, move)


def register(
    manager: Manager,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    workers: int = 8,
    dial: Dial | None = None,
) -> None:
    """Put the operator onto a manager; see `mooring.operators.operator.Operator`."""
    actor = MemcachedActor(manager, scope=scope, dial=dial)
    run_actor(actor, manager, namespaces=namespaces, workers=workers)
    actor.scoped.serve()
