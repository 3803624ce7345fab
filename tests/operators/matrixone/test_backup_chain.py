"""Incremental backups on a real S3 server: what a chain holds, when it is not whole, and which backup comes next."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.objectstore.conftest import s3  # noqa: F401 - the fixture
from tests.operators.matrixone.test_backup_agent import FIRST, SECOND, Pod, pieces, pod, tried_out  # noqa: F401
from tests.operators.matrixone.test_backup_rules import NOW, bucket

from mooring.kube.object import decode
from mooring.operators.backup.manifest import decode_manifest
from mooring.operators.backup.retention import Kept, Policy, outdated
from mooring.operators.backup.types import Retention
from mooring.operators.matrixone.backup import agent, calendar
from mooring.operators.matrixone.backup.record_actor import RecordSnapshot
from mooring.operators.matrixone.backup.record_actor import decide as decide_record
from mooring.operators.matrixone.backup.records import base_place, kept_of
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.statement import Keys, backup_statement
from mooring.operators.matrixone.types import Backup, BackupJob, JobSchedule
from mooring.operators.matrixone.validate import validate

THIRD = f"{FIRST[:-8]}33333333"
OLD, NEWER, NEWEST = ({f"tae/{name}": name.encode() * 900} for name in ("old", "newer", "newest"))


class Server:
    """MatrixOne as it writes backups: an incremental one lists all objects and stores those that are new."""

    def __init__(self, made: Pod) -> None:
        self.pod = made
        self.objects: dict[str, bytes] = {}
        self.positions: list[str] = []
        self._known: dict[str, frozenset[str]] = {}
        self.version = "1.2.4"
        self.forgets = ""
        """An object that an incremental backup takes for old, although no earlier one has it."""

    async def execute(self, asked: Request, place: str, secrets: Path, *, since: str = "") -> dict[str, str]:
        self.positions.append(since)
        old = {name for name in self.objects if since and name in self._known[since]}
        if since and self.forgets:
            old.add(self.forgets)
        position = f"{len(self.positions)}00-1"
        self._known[position] = frozenset(self.objects)
        await self._write(place, {name: name not in old for name in self.objects}, position)
        return {}

    async def _write(self, place: str, stored: Mapping[str, bool], position: str) -> None:
        rows = []
        for name, mine in stored.items():
            data = self.objects[name]
            digest = hashlib.sha256(data).hexdigest() if mine else ""
            rows.append(f"{name.removeprefix('tae/')},{len(data)},{digest},{str(mine).lower()},0-0\n")
        lists = {
            "mo_meta": f"version,0823,\nbuildinfo,GoVersion: |Version: v{self.version},\n".encode(),
            "hakeeper/hk_data": position.encode(),
            "tae/tae_list": "".join(rows).encode(),
            "tae/tae_sum": f"2026-01-02 03:04:05,1,{position},\n".encode(),
        }
        async with self.pod.store("backups") as store:
            for name, mine in stored.items():
                if mine:
                    await store.upload(f"{place}/{name}", pieces(self.objects[name]))
            for name, data in lists.items():
                await store.upload(f"{place}/{name}", pieces(data))
                await store.upload(f"{place}/{name}.sha256", pieces(hashlib.sha256(data).digest()))


@pytest.fixture
def server(
    pod: Pod,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Server:
    pod.name = hashlib.sha256(request.node.name.encode()).hexdigest()[:20]
    made = Server(pod)
    made.objects = dict(OLD)
    monkeypatch.setattr(agent, "_execute", made.execute)
    return made


async def chained(server: Server) -> None:
    """A full backup and two incremental ones."""
    for place, base, more in ((FIRST, "", {}), (SECOND, FIRST, NEWER), (THIRD, SECOND, NEWEST)):
        server.objects |= more
        made = await server.pod.run("backup", place, base=base)
        assert made.ok, made
        assert made.facts.get("base") == (base.rpartition("/")[2] or None)


async def stored(server: Server, place: str) -> set[str]:
    return {
        name.removeprefix(f"{place}/")
        for name in await server.pod.names("backups")
        if name.startswith(f"{place}/tae/") and not name.rpartition("/")[2].startswith("tae_")
    }


async def test_an_incremental_backup_stores_what_is_new_and_is_restored_with_its_chain(
    server: Server,
) -> None:
    await chained(server)
    assert server.positions == ["", "100-1", "200-1"]
    for place, objects in ((FIRST, OLD), (SECOND, NEWER), (THIRD, NEWEST)):
        assert await stored(server, place) == set(objects)
    done = await server.pod.restore(THIRD)
    assert done.ok, done
    assert {f"data/{name.removeprefix('tae/')}" for name in server.objects} <= set(
        await server.pod.names("new")
    )
    async with server.pod.store("new") as store:
        for name, data in server.objects.items():
            assert await store.read(f"data/{name.removeprefix('tae/')}") == data
        assert await store.read("hk_data") == b"300-1", "HAKeeper's data is that of the newest"
    # An older one of the chain is one too, without what came later.
    assert (await server.pod.restore(SECOND, to="older")).ok
    assert "data/newest" not in await server.pod.names("older")


async def lose(server: Server) -> str:
    async with server.pod.store("backups") as store:
        await store.delete(f"{FIRST}/tae/old")
    return "ChainBroken"


async def spoil(server: Server) -> str:
    async with server.pod.store("backups") as store:
        await store.upload(f"{FIRST}/tae/old", pieces(b"bad" * 900))
    return "ObjectCorrupt"


async def replace_base(server: Server) -> str:
    async with server.pod.store("backups") as store:
        data = await store.read(f"{FIRST}/manifest.json")
        await store.upload(f"{FIRST}/manifest.json", pieces(data + b"\n"))
    return "ChainBroken"


async def remove_base(server: Server) -> str:
    await server.pod.run("delete", FIRST)
    return "ChainBroken"


@pytest.mark.parametrize("damage", [lose, spoil, replace_base, remove_base])
async def test_a_chain_that_is_not_whole_is_found_before_anything_is_written_and_the_next_backup_is_full(
    server: Server, damage: Any, tmp_path: Path
) -> None:
    await chained(server)
    reason = await damage(server)
    tried = [await server.pod.restore(THIRD)]
    if reason == "ObjectCorrupt":
        tried.append(await tried_out(server.pod, tmp_path, place=THIRD))
    for found in tried:
        assert (found.ok, found.reason) == (False, reason)
        assert FIRST.rpartition("/")[2] in found.message
        assert "full backup" in found.remedy
    assert await server.pod.names("new") == []
    # What is only changed, and not gone, shows when it is read: by a verification.
    if reason == "ChainBroken":
        fourth = f"{FIRST[:-8]}44444444"
        made = await server.pod.run("backup", fourth, base=THIRD)
        assert made.ok, made
        assert "base" not in made.facts
        assert FIRST.rpartition("/")[2] in made.facts["fullBecause"]
        assert await stored(server, fourth) == set(server.objects)
        assert (await server.pod.restore(fourth)).ok


@pytest.mark.parametrize("what", ["another version", "an object that no backup has"])
async def test_what_cannot_build_on_its_base_is_made_in_full_at_once(server: Server, what: str) -> None:
    await server.pod.run("backup", FIRST)
    server.objects |= NEWER
    if what == "another version":
        server.version = "1.2.5"
    else:
        server.forgets = "tae/newer"
    made = await server.pod.run("backup", SECOND, base=FIRST)
    assert made.ok, made
    assert server.positions == ["", "100-1", ""]
    assert ("version" if what == "another version" else "tae/newer") in made.facts["fullBecause"]
    assert await stored(server, SECOND) == set(server.objects)
    async with server.pod.store("backups") as store:
        manifest = decode_manifest(await store.read(f"{SECOND}/manifest.json"))
    assert "base" not in manifest.facts


async def test_an_incremental_backup_of_other_tools_is_refused(server: Server) -> None:
    await chained(server)
    async with server.pod.store("backups") as store:
        await store.delete(f"{THIRD}/manifest.json")
    root, target = server.pod.path(f"backups/{THIRD}"), server.pod.path("new")
    asked = Request(action="restore", root=root, places=[""], target=target, owner="u")
    found = await agent.outcome(asked, server.pod.secrets)
    assert (found.ok, found.reason) == (False, "ChainBroken")


def test_the_statement_of_an_incremental_backup_names_the_position() -> None:
    assert backup_statement("ID", bucket(), Keys(), since="123-1").endswith(
        "} type 'incremental' timestamp '123-1'"
    )
    assert "incremental" not in backup_statement("ID", bucket(), Keys())


# --- which backups stay, and what comes next ---------------------------------------------------------------


def one(number: int, base: str = "", **more: Any) -> Kept:
    fields = {"good": True, "base": base, **more}
    return Kept(name=f"b{number}", at=NOW + timedelta(hours=number), **fields)


CHAIN = [one(1), one(2, "b1"), one(3, "b2"), one(4), one(5, "b4")]


def test_a_backup_on_which_a_kept_one_builds_stays() -> None:
    assert outdated(CHAIN, Policy(last=2), now=NOW) == ["b1", "b2", "b3"]
    assert outdated(CHAIN, Policy(last=3), now=NOW) == []
    held = [*CHAIN[:1], one(2, "b1", held=True), *CHAIN[2:]]
    assert outdated(held, Policy(last=2), now=NOW) == ["b3"]
    verified = [*CHAIN[:1], one(2, "b1", verified=True), *CHAIN[2:]]
    assert outdated(verified, Policy(last=2), now=NOW) == ["b3"]


def test_what_a_failed_one_builds_on_stays_as_long_as_it() -> None:
    failed = [one(1), one(2, "b1", good=False, failed=True), one(3), one(4)]
    assert outdated(failed, Policy(last=1, failed=1), now=NOW) == ["b3"]


@pytest.mark.parametrize(
    ("backups", "every", "base"),
    [
        ([], 7, ""),
        (CHAIN, 1, ""),
        (CHAIN, 2, ""),
        (CHAIN, 3, "b5"),
        (CHAIN[:3], 3, ""),
        (CHAIN[:3], 4, "b3"),
        (CHAIN[1:3], 4, ""),
        ([one(1, good=False), one(2, "b1")], 4, ""),
        ([one(1), one(2, good=False, failed=True)], 4, ""),
        ([one(1, "b2"), one(2, "b1")], 9, ""),
    ],
    ids=[
        "none",
        "all full",
        "every second",
        "one more",
        "enough",
        "a chain of four",
        "the base is gone",
        "the base is being deleted",
        "the newest is damaged",
        "a circle",
    ],
)
def test_every_so_many_is_full_and_so_is_what_has_no_whole_chain(
    backups: list[Kept], every: int, base: str
) -> None:
    assert calendar.next_base(backups, every) == base


def test_a_run_of_a_schedule_builds_on_the_newest() -> None:
    schedule = JobSchedule(cron="*/10 * * * *", full_every=7, retention=Retention(keep_last=9))
    look = calendar.CalendarSnapshot(
        name="nightly", schedule=schedule, last=NOW - timedelta(minutes=5), now=NOW, backups=CHAIN
    )
    run = calendar.decide(look)
    assert isinstance(run, calendar.StartRun)
    assert run.base == "b5"


def backup(**status: Any) -> Backup:
    location = {
        "s3": {"path": "bucket/backups/mo-1/backups/ID", "endpoint": "http://minio:9000", "type": "minio"}
    }
    raw = {
        "metadata": {"name": "b1"},
        "meta": {"id": "ID", "location": location, "atTime": "2026-01-02T03:04:05Z"},
        "status": status,
    }
    return decode(raw, Backup)


def test_a_backup_is_a_base_only_where_the_next_one_lies_beside_it() -> None:
    root = bucket()
    assert base_place(backup(), root, "mo-1/backups") == ("mo-1/backups/ID", "")
    for found, parent, said in (
        (None, "mo-1/backups", "does not exist"),
        (backup(), "mo-2/backups", "another cluster"),
        (backup(verified={"at": "2026-01-02T03:04:05Z", "reason": "ChainBroken"}), "mo-1/backups", "damaged"),
    ):
        place, problem = base_place(found, root, parent)
        assert (place, said in problem) == ("", True)
    assert kept_of(backup(base="b0"), held=False).base == "b0"


def test_the_data_of_a_base_is_deleted_after_what_was_built_on_it() -> None:
    waits = decide_record(RecordSnapshot(deleted=True, erases=True, readers=("Backup b2",)))
    assert getattr(waits, "message", "") == "Backup b2 needs it"


def test_a_schedule_chooses_the_base_itself() -> None:
    target = {"s3": {"path": "bucket/b", "endpoint": "http://minio:9000", "type": "minio"}}
    spec = {
        "source": {"clusterRef": "mo"},
        "target": target,
        "incrementalFrom": "b1",
        "schedule": {"cron": "@daily"},
    }
    problems = validate(decode({"metadata": {"name": "j"}, "spec": spec}, BackupJob))
    assert [each.field for each in problems] == ["spec.incrementalFrom"]
