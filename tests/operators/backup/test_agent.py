"""The two containers of a run as processes: a shell script and `mooring objects`, joined by FIFOs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.objectstore.servers import BUCKET, s3_server

from mooring.objectstore import Store, Target, Unreachable, open_store
from mooring.objectstore.target import Directory
from mooring.operators.backup import agent
from mooring.operators.backup.manifest import decode_manifest
from mooring.operators.backup.shell import PRELUDE
from mooring.testing.clock import VirtualClock

PREFIX = "shop-1234/backups/20260102T030405Z-0a1b2c3d"
WITHIN = 60.0


class Pod:
    """Both containers on one shared directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "store"
        self.store.mkdir()
        self.target = root / "target.json"
        self.target.write_text(json.dumps({"directory": {"path": str(self.store)}}))
        draft = {"id": "20260102T030405Z-0a1b2c3d", "operator": "test", "facts": {"source": "shop-1"}}
        self.draft = root / "manifest.json"
        self.draft.write_text(json.dumps(draft))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.more: list[str] = []
        self.runs = 0

    def begin(
        self, action: str, script: str, *parts: str, log: bool = False
    ) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        """Start the script, then the agent; both end by themselves."""
        data = self.script(script)
        command = [sys.executable, "-m", "mooring", "objects", action, f"--target={self.target}"]
        command += [f"--shared={self.run}", f"--prefix={PREFIX}", f"--report={self.run / 'report'}"]
        command += [f"--part={part}" for part in parts]
        command += [f"--manifest={self.draft}"] if action == "put" else []
        command += self.more
        with (self.run / "log").open("wb") if log else contextlib.nullcontext() as said:
            store = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        self.processes.append(store)
        return data, store

    def script(self, script: str) -> subprocess.Popen[bytes]:
        """Start the script alone, on a new shared directory."""
        self.runs += 1
        self.run = self.root / f"run-{self.runs}"
        self.run.mkdir()
        (self.root / "data.sh").write_text(script)
        (self.root / "run.sh").write_text(PRELUDE)
        env = {
            **os.environ,
            "MOORING_RUN": str(self.run),
            "MOORING_CONF": str(self.root),
            "TERMINATION_LOG": str(self.run / "said"),
        }
        data = subprocess.Popen(["sh", str(self.root / "run.sh")], env=env, start_new_session=True)
        self.processes.append(data)
        return data

    def together(self, action: str, script: str, *parts: str) -> tuple[int, int]:
        """Exit status of both."""
        data, store = self.begin(action, script, *parts)
        return data.wait(WITHIN), store.wait(WITHIN)

    @property
    def report(self) -> agent.Result:
        return msgspec.json.decode((self.run / "report").read_bytes(), type=agent.Result)

    @property
    def said(self) -> str:
        return (self.run / "said").read_text()

    def stored(self) -> dict[str, Path]:
        """The files of the backup's parts, by the names that the script uses."""
        manifest = decode_manifest((self.store / PREFIX / "manifest.json").read_bytes())
        return {part.name: self.store / PREFIX / part.place for part in manifest.parts}

    def objects(self) -> list[str]:
        return sorted(str(path.relative_to(self.store)) for path in self.store.rglob("*") if path.is_file())


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    made = Pod(tmp_path)
    yield made
    for one in made.processes:
        if one.poll() is None:
            one.kill()
            one.wait()


WRITE = 'head -c 3000000 /dev/zero >"$run/data"; fact position 0-1-7; fact table.a 3:99'


def test_what_the_script_writes_is_stored_with_a_manifest_last(pod: Pod) -> None:
    assert pod.together("put", WRITE, "data") == (0, 0)
    assert pod.objects() == [str(pod.stored()["data"].relative_to(pod.store)), f"{PREFIX}/manifest.json"]
    manifest = decode_manifest((pod.store / PREFIX / "manifest.json").read_bytes())
    assert manifest.parts[0].size == 3_000_000
    assert manifest.facts == {"source": "shop-1", "position": "0-1-7", "table.a": "3:99"}
    assert pod.report.ok
    assert pod.report.size == 3_000_000
    assert pod.report.facts == {"source": "shop-1", "position": "0-1-7"}


