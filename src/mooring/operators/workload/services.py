"""What a user declares of a Service that clients connect to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from mooring.kube.part import Part
from mooring.operators.workload.labels import annotation_faults
from mooring.operators.workload.problem import Problem
from mooring.runtime.crd import F

__all__ = ["SERVICE_TYPES", "ServiceSpec", "service_faults"]

SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")


class ServiceSpec(Part, frozen=True, kw_only=True):
    """A Service."""

    type: Annotated[str | None, F("Its type.", enum=SERVICE_TYPES, default="ClusterIP")] = None
    annotations: Annotated[dict[str, str] | None, F("Of the Service.")] = None


def service_faults(where: str, given: ServiceSpec | None) -> Iterator[Problem]:
    """What is wrong with a declared Service."""
    if given is None:
        return
    if given.type not in (None, *SERVICE_TYPES):
        text = f"{given.type!r} is not possible; give {', '.join(SERVICE_TYPES)}"
        yield Problem(f"{where}.type", text)
    yield from annotation_faults(f"{where}.annotations", given.annotations)
