"""A backup of a large MySQL cluster: how fast it is made, and what clusters have that begin from it at random moments.

    python bench/mysql_backups.py [--image mariadb:10.11] [--gigabytes 2] [--restores 20] [--rounds 3] [--seed N] [--publish]

A cluster of three servers, durability Strict, with so much data and an archive, on an embedded control plane; one client
writes a row every 0.05 s and notes the GTID position and the time after each. First the backup beside what it consists of:
`mariadb-backup | zstd` of the same replica into nothing, by turns (MariaDB only). Then the primary is killed three times.
Then clusters of one server begin from the first backup, one after the other, at so many random GTIDs and so many random
times: each has to have exactly the rows of its moment, and the same checksum of the large table. Exit status 1 when one
has not. MariaDB's binary log notes whole seconds: at a time, the rows of that second may be in or not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.mysql_gaps import where
from bench.page import RESULTS, publishing, put
from bench.tally import percentile

from mooring.kube import MergePatch
from mooring.kube.objects.core import Pod
from mooring.operators.backup.types import BackupStatus
from mooring.operators.mysql import OPERATOR
from mooring.operators.mysql.backup.types import MySQLBackup
from mooring.operators.mysql.flavors import flavor_of
from mooring.operators.mysql.names import BACKUP
from mooring.operators.mysql.types import MySQLCluster
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, NotInTime
from mooring.testing.mysql_rows import TimedRows, archive_report, on_primary, rows_of
from mooring.testing.mysql_stage import MySQLStage, manifest

__all__ = ["main"]

FAILOVERS = 3
PATIENCE = 900.0
"""Seconds for a backup or a restore of much data."""
CLAIM = "store"
TARGET = {"claim": {"name": CLAIM}}
#: Hexadecimal digits of random numbers: half their size when compressed.
_FILL = (
    "INSERT INTO shop.large (data) SELECT CONCAT("
    + ", ".join(["SHA2(RAND(), 512)"] * 16)
    + ") FROM shop.seq_1_to_{count}"
)
#: What a backup consists of, with no operator: the time goes into the pod's status.
_PEER = r"""
cd /scratch
printf '[client]\nuser=%s\npassword="%s"\nloose-disable-ssl-verify-server-cert\n' "$ACCOUNT" "$(cat /auth/backup-password)" >cnf
packer=$(command -v zstd || command -v gzip)
if [ "${packer##*/}" = zstd ]; then level=-3; else level=-1; fi
from=$(date +%s%N)
mariadb-backup --defaults-file=cnf --backup --stream=mbstream --host="$HOST" --datadir=/var/lib/mysql/data --target-dir=/scratch/target \
  2>errors | "$packer" -q "$level" -c >/dev/null
