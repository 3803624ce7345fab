"""Rounds of death under a writer: what is lost, how long nobody serves, and whether the operator says why.

    python bench/soak.py --rounds 20 [--seed N] [--operator-process] [--json]

Each round kills a random pod's server (redis or sentinel, the master's at least in two of five) with -9 at a
random moment, waits until every server and sentinel agrees again, and reads every key ever acknowledged. Exit
status 1 when a write that WAIT had confirmed is lost, or when a gap above 1.5 s is not explained by the
operator's own record. `--operator-process`: the operators are a second process, killed at random as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from mooring.operators.redis.sentinel.types import LastFailover
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.ledger import Ledger
from mooring.testing.process import OperatorProcess, operator_process, served
from mooring.testing.redis import RedisStage

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
TARGET = 1.5
"""Seconds without a write that need no explanation."""
LEASE = 30.0
"""Seconds after which somebody leads again: a dead holder's Lease, and the start of the next one."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round came to."""

    number: int
    victim: str
    role: str
    gap: float
    lost_acknowledged: int
    lost_confirmed: int
    whole_again: float
    operator: str
    explanation: str

    @property
    def good(self) -> bool:
        return not self.lost_confirmed and (self.gap <= TARGET or bool(self.explanation))


class Soak:
    """The rounds."""

    def __init__(self, stage: RedisStage, chance: random.Random, operator: OperatorProcess | None) -> None:
        self._stage, self._chance, self._operator = stage, chance, operator
        self._confirmed_lost = self._acknowledged_lost = 0

    async def run(self, ledger: Ledger, roles: Sequence[str]) -> AsyncIterator[Round]:
        """One round per role; in every second one, in random order, the operators' process dies too."""
        troubles = [number % 2 == 0 for number in range(len(roles))]
        self._chance.shuffle(troubles)
        for number, (role, trouble) in enumerate(zip(roles, troubles, strict=True), 1):
            yield await self._round(ledger, number, role, trouble=trouble)

    async def _round(self, ledger: Ledger, number: int, role: str, *, trouble: bool) -> Round:
        stage = self._stage
        await asyncio.sleep(self._chance.uniform(0.2, 3.0))
        troubling = asyncio.create_task(self._trouble_operator(trouble))
        await asyncio.sleep(self._chance.uniform(0.0, 1.5))
        victim = await self._victim(role)
        before = (await stage.status()).last_failover
        leading = self._operator is None or await self._operator.leads()
        ledger.reset_gap()
        began = time.monotonic()
        pid = stage.kill(victim)
        await stage.restarted({victim: pid})
        operator = await troubling
        if not leading and operator == "stayed":
            operator = "waits for the dead one's Lease"
        await stage.writes(ledger, 100, within=90)
        await stage.exact(within=90)
        whole = time.monotonic() - began
        gap, explanation = ledger.longest_gap, ""
        if gap > TARGET:
            explanation = await self._explanation(before, away=operator != "stayed")
        report = await ledger.check()
        lost = (
            report.lost_acknowledged - self._acknowledged_lost,
            report.lost_confirmed - self._confirmed_lost,
        )
        self._acknowledged_lost, self._confirmed_lost = report.lost_acknowledged, report.lost_confirmed
        return Round(
            number=number,
            victim=victim,
            role=role,
            gap=round(gap, 3),
            lost_acknowledged=lost[0],
            lost_confirmed=lost[1],
            whole_again=round(whole, 1),
            operator=operator,
            explanation=explanation,
        )

    async def _explanation(self, before: LastFailover | None, *, away: bool) -> str:
        """The operator's own words; where none led, the next one writes them when the dead one's Lease is over."""
        until = time.monotonic() + (LEASE if away else 0.0)
        while True:
            words = explain(before, (await self._stage.status()).last_failover, away=away)
            if words or time.monotonic() >= until:
                return words
            await asyncio.sleep(0.2)

    async def _victim(self, role: str) -> str:
        master = await self._stage.master()
        if role == "master":
            return master
        component = "sentinel" if role == "sentinel" else "redis"
        names = [pod.metadata.name or "" for pod in await self._stage.pods(component)]
        return self._chance.choice([name for name in names if name != master])

    async def _trouble_operator(self, trouble: bool) -> str:
        """The operators' process dies at a random moment and comes back later."""
        if self._operator is None or not trouble:
            return "stayed"
        await asyncio.sleep(self._chance.uniform(0.0, 2.0))
        await asyncio.to_thread(self._operator.kill)
        away = self._chance.uniform(0.2, 3.0)
        await asyncio.sleep(away)
        self._operator.start()
        return f"killed, {away:.1f} s away"


