"""What a user declares of a Service that clients connect to."""

from __future__ import annotations

from typing import Annotated, Final

from mooring.kube.part import Part
from mooring.runtime.crd import F

__all__ = ["SERVICE_TYPES", "ServiceSpec"]

SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")


class ServiceSpec(Part, frozen=True, kw_only=True):
    """A Service."""

    type: Annotated[str | None, F("Its type.", enum=SERVICE_TYPES, default="ClusterIP")] = None
    annotations: Annotated[dict[str, str] | None, F("Of the Service.")] = None