grep -q 'completed OK' errors || { tail -n 5 errors | cut -c1-300 >/dev/termination-log; exit 1; }
echo "$((($(date +%s%N) - from) / 1000000))" >/dev/termination-log
"""


class Round:
    """One cluster, its data and its backups."""

    def __init__(self, bed: Bed, options: argparse.Namespace) -> None:
        self.bed, self.options = bed, options
        self.flavor = flavor_of(options.image, None) or "mariadb"
        self.stage = MySQLStage(bed, "large", flavor=self.flavor)
        self.rows = TimedRows(self.stage)
        self.chance = random.Random(options.seed)

    async def make(self) -> str:
        """The cluster with its data; the checksum of the large table."""
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": CLAIM, "namespace": "default"}
        await self.bed.apply(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim}
        )
        await self.bed.apply(manifest("large", image=self.options.image))
        await self.stage.exact(within=PATIENCE)
        async with on_primary(self.stage) as link:
            await link.query("CREATE DATABASE IF NOT EXISTS shop")
            await link.query(
                "CREATE TABLE shop.large (id BIGINT PRIMARY KEY AUTO_INCREMENT, data VARCHAR(4096)) "
                "CHARACTER SET ascii ENGINE=InnoDB"
            )
            # Statements of 32 MB: what one transaction may be, and what a replica applies at once, is bounded.
            for _ in range(round(self.options.gigabytes * (1 << 30) / (32 << 20))):
                await link.query(self._statement(), timeout=PATIENCE)
        await self.stage.exact(within=PATIENCE)
        patch = MergePatch({"spec": {"archive": {"target": TARGET, "intervalSeconds": 1}}})
        await self.bed.client.patch(MySQLCluster, "large", patch, namespace="default")
        return await checksum(self.stage)

    def _statement(self) -> str:
        count = (32 << 20) // 2048
        if self.flavor == "mariadb":
            return _FILL.format(count=count)
        numbers = (
            "(WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
            f"SELECT a.i FROM n AS a, n AS b LIMIT {count}) AS many"
        )
        return _FILL.replace("shop.seq_1_to_{count}", numbers)

    async def back_up(self, name: str) -> BackupStatus:
        """A backup that succeeded."""
        await self.bed.apply(
            {
                "apiVersion": "mysql.mooring.dev/v1alpha1",
                "kind": "MySQLBackup",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"cluster": {"name": "large"}, "target": TARGET, "method": "Physical"},
            }
        )

        async def over() -> bool:
            found = (await self.bed.get(MySQLBackup, name)).status or BackupStatus()
            if found.phase == "Failed":
                raise NotInTime(f"the backup {name} failed: {found.conditions}")
            return found.phase == "Succeeded"

        await self.bed.until(over, f"the backup {name} is made", within=PATIENCE, every=0.05)
        found = (await self.bed.get(MySQLBackup, name)).status
        assert found is not None
        return found

    async def peer(self, number: int, replica: str) -> float:
        """Seconds of the same without an operator and without a store."""
        name = f"peer-{number}"
        host = f"{replica}.large.default.svc"
        variables = [{"name": "ACCOUNT", "value": BACKUP}, {"name": "HOST", "value": host}]
        container = {
            "name": "peer",
            "image": self.options.image,
            "command": ["sh", "-c", _PEER],
            "env": variables,
            "volumeMounts": [
                {"name": "data", "mountPath": "/var/lib/mysql", "readOnly": True},
                {"name": "auth", "mountPath": "/auth", "readOnly": True},
                {"name": "scratch", "mountPath": "/scratch"},
            ],
        }
        pods = {pod.metadata.name: pod for pod in await self.stage.pods()}
        found = pods[replica].spec
        user = {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999}
        if found is not None and found.security_context is not None and found.security_context.run_as_user:
            one = found.security_context.run_as_user
            user = {"runAsUser": one, "runAsGroup": one, "fsGroup": one}
        claim = {"claimName": f"data-{replica}", "readOnly": True}
        secret = {"secretName": self.stage.names.credentials}
        await self.bed.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "restartPolicy": "Never",
                    "securityContext": user,
                    "containers": [container],
                    "volumes": [
                        {"name": "data", "persistentVolumeClaim": claim},
                        {"name": "auth", "secret": secret},
                        {"name": "scratch", "emptyDir": {}},
                    ],
                },
            }
        )
        message = ""

        async def over() -> bool:
            nonlocal message
            status = (await self.bed.get(Pod, name)).status
            state = next((one.state for one in (status.container_statuses or ())), None) if status else None
            if state is None or state.terminated is None:
                return False
            if state.terminated.exit_code:
                raise NotInTime(f"the peer of the backup failed: {state.terminated}")
            message = state.terminated.message or ""
            return True

        await self.bed.until(over, f"{name} is over", within=PATIENCE, every=0.1)
        await self.bed.client.delete(Pod, name, namespace="default", grace_period=0)
        return int(message) / 1000

    async def rates(self) -> dict[str, Any]:
        """The backup ``base`` and others beside their peer, by turns."""
        ours, peers, sizes = [], [], []
        for number in range(self.options.rounds):
            began = time.monotonic()
            async with biggest_agent() as memory:
                found = await self.back_up("base" if not number else f"again-{number}")
            ours.append(time.monotonic() - began)
            sizes.append(found.size_bytes or 0)
            source = found.source or ""
            if self.flavor == "mariadb":
                peers.append(await self.peer(number, source))
            say(
                f"backup {ours[-1]:.1f} s, {sizes[-1]:,} bytes"
                + (f"; peer {peers[-1]:.1f} s" if peers else "")
            )
        megabytes = self.options.gigabytes * 1024
        return {
            "backup_seconds": [round(one, 2) for one in ours],
            "peer_seconds": [round(one, 2) for one in peers],
            "compressed_bytes": sizes,
            "agent_mib": memory[0],
            "mib_per_second": round(megabytes / percentile(ours, 0.5), 1),
            "of_the_peers": round(percentile(peers, 0.5) / percentile(ours, 0.5), 2) if peers else None,
        }

    async def fail_over(self) -> None:
        """The primary is killed, until another leads and all is whole."""
        old = await self.stage.primary()
        self.stage.kill(old)
        await self.stage.led_by_another(old, within=60)
        await self.stage.whole(within=300)
        say(f"{old} was killed, {await self.stage.primary()} leads")

    async def archived(self) -> None:
        """Until the archive has every row."""
        last = self.rows.times[-1]

        async def complete() -> bool:
            said = await archive_report(self.stage)
            return bool(said and said.complete and datetime.fromisoformat(said.complete) > last)

        await self.bed.until(complete, "the archive has the last row", within=PATIENCE)

    async def restore(self, number: int, first: int, sum_: str, *, by: str) -> dict[str, Any]:
        """One cluster from a random moment, and whether it has what it must have."""
        rows = self.rows
        if by == "gtid":
            wanted = self.chance.randint(first, len(rows.positions))
            point = {"gtid": rows.transaction(wanted)}
            least = most = wanted
        else:
            begin, end = rows.times[first], rows.times[-1]
            moment = begin + timedelta(seconds=self.chance.uniform(0, (end - begin).total_seconds()))
            point = {"time": moment.isoformat().replace("+00:00", "Z")}
            whole = moment.replace(microsecond=0)
            least, most = rows.least_at(whole - timedelta(seconds=1)), rows.most_at(moment)
        stage = MySQLStage(self.bed, f"copy-{number}", flavor=self.flavor)
        began = time.monotonic()
        source = {"backup": "base", "pointInTime": point}
        await self.bed.apply(manifest(stage.name, size=1, image=self.options.image, restoreFrom=source))
        try:
            await stage.exact(within=PATIENCE)
            seconds = time.monotonic() - began
            found, same = await rows_of(stage), await checksum(stage) == sum_
        finally:
            await stage.delete(claims=True, within=120)
        exact = found == list(range(1, len(found) + 1)) and least <= len(found) <= most and same
        say(
            f"{by} {point[by]}: {len(found)} rows of {least}..{most}, {seconds:.1f} s, {'ok' if exact else 'WRONG'}"
        )
        return {"by": by, "seconds": round(seconds, 2), "exact": exact, "rows": len(found)}


async def checksum(stage: MySQLStage) -> str:
    """Of the large table."""
    async with on_primary(stage) as link:
        return str((await link.query("CHECKSUM TABLE shop.large", timeout=PATIENCE))[0]["Checksum"])


@asynccontextmanager
async def biggest_agent() -> AsyncIterator[list[float]]:
    """The largest resident memory of a process that uploads, in MiB, looked at through the block."""
    largest = [0.0]

    async def look() -> None:
        while True:
            largest[0] = max(largest[0], await asyncio.to_thread(_uploading))
            await asyncio.sleep(0.2)

    task = asyncio.create_task(look())
    try:
        yield largest
    finally:
        task.cancel()


def _uploading() -> float:
    most = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"objects" in words and b"put" in words:
                lines = (process / "status").read_text().splitlines()
                peak = next(one for one in lines if one.startswith("VmHWM"))
                most = max(most, round(int(peak.split()[1]) / 1024, 1))
    return most


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All of it; figures in seconds."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-backups-"))
    try:
        async with Bed(directory, operators=[OPERATOR]) as bed:
            one = Round(bed, options)
            began = time.monotonic()
            sum_ = await one.make()
            say(f"seed {options.seed}; {options.gigabytes:g} GB after {time.monotonic() - began:.0f} s")
            async with one.rows.going(every=0.05):
                at = where()
                rates = await one.rates()
                first = len(one.rows.positions) + 1
                for _ in range(FAILOVERS):
                    await asyncio.sleep(one.chance.uniform(2, 5))
                    await one.fail_over()
                await asyncio.sleep(5)
            await one.archived()
            say(f"{len(one.rows.positions)} rows, {FAILOVERS} failovers")
            ways = ["gtid", "time"] * options.restores
            restores = [await one.restore(number, first, sum_, by=by) for number, by in enumerate(ways)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    seconds = [restore["seconds"] for restore in restores]
    return {
        "image": options.image,
        "gigabytes": options.gigabytes,
        "seed": options.seed,
        **at,
        **rates,
        "rows": len(one.rows.positions),
        "failovers": FAILOVERS,
        "restores": {
            by: {
                "number": sum(1 for each in restores if each["by"] == by),
                "exact": sum(each["exact"] for each in restores if each["by"] == by),
            }
            for by in ("gtid", "time")
        },
        "restore_seconds": {"p50": percentile(seconds, 0.5), "max": max(seconds)} if seconds else None,
    }


def say(text: str) -> None:
    """To the terminal."""
    print(text, flush=True)


def table(kept: dict[str, Any]) -> str:
    """For the page of benchmarks: a column per image."""
    columns = list(kept.values())

    def row(name: str, *cells: str) -> str:
        return f"| {name} | " + " | ".join(cells) + " |"

    lines = [
        row("", *(f"{one['image']}, {one['gigabytes']:g} GB" for one in columns)),
        "|---|" + "---:|" * len(columns),
        row(
            "backup, apply to Succeeded, s",
            *(f"{percentile(one['backup_seconds'], 0.5):.1f}" for one in columns),
        ),
        row("MiB of data a second", *(f"{one['mib_per_second']:g}" for one in columns)),
        row(
            "the same by hand, s; its rate reached",
            *(
                f"{percentile(one['peer_seconds'], 0.5):.1f}; {one['of_the_peers']:.2f}"
                if one["peer_seconds"]
                else "-"
                for one in columns
            ),
        ),
        row("resident memory of what uploads, MiB", *(f"{one['agent_mib']:g}" for one in columns)),
        row(
            "clusters at random GTIDs, of them exact",
            *(f"{one['restores']['gtid']['number']}, {one['restores']['gtid']['exact']}" for one in columns),
        ),
        row(
            "clusters at random times, of them exact",
            *(f"{one['restores']['time']['number']}, {one['restores']['time']['exact']}" for one in columns),
        ),
        row(
            "apply to serving, p50 / max, s",
            *(
                f"{one['restore_seconds']['p50']:.0f} / {one['restore_seconds']['max']:.0f}"
                for one in columns
            ),
        ),
        row("rows over failovers", *(f"{one['rows']:,} over {one['failovers']}" for one in columns)),
        row(
            "measured",
            *(f"{one['measured']}, {one['cores']} cores, one-minute load {one['load']}" for one in columns),
        ),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="mysql_backups.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--image", default="mariadb:10.11", help="(%(default)s)")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of data (2)")
    parser.add_argument("--restores", type=int, default=20, help="at GTIDs, and as many at times (20)")
    parser.add_argument("--rounds", type=int, default=3, help="backups (3)")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, printed")
    publishing(parser, "mysql_backups.json")
    options = parser.parse_args(arguments)
    options.seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    configure_logging(level="error")
    figures = json.loads(options.source.read_text()) if options.source else asyncio.run(measure(options))
    text = json.dumps(figures, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    if options.publish:
        file = RESULTS / "mysql_backups.json"
        kept = json.loads(file.read_text()) if file.exists() else {}
        kept[figures["image"]] = figures
        file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        put("python bench/mysql_backups.py", table(kept))
    say(text)
    return 0 if all(one["number"] == one["exact"] for one in figures["restores"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
