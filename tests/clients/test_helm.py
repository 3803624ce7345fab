"""helm 3 and helm 4 on an embedded plane: hooks, waits, lookups, tests, a rollback and a removal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.cli.program import Running, ourselves, temporary

from hack import build

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1200),  # the first time, they are built
]

CHART = Path(__file__).resolve().parent / "chart"
HELM = {"helm-3": 3, "helm-4": 4}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[Running]:
    with temporary() as home:
        async with ourselves(home).up(home / "data", "--operators", "none") as running:
            yield running


class Helm:
    def __init__(self, program: Path, plane: Running, release: str) -> None:
        self._program, self._plane, self.release = program, plane, release

    async def __call__(self, *words: str, status: int = 0) -> str:
        done = await self._plane.program.other(
            self._program, *words, "--kubeconfig", self._plane.kubeconfig, seconds=150
        )
        assert done.status == status, f"helm {words}: {done.text}"
        return done.text

    async def data(self) -> Any:
        """The ConfigMap of the release."""
        shown = await self._plane.kubectl("get", "configmap", self.release, "-o", "json")
        return json.loads(shown.fine())["data"]


@pytest.mark.parametrize("version", HELM)
async def test_the_life_of_a_release(version: str, plane: Running) -> None:
    program = await asyncio.to_thread(build.helm, HELM[version])
    helm = Helm(program, plane, version)
    chart, wait = str(CHART), ["--wait", "--timeout", "60s"]

    assert "STATUS: deployed" in await helm("install", version, chart, *wait)
    found = await helm.data()
    assert (found["greeting"], found["before"]) == ("hello", "kube-root-ca.crt")
    listed = json.loads(await helm("list", "-o", "json"))
    assert [(one["name"], one["status"]) for one in listed] == [(version, "deployed")]
    assert "Succeeded" in await helm("test", version, "--timeout", "60s")

    await helm("upgrade", version, chart, "--set", "greeting=again,replicas=2", *wait)
    assert (await helm.data())["greeting"] == "again"
    broken = ["--set", "image=none.example/none:1", "--wait", "--timeout", "5s"]
    await helm("upgrade", version, chart, *broken, status=1)
    await helm("rollback", version, "2", *wait)
    history = json.loads(await helm("history", version, "-o", "json"))
    assert [one["status"] for one in history] == ["superseded", "superseded", "failed", "deployed"]
    async with asyncio.timeout(60):  # that of the broken release is not waited for by helm
        while (
            len((await plane.kubectl("get", "pods", "-l", f"app={version}", "-o", "name")).fine().split())
            != 2
        ):
            await asyncio.sleep(0.1)

    assert "uninstalled" in await helm("uninstall", version, "--wait")
    left = await plane.kubectl("get", "deployments,services,configmaps,jobs", "-o", "name")
    assert left.fine().split() == ["service/kubernetes", "configmap/kube-root-ca.crt"]
