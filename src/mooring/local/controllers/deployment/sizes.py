"""The arithmetic of a roll-out: surge, unavailability, proportions. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mooring.kube.objects.apps import Deployment, ReplicaSet

__all__ = [
    "DESIRED",
    "MAXIMUM",
    "available_of",
    "fenceposts",
    "max_surge",
    "proportions",
    "replicas_of",
    "size_of",
    "sizes_for_new",
    "sizes_for_old",
    "total",
]

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"


def replicas_of(deployment: Deployment) -> int:
    """How many pods a Deployment wants."""
    replicas = deployment.spec.replicas if deployment.spec else None
    return 1 if replicas is None else replicas


def size_of(replica_set: ReplicaSet) -> int:
    """How many pods a ReplicaSet is told to have."""
    replicas = replica_set.spec.replicas if replica_set.spec else None
    return 1 if replicas is None else replicas


def available_of(replica_set: ReplicaSet) -> int:
    """How many of its pods are available."""
    return (replica_set.status.available_replicas or 0) if replica_set.status else 0


def total(sets: Iterable[ReplicaSet]) -> int:
    """The sum of the sizes."""
    return sum(map(size_of, sets))


def fenceposts(deployment: Deployment) -> tuple[int, int]:
    """maxSurge (rounded up) and maxUnavailable (rounded down) as numbers, never both 0."""
    strategy = deployment.spec.strategy if deployment.spec else None
    if strategy is None or strategy.type != "RollingUpdate":
        return 0, 0
    rolling = strategy.rolling_update
    wanted = replicas_of(deployment)
    surge = _scaled(rolling.max_surge if rolling else None, wanted, up=True)
    unavailable = min(_scaled(rolling.max_unavailable if rolling else None, wanted, up=False), wanted)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def max_surge(deployment: Deployment) -> int:
    """How many pods more than wanted there may be."""
    return fenceposts(deployment)[0]


def _scaled(value: int | str | None, whole: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        exact = whole * int(value[:-1]) / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(value or 0)


def sizes_for_new(deployment: Deployment, new: ReplicaSet, everything: Sequence[ReplicaSet]) -> int:
    """The size that the newest ReplicaSet may have now."""
    wanted = replicas_of(deployment)
    if size_of(new) >= wanted:
        return wanted
    room = wanted + max_surge(deployment) - total(everything)
    return size_of(new) + max(0, min(room, wanted - size_of(new)))


def sizes_for_old(
    deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]
) -> list[tuple[ReplicaSet, int]]:
    """Which older ReplicaSets shrink now, and to what: unhealthy pods first, then as many as can be spared."""
    wanted = replicas_of(deployment)
    least = wanted - fenceposts(deployment)[1]
    spare = total([*old, new]) - least - (size_of(new) - available_of(new))
    if spare <= 0 or not total(old):
        return []
    sizes = {id(each): size_of(each) for each in old}
    order = sorted(old, key=lambda each: each.metadata.creation_timestamp or "")
    removed = 0
    for each in order:
        unhealthy = min(spare - removed, sizes[id(each)] - available_of(each))
        if unhealthy > 0:
            sizes[id(each)] -= unhealthy
            removed += unhealthy
    left = sum(map(available_of, [*old, new])) - least
    for each in order:
        shrink = min(sizes[id(each)], left)
        if shrink > 0:
            sizes[id(each)] -= shrink
            left -= shrink
    return [(each, sizes[id(each)]) for each in order if sizes[id(each)] != size_of(each)]


def proportions(deployment: Deployment, active: Sequence[ReplicaSet]) -> list[tuple[ReplicaSet, int]]:
    """New sizes of several active ReplicaSets when the Deployment is scaled during a roll-out."""
    wanted = replicas_of(deployment)
    allowed = wanted + max_surge(deployment) if wanted > 0 else 0
    to_add = allowed - total(active)
    newest_first = sorted(active, key=lambda e: e.metadata.creation_timestamp or "", reverse=to_add > 0)
    order = sorted(newest_first, key=size_of, reverse=True)
    added = 0
    sizes: list[tuple[ReplicaSet, int]] = []
    for each in order:
        share = _share(deployment, each, to_add - added) if to_add else 0
        sizes.append((each, size_of(each) + share))
        added += share
    if sizes and to_add != added:
        first, size = sizes[0]
        sizes[0] = (first, max(0, size + to_add - added))
    return sizes


def _share(deployment: Deployment, each: ReplicaSet, left: int) -> int:
    if not size_of(each) or not left:
        return 0
    wanted = replicas_of(deployment)
    if wanted == 0:
        fraction = -size_of(each)
    else:
        annotated = (each.metadata.annotations or {}).get(MAXIMUM, "")
        before = int(annotated) if annotated.isdigit() and int(annotated) else size_of(each)
        grown = size_of(each) * (wanted + max_surge(deployment)) / before
        fraction = math.floor(grown + 0.5) - size_of(each)
    return min(fraction, left) if left > 0 else max(fraction, left)
