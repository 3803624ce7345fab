"""Everything that a decision and a report are made from, at one moment."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memcached_operator.dial import Dial, DialError, Server
from memcached_operator.inputs import Inputs
from memcached_operator.specs import INPUTS, Specs
from mooring.operators.workload.pods import Pod, pods_of
from mooring.operators.workload.rollout import Rollout
from mooring.operators.workload.statefulset import state_of

REMEDIES = dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "InvalidImageName"), "correct spec.image")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    inputs: Inputs
    rollout: Rollout
    answers: Mapping[str, Server | str]
    """By pod: its server, or why it does not answer."""
    now: datetime

    def serves(self, pod: Pod) -> bool:
        return pod.ready and not pod.terminating and isinstance(self.answers.get(pod.name), Server)


async def look(inputs: Inputs, specs: Specs, dial: Dial, now: datetime) -> Snapshot:
    """Ask every server."""
    found = inputs.found
    uid = (found.metadata.uid if found is not None else None) or ""
    pods = pods_of(inputs.pods, component="memcached", owner_uid=uid, claims={}, born=None, remedies=REMEDIES)
    answers = await asyncio.gather(*(_ask(dial, pod) for pod in pods))
    state = state_of(found, replicas=inputs.spec.replicas, asked=specs.inputs, annotation=INPUTS)
    silent, rolls = {pod.name: _age(pod, now) for pod in pods if not pod.ready}, inputs.status.rolls or {}
    rollout = Rollout(component="memcached", state=state, pods=pods, rolls=rolls, now=now, silent=silent)
    named = dict(zip((pod.name for pod in pods), answers, strict=True))
    return Snapshot(inputs=inputs, rollout=rollout, answers=named, now=now)


async def _ask(dial: Dial, pod: Pod) -> Server | str:
    try:
        return await dial.look(pod.ip) if pod.running and pod.ip else pod.trouble_message
    except DialError as error:
        return str(error)


def _age(pod: Pod, now: datetime) -> float:
    """Seconds since its server started, at least."""
    return (now - max(filter(None, (pod.created, pod.died_at)), default=now)).total_seconds()
