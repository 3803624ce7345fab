"""From Kubernetes' pods and claims to what decisions need of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from mooring.kube.objects import core
from mooring.operators.redis.sentinel.names import ROLE, Component
from mooring.operators.redis.sentinel.topology import Pod

__all__ = ["claim_name", "pod_of", "pods_of"]

EXPORTER = "redis-exporter"
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
_REMEDY = {
    "ImagePullBackOff": "correct spec{part}.image, or give spec{part}.imagePullSecrets",
    "ErrImagePull": "correct spec{part}.image, or give spec{part}.imagePullSecrets",
    "InvalidImageName": "correct spec{part}.image",
    "ErrImageNeverPull": "correct spec{part}.image or spec{part}.imagePullPolicy",
    "CrashLoopBackOff": "its log says why; check spec{part}.image, spec{part}.command and spec{part}.resources",
    "Unschedulable": "check spec{part}.resources, affinity and nodeSelector against the nodes there are",
    "UnboundClaim": "provide a volume or the storage class; or correct spec.storage.persistentVolumeClaim "
    "(storageClassName, size) and make the cluster anew without these claims: a claim stays as it was made",
}


def pods_of(
    pods: Iterable[core.Pod],
    *,
    component: Component,
    owner_uid: str,
    claims: Mapping[str, core.PersistentVolumeClaim],
    born: datetime | None,
) -> list[Pod]:
    """The pods that one StatefulSet controls, by ordinal; ``born`` is when the cluster was declared."""
    ours = [
        pod
        for pod in pods
        if any(ref.controller and ref.uid == owner_uid for ref in pod.metadata.owner_references or ())
    ]
    made = [pod_of(pod, component=component, claims=claims, born=born) for pod in ours]
    return sorted(made, key=lambda pod: pod.ordinal)


def pod_of(
    pod: core.Pod,
    *,
    component: Component,
    claims: Mapping[str, core.PersistentVolumeClaim],
    born: datetime | None,
) -> Pod:
    """One pod; its main container is named as its component."""
    name, uid = pod.metadata.name or "", pod.metadata.uid or ""
    status = pod.status or core.PodStatus()
    container = next((one for one in status.container_statuses or () if one.name == component), None)
    state = (container.state if container else None) or core.ContainerState()
    last = (container.last_state if container else None) or core.ContainerState()
    ended = state.terminated or last.terminated
    claim = claims.get(_claim_of(pod))
    trouble, message = _trouble(status, state, component)
    if not trouble:
        trouble, message = _sidecar_trouble(status, component)
    return Pod(
        name=name,
        ordinal=_ordinal(name),
        uid=uid,
        version=pod.metadata.resource_version or "",
        ip=status.pod_ip or "",
        volume=(claim.metadata.uid if claim is not None else None) or uid,
        fresh=claim is None or not is_older(claim, born),
        incarnation=f"{uid}/{(container.restart_count or 0) if container else 0}",
        running=state.running is not None and status.phase != "Failed",
        died_at=_time(ended.finished_at) if ended is not None else None,
        created=_time(pod.metadata.creation_timestamp),
        terminating=pod.metadata.deletion_timestamp is not None,
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions or ()),
        revision=(pod.metadata.labels or {}).get("controller-revision-hash", ""),
        role=(pod.metadata.labels or {}).get(ROLE, "") if component == "redis" else None,
        node=(pod.spec.node_name if pod.spec else None) or "",
        trouble=trouble,
        trouble_message=message,
    )


def is_older(claim: core.PersistentVolumeClaim, born: datetime | None) -> bool:
    """The claim was there before the cluster was declared: it may hold data."""
    made = _time(claim.metadata.creation_timestamp)
    return born is not None and made is not None and made < born


def claim_name(volume: str, pod: str) -> str:
    """How a StatefulSet names the claim of a pod."""
    return f"{volume}-{pod}"


def _claim_of(pod: core.Pod) -> str:
    for volume in (pod.spec.volumes if pod.spec else None) or ():
        if volume.persistent_volume_claim is not None:
            return volume.persistent_volume_claim.claim_name or ""
    return ""


def _ordinal(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _trouble(status: core.PodStatus, state: core.ContainerState, component: Component) -> tuple[str, str]:
    """Why the pod is not running: reason, and message with the field to look at."""
    if status.phase == "Failed":
        return status.reason or "PodFailed", status.message or "the pod failed; it is made anew once deleted"
    unscheduled = next(
        (one for one in status.conditions or () if one.type == "PodScheduled" and one.status == "False"), None
    )
    if unscheduled is not None:
        text = unscheduled.message or ""
        kind = "UnboundClaim" if "persistentvolumeclaim" in text.lower() else "Unschedulable"
        return kind, _with_remedy(text, kind, component)
    for init in status.init_container_statuses or ():
        waiting = init.state.waiting if init.state else None
        if waiting is not None and waiting.reason and waiting.reason not in _STARTING:
            return waiting.reason, _with_remedy(waiting.message or "", waiting.reason, component)
    if state.waiting is not None and state.waiting.reason:
        reason = state.waiting.reason
        return reason, _with_remedy(state.waiting.message or "", reason, component)
    if state.terminated is not None:
        code = state.terminated.exit_code
        return state.terminated.reason or "Terminated", f"the container ended with status {code}"
    if state.running is None:
        return "PodPending", "the pod is starting"
    return "", ""


def _sidecar_trouble(status: core.PodStatus, component: Component) -> tuple[str, str]:
    """What keeps a container beside the server from running."""
    for one in status.container_statuses or ():
        state = one.state or core.ContainerState()
        if one.name == component or state.running is not None:
            continue
        why = (state.waiting.reason if state.waiting else None) or "Terminated"
        text = (state.waiting.message if state.waiting else None) or ""
        remedy = "correct spec.exporter.image" if one.name == EXPORTER and why in _REMEDY else ""
        parts = (text.strip(), remedy)
        return why, f"container {one.name}: " + ("; ".join(part for part in parts if part) or why)
    return "", ""


def _with_remedy(text: str, reason: str, component: Component) -> str:
    remedy = _REMEDY.get(reason, "").format(part=".sentinel" if component == "sentinel" else "")
    return "; ".join(part for part in (text.strip(), remedy) if part)
