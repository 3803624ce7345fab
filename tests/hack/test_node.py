"""The real cluster's node: what is there once it is up, and that nothing is left when it is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hack.images.recipes import build
from hack.kubernetes import cgroups
from hack.kubernetes.controlplane import ControlPlane
from hack.kubernetes.network import Network

from mooring.kube import Client, Config, HttpTransport
from mooring.kube.objects.core import Node

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a node needs root"),
    pytest.mark.timeout(900),
]


def link_of(plane: ControlPlane) -> Path:
    """The machine's end of this cluster's link, whoever else has one."""
    second = int(plane.state.server.removeprefix("https://").split(".")[1])
    return Path("/sys/class/net") / Network((second - 180) // 2).link


def cgroups_of(name: str) -> list[Path]:
    top = Path("/sys/fs/cgroup")
    return [*top.glob(name), *top.glob(f"*/{name}")]


def mounts_below(directory: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {directory}/" in line]


def rules() -> str:
    return subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout


async def ready(plane: ControlPlane) -> str:
    transport = HttpTransport(Config.load(plane.kubeconfig))
    try:
        node = await Client(transport).get(Node, "node-1")
    finally:
        await transport.close()
    conditions = (node.status.conditions if node.status else None) or ()
    return next((one.status or "" for one in conditions if one.type == "Ready"), "")


def test_a_node_is_ready_and_leaves_nothing_even_when_its_keeper_is_killed() -> None:
    with ControlPlane(images=[build("redis")]) as plane:
        assert asyncio.run(ready(plane)) == "True"
        link = link_of(plane)
        assert link.exists()
        assert cgroups_of(cgroups.name_of(plane.directory))

        # Everything hangs on the keeper's life, however that ends.
        os.kill(plane.state.keeper.pid, signal.SIGKILL)
        until = time.monotonic() + 10
        while link.exists() or any(one.alive() for one in plane.state.processes.values()):
            assert time.monotonic() < until, "the node outlives its keeper"
            time.sleep(0.05)
        assert not [name for name, one in plane.state.processes.items() if one.alive()]
        directory = plane.directory
    assert not directory.exists()
    assert not cgroups_of(cgroups.name_of(directory))
    assert not mounts_below(directory)
    assert "kube-proxy" not in rules()


def test_clusters_side_by_side_have_addresses_of_their_own() -> None:
    one, other = Network.choose(), Network.choose()
    assert not one.range.overlaps(other.range)
    assert not one.services.overlaps(other.services)
    assert not one.services.overlaps(other.range)
    for network in (one, other):
        assert network.claim is not None
        network.claim.close()
