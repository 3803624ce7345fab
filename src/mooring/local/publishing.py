"""How the API server is found from within: the Service ``default/kubernetes`` and its endpoints."""

from __future__ import annotations

from ipaddress import IPv4Address

from mooring.kube import Client
from mooring.kube.objects.core import (
    EndpointAddress,
    Endpoints,
    EndpointSubset,
    Service,
    ServicePort,
    ServiceSpec,
)
from mooring.kube.objects.core import EndpointPort as LegacyPort
from mooring.kube.objects.discovery import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from mooring.kube.objects.meta import ObjectMeta

__all__ = ["publish_api"]

_NAME = "kubernetes"
#: No controller of endpoints is to mirror what is written here whole.
_UNMIRRORED = {"endpointslice.kubernetes.io/skip-mirror": "true"}


async def publish_api(client: Client, *, service: IPv4Address, address: IPv4Address, port: int) -> None:
    """Write the Service at an address of the range, and that the server listens on ``address:port``."""
    labels = {"component": "apiserver", "provider": "kubernetes"}
    await client.apply(
        Service(
            metadata=_meta(labels),
            spec=ServiceSpec(
                cluster_ip=str(service),
                ports=[ServicePort(name="https", port=443, target_port=port, protocol="TCP")],
            ),
        )
    )
    await client.apply(
        Endpoints(
            metadata=_meta(_UNMIRRORED),
            subsets=[
                EndpointSubset(
                    addresses=[EndpointAddress(ip=str(address))],
                    ports=[LegacyPort(name="https", port=port, protocol="TCP")],
                )
            ],
        )
    )
    await client.apply(
        EndpointSlice(
            metadata=_meta({"kubernetes.io/service-name": _NAME}),
            address_type="IPv4",
            endpoints=[Endpoint(addresses=[str(address)], conditions=EndpointConditions(ready=True))],
            ports=[EndpointPort(name="https", port=port, protocol="TCP")],
        )
    )


def _meta(labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(name=_NAME, namespace="default", labels=labels)
