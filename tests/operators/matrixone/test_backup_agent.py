"""What a run does in its pod, on a real S3 server; the database's server alone is played."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asyncmy.errors import OperationalError
from tests.objectstore.conftest import s3  # noqa: F401 - the fixture
from tests.objectstore.servers import BUCKET, ROOT, S3Server
from tests.operators.matrixone.builders import typed

from mooring.objectstore import Corrupt, Store
from mooring.operators.backup.agent import Result
from mooring.operators.matrixone.backup import agent, catalog, scratch, tool
from mooring.operators.matrixone.backup.contents import inspect, unpacked
from mooring.operators.matrixone.backup.places import DONE, MARK, scratch_of, within
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.types import SharedStorageProvider

FIRST, SECOND = (f"mo-12345678/backups/20260102T03040{at}Z-0a1b2c3d" for at in (5, 6))
OBJECTS = {"tae/one_00000": b"1" * 5000, "tae/ckp/meta_0.ckp": b"2" * 100}


class Pod:
    """The Secrets of a run, and the paths."""

    def __init__(self, server: S3Server, root: Path, name: str) -> None:
        self.server, self.name, self.secrets = server, name, root / "secrets"
        names = {"accessKeyId": "AWS_ACCESS_KEY_ID", "secretAccessKey": "AWS_SECRET_ACCESS_KEY"}
        (self.secrets / "keys").mkdir(parents=True)
        for key, value in ROOT.items():
            (self.secrets / "keys" / names[key]).write_bytes(value)

    def path(self, name: str) -> SharedStorageProvider:
        provider = {
            "path": f"{BUCKET}/{self.name}/{name}",
            "type": "minio",
            "endpoint": self.server.endpoint,
            "region": "us-east-1",
            "secretRef": {"name": "keys"},
        }
        found: SharedStorageProvider = typed("BackupJob", spec__target={"s3": provider}).spec.target
        return found

    @asynccontextmanager
    async def store(self, name: str) -> AsyncIterator[Store]:
        async with agent._opened(self.path(name), self.secrets) as store:
            yield store

    async def run(self, action: str, *places: str, **given: Any) -> Result:
        request = Request(action=action, root=self.path("backups"), places=list(places), **given)  # type: ignore[arg-type]
        return await agent.outcome(request, self.secrets)

    async def restore(self, place: str = FIRST, *, to: str = "new", owner: str = "u") -> Result:
        return await self.run("restore", place, target=self.path(to), owner=owner)

    async def names(self, name: str) -> list[str]:
        async with self.store(name) as store:
            return sorted([one.name async for one in store.list()])


async def written(pod: Pod, place: str, objects: dict[str, bytes] = OBJECTS, *, leave_out: str = "") -> None:
    """What the server writes."""
    rows = [
        f"{name.removeprefix('tae/')},{len(data)},{hashlib.sha256(data).hexdigest()},true,0-0"
        for name, data in objects.items()
    ]
    lists = {
        "mo_meta": b"version,0823,\nbuildinfo,GoVersion: |Version: v1.2.4,\n",
        "hakeeper/hk_data": b"next id",
        "tae/tae_list": ("\n".join(rows) + "\n").encode(),
        "tae/tae_sum": b"2026-01-02 03:04:05,5100,123-1,\n",
    }
    async with pod.store("backups") as store:
        for name, data in {**objects, **lists}.items():
            if name != leave_out:
                await store.upload(f"{place}/{name}", pieces(data))
            if name in lists:
                await store.upload(f"{place}/{name}.sha256", pieces(hashlib.sha256(data).digest()))


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.fixture
def pod(
    s3: S3Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Pod:
    made = Pod(s3, tmp_path, request.node.name[:40])

    async def execute(asked: Request, place: str, secrets: Path) -> dict[str, str]:
        await written(made, place)
        return {}

    monkeypatch.setattr(agent, "_execute", execute)
    return made


async def test_a_backup_is_whole_recorded_and_made_once(pod: Pod) -> None:
    made = await pod.run("backup", FIRST)
    assert made.ok, made
    assert (made.facts["position"], made.facts["version"], made.facts["prefix"]) == ("123-1", "1.2.4", FIRST)
    names = await pod.names("backups")
    assert f"{FIRST}/manifest.json" in names
    # The same run again, and a later one that knows of it: nobody heard of its end.
    assert await pod.run("backup", FIRST) == made
    assert await pod.run("backup", FIRST, SECOND) == made
    assert await pod.names("backups") == names


@pytest.mark.parametrize("lost", ["tae/one_00000", "hakeeper/hk_data", "tae/tae_list"])
async def test_what_is_not_whole_is_no_backup_and_leaves_nothing(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    async def execute(asked: Request, place: str, secrets: Path) -> dict[str, str]:
        await written(pod, place, leave_out=lost)
        return {}

    monkeypatch.setattr(agent, "_execute", execute)
    made = await pod.run("backup", FIRST)
    assert not made.ok
    assert lost in made.message
    assert await pod.names("backups") == []


async def test_what_killed_runs_left_is_removed_by_the_next_but_no_backup_is(pod: Pod) -> None:
    await written(pod, FIRST)
    other = "mo-12345678/backups/20250102T030405Z-00000000"
    await written(pod, other)
    assert (await pod.run("backup", SECOND)).ok
    places = {name.rsplit("/backups/", 1)[1].partition("/")[0] for name in await pod.names("backups")}
    assert places == {SECOND.rpartition("/")[2]}


async def test_a_restore_fills_an_empty_path_once(pod: Pod) -> None:
    await pod.run("backup", FIRST)
    done = await pod.restore()
    assert done.ok, done
    names = await pod.names("new")
    assert {"hk_data", "data/one_00000", "data/ckp/meta_0.ckp", MARK, DONE} <= set(names)
    async with pod.store("new") as store:
        assert await store.read("data/one_00000") == OBJECTS["tae/one_00000"]
        # The cluster lives on: a second restore for the same owner writes nothing.
        await store.upload("data/one_00000", pieces(b"newer"))
        await store.upload("data/two", pieces(b"newer"))
        assert (await pod.restore()).ok
        assert await store.read("data/one_00000") == b"newer"
    for owner in ("another", ""):
        assert (await pod.restore(owner=owner)).reason == "TargetInUse"


async def test_a_restore_that_was_killed_half_way_goes_on(pod: Pod) -> None:
    await pod.run("backup", FIRST)
    await pod.restore()
    async with pod.store("new") as store:
        await store.delete(DONE)
        await store.delete("data/one_00000")
        assert (await pod.restore(owner="another")).reason == "TargetInUse"
        assert (await pod.restore()).ok
        assert await store.read("data/one_00000") == OBJECTS["tae/one_00000"]
        # Without the mark that it was done, but with what only a server writes: it is live data.
        await store.delete(DONE)
        await store.upload("data/two", pieces(b"newer"))
        assert (await pod.restore()).reason == "TargetInUse"


async def test_a_path_with_data_is_refused_untouched(pod: Pod) -> None:
    await pod.run("backup", FIRST)
    async with pod.store("new") as store:
        await store.upload("data/live", pieces(b"live"))
    found = await pod.restore()
    assert (found.ok, found.reason) == (False, "TargetInUse")
    assert await pod.names("new") == ["data/live"]


async def test_a_changed_object_is_found_before_anything_is_written(pod: Pod) -> None:
    await pod.run("backup", FIRST)
    async with pod.store("backups") as store:
        await store.upload(f"{FIRST}/tae/one_00000", pieces(b"1" * 4999 + b"x"))
    found = await pod.restore()
    assert (found.ok, found.reason) == (False, "ObjectCorrupt")
    assert "tae/one_00000" in found.message
    assert await pod.names("new") == []


async def test_the_manifest_finds_what_was_changed_together_with_the_servers_checksum(pod: Pod) -> None:
    await pod.run("backup", FIRST)
    async with pod.store("backups") as store:
        await store.upload(f"{FIRST}/hakeeper/hk_data", pieces(b"other"))
        await store.upload(f"{FIRST}/hakeeper/hk_data.sha256", pieces(hashlib.sha256(b"other").digest()))
    found = await pod.restore()
    assert (found.ok, found.reason) == (False, "ObjectCorrupt")
    assert "manifest" in found.message
    assert await pod.names("new") == []


async def test_only_what_has_a_manifest_is_restored_unless_it_is_from_elsewhere(pod: Pod) -> None:
    await written(pod, FIRST)
    assert (await pod.restore()).reason == "ObjectNotFound"
    request = Request(
        action="restore",
        root=within(pod.path("backups"), FIRST),
        places=[""],
        target=pod.path("new"),
        owner="u",
    )
    assert (await agent.outcome(request, pod.secrets)).ok


async def test_a_backup_is_deleted_whole(pod: Pod) -> None:
    await pod.run("backup", FIRST)
    assert (await pod.run("delete", FIRST)).ok
    assert await pod.names("backups") == []
    assert (await pod.run("delete", FIRST)).ok


def test_blocks_of_a_directorys_files_are_unpacked() -> None:
    blocks = b"CRC." + b"a" * 2044 + b"CRC." + b"b" * 10
    assert unpacked(blocks) == b"a" * 2044 + b"b" * 10


def packed(contents: bytes) -> bytes:
    """A file as the server stores it in a directory."""
    return b"".join(b"CRC." + contents[at : at + 2044] for at in range(0, len(contents), 2044))


async def flaw(store: Store) -> str:
    """Why the backup is not whole."""
    try:
        await inspect(store, "one", blocks=True)
    except Corrupt as error:
        return str(error)
    return ""


async def test_a_backup_in_a_directory_is_read_as_the_server_writes_it(tmp_path: Path) -> None:
    place = tmp_path / "one"
    plain = {"mo_meta": b"buildinfo,Version: v1.2.4|x\n"}
    objects = {"tae/a_0": b"x" * 5000}
    listed = ["tae/a_0".removeprefix("tae/"), "0", hashlib.sha256(objects["tae/a_0"]).hexdigest(), "true"]
    lists = {
        "hakeeper/hk_data": b"keeper",
        "tae/tae_list": ",".join(listed).encode(),
        "tae/tae_sum": b"a,1,9-0\n",
    }
    for name, data in {**plain, **lists, **objects}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        written = bytes if name in plain else packed
        (place / name).write_bytes(written(data))
        if name not in objects:
            (place / f"{name}.sha256").write_bytes(written(hashlib.sha256(data).digest()))
    directory = typed("BackupJob", spec__target={"fileSystem": {"path": str(tmp_path)}}).spec.target
    async with agent._opened(directory, tmp_path) as store:
        assert await flaw(store) == ""
        found = await inspect(store, "one", blocks=True)
    assert len(found.parts) == 9
    assert found.facts == {"position": "9-0", "version": "1.2.4"}


async def test_a_directory_outside_of_every_volume_is_refused_with_the_remedy(tmp_path: Path) -> None:
    root = typed("BackupJob", spec__target={"fileSystem": {"path": "/mooring-nothing/backups"}}).spec.target
    refused = await agent.outcome(Request(action="backup", root=root, places=["p"]), tmp_path)
    assert (refused.ok, refused.reason) == (False, "TargetInvalid")
    assert "is in no volume" in refused.message


def environment(root: Path) -> dict[str, str]:
    """Of the script of a real container that runs here."""
    return {
        "PATH": os.environ["PATH"],
        "MOORING_RUN": str(root / "run"),
        "MOORING_CONF": str(root / "conf"),
        "TERMINATION_LOG": str(root / "log"),
    }


# --- a backup by a tool ------------------------------------------------------------------------------------


async def by_tool(pod: Pod, root: Path, *, status: int = 0, leave_out: str = "") -> tuple[Result, int, bool]:
    """A backup with the script of the real container; the tool ends with ``status`` once something is written.

    The result, how the container ended, and whether the tool was called.
    """
    run, conf = root / "run", root / "conf"
    for one in (run, conf):
        one.mkdir(parents=True)
    for name, text in tool.FILES.items():
        (conf / name).write_text(text)
    program = root / "tool"
    program.write_text(f"#!/bin/sh\ntouch began\nuntil [ -e written ]; do sleep 0.05; done\nexit {status}\n")
    program.chmod(0o755)
    beside = await asyncio.create_subprocess_exec(
        "sh", str(conf / "run.sh"), str(program), env=environment(root), cwd=root
    )

    async def write() -> None:
        while not (root / "began").exists():
            await asyncio.sleep(0.05)
        await written(pod, FIRST, leave_out=leave_out)
        (root / "written").touch()

    writing = asyncio.create_task(write())
    request = Request(action="backup", root=pod.path("backups"), places=[FIRST], tool="mobr:1")
    try:
        found = await agent.outcome(request, pod.secrets, beside=run)
        async with asyncio.timeout(60):
            await beside.wait()
    finally:
        writing.cancel()
        if beside.returncode is None:
            beside.kill()
            await beside.wait()
    return found, beside.returncode or 0, (root / "began").exists()


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def session(*_: Any) -> AsyncIterator[None]:
        yield None

    async def tables(_: Any) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(agent, "_session", session)
    monkeypatch.setattr(agent, "_tables", tables)


@pytest.mark.usefixtures("no_server")
async def test_what_a_tool_wrote_is_read_and_recorded_and_it_is_called_once(pod: Pod, tmp_path: Path) -> None:
    made, status, called = await by_tool(pod, tmp_path / "one")
    assert made.ok, made
    assert (status, called) == (0, True)
    assert (made.facts["position"], made.facts["version"], made.facts["prefix"]) == ("123-1", "1.2.4", FIRST)
    assert f"{FIRST}/manifest.json" in await pod.names("backups")
    # The same run again: nobody heard of its end.
    assert await by_tool(pod, tmp_path / "two") == (made, 0, False)


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(
    ("status", "leave_out", "reason", "said"),
    [(7, "", "ToolFailed", "status 7"), (0, "hakeeper/hk_data", "ObjectCorrupt", "hakeeper/hk_data")],
)
async def test_what_a_tool_left_unfinished_is_no_backup_and_is_removed(
    pod: Pod, tmp_path: Path, status: int, leave_out: str, reason: str, said: str
) -> None:
    made, ended, _ = await by_tool(pod, tmp_path, status=status, leave_out=leave_out)
    assert (made.ok, made.reason) == (False, reason)
    assert said in made.message
    assert bool(ended) is bool(status)
    assert await pod.names("backups") == []


# --- a test restore ----------------------------------------------------------------------------------------

COPY = FIRST.replace("/backups/", "/verify/")


async def tried_out(pod: Pod, root: Path, *, server: str = "exit 1", place: str = FIRST) -> Result:
    """A test restore with the script of the real container; ``server`` is what runs instead of MatrixOne."""
    run, conf = root / "run", root / "conf"
    login = pod.secrets / "login"
    for one in (run, conf, login):
        one.mkdir()
    for name in ("username", "password"):
        (login / name).write_text("x")
    copy = scratch_of(place)
    storage = within(pod.path("backups"), f"{copy}/1")
    for name, text in scratch.files(storage).items():
        (conf / name).write_text(text.replace("scratch=/var/lib/matrixone", f"scratch={root}"))
    program = root / "server"
    program.write_text(f"#!/bin/sh\n{server}\n")
    program.chmod(0o755)
    env = {**environment(root), "MO_SERVICE": str(program)}
    beside = await asyncio.create_subprocess_exec("sh", str(conf / "run.sh"), env=env)
    request = Request(
        action="verify",
        root=pod.path("backups"),
        places=[place],
        target=storage,
        scratch=copy,
        host="127.0.0.1",
        port=1,
        login="login",
    )
    try:
        found = await agent.run(request, pod.secrets, beside=run)
        async with asyncio.timeout(60):
            await beside.wait()
    finally:
        if beside.returncode is None:
            beside.kill()
            await beside.wait()
    return found


async def test_a_lost_object_is_named_and_no_copy_is_made_of_such_a_backup(pod: Pod, tmp_path: Path) -> None:
    await pod.run("backup", FIRST)
    async with pod.store("backups") as store:
        await store.delete(f"{FIRST}/tae/one_00000")
    before = await pod.names("backups")
    found = await tried_out(pod, tmp_path)
    assert (found.ok, found.reason, found.again) == (False, "ObjectCorrupt", False)
    assert "tae/one_00000" in found.message
    assert found.facts["scratch"] == "deleted"
    assert await pod.names("backups") == before


async def test_the_copy_of_a_server_that_ends_is_deleted_and_the_backup_is_not(
    pod: Pod, tmp_path: Path
) -> None:
    await pod.run("backup", FIRST)
    before = await pod.names("backups")
    async with pod.store("backups") as store:  # what a run that was killed left
        await store.upload(f"{COPY}/1/data/left", pieces(b"x"))
    said = 'echo "panic: the catalog is of a later version" >&2; exit 2'
    found = await tried_out(pod, tmp_path, server=said)
    assert (found.ok, found.reason, found.again) == (False, "ServerEnded", True)
    assert "panic: the catalog is of a later version" in found.message
    assert found.facts["scratch"] == "deleted"
    assert await pod.names("backups") == before


async def test_a_copy_that_a_server_may_still_write_to_is_not_called_deleted(
    pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "BOOT", 0.1)
    monkeypatch.setattr(agent, "ENDS", 0.1)
    await pod.run("backup", FIRST)
    before = await pod.names("backups")
    # A child that outlives the server holds what the run watches.
    found = await tried_out(pod, tmp_path, server="(sleep 3) & exec sleep 600")
    assert (found.ok, found.reason) == (False, "ServerUnreachable")
    assert "scratch" not in found.facts
    assert f"{COPY}/1/hk_data" in await pod.names("backups")
    assert (await pod.run("delete", COPY)).ok
    assert await pod.names("backups") == before


def test_tables_that_were_there_all_the_while_are_in_the_backup() -> None:
    one, two, three = (catalog.Table(0, "a/b", name) for name in ("t.1", "ü%", "later"))
    facts = catalog.facts_of({one: ("r", 1), two: ("r", 2)}, {one: ("r", 1), two: ("r", 9), three: ("r", 3)})
    assert facts["tables"] == "1"  # the second was made again while the backup ran
    assert catalog._recorded(facts) == {one}


class Session:
    """A session in which one table is listed, and whose count fails."""

    def __init__(self, code: int) -> None:
        self._code = code

    async def execute(self, text: str) -> None:
        if "count(" in text:
            raise OperationalError(self._code, "said")

    async def fetchall(self) -> list[tuple[int, str, str, str, int]]:
        return [(0, "shop", "orders", "r", 1)]


async def test_a_session_that_ends_while_rows_are_counted_is_no_damage_of_the_backup() -> None:
    for code in (2006, 2013):
        with pytest.raises(OperationalError):
            await catalog.checked(Session(code), {})
    with pytest.raises(catalog.Differs) as found:
        await catalog.checked(Session(20101), {})
    assert found.value.reason == "TableUnreadable"
