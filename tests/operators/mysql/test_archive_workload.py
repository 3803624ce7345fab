"""The Deployment that archives, as it follows from the declaration."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operators.mysql.declared import cluster, inputs

from mooring.kube.objects import apps, core
from mooring.operators.backup.layout import archive_of
from mooring.operators.mysql.archive.workload import is_archiver, root_of
from mooring.operators.mysql.names import selector
from mooring.operators.mysql.validate import validate

S3 = {"s3": {"bucket": "backups", "credentialsSecret": "minio"}, "encryption": {"secret": "keys"}}


def made(archive: dict[str, Any], **spec: Any) -> tuple[core.ConfigMap, apps.Deployment]:
    objects = inputs(cluster({"archive": archive, **spec})).specs.objects()
    deployment = next(one for one in objects if isinstance(one, apps.Deployment))
    (volume,) = (one for one in pod_of(deployment).volumes or () if one.name == "conf")
    assert volume.config_map is not None
    settings = next(one for one in objects if one.metadata.name == volume.config_map.name)
    assert isinstance(settings, core.ConfigMap)
    return settings, deployment


def pod_of(deployment: apps.Deployment) -> core.PodSpec:
    assert deployment.spec is not None
    assert deployment.spec.template is not None
    assert deployment.spec.template.spec is not None
    return deployment.spec.template.spec


def test_a_cluster_without_an_archive_has_no_deployment() -> None:
    assert not [one for one in inputs(cluster()).specs.objects() if isinstance(one, apps.Deployment)]


def test_the_archiver_has_one_pod_without_rights_and_what_its_target_needs() -> None:
    settings, deployment = made({"target": S3, "intervalSeconds": 7, "prune": True})
    assert deployment.spec is not None
    assert (deployment.spec.replicas, deployment.spec.strategy.type) == (1, "Recreate")  # type: ignore[union-attr]
    pod = pod_of(deployment)
    assert pod.automount_service_account_token is False
    assert pod.security_context is not None
    assert pod.security_context.run_as_non_root
    assert pod.containers is not None
    (one,) = pod.containers
    assert {"--interval=7", "--prune", "--root=demo-u1/archive", "--flavor=mariadb"} <= set(one.args or ())
    mounted = {each.mount_path for each in one.volume_mounts or ()}
    assert {"/mooring/secrets/minio", "/mooring/secrets/keys", "/mooring/auth"} <= mounted
    assert settings.immutable
    assert "minio" in (settings.data or {})["target.json"]


def test_only_the_password_of_replication_is_mounted_and_none_is_in_arguments() -> None:
    one = inputs(cluster({"archive": {"target": S3}, "tls": {}}))
    deployment = next(each for each in one.specs.objects() if isinstance(each, apps.Deployment))
    pod = pod_of(deployment)
    (auth,) = (each.secret for each in pod.volumes or () if each.name == "auth")
    assert auth is not None
    assert [item.key for item in auth.items or ()] == ["replication-password"]
    (tls,) = (each.secret for each in pod.volumes or () if each.name == "tls")
    assert tls is not None
    assert "tls.key" not in [item.key for item in tls.items or ()]
    words = [*((pod.containers or [])[0].args or ()), *((pod.containers or [])[0].env or ())]
    assert not any(text in str(word) for text in one.credentials.texts.values() for word in words)


def test_the_archiver_is_no_server_of_the_cluster() -> None:
    _, deployment = made({"target": S3})
    assert deployment.spec is not None
    assert deployment.spec.template is not None
    assert deployment.spec.template.metadata is not None
    labels = deployment.spec.template.metadata.labels or {}
    wanted = dict(part.split("=") for part in selector("demo").split(","))
    assert not wanted.items() <= labels.items()
    assert is_archiver(core.Pod(metadata=deployment.spec.template.metadata))


def test_another_target_is_another_config_map_and_another_cluster_another_place() -> None:
    first, _ = made({"target": S3})
    second, _ = made({"target": {"claim": {"name": "backups"}}})
    assert first.metadata.name != second.metadata.name
    assert root_of(cluster()) != root_of(cluster(uid="u2"))


def test_the_archive_of_a_backup_is_found_by_its_prefix() -> None:
    assert archive_of("demo-12345678/backups/20260102T030405Z-0a1b2c3d") == "demo-12345678/archive"
    assert archive_of("elsewhere/20260102T030405Z-0a1b2c3d") == ""
    assert archive_of("demo-12345678/backups/other") == ""


@pytest.mark.parametrize(
    ("archive", "field"),
    [
        ({}, "spec.archive.target"),
        ({"target": {}}, "spec.archive.target"),
        ({"target": {"s3": {"bucket": "NO"}}}, "spec.archive.target.s3.bucket"),
        ({"target": S3, "intervalSeconds": 0}, "spec.archive.intervalSeconds"),
        ({"target": S3, "resources": {"limits": {"memory": "x"}}}, "spec.archive.resources"),
    ],
)
def test_a_faulty_archive_is_refused_by_its_field(archive: dict[str, Any], field: str) -> None:
    problems = validate(cluster({"archive": archive}))
    assert problems[0].field.startswith(field), problems
    assert not validate(cluster({"archive": {"target": S3}}))
