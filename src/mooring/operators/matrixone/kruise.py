"""OpenKruise's workloads, by which upstream's operator runs pods; as much of them as a take-over looks at."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from mooring.kube.object import Object, Resource
from mooring.kube.part import Part
from mooring.runtime.crd import F

__all__ = ["GROUP", "CloneSet", "RetentionPolicy", "StatefulSet", "WorkloadSpec", "reserved_in"]

GROUP: Final = "apps.kruise.io"


class RetentionPolicy(Part, frozen=True, kw_only=True):
    """What becomes of the claims of a StatefulSet."""

    when_deleted: Annotated[str | None, F("Delete or Retain.")] = None
    when_scaled: Annotated[str | None, F("Delete or Retain.")] = None


class WorkloadSpec(Part, frozen=True, kw_only=True):
    """The declaration of either kind."""

    replicas: Annotated[int | None, F("Pods.")] = None
    reserve_ordinals: Annotated[
        list[int | str] | None, F("Ordinals that no pod has: numbers, or ranges such as 2-4.")
    ] = None
    persistent_volume_claim_retention_policy: Annotated[RetentionPolicy | None, F("Of a StatefulSet.")] = None


class StatefulSet(Object, frozen=True, kw_only=True):
    """OpenKruise's own StatefulSet: log stores and transaction nodes."""

    resource: ClassVar[Resource] = Resource(GROUP, "v1beta1", "StatefulSet", "statefulsets", True)
    spec: WorkloadSpec | None = None


class CloneSet(Object, frozen=True, kw_only=True):
    """Pods without an order: compute nodes and proxies."""

    resource: ClassVar[Resource] = Resource(GROUP, "v1alpha1", "CloneSet", "clonesets", True)
    spec: WorkloadSpec | None = None


def reserved_in(one: Object | None) -> list[int]:
    """The ordinals that no pod has, in order; raises `ValueError` for what is neither a number nor a range."""
    spec = getattr(one, "spec", None)
    found: set[int] = set()
    for each in (spec.reserve_ordinals if isinstance(spec, WorkloadSpec) else None) or ():
        first, _, last = str(each).partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)
