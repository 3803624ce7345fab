"""A real cluster for a benchmark: a node that runs pods, and the operator as its chart installs it.

Made for one run and gone after it, as for the chart's tests: everything of it, the pods too, ends with this
process. Needs root; what it takes is built on first use.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from hack.build import helm
from hack.images.recipes import build
from hack.kubernetes.controlplane import ControlPlane

from mooring.kube import MergePatch
from mooring.kube.objects.core import PersistentVolume
from mooring.testing.bed import ClusterBed

__all__ = ["cut_off", "give_back", "install", "real_cluster"]

CHART = Path(__file__).resolve().parents[1] / "charts" / "mooring"
_CUT = """
table inet mooring-cut {{
  chain in {{ type filter hook input priority -300; ip saddr {{ {others} }} drop; }}
  chain out {{ type filter hook output priority -300; ip daddr {{ {others} }} drop; }}
}}
"""


@asynccontextmanager
async def real_cluster(
    directory: Path, *, operator: str = "redis-sentinel", images: Sequence[Path] | None = None
) -> AsyncIterator[ClusterBed]:
    """The cluster, once the operator is ready; OSError when helm does not succeed.

    ``images`` are what its node has beside Mooring's own (that of Redis).
    """
    made = [await asyncio.to_thread(build, "mooring")]
    made += [await asyncio.to_thread(build, "redis")] if images is None else images
    with ControlPlane(directory=directory / "cluster", images=made) as plane:
        async with ClusterBed(directory / "bed", plane.kubeconfig) as bed:
            values = ("--set", f"operators={operator}")
            await install(bed, "bench", CHART, "mooring-system", *values, home=directory)
            yield bed


async def install(
    bed: ClusterBed, release: str, chart: Path, namespace: str, *words: str, home: Path
) -> None:
    """Install a chart in a namespace of its own, and wait until its pods are ready; OSError when helm does not succeed.

    ``words`` are further arguments of helm; ``home`` is a directory for its cache.
    """
    program = await asyncio.to_thread(helm, 3)
    where = ("--kubeconfig", bed.plane.kubeconfig, "--namespace", namespace, "--create-namespace")
    await _run(program, "install", release, chart, *where, "--wait", "--timeout", "10m", *words, home=home)


@asynccontextmanager
async def cut_off(pid: int, others: Iterable[str]) -> AsyncIterator[None]:
    """Within the block the pod of a process exchanges no packet with these addresses; all else reaches it."""
    # Held open: the process may be another one at the end, or none.
    space = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    inside = ("nsenter", f"--net=/proc/{os.getpid()}/fd/{space}", "nft")
    try:
        await _run(*inside, _CUT.format(others=", ".join(others)))
        try:
            yield
        finally:
            await _run(*inside, "delete", "table", "inet", "mooring-cut")
    finally:
        os.close(space)


async def give_back(bed: ClusterBed, namespace: str) -> None:
    """Empty the volumes that a namespace's deleted claims had, so that others get them: there are not many."""

    async def returned() -> bool:
        left = False
        for volume in (await bed.client.list(PersistentVolume)).items:
            claim = volume.spec.claim_ref if volume.spec else None
            if claim is None or claim.namespace != namespace:
                continue
            if volume.status is None or volume.status.phase != "Released":
                left = True
                continue
            assert volume.spec is not None
            assert volume.spec.local is not None
            await asyncio.to_thread(_empty, Path(volume.spec.local.path or ""))
            body = MergePatch({"spec": {"claimRef": None}})
            await bed.client.patch(PersistentVolume, volume.metadata.name or "", body)
        return not left

    await bed.until(returned, f"the volumes of {namespace} are free", within=60, every=0.2)


def _empty(directory: Path) -> None:
    for entry in list(directory.iterdir()):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


async def _run(*words: str | Path, home: Path | None = None) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        env={"PATH": os.environ["PATH"], **({"HOME": str(home)} if home else {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise OSError(f"{' '.join(map(str, words))}: {out.decode().strip()}")
