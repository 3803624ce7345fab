"""MariaDB by Mooring and by mariadb-operator, with one image, on one real node, under the same clients and faults: one table.

    python bench/peer_mysql.py [--rounds 5] [--peer NAME ...] [--size 3] [--out FILE] [--publish]
    python bench/peer_mysql.py --from FILE --publish

A cluster (kubelet, containerd, kube-proxy) is made for the run, with both operators as their charts install them; it needs
root. In each round every peer in turn gets a database of its own, and four clients write through the Service of its primary,
each 50 rows a second, as a user without the rights of an administrator. The rows of the table: created (from the apply until
every replica follows), the primary's process killed with -9, stopped (SIGSTOP) until others take writes, its pod deleted, a
planned switch. The gap is the longest time without a confirmed row. A database that takes no writes, or is not whole again
in time, is deleted, and the next fault gets a new one.

mariadb-operator has its default settings; as ``mariadb-operator-quick`` its readiness probe runs every second, for it learns
of a primary that hangs by that. Needs minutes for its first build. ``--publish`` keeps the figures in
bench/results/peer_mysql.json and renews the table in docs/benchmarks.md. Exit status 1 when Mooring loses a confirmed row.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if not __package__:  # run as a program: its sibling is found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.cluster import give_back, real_cluster
from bench.mariadb_operator import QUICK, MariaDBStage, install_operator, version
from bench.mysql_gaps import where
from bench.page import RESULTS, publishing, put
from bench.tally import percentile
from hack.images.peers import MARIADB, build

from mooring.kube import NotFound
from mooring.kube.objects.core import Pod
from mooring.operators.mysql.dial import DialError, Login
from mooring.runtime import configure_logging
from mooring.testing.bed import ClusterBed, NotInTime
from mooring.testing.mysql_stage import MySQLStage, manifest

__all__ = ["main"]

CREATED_WITHIN = 300.0
"""Seconds to be made."""
WRITES_WITHIN = 120.0
"""Seconds until rows are written again."""
WHOLE_WITHIN = 180.0
"""Seconds to be whole again."""
PEERS = {
    "mooring": "Mooring",
    "mariadb-operator": f"mariadb-operator {version()}",
    "mariadb-operator-quick": f"mariadb-operator {version()}, readiness probe every second",
}

APP = Login(user="app", passwords=(("given", "of-the-app"),))
"""Who writes: as an application does, without the rights of root, which a server that is read-only does not hold up."""
_USER = (
    "CREATE USER 'app'@'%' IDENTIFIED BY 'of-the-app'",
    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON *.* TO 'app'@'%'",
)

Cause = Callable[[MySQLStage, Any], Awaitable[None]]


async def crash(stage: MySQLStage, ledger: Any) -> None:
    """The primary's process is killed."""
    stage.kill(await stage.primary())
    await stage.writes(ledger, 100, within=WRITES_WITHIN)


async def hang(stage: MySQLStage, ledger: Any) -> None:
    """The primary is stopped until rows are written again."""
    pid = stage.kill(await stage.primary(), signal.SIGSTOP)
    try:
        await stage.writes(ledger, 100, within=WRITES_WITHIN)
    finally:
        with contextlib.suppress(ProcessLookupError):  # its kubelet may have ended it
            os.kill(pid, signal.SIGCONT)


async def deleted(stage: MySQLStage, ledger: Any) -> None:
    """The primary's pod is deleted; it serves on until it ends."""
    pod = await stage.primary()
    uid = (await stage.bed.get(Pod, pod)).metadata.uid
    await stage.delete_pod(pod)

    async def gone() -> bool:
        with contextlib.suppress(NotFound):
            return (await stage.bed.get(Pod, pod)).metadata.uid != uid
        return True

    await stage.bed.until(gone, f"{pod} is gone", within=WRITES_WITHIN)
    await stage.writes(ledger, 100, within=WRITES_WITHIN)


async def switch(stage: MySQLStage, ledger: Any) -> None:
    """A person asks for another primary."""
    old = await stage.primary()
    names = sorted(pod.metadata.name or "" for pod in await stage.pods())
    await stage.switch(next(name for name in names if name != old))
    await stage.led_by_another(old, within=WRITES_WITHIN)
    await stage.writes(ledger, 100, within=WRITES_WITHIN)


CAUSES: dict[str, Cause] = {"crash": crash, "hang": hang, "pod deleted": deleted, "switch": switch}


@dataclass(kw_only=True)
class Tally:
    """What one peer's rounds came to; seconds by cause, counts by cause."""

    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in ("create", *CAUSES)}
    )
    lost: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    twice: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    stuck: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    broken: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("create", *CAUSES), 0))
    flaws: list[str] = field(default_factory=list)
    acknowledged: int = 0


def _stage(bed: ClusterBed, peer: str, name: str, size: int) -> MySQLStage:
    return MySQLStage(bed, name) if peer == "mooring" else MariaDBStage(bed, name, size=size)


async def _create(stage: MySQLStage, peer: str, size: int) -> float:
    """Make this peer's database; the seconds until every replica followed."""
    began = time.monotonic()
    if isinstance(stage, MariaDBStage):
        await stage.create(**(QUICK if peer.endswith("-quick") else {}))
    else:
        await stage.bed.apply(manifest(stage.name, image=MARIADB.rpartition("/")[2], size=size))
    await stage.exact(within=CREATED_WITHIN)
    took = time.monotonic() - began
    for statement in _USER:
        await stage.query(await stage.primary(), statement, account="root")
    return took


