"""helm as the tests use it, and what they look at beside it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.released import NAMESPACE

from mooring.testing.bed import Bed, ClusterBed
from mooring.testing.redis import RedisStage

__all__ = [
    "CHART",
    "ROOT",
    "Helm",
    "Provided",
    "processes",
    "tell",
]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "mooring"


class Helm:
    """helm on a bed's API server, in the namespace of the releases."""

    def __init__(self, program: Path, kubeconfig: Path, home: Path) -> None:
        self._program, self._kubeconfig, self._home = program, kubeconfig, home

    async def __call__(self, *words: str | Path, fails: bool = False) -> str:
        """Run one command; what it printed. It must succeed, or fail where that is expected."""
        process = await asyncio.create_subprocess_exec(
            self._program,
            *map(str, words),
            *("--kubeconfig", str(self._kubeconfig), "--namespace", NAMESPACE),
            env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        text = out.decode()
        assert (process.returncode != 0) is fails, f"helm {words}: {text}"
        return text

    async def install(self, name: str, *words: str) -> str:
        """Install the chart and wait until the operator is ready."""
        return await self("install", name, CHART, "--create-namespace", "--wait", "--timeout", "120s", *words)

    async def upgrade(self, name: str, *words: str) -> str:
        """Upgrade a release to the chart with these values and wait."""
        return await self("upgrade", name, CHART, "--wait", "--timeout", "120s", *words)

    async def releases(self) -> dict[str, Any]:
        """Releases by name, whatever their state."""
        return {one["name"]: one for one in json.loads(await self("list", "--all", "--output", "json"))}


@dataclass(frozen=True, kw_only=True)
class Provided:
    """A bed, and helm on it."""

    bed: Bed | ClusterBed
    helm: Helm
    kubeconfig: Path


async def processes(stage: RedisStage) -> dict[str, tuple[str | None, int]]:
    """UID and pid of every pod of a cluster: what a restart would change."""
    return {
        pod.metadata.name or "": (pod.metadata.uid, stage.pid(pod.metadata.name or ""))
        for pod in await stage.pods()
    }


def tell(what: str) -> None:
    """Say a figure; `pytest -s` shows it."""
    sys.stdout.write(f"\n  {what}\n")
