"""What a Deployment does next and what its status says. Pure.

Each pass takes one step: make the newest ReplicaSet, or grow it, or shrink older ones, or tidy up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.object import owner_reference
from mooring.kube.objects.apps import (
    Deployment,
    DeploymentCondition,
    DeploymentStatus,
    ReplicaSet,
    ReplicaSetSpec,
)
from mooring.kube.objects.core import Pod, PodTemplateSpec
from mooring.kube.objects.meta import LabelSelector, ObjectMeta
from mooring.local.controllers.deployment.sizes import (
    DESIRED,
    MAXIMUM,
    available_of,
    fenceposts,
    max_surge,
    proportions,
    replicas_of,
    size_of,
    sizes_for_new,
    sizes_for_old,
    total,
)
from mooring.local.controllers.moments import seconds_since
from mooring.local.controllers.pods import is_terminal
from mooring.local.controllers.revisions import compact_json, fnv32, safe_encode

__all__ = ["Create", "Drop", "Plan", "Resize", "Revise", "Step", "new_replica_set", "plan", "same_template"]

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
_NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
}


@dataclass(frozen=True, slots=True)
class Create:
    """Make the ReplicaSet of the present template."""

    replica_set: ReplicaSet


@dataclass(frozen=True, slots=True)
class Resize:
    """Give a ReplicaSet this size; ``told``: it is worth an event."""

    replica_set: ReplicaSet
    size: int
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Revise:
    """Write annotations and minReadySeconds of the newest ReplicaSet, which lag behind the Deployment's."""

    replica_set: ReplicaSet
    annotations: Mapping[str, str]
    min_ready_seconds: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete an old, empty ReplicaSet beyond the history limit."""

    replica_set: ReplicaSet


Step = Create | Resize | Revise | Drop


@dataclass(frozen=True, slots=True)
class Plan:
    """``revision`` is the annotation that the Deployment should carry; ``after`` when to look for a timeout."""

    steps: tuple[Step, ...]
    status: DeploymentStatus
    revision: str
    after: float | None = None


def same_template(a: PodTemplateSpec | None, b: PodTemplateSpec | None) -> bool:
    """Whether two templates make the same pods; the hash label does not count."""
    return _bare(a) == _bare(b)


def _bare(template: PodTemplateSpec | None) -> PodTemplateSpec:
    template = template or PodTemplateSpec()
    meta = template.metadata or ObjectMeta()
    labels = {k: v for k, v in (meta.labels or {}).items() if k != HASH}
    bare = ObjectMeta(labels=labels, annotations=meta.annotations or None, finalizers=meta.finalizers)
    return msgspec.structs.replace(template, metadata=bare)


def hash_of(template: PodTemplateSpec | None, collisions: int) -> str:
    """The value of ``pod-template-hash``: stable for a template; not the number Kubernetes would find."""
    text = compact_json(msgspec.to_builtins(template)) + (str(collisions).encode() if collisions else b"")
    return safe_encode(str(fnv32(text)))


def new_replica_set(deployment: Deployment, *, size: int, collisions: int, revision: int) -> ReplicaSet:
    """The ReplicaSet of a Deployment's present template."""
    spec = deployment.spec
    template = (spec.template if spec else None) or PodTemplateSpec()
    digest = hash_of(template, collisions)
    meta = template.metadata or ObjectMeta()
    labels = {**(meta.labels or {}), HASH: digest}
    selector = (spec.selector if spec else None) or LabelSelector()
    return ReplicaSet(
        metadata=ObjectMeta(
            name=f"{deployment.metadata.name}-{digest}",
            namespace=deployment.metadata.namespace,
            labels=labels,
            annotations={
                **_copied(deployment),
                REVISION: str(revision),
                **_size_annotations(deployment),
            },
            owner_references=[owner_reference(deployment)],
        ),
        spec=ReplicaSetSpec(
            replicas=size,
            min_ready_seconds=(spec.min_ready_seconds or None) if spec else None,
            selector=msgspec.structs.replace(
                selector, match_labels={**(selector.match_labels or {}), HASH: digest}
            ),
            template=msgspec.structs.replace(template, metadata=msgspec.structs.replace(meta, labels=labels)),
        ),
    )


