"""The next safe move. Pure: the same snapshot always gives the same move, so tests need no cluster."""

from mooring.actor import InSync, Move, Verdict, Wait
from mooring.operators.workload.rollout import HandOver, hopeless
from mooring.operators.workload.waits import while_paused

from widget_operator.inputs import PAUSE
from widget_operator.snapshot import Snapshot


def next_step(snapshot: Snapshot) -> Verdict:
    """What is to be done, unless it is paused."""
    verdict = decide(snapshot)
    return while_paused(verdict, PAUSE) if snapshot.inputs.paused else verdict


def decide(snapshot: Snapshot) -> Verdict:
    """Roll out what is declared, one server at a time: the next one goes when all others serve."""
    rollout, starts = snapshot.rollout, starting(snapshot)
    step: Verdict | HandOver | None
    step = rollout.begin() or replaced(snapshot) or rollout.advance(wait=starts)
    assert not isinstance(step, HandOver)  # no server leads
    return step or rollout.end() or rollout.halt() or starts or InSync()


def replaced(snapshot: Snapshot) -> Move | None:
    """Recreate a pod of an older template that does not serve: no client loses anything by it."""
    for pod in snapshot.rollout.old:
        if not pod.terminating and not snapshot.serves(pod):
            return snapshot.rollout.recreate(pod, f"{pod.name} does not serve and runs an older template")
    return None


def starting(snapshot: Snapshot) -> Wait | None:
    """The first server that does not serve, or pods that are missing or too many."""
    pods, wanted = snapshot.rollout.pods, snapshot.inputs.spec.replicas
    for pod in pods:
        if not snapshot.serves(pod):
            stuck, text = hopeless(pod, snapshot.now), pod.trouble_message or "it is starting"
            reason = pod.trouble if stuck else "PodsStarting"
            return Wait(reason, f"{pod.name}: {text}", after=5.0, stalled=stuck)
    if len(pods) != wanted:
        return Wait("Scaling", f"{len(pods)} of {wanted} pods are there", after=5.0)
    return None
