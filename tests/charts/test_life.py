"""The chart's life, with helm itself: installed, upgraded, scaled, removed and installed again."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hack.kubernetes.binaries import build_module

from mooring.kube.objects.apps import Deployment
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import Pod
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "mooring"
NAMESPACE = "mooring-system"


class Helm:
    """helm on a bed's API server."""

    def __init__(self, program: Path, bed: Bed, home: Path) -> None:
        self._program, self._home = program, home
        plane = bed.plane
        self._kubeconfig = home / "kubeconfig"
        plane.directory.write_kubeconfig(
            self._kubeconfig,
            server=f"https://{plane.ranges.pods[1]}:6443",
            authority=plane.certificates.authority,
        )

    async def __call__(self, *words: str | Path, fails: bool = False) -> str:
        """Run one command; what it printed. It must succeed, or fail where that is expected."""
        process = await asyncio.create_subprocess_exec(
            self._program,
            *map(str, words),
            "--kubeconfig",
            str(self._kubeconfig),
            "--namespace",
            NAMESPACE,
            env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        text = out.decode()
        assert (process.returncode != 0) is fails, f"helm {words}: {text}"
        return text

    async def install(self, name: str, *words: str) -> str:
        return await self("install", name, CHART, "--create-namespace", "--wait", "--timeout", "90s", *words)

    async def upgrade(self, name: str, *words: str) -> str:
        return await self("upgrade", name, CHART, "--wait", "--timeout", "90s", *words)

    async def releases(self) -> dict[str, Any]:
        """Releases by name."""
        return {one["name"]: one for one in json.loads(await self("list", "--output", "json"))}


@pytest.fixture
async def bed(directory: Path) -> AsyncIterator[Bed]:
    """A control plane without operators of its own."""
    async with Bed(directory / "plane", operators=()) as running:
        yield running


@pytest.fixture
async def helm(bed: Bed, directory: Path) -> Helm:
    """helm, built on first use."""
    program = await asyncio.to_thread(
        build_module, ROOT / "hack" / "helm", "helm", package="helm.sh/helm/v3/cmd/helm"
    )
    return Helm(program, bed, directory)


async def leader(bed: Bed) -> str:
    """The pod that leads, by the Lease."""
    lease = await bed.get(Lease, "mooring-redis-sentinel-all", NAMESPACE)
    holder = (lease.spec.holder_identity if lease.spec else None) or ""
    pods = [pod.metadata.name or "" for pod in await bed.pods(NAMESPACE, "app.kubernetes.io/name=mooring")]
    return next((name for name in pods if holder.startswith(name)), "")


async def processes(stage: RedisStage) -> dict[str, tuple[str | None, int]]:
    """UID and pid of every pod: what a restart would change."""
    return {
        pod.metadata.name or "": (pod.metadata.uid, stage.pid(pod.metadata.name or ""))
        for pod in await stage.pods()
    }


async def test_a_release_is_installed_upgraded_scaled_and_removed_over_a_running_cluster(
    bed: Bed, helm: Helm
) -> None:
    assert "STATUS: deployed" in await helm.install("mooring")
    assert (await helm.releases())["mooring"]["status"] == "deployed"

    await bed.apply(manifest("demo", password="s3cret"))
    stage = RedisStage(bed, "demo", password="s3cret")
    await stage.exact(60)
    running = await processes(stage)

    await helm.upgrade("mooring", "--set", "replicaCount=2", "--set", "podAnnotations.example=2")
    deployment = await bed.get(Deployment, "mooring", NAMESPACE)
    assert deployment.status is not None
    assert deployment.status.ready_replicas == 2

    async def led() -> str:
        return await leader(bed)

    await bed.until(led, "one of the two leads", within=20)
    old = await leader(bed)
    await bed.client.delete(Pod, old, namespace=NAMESPACE)

    async def handed_over() -> bool:
        return await leader(bed) not in ("", old)

    await bed.until(handed_over, "the other one leads", within=10)
    assert await processes(stage) == running

    await helm("uninstall", "mooring", "--wait")
    assert await helm.releases() == {}

    async def gone() -> bool:
        return not await bed.pods(NAMESPACE, "app.kubernetes.io/name=mooring")

    await bed.until(gone, "no operator runs", within=20)
    master = await stage.master()
    assert await stage.call(master, "SET", "still", "there") == "OK"

    await helm.install("other")
    await stage.patch({"config": {"maxclients": "321"}})
    await stage.exact(60)
    assert await stage.config(master, "maxclients") == "321"
    assert await processes(stage) == running


async def test_values_that_do_not_exist_or_fit_are_refused(helm: Helm) -> None:
    for wrong, said in (("replicas=2", "replicas"), ("scope=everything", "scope"), ("workers=0", "workers")):
        assert said in await helm("install", "mooring", CHART, "--set", wrong, fails=True)