def test_its_log_says_how_far_a_backup_is(pod: Pod) -> None:
    data, store = pod.begin("put", 'head -c 100000 /dev/zero >"$run/data"', "data", log=True)
    assert (data.wait(WITHIN), store.wait(WITHIN)) == (0, 0)
    moved = agent.moved_in((pod.run / "log").read_text())
    assert moved is not None
    assert 0 < moved <= 100_000


def test_a_log_that_says_nothing_of_it_is_no_progress() -> None:
    assert agent.moved_in("") is None
    assert agent.moved_in("bytes so far: 5\nbytes so far: 12\nsomething else\n") == 12
    assert agent.moved_in('bytes so far: many\n{"ok": true}\n') is None


async def test_progress_is_said_now_and_then_and_counts_all_parts(tmp_path: Path) -> None:
    clock, said = VirtualClock(), list[str]()
    moved = agent._Moved(show=said.append, clock=clock)

    async def pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(4):
            yield b"12345"

    for _ in range(2):
        async for _ in moved.counted(pieces()):
            await clock.advance(agent.SHOWS / 2)
    assert [agent.moved_in(one) for one in said] == [5, 15, 25, 35]


def test_several_parts_are_written_one_after_the_other(pod: Pod) -> None:
    assert pod.together("put", 'echo one >"$run/a"; echo two >"$run/b"', "a", "b") == (0, 0)
    assert {name: path.read_text() for name, path in pod.stored().items()} == {"a": "one\n", "b": "two\n"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            'head -c 3000000 /dev/zero >"$run/data"; fail "the server went away; start it"',
            "the server went away; start it",
        ),
        ("fail 'no such database; create it'", "no such database; create it"),
        ('head -c 3000000 /dev/zero >"$run/data"; exit 3', "status 3"),
    ],
)
def test_what_a_failed_script_wrote_is_no_backup(pod: Pod, script: str, said: str) -> None:
    data, store = pod.together("put", script, "data")
    assert data != 0
    assert store == 1
    assert pod.objects() == []
    assert pod.report.reason == "DataFailed"
    assert said in pod.report.message
    assert said in pod.said


def test_a_script_that_is_killed_leaves_no_backup(pod: Pod) -> None:
    data, store = pod.begin(
        "put", 'head -c 3000000 /dev/zero; touch "$run/written"; sleep 1000 >"$run/data"', "data"
    )
    data, store = pod.processes[-2:]
    _until(lambda: (pod.run / "written").exists())
    os.killpg(data.pid, signal.SIGKILL)
    data.wait(WITHIN)
    assert store.wait(WITHIN) == 1
    assert pod.report.reason == "DataLost"
    assert pod.objects() == []


def test_a_script_ends_when_the_store_is_killed(pod: Pod) -> None:
    script = 'exec 3>"$run/data"; touch "$run/written"; cat /dev/zero >&3'
    data, store = pod.begin("put", script, "data")
    _until(lambda: (pod.run / "written").exists())
    store.kill()
    store.wait(WITHIN)
    assert data.wait(WITHIN) != 0
    assert not any("manifest" in name for name in pod.objects())


def test_a_restore_gets_every_byte_and_learns_that_it_is_whole(pod: Pod) -> None:
    pod.together("put", WRITE, "data")
    script = (
        'cat "$run/data" >"$conf/got"; whole || fail "not whole"; fact rows 7; fact was "$(was position)"'
    )
    assert pod.together("get", script) == (0, 0)
    assert (pod.root / "got").stat().st_size == 3_000_000
    assert pod.said == "rows=7\nwas=0-1-7\n"


def test_a_changed_object_is_not_whole(pod: Pod) -> None:
    pod.together("put", WRITE, "data")
    path = pod.stored()["data"]
    path.chmod(0o600)
    path.write_bytes(b"1" + path.read_bytes()[1:])
    script = 'cat "$run/data" >"$conf/got"; whole && mv "$conf/got" "$conf/data"'
    data, store = pod.together("get", script)
    assert store == 1
    assert data != 0
    assert not (pod.root / "data").exists()
    assert pod.report.reason == "ObjectCorrupt"


def test_a_backup_without_a_manifest_cannot_be_restored(pod: Pod) -> None:
    pod.together("put", WRITE, "data")
    (pod.store / PREFIX / "manifest.json").unlink()
    data, store = pod.together("get", 'cat "$run/data" >"$conf/got"; whole')
    assert data != 0
    assert store == 1
    assert pod.report.reason == "ObjectNotFound"
    assert "no complete backup" in pod.report.message


