"""What is wrong with a change of a declaration, each with its field and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mooring.kube.object import Object
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.faults import (
    Problem,
)
from mooring.operators.matrixone.quantities import amount
from mooring.operators.matrixone.types import (
    CNSet,
    DNSet,
    LogSet,
    LogSetSpec,
    MatrixOneCluster,
    PodSet,
    SharedStorageProvider,
    Volume,
    groups_of,
    transaction_nodes,
)
from mooring.operators.matrixone.versions import Version, operator_version, server_version

__all__ = ["changes"]

Faults = Iterable[Problem]

_MOVED: Final = (
    "cannot be changed: the data stays where the cluster was made; put it back, or restore a backup elsewhere"
)


def changes(old: Object, new: Object) -> list[Problem]:
    """Everything wrong with a change."""
    check = _CHANGES.get(type(new))
    return [] if check is None or type(old) is not type(new) else list(check(old, new))


def _volume_change(where: str, old: Volume | None, new: Volume | None) -> Faults:
    if old is None or new is None:
        return
    before, after = old.storage_class_name, new.storage_class_name
    if before is not None and after is not None and before != after:
        yield Problem(f"{where}.storageClassName", f"cannot be changed; put {before!r} back")
    try:
        smaller = amount(new.size) < amount(old.size)
    except ValueError:
        return
    if smaller:
        yield Problem(f"{where}.size", f"volume size cannot be decreased; give {old.size} or more")


def _pods_change(where: str, old: PodSet, new: PodSet) -> Faults:
    if server_version(old) is not None and new.image and server_version(new) is None:
        yield Problem(
            f"{where}.semanticVersion",
            "new version must also be semantic; give the version of MatrixOne as 1.2.3",
        )
    if operator_version(new).release < operator_version(old).release:
        yield Problem(
            f"{where}.operatorVersion",
            f"must not be lower than the {operator_version(old)} of before; put that back",
        )


def _log_change(where: str, old: LogSetSpec, new: LogSetSpec) -> Faults:
    yield from _volume_change(f"{where}.volume", old.volume, new.volume)
    before, after = old.initial_config, new.initial_config
    names = ("log_shards", "dn_shards", "log_shard_replicas", "restore_from")
    gone = [
        name
        for name in names
        if (was := getattr(before, name, None)) is not None and getattr(after, name, None) != was
    ]
    if gone:
        yield Problem(
            f"{where}.initialConfig",
            "initialConfig is immutable: it is read once, when HAKeeper is bootstrapped; put it back",
        )
    one, other = _place(old.shared_storage), _place(new.shared_storage)
    if one is not None and one != other:
        yield Problem(f"{where}.sharedStorage.s3", f"sharedStorage.s3 {_MOVED}")


def _place(storage: SharedStorageProvider | None) -> tuple[str, ...] | None:
    s3 = storage.s3 if storage is not None else None
    return None if s3 is None else (s3.path or "", s3.type or "aws", s3.endpoint or "")


def _log_set_change(old: LogSet, new: LogSet) -> Faults:
    if old.spec is not None and new.spec is not None:
        yield from _log_change(
            "spec", with_defaults(old).spec or old.spec, with_defaults(new).spec or new.spec
        )


def _dn_set_change(old: DNSet, new: DNSet) -> Faults:
    if old.spec is not None and new.spec is not None:
        yield from _volume_change("spec.cacheVolume", old.spec.cache_volume, new.spec.cache_volume)


def _cn_set_change(old: CNSet, new: CNSet) -> Faults:
    if old.spec is not None and new.spec is not None:
        yield from _pods_change("spec", old.spec, new.spec)
        yield from _volume_change("spec.cacheVolume", old.spec.cache_volume, new.spec.cache_volume)


def _cluster_change(old: MatrixOneCluster, new: MatrixOneCluster) -> Faults:
    before, after = old.spec, new.spec
    if before is None or after is None:
        return
    if before.log_service is not None and after.log_service is not None:
        yield from _log_change("spec.logService", before.log_service, after.log_service)
    one, other = transaction_nodes(before), transaction_nodes(after)
    if one is not None and other is not None:
        where = "spec.tn" if after.tn is not None else "spec.dn"
        yield from _volume_change(f"{where}.cacheVolume", one.cache_volume, other.cache_volume)
    groups = {name: spec for name, _, spec in groups_of(before)}
    for name, where, spec in groups_of(after):
        if name in groups:
            yield from _volume_change(f"{where}.cacheVolume", groups[name].cache_volume, spec.cache_volume)
    known = Version.read(after.semantic_version or after.version)
    if (
        Version.read(before.semantic_version or before.version) is not None
        and known is None
        and after.version
    ):
        yield Problem(
            "spec.semanticVersion",
            "new version must also be semantic; give the version of MatrixOne as 1.2.4",
        )
    if (Version.read(after.operator_version) or (0,)) < (Version.read(before.operator_version) or (0,)):
        yield Problem(
            "spec.operatorVersion", f"must not be lower than {before.operator_version}; put that back"
        )
    if after.restore_from and after.restore_from != before.restore_from:
        yield Problem(
            "spec.restoreFrom", "cannot be given to a cluster that exists; make a new cluster for the backup"
        )


_CHANGES: Final = cast(
    "Mapping[type[Object], Any]",
    {
        MatrixOneCluster: _cluster_change,
        LogSet: _log_set_change,
        DNSet: _dn_set_change,
        CNSet: _cn_set_change,
    },
)