def _copied(deployment: Deployment) -> dict[str, str]:
    return {k: v for k, v in (deployment.metadata.annotations or {}).items() if k not in _NOT_COPIED}


def _size_annotations(deployment: Deployment) -> dict[str, str]:
    wanted = replicas_of(deployment)
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + max_surge(deployment))}


def _revision(replica_set: ReplicaSet) -> int:
    text = (replica_set.metadata.annotations or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _created(replica_set: ReplicaSet) -> tuple[str, str]:
    return replica_set.metadata.creation_timestamp or "", replica_set.metadata.name or ""


@dataclass(frozen=True)
class _Scene:
    deployment: Deployment
    new: ReplicaSet | None
    old: list[ReplicaSet]
    pods: Sequence[Pod]
    now: datetime
    collisions: int

    @property
    def everything(self) -> list[ReplicaSet]:
        return [*self.old, *([self.new] if self.new is not None else [])]

    @property
    def revision(self) -> int:
        """The revision of the present template: one above all others."""
        return max((_revision(each) for each in self.old), default=0) + 1


def plan(
    deployment: Deployment,
    replica_sets: Sequence[ReplicaSet],
    pods: Sequence[Pod],
    *,
    now: datetime,
    collisions: int,
) -> Plan:
    """The next step of a Deployment; ``replica_sets`` and ``pods`` (of those) are its own."""
    spec = deployment.spec
    template = spec.template if spec else None
    order = sorted(replica_sets, key=_created)
    new = next((each for each in order if each.spec and same_template(each.spec.template, template)), None)
    scene = _Scene(deployment, new, [e for e in order if e is not new], pods, now, collisions)
    if deployment.metadata.deletion_timestamp is not None:
        return _with_status(scene, ())
    steps = _revise(scene)
    if spec is not None and spec.paused:
        return _with_status(scene, (*steps, *_scale(scene), *_tidy(scene)))
    if _scaled_by_user(scene):
        return _with_status(scene, (*steps, *_scale(scene)))
    recreate = spec is not None and spec.strategy is not None and spec.strategy.type == "Recreate"
    steps = (*steps, *(_recreate(scene) if recreate else _roll(scene)))
    return _with_status(scene, steps)


def _revise(scene: _Scene) -> tuple[Step, ...]:
    """Bring the newest ReplicaSet's annotations up to date; a rolled-back one gets a new revision."""
    new = scene.new
    if new is None:
        return ()
    present = new.metadata.annotations or {}
    wanted = _copied(scene.deployment)
    if scene.revision > _revision(new):
        wanted[REVISION] = str(scene.revision)
        if before := present.get(REVISION):
            history = [part for part in present.get(HISTORY, "").split(",") if part]
            wanted[HISTORY] = ",".join([*history, before])
    ready = (scene.deployment.spec.min_ready_seconds or 0) if scene.deployment.spec else 0
    changed = {k: v for k, v in wanted.items() if present.get(k) != v}
    if not changed and ready == ((new.spec.min_ready_seconds or 0) if new.spec else 0):
        return ()
    return (Revise(new, changed, ready),)


def _scaled_by_user(scene: _Scene) -> bool:
    """The Deployment's size has changed since its ReplicaSets were last resized."""
    wanted = str(replicas_of(scene.deployment))
    active = [each for each in scene.everything if size_of(each) > 0]
    return any((each.metadata.annotations or {}).get(DESIRED, wanted) != wanted for each in active)


def _resize(scene: _Scene, each: ReplicaSet, size: int) -> Resize | None:
    annotations = _size_annotations(scene.deployment)
    present = each.metadata.annotations or {}
    stale = any(present.get(key) != value for key, value in annotations.items())
    return Resize(each, size, annotations) if size != size_of(each) or stale else None


def _scale(scene: _Scene) -> tuple[Step, ...]:
    wanted = replicas_of(scene.deployment)
    active = [each for each in scene.everything if size_of(each) > 0]
    steps: list[Resize | None] = []
    if len(active) <= 1:
        only = active[0] if active else scene.new or (scene.old[-1] if scene.old else None)
        if only is not None:
            steps = [_resize(scene, only, wanted)]
    elif _saturated(scene):
        steps = [_resize(scene, each, 0) for each in scene.old if size_of(each) > 0]
    elif fenceposts(scene.deployment) != (0, 0):
        steps = [_resize(scene, each, size) for each, size in proportions(scene.deployment, active)]
    return tuple(step for step in steps if step is not None)


def _saturated(scene: _Scene) -> bool:
    new, wanted = scene.new, replicas_of(scene.deployment)
    if new is None or (new.metadata.annotations or {}).get(DESIRED) != str(wanted):
        return False
    return size_of(new) == wanted and available_of(new) == wanted


def _roll(scene: _Scene) -> tuple[Step, ...]:
    deployment, new = scene.deployment, scene.new
    if new is None:
        room = replicas_of(deployment) + max_surge(deployment) - total(scene.old)
        size = max(0, min(room, replicas_of(deployment)))
        return (Create(_fresh(scene, size)),)
    size = sizes_for_new(deployment, new, scene.everything)
    if size != size_of(new):
        step = _resize(scene, new, size)
        return (step,) if step else ()
    shrunk = sizes_for_old(deployment, new, scene.old)
    if shrunk:
        return tuple(step for each, to in shrunk if (step := _resize(scene, each, to)))
    return _tidy_if_done(scene)


def _fresh(scene: _Scene, size: int) -> ReplicaSet:
    return new_replica_set(scene.deployment, size=size, collisions=scene.collisions, revision=scene.revision)


def _recreate(scene: _Scene) -> tuple[Step, ...]:
    shrunk = [_resize(scene, each, 0) for each in scene.old if size_of(each) > 0]
    if shrunk:
        return tuple(step for step in shrunk if step is not None)
    mine = scene.new.metadata.uid if scene.new is not None else None
    if any(_owner(pod) != mine and not is_terminal(pod) for pod in scene.pods):
        return ()  # the last of the old pods have to go first
    wanted = replicas_of(scene.deployment)
    if scene.new is None:
        return (Create(_fresh(scene, wanted)),)
    if size_of(scene.new) != wanted:
        step = _resize(scene, scene.new, wanted)
        return (step,) if step else ()
    return _tidy_if_done(scene)


def _owner(pod: Pod) -> str | None:
    return next((o.uid for o in pod.metadata.owner_references or () if o.controller), None)


def _tidy_if_done(scene: _Scene) -> tuple[Step, ...]:
    return _tidy(scene) if _complete(scene.deployment, _counts(scene)) else ()


def _tidy(scene: _Scene) -> tuple[Step, ...]:
    """Drop the oldest revisions beyond the limit, those that have or had pods a moment ago excepted."""
    limit = scene.deployment.spec.revision_history_limit if scene.deployment.spec else None
    alive = [each for each in scene.old if each.metadata.deletion_timestamp is None]
    surplus = len(alive) - (10 if limit is None else limit)
    return tuple(Drop(each) for each in sorted(alive, key=_revision)[: max(0, surplus)] if _idle(each))


def _idle(each: ReplicaSet) -> bool:
    status = each.status
    seen = (status.observed_generation or 0) if status else 0
    return not size_of(each) and not (status and status.replicas) and (each.metadata.generation or 0) <= seen


# --- status


def _counts(scene: _Scene) -> DeploymentStatus:
    sets = scene.everything
    replicas = sum((each.status.replicas or 0) if each.status else 0 for each in sets)
    available = sum(map(available_of, sets))
    new = scene.new.status if scene.new is not None else None
    return DeploymentStatus(
        observed_generation=scene.deployment.metadata.generation,
        replicas=replicas or None,
        updated_replicas=((new.replicas or 0) if new else 0) or None,
        ready_replicas=sum((e.status.ready_replicas or 0) if e.status else 0 for e in sets) or None,
        available_replicas=available or None,
        unavailable_replicas=max(0, replicas - available) or None,
        terminating_replicas=sum((e.status.terminating_replicas or 0) if e.status else 0 for e in sets),
        collision_count=scene.collisions or None,
    )


def _complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    wanted = replicas_of(deployment)
    return (
        (status.updated_replicas or 0) == (status.replicas or 0) == (status.available_replicas or 0) == wanted
    )


def _with_status(scene: _Scene, steps: Sequence[Step]) -> Plan:
    status = _counts(scene)
    conditions = {c.type or "": c for c in _present(scene.deployment)}
    _set(conditions, _availability(scene.deployment, status, scene.now))
    _set_progress(scene, conditions, status, creating=any(isinstance(step, Create) for step in steps))
    _set_failure(scene, conditions)
    status = msgspec.structs.replace(status, conditions=list(conditions.values()) or None)
    present = (scene.deployment.metadata.annotations or {}).get(REVISION, "")
    revised = scene.new is not None or any(isinstance(step, Create) for step in steps)
    kept = max(scene.revision, _revision(scene.new)) if scene.new is not None else scene.revision
    revision = str(kept) if revised else present
    return Plan(tuple(steps), status, revision, _deadline(scene, conditions, status))


def _present(deployment: Deployment) -> list[DeploymentCondition]:
    return list((deployment.status.conditions or ()) if deployment.status else ())


def _condition(kind: str, status: str, reason: str, message: str, now: datetime) -> DeploymentCondition:
    moment = rfc3339(now)
    return DeploymentCondition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_update_time=moment,
        last_transition_time=moment,
    )


