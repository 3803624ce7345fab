"""What a StatefulSet needs next: the steps, in stages, and the status they start from. Pure.

The order of work is Kubernetes': replicas from the lowest ordinal up, then those beyond the count from the
highest down, then the rolling update from the highest down. OrderedReady stops at the first pod that is not
there, ready and available; Parallel does everything at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mooring.kube.objects.apps import ControllerRevision, StatefulSet, StatefulSetStatus
from mooring.kube.objects.core import PersistentVolumeClaim, Pod, PodTemplateSpec
from mooring.kube.objects.meta import OwnerReference
from mooring.local.controllers.pods import (
    is_available,
    is_ready,
    is_terminal,
    is_terminating,
    next_availability,
    phase_of,
)
from mooring.local.controllers.revisions import template_of
from mooring.local.controllers.statefulset.identity import (
    claims_of,
    identity_matches,
    in_range,
    new_pod,
    ordinal_of,
    ordinals,
    replicas_of,
    revision_of,
    start_of,
    storage_matches,
)
from mooring.local.controllers.statefulset.retention import conflicting, is_stale, owners_wanted

__all__ = ["CreateClaim", "CreatePod", "DeletePod", "OwnClaim", "Plan", "RepairPod", "Step", "plan"]


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Create a claim that a pod needs."""

    pod: Pod
    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod after its claims; ``blocked`` names a claim that is being deleted."""

    pod: Pod
    claims: tuple[CreateClaim, ...] = ()
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod: it has ended, is beyond the count, or has an old revision."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """Set a claim's owners as the retention policy says."""

    claim: PersistentVolumeClaim
    owners: tuple[OwnerReference, ...]
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class RepairPod:
    """Give an adopted pod the labels and volumes of its identity."""

    pod: Pod


Step = CreateClaim | CreatePod | DeletePod | OwnClaim | RepairPod


@dataclass(frozen=True, slots=True)
class Plan:
    """``stages`` run one after the other, the steps of a stage together when ``parallel``.

    ``after``: seconds until a pod becomes available by time alone.
    """

    stages: tuple[tuple[Step, ...], ...]
    status: StatefulSetStatus
    parallel: bool
    after: float | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        return tuple(step for stage in self.stages for step in stage)


@dataclass(frozen=True)
class _Scene:
    sts: StatefulSet
    claims: Mapping[str, PersistentVolumeClaim]
    now: datetime
    ordered: bool
    min_ready: int

    def available(self, pod: Pod) -> bool:
        return is_available(pod, self.min_ready, self.now)

    def unavailable(self, pod: Pod) -> bool:
        return not self.available(pod) or is_terminating(pod)


def plan(
    sts: StatefulSet,
    pods: Sequence[Pod],
    *,
    claims: Mapping[str, PersistentVolumeClaim],
    current: ControllerRevision,
    update: ControllerRevision,
    collisions: int,
    now: datetime,
) -> Plan:
    """The next steps of a set.

    ``pods`` are the set's own, ``claims`` those of its namespace by name, ``current`` and ``update`` the
    revisions that ``status.currentRevision`` and the present template stand for.
    """
    spec = sts.spec
    if spec is None:
        raise ValueError(f"StatefulSet {sts.metadata.name} has no spec")
    min_ready = spec.min_ready_seconds or 0
    scene = _Scene(sts, claims, now, spec.pod_management_policy != "Parallel", min_ready)
    replicas = _replicas(sts, pods, current, update)
    condemned = sorted(
        (pod for pod in pods if ordinal_of(pod) >= 0 and not in_range(pod, sts)), key=ordinal_of, reverse=True
    )
    deleting = sts.metadata.deletion_timestamp is not None
    stages, decrement = ((), 0) if deleting else _stages(scene, replicas, condemned, update)
    counted = pods if deleting else [*replicas, *condemned]
    status = _status(scene, counted, current, update, collisions)
    if decrement:
        status = msgspec.structs.replace(
            status, current_replicas=max(0, (status.current_replicas or 0) - decrement)
        )
    after = None
    if min_ready and status.ready_replicas != status.available_replicas:
        after = next_availability(pods, min_ready, now)
    return Plan(stages, _completed(sts, status), not scene.ordered, after)


