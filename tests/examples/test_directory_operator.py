"""An external resource and its finalizer, as docs/write-an-operator.md describes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.examples.programs import load

from mooring.actor import run_actor
from mooring.kube import NotFound
from mooring.kube.objects.meta import ObjectMeta
from mooring.testing.rig import Rig

example = load("directory-operator/directory_operator.py")
Directory = example.Directory


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    def operator(rig: Rig) -> None:
        run_actor(example.DirectoryActor(tmp_path), rig.manager, on_effect=rig.did)

    async with Rig(Directory, operator=operator) as rig:
        yield rig


async def create(rig: Rig, *, deletion: str = "Delete") -> Path:
    meta = ObjectMeta(name="reports", namespace="default")
    await rig.client.create(Directory(metadata=meta, spec=example.Spec(deletion=deletion)))
    await rig.settle()
    return Path((await found(rig)).status.path)


async def found(rig: Rig) -> Any:
    return await rig.client.get(Directory, "reports", namespace="default")


async def delete(rig: Rig) -> None:
    await rig.client.delete(Directory, "reports", namespace="default")
    await rig.settle()


async def test_the_directory_is_there_before_the_status_names_it(rig: Rig) -> None:
    path = await create(rig)

    assert path.is_dir()
    assert path.stat().st_mode & 0o7777 == 0o750


async def test_a_finalizer_is_there_before_the_first_effect(rig: Rig) -> None:
    await create(rig)

    first = rig.writes[0]
    assert b"finalizers" in first.body
    assert (await found(rig)).metadata.finalizers == ["examples.mooring.dev/directory"]


async def test_files_go_with_the_object_and_the_status_says_how_far_it_is(rig: Rig) -> None:
    path = await create(rig)
    for number in range(250):
        (path / f"{number}").touch()

    await delete(rig)

    assert not path.exists()
    with pytest.raises(NotFound):
        await found(rig)
    told = [write.body for write in rig.writes if b"files left" in write.body]
    assert [body.split(b" files left")[0].rpartition(b'"')[2] for body in told] == [b"250", b"150", b"50"]


async def test_retained_files_stay(rig: Rig) -> None:
    path = await create(rig, deletion="Retain")
    (path / "precious").touch()

    await delete(rig)

    assert (path / "precious").exists()


async def test_a_new_object_of_an_old_name_gets_none_of_its_files(rig: Rig) -> None:
    old = await create(rig, deletion="Retain")
    (old / "precious").touch()
    await delete(rig)

    new = await create(rig)

    assert list(new.iterdir()) == []
    await delete(rig)
    assert (old / "precious").exists()


async def test_a_failing_clean_up_keeps_the_object_and_says_so(rig: Rig) -> None:
    path = await create(rig)
    (path / "sub").mkdir()  # unlink() refuses a directory: a failure that no retry cures

    await rig.client.delete(Directory, "reports", namespace="default")

    async def told() -> bool:
        conditions = {c.type: c for c in (await found(rig)).status.conditions}
        return bool(conditions["Progressing"].reason == "StepFailed")

    await rig.until(told, "the failure in the status")
    assert (await found(rig)).metadata.finalizers

    (path / "sub").rmdir()

    async def gone() -> bool:
        try:
            await found(rig)
        except NotFound:
            return True
        return False

    await rig.until(gone, "the clean-up tried again")
    assert not path.exists()


async def test_a_crash_after_any_effect_leaves_no_directory_behind(rig: Rig) -> None:
    rounds = 0
    async for number in rig.every_crash():
        path = await create(rig)
        (path / "file").touch()
        await delete(rig)
        assert not path.exists(), f"after effect {number}"
        rounds = number
    assert rounds > 7, "writes to the API, and what happens outside it"
