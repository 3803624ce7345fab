"""What keeps a pod from running, and whether waiting helps: the one table for every operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooring.kube.objects import core
from mooring.operators.workload.last_words import LastWords, last_words

__all__ = [
    "HOPELESS",
    "MAY_PASS",
    "SIDECAR",
    "hopeless",
    "sidecar_trouble",
    "trouble_of",
]

SIDECAR: Final = "sidecar"
"""Key of the remedy for containers beside the server that have none under their own names."""
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
LOOPS: Final = "CrashLoopBackOff"
"""It ends each time it is started."""
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})


def hopeless(trouble: str, *, age: float) -> bool:
    """Whether a pod of that ``trouble`` and ``age`` in seconds needs a person before it runs."""
    return trouble in HOPELESS or (trouble in MAY_PASS and age > PASSES_WITHIN)


def trouble_of(
    status: core.PodStatus,
    state: core.ContainerState,
    remedies: Mapping[str, str],
    *,
    last: core.ContainerState | None = None,
) -> tuple[str, str]:
    """Why the pod is not running: reason, and message with the field to look at.

    ``state`` is that of the server's container, ``last`` the one before it. A container that keeps ending is quoted, as far as its
    node has kept a line that tells why; ``remedies`` may have what helps by the kind of that line (see `last_words`).
    """
    if status.phase == "Failed":
        return (
            status.reason or "PodFailed",
            status.message or "the pod failed; delete it, and it is recreated",
        )
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
            return waiting.reason, _waits(waiting, init.last_state, f"container {init.name}", remedies)
    if state.waiting is not None and state.waiting.reason:
        return state.waiting.reason, _waits(state.waiting, last, "the server", remedies)
    if state.terminated is not None:
        words = last_words(state.terminated)
        text = f"the container ended with status {state.terminated.exit_code}"
        quoted = f'{text}: "{words.line}"' if words is not None else text
        remedy = remedies.get(words.kind, "") if words is not None else ""
        return state.terminated.reason or "Terminated", "; ".join(filter(None, (quoted, remedy)))
    if state.running is None:
        return "PodPending", "the pod is starting"
    return "", ""


def sidecar_trouble(status: core.PodStatus, component: str, remedies: Mapping[str, str]) -> tuple[str, str]:
    """What keeps a container beside the server from running; ``remedies`` has what helps by its name, or under `SIDECAR`."""
    for one in status.container_statuses or ():
        state = one.state or core.ContainerState()
        if one.name == component or state.running is not None:
            continue
        why = (state.waiting.reason if state.waiting else None) or "Terminated"
        text = (state.waiting.message if state.waiting else None) or ""
        if why == LOOPS and (words := _said(one.last_state)) is not None:
            text = f'it keeps ending: "{words.line}"'
        named = remedies.get(one.name or "") or remedies.get(SIDECAR, "")
        remedy = named if why in remedies else ""
        parts = (text.strip(), remedy)
        return why, f"container {one.name}: " + ("; ".join(part for part in parts if part) or why)
    return "", ""


def _waits(
    waiting: core.ContainerStateWaiting,
    last: core.ContainerState | None,
    who: str,
    remedies: Mapping[str, str],
) -> str:
    """What a container waits for, or with which words it keeps ending."""
    reason, text = waiting.reason or "", waiting.message or ""
    if reason != LOOPS:
        return _with_remedy(text, reason, remedies)
    words = _said(last)
    if words is None:
        return "; ".join(filter(None, (text.strip(), "its log says why", remedies.get(LOOPS, ""))))
    remedy = remedies.get(words.kind, "") or remedies.get(LOOPS, "")
    return "; ".join(filter(None, (f'{who} keeps ending: "{words.line}"', remedy)))


def _said(last: core.ContainerState | None) -> LastWords | None:
    return last_words(last.terminated) if last is not None else None


def _with_remedy(text: str, reason: str, remedies: Mapping[str, str]) -> str:
    return "; ".join(part for part in (text.strip(), remedies.get(reason, "")) if part)
