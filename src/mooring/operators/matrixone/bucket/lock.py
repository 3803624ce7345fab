"""How a LogSet takes its path of an object store, so that no other writes there. Pure.

A path is taken by a BucketClaim that names the LogSet. Two that were made at the same time see each other, and the older one
wins: nothing of a LogSet runs before it has looked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from mooring.actor.outcome import Wait
from mooring.kube.objects import meta
from mooring.operators.matrixone.bucket.paths import overlap
from mooring.operators.matrixone.identity import bucket_id
from mooring.operators.matrixone.names import BUCKET_ID
from mooring.operators.matrixone.types import (
    DELETING,
    IN_USE,
    RELEASED,
    BucketClaim,
    BucketClaimSpec,
    BucketClaimStatus,
    LogSet,
    S3Provider,
)

__all__ = ["OWNER", "Bind", "Take", "bound", "claim_for", "take", "with_retention"]

OWNER = "mooring.dev/log-set"
"""Annotation of a BucketClaim: the UID of the LogSet that it is bound to."""


@dataclass(frozen=True, kw_only=True)
class Take:
    """Make a claim."""

    claim: BucketClaim


@dataclass(frozen=True, kw_only=True)
class Bind:
    """Take over a claim that was released."""

    claim: BucketClaim


def take(log_set: LogSet, s3: S3Provider, claims: Iterable[BucketClaim]) -> BucketClaim | Take | Bind | Wait:
    """The claim that the LogSet holds, or how it gets one, or who holds the path."""
    related = [one for one in claims if one.spec and one.spec.s3 and overlap(one.spec.s3, s3)]
    mine = [one for one in related if bound(one) == _key(log_set) and _is_of(one, log_set)]
    others = [one for one in related if one not in mine]
    for other in sorted(others, key=_age):
        if not mine or _age(other) < _age(mine[0]):
            if _free(other, log_set):
                return Bind(claim=other)
            return _taken(other)
    return mine[0] if mine else Take(claim=claim_for(log_set, s3))


def bound(claim: BucketClaim) -> str:
    """namespace/name of the LogSet that a claim is bound to, "" for none."""
    return (claim.status.bind_to if claim.status is not None else None) or ""


def _key(log_set: LogSet) -> str:
    return f"{log_set.metadata.namespace}/{log_set.metadata.name}"


def _is_of(claim: BucketClaim, log_set: LogSet) -> bool:
    """Bound to this very LogSet, not to one of its name that is gone."""
    owner = (claim.metadata.annotations or {}).get(OWNER)
    return owner is None or owner == log_set.metadata.uid


def _age(claim: BucketClaim) -> tuple[str, str]:
    return claim.metadata.creation_timestamp or "", claim.metadata.uid or ""


def _free(claim: BucketClaim, log_set: LogSet) -> bool:
    """Released, and in the LogSet's namespace, whose owners gave up that data."""
    same = claim.metadata.namespace == log_set.metadata.namespace
    state = claim.status.state if claim.status is not None else None
    return same and state == RELEASED and not claim.metadata.deletion_timestamp


def _taken(claim: BucketClaim) -> Wait:
    where = f"BucketClaim {claim.metadata.namespace}/{claim.metadata.name}"
    state = claim.status.state if claim.status is not None else None
    if state == DELETING or claim.metadata.deletion_timestamp:
        text = f"spec.sharedStorage.s3: the data of {where} is being deleted there"
        return Wait("BucketTaken", text, after=5.0)
    holder = f"already bind to {bound(claim)} by {where}" if bound(claim) else f"{where} keeps data there"
    text = f"spec.sharedStorage.s3: {holder}; choose another path, or delete that claim once its data is not needed"
    return Wait("BucketTaken", text, after=10.0, stalled=True)


def claim_for(log_set: LogSet, s3: S3Provider) -> BucketClaim:
    """A new claim."""
    return BucketClaim(
        metadata=meta.ObjectMeta(
            name=f"bucket-{log_set.metadata.uid}",
            namespace=log_set.metadata.namespace,
            labels={BUCKET_ID: bucket_id(kind=s3.type, endpoint=s3.endpoint, path=s3.path)},
            annotations={OWNER: log_set.metadata.uid or ""},
        ),
        spec=BucketClaimSpec(s3=s3, log_set_spec={}),
        status=BucketClaimStatus(bind_to=_key(log_set), state=IN_USE),
    )


def with_retention(s3: S3Provider, policy: str | None) -> S3Provider:
    """The path with what becomes of its data."""
    return replace(s3, s3_retention_policy=policy or s3.s3_retention_policy)