def _replicas(
    sts: StatefulSet, pods: Sequence[Pod], current: ControllerRevision, update: ControllerRevision
) -> list[Pod]:
    """One pod for each ordinal, the missing ones as they are to be created."""
    present = {ordinal_of(pod): pod for pod in pods}
    templates: dict[str, PodTemplateSpec] = {}
    replicas = []
    for ordinal in ordinals(sts):
        pod = present.get(ordinal)
        if pod is None:
            revision = current if _keeps_current(sts, ordinal) else update
            name = revision.metadata.name or ""
            if name not in templates:
                templates[name] = template_of(revision)
            pod = new_pod(sts, templates[name], revision=name, ordinal=ordinal)
        replicas.append(pod)
    return replicas


def _keeps_current(sts: StatefulSet, ordinal: int) -> bool:
    """Whether a pod made now gets the current revision rather than the newest."""
    strategy = sts.spec.update_strategy if sts.spec else None
    if strategy is None:
        return False
    if strategy.rolling_update is not None:
        return ordinal < start_of(sts) + (strategy.rolling_update.partition or 0)
    if strategy.type != "RollingUpdate":
        return False
    return ordinal < start_of(sts) + ((sts.status.current_replicas or 0) if sts.status else 0)


def _stages(
    scene: _Scene, replicas: list[Pod], condemned: list[Pod], update: ControllerRevision
) -> tuple[tuple[tuple[Step, ...], ...], int]:
    """The stages, and by how much currentReplicas falls through them."""
    stages: list[tuple[Step, ...]] = []
    halted = False
    first: list[Step] = []
    for pod in replicas:
        steps, halt = _replica_steps(scene, pod)
        first += steps
        if halt and scene.ordered:
            halted = True
            break
    stages.append(tuple(first))
    if not halted:
        stages.append(tuple(step for pod in condemned for step in _own_claims(scene, pod)))
        removals, halted = _removals(scene, replicas, condemned)
        stages.append(tuple(removals))
    falls = 0
    if not halted:
        rolled = _roll(scene, replicas, update)
        stages.append(tuple(rolled))
        falls = len(rolled)
    return tuple(stage for stage in stages if stage), falls


def _replica_steps(scene: _Scene, pod: Pod) -> tuple[list[Step], bool]:
    """What one wanted pod needs, and whether ordered work stops here."""
    if is_terminal(pod):
        # A new one is made when this one is gone.
        return ([] if is_terminating(pod) else [DeletePod(pod)]), True
    if not phase_of(pod):
        return _create(scene, pod), True
    steps: list[Step] = []
    if phase_of(pod) == "Pending":
        missing, _ = _missing_claims(scene, pod)
        steps += [*missing, *_own_claims(scene, pod)]
    unready = phase_of(pod) != "Running" or not is_ready(pod)
    if scene.ordered and (is_terminating(pod) or unready or not scene.available(pod)):
        return steps, True
    if not identity_matches(scene.sts, pod) or not storage_matches(scene.sts, pod):
        missing, _ = _missing_claims(scene, pod)
        steps += [*(step for step in missing if step not in steps), RepairPod(pod)]
    steps += [step for step in _own_claims(scene, pod) if step not in steps]
    return steps, False


def _create(scene: _Scene, pod: Pod) -> list[Step]:
    wanted = claims_of(scene.sts, ordinal_of(pod))
    present = [scene.claims[c.metadata.name or ""] for c in wanted if c.metadata.name in scene.claims]
    if any(is_stale(claim, scene.sts, pod) for claim in present):
        return []
    missing, blocked = _missing_claims(scene, pod)
    return [CreatePod(pod, tuple(missing), blocked)]


