"""What a backup of a MySQLCluster mounts and where it runs, and what is refused before a Job is made."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.kube.object import decode
from mooring.kube.objects import batch, core, meta
from mooring.operators.mysql.backup.jobs import backup_run, choose, impossible, verify_run
from mooring.operators.mysql.backup.types import MySQLBackup, MySQLBackupSpec
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import MySQLCluster

TARGET = {"claim": {"name": "backups"}}


def cluster(**spec: Any) -> MySQLCluster:
    named = {"name": "shop", "namespace": "prod", "uid": "1234"}
    instances = [
        {"name": "shop-0", "role": "primary", "state": "Online"},
        {"name": "shop-1", "role": "replica", "state": "Online"},
        {"name": "shop-2", "role": "replica", "state": "CatchingUp"},
    ]
    raw = {"metadata": named, "spec": spec, "status": {"instances": instances}}
    return decode({"apiVersion": "mysql.mooring.dev/v1alpha1", "kind": "MySQLCluster", **raw}, MySQLCluster)


def declared(**spec: Any) -> MySQLBackupSpec:
    raw = {"metadata": {"name": "b"}, "spec": {"cluster": {"name": "shop"}, "target": TARGET, **spec}}
    made = decode({"apiVersion": "mysql.mooring.dev/v1alpha1", "kind": "MySQLBackup", **raw}, MySQLBackup)
    assert made.spec is not None
    return made.spec


def pod_of(flavor: Flavor, **spec: Any) -> core.PodSpec:
    run = backup_run(
        cluster(),
        declared(**spec),
        pod="shop-1",
        node="node-3",
        flavor=flavor,
        tls=False,
        agent_image="mooring",
    )
    owner = MySQLBackup(metadata=meta.ObjectMeta(name="b", namespace="prod", uid="5678"))
    job = next(one for one in run.objects(owner, by="mysql-backup") if isinstance(one, batch.Job))
    assert job.spec is not None
    assert job.spec.template is not None
    assert job.spec.template.spec is not None
    return job.spec.template.spec


def nodes_of(pod: core.PodSpec) -> list[str]:
    """The nodes that it may run on; none: any."""
    affinity = pod.affinity.node_affinity if pod.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    terms = (required.node_selector_terms if required is not None else None) or ()
    return [name for term in terms for field in term.match_fields or () for name in field.values or ()]


def test_a_replica_that_is_online_is_read() -> None:
    assert choose(cluster(), "").pod == "shop-1"
    assert choose(cluster(), "Primary").pod == "shop-0"


def test_a_physical_backup_of_mariadb_reads_the_claim_of_the_replica_on_its_node() -> None:
    pod = pod_of("mariadb", method="Physical")
    assert nodes_of(pod) == ["node-3"]
    assert pod.node_name is None  # past the scheduler no claim of the target would be bound
    (data,) = [one for one in pod.volumes or () if one.name == "data"]
    assert data.persistent_volume_claim is not None
    assert (data.persistent_volume_claim.claim_name, data.persistent_volume_claim.read_only) == (
        "data-shop-1",
        True,
    )
    reader = next(one for one in pod.containers or () if one.name == "data")
    (mount,) = [one for one in reader.volume_mounts or () if one.name == "data"]
    assert (mount.mount_path, mount.read_only) == ("/var/lib/mysql", True)


def test_a_physical_backup_of_mysql_copies_onto_a_volume_of_its_own_anywhere() -> None:
    pod = pod_of("mysql", method="Physical")
    assert nodes_of(pod) == []
    (data,) = [one for one in pod.volumes or () if one.name == "data"]
    assert data.empty_dir is not None
    assert data.persistent_volume_claim is None


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_a_logical_backup_mounts_no_data_and_says_what_is_verified(flavor: Flavor) -> None:
    pod = pod_of(flavor, verification="Checksums")
    assert nodes_of(pod) == []
    assert not [one for one in pod.volumes or () if one.name == "data"]
    reader = next(one for one in pod.containers or () if one.name == "data")
    assert {one.name: one.value for one in reader.env or ()}["VERIFICATION"] == "Checksums"


def keys_of(volumes: list[core.Volume] | None) -> list[str]:
    """The passwords that are mounted."""
    [auth] = [one.secret for one in volumes or () if one.name == "auth" and one.secret is not None]
    assert auth.secret_name == "shop-credentials-copy"
    return [one.key or "" for one in auth.items or ()]


@pytest.mark.parametrize("method", ["Logical", "Physical"])
def test_a_backup_and_a_test_restore_have_the_password_of_their_own_account_alone(method: str) -> None:
    assert keys_of(pod_of("mariadb", method=method).volumes) == ["backup-password"]
    spec = declared(method=method)
    assert spec.target is not None
    run = verify_run(cluster(), target=spec.target, prefix="p", flavor="mysql", agent_image="mooring")
    assert keys_of(list(run.volumes)) == ["backup-password"]


def test_no_password_is_in_the_pod_of_a_backup() -> None:
    pod = pod_of("mysql", method="Physical")
    values = [one.value or "" for container in pod.containers or () for one in container.env or ()]
    words = [
        word
        for container in pod.containers or ()
        for word in (*(container.command or ()), *(container.args or ()))
    ]
    assert not [one for one in (*values, *words) if "password" in one]


def test_what_mariadb_cannot_do_physically_is_refused_with_the_field() -> None:
    physical = declared(method="Physical")
    assert impossible(cluster(), physical, "mariadb") == ""
    assert "spec.verification" in impossible(
        cluster(), declared(method="Physical", verification="Checksums"), "mariadb"
    )
    scratch = cluster(storage={"emptyDir": {}})
    assert "spec.method" in impossible(scratch, physical, "mariadb")
    assert impossible(scratch, physical, "mysql") == ""
    assert impossible(scratch, declared(), "mariadb") == ""
    assert impossible(cluster(), declared(method="Physical", verification="Checksums"), "mysql") == ""
