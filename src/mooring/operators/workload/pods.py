"""What Kubernetes says of the pods of a cluster, as far as decisions need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mooring.kube.objects import core
from mooring.operators.workload.claims import is_older
from mooring.operators.workload.trouble import sidecar_trouble, trouble_of

__all__ = [
    "READS",
    "ROLE",
    "Pod",
    "main_container",
    "ordinal_of",
    "pod_of",
    "pods_of",
]

_DATA_PATHS: Final = frozenset({"/data", "/var/lib/mysql"})
"""Where servers of our own pods store."""
ROLE: Final = "mooring.dev/role"
"""Label of a data pod: ``master`` or ``primary``, or ``replica``."""
READS: Final = "mooring.dev/reads"
"""Label of pods that a Service for reading selects, where that is not by `ROLE`; its value is "true"."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What Kubernetes says of one pod, as far as decisions need it."""

    name: str
    ordinal: int
    uid: str = ""
    version: str = ""
    """The resourceVersion at which it was seen."""
    ip: str = ""
    volume: str = ""
    """Identity of what it stores on: the claim's UID, or the pod's own for an emptyDir."""
    lasting: bool = False
    """What it stores is on a claim: a recreated pod finds it again, wherever it runs."""
    ephemeral: bool = False
    """All it stores on is gone with the pod: emptyDirs, configuration and Secrets, but no claim and no directory of a host."""
    fresh: bool = False
    """The volume cannot hold data of before this cluster (emptyDir, or a claim made for it)."""
    incarnation: str = ""
    """Changes with every start of the main container: pod UID and restart count."""
    running: bool = True
    """The main container runs, as far as the pod's status tells."""
    failed: bool = False
    """It ended for good, such as by an eviction: nothing of it starts again."""
    started: datetime | None = None
    """When the container that runs now was started."""
    died_at: datetime | None = None
    """When the container last ended, if it did."""
    created: datetime | None = None
    terminating: bool = False
    ready: bool = False
    ready_changed: datetime | None = None
    """When it last became ready or ceased to be, if it ever did."""
    revision: str = ""
    role: str | None = None
    """What its label says of its role, "" when there is none; None of pods that bear no roles."""
    reads: bool = False
    """It bears the label `READS`."""
    node: str = ""
    resize_since: datetime | None = None
    """Since when the file system of a volume of it waits to be enlarged."""
    trouble: str = ""
    """Why it is not running: a CamelCase reason."""
    trouble_message: str = ""


def pods_of(
    pods: Iterable[core.Pod],
    *,
    component: str,
    owner_uid: str,
    claims: Mapping[str, core.PersistentVolumeClaim],
    born: datetime | None,
    remedies: Mapping[str, str],
    roles: bool = False,
) -> list[Pod]:
    """The pods that one StatefulSet controls, by ordinal.

    ``born`` is when the cluster was declared; ``remedies`` say by reason which field to look at, and under
    a container's name (or `SIDECAR`) what to do about the image of one beside the server. ``roles``: the pods bear the label `ROLE`.
    """
    ours = [
        pod
        for pod in pods
        if any(ref.controller and ref.uid == owner_uid for ref in pod.metadata.owner_references or ())
    ]
    made = [
        pod_of(pod, component=component, claims=claims, born=born, remedies=remedies, roles=roles)
        for pod in ours
    ]
    return sorted(made, key=lambda pod: pod.ordinal)


def pod_of(
    pod: core.Pod,
    *,
    component: str,
    claims: Mapping[str, core.PersistentVolumeClaim],
    born: datetime | None,
    remedies: Mapping[str, str],
    roles: bool = False,
) -> Pod:
    """One pod; see `pods_of`."""
    name, uid = pod.metadata.name or "", pod.metadata.uid or ""
    status = pod.status or core.PodStatus()
    main = main_container(pod.spec, component).name if pod.spec else component
    container = next((one for one in status.container_statuses or () if one.name == main), None)
    state = (container.state if container else None) or core.ContainerState()
    last = (container.last_state if container else None) or core.ContainerState()
    ended = state.terminated or last.terminated
    stored = _stored_on(pod, component)
    claimed = _claim_of(stored)
    claim = claims.get(claimed)
    readiness = next((one for one in status.conditions or () if one.type == "Ready"), core.PodCondition())
    trouble, message = trouble_of(status, state, remedies, last=last)
    if not trouble:
        trouble, message = sidecar_trouble(status, main or component, remedies)
    return Pod(
        name=name,
        ordinal=ordinal_of(name),
        uid=uid,
        version=pod.metadata.resource_version or "",
        ip=status.pod_ip or "",
        volume=(claim.metadata.uid if claim is not None else None) or uid,
        lasting=bool(claimed),
        ephemeral=pod.spec is not None and not any(map(_outlives, stored)),
        fresh=claim is None or not is_older(claim, born),
        incarnation=f"{uid}/{(container.restart_count or 0) if container else 0}",
        running=state.running is not None and status.phase != "Failed",
        failed=status.phase == "Failed",
        started=_time(state.running.started_at) if state.running is not None else None,
        died_at=_time(ended.finished_at) if ended is not None else None,
        created=_time(pod.metadata.creation_timestamp),
        terminating=pod.metadata.deletion_timestamp is not None,
        ready=readiness.status == "True",
        ready_changed=_time(readiness.last_transition_time),
        revision=(pod.metadata.labels or {}).get("controller-revision-hash", ""),
        role=(pod.metadata.labels or {}).get(ROLE, "") if roles else None,
        reads=(pod.metadata.labels or {}).get(READS) == "true",
        node=(pod.spec.node_name if pod.spec else None) or "",
        trouble=trouble,
        trouble_message=message,
    )


def main_container(pod: core.PodSpec, component: str) -> core.Container:
    """The one that is named as its component; in pods that another operator made it is the first one."""
    containers = pod.containers or ()
    named = next((one for one in containers if one.name == component), None)
    return named or next(iter(containers), core.Container(name=component))


def _outlives(volume: core.Volume) -> bool:
    """It may be found again by another pod."""
    kinds = {
        name for name in volume.__struct_fields__ if name != "name" and getattr(volume, name) is not None
    }
    return not kinds <= {"empty_dir", "config_map", "secret", "projected", "downward_api"}


def _stored_on(pod: core.Pod, component: str) -> list[core.Volume]:
    """The volume that the server stores on: users may have added others. All of them in pods that another operator made."""
    if pod.spec is None:
        return []
    mounts = main_container(pod.spec, component).volume_mounts or ()
    name = next((one.name for one in mounts if one.mount_path in _DATA_PATHS), None)
    volumes = pod.spec.volumes or []
    return [one for one in volumes if one.name == name] or volumes


def _claim_of(volumes: Iterable[core.Volume]) -> str:
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            return volume.persistent_volume_claim.claim_name or ""
    return ""


def ordinal_of(name: str) -> int:
    """The number at the end of a pod's name; 0 where there is none."""
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