def _missing_claims(scene: _Scene, pod: Pod) -> tuple[list[CreateClaim], str]:
    missing, blocked = [], ""
    for claim in claims_of(scene.sts, ordinal_of(pod)):
        present = scene.claims.get(claim.metadata.name or "")
        if present is None:
            missing.append(CreateClaim(pod, claim))
        elif present.metadata.deletion_timestamp:
            blocked = claim.metadata.name or ""
    return missing, blocked


def _own_claims(scene: _Scene, pod: Pod) -> list[Step]:
    steps: list[Step] = []
    for wanted in claims_of(scene.sts, ordinal_of(pod)):
        claim = scene.claims.get(wanted.metadata.name or "")
        if claim is None:
            continue
        owners = owners_wanted(claim, scene.sts, pod)
        if owners is not None:
            steps.append(OwnClaim(claim, tuple(owners), conflicting(claim, scene.sts, pod)))
    return steps


def _removals(scene: _Scene, replicas: list[Pod], condemned: list[Pod]) -> tuple[list[Step], bool]:
    """Deletions of pods beyond the count; ordered, one at a time, never past an unhealthy one."""
    if not scene.ordered:
        return [DeletePod(pod) for pod in condemned if not is_terminating(pod)], False
    if not condemned:
        return [], False
    everyone = [*replicas, *reversed(condemned)]
    first_unhealthy = next((pod for pod in everyone if scene.unavailable(pod)), None)
    pod = condemned[0]
    if is_terminating(pod):
        return [], True
    if not scene.available(pod) and pod is not first_unhealthy:
        return [], True
    return [DeletePod(pod)], True


def _roll(scene: _Scene, replicas: list[Pod], update: ControllerRevision) -> list[Step]:
    """The deletion of one pod of an old revision, if the update may go on."""
    strategy = scene.sts.spec.update_strategy if scene.sts.spec else None
    if strategy is not None and strategy.type == "OnDelete":
        return []
    rolling = strategy.rolling_update if strategy else None
    partition = (rolling.partition or 0) if rolling else 0
    for pod in reversed(replicas[partition:]):
        if revision_of(pod) != update.metadata.name and not is_terminating(pod):
            return [DeletePod(pod)]
        if scene.unavailable(pod):
            return []
    return []


def _status(
    scene: _Scene,
    pods: Sequence[Pod],
    current: ControllerRevision,
    update: ControllerRevision,
    collisions: int,
) -> StatefulSetStatus:
    created = [pod for pod in pods if phase_of(pod)]
    ready = [pod for pod in created if phase_of(pod) == "Running" and is_ready(pod)]
    staying = [revision_of(pod) for pod in created if not is_terminating(pod)]
    return StatefulSetStatus(
        observed_generation=scene.sts.metadata.generation,
        replicas=len(created),
        ready_replicas=len(ready),
        available_replicas=sum(scene.available(pod) for pod in ready),
        current_replicas=staying.count(current.metadata.name or ""),
        updated_replicas=staying.count(update.metadata.name or ""),
        current_revision=current.metadata.name,
        update_revision=update.metadata.name,
        collision_count=collisions,
        conditions=scene.sts.status.conditions if scene.sts.status else None,
    )


def _completed(sts: StatefulSet, status: StatefulSetStatus) -> StatefulSetStatus:
    """The status with a finished rolling update entered; the counts Kubernetes omits at 0 are omitted."""
    replicas = replicas_of(sts)
    strategy = sts.spec.update_strategy if sts.spec else None
    if (
        strategy.type if strategy else None
    ) == "RollingUpdate" and status.updated_replicas == status.ready_replicas == status.replicas == replicas:
        status = msgspec.structs.replace(
            status, current_replicas=status.updated_replicas, current_revision=status.update_revision
        )
    return msgspec.structs.replace(
        status,
        ready_replicas=status.ready_replicas or None,
        current_replicas=status.current_replicas or None,
        updated_replicas=status.updated_replicas or None,
    )
