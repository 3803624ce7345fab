"""The operator of kopf's tutorial, written with Mooring: what docs/migrate/kopf.md says that it does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.examples.programs import EXAMPLES, load

from mooring.actor import run_actor
from mooring.kube import MergePatch, NotFound
from mooring.kube.errors import Invalid
from mooring.kube.objects.core import PersistentVolumeClaim
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.objects.storage import StorageClass
from mooring.testing.rig import Rig

example = load("volume-operator/volume_operator.py")
EphemeralVolumeClaim = example.EphemeralVolumeClaim
PAGE = EXAMPLES.parent / "docs" / "migrate" / "kopf.md"


def operator(rig: Rig) -> None:
    run_actor(example.VolumeActor(), rig.manager)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(EphemeralVolumeClaim, operator=operator) as rig:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        meta = ObjectMeta(name="growing", annotations=default)
        await rig.client.create(StorageClass(metadata=meta, provisioner="test", allow_volume_expansion=True))
        yield rig


async def bound(rig: Rig) -> None:
    """What the binding of a volume writes: only a bound claim can grow."""
    names = {"volumeName": "pv-1", "storageClassName": "growing"}
    await rig.client.patch(PersistentVolumeClaim, "scratch", MergePatch({"spec": names}), namespace="default")
    status = MergePatch({"status": {"phase": "Bound", "capacity": {"storage": "1G"}}})
    await rig.client.patch(
        PersistentVolumeClaim, "scratch", status, namespace="default", subresource="status"
    )
    await rig.settle()


async def gone(rig: Rig) -> None:
    """Delete the claim, and do the part of the controller that protects claims in use."""
    await rig.client.delete(PersistentVolumeClaim, "scratch", namespace="default")
    with contextlib.suppress(NotFound):
        patch = MergePatch({"metadata": {"finalizers": None}})
        await rig.client.patch(PersistentVolumeClaim, "scratch", patch, namespace="default")
    await rig.settle()


def scratch(size: str = "1G") -> Any:
    meta = ObjectMeta(name="scratch", namespace="default", labels={"team": "red"})
    return EphemeralVolumeClaim(metadata=meta, spec=example.Spec(size=size))


async def claim(rig: Rig) -> PersistentVolumeClaim:
    return await rig.client.get(PersistentVolumeClaim, "scratch", namespace="default")


def room(made: PersistentVolumeClaim) -> str:
    assert made.spec is not None
    assert made.spec.resources is not None
    return str((made.spec.resources.requests or {})["storage"])


async def test_an_object_becomes_a_claim_that_goes_with_it(rig: Rig) -> None:
    await rig.client.create(scratch())
    await rig.settle()

    made = await claim(rig)
    assert room(made) == "1G"
    assert (made.metadata.labels or {})["team"] == "red"
    assert made.metadata.owner_references is not None
    assert made.metadata.owner_references[0].kind == "EphemeralVolumeClaim"


async def test_size_and_labels_follow_and_a_deleted_claim_comes_back(rig: Rig) -> None:
    await rig.client.create(scratch())
    await rig.settle()
    await bound(rig)

    patch = MergePatch({"metadata": {"labels": {"team": "blue"}}, "spec": {"size": "2G"}})
    await rig.client.patch(EphemeralVolumeClaim, "scratch", patch, namespace="default")
    await rig.settle()
    made = await claim(rig)
    assert (room(made), (made.metadata.labels or {})["team"]) == ("2G", "blue")

    await gone(rig)
    await claim(rig)


async def test_an_edit_while_the_operator_is_away_is_made_up_for(rig: Rig) -> None:
    await rig.client.create(scratch())
    await rig.settle()
    await bound(rig)
    await rig.stop()
    patch = MergePatch({"spec": {"size": "3G"}})
    await rig.client.patch(EphemeralVolumeClaim, "scratch", patch, namespace="default")
    await rig.start()
    await rig.settle()
    assert room(await claim(rig)) == "3G"


async def test_nonsense_is_refused_by_the_server(rig: Rig) -> None:
    with pytest.raises(Invalid, match=r"spec\.size"):
        await rig.client.create(scratch(size="much"))


async def test_a_crash_after_any_write_changes_nothing_in_the_end(rig: Rig) -> None:
    rounds = 0
    async for number in rig.every_crash():
        await rig.client.create(scratch())
        await rig.settle()
        assert room(await claim(rig)) == "1G", f"after write {number}"
        await rig.client.delete(EphemeralVolumeClaim, "scratch", namespace="default")
        await gone(rig)  # the garbage collector's part
        with pytest.raises(NotFound):
            await claim(rig)
        rounds = number
    assert rounds > 2, "a create has several writes to crash after"


def code(file: Path) -> int:
    """Lines that are neither empty nor of the docstring at the top."""
    text = re.sub(r'\A""".*?"""', "", file.read_text(), flags=re.DOTALL)
    return sum(bool(line.strip()) for line in text.splitlines())


def test_the_page_counts_the_lines_of_both() -> None:
    place = EXAMPLES / "volume-operator"
    counts = f"{code(place / 'volume_operator.py')} | {code(place / 'kopf_operator.py')} + {code(place / 'crd.yaml')}"
    assert counts in PAGE.read_text()


def test_the_crd_beside_it_is_the_generated_one() -> None:
    generated = example.to_yaml(example.render_crd(EphemeralVolumeClaim))
    assert (EXAMPLES / "volume-operator" / "crd.yaml").read_text() == generated, (
        "run: python examples/volume-operator/volume_operator.py --crd > examples/volume-operator/crd.yaml"
    )
