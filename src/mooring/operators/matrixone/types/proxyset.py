"""ProxySet: the SQL proxy, which moves sessions between compute nodes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mooring.kube.object import Object, Resource
from mooring.operators.matrixone.types.cnset import SERVICE_TYPES
from mooring.operators.matrixone.types.podset import SET_COLUMNS, LogSetRef, PodSet, SetStatus, resource
from mooring.runtime.crd import F, crd

__all__ = ["ProxySet", "ProxySetSpec", "ProxySetStatus"]


class ProxySetSpec(PodSet, frozen=True, kw_only=True):
    """The declared proxies."""

    service_type: Annotated[
        str | None, F("Type of the Service for clients.", enum=SERVICE_TYPES, default="ClusterIP")
    ] = None
    service_annotations: Annotated[dict[str, str] | None, F("Of that Service.")] = None
    node_port: Annotated[
        int | None, F("Port of the nodes, with type NodePort or LoadBalancer.", format="int32")
    ] = None
    min_ready_seconds: Annotated[
        int | None, F("Seconds a pod must be ready before it counts.", format="int32")
    ] = None
    wait_plugin_addr: Annotated[str | None, F("Wait until this host:port answers before the start.")] = None


class ProxySetStatus(SetStatus, frozen=True, kw_only=True):
    """What was observed."""

    host: Annotated[str | None, F("Where clients connect to.")] = None
    port: Annotated[int | None, F("Where clients connect to.")] = None


@crd(columns=SET_COLUMNS, preserve_unknown=True)
class ProxySet(Object, frozen=True, kw_only=True):
    """The SQL proxies of a MatrixOne cluster."""

    resource: ClassVar[Resource] = resource("ProxySet")

    spec: Annotated[ProxySetSpec | None, F(required=True)] = None
    deps: Annotated[LogSetRef | None, F("What the pods work with.")] = None
    status: ProxySetStatus | None = None
