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
from mooring.local.api.storage import SqliteBackend, Store

async def main():
    store = Store(SqliteBackend(Path(sys.argv[1])))
    items = store.collection("configmaps")
    async def writer(number):
        count = 0
        while True:
            name = f"w{number}-{count}"
            entry = await store.put(items, ("d", name), {"metadata": {"name": name}}, base=None).committed()
            print(name, entry.rv, flush=True)
            count += 1
    await asyncio.gather(*(writer(n) for n in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [40, 400, 900])
async def test_kill_9_loses_no_acknowledged_write(tmp_path: Path, after: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITER, str(tmp_path / "db"), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged = [(await process.stdout.readline()).split() for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += [line.split() for line in (await process.stdout.read()).splitlines() if line.count(b" ")]
    await process.wait()

    store = Store(SqliteBackend(tmp_path / "db"))
    items = store.collection("configmaps")

    assert len(acknowledged) >= after
    for name, version in acknowledged:
        entry = items.get(("d", name.decode()))
        assert entry is not None, name
        assert entry.rv == int(version)
    assert store.published >= max(int(version) for _, version in acknowledged)
    await store.close()
