"""The backup that ``spec.restoreFrom`` names."""

from __future__ import annotations

from typing import Any, TypeVar

from mooring.actor import Context, Wait
from mooring.cache import NotCached
from mooring.operators.backup.types import BackupObject

__all__ = ["backup_named"]

T = TypeVar("T", bound=BackupObject)


def backup_named(ctx: Context[Any], kind: type[T], name: str) -> T | Wait:
    """The backup of that name in the namespace of the cluster, or why there is none."""
    try:
        found = ctx.client.find(kind, name, namespace=ctx.key.namespace)
    except NotCached:  # the operator began without its backups
        resource = kind.resource
        text = (
            f"spec.restoreFrom.backup: {resource.plural}.{resource.group} is not defined, or may not be listed; define it by "
            "`mooring crds apply`, or name a target and a prefix"
        )
        return Wait("BackupNotFound", text, after=30.0, stalled=True)
    if found is None:
        text = f"spec.restoreFrom.backup: there is no {kind.resource.kind} {name}; correct the name"
        return Wait("BackupNotFound", text, after=30.0, stalled=True)
    return found
