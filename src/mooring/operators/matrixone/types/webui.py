"""WebUI: MatrixOne's dashboard."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mooring.kube.object import Object, Resource
from mooring.kube.part import Part
from mooring.operators.matrixone.types.cnset import SERVICE_TYPES
from mooring.operators.matrixone.types.podset import (
    OBJECT,
    SET_COLUMNS,
    FailoverStatus,
    PodSet,
    Reference,
    RollingUpdateStrategy,
    resource,
)
from mooring.runtime.crd import F, crd

__all__ = ["WebUI", "WebUIDeps", "WebUISpec", "WebUIStatus"]


class WebUISpec(PodSet, frozen=True, kw_only=True):
    """The declared dashboard."""

    service_type: Annotated[
        str | None, F("Type of the Service.", enum=SERVICE_TYPES, default="ClusterIP")
    ] = None
    update_strategy: Annotated[RollingUpdateStrategy | None, F("How pods are rolled.")] = None
    image_pull_policy: Annotated[str | None, F("Of the images: Always, IfNotPresent or Never.")] = None


class WebUIDeps(Part, frozen=True, kw_only=True):
    """What the dashboard shows."""

    cnset: Annotated[Reference | None, F("The CNSet, as an object with metadata.name.", schema=OBJECT)] = None


class WebUIStatus(FailoverStatus, frozen=True, kw_only=True):
    """What was observed."""


@crd(columns=SET_COLUMNS, preserve_unknown=True)
class WebUI(Object, frozen=True, kw_only=True):
    """The dashboard of a MatrixOne cluster."""

    resource: ClassVar[Resource] = resource("WebUI")

    spec: WebUISpec | None = None
    deps: Annotated[WebUIDeps | None, F("What the dashboard shows.")] = None
    status: WebUIStatus | None = None
