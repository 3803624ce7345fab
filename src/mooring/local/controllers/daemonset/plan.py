"""On which nodes a DaemonSet's pods belong, what to make and remove, and its status. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mooring.kube.objects.apps import DaemonSet, DaemonSetStatus
from mooring.kube.objects.core import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PodTemplateSpec,
    Toleration,
)
from mooring.local.controllers.placement import labels_of, matches_selector, untolerated
from mooring.local.controllers.pods import (
    from_template,
    is_available,
    is_ready,
    is_terminal,
    is_terminating,
    next_availability,
)

__all__ = ["HASH", "Plan", "belongs", "node_of", "plan", "pod_for"]

HASH = "controller-revision-hash"
GENERATION = "deprecated.daemonset.template.generation"
_TAINTS = "node.kubernetes.io/"
_OWN_TOLERATIONS = [
    *((name, "NoExecute") for name in ("not-ready", "unreachable")),
    *((name, "NoSchedule") for name in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")),
]


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes that lack a pod, pods to remove, the status, and when a pod becomes available by time."""

    create: tuple[str, ...]
    delete: tuple[Pod, ...]
    status: DaemonSetStatus
    after: float | None


def tolerations_of(template: PodTemplateSpec) -> list[Toleration]:
    """The template's tolerations and those that every daemon has."""
    spec = template.spec or PodSpec()
    names = [*_OWN_TOLERATIONS, *([("network-unavailable", "NoSchedule")] if spec.host_network else [])]
    own = [Toleration(key=_TAINTS + name, operator="Exists", effect=effect) for name, effect in names]
    present = list(spec.tolerations or ())
    return present + [toleration for toleration in own if toleration not in present]


def belongs(daemons: DaemonSet, node: Node) -> tuple[bool, bool]:
    """Whether a pod should be started on a node, and whether one that runs there may stay."""
    template = (daemons.spec.template if daemons.spec else None) or PodTemplateSpec()
    spec = template.spec or PodSpec()
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False, False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if not matches_selector(required, node) or spec.node_name not in (None, "", node.metadata.name):
        return False, False
    taints = (node.spec.taints or ()) if node.spec else ()
    tolerations = tolerations_of(template)
    start = untolerated(tolerations, taints, ("NoSchedule", "NoExecute")) is None
    return start, untolerated(tolerations, taints, ("NoExecute",)) is None


def node_of(pod: Pod) -> str:
    """The node of a daemon's pod, also before it is bound: its affinity names it."""
    spec = pod.spec
    if spec is None:
        return ""
    if spec.node_name:
        return spec.node_name
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in (required.node_selector_terms or ()) if required else ():
        for field in term.match_fields or ():
            if field.key == "metadata.name" and field.values:
                return field.values[0]
    return ""


def pod_for(daemons: DaemonSet, template: PodTemplateSpec, *, node: str, revision: str) -> Pod:
    """The pod for a node; the scheduler binds it there."""
    pod = from_template(template, daemons)
    replace = msgspec.structs.replace
    spec = pod.spec or PodSpec()
    affinity = spec.affinity or Affinity()
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[field])])
    at = replace(
        affinity.node_affinity or NodeAffinity(), required_during_scheduling_ignored_during_execution=required
    )
    spec = replace(spec, affinity=replace(affinity, node_affinity=at), tolerations=tolerations_of(template))
    labels = {**(pod.metadata.labels or {}), HASH: revision}
    if generation := (daemons.metadata.annotations or {}).get(GENERATION):
        labels["pod-template-generation"] = generation
    return replace(pod, metadata=replace(pod.metadata, labels=labels), spec=spec)


def plan(
    daemons: DaemonSet,
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    *,
    revision: str,
    collisions: int,
    now: datetime,
) -> Plan:
    """The next steps; ``revision`` is the hash of the present template, ``pods`` are the set's own."""
    spec = daemons.spec
    min_ready = (spec.min_ready_seconds or 0) if spec else 0
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        by_node.setdefault(node_of(pod), []).append(pod)
    create: list[str] = []
    delete: list[Pod] = []
    wanted: list[str] = []
    misplaced = 0
    for node in nodes:
        name = node.metadata.name or ""
        here = by_node.pop(name, [])
        start, stay = belongs(daemons, node)
        if start:
            wanted.append(name)
        misplaced += bool(here) and not start
        made, gone = _on_node(here, start=start, stay=stay)
        create += [name] * made
        delete += gone
    for left in by_node.values():  # of nodes that are no more
        delete += [pod for pod in left if not is_terminating(pod)]
    current = {n: p for p in pods if (n := node_of(p)) in wanted and not is_terminal(p)}
    if not create and not delete:
        delete += _outdated(daemons, wanted, current, revision, min_ready=min_ready, now=now)
    alive = daemons.metadata.deletion_timestamp is None
    status = _status(daemons, wanted, current, revision, min_ready, collisions, now, misplaced)
    after = next_availability(current.values(), min_ready, now) if min_ready else None
    return Plan(tuple(create) if alive else (), tuple(delete) if alive else (), status, after)


def _on_node(here: Sequence[Pod], *, start: bool, stay: bool) -> tuple[bool, list[Pod]]:
    """Whether a node needs a pod, and which of its pods must go."""
    present = [pod for pod in here if not is_terminating(pod)]
    if not stay:
        return False, present
    ended = [pod for pod in present if is_terminal(pod)]
    running = sorted(
        (pod for pod in present if not is_terminal(pod)), key=lambda p: p.metadata.creation_timestamp or ""
    )
    if not start:
        return False, ended
    return not here, ended + running[1:]


def _outdated(
    daemons: DaemonSet,
    wanted: Sequence[str],
    current: dict[str, Pod],
    revision: str,
    *,
    min_ready: int,
    now: datetime,
) -> list[Pod]:
    """Pods of older templates that may be replaced now."""
    strategy = daemons.spec.update_strategy if daemons.spec else None
    if strategy is not None and strategy.type == "OnDelete":
        return []
    rolling = strategy.rolling_update if strategy else None
    most = _scaled(rolling.max_unavailable if rolling else 1, len(wanted))
    old = [p for p in current.values() if _hash(p) != revision and not is_terminating(p)]
    down = [n for n in wanted if n not in current or not _up(current[n], min_ready, now)]
    idle = [pod for pod in old if not _up(pod, min_ready, now)]
    room = max(0, most - len(down))
    return idle + [pod for pod in old if pod not in idle][:room]


def _scaled(value: int | str | None, whole: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(whole * int(value[:-1]) / 100)
    return 1 if value is None else int(value)


def _up(pod: Pod, min_ready: int, now: datetime) -> bool:
    return is_available(pod, min_ready, now) and not is_terminating(pod)


def _hash(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(HASH, "")


def _status(
    daemons: DaemonSet,
    wanted: Sequence[str],
    current: dict[str, Pod],
    revision: str,
    min_ready: int,
    collisions: int,
    now: datetime,
    misplaced: int,
) -> DaemonSetStatus:
    here: Iterable[Pod] = list(current.values())
    available = sum(is_available(pod, min_ready, now) for pod in here)
    return DaemonSetStatus(
        observed_generation=daemons.metadata.generation,
        desired_number_scheduled=len(wanted),
        current_number_scheduled=len(current),
        number_misscheduled=misplaced,
        number_ready=sum(map(is_ready, here)),
        updated_number_scheduled=sum(_hash(pod) == revision for pod in here) or None,
        number_available=available or None,
        number_unavailable=(len(wanted) - available) or None,
        collision_count=collisions or None,
        conditions=daemons.status.conditions if daemons.status else None,
    )
