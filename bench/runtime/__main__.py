"""Mooring, kopf and controller-runtime with the same logic on one real kube-apiserver, in one run.

    python -m bench.runtime [--quick] [--only cold,edits] [--peers mooring,kopf] [--out FILE]

Writes the raw figures as JSON, cell by cell, so that a run that is stopped keeps what it has. The table and the
plot are made from it by `python -m bench.runtime.report`. kopf and the Go peer are installed and built on
first use, pinned by requirements/bench.txt and go/go.sum.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.runtime import scenarios
from bench.runtime.peers import PEERS, prepare, versions
from bench.runtime.scenarios import Place, Scenario
from bench.runtime.stage import Stage

__all__ = ["main"]

RESULTS = Path(__file__).resolve().parent / "results"
THREE = ("mooring", "kopf", "controller-runtime")
ALL = (*THREE, "controller-runtime, consistent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One scenario with its sizes; every peer runs it once a round, in turning order."""

    scenario: str
    run: Scenario
    sizes: dict[str, Any] = field(default_factory=dict)
    rounds: int = 1
    peers: Sequence[str] = THREE


def _full() -> list[Step]:
    colds = [
        Step(
            scenario="cold",
            run=scenarios.cold,
            sizes={"objects": objects, "children": children},
            rounds=2 if (objects, children) == (1000, 1) else 1,
            peers=ALL if children == 1 else THREE,
        )
        for objects in (1000, 5000)
        for children in (1, 5)
    ]
    edits = [
        Step(
            scenario="edits",
            run=scenarios.edits,
            sizes={"objects": 1000, "rate": rate, "seconds": 10},
            rounds=3 if rate == 200 else 1,
            peers=ALL,
        )
        for rate in (50, 200)
    ]
    many = [
        Step(
            scenario="many",
            run=scenarios.many,
            sizes={"objects": objects, "idle": 10, "rate": 50, "seconds": 10},
        )
        for objects in (2_000, 10_000)
    ]
    return [
        Step(scenario="empty", run=scenarios.empty, rounds=2, peers=ALL),
        *colds[:2],
        *edits,
        *_handovers(objects=50, within=100, faults=("SIGTERM", "SIGKILL", "SIGSTOP")),
        Step(
            scenario="cut",
            run=scenarios.cut,
            sizes={"objects": 200, "every": 10, "rate": 50, "seconds": 35},
        ),
        Step(
            scenario="churned",
            run=scenarios.churned,
            sizes={"objects": 200, "churn": 5000, "rate": 20, "seconds": 10},
        ),
        *many,
        *colds[2:],
    ]


def _quick() -> list[Step]:
    """The same at sizes that take a few minutes: to see that it works, not to compare."""
    few = {"objects": 200}
    return [
        Step(scenario="empty", run=scenarios.empty),
        Step(scenario="cold", run=scenarios.cold, sizes={**few, "children": 1}),
        Step(scenario="edits", run=scenarios.edits, sizes={**few, "rate": 50, "seconds": 2}),
        Step(scenario="many", run=scenarios.many, sizes={**few, "idle": 2, "rate": 50, "seconds": 2}),
        *_handovers(objects=10, within=30, faults=("SIGTERM",)),
        Step(scenario="cut", run=scenarios.cut, sizes={**few, "every": 2, "rate": 20, "seconds": 3}),
        Step(
            scenario="churned",
            run=scenarios.churned,
            sizes={**few, "churn": 500, "rate": 10, "seconds": 2},
        ),
    ]


def _handovers(*, objects: int, within: float, faults: Sequence[str]) -> list[Step]:
    return [
        Step(
            scenario="handover",
            run=scenarios.handover,
            sizes={"objects": objects, "fault": fault, "rate": 20, "within": within},
        )
        for fault in faults
    ]


class Run:
    """One run: its stage, and the figures as they come."""

    def __init__(self, out: Path, directory: Path, *, known: Sequence[dict[str, Any]] = ()) -> None:
        self._out = out
        self._directory = directory
        self._cells = list(known)
        self._head = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "arch": platform.machine()},
            "versions": versions(),
        }

    async def go(self, steps: Sequence[Step], peers: Sequence[str]) -> int:
        """Measure; the number of cells that failed."""
        failed = turn = 0
        async with Stage() as stage:
            for step in steps:
                for number in range(step.rounds):
                    chosen = [name for name in step.peers if name in peers]
                    turn += 1
                    start = turn % len(chosen) if chosen else 0
                    for name in chosen[start:] + chosen[:start]:
                        if not self._measured(step, name, number):
                            failed += not await self._cell(stage, step, name, number)
        return failed

    def _measured(self, step: Step, name: str, number: int) -> bool:
        wanted = {"scenario": step.scenario, "peer": name, "round": number, **step.sizes}
        return any(wanted.items() <= cell.items() for cell in self._cells)

    async def _cell(self, stage: Stage, step: Step, name: str, number: int) -> bool:
        index = len(self._cells)
        directory = self._directory / f"cell-{index}"
        directory.mkdir()
        account = namespace = f"cell-{index}"
        load = round(os.getloadavg()[0], 2)
        cell: dict[str, Any] = {"scenario": step.scenario, "peer": name, "round": number, **step.sizes}
        try:
            await stage.namespace(namespace)
            place = Place(
                stage=stage,
                peer=PEERS[name],
                account=account,
                kubeconfig=await stage.account(account, directory),
                namespace=namespace,
                directory=directory,
            )
            cell["figures"] = await step.run(place, **step.sizes)
        except Exception as error:
            cell["failed"] = f"{type(error).__name__}: {error}"
        await stage.clear(namespace)
        cell["load_before"] = load
        self._cells.append(cell)
        self._out.write_text(json.dumps({**self._head, "cells": self._cells}, indent=1) + "\n")
        print(json.dumps(cell), file=sys.stderr, flush=True)
        return "failed" not in cell


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.runtime", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200 objects, a few minutes: does it work?")
    parser.add_argument("--only", default="", help="scenarios, comma separated (all)")
    parser.add_argument("--peers", default="", help="peers, comma separated (all)")
    parser.add_argument(
        "--resume", action="store_true", help="keep what the file holds, measure what is missing"
    )
    parser.add_argument("--out", type=Path, help="where the JSON goes (results/full.json or quick.json)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; status 1 when a cell failed."""
    options = _parser().parse_args(arguments)
    out = options.out or RESULTS / ("quick.json" if options.quick else "full.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    only, peers = set(filter(None, options.only.split(","))), list(filter(None, options.peers.split(",")))
    steps = [step for step in (_quick() if options.quick else _full()) if not only or step.scenario in only]
    chosen = peers or list(ALL)
    prepare(chosen)
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as directory:
        known = json.loads(out.read_text())["cells"] if options.resume and out.exists() else []
        failed = asyncio.run(Run(out, Path(directory), known=known).go(steps, chosen))
    print(f"{out}: {failed} cells failed" if failed else out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
