"""What a pod's state means to those who own, count or reach it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from mooring.kube.object import Object, owner_reference
from mooring.kube.objects.core import Pod, PodCondition, PodTemplateSpec
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.controllers.moments import moment, seconds_since

__all__ = [
    "condition_of",
    "from_template",
    "is_active",
    "is_available",
    "is_ready",
    "is_terminal",
    "is_terminating",
    "next_availability",
    "phase_of",
]


def phase_of(pod: Pod) -> str:
    """Pending, Running, Succeeded or Failed; ``""`` for a pod that only exists in a plan."""
    return (pod.status.phase or "") if pod.status else ""


def condition_of(pod: Pod, kind: str) -> PodCondition | None:
    """The condition of a type."""
    conditions = (pod.status.conditions or ()) if pod.status else ()
    return next((c for c in conditions if c.type == kind), None)


def is_ready(pod: Pod) -> bool:
    """The Ready condition is true (whatever the phase)."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready.status == "True"


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Ready for at least ``min_ready_seconds``."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.status != "True":
        return False
    if min_ready_seconds == 0:
        return True
    since = ready.last_transition_time
    return since is not None and seconds_since(since, now) >= min_ready_seconds


def next_availability(pods: Iterable[Pod], min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until the next ready pod becomes available, ``None`` when none is on its way."""
    waits = []
    for pod in pods:
        ready = condition_of(pod, "Ready")
        if ready is None or ready.status != "True" or is_available(pod, min_ready_seconds, now):
            continue
        waits.append(min_ready_seconds - (now - moment(ready.last_transition_time)).total_seconds())
    return max(0.0, min(waits)) if waits else None


def is_terminating(pod: Pod) -> bool:
    """Deletion was asked for."""
    return pod.metadata.deletion_timestamp is not None


def is_terminal(pod: Pod) -> bool:
    """Its containers have ended and none will start again."""
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Pod) -> bool:
    """Neither ended nor asked to end: what a ReplicaSet or a Job counts."""
    return not is_terminal(pod) and not is_terminating(pod)


def from_template(template: PodTemplateSpec, owner: Object, *, name: str = "") -> Pod:
    """A pod of a template under its controller; without a name the server makes one from the owner's.

    A stable suffix in ``name`` makes a repeated create harmless.
    """
    meta = template.metadata or ObjectMeta()
    return Pod(
        metadata=ObjectMeta(
            name=name or None,
            namespace=owner.metadata.namespace,
            generate_name=f"{owner.metadata.name}-",
            labels=dict(meta.labels or {}) or None,
            annotations=dict(meta.annotations or {}) or None,
            finalizers=list(meta.finalizers or ()) or None,
            owner_references=[owner_reference(owner)],
        ),
        spec=template.spec,
    )


def stable_suffix(*parts: object, length: int = 5) -> str:
    """A suffix of the server's alphabet that the same parts always give."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:length])
