"""The pods' network: addresses, Services, partitions, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from mooring.local.node import namespaces as ns
from mooring.local.node.cleanup import plane_id
from mooring.local.node.dns import A, DnsServer, Zone
from mooring.local.node.netlink import Netlink
from mooring.local.node.network import (
    AddressPool,
    Network,
    NetworkConfig,
    PodNetwork,
    RangeInUse,
    abandoned_planes,
    delete_leftovers,
)
from mooring.local.node.services import Backend, Frontend, ServiceTable, Sticky
from mooring.local.node.spawner import Child, Spawn, Spawner

from .bed import network_config, privileged
from .test_names import query

embedded = pytest.mark.embedded


class Field:
    """A network and a way to run programs in its pods."""

    def __init__(self, directory: Path) -> None:
        self.network = Network(network_config(plane_id(directory)))
        self.spawner = Spawner()
        self.children: list[Child] = []

    async def spawn(self, pod: PodNetwork | None, *argv: str) -> Child:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            spaces = pod.namespaces.descriptors if pod else ()
            files = {0: null, 1: null, 2: 2}
            child = await self.spawner.spawn(
                Spawn(argv=argv, env={"PATH": "/usr/bin"}, files=files, namespaces=spaces)
            )
        finally:
            os.close(null)
        self.children.append(child)
        return child

    async def serve(self, pod: PodNetwork) -> None:
        """Run a redis on a pod's address and wait until it listens."""
        argv = ["/usr/bin/redis-server", "--protected-mode", "no", "--save", "", "--bind", "0.0.0.0"]
        await self.spawn(pod, *argv)
        while await self.ask(None, str(pod.address)) != 0:
            await asyncio.sleep(0.01)

    async def ask(self, pod: PodNetwork | None, host: str, *, seconds: int = 20) -> int:
        """Exit status of a PING from a pod (``None``: the machine); 124 when nothing comes back."""
        argv = ["/usr/bin/timeout", str(seconds), "/usr/bin/redis-cli", "-e", "-h", host, "ping"]
        child = await self.spawn(pod, *argv)
        return await child.wait()

    async def silent(self, pod: PodNetwork | None, host: str) -> bool:
        return await self.ask(pod, host, seconds=1) == 124


@asynccontextmanager
async def field(directory: Path) -> AsyncIterator[Field]:
    made = Field(directory)
    await made.network.start()
    try:
        yield made
    finally:
        for child in made.children:
            child.signal(9)
        await asyncio.gather(*(child.wait() for child in made.children))
        await made.network.stop()
        made.spawner.close()


@embedded
@privileged
async def test_pods_reach_each_other_the_machine_and_back(tmp_path: Path) -> None:
    async with field(tmp_path) as there:
        one, two = [await there.network.attach(hostname=name) for name in ("one", "two")]
        await there.serve(one)
        assert await there.ask(two, str(one.address)) == 0
        assert await there.ask(None, str(one.address)) == 0
        assert one.address != two.address


@embedded
@privileged
async def test_a_service_address_leads_to_its_endpoints_even_to_the_asker_itself(tmp_path: Path) -> None:
    async with field(tmp_path) as there:
        one, two = [await there.network.attach(hostname=name) for name in ("one", "two")]
        await there.serve(one)
        virtual = there.network.config.service_cidr[77]
        table = ServiceTable(there.network.config.table)
        front = Frontend(virtual, "tcp", 6379)

        assert await there.ask(two, str(virtual)) == 1, "an unknown address is refused, not hung"
        await table.sync({front: ()})
        assert await there.ask(None, str(virtual)) == 1
        await table.sync({front: (Backend(one.address, 6379),)})
        for asker in (one, two, None):
            assert await there.ask(asker, str(virtual)) == 0
        await table.sync({})
        assert await there.ask(two, str(virtual)) == 1


@embedded
@privileged
async def test_a_client_keeps_to_one_endpoint_where_that_is_asked_for(tmp_path: Path) -> None:
    async with field(tmp_path) as there:
        serving, silent = [await there.network.attach(hostname=name) for name in ("one", "two")]
        await there.serve(serving)
        virtual = there.network.config.service_cidr[77]
        front = Frontend(virtual, "tcp", 6379)
        both = (Backend(serving.address, 6379), Backend(silent.address, 6379))
        table = ServiceTable(there.network.config.table)

        await table.sync({front: Sticky(both)})
        assert len({await there.ask(serving, str(virtual)) for _ in range(12)}) == 1
        await table.sync({front: both})
        assert {await there.ask(serving, str(virtual)) for _ in range(24)} == {0, 1}


@embedded
@privileged
async def test_a_closed_table_is_left_alone(tmp_path: Path) -> None:
    async with field(tmp_path) as there:
        table = ServiceTable(there.network.config.table)
        front = Frontend(there.network.config.service_cidr[77], "tcp", 6379)
        assert await table.sync({front: ()})

        await table.close()
        await there.network.stop()

        assert not await table.sync({}), "the kernel's table is gone: touching it would fail"


