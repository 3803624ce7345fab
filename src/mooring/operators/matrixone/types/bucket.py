"""BucketClaim: who owns a path of an object store."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from mooring.kube.object import Object, Resource
from mooring.kube.part import Part
from mooring.operators.matrixone.types.podset import ANYTHING, SetStatus, resource
from mooring.operators.matrixone.types.storage import S3Provider
from mooring.runtime.crd import AGE, F, PrinterColumn, crd

__all__ = ["DELETING", "IN_USE", "RELEASED", "BucketClaim", "BucketClaimSpec", "BucketClaimStatus"]

IN_USE: Final = "InUse"
RELEASED: Final = "Released"
DELETING: Final = "Deleting"


class BucketClaimSpec(Part, frozen=True, kw_only=True):
    """The claimed path."""

    s3: Annotated[S3Provider | None, F("The path.", required=True)] = None
    log_set_spec: Annotated[
        dict[str, Any] | None,
        F(
            "Template of the LogSet's pods, for the job that deletes the data.",
            schema=ANYTHING,
            required=True,
        ),
    ] = None


class BucketClaimStatus(SetStatus, frozen=True, kw_only=True):
    """Who owns it; written by a plain update, since upstream's kind has no status subresource."""

    bind_to: Annotated[str | None, F("namespace/name of the LogSet, empty once released.", required=True)] = (
        None
    )
    state: Annotated[str | None, F("InUse, Released or Deleting.", enum=(IN_USE, RELEASED, DELETING))] = None


@crd(
    short_names=("bucket",),
    columns=(
        PrinterColumn("Status", ".status.state"),
        PrinterColumn("Bind", ".status.bindTo"),
        AGE,
    ),
    status=False,
    preserve_unknown=True,
)
class BucketClaim(Object, frozen=True, kw_only=True):
    """The right of one LogSet to a path of an object store."""

    resource: ClassVar[Resource] = resource("BucketClaim")

    spec: Annotated[BucketClaimSpec | None, F(required=True)] = None
    status: BucketClaimStatus | None = None
