"""What an overlay of pods must not contain, each fault with its field and the remedy; pure.

Refused is what would go around the start gate of a server, stop it too early, hide it from Services, show its passwords to
another process, or contradict a field that the operator reads elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.kube.objects import core
from mooring.operators.workload.labels import annotation_faults, keyed, label_faults
from mooring.operators.workload.overlay import (
    POD_FIELDS,
    PROBE_NUMBERS,
    PROBES,
    Ours,
    PodTemplate,
    PodTemplateMetadata,
)
from mooring.operators.workload.problem import Problem
from mooring.operators.workload.resources import resource_faults
from mooring.runtime.crd import unknown_fields

__all__ = ["faults"]

_NAMES: Final = (
    "the operator and the servers find pods by the names that their StatefulSet gives them; remove it"
)
_PROCESSES: Final = "other containers could read the servers' passwords and end the servers; remove it"
_REFUSED: Final[Mapping[str, str]] = {
    "activeDeadlineSeconds": "it would end the servers; remove it",
    "ephemeralContainers": "they are added to running pods, with kubectl debug; remove it",
    "hostIPC": _PROCESSES,
    "hostPID": _PROCESSES,
    "hostname": _NAMES,
    "hostnameOverride": _NAMES,
    "nodeName": "all pods would be bound to one node; use nodeSelector or affinity",
    "overhead": "the runtime class sets it; remove it",
    "priority": "write priorityClassName",
    "serviceAccount": "write serviceAccountName",
    "setHostnameAsFQDN": _NAMES,
    "shareProcessNamespace": _PROCESSES,
    "subdomain": _NAMES,
}
_GATE: Final = "the operator decides it, since servers start behind a gate; remove it"
_ADDED: Final = frozenset(
    {
        *("name", "env", "volumeMounts", "securityContext", "lifecycle", "resources", *PROBES),
        *("terminationMessagePath", "terminationMessagePolicy"),
    }
)
"""What may be given of a container that the operator makes; `Ours.containers` says what of that is declared elsewhere."""
_CONTAINER: Final[Mapping[str, str]] = {
    "envFrom": "it could set variables that the start script reads; name them one by one in env",
    "restartPolicy": "the servers are always restarted; remove it",
}
_FIXED: Final = frozenset({"MOORING_HOME", "DATA_DIR", "PATH", "LD_PRELOAD", "LD_LIBRARY_PATH"})
_SYSTEM: Final = (
    *(
        "/",
        "/bin",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/proc",
        "/sbin",
        "/sys",
        "/usr",
        "/usr/bin",
        "/usr/lib",
    ),
    *("/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/local/sbin", "/usr/sbin"),
)
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def faults(given: PodTemplate | None, ours: Ours) -> list[Problem]:
    """Everything wrong with an overlay."""
    if given is None:
        return []
    return [*_metadata(given.metadata or PodTemplateMetadata(), ours), *_spec(given.spec or {}, ours)]


def _metadata(given: PodTemplateMetadata, ours: Ours) -> Iterator[Problem]:
    for kind, entries in (("labels", given.labels), ("annotations", given.annotations)):
        for key in sorted(entries or {}):
            if ours.keeps(key):
                text = "the operator or Kubernetes sets it, and pods are found by it; remove it"
                yield Problem(keyed(f"{ours.where}.metadata.{kind}", key), text)
    yield from label_faults(f"{ours.where}.metadata.labels", given.labels)
    yield from annotation_faults(f"{ours.where}.metadata.annotations", given.annotations)


def _spec(raw: Mapping[str, Any], ours: Ours) -> Iterator[Problem]:
    where = f"{ours.where}.spec"
    unknown = unknown_fields(core.PodSpec, raw, path=where)
    for one in unknown:
        meant = f"did you mean {one.nearest}?" if one.nearest else "correct or remove it"
        yield Problem(one.path, f"a pod has no such field; {meant}")
    for name in sorted(raw.keys() & core.PodSpec.__struct_encode_fields__ - POD_FIELDS.keys()):
        if name == "restartPolicy" and raw[name] == "Always":
            continue
        yield Problem(f"{where}.{name}", _REFUSED.get(name, _NOT_HERE))
    try:
        pod = msgspec.convert(raw, core.PodSpec)
    except msgspec.ValidationError as error:
        yield _unreadable(where, str(error))
        return
    grace = pod.termination_grace_period_seconds
    if grace is not None and grace < ours.grace:
        text = f"{grace} s: the servers may need {ours.grace} s to hand over and stop; give at least {ours.grace}"
        yield Problem(f"{where}.terminationGracePeriodSeconds", text)
    yield from label_faults(f"{where}.nodeSelector", pod.node_selector)
    yield from _volumes(where, pod.volumes or [], ours)
    yield from _containers(where, pod, ours)


_NOT_HERE: Final = "it cannot be set here; remove it"


def _unreadable(where: str, error: str) -> Problem:
    """What msgspec says, at the field that it names."""
    said, _, path = error.partition(" - at `$")
    return Problem(f"{where}{path.rstrip('`')}", f"{said[:1].lower()}{said[1:]}; correct it")


def _volumes(where: str, volumes: list[core.Volume], ours: Ours) -> Iterator[Problem]:
    times = Counter(one.name for one in volumes)
    for at, one in enumerate(volumes):
        place, name = f"{where}.volumes[{at}]", one.name or ""
        if not _LABEL.fullmatch(name):
            yield Problem(f"{place}.name", f"{name!r} is no name; give small letters, digits and hyphens")
        elif name in ours.volumes or name in ours.claims:
            yield Problem(f"{place}.name", f"the pods have a volume {name} already; choose another name")
        elif times[one.name] > 1:
            yield Problem(f"{place}.name", f"{name} is there twice; rename one")


def _containers(where: str, pod: core.PodSpec, ours: Ours) -> Iterator[Problem]:
    named = [one.name or "" for one in (*(pod.init_containers or ()), *(pod.containers or ()))]
    times = Counter(named)
    volumes = {one.name or "" for one in pod.volumes or ()}
    known = volumes | set(ours.claims) | (set(ours.volumes) - set(ours.absent))
    for kind, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for at, one in enumerate(containers or ()):
            place, name = f"{where}.{kind}[{at}]", one.name or ""
            if not _LABEL.fullmatch(name):
                yield Problem(f"{place}.name", f"{name!r} is no name; give small letters, digits and hyphens")
            elif times[name] > 1:
                yield Problem(f"{place}.name", f"{name} is there twice; rename one")
            elif name in ours.containers and (name in ours.inits) is not (kind == "initContainers"):
                yield Problem(
                    f"{place}.name", f"{name} is a container of the operator's; choose another name"
                )
            elif name in ours.off:
                yield Problem(f"{place}.name", f"the pods have no container {name}; {ours.off[name]}")
            elif name in ours.containers:
                yield from _added(place, one, ours)
            else:
                yield from _further(place, one, ours)
            yield from _mounts(place, one, ours, known)


def _added(place: str, one: core.Container, ours: Ours) -> Iterator[Problem]:
    """What is given of a container that the operator makes."""
    name = one.name or ""
    elsewhere = ours.containers[name]
    for field, attribute in zip(one.__struct_encode_fields__, one.__struct_fields__, strict=True):
        if getattr(one, attribute) is None or (field in _ADDED and field not in elsewhere):
            continue
        text = f"write it in {elsewhere[field]}" if field in elsewhere else _CONTAINER.get(field, _GATE)
        yield Problem(f"{place}.{field}", text)
    for at, variable in enumerate(one.env or ()):
        if variable.name in ours.variables or variable.name in _FIXED:
            text = f"the start of the container reads {variable.name}; remove it"
            yield Problem(f"{place}.env[{at}].name", text)
    for field, probe in zip(
        PROBES, (one.liveness_probe, one.readiness_probe, one.startup_probe), strict=True
    ):
        if probe is not None:
            yield from _probe(f"{place}.{field}", field, probe, ours.probes.get(name, ()))
    if one.lifecycle is not None and one.lifecycle.stop_signal is not None:
        yield Problem(f"{place}.lifecycle.stopSignal", _GATE)
    if one.lifecycle is not None and one.lifecycle.pre_stop is not None and name in ours.stops:
        text = "the server hands over before it stops; remove it"
        yield Problem(f"{place}.lifecycle.preStop", text)
    if "resources" not in elsewhere:
        yield from (Problem(*fault) for fault in resource_faults(f"{place}.resources", one.resources))
    for at, mount in enumerate(one.volume_mounts or ()):
        if over := _covered(mount.mount_path or "", ours.paths):
            text = f"{mount.mount_path} and {over}, which the container needs, overlap; choose another path"
            yield Problem(f"{place}.volumeMounts[{at}].mountPath", text)


def _probe(place: str, field: str, probe: core.Probe, has: Collection[str]) -> Iterator[Problem]:
    if field not in has:
        yield Problem(place, "the container has no such probe to tune; remove it")
        return
    for name, attribute in zip(probe.__struct_encode_fields__, probe.__struct_fields__, strict=True):
        value = getattr(probe, attribute)
        if value is None:
            continue
        least = 0 if name == "initialDelaySeconds" else 1
        if attribute not in PROBE_NUMBERS:
            text = "the operator decides what is asked; give numbers only, as periodSeconds"
            yield Problem(f"{place}.{name}", text)
        elif value < least:
            yield Problem(f"{place}.{name}", f"{value} is not possible; give at least {least}")
        elif name == "successThreshold" and field != "readinessProbe" and value != 1:
            yield Problem(f"{place}.{name}", "only 1 is possible; remove it")


def _further(place: str, one: core.Container, ours: Ours) -> Iterator[Problem]:
    """A container of the user's."""
    if not one.image:
        known = ", ".join(sorted(ours.containers))
        text = f"is missing; give the image of the sidecar {one.name}, or add to one of {known}"
        yield Problem(f"{place}.image", text)
    for at, port in enumerate(one.ports or ()):
        if port.container_port in ours.ports:
            text = f"the operator's containers may listen on {port.container_port}; choose another port"
            yield Problem(f"{place}.ports[{at}].containerPort", text)
    yield from (Problem(*fault) for fault in resource_faults(f"{place}.resources", one.resources))


def _mounts(place: str, one: core.Container, ours: Ours, known: Collection[str]) -> Iterator[Problem]:
    for at, mount in enumerate(one.volume_mounts or ()):
        where, name = f"{place}.volumeMounts[{at}]", mount.name or ""
        if name not in known:
            yield Problem(
                f"{where}.name", f"the pods have no volume {name}; add it to {ours.where}.spec.volumes"
            )
        elif name in ours.volumes and not mount.read_only:
            text = f"{name} is the servers' own volume; set readOnly: true"
            yield Problem(f"{where}.readOnly", text)
        if not (mount.mount_path or "").startswith("/"):
            yield Problem(f"{where}.mountPath", "is no absolute path; begin it with /")


def _covered(path: str, paths: Iterable[str]) -> str:
    """The path of ours that a mount would cover, or be below of; "" for none."""
    path = path.rstrip("/") or "/"
    for one in paths:
        if path == one or path == "/" or f"{one}/".startswith(f"{path}/") or path.startswith(f"{one}/"):
            return one
    return path if path in _SYSTEM else ""
