"""BackupJobs in virtual time: what a schedule begins and deletes, what goes after a `ttl`, what earlier tries left."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from bench.matrixone_model import World
from bench.matrixone_workloads import at_once, create, serves
from tests.operators.matrixone.living import CLUSTER, LOG, S3, Life, living

from mooring.kube.objects.batch import Job
from mooring.operators.matrixone.types import Backup, BackupJob

TARGET = {"s3": {**S3, "path": "bucket/backups"}}
SPEC = {"source": {"clusterRef": "old"}, "target": TARGET}
MINUTE = 60.0


async def served(life: Life) -> None:
    """A cluster that the operator leaves alone."""
    storage = {"sharedStorage": {"s3": {**S3, "path": "bucket/old"}}}
    spec = {**CLUSTER, "logService": {**LOG, **storage}, "cnGroups": [{"name": "main", "replicas": 1}]}
    skip = {"annotations": {"matrixorigin.io/skip-sync": "yes"}}
    await at_once(create("MatrixOneCluster", "old", spec, metadata=skip), serves)(life.client)


async def backups(life: Life) -> list[Backup]:
    """All Backups, oldest first."""
    found = (await life.client.list(Backup, namespace="")).items
    return sorted(found, key=place_of)


def place_of(backup: Backup) -> str:
    assert backup.meta is not None
    assert backup.meta.location is not None
    assert backup.meta.location.s3 is not None
    return backup.meta.location.s3.path or ""


async def over(life: Life, name: str) -> Any:
    """The status of a BackupJob that has ended, with its test restore."""

    async def check() -> bool:
        job = await life.get(BackupJob, name)
        status = job.status
        if status is None or status.phase not in ("Completed", "Failed"):
            return False
        known = status.verified
        return not (job.spec is not None and job.spec.verify) or (known is not None and known.at is not None)

    await life.until(check, f"{name} is over")
    return (await life.get(BackupJob, name)).status


async def test_a_backup_that_an_earlier_try_made_is_named_and_verified_at_its_own_place() -> None:
    async with living(functools.partial(World, fails_once="backup")) as life:
        await served(life)
        await life.make(BackupJob, "first", {**SPEC, "verify": True, "ttl": "900h"})
        status = await over(life, "first")

        # The first try was killed half-way, the second one when it was done; the third one found its backup.
        (whole,) = (place for place, is_whole in life.world.stored.items() if is_whole)
        assert status.tries == 3
        assert (status.phase, f"bucket/backups/{status.prefix}") == ("Completed", whole)
        assert status.verified.passed
        assert life.world.tried_out == {whole}
        (backup,) = await backups(life)
        assert (backup.metadata.name, place_of(backup)) == (status.backup, whole)


async def test_what_goes_after_its_time_is_the_backup_job_alone() -> None:
    async with living() as life:
        await served(life)
        for name, more in (
            ("short", {"ttl": "10m"}),
            ("deletes", {"ttl": "10m", "deletionPolicy": "Delete"}),
            ("default", {}),
        ):
            await life.make(BackupJob, name, {**SPEC, **more})
            await over(life, name)
        made = {place_of(one) for one in await backups(life)}
        assert len(made) == 3

        await asyncio.sleep(9 * MINUTE)
        assert await life.names(BackupJob) == ["default", "deletes", "short"]
        await asyncio.sleep(2 * MINUTE)
        assert await life.names(BackupJob) == ["default"]
        await asyncio.sleep(50 * MINUTE)
        assert await life.names(BackupJob) == []
        assert await life.names(Job) == []

        # The Backups stay with their data, also those whose data goes when they are deleted.
        assert {place_of(one) for one in await backups(life)} == made
        assert {place for place, whole in life.world.stored.items() if whole} == made


async def test_a_schedule_begins_each_run_and_deletes_exactly_what_its_retention_lets_go() -> None:
    async with living() as life:
        await served(life)
        await life.make(BackupJob, "by-hand", {**SPEC, "ttl": "900h"})
        by_hand = (await over(life, "by-hand")).backup
        spec = {**SPEC, "schedule": {"cron": "*/10 * * * *", "retention": {"keepLast": 2}}}
        await life.make(BackupJob, "often", spec)
        first = int(life.plane.clock.now().timestamp()) // 600 * 10 + 10
        """The minute of the first run."""

        for run in range(5):
            due = first + 10 * run
            await asyncio.sleep((due + 3) * MINUTE - life.plane.clock.now().timestamp())
            names = [one.metadata.name or "" for one in await backups(life)]
            assert by_hand in names, "a Backup that is not of the schedule was deleted"
            mine = [one for one in names if one != by_hand]
            assert [int(one.split("-")[1]) for one in mine] == list(range(first, due + 1, 10))[-2:]
            held = {place for place, whole in life.world.stored.items() if whole}
            assert held == {place_of(one) for one in await backups(life)}, "a Backup's data goes with it"
        status = (await life.get(BackupJob, "often")).status
        assert status is not None
        assert (status.runs, status.missed or 0, status.backup) == (5, 0, mine[-1])

        # A run that could not begin is made up for once, when it can; those before it are counted.
        await life.edit(BackupJob, "often", {"schedule": {"suspend": True}})
        await asyncio.sleep(25 * MINUTE)
        assert {one.metadata.name for one in await backups(life)} == {by_hand, *mine}
        await life.edit(BackupJob, "often", {"schedule": {"suspend": False}})
        await asyncio.sleep(MINUTE)
        status = (await life.get(BackupJob, "often")).status
        assert status is not None
        assert (status.runs, status.missed) == (6, 1)
        names = [one.metadata.name or "" for one in await backups(life)]
        made = [int(one.split("-")[1]) for one in names if one != by_hand]
        assert made == [first + 40, first + 60]