def explain(before: LastFailover | None, after: LastFailover | None, *, away: bool) -> str:
    """The operator's own words for a long gap; nothing when its record says nothing that would explain one."""
    if after is None or after == before:
        return ""
    words = f"{after.cause}: {after.choice}; {after.gap_seconds:.1f} s by its record"
    if away:
        return f"{words} (no operator led)"
    return words if "its own log" in after.choice else ""


def roles_of(rounds: int, chance: random.Random) -> list[str]:
    """Two in five masters, the rest replicas and sentinels, in random order."""
    masters = -(-rounds * 2 // 5)
    rest = ["replica" if number % 2 else "sentinel" for number in range(rounds - masters)]
    roles = ["master"] * masters + rest
    chance.shuffle(roles)
    return roles


async def soak(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run all rounds on an embedded plane of their own; the totals."""
    apart = options.operator_process
    async with (
        Bed(directory, operators=() if apart else None) as bed,
        operator_process(bed, directory) if apart else contextlib.nullcontext() as process,
    ):
        return await soak_on(bed, options, process)


async def soak_on(
    bed: Bed | KubernetesBed, options: argparse.Namespace, operator: OperatorProcess | None = None
) -> dict[str, Any]:
    """Run all rounds on a bed; the totals. The cluster is deleted at the end, its claims too."""
    chance = random.Random(options.seed)
    document = yaml.safe_load(await asyncio.to_thread(options.file.read_text))
    stage = RedisStage(bed, document["metadata"]["name"], password=document["spec"].get("password", ""))
    rounds: list[Round] = []
    began = time.monotonic()
    await served(bed)
    try:
        await bed.apply(document)
        await stage.healthy(60)
        healthy = time.monotonic() - began
        _say(options, f"seed {options.seed}; Healthy after {healthy:.1f} s")
        await stage.exact(60)
        async with stage.writing(rate=options.rate) as ledger:
            soaking = Soak(stage, chance, operator)
            async for one in soaking.run(ledger, roles_of(options.rounds, chance)):
                rounds.append(one)
                _say(options, _line(one))
        report = await ledger.check()
    finally:
        await stage.delete(claims=True)
    return {
        "seed": options.seed,
        "healthy_seconds": round(healthy, 2),
        "rounds": [asdict(one) for one in rounds],
        "masters_killed": sum(one.role == "master" for one in rounds),
        "acknowledged": report.acknowledged,
        "confirmed": report.confirmed,
        "lost_acknowledged": report.lost_acknowledged,
        "lost_confirmed": report.lost_confirmed,
        "longest_gap": max((one.gap for one in rounds), default=0.0),
        "longest_master_gap_operator_there": max(
            (one.gap for one in rounds if one.role == "master" and one.operator == "stayed"), default=0.0
        ),
        "unexplained": [one.number for one in rounds if not one.good],
    }


def _line(one: Round) -> str:
    verdict = "ok" if one.good else "FAILED"
    why = f"  [{one.explanation}]" if one.explanation else ""
    return (
        f"{one.number:3d} {one.role:8s} {one.victim:24s} gap {one.gap:6.3f} s  lost {one.lost_acknowledged}"
        f"/{one.lost_confirmed}  whole after {one.whole_again:4.1f} s  operator {one.operator}  {verdict}{why}"
    )


def _say(options: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="soak.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="default 20")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, printed")
    parser.add_argument("--rate", type=float, default=200.0, help="writes per second (default 200)")
    parser.add_argument("--operator-process", action="store_true", help="operators apart, killed as well")
    parser.add_argument("--file", type=Path, default=ROOT / "examples" / "redis-sentinel.yaml")
    parser.add_argument("--json", action="store_true", help="totals as JSON on standard output")
    parser.add_argument("--keep", action="store_true", help="keep the data directory and its logs")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    options.seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    configure_logging(level="error")
    directory = Path(tempfile.mkdtemp(prefix="mooring-soak-"))
    try:
        totals = asyncio.run(soak(options, directory))
    finally:
        if options.keep:
            print(f"kept: {directory}", file=sys.stderr)
        else:
            with contextlib.suppress(OSError):
                shutil.rmtree(directory)
    if options.json:
        print(json.dumps(totals, indent=2))
    else:
        print(json.dumps({key: value for key, value in totals.items() if key != "rounds"}, indent=2))
    return 1 if totals["lost_confirmed"] or totals["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
