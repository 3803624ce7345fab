"""Claims and volumes: who gets whom, what is said to who gets nobody, and what happens to the data."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest
from tests.local.controllers.builders import make, merged, pod

from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim, Pod
from mooring.kube.objects.storage import StorageClass
from mooring.local.controllers.volumes.binding import (
    AssignClass,
    Bind,
    ClaimAction,
    Hold,
    Phase,
    Provision,
    Reclaim,
    Unbind,
    claim_action,
    volume_action,
)
from mooring.local.controllers.volumes.directories import Directories, VolumeBusy

DONE = {"pv.kubernetes.io/bind-completed": "yes"}
BY_US = {"pv.kubernetes.io/bound-by-controller": "yes"}


def claim(annotations: dict[str, str] | None = None, **spec: Any) -> PersistentVolumeClaim:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return make(PersistentVolumeClaim, "data", {"spec": body}, annotations=annotations or {})


def volume(
    name: str = "pv",
    *,
    size: str = "1Gi",
    labels: dict[str, str] | None = None,
    phase: str = "Available",
    **spec: Any,
) -> PersistentVolume:
    body = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], **spec}
    return make(PersistentVolume, name, {"spec": body, "status": {"phase": phase}}, labels=labels or {})


def claimed_by(owner: PersistentVolumeClaim, **spec: Any) -> PersistentVolume:
    ref = {"namespace": "default", "name": "data", "uid": owner.metadata.uid}
    return volume(claimRef=ref, **spec)


def storage(name: str, provisioner: str, *, mode: str = "Immediate", default: bool = False) -> StorageClass:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return make(
        StorageClass, name, {"provisioner": provisioner, "volumeBindingMode": mode}, annotations=marks
    )


def act(
    wanted: PersistentVolumeClaim,
    volumes: list[PersistentVolume] | None = None,
    classes: list[StorageClass] | None = None,
    consumers: list[Pod] | None = None,
) -> ClaimAction:
    return claim_action(wanted, volumes=volumes or [], classes=classes or [], consumers=consumers or [])


def bound_to(action: ClaimAction) -> str | None:
    return action.volume.metadata.name if isinstance(action, Bind) else None


FITS: list[tuple[str, dict[str, Any], list[PersistentVolume], str | None]] = [
    (
        "smallest that is large enough",
        {},
        [volume("a", size="500Mi"), volume("b", size="8Gi"), volume("c", size="2Gi")],
        "c",
    ),
    ("all access modes", {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}, [volume("a")], None),
    ("same class", {"storageClassName": "x"}, [volume("a"), volume("b", storageClassName="x")], "b"),
    (
        "selector",
        {"selector": {"matchLabels": {"k": "v"}}},
        [volume("a"), volume("b", labels={"k": "v"})],
        "b",
    ),
    ("same mode", {"volumeMode": "Block"}, [volume("a"), volume("b", volumeMode="Block")], "b"),
    ("only available ones", {}, [volume("a", phase="Released"), volume("b", phase="Failed")], None),
    (
        "a reserved one first",
        {},
        [volume("a"), volume("b", size="9Gi", claimRef={"namespace": "default", "name": "data"})],
        "b",
    ),
    ("none that is another's", {}, [volume("a", claimRef={"namespace": "default", "name": "other"})], None),
]


@pytest.mark.parametrize(("case", "spec", "volumes", "chosen"), FITS, ids=[f[0] for f in FITS])
def test_a_claim_gets(
    case: str, spec: dict[str, Any], volumes: list[PersistentVolume], chosen: str | None
) -> None:
    assert bound_to(act(claim(**spec), volumes)) == chosen


HELD: list[tuple[str, PersistentVolumeClaim, list[PersistentVolume], list[StorageClass], str, str]] = [
    (
        "no class",
        claim(storageClassName=""),
        [],
        [],
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
    ),
    (
        "unknown class",
        claim(storageClassName="fast"),
        [],
        [],
        "ProvisioningFailed",
        'storageclass.storage.k8s.io "fast" not found',
    ),
    (
        "waiting class",
        claim(storageClassName="w"),
        [volume(storageClassName="w")],
        [storage("w", "mooring.dev/local", mode="WaitForFirstConsumer")],
        "WaitForFirstConsumer",
        "waiting for first consumer to be created before binding",
    ),
    (
        "too small a volume",
        claim(volumeName="pv"),
        [volume(size="1Mi")],
        [],
        "VolumeMismatch",
        'Cannot bind to requested volume "pv": requested PV is too small',
    ),
    (
        "another's volume",
        claim(volumeName="pv"),
        [volume(claimRef={"namespace": "default", "name": "x", "uid": "y"})],
        [],
        "FailedBinding",
        'volume "pv" already bound to a different claim.',
    ),
    (
        "lost volume",
        claim(DONE, volumeName="pv"),
        [],
        [],
        "ClaimLost",
        "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
    ),
    (
        "misbound",
        claim(DONE, volumeName="pv"),
        [volume(claimRef={"namespace": "default", "name": "data", "uid": "other"})],
        [],
        "ClaimMisbound",
        "Two claims are bound to the same volume, this one is bound incorrectly",
    ),
]


@pytest.mark.parametrize(
    ("case", "held", "volumes", "classes", "reason", "message"), HELD, ids=[h[0] for h in HELD]
)
def test_a_claim_that_cannot_be_bound_says_why(
    case: str,
    held: PersistentVolumeClaim,
    volumes: list[PersistentVolume],
    classes: list[StorageClass],
    reason: str,
    message: str,
) -> None:
    action = act(held, volumes, classes)
    assert isinstance(action, Hold)
    assert action.phase == ("Lost" if "lost" in case or "mis" in case else "Pending")
    assert action.notice is not None
    assert (action.notice.reason, action.notice.message) == (reason, message)


def test_a_waiting_class_names_the_pod_and_provisions_once_a_node_is_chosen() -> None:
    waiting = storage("w", "mooring.dev/local", mode="WaitForFirstConsumer")
    held = act(claim(storageClassName="w"), classes=[waiting], consumers=[pod("redis-0", {"spec": {}})])
    assert isinstance(held, Hold)
    assert held.notice is not None
    assert held.notice.message == "waiting for pod redis-0 to be scheduled"
    chosen = claim({"volume.kubernetes.io/selected-node": "n"}, storageClassName="w")
    assert act(chosen, classes=[waiting]) == Provision(waiting, "n")


def test_a_claim_without_class_gets_the_default_one_but_an_empty_name_means_none() -> None:
    classes = [storage("plain", "x"), storage("std", "x", default=True)]
    assert act(claim(), classes=classes) == AssignClass("std")
    assert isinstance(act(claim(storageClassName=""), classes=classes), Hold)


def test_binding_goes_on_from_every_point_where_it_may_have_stopped() -> None:
    one = claim(storageClassName="w")
    waiting = [storage("w", "x", mode="WaitForFirstConsumer")]
    assert bound_to(act(one, [claimed_by(one, storageClassName="w")], waiting)) == "pv"
    named = claim(volumeName="pv")
    assert bound_to(act(named, [claimed_by(named)])) == "pv"
    done = claim(DONE, volumeName="pv")
    assert bound_to(act(done, [volume()])) == "pv"


def test_phases_of_a_volume() -> None:
    one = claim(volumeName="pv")
    assert volume_action(volume(), None) == Phase("Available")
    assert volume_action(volume(claimRef={"namespace": "default", "name": "data"}), None) == Phase(
        "Available"
    )
    assert volume_action(claimed_by(one), one) == Phase("Bound")
    assert volume_action(claimed_by(one), None) == Reclaim()
    assert volume_action(claimed_by(one), claim(volumeName="pv")) == Reclaim()
    unfinished = claim()
    assert volume_action(claimed_by(unfinished), unfinished) is None


def test_a_volume_whose_claim_went_elsewhere_is_free_again() -> None:
    elsewhere = claim(volumeName="other")
    ours = merged(claimed_by(elsewhere), {"metadata": {"annotations": BY_US}})
    assert volume_action(ours, elsewhere) == Unbind(keep_reservation=False)
    assert volume_action(claimed_by(elsewhere), elsewhere) == Unbind(keep_reservation=True)
    provisioned = claimed_by(elsewhere, persistentVolumeReclaimPolicy="Delete")
    provisioned = merged(provisioned, {"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "x"}}})
    assert volume_action(provisioned, elsewhere) == Reclaim()


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path / "volumes", tmp_path / "locks")


def _with_data(directories: Directories) -> tuple[PersistentVolume, Path]:
    path = directories.path_of(claim(), "pvc-1")
    directories.make(path)
    (path / "dump.rdb").write_text("data")
    return volume("pvc-1", local={"path": str(path)}), path


def test_a_directory_is_removed_with_its_volume(directories: Directories) -> None:
    made, path = _with_data(directories)
    directories.make(path)
    assert (path / "dump.rdb").exists()
    directories.remove(made)
    assert list(directories.root.iterdir()) == []
    directories.remove(made)


def test_data_stays_while_a_process_holds_the_lock(directories: Directories) -> None:
    made, path = _with_data(directories)
    directories.locks.mkdir()
    with (directories.locks / "pvc-1.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(VolumeBusy):
            directories.remove(made)
        assert (path / "dump.rdb").exists()
    directories.remove(made)
    assert not path.exists()


@pytest.mark.parametrize(
    "path", ["/", "/etc", "{root}", "{root}/pvc-2_default_data", "{root}/pvc-1_a/../../x"]
)
def test_only_a_volumes_own_directory_is_ever_removed(directories: Directories, path: str) -> None:
    stranger = volume("pvc-1", hostPath={"path": path.format(root=directories.root)})
    with pytest.raises(ValueError, match="not made in"):
        directories.remove(stranger)


def test_an_interrupted_removal_is_finished_later(directories: Directories) -> None:
    (directories.root / ".deleted-x").mkdir(parents=True)
    directories.sweep()
    assert list(directories.root.iterdir()) == []
