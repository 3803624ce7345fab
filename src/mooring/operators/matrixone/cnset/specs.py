"""What the operator's life of a compute node adds to its pod, and revisions of the declaration that pods are made from."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from mooring.kube.object import Object, owner_reference, to_dict
from mooring.kube.objects import apps, core, meta
from mooring.operators.matrixone.names import CNNames, labels_of
from mooring.operators.matrixone.specs.compute import READY_GATE, SWEEP_SECONDS
from mooring.operators.matrixone.types import CNSet, CNSetSpec

__all__ = [
    "CORDON",
    "DRAINING",
    "GATE",
    "HANDED_OVER",
    "owned",
    "prepared",
    "revision_name",
    "revision_of",
    "spec_in",
]

GATE: Final = READY_GATE
DRAINING: Final = "matrixorigin.io/store-draining-start"
"""Annotation of a pod: since when it is drained."""
HANDED_OVER: Final = "matrixorigin.io/lock-restart"
"""Annotation of a pod: when it was asked to give its lock tables away."""
CORDON: Final = "matrixorigin.io/store-cordon"
"""Annotation of a pod: a person asks that it serves nobody."""
T = TypeVar("T", bound=Object)
_STATE: Final = "mooring-state"
_GRACE: Final = 60
"""Seconds that a process takes to end, at most."""


_SLEEP: Final = core.LifecycleHandler(exec=core.ExecAction(command=["sleep", str(SWEEP_SECONDS)]))
"""What a declared drain gives the pod; waiting is needless once it is drained."""


def prepared(pod: core.Pod) -> core.Pod:
    """The pod with its readiness gate, and a hook that lets proxies move sessions away if nobody drained it before."""
    assert pod.spec is not None
    spec, main = pod.spec, (pod.spec.containers or [])[0]
    gates = [*(spec.readiness_gates or ())]
    if all(one.condition_type != GATE for one in gates):
        gates.append(core.PodReadinessGate(condition_type=GATE))
    changes: dict[str, Any] = {"readiness_gates": gates}
    grace = max(spec.termination_grace_period_seconds or 0, _GRACE)
    given = main.lifecycle.pre_stop if main.lifecycle is not None else None
    if given is None or given == _SLEEP:
        changes |= _with_hook(spec, main)
        grace = max(grace, _GRACE + SWEEP_SECONDS)
    return replace(pod, spec=replace(spec, termination_grace_period_seconds=grace, **changes))


def _with_hook(spec: core.PodSpec, main: core.Container) -> dict[str, Any]:
    hook = core.LifecycleHandler(
        exec=core.ExecAction(command=["/bin/sh", "-c", f"[ -s /{_STATE}/drained ] || sleep {SWEEP_SECONDS}"])
    )
    mount = core.VolumeMount(name=_STATE, mount_path=f"/{_STATE}")
    lifecycle = replace(main.lifecycle or core.Lifecycle(), pre_stop=hook)
    made = replace(main, lifecycle=lifecycle, volume_mounts=[*(main.volume_mounts or ()), mount])
    annotation = core.ObjectFieldSelector(field_path=f"metadata.annotations['{HANDED_OVER}']")
    volume = core.Volume(
        name=_STATE,
        downward_api=core.DownwardAPIVolumeSource(
            items=[core.DownwardAPIVolumeFile(path="drained", field_ref=annotation)]
        ),
    )
    return {
        "containers": [made, *(spec.containers or [])[1:]],
        "volumes": [*(spec.volumes or ()), volume],
    }


def owned(one: T, cn_set: CNSet) -> T:
    """An object with the CNSet as its controller."""
    references = [owner_reference(cn_set)]
    metadata = replace(one.metadata, namespace=cn_set.metadata.namespace, owner_references=references)
    return replace(one, metadata=metadata)


def revision_name(cn_set: CNSet, digest: str) -> str:
    """The ControllerRevision of a declaration."""
    return f"{CNNames(cn_set).main}-{digest}"


def revision_of(cn_set: CNSet, digest: str) -> Object:
    """The declaration, kept: pods of it may be made again while a newer one does not come up."""
    return apps.ControllerRevision(
        metadata=meta.ObjectMeta(name=revision_name(cn_set, digest), labels=labels_of(cn_set)),
        data={"spec": to_dict(cn_set.spec or CNSetSpec())},
        revision=cn_set.metadata.generation or 1,
    )


def spec_in(revision: apps.ControllerRevision) -> CNSetSpec:
    """The declaration that a revision keeps."""
    return msgspec.convert((revision.data or {}).get("spec") or {}, CNSetSpec)
