"""The Service by which pods find the API server."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address

import pytest

from mooring.kube import Client, NotFound
from mooring.kube.objects.core import Endpoints, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.local.api import ApiServer
from mooring.local.publishing import ApiPublisher
from mooring.runtime import Manager


@pytest.mark.parametrize("kind", [Service, Endpoints, EndpointSlice])
async def test_what_leads_to_the_server_comes_back_after_somebody_deleted_it(
    kind: type[Service | Endpoints | EndpointSlice],
) -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="mooring-apiserver")
        address = IPv4Address("10.96.0.1")
        publisher = ApiPublisher(client=client, service=address, address=IPv4Address("10.1.2.3"), port=6443)
        await publisher.publish()
        manager = Manager(client, name="test")
        manager.add(publisher.controller(manager.informers))
        running = asyncio.create_task(manager.run())
        await manager.leading.wait()
        before = await client.get(kind, "kubernetes", namespace="default")
        await client.delete(kind, "kubernetes", namespace="default")

        async def back() -> None:
            while True:
                try:
                    found = await client.get(kind, "kubernetes", namespace="default")
                except NotFound:
                    await asyncio.sleep(0.01)
                    continue
                assert found.metadata.uid != before.metadata.uid
                return

        await asyncio.wait_for(back(), 30)
        service = await client.get(Service, "kubernetes", namespace="default")
        assert service.spec is not None
        assert service.spec.cluster_ip == str(address)
        manager.stop()
        await running
