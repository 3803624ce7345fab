"""The next safe move. Pure."""

from dataclasses import dataclass

from memcached_operator.dial import Server
from memcached_operator.inputs import PAUSE
from memcached_operator.snapshot import Snapshot
from mooring.actor import InSync, Move, Verdict, Wait
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.retries import spaced
from mooring.operators.workload.rollout import HandOver, hopeless
from mooring.operators.workload.waits import while_paused

LOOK_AGAIN = 30.0
"""Seconds between two reconciles at rest: no watch reports a setting that somebody changed on a server."""


@dataclass(frozen=True, kw_only=True)
class Configure(Move):
    """Change a setting of one running server."""

    pod: Pod
    command: str


def next_step(snapshot: Snapshot) -> Verdict:
    """What is to be done, unless it is paused or failed a moment ago."""
    verdict, inputs = decide(snapshot), snapshot.inputs
    if inputs.paused:
        return while_paused(verdict, PAUSE)
    return spaced(verdict, inputs.status.failure, snapshot.now)


def decide(snapshot: Snapshot) -> Verdict:
    """Live settings first, they cost nothing; then the roll-out, one server at a time, since each loses its items."""
    rollout, starts = snapshot.rollout, starting(snapshot)
    step: Verdict | HandOver | None
    step = configure(snapshot) or rollout.begin() or replaced(snapshot) or rollout.advance(wait=starts)
    assert not isinstance(step, HandOver)  # no server leads
    return step or rollout.end() or rollout.halt() or starts or InSync(again=LOOK_AGAIN)


def configure(snapshot: Snapshot) -> Configure | None:
    """The next setting of a running server that differs from the declared one."""
    memory, verbosity = snapshot.inputs.spec.memory_megabytes, snapshot.inputs.spec.verbosity
    for pod in snapshot.rollout.pods:
        server = snapshot.answers.get(pod.name)
        if isinstance(server, Server) and server != (memory, verbosity):
            changed = server.memory_megabytes != memory
            command = f"cache_memlimit {memory}" if changed else f"verbosity {verbosity}"
            return Configure(pod=pod, command=command, why=f"{pod.name}: {command}")
    return None


def replaced(snapshot: Snapshot) -> Move | None:
    """Recreate a pod of an older template that does not serve: no client loses anything, and a roll waits for it."""
    for pod in snapshot.rollout.old:
        if not pod.terminating and not snapshot.serves(pod):
            return snapshot.rollout.recreate(pod, f"{pod.name} does not serve and runs an older template")
    return None


def starting(snapshot: Snapshot) -> Wait | None:
    """The first server that does not serve, or pods that are missing or too many."""
    pods, wanted = snapshot.rollout.pods, snapshot.inputs.spec.replicas
    for pod in pods:
        if not snapshot.serves(pod):
            stuck, text = hopeless(pod, snapshot.now), pod.trouble_message or "no answer yet"
            reason = pod.trouble if stuck else "PodsStarting"
            return Wait(reason, f"{pod.name}: {text}", after=5.0, stalled=stuck)
    if len(pods) != wanted:
        return Wait("Scaling", f"{len(pods)} of {wanted} pods are there", after=5.0)
    return None