@embedded
@privileged
async def test_a_partition_cuts_both_ways_until_it_is_healed(tmp_path: Path) -> None:
    async with field(tmp_path) as there:
        one, two = [await there.network.attach(hostname=name) for name in ("one", "two")]
        await there.serve(one)
        nobody = str(there.network.config.pod_cidr[2000])
        assert [await there.ask(who, nobody) for who in (None, two)] == [1, 1], "refused, not hung"
        await there.network.cut([one.address], [two.address])
        assert await there.silent(two, str(one.address))
        assert await there.ask(None, str(one.address)) == 0, "others are not cut off"
        await there.network.cut([one.address], there.network.host_addresses())
        assert await there.silent(None, str(one.address))
        await there.network.heal()
        assert await there.ask(two, str(one.address)) == 0
        assert await there.ask(None, str(one.address)) == 0


@embedded
@privileged
async def test_a_pod_asks_the_dns_server_by_udp_and_tcp(tmp_path: Path) -> None:
    async with field(tmp_path) as there:
        pod = await there.network.attach(hostname="one")
        zone = Zone("cluster.local", tuple, tuple, lambda: ["shop"])
        server = DnsServer(zone, there.network.config.dns_address)
        await server.start()
        try:
            name = "10-1-2-3.shop.pod.cluster.local"
            packet = query(name, A)
            address = str(there.network.config.dns_address)

            def ask_udp() -> bytes:
                import socket

                ns.enter(pod.namespaces.net)
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                    asking.settimeout(20)
                    asking.sendto(packet, (address, 53))
                    return asking.recv(512)

            answer = await asyncio.wrap_future(ns.in_fresh_thread(ask_udp))
            assert answer.endswith(IPv4Address("10.1.2.3").packed)
            reader, writer = await asyncio.open_connection(address, 53)
            writer.write(len(packet).to_bytes(2, "big") + packet)
            size = int.from_bytes(await reader.readexactly(2), "big")
            assert (await reader.readexactly(size)).endswith(IPv4Address("10.1.2.3").packed)
            writer.close()
        finally:
            await server.stop()


@embedded
@privileged
async def test_nothing_is_left_after_a_stop_and_a_start_clears_what_was(tmp_path: Path) -> None:
    config = network_config(plane_id(tmp_path))
    first = Network(config)
    await first.start()
    await first.attach(hostname="lost")
    with pytest.raises(RangeInUse, match="runs already"):
        await Network(config).start()
    assert config.plane not in list(abandoned_planes())

    assert first._claim is not None
    first._claim.close()  # as if its process had been killed
    # Or the start of another test's plane has found it already.
    assert config.plane in list(abandoned_planes()) or not links_of(config)
    second = Network(config)
    await second.start()
    pod = await second.attach(hostname="one")
    await second.detach(pod)
    await second.stop()

    assert not links_of(config)
    assert config.table not in tables()


@embedded
@privileged
async def test_a_plane_does_not_come_back_while_another_removes_what_it_left(tmp_path: Path) -> None:
    config = network_config(plane_id(tmp_path))
    first = Network(config)
    await first.start()
    assert first._claim is not None
    first._claim.close()
    returning = Network(config)
    waiting: asyncio.Task[None] | None = None
    for plane in abandoned_planes():
        if plane == config.plane:
            waiting = asyncio.create_task(returning.start())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            delete_leftovers(config)
    await (waiting or returning.start())
    try:
        assert links_of(config) == [config.anchor]
    finally:
        await returning.stop()


def links_of(config: NetworkConfig) -> list[str]:
    with Netlink() as netlink:
        return [link.name for link in netlink.links() if link.name.startswith(config.anchor)]


def tables() -> str:
    return subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout


def test_an_address_given_back_is_given_out_last(tmp_path: Path) -> None:
    config = NetworkConfig(plane="t", pod_cidr=IPv4Network("10.9.0.0/26"))
    pool = AddressPool(config)
    first = pool.take()
    pool.give_back(first)
    first_pod, end = config.pod_addresses()
    others = [pool.take() for _ in range(end - first_pod - 1)]
    assert first not in others
    assert pool.take() == first
    with pytest.raises(RuntimeError, match="no free address"):
        pool.take()


def test_a_restarted_plane_goes_on_where_it_was(tmp_path: Path) -> None:
    config = NetworkConfig(plane="t", cursor=tmp_path / "cursor")
    first = AddressPool(config).take()
    assert AddressPool(config).take() == first + 1


def test_overlapping_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        NetworkConfig(plane="t", service_cidr=IPv4Network("10.99.4.0/24"))


@embedded
@privileged
async def test_a_network_that_nobody_waits_for_any_more_is_taken_back(tmp_path: Path) -> None:
    network = Network(network_config(plane_id(tmp_path)))

    def links() -> int:
        names = [name for _, name in socket.if_nameindex()]
        return sum(name.startswith(f"{network.config.anchor}-") for name in names)

    await network.start()
    try:
        first = await network.attach(hostname="web")
        open_files = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            attaching = asyncio.create_task(network.attach(hostname="web"))
            await asyncio.sleep(number / 5000)
            attaching.cancel()
            done = (await asyncio.gather(attaching, return_exceptions=True))[0]
            if isinstance(done, PodNetwork):
                await network.detach(done)
        assert links() == 1
        assert len(os.listdir("/proc/self/fd")) <= open_files
        await network.detach(first)
    finally:
        await network.stop()
