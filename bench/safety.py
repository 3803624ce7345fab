"""Every key of a full cluster, counted after the faults that lose whole data sets elsewhere.

    python bench/safety.py [--keys 100000] [--times 10] [--case NAME ...] [--wait 30] [--json]

Before every fault all keys are written anew (a key's value is the digest of its number and of the writing, so
a stale copy does not pass for a whole one) and reach every replica; after it every server is asked for every
key. Exit status 1 when any is missing anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mooring.runtime import configure_logging
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage, manifest

__all__ = ["main"]

PATIENCE = 120.0
"""Seconds to be whole again."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault; `everyone`: all servers and sentinels are killed at once, else the master is, and restarts empty."""

    name: str
    everyone: bool
    persistence: bool = True
    operator_away: bool = False


CASES = tuple(
    Case(name=f"{what}{suffix}{away}", everyone=everyone, persistence=persistence, operator_away=bool(away))
    for away in ("", "-operator-away")
    for what, suffix, everyone, persistence in (
        ("all-killed", "", True, True),
        ("empty-master", "", False, True),
        ("empty-master", "-no-persistence", False, False),
    )
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One fault survived, or not."""

    case: str
    time: int
    kept: dict[str, int]
    old_master: str
    master: str
    whole_again: float
    cause: str
    choice: str


class Safety:
    """One cluster, one kind of fault."""

    def __init__(self, stage: RedisStage, case: Case, options: argparse.Namespace) -> None:
        self._stage, self._case, self._options = stage, case, options

    async def once(self, number: int) -> Outcome:
        """Fill, break, wait, count."""
        stage, keys = self._stage, self._options.keys
        await stage.fill(keys, generation=number)
        old = await stage.master()
        async with stage.operators_away() if self._case.operator_away else contextlib.nullcontext():
            pids = self._break(old, [pod.metadata.name or "" for pod in await stage.pods()])
            await stage.restarted(pids)
            if self._case.operator_away:
                await asyncio.sleep(self._options.wait)
        began = time.monotonic()
        await stage.exact(PATIENCE)
        whole = time.monotonic() - began
        status = await stage.status()
        last = status.last_failover
        return Outcome(
            case=self._case.name,
            time=number,
            kept={
                pod: await stage.kept(pod, keys, generation=number)
                for pod in [node.name for node in status.nodes or ()]
            },
            old_master=old,
            master=status.master or "",
            whole_again=round(whole, 1),
            cause=last.cause if last else "",
            choice=last.choice if last else "",
        )

    def _break(self, master: str, pods: Sequence[str]) -> dict[str, int]:
        victims = pods if self._case.everyone else [master]
        pids = {pod: self._stage.pid(pod) for pod in victims}
        for pod in victims:
            if self._case.everyone:
                self._stage.kill(pod)
            else:
                self._stage.kill_empty(pod)
        return pids


async def run_case(case: Case, options: argparse.Namespace) -> list[Outcome]:
    """A fresh cluster for each case, the same one for all its times."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-safety-"))
    outcomes = []
    try:
        async with Bed(directory) as bed:
            stage = RedisStage(bed, "kept", password="change-me-please")
            await bed.apply(manifest("kept", password="change-me-please", persistence=case.persistence))
            await stage.exact(60)
            safety = Safety(stage, case, options)
            for number in range(1, options.times + 1):
                outcome = await safety.once(number)
                outcomes.append(outcome)
                _say(options, outcome)
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    return outcomes


def _say(options: argparse.Namespace, one: Outcome) -> None:
    counts = " ".join(str(count) for count in one.kept.values())
    verdict = "ok" if _kept(one, options.keys) else "LOST"
    text = (
        f"{one.case:44s} {one.time:2d}  kept {counts}  {one.old_master} -> {one.master}  whole after "
        f"{one.whole_again:4.1f} s  {verdict}  [{one.cause}: {one.choice}]"
    )
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


def _kept(one: Outcome, keys: int) -> bool:
    return len(one.kept) == 3 and all(count == keys for count in one.kept.values())


async def run(options: argparse.Namespace) -> list[Outcome]:
    """All chosen cases, one after the other."""
    chosen = [case for case in CASES if not options.case or case.name in options.case]
    return [outcome for case in chosen for outcome in await run_case(case, options)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="safety.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=100_000, help="default 100000")
    parser.add_argument("--times", type=int, default=10, help="faults of each kind (default 10)")
    names = [case.name for case in CASES]
    parser.add_argument("--case", action="append", choices=names, help="only this kind (repeatable)")
    parser.add_argument("--wait", type=float, default=30.0, help="seconds without operator (default 30)")
    parser.add_argument("--json", action="store_true", help="outcomes as JSON on standard output")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    configure_logging(level="error")
    outcomes = asyncio.run(run(options))
    lost = [one for one in outcomes if not _kept(one, options.keys)]
    if options.json:
        print(json.dumps([asdict(one) for one in outcomes], indent=2))
    else:
        print(f"{len(outcomes) - len(lost)} of {len(outcomes)} times all {options.keys} keys were kept")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
