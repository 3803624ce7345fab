"""How the API server is found from within: the Service ``default/kubernetes`` and its endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from mooring.cache.informer import InformerSet
from mooring.cache.store import Transition
from mooring.kube import Client
from mooring.kube.object import Key
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
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["ApiPublisher"]

_NAME = "kubernetes"
_KEY = Key("default", _NAME)
#: No controller of endpoints is to mirror what is written here whole.
_UNMIRRORED = {"endpointslice.kubernetes.io/skip-mirror": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPublisher:
    """Keeps the Service, at an address of the range, and says that the server listens on ``address:port``."""

    client: Client
    service: IPv4Address
    address: IPv4Address
    port: int

    def controller(self, informers: InformerSet) -> Controller:
        """What publishes again after somebody deleted an object."""
        made = Controller("api-publisher", self._reconcile)
        for kind in (Service, Endpoints, EndpointSlice):
            made.watch(informers.of(kind), predicate=_is_gone)
        return made

    async def _reconcile(self, key: Key) -> Result:
        await self.publish()
        return Done()

    async def publish(self) -> None:
        """Write the three objects as they are to be."""
        labels = {"component": "apiserver", "provider": "kubernetes"}
        await self.client.apply(
            Service(
                metadata=_meta(labels),
                spec=ServiceSpec(
                    cluster_ip=str(self.service),
                    ports=[ServicePort(name="https", port=443, target_port=self.port, protocol="TCP")],
                ),
            )
        )
        await self.client.apply(
            Endpoints(
                metadata=_meta(_UNMIRRORED),
                subsets=[
                    EndpointSubset(
                        addresses=[EndpointAddress(ip=str(self.address))],
                        ports=[LegacyPort(name="https", port=self.port, protocol="TCP")],
                    )
                ],
            )
        )
        await self.client.apply(
            EndpointSlice(
                metadata=_meta({"kubernetes.io/service-name": _NAME}),
                address_type="IPv4",
                endpoints=[
                    Endpoint(addresses=[str(self.address)], conditions=EndpointConditions(ready=True))
                ],
                ports=[EndpointPort(name="https", port=self.port, protocol="TCP")],
            )
        )


def _is_gone(change: Transition[Any]) -> bool:
    return change.key == _KEY and change.new is None


def _meta(labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(name=_NAME, namespace="default", labels=labels)