def _set(conditions: dict[str, DeploymentCondition], wanted: DeploymentCondition) -> None:
    """Take a condition over unless it says the same; its transition time moves with its status only."""
    kind = wanted.type or ""
    before = conditions.get(kind)
    if before is not None and (before.status, before.reason) == (wanted.status, wanted.reason):
        return
    if before is not None and before.status == wanted.status:
        wanted = msgspec.structs.replace(wanted, last_transition_time=before.last_transition_time)
    conditions[kind] = wanted


def _availability(deployment: Deployment, status: DeploymentStatus, now: datetime) -> DeploymentCondition:
    least = replicas_of(deployment) - fenceposts(deployment)[1]
    if (status.available_replicas or 0) >= least:
        text = "Deployment has minimum availability."
        return _condition("Available", "True", "MinimumReplicasAvailable", text, now)
    text = "Deployment does not have minimum availability."
    return _condition("Available", "False", "MinimumReplicasUnavailable", text, now)


def _set_progress(
    scene: _Scene,
    conditions: dict[str, DeploymentCondition],
    status: DeploymentStatus,
    *,
    creating: bool,
) -> None:
    spec, now = scene.deployment.spec, scene.now
    if spec is None or not _deadline_seconds(scene.deployment):
        conditions.pop("Progressing", None)
        return
    current = conditions.get("Progressing")
    paused_reason = current is not None and current.reason == "DeploymentPaused"
    if spec.paused:
        if current is None or current.reason not in ("DeploymentPaused", "ProgressDeadlineExceeded"):
            text = "Deployment is paused"
            _set(conditions, _condition("Progressing", "Unknown", "DeploymentPaused", text, now))
        return
    if paused_reason:
        text = "Deployment is resumed"
        _set(conditions, _condition("Progressing", "Unknown", "DeploymentResumed", text, now))
    new = scene.new
    if creating:
        name = hash_name(scene)
        text = f'Created new replica set "{name}"'
        _set(conditions, _condition("Progressing", "True", "NewReplicaSetCreated", text, now))
        return
    if current is None and new is not None:
        text = f'Found new replica set "{new.metadata.name}"'
        _set(conditions, _condition("Progressing", "True", "FoundNewReplicaSet", text, now))
        current = conditions["Progressing"]
    done = (status.replicas or 0) == (status.updated_replicas or 0)
    if done and current is not None and current.reason == "NewReplicaSetAvailable":
        return
    name = (
        f'ReplicaSet "{new.metadata.name}"'
        if new is not None
        else f'Deployment "{scene.deployment.metadata.name}"'
    )
    if _complete(scene.deployment, status):
        text = f"{name} has successfully progressed."
        _set(conditions, _condition("Progressing", "True", "NewReplicaSetAvailable", text, now))
    elif _progressed(scene.deployment.status or DeploymentStatus(), status):
        text = f"{name} is progressing."
        moved = _condition("Progressing", "True", "ReplicaSetUpdated", text, now)
        if current is not None and current.status == "True":
            moved = msgspec.structs.replace(moved, last_transition_time=current.last_transition_time)
        conditions["Progressing"] = moved
    elif _timed_out(scene.deployment, conditions.get("Progressing"), now):
        text = f"{name} has timed out progressing."
        _set(conditions, _condition("Progressing", "False", "ProgressDeadlineExceeded", text, now))


