"""DNSet: the transaction nodes (TN), which upstream's API calls DN."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mooring.kube.object import Object, Resource
from mooring.operators.matrixone.types.podset import (
    SET_COLUMNS,
    FailoverStatus,
    LogSetRef,
    PodSet,
    Volume,
    resource,
)
from mooring.operators.matrixone.types.storage import SharedStorageCache
from mooring.operators.workload.rollout import Roll
from mooring.runtime.crd import F, crd

__all__ = ["DNSet", "DNSetSpec", "DNSetStatus"]


class DNSetSpec(PodSet, frozen=True, kw_only=True):
    """The declared transaction nodes."""

    cache_volume: Annotated[
        Volume | None, F("A claim of each pod for the cache; absent: the node's disk.")
    ] = None
    shared_storage_cache: Annotated[SharedStorageCache | None, F("Caches of shared storage.")] = None


class DNSetStatus(FailoverStatus, frozen=True, kw_only=True):
    """What was observed."""

    rolls: Annotated[dict[str, Roll] | None, F("A roll-out under way or stopped, by component.")] = None


@crd(columns=SET_COLUMNS, preserve_unknown=True)
class DNSet(Object, frozen=True, kw_only=True):
    """The transaction nodes of a MatrixOne cluster."""

    resource: ClassVar[Resource] = resource("DNSet")

    spec: Annotated[DNSetSpec | None, F(required=True)] = None
    deps: Annotated[LogSetRef | None, F("What the pods work with.")] = None
    status: DNSetStatus | None = None
