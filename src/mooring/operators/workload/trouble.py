"""What keeps a pod from running, and whether waiting helps: the one table for every operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooring.kube.objects import core

__all__ = [
    "HOPELESS",
    "MAY_PASS",
    "SIDECAR",
    "hopeless",
    "sidecar_trouble",
    "trouble_of",
]

SIDECAR: Final = "sidecar"
"""Key of the remedy for the image beside the server."""
MAY_PASS: Final = frozenset({"Unschedulable", "UnboundClaim"})
"""Reasons that pass by themselves, as a rule within `PASSES_WITHIN`."""
HOPELESS: Final = frozenset(
    {
        *("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "FailedMount"),
    }
)
"""Reasons that need a person: the pod does not run until its template or its surroundings change."""
PASSES_WITHIN: Final = 10.0
"""Seconds in which a claim is bound and a node is found, as a rule."""
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})


def hopeless(trouble: str, *, age: float) -> bool:
    """Whether a pod of that ``trouble`` and ``age`` in seconds needs a person before it runs."""
    return trouble in HOPELESS or (trouble in MAY_PASS and age > PASSES_WITHIN)


def trouble_of(
    status: core.PodStatus, state: core.ContainerState, remedies: Mapping[str, str]
) -> tuple[str, str]:
    """Why the pod is not running: reason, and message with the field to look at."""
    if status.phase == "Failed":
        return status.reason or "PodFailed", status.message or "the pod failed; it is made anew once deleted"
    unscheduled = next(
        (one for one in status.conditions or () if one.type == "PodScheduled" and one.status == "False"), None
    )
    if unscheduled is not None:
        text = unscheduled.message or ""
        kind = "UnboundClaim" if "persistentvolumeclaim" in text.lower() else "Unschedulable"
        return kind, _with_remedy(text, kind, remedies)
    for init in status.init_container_statuses or ():
        waiting = init.state.waiting if init.state else None
        if waiting is not None and waiting.reason and waiting.reason not in _STARTING:
            return waiting.reason, _with_remedy(waiting.message or "", waiting.reason, remedies)
    if state.waiting is not None and state.waiting.reason:
        reason = state.waiting.reason
        return reason, _with_remedy(state.waiting.message or "", reason, remedies)
    if state.terminated is not None:
        code = state.terminated.exit_code
        return state.terminated.reason or "Terminated", f"the container ended with status {code}"
    if state.running is None:
        return "PodPending", "the pod is starting"
    return "", ""


def sidecar_trouble(status: core.PodStatus, component: str, remedies: Mapping[str, str]) -> tuple[str, str]:
    """What keeps a container beside the server from running."""
    for one in status.container_statuses or ():
        state = one.state or core.ContainerState()
        if one.name == component or state.running is not None:
            continue
        why = (state.waiting.reason if state.waiting else None) or "Terminated"
        text = (state.waiting.message if state.waiting else None) or ""
        remedy = (
            remedies.get(SIDECAR, "") if (one.name or "").endswith("exporter") and why in remedies else ""
        )
        parts = (text.strip(), remedy)
        return why, f"container {one.name}: " + ("; ".join(part for part in parts if part) or why)
    return "", ""


def _with_remedy(text: str, reason: str, remedies: Mapping[str, str]) -> str:
    return "; ".join(part for part in (text.strip(), remedies.get(reason, "")) if part)