def test_a_second_backup_never_overwrites_the_first(pod: Pod) -> None:
    pod.together("put", WRITE, "data")
    data, store = pod.together("put", 'echo other >"$run/data"', "data")
    assert data != 0
    assert store == 1
    assert pod.report.reason == "ObjectExists"
    assert pod.stored()["data"].stat().st_size == 3_000_000
    assert len(pod.objects()) == 2


def test_a_run_that_was_given_up_and_goes_on_harms_no_later_one(pod: Pod) -> None:
    """As after the deletion of a Job: its pod takes a while to end, and the next one has the same name and prefix."""
    _, old = pod.begin("put", 'exec 3>"$run/data"; echo old >&3; touch "$run/written"; read -r _ <&7', "data")
    _until(lambda: (pod.run / "written").exists())
    assert pod.together("put", WRITE, "data") == (0, 0)
    os.killpg(pod.processes[0].pid, signal.SIGKILL)
    assert old.wait(WITHIN) == 1
    assert pod.stored()["data"].stat().st_size == 3_000_000
    assert pod.together("get", 'cat "$run/data" >"$conf/got"; whole') == (0, 0)


async def test_a_manifest_whose_fate_is_unknown_is_withdrawn_with_its_data(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Store.create

    async def lost(store: Store, name: str, data: bytes, *, plain: bool = False) -> None:
        await create(store, name, data, plain=plain)
        raise Unreachable("the answer was lost")

    monkeypatch.setattr(Store, "create", lost)
    data = pod.script('echo rows >"$run/data"')
    draft = agent.Draft(id="20260102T030405Z-0a1b2c3d", operator="test")
    target = Target(directory=Directory(path=str(pod.store)))
    async with open_store(target, secrets=lambda name: {}) as store:
        with pytest.raises(Unreachable):
            await agent.put(store, prefix=PREFIX, parts=["data"], draft=draft, run=pod.run)
    await asyncio.to_thread(data.wait, WITHIN)
    assert pod.objects() == []


async def test_a_deletion_takes_every_object_of_the_backup_and_no_other(tmp_path: Path) -> None:
    async with open_store(Target(directory=Directory(path=str(tmp_path))), secrets=lambda name: {}) as store:
        for name in ("manifest.json", "data"):
            await store.create(f"{PREFIX}/{name}", b"x")
            await store.create(f"{PREFIX}-other/{name}", b"x")
        result = await agent.delete(store, prefixes=[PREFIX])
        assert result.ok
        assert [one.name async for one in store.list()] == [
            f"{PREFIX}-other/data",
            f"{PREFIX}-other/manifest.json",
        ]


@pytest.mark.full
def test_a_backup_to_s3_is_encrypted_checked_restored_and_deleted(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "s3").mkdir()
    with s3_server(tmp_path / "s3") as server:
        secrets = tmp_path / "secrets"
        for name, entries in {**server.secrets, "keys": {"k1": b"7" * 32}}.items():
            (secrets / name).mkdir(parents=True)
            for key, value in entries.items():
                (secrets / name / key).write_bytes(value)
        s3 = {"bucket": BUCKET, "endpoint": server.endpoint, "prefix": "p", "credentialsSecret": "root"}
        pod.target.write_text(json.dumps({"s3": s3, "encryption": {"secret": "keys"}}))
        pod.more = [f"--secrets={secrets}"]
        assert pod.together("put", WRITE, "data") == (0, 0)
        (stored,) = (server.data / BUCKET / "p" / PREFIX).glob("data.*")
        assert stored.stat().st_size == pod.report.stored > 3_000_000
        assert b"\0" * 1000 not in stored.read_bytes()
        script = 'cat "$run/data" >"$conf/got"; whole || fail "not whole"'
        assert pod.together("get", script) == (0, 0)
        assert (pod.root / "got").stat().st_size == 3_000_000
        s3["credentialsSecret"] = "other"
        pod.target.write_text(json.dumps({"s3": s3, "encryption": {"secret": "keys"}}))
        assert pod.together("put", WRITE, "data")[1] == 1
        assert (pod.report.reason, pod.report.again) == ("PermissionDenied", False)


def _until(condition: object) -> None:
    async def wait() -> None:
        async with asyncio.timeout(WITHIN):
            while not condition():  # type: ignore[operator]
                await asyncio.sleep(0.02)

    asyncio.run(wait())
