"""What the store promises: nothing acknowledged is lost, nothing unacknowledged is seen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from mooring.local.api import storage
from mooring.local.api.storage import (
    CompactedError,
    MemoryBackend,
    SqliteBackend,
    StaleError,
    StorageError,
    Store,
)


class SlowBackend(MemoryBackend):
    """Commits when told to, and may fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.batches: list[int] = []
        self.error: Exception | None = None

    def commit(self, rv: int, puts: Sequence[storage.Row], deletes: Sequence[tuple[str, str, str]]) -> None:
        assert self.gate.wait(10)
        self.batches.append(len(puts) + len(deletes))
        if self.error is not None:
            raise self.error


def durable(backend: SlowBackend) -> Store:
    store = Store(backend)
    store._durable = True
    return store


def obj(value: str = "1") -> dict[str, object]:
    return {"metadata": {"name": "a"}, "data": {"x": value}}


PLACE = ("default", "a")


async def test_a_write_is_invisible_until_it_is_committed() -> None:
    backend = SlowBackend()
    store = durable(backend)
    items = store.collection("configmaps")

    write = store.put(items, PLACE, obj(), base=None)

    assert items.get(PLACE) is None
    assert items.head(PLACE) is write.entry
    assert store.published < write.entry.rv
    backend.gate.set()
    await write.committed()
    assert items.get(PLACE) is write.entry
    assert store.published == write.entry.rv
    await store.close()


async def test_writes_build_on_what_is_only_staged_and_commit_together() -> None:
    backend = SlowBackend()
    store = durable(backend)
    items = store.collection("configmaps")

    first = store.put(items, PLACE, obj("1"), base=None)
    second = store.put(items, PLACE, obj("2"), base=first.entry)
    with pytest.raises(StaleError):
        store.put(items, PLACE, obj("3"), base=first.entry)
    others = [store.put(items, ("default", f"b{i}"), obj(), base=None) for i in range(20)]
    backend.gate.set()
    await asyncio.gather(*(write.committed() for write in (first, second, *others)))

    entry = items.get(PLACE)
    assert entry is not None
    assert entry.obj["data"] == {"x": "2"}
    assert sum(backend.batches) == 21  # the two writes of one object are one row
    assert len(backend.batches) <= 2
    await store.close()


async def test_a_failed_commit_takes_back_everything_staged_on_it() -> None:
    backend = SlowBackend()
    store = durable(backend)
    items = store.collection("configmaps")
    backend.error = OSError("no space left on device")

    first = store.put(items, PLACE, obj(), base=None)
    second = store.put(items, PLACE, obj("2"), base=first.entry)
    backend.gate.set()
    for write in (first, second):
        with pytest.raises(StorageError, match="no space left"):
            await write.committed()

    assert items.head(PLACE) is None
    backend.error = None
    third = await store.put(items, PLACE, obj("3"), base=None).committed()
    assert third.rv > second.entry.rv, "a version that was given out is never given out again"
    await store.close()


async def test_old_states_are_rebuilt_from_the_log() -> None:
    store = Store(MemoryBackend())
    items = store.collection("configmaps")
    first = store.put(items, ("ns", "a"), obj("1"), base=None).entry
    second = store.put(items, ("ns", "b"), obj("2"), base=None).entry
    changed = store.put(items, ("ns", "a"), obj("3"), base=first).entry
    store.delete(items, second)

    assert [e.obj["data"]["x"] for e in items.at(first.rv)] == ["1"]
    assert [e.obj["data"]["x"] for e in items.at(second.rv)] == ["1", "2"]
    assert [e.obj["data"]["x"] for e in items.at(changed.rv)] == ["3", "2"]
    assert [e.name for e in items.at(store.published)] == ["a"]
    items.compact()
    with pytest.raises(CompactedError):
        items.at(first.rv)
    with pytest.raises(CompactedError):
        items.since(first.rv)
    await store.close()


async def test_the_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LOG_EVENTS", 10)
    store = Store(MemoryBackend())
    items = store.collection("configmaps")
    base = None
    for number in range(30):
        base = store.put(items, PLACE, obj(str(number)), base=base).entry

    assert len(items._log) == 10
    assert items.floor == store.published - 10
    assert len(items.since(items.floor)) == 10
    await store.close()


async def test_a_restart_brings_back_objects_and_the_counter(tmp_path: Path) -> None:
    database = tmp_path / "db"
    store = Store(SqliteBackend(database))
    items = store.collection("configmaps")
    entry = await store.put(items, PLACE, obj(), base=None).committed()
    gone = await store.put(items, ("default", "gone"), obj(), base=None).committed()
    last = await store.delete(items, gone).committed()
    await store.close()

    again = Store(SqliteBackend(database))
    found = again.collection("configmaps").get(PLACE)

    assert found is not None
    assert (found.rv, found.obj) == (entry.rv, entry.obj)
    assert again.collection("configmaps").get(("default", "gone")) is None
    assert again.published == last.rv
    assert oct(database.stat().st_mode)[-3:] == "600"
    await again.close()