async def _strike(stage: MySQLStage, cause: str, tally: Tally) -> bool:
    """One fault under writers; whether the database is whole again."""
    try:
        async with stage.writing(login=APP, patience=1.0) as ledger:
            await CAUSES[cause](stage, ledger)
        report = await ledger.check(patience=60)
    except (NotInTime, DialError) as error:
        tally.stuck[cause] += 1
        tally.flaws.append(f"{cause}: {error}")
        return False
    tally.seconds[cause].append(report.longest_gap)
    tally.lost[cause] += report.lost_acknowledged
    tally.twice[cause] += ledger.failed_twice
    tally.acknowledged += report.acknowledged
    try:
        await stage.exact(within=WHOLE_WITHIN)
    except NotInTime as error:
        tally.broken[cause] += 1
        tally.flaws.append(f"{cause}: {error}")
        return False
    return True


async def _round(bed: ClusterBed, peer: str, name: str, *, size: int, tally: Tally) -> None:
    """Every fault once."""
    stage: MySQLStage | None = None
    for number, cause in enumerate(CAUSES):
        if stage is None:
            stage = _stage(bed, peer, f"{name}-{number}", size)
            try:
                tally.seconds["create"].append(await _create(stage, peer, size))
            except NotInTime as error:
                tally.broken["create"] += 1
                tally.flaws.append(f"create: {error}")
                break
        if not await _strike(stage, cause, tally):
            await _gone(bed, stage)
            stage = None
        print(f"{name} {cause}: {_last(tally, cause)}", flush=True)
    if stage is not None:
        await _gone(bed, stage)


def _last(tally: Tally, cause: str) -> str:
    flaw = next((flaw for flaw in tally.flaws[-1:] if flaw.startswith(f"{cause}: ")), "")
    return f"gap {tally.seconds[cause][-1:]}, lost so far {tally.lost[cause]} {flaw}"


async def _gone(bed: ClusterBed, stage: MySQLStage) -> None:
    await stage.delete(claims=True, within=120)
    await give_back(bed, stage.namespace)


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of all peers; figures in seconds."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-peers-"))
    tallies = {peer: Tally() for peer in options.peer or PEERS}
    images = [await asyncio.to_thread(build, name) for name in ("mariadb-stock", "mariadb-operator")]
    try:
        async with real_cluster(directory, operator="mysql", images=images) as bed:
            await install_operator(bed, directory)
            for number in range(options.rounds):
                for peer, tally in tallies.items():
                    await _round(bed, peer, f"{peer}-{number}", size=options.size, tally=tally)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return [_figures(peer, tally, options) for peer, tally in tallies.items()]


def _figures(peer: str, tally: Tally, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "peer": PEERS[peer],
        "image": MARIADB,
        "size": options.size,
        "rounds": options.rounds,
        **where(),
        "acknowledged": tally.acknowledged,
        "lost": tally.lost,
        "failed_twice": tally.twice,
        "no_writes": tally.stuck,
        "never_whole": tally.broken,
        "flaws": tally.flaws,
        "seconds": {
            name: {"p50": percentile(values, 0.5), "max": max(values)}
            for name, values in tally.seconds.items()
            if values
        },
    }


def _cell(one: dict[str, Any], cause: str) -> str:
    """A cell of the table: the gap, then what went wrong."""
    parts = []
    if seconds := one["seconds"].get(cause):
        twice = f"; failed twice {one['failed_twice'][cause]}" if cause == "switch" else ""
        parts.append(f"{seconds['p50']:.2f}, max {seconds['max']:.2f} s{twice}")
    if lost := one["lost"].get(cause):
        parts.append(f"**rows lost: {lost}**")
    if stuck := one["no_writes"].get(cause):
        parts.append(f"**no writes within {WRITES_WITHIN:.0f} s: {stuck} of {one['rounds']}**")
    if broken := one["never_whole"].get(cause):
        within = CREATED_WITHIN if cause == "create" else WHOLE_WITHIN
        parts.append(f"**not whole within {within:.0f} s: {broken} of {one['rounds']}**")
    return "; ".join(parts)


def table(kept: Sequence[dict[str, Any]]) -> str:
    """The table as it stands on the page: a column for each peer."""
    rows = [("", *(f"{one['peer']}, {one['size']} servers" for one in kept))]
    rows += [(cause, *(_cell(one, cause) for one in kept)) for cause in ("create", *CAUSES)]
    rows.append(
        (
            "acknowledged rows lost",
            *(f"{sum(one['lost'].values())} of {one['acknowledged']:,}" for one in kept),
        )
    )
    rows.append(
        (
            "rounds; measured",
            *(
                f"{one['rounds']}; {one['measured']}, {one['cores']} cores, one-minute load {one['load']}"
                for one in kept
            ),
        )
    )
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---|" + "---|" * len(kept), *lines[1:]])


def publish(figures: Sequence[dict[str, Any]]) -> None:
    """Keep these figures in the place of earlier ones of the same peer and size, and renew the page."""
    path = RESULTS / "peer_mysql.json"
    new = {(one["peer"], one["size"]) for one in figures}
    kept = json.loads(path.read_text()) if path.exists() else []
    kept = [*(one for one in kept if (one["peer"], one["size"]) not in new), *figures]
    order = list(PEERS.values())
    kept.sort(key=lambda one: (one["size"], order.index(one["peer"]) if one["peer"] in order else -1))
    path.write_text(json.dumps(kept, indent=1) + "\n")
    put("python bench/peer_mysql.py", table(kept))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="peer_mysql.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="5")
    parser.add_argument("--peer", action="append", choices=list(PEERS), help="all of them")
    parser.add_argument("--size", type=int, default=3, help="3")
    publishing(parser, "peer_mysql.json")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    figures = json.loads(options.source.read_text()) if options.source else asyncio.run(measure(options))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    if options.publish:
        publish(figures)
    print(table(figures))
    ours = [one for one in figures if one["peer"] == PEERS["mooring"]]
    return 1 if any(sum(one["lost"].values()) for one in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
