"""Everything that a decision and a report are made from, at one moment."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memcached_operator.dial import Dial, DialError, Server
from memcached_operator.inputs import Inputs
from memcached_operator.specs import Specs
from mooring.operators.workload.pods import Pod, pods_of
from mooring.operators.workload.rollout import Rollout, SetState

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
    found, uid, revision = inputs.found, "", ""
    if found is not None:
        uid, status = found.metadata.uid or "", found.status
        if status is not None and status.observed_generation == found.metadata.generation:
            revision = status.update_revision or ""
    pods = pods_of(inputs.pods, component="memcached", owner_uid=uid, claims={}, born=None, remedies=REMEDIES)
    answers = await asyncio.gather(*(_ask(dial, pod) for pod in pods))
    state = SetState(
        replicas=inputs.spec.replicas,
        update_revision=revision,
        current=specs.made_from == specs.inputs,
        inputs=specs.made_from,
        asked=specs.inputs,
    )
    rollout = Rollout(
        component="memcached",
        state=state,
        pods=pods,
        rolls=inputs.status.rolls or {},
        now=now,
        silent={pod.name: _age(pod, now) for pod in pods if not pod.ready},
    )
    named = dict(zip((pod.name for pod in pods), answers, strict=True))
    return Snapshot(inputs=inputs, rollout=rollout, answers=named, now=now)


async def _ask(dial: Dial, pod: Pod) -> Server | str:
    try:
        return await dial.look(pod.ip) if pod.running and pod.ip else pod.trouble_message
    except DialError as error:
        return str(error)


def _age(pod: Pod, now: datetime) -> float:
    """Seconds since its server started, at least."""
    since = max(filter(None, (pod.created, pod.died_at)), default=now)
    return (now - since).total_seconds()
