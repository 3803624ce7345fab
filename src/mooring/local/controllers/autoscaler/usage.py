"""How many replicas what pods use asks for. Pure.

Amounts are thousandths (of a core, of a byte), divided as the real controller divides them, so that
rounding falls the same way. Pods without figures, and such that are not ready yet, are reckoned so that
they can only dampen a change, never cause or reverse one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from mooring.kube.objects.core import Pod
from mooring.kube.quantity import parse_quantity
from mooring.local.controllers.moments import moment
from mooring.local.controllers.pods import condition_of, is_terminating, phase_of
from mooring.local.controllers.scheduler.requests import requests_of

__all__ = ["Proposal", "Target", "Tolerance", "Unknown", "Usage", "propose"]

#: Seconds after its start in which a pod's cpu counts only while it is ready.
INITIALIZATION = timedelta(seconds=300)
#: Seconds after its start in which a pod that became unready has never been ready.
FIRST_READINESS = timedelta(seconds=30)


class Unknown(Exception):
    """The number of replicas cannot be told; the message says why."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a pod (or one of its containers) used over ``window`` before ``time``, in thousandths."""

    value: int
    time: datetime
    window: timedelta


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far the ratio of use to target may be from 1 before anything is done."""

    down: float = 0.1
    up: float = 0.1

    def holds(self, ratio: float) -> bool:
        """Whether a ratio is close enough."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class Target:
    """What is aimed at: a share of the requests in percent, or else an average in thousandths."""

    resource: str
    container: str = ""
    utilization: int | None = None
    average: int | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The replicas asked for, and the use they were reckoned from."""

    replicas: int
    average: int
    utilization: int | None = None


@dataclass(frozen=True, slots=True)
class _Weight:
    ratio: float
    average: int
    utilization: int | None


def propose(
    current: int,
    target: Target,
    usages: Mapping[str, Usage],
    pods: Iterable[Pod],
    *,
    tolerance: Tolerance,
    now: datetime,
) -> Proposal:
    """Return the replicas that the use of ``pods``, by name, asks for; raises `Unknown`."""
    pods = list(pods)
    if not pods:
        raise Unknown("no pods returned by selector while calculating replica count")
    groups = _group(pods, usages, target.resource, now)
    known = {
        name: usage.value for name, usage in usages.items() if name not in groups.ignored | groups.unready
    }
    if not known:
        raise Unknown("did not receive metrics for targeted pods (pods might be unready)")
    requests = _requests(pods, target) if target.average is None else {}
    first = _weigh(known, requests, target)
    grows_unready = bool(groups.unready) and first.ratio > 1.0
    if not grows_unready and not groups.missing:
        replicas = current if tolerance.holds(first.ratio) else math.ceil(first.ratio * groups.ready)
        return Proposal(replicas, first.average, first.utilization)
    filled = dict(known)
    if first.ratio != 1.0:
        filled |= {name: 0 if first.ratio > 1.0 else _full(name, requests, target) for name in groups.missing}
    if grows_unready:
        filled |= dict.fromkeys(groups.unready, 0)
    ratio = _weigh(filled, requests, target).ratio
    replicas = math.ceil(ratio * len(filled))
    if tolerance.holds(ratio) or _turns(first.ratio, ratio) or _against(ratio, replicas, current):
        replicas = current
    return Proposal(replicas, first.average, first.utilization)


def _full(name: str, requests: Mapping[str, int], target: Target) -> int:
    """What a pod without figures is taken to use when the others use too little."""
    if target.average is not None:
        return target.average
    return requests[name] * max(100, target.utilization or 0) // 100


def _turns(before: float, after: float) -> bool:
    return (before < 1.0 < after) or (after < 1.0 < before)


def _against(ratio: float, replicas: int, current: int) -> bool:
    return (ratio < 1.0 and replicas > current) or (ratio > 1.0 and replicas < current)


def _weigh(values: Mapping[str, int], requests: Mapping[str, int], target: Target) -> _Weight:
    if target.average is not None:
        average = sum(values.values()) // len(values)
        return _Weight(average / target.average, average, None)
    counted = {name: value for name, value in values.items() if name in requests}
    total = sum(requests[name] for name in counted)
    if total == 0:
        raise Unknown("no metrics returned matched known pods")
    used = sum(counted.values())
    utilization = used * 100 // total
    return _Weight(utilization / (target.utilization or 1), used // len(counted), utilization)


@dataclass(frozen=True, slots=True)
class _Groups:
    ready: int
    unready: set[str]
    missing: set[str]
    ignored: set[str]


def _group(pods: Iterable[Pod], usages: Mapping[str, Usage], resource: str, now: datetime) -> _Groups:
    groups = {"ready": set[str](), "unready": set[str](), "missing": set[str](), "ignored": set[str]()}
    for pod in pods:
        name = pod.metadata.name or ""
        groups[_group_of(pod, usages.get(name), resource, now)].add(name)
    return _Groups(len(groups["ready"]), groups["unready"], groups["missing"], groups["ignored"])


def _group_of(pod: Pod, usage: Usage | None, resource: str, now: datetime) -> str:
    if is_terminating(pod) or phase_of(pod) == "Failed":
        return "ignored"
    if phase_of(pod) == "Pending":
        return "unready"
    if usage is None:
        return "missing"
    return "unready" if resource == "cpu" and _starting(pod, usage, now) else "ready"


def _starting(pod: Pod, usage: Usage, now: datetime) -> bool:
    """Whether the cpu that a pod uses is that of its start."""
    ready = condition_of(pod, "Ready")
    if ready is None or pod.status is None or not pod.status.start_time:
        return True
    since, changed = moment(pod.status.start_time), moment(ready.last_transition_time)
    if since + INITIALIZATION > now:
        return ready.status == "False" or usage.time < changed + usage.window
    return ready.status == "False" and since + FIRST_READINESS > changed


def _requests(pods: Iterable[Pod], target: Target) -> dict[str, int]:
    """What each pod asks of the resource, in thousandths; raises `Unknown` for one that asks for nothing."""
    return {pod.metadata.name or "": _request(pod, target) for pod in pods}


def _request(pod: Pod, target: Target) -> int:
    name, spec = pod.metadata.name, pod.spec
    if spec is not None and spec.resources is not None and spec.resources.requests and not target.container:
        whole = requests_of(pod).get(target.resource)
        if whole is None:
            raise Unknown(f"missing pod-level request for {target.resource} in Pod {name}")
        return math.ceil(whole * 1000)
    containers = list((spec.containers or ()) if spec else ())
    containers += [c for c in ((spec.init_containers or ()) if spec else ()) if c.restart_policy == "Always"]
    if target.container:
        containers = [c for c in containers if c.name == target.container]
        if not containers:
            raise Unknown(f"container {target.container} not found in Pod {name}")
    total = 0
    for container in containers:
        asked = (container.resources.requests or {}) if container.resources else {}
        if target.resource not in asked:
            raise Unknown(
                f"missing request for {target.resource} in container {container.name} of Pod {name}"
            )
        total += math.ceil(parse_quantity(asked[target.resource]) * 1000)
    return total
