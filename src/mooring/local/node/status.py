"""A pod's status, derived from what its containers do; the kubelet's rules, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mooring.kube.object import to_dict
from mooring.kube.objects.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    HostIP,
    Pod,
    PodCondition,
    PodIP,
    PodSpec,
    PodStatus,
)

__all__ = ["Situation", "is_sidecar", "phase_of", "status_of", "status_patch", "terminated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a node knows of a pod that it runs."""

    address: str = ""
    host_address: str = ""
    start_time: str = ""
    network_ready: bool = False
    initialized: bool = False
    init: Sequence[ContainerStatus] = ()
    main: Sequence[ContainerStatus] = ()
    ended: bool = False
    """Nothing will be started any more."""
    verdict: tuple[str, str, str] | None = None
    """Phase, reason and message that override the rest (deadline exceeded ...)."""


def is_sidecar(restart_policy: str | None) -> bool:
    """Whether an init container with that restart policy runs beside the main ones."""
    return restart_policy == "Always"


def terminated(state: ContainerState | None) -> ContainerStateTerminated | None:
    """How a container ended, if it has."""
    return state.terminated if state else None


def phase_of(spec: PodSpec, situation: Situation) -> str:
    """The pod's phase."""
    if situation.verdict:
        return situation.verdict[0]
    policy = spec.restart_policy or "Always"
    if not situation.initialized:
        failed = any(
            (end := terminated(status.state)) and end.exit_code for status in _plain_init(spec, situation)
        )
        return "Failed" if failed and situation.ended and policy == "Never" else "Pending"
    statuses = situation.main
    running = any(status.state and status.state.running for status in statuses)
    ends = [_end(status) for status in statuses]
    if any(
        end is None and not (status.state and status.state.running) for status, end in _zip(statuses, ends)
    ):
        return "Pending"
    if running or policy == "Always" or not situation.ended:
        return "Running"
    return "Succeeded" if all(end is not None and end.exit_code == 0 for end in ends) else "Failed"


def status_of(pod: Pod, situation: Situation, *, now: str) -> PodStatus:
    """The whole status; conditions keep their time unless their status changed."""
    spec = pod.spec or PodSpec()
    phase = phase_of(spec, situation)
    _, reason, message = situation.verdict or ("", "", "")
    address = situation.address if phase not in ("Succeeded", "Failed") or situation.address else ""
    return PodStatus(
        phase=phase,
        reason=reason or None,
        message=message or None,
        host_ip=situation.host_address or None,
        host_ips=[HostIP(ip=situation.host_address)] if situation.host_address else None,
        pod_ip=address or None,
        pod_ips=[PodIP(ip=address)] if address else None,
        start_time=situation.start_time or None,
        qos_class=qos_class(spec),
        observed_generation=pod.metadata.generation,
        init_container_statuses=list(situation.init) or None,
        container_statuses=list(situation.main) or None,
        conditions=_conditions(pod, spec, situation, phase, now),
    )


def status_patch(pod: Pod, status: PodStatus) -> dict[str, Any] | None:
    """The strategic merge patch from the pod's known status to this one; ``None`` if they agree.

    Conditions of other owners (the scheduler's, readiness gates) stay, since conditions merge by type.
    """
    known, wanted = to_dict(pod.status or PodStatus()), to_dict(status)
    patch: dict[str, Any] = {}
    for key in ("podIPs", "hostIPs"):
        if known.get(key) != wanted.get(key):
            patch[key] = [{"$patch": "replace"}, *wanted.get(key, [])]
    old = {condition["type"]: condition for condition in known.get("conditions", [])}
    # Conditions merge field by field: what is gone has to be nulled.
    changed = [
        {**dict.fromkeys(old.get(each["type"], ())), **each}
        for each in wanted["conditions"]
        if old.get(each["type"]) != each
    ]
    if changed:
        patch["conditions"] = changed
    for key in _PLAIN_FIELDS:
        if known.get(key) != wanted.get(key):
            patch[key] = wanted.get(key)
    return {"metadata": {"uid": pod.metadata.uid}, "status": patch} if patch else None


_PLAIN_FIELDS = (
    "phase",
    "reason",
    "message",
    "hostIP",
    "podIP",
    "startTime",
    "qosClass",
    "observedGeneration",
    "initContainerStatuses",
    "containerStatuses",
)