def hash_name(scene: _Scene) -> str:
    """The name of the ReplicaSet that is about to be made."""
    template = scene.deployment.spec.template if scene.deployment.spec else None
    return f"{scene.deployment.metadata.name}-{hash_of(template, scene.collisions)}"


def _progressed(old: DeploymentStatus, new: DeploymentStatus) -> bool:
    def of(status: DeploymentStatus) -> tuple[int, int, int, int]:
        updated = status.updated_replicas or 0
        outdated = (status.replicas or 0) - updated
        return updated, -outdated, status.ready_replicas or 0, status.available_replicas or 0

    return any(after > before for before, after in zip(of(old), of(new), strict=True))


def _deadline_seconds(deployment: Deployment) -> int:
    seconds = deployment.spec.progress_deadline_seconds if deployment.spec else None
    return 0 if seconds is None or seconds >= 2**31 - 1 else seconds


def _timed_out(deployment: Deployment, current: DeploymentCondition | None, now: datetime) -> bool:
    if current is None or current.reason == "NewReplicaSetAvailable":
        return False
    if current.reason == "ProgressDeadlineExceeded":
        return True
    return seconds_since(current.last_update_time, now) > _deadline_seconds(deployment)


def _deadline(
    scene: _Scene, conditions: Mapping[str, DeploymentCondition], status: DeploymentStatus
) -> float | None:
    """Seconds until a roll-out that does not move has timed out."""
    current = conditions.get("Progressing")
    if current is None or _complete(scene.deployment, status):
        return None
    if current.reason in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"):
        return None
    passed = seconds_since(current.last_update_time, scene.now)
    return max(1.0, _deadline_seconds(scene.deployment) - passed + 1)


def _set_failure(scene: _Scene, conditions: dict[str, DeploymentCondition]) -> None:
    """Show what keeps ReplicaSets from making pods."""
    order = [*([scene.new] if scene.new is not None else []), *scene.old]
    for each in order:
        for condition in (each.status.conditions or ()) if each.status else ():
            if condition.type == "ReplicaFailure" and condition.status == "True":
                shown = _condition(
                    "ReplicaFailure", "True", condition.reason or "", condition.message or "", scene.now
                )
                _set(conditions, shown)
                return
    conditions.pop("ReplicaFailure", None)