async def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    store = Store(SqliteBackend(tmp_path / "db"))
    with pytest.raises(StorageError, match="another server"):
        SqliteBackend(tmp_path / "db")
    await store.close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from mooring.local.api.storage import SqliteBackend, Store, StorageError

async def main():
    store = Store(SqliteBackend(Path(sys.argv[1])))
    items = store.collection("configmaps")

    async def writer(number):
        # Each object is created, changed twice, and every other one deleted: all by staged predecessors' names.
        count = 0
        while True:
            name = f"w{number}-{count}"
            entry = None
            for step in range(3):
                obj = {"metadata": {"name": name}, "data": {"step": str(step)}}
                entry = await store.put(items, ("d", name), obj, base=entry).committed()
                print("put", name, entry.rv, step, flush=True)
            if count % 2:
                entry = await store.delete(items, entry).committed()
                print("deleted", name, entry.rv, 0, flush=True)
            count += 1

    await asyncio.gather(*(writer(n) for n in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [40, 401, 903])
async def test_kill_9_loses_no_acknowledged_write_and_keeps_the_order(tmp_path: Path, after: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITER, str(tmp_path / "db"), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    lines = [await process.stdout.readline() for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    lines += [
        line for line in (await process.stdout.read()).splitlines(keepends=True) if line.endswith(b"\n")
    ]
    await process.wait()
    acknowledged = [
        (what, name, int(rv), step) for what, name, rv, step in (x.decode().split() for x in lines)
    ]

    store = Store(SqliteBackend(tmp_path / "db"))
    items = store.collection("configmaps")

    versions = [rv for _, _, rv, _ in acknowledged]
    assert len(versions) == len(set(versions)) >= after
    assert store.published >= max(versions)
    for what, name, rv, step in {name: one for one in acknowledged for name in one[1:2]}.values():
        found = items.get(("d", name))
        if what == "deleted":
            assert found is None
        elif (
            found is not None
        ):  # the last acknowledged one, or one that was made durable and not yet answered
            assert found.rv >= rv
            assert int(found.obj["data"]["step"]) >= int(step)
        else:
            assert (step, int(name.partition("-")[2]) % 2) == ("2", 1), f"{name} is lost"
    entry = await store.put(items, ("d", "new"), {"metadata": {"name": "new"}}, base=None).committed()
    assert entry.rv > max(versions)
    await store.close()


_FILLER = """
import asyncio, os, sys
from pathlib import Path
from mooring.local.api.storage import SqliteBackend, Store, StorageError

async def main():
    store = Store(SqliteBackend(Path(sys.argv[1]) / "db"))
    items = store.collection("configmaps")
    names = []
    try:
        while True:
            name = f"n{len(names)}"
            obj = {"metadata": {"name": name}, "data": {"k": "x" * 5000}}
            await store.put(items, ("d", name), obj, base=None).committed()
            names.append(name)
    except StorageError as error:
        print(error)
    assert items.head(("d", name)) is None
    os.unlink(Path(sys.argv[1]) / "ballast")
    await store.put(items, ("d", name), obj, base=None).committed()
    await store.close()
    again = Store(SqliteBackend(Path(sys.argv[1]) / "db")).collection("configmaps")
    print(len(names) > 20 and all(again.get(("d", one)) for one in [*names, name]))

asyncio.run(main())
"""


@pytest.mark.embedded
def test_a_full_disk_refuses_the_write_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    command = ["bwrap", "--dev-bind", "/", "/", "--size", str(1 << 20), "--tmpfs", str(tmp_path)]
    ballast = f'head -c 300000 /dev/zero > {tmp_path}/ballast; exec "$@"'
    words = [*command, "sh", "-c", ballast, "sh", sys.executable, "-c", _FILLER, str(tmp_path)]

    said = subprocess.run(
        words, check=True, stdout=subprocess.PIPE, text=True, timeout=60
    ).stdout.splitlines()

    why = "database or disk is full: nothing was changed; free space on that disk and send it again"
    assert said == [f"cannot write: {tmp_path}/db: {why}", "True"]


@pytest.mark.parametrize("where", ["head", "page", "object"])
async def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path, where: str) -> None:
    database = tmp_path / "db"
    store = Store(SqliteBackend(database))
    items = store.collection("configmaps")
    for number in range(200):
        data = {"metadata": {"name": f"n{number}"}, "data": {"k": "x" * 200}}
        await store.put(items, ("d", f"n{number}"), data, base=None).committed()
    await store.close()
    content = bytearray(database.read_bytes())
    if where == "head":
        content[:100] = bytes(100)
    elif where == "page":
        content[3 * 4096 : 4 * 4096] = b"\xff" * 4096
    else:
        at = content.index(b'"name":"n7"')
        content[at : at + 4] = b"\0\0\0\0"
    database.write_bytes(content)

    with pytest.raises(StorageError, match=r"it is damaged.*Put back a copy of .*/db, or move .*/db\* away"):
        Store(SqliteBackend(database))

    assert database.read_bytes() == content