def qos_class(spec: PodSpec) -> str:
    """Guaranteed, Burstable or BestEffort, from what the containers ask for."""
    guaranteed, any_given = True, False
    for container in [*(spec.containers or []), *(spec.init_containers or [])]:
        resources = container.resources
        limits = {name: str(v) for name, v in ((resources.limits if resources else None) or {}).items()}
        requests = {name: str(v) for name, v in ((resources.requests if resources else None) or {}).items()}
        computed = {name for name in limits | requests if name in ("cpu", "memory")}
        any_given = any_given or bool(computed)
        full = {"cpu", "memory"} <= limits.keys()
        guaranteed = guaranteed and full and all(requests.get(n, limits[n]) == limits[n] for n in computed)
    if not any_given:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _end(status: ContainerStatus) -> ContainerStateTerminated | None:
    """How a container that is not running ended, its last run's end while it waits for the next."""
    if status.state and status.state.waiting:
        return terminated(status.last_state)
    return terminated(status.state)


def _zip(
    statuses: Sequence[ContainerStatus], ends: Sequence[ContainerStateTerminated | None]
) -> Iterable[tuple[ContainerStatus, ContainerStateTerminated | None]]:
    return zip(statuses, ends, strict=True)


def _plain_init(spec: PodSpec, situation: Situation) -> list[ContainerStatus]:
    sidecars = {c.name for c in spec.init_containers or () if is_sidecar(c.restart_policy)}
    return [status for status in situation.init if status.name not in sidecars]


def _conditions(pod: Pod, spec: PodSpec, situation: Situation, phase: str, now: str) -> list[PodCondition]:
    unready = [
        status.name or "" for status in (*_sidecars(spec, situation), *situation.main) if not status.ready
    ]
    done = phase == "Succeeded"
    containers_reason = containers_message = gates_reason = gates_message = ""
    if done:
        containers_reason = gates_reason = "PodCompleted"
    elif phase == "Failed":
        containers_reason = gates_reason = "PodFailed"
    elif unready:
        containers_reason = gates_reason = "ContainersNotReady"
        containers_message = gates_message = f"containers with unready status: [{' '.join(unready)}]"
    containers_ready = not containers_reason
    if containers_ready and (missing := _missing_gates(pod, spec)):
        gates_reason, gates_message = "ReadinessGatesNotReady", missing
    incomplete = [
        status.name or ""
        for status in _plain_init(spec, situation)
        if (end := terminated(status.state)) is None or end.exit_code
    ]
    initialized = situation.initialized or done
    wanted = [
        _condition("PodReadyToStartContainers", situation.network_ready),
        _condition("Initialized", initialized, "PodCompleted" if done else "")
        if initialized
        else _condition(
            "Initialized",
            False,
            "ContainersNotInitialized",
            f"containers with incomplete status: [{' '.join(incomplete)}]",
        ),
        _condition("Ready", not gates_reason, gates_reason, gates_message),
        _condition("ContainersReady", containers_ready, containers_reason, containers_message),
        _condition("PodScheduled", True),
    ]
    return [_dated(pod, condition, now) for condition in wanted]


def _sidecars(spec: PodSpec, situation: Situation) -> list[ContainerStatus]:
    plain = {status.name for status in _plain_init(spec, situation)}
    return [status for status in situation.init if status.name not in plain]


def _missing_gates(pod: Pod, spec: PodSpec) -> str:
    known = {c.type: c.status for c in (pod.status.conditions if pod.status else None) or ()}
    missing = [gate.condition_type or "" for gate in spec.readiness_gates or ()]
    missing = [name for name in missing if known.get(name) != "True"]
    return "; ".join(
        f'corresponding condition of pod readiness gate "{name}" does not exist or is not True'
        for name in missing
    )


def _condition(kind: str, holds: bool, reason: str = "", message: str = "") -> PodCondition:
    return PodCondition(
        type=kind, status="True" if holds else "False", reason=reason or None, message=message or None
    )


def _dated(pod: Pod, condition: PodCondition, now: str) -> PodCondition:
    """The condition with its time, and the generation it speaks of."""
    old = next(
        (c for c in (pod.status.conditions if pod.status else None) or () if c.type == condition.type), None
    )
    same = old is not None and old.status == condition.status and old.last_transition_time
    return PodCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        observed_generation=pod.metadata.generation,
        last_transition_time=old.last_transition_time if old is not None and same else now,
    )
