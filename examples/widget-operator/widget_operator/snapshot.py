"""Everything that a decision and a report are made from, at one moment.

A database's operator asks its servers here as well, and keeps their answers beside the pods.
"""

from dataclasses import dataclass
from datetime import datetime

from mooring.operators.workload.pods import Pod, pods_of
from mooring.operators.workload.rollout import Rollout
from mooring.operators.workload.statefulset import state_of

from widget_operator.inputs import Inputs
from widget_operator.specs import COMPONENT, INPUTS, Specs

REMEDIES = dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "InvalidImageName"), "correct spec.image")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    inputs: Inputs
    rollout: Rollout
    now: datetime

    def serves(self, pod: Pod) -> bool:
        return pod.ready and not pod.terminating


def look(inputs: Inputs, specs: Specs, now: datetime) -> Snapshot:
    found = inputs.found
    uid = (found.metadata.uid if found is not None else None) or ""
    pods = pods_of(inputs.pods, component=COMPONENT, owner_uid=uid, claims={}, born=None, remedies=REMEDIES)
    state = state_of(found, replicas=inputs.spec.replicas, asked=specs.inputs, annotation=INPUTS)
    silent = {pod.name: _age(pod, now) for pod in pods if not pod.ready}
    rolls = inputs.status.rolls or {}
    rollout = Rollout(component=COMPONENT, state=state, pods=pods, rolls=rolls, now=now, silent=silent)
    return Snapshot(inputs=inputs, rollout=rollout, now=now)


def _age(pod: Pod, now: datetime) -> float:
    """Seconds since its server started, at least."""
    return (now - max(filter(None, (pod.created, pod.died_at)), default=now)).total_seconds()
