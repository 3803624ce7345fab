"""Volumes as directories."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.object import decode
from mooring.kube.objects.core import ConfigMap, Pod, Secret
from mooring.local.node.fields import PodFacts
from mooring.local.node.sources import Missing
from mooring.local.node.volumes import File, PodVolumes, VolumeError, VolumeLock, write_atomically

from .bed import FakeSources, pod


def volumes(directory: Path, sources: FakeSources) -> PodVolumes:
    return PodVolumes(
        directory=directory / "volumes",
        locks_directory=directory / "locks",
        plane="test",
        sources=sources,
        token=lambda wanted: f"token for {wanted.audience}".encode(),
    )


def facts(*items: dict[str, Any], mounts: list[dict[str, Any]] | None = None) -> PodFacts:
    return PodFacts(
        pod=pod(containers=[{"volumeMounts": mounts or []}], volumes=list(items)), address="10.0.0.9"
    )


def test_content_changes_in_one_step_and_not_without_need(tmp_path: Path) -> None:
    target = tmp_path / "v"
    assert write_atomically(target, {"a": File(b"1", 0o644), "sub/b": File(b"2", 0o600)})
    assert not write_atomically(target, {"a": File(b"1", 0o644), "sub/b": File(b"2", 0o600)})
    before = os.readlink(target / "..data")
    assert write_atomically(target, {"a": File(b"3", 0o644)})
    assert (target / "a").read_bytes() == b"3"
    assert not (target / "sub").exists()
    assert os.readlink(target / "..data") != before
    assert len([entry for entry in target.iterdir() if entry.name.startswith("..version")]) == 1


def test_a_secret_is_decoded_and_items_choose_paths_and_modes(tmp_path: Path) -> None:
    sources = FakeSources()
    secret = {"metadata": {"name": "s"}, "data": {"password": "aHVzaA==", "other": "eA=="}}
    sources.secrets["s"] = decode(secret, Secret)
    items = [{"key": "password", "path": "auth/redis", "mode": 0o400}]
    made = volumes(tmp_path, sources)
    made.prepare(facts({"name": "s", "secret": {"secretName": "s", "items": items}}))
    path = tmp_path / "volumes/s/auth/redis"
    assert path.read_text() == "hush"
    assert path.stat().st_mode & 0o777 == 0o400
    assert not (tmp_path / "volumes/s/other").exists()


def test_a_refresh_under_way_when_the_pod_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    """They are in threads: what one writes the other must not remove meanwhile."""
    sources = FakeSources()
    sources.add_config_map("c", key="old")
    made = volumes(tmp_path, sources)
    asked = facts({"name": "c", "configMap": {"name": "c"}})
    made.prepare(asked)
    removing = threading.Thread(target=made.remove)

    class Ending(FakeSources):
        def config_map(self, namespace: str, name: str) -> ConfigMap | None:
            removing.start()
            removing.join(0.5)  # without a lock it is through by now
            return super().config_map(namespace, name)

    made.sources = ending = Ending()
    ending.add_config_map("c", key="new")

    made.refresh(asked)
    removing.join()

    assert not (tmp_path / "volumes").exists()
    assert not made.refresh(asked)


def test_a_missing_object_is_waited_for_unless_it_is_optional(tmp_path: Path) -> None:
    made = volumes(tmp_path, FakeSources())
    with pytest.raises(Missing, match='configmap "c" not found'):
        made.prepare(facts({"name": "c", "configMap": {"name": "c"}}))
    made.prepare(facts({"name": "c", "configMap": {"name": "c", "optional": True}}))
    assert (tmp_path / "volumes/c").is_dir()


def test_a_projected_volume_joins_its_sources(tmp_path: Path) -> None:
    sources = FakeSources()
    sources.add_config_map("c", key="value")
    field = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    token = {"path": "token", "audience": "vault"}
    joined = [
        {"configMap": {"name": "c"}},
        {"downwardAPI": {"items": [field]}},
        {"serviceAccountToken": token},
    ]
    volumes(tmp_path, sources).prepare(facts({"name": "p", "projected": {"sources": joined}}))
    assert (tmp_path / "volumes/p/key").read_text() == "value"
    assert (tmp_path / "volumes/p/name").read_text() == "web"
    assert (tmp_path / "volumes/p/token").read_text() == "token for vault"


def test_labels_are_followed_through_the_downward_api(tmp_path: Path) -> None:
    field = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    known = facts({"name": "d", "downwardAPI": {"items": [field]}})
    made = volumes(tmp_path, FakeSources())
    made.prepare(known)
    labelled = decode({"metadata": {"labels": {"a": "b"}}, "spec": {}}, Pod)
    meta = labelled.metadata
    both = Pod(metadata=meta, spec=known.pod.spec)
    assert made.refresh(PodFacts(pod=both))
    assert (tmp_path / "volumes/d/labels").read_text() == 'a="b"'


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x"])
def test_a_sub_path_cannot_lead_out(tmp_path: Path, path: str) -> None:
    mount = {"name": "e", "mountPath": "/e", "subPath": path}
    known = facts({"name": "e", "emptyDir": {}}, mounts=[mount])
    made = volumes(tmp_path, FakeSources())
    made.prepare(known)
    assert known.pod.spec is not None
    assert known.pod.spec.containers is not None
    with pytest.raises(VolumeError, match="subPath"):
        made.mounts(known.pod.spec.containers[0], {})


def test_a_lock_has_one_holder_and_its_heirs(tmp_path: Path) -> None:
    path = tmp_path / "locks/pv.lock"
    first = VolumeLock.take(path)
    assert first is not None
    assert VolumeLock.take(path) is None
    heir = os.dup(first.descriptor)
    first.close()
    assert VolumeLock.take(path) is None, "a process that inherited it still has it"
    os.close(heir)
    second = VolumeLock.take(path)
    assert second is not None
    second.close()


def test_an_unbound_claim_is_named(tmp_path: Path) -> None:
    source = {"name": "d", "persistentVolumeClaim": {"claimName": "data-0"}}
    with pytest.raises(VolumeError, match='"data-0" not found'):
        volumes(tmp_path, FakeSources()).prepare(facts(source))


def test_what_cannot_be_mounted_is_said_with_what_can(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="it can mount emptyDir"):
        volumes(tmp_path, FakeSources()).prepare(facts({"name": "n", "nfs": {"server": "x", "path": "/"}}))


def test_memory_volumes_lie_where_nobody_else_can_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.local.node.volumes._MEMORY", tmp_path)
    (tmp_path / "mooring-test").mkdir(mode=0o755)  # as an earlier version made it

    volumes(tmp_path / "uid", FakeSources()).prepare(facts({"name": "m", "emptyDir": {"medium": "Memory"}}))

    base = tmp_path / "mooring-test"
    assert base.stat().st_mode & 0o777 == 0o700
    assert (base / "uid/m").stat().st_mode & 0o777 == 0o777


def test_memory_volumes_are_not_put_where_somebody_else_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.local.node.volumes._MEMORY", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mooring-test").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(VolumeError, match="belongs to somebody else"):
        volumes(tmp_path / "uid", FakeSources()).prepare(
            facts({"name": "m", "emptyDir": {"medium": "Memory"}})
        )
