"""PersistentVolumeClaims of a cluster: their names, their age, and whether they go or stay with it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

from mooring.actor import Context
from mooring.kube.errors import AlreadyExists
from mooring.kube.object import Object, owner_reference, to_dict
from mooring.kube.objects import core
from mooring.kube.patches import MergePatch

__all__ = ["claim_name", "is_older", "make_claim", "own_claims", "owned"]


def claim_name(volume: str, pod: str) -> str:
    """How a StatefulSet names the claim of a pod."""
    return f"{volume}-{pod}"


def is_older(claim: core.PersistentVolumeClaim, born: datetime | None) -> bool:
    """The claim was there before the cluster was declared: it may hold data."""
    stamp = claim.metadata.creation_timestamp
    made = datetime.fromisoformat(stamp) if stamp else None
    return born is not None and made is not None and made < born


def owned(cluster: Object, claim: core.PersistentVolumeClaim) -> bool:
    """The claim goes when the cluster does."""
    return any(ref.uid == cluster.metadata.uid for ref in claim.metadata.owner_references or ())


async def make_claim(ctx: Context[Any], claim: core.PersistentVolumeClaim) -> None:
    """Make a claim; one that is there already stays as it is."""
    with suppress(AlreadyExists):
        await ctx.client.create(claim)


async def own_claims(ctx: Context[Any], claims: Iterable[core.PersistentVolumeClaim], goes: bool) -> None:
    """Let claims go with the cluster when it is deleted (``goes``), or stay."""
    for claim in claims:
        others = [ref for ref in claim.metadata.owner_references or () if ref.uid != ctx.obj.metadata.uid]
        owners = [*others, owner_reference(ctx.obj, controller=False)] if goes else others
        body = {
            "metadata": {
                "resourceVersion": claim.metadata.resource_version,
                "ownerReferences": [to_dict(ref) for ref in owners] or None,
            }
        }
        name = claim.metadata.name or ""
        await ctx.client.patch(
            core.PersistentVolumeClaim, name, MergePatch(body), namespace=ctx.key.namespace
        )
