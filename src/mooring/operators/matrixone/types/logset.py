"""LogSet: the log service with HAKeeper."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from mooring.kube.object import Object, Resource
from mooring.kube.part import Part
from mooring.operators.matrixone.types.podset import (
    SET_COLUMNS,
    FailoverStatus,
    PodSet,
    Volume,
    resource,
)
from mooring.operators.matrixone.types.storage import (
    DELETE,
    ONE_PROVIDER,
    S3Provider,
    SharedStorageProvider,
)
from mooring.operators.workload.rollout import Roll
from mooring.runtime.crd import F, Rule, crd, immutable, never_removed, rules

__all__ = [
    "FAILURE_TIMEOUT",
    "InitialConfig",
    "LogSet",
    "LogSetDiscovery",
    "LogSetSpec",
    "LogSetStatus",
    "LogSharedStorage",
    "LogStore",
    "claim_retention",
    "data_retention",
]

FAILURE_TIMEOUT: Final = "10m"
BOOT: Final = "it is read once, when HAKeeper is bootstrapped; make a new cluster for another value"
_S3: Final = {"path": "", "type": "aws", "endpoint": ""}
"""What says where the data is, and what stands for it where it is not given; region and credentials may change."""
_MOVED: Final = (
    "cannot be changed: the data stays where the cluster was made; put it back, or restore a backup elsewhere"
)


@rules(never_removed("logShards", "dnShards", "logShardReplicas", message=f"cannot be removed: {BOOT}"))
class InitialConfig(Part, frozen=True, kw_only=True):
    """What HAKeeper is bootstrapped with; immutable."""

    log_shards: Annotated[
        int | None, F("Log shards; default 1.", minimum=1, rules=(immutable(f"cannot be changed: {BOOT}"),))
    ] = None
    dn_shards: Annotated[
        int | None, F("DN shards; default 1.", minimum=1, rules=(immutable(f"cannot be changed: {BOOT}"),))
    ] = None
    log_shard_replicas: Annotated[
        int | None,
        F(
            "Replicas of each log shard; default 3 with three stores and more, else 1.",
            minimum=1,
            rules=(immutable(f"cannot be changed: {BOOT}"),),
        ),
    ] = None
    restore_from: Annotated[
        str | None,
        F(
            "File with HAKeeper's data to start from, such as hk_data.",
            max_length=2048,
            rules=(immutable(f"cannot be changed: {BOOT}"),),
        ),
    ] = None


def _same(name: str, default: str) -> str:
    return " == ".join(f"(has({one}.{name}) ? {one}.{name} : '{default}')" for one in ("self", "oldSelf"))


_FIXED: Final = Rule(
    " && ".join(_same(*one) for one in _S3.items()),
    f"the bucket and its path {_MOVED}",
    reason="FieldValueForbidden",
)


@rules(ONE_PROVIDER, never_removed("s3", message=f"sharedStorage.s3 {_MOVED}"))
class LogSharedStorage(SharedStorageProvider, frozen=True, kw_only=True):
    """Where the cluster's data is stored: one of the two; S3 cannot be changed later."""

    s3: Annotated[
        S3Provider | None,
        F(
            "A path in a bucket.",
            rules=(_FIXED,),
        ),
    ] = None


@rules(
    Rule(
        "!has(self.initialConfig) || !has(self.initialConfig.logShardReplicas) || self.replicas == 0 "
        "|| self.initialConfig.logShardReplicas <= self.replicas",
        "initialConfig.logShardReplicas must not be more than replicas: each replica of a shard needs a store of its own",
    )
)
class LogSetSpec(PodSet, frozen=True, kw_only=True):
    """The declared log service."""

    volume: Annotated[Volume | None, F("The claim of each store.", required=True)] = None
    shared_storage: Annotated[
        LogSharedStorage | None, F("Where the cluster's data is stored.", required=True)
    ] = None
    initial_config: Annotated[InitialConfig | None, F("What HAKeeper is bootstrapped with.")] = None
    store_failure_timeout: Annotated[
        str | None, F(f"How long a store may be down before it is repaired; default {FAILURE_TIMEOUT}.")
    ] = None
    failed_pod_strategy: Annotated[
        str | None, F("What becomes of the pod of a failed store: Delete or Orphan; default Delete.")
    ] = None
    pvc_retention_policy: Annotated[
        str | None,
        F("What becomes of claims that no store needs any more: Delete or Retain; default Delete."),
    ] = None


class LogSetDiscovery(Part, frozen=True, kw_only=True):
    """Where HAKeeper is reached."""

    port: Annotated[int | None, F("Its port.")] = None
    address: Annotated[str | None, F("Its host.")] = None


class LogStore(Part, frozen=True, kw_only=True):
    """One store as HAKeeper sees it."""

    pod_name: Annotated[str, F("Its pod.")] = ""
    uuid: Annotated[str, F("Its identity.")] = ""
    state: Annotated[str, F("Serving, Joining, Spare, Held, Leaving, Failed or Unknown.")] = ""
    shards: Annotated[list[int] | None, F("Shards that it holds a replica of.")] = None
    leads: Annotated[list[int] | None, F("Shards that it leads.")] = None
    reason: Annotated[str, F("What is in the way.")] = ""
    since: Annotated[str, F("Since when it is in this state.", format="date-time")] = ""


class LogSetStatus(FailoverStatus, frozen=True, kw_only=True):
    """What was observed."""

    discovery: Annotated[LogSetDiscovery | None, F("Where HAKeeper is reached.")] = None
    stores: Annotated[list[LogStore] | None, F("Every store.")] = None
    formed: Annotated[
        bool | None, F("HAKeeper has answered: from then on a store with an empty disk is held back.")
    ] = None
    rolls: Annotated[dict[str, Roll] | None, F("A roll-out under way or stopped, by component.")] = None


@crd(columns=SET_COLUMNS, preserve_unknown=True)
class LogSet(Object, frozen=True, kw_only=True):
    """The log service of a MatrixOne cluster."""

    resource: ClassVar[Resource] = resource("LogSet")

    spec: Annotated[LogSetSpec | None, F(required=True)] = None
    status: LogSetStatus | None = None


def claim_retention(spec: LogSetSpec) -> str:
    """What becomes of claims that no store needs any more; what S3 data is to become, where only that is given."""
    s3 = spec.shared_storage.s3 if spec.shared_storage else None
    return spec.pvc_retention_policy or (s3.s3_retention_policy if s3 else None) or DELETE


def data_retention(spec: LogSetSpec) -> str | None:
    """What becomes of the data in S3; what claims are to become, where only that is given. None without S3."""
    s3 = spec.shared_storage.s3 if spec.shared_storage else None
    return None if s3 is None else s3.s3_retention_policy or spec.pvc_retention_policy or DELETE
