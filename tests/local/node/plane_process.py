"""A plane in a process of its own, to be killed: prints the pids of its pods' processes, then waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from mooring.local.node.imagestore import ImageStore
from mooring.local.node.loading import load

from .bed import Bed, pod, until
from .imaging import Blueprint, docker_archive, programs

SCRIPT = "sleep 1000 & setsid sleep 1000 & trap '' TERM; while :; do sleep 0.05; done"


async def main(directory: Path) -> None:
    store = ImageStore(directory / "images")
    small = Blueprint([programs(applets=("sh", "sleep", "setsid"))], config={"Env": ["PATH=/bin"]})
    await asyncio.to_thread(load, store, docker_archive(directory / "small.tar", small))
    async with Bed(directory, images=store) as bed:
        containers: list[dict[str, Any]] = [
            {"name": "deaf", "command": ["sh", "-c", SCRIPT]},
            {"name": "user", "command": ["sh", "-c", SCRIPT], "securityContext": {"runAsUser": 1234}},
            {"name": "image", "image": small.names[0], "command": ["sh", "-c", SCRIPT]},
        ]
        worker = bed.run(pod(containers=containers))
        await until(lambda: all(runner.program_pid for runner in worker.main))
        for runner in worker.main:
            sandbox = runner.entrance.sandbox
            print(sandbox.child.pid, sandbox.init_pid, sandbox.program_pid, flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
