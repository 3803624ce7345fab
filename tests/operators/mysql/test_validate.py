"""What is wrong with a declaration, by field, with the remedy; and what admission says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.operators.mysql.declared import cluster

from mooring.kube import Key
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.mysql.validate import validate
from mooring.operators.mysql.webhook import MySQLClusterReview
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict

USER = {"name": "shop", "passwordSecret": {"name": "s"}}


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"size": 0}, "spec.size", "give 1 to 9"),
        ({"size": 10}, "spec.size", "give 1 to 9"),
        ({"image": "MariaDB:10"}, "spec.image", "not an image reference"),
        ({"image": "registry.io/db:1"}, "spec.flavor", "does not tell whether it is MySQL or MariaDB"),
        ({"image": "mariadb:10.11", "flavor": "mysql"}, "spec.flavor", "contradicts the image"),
        ({"flavor": "postgres"}, "spec.flavor", "give auto, mysql or mariadb"),
        ({"storage": {"size": "1 Gi"}}, "spec.storage.size", "write it as 10Gi"),
        ({"storage": {"size": "10Mi"}}, "spec.storage.size", "at least 200Mi"),
        ({"storage": {"emptyDir": {}, "storageClass": "fast"}}, "spec.storage", "remove one"),
        (
            {"storage": {"emptyDir": {}, "keepAfterDeletion": True}},
            "spec.storage.keepAfterDeletion",
            "remove this",
        ),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "spec.resources.requests.cpu",
            "lower it",
        ),
        (
            {
                "autoscale": {
                    "minReplicas": 2,
                    "maxReplicas": 3,
                    "metrics": [{"type": "ConnectionsPercent", "target": 150}],
                }
            },
            "spec.autoscale.metrics[0].target",
            "give at most 100",
        ),
        ({"config": {"two words": "1"}}, "spec.config.two words", "no name of a variable"),
        ({"config": {"sql_mode": "A\n[mysqld]"}}, "spec.config.sql_mode", "line break"),
        (
            {"config": {"max-connections": "1", "max_connections": "2"}},
            "spec.config.max_connections",
            "same key",
        ),
        ({"users": [{**USER, "name": "root"}]}, "spec.users[0].name", "operator's own account"),
        ({"users": [{**USER, "name": "mooring"}]}, "spec.users[0].name", "operator's own account"),
        ({"users": [{**USER, "name": "a'b"}]}, "spec.users[0].name", "no account name"),
        ({"users": [{**USER, "host": "'%"}]}, "spec.users[0].host", "no host"),
        ({"users": [{"name": "shop"}]}, "spec.users[0].passwordSecret", "name a Secret"),
        ({"users": [USER, {**USER, "host": "%"}]}, "spec.users[1]", "declared twice"),
        ({"users": [{**USER, "grants": ["ALL"]}]}, "spec.users[0].grants[0]", "cannot be read"),
        (
            {"users": [{**USER, "grants": ["SELEC, INSERT (a, b), SHOW ALL ON shop.*"]}]},
            "spec.users[0].grants[0]",
            "SELEC, SHOW ALL: no such privilege",
        ),
        (
            {"users": [{**USER, "grants": ["SELECT ON a.* TO b; DROP DATABASE a"]}]},
            "spec.users[0].grants[0]",
            "cannot be read",
        ),
        ({"databases": [{"name": "mysql"}]}, "spec.databases[0].name", "server's own"),
        ({"databases": [{"name": "a`b"}]}, "spec.databases[0].name", "no name of a database"),
        ({"databases": [{"name": "a"}, {"name": "a"}]}, "spec.databases[1]", "declared twice"),
        (
            {"databases": [{"name": "a", "collation": "x; DROP"}]},
            "spec.databases[0].collation",
            "write one word",
        ),
    ],
)
def test_a_faulty_field_is_named_with_the_remedy(spec: dict[str, Any], field: str, message: str) -> None:
    found = validate(cluster(spec))
    assert [one.field for one in found] == [field]
    assert message in found[0].message


def test_a_name_that_makes_no_pod_names_is_refused() -> None:
    long, dotted = cluster(name="a" * 60), cluster(name="a.b")
    assert [one.field for one in (*validate(long), *validate(dotted))] == ["metadata.name"] * 2


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"size": 3, "image": "mariadb:10.11"},
        {"image": "registry.example.com:5000/db/mysql:8.4@sha256:" + "0" * 64},
        {"image": "percona/percona-server:8.4"},
        {"image": "registry.io/db:1", "flavor": "mysql"},
        {"users": [{**USER, "grants": ["ALL PRIVILEGES ON shop.*", "SELECT, INSERT (a, b) ON `s`.`t`"]}]},
        {
            "users": [USER, {**USER, "host": "10.0.0.%"}],
            "databases": [{"name": "shop", "collation": "utf8mb4_bin"}],
        },
        {
            "users": [
                {
                    **USER,
                    "grants": [
                        "process, backup_admin, SLAVE MONITOR ON *.* WITH GRANT OPTION",
                        "EXECUTE ON PROCEDURE a.b",
                    ],
                }
            ]
        },
    ],
)
def test_a_sound_declaration_has_no_fault(spec: dict[str, Any]) -> None:
    assert validate(cluster(spec)) == []


# --- admission -------------------------------------------------------------------------------------------


def raw(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "demo", "namespace": "shop"}, "spec": spec}


async def said(
    new: dict[str, Any] | None, old: dict[str, Any] | None = None, *, namespaces: Sequence[str] = ()
) -> Verdict:
    async def served(namespace: str) -> bool:
        return False

    review = MySQLClusterReview(scope="all", namespaces=namespaces, served=served)
    operation = "DELETE" if new is None else "UPDATE" if old is not None else "CREATE"
    return await review.review(
        Review(kind=MySQLCluster, operation=operation, key=Key("shop", "demo"), object=new, old=old)  # type: ignore[arg-type]
    )


async def test_a_sound_cluster_passes_without_a_word() -> None:
    assert await said(raw(size=3, image="mariadb:10.11")) == Allow()


@pytest.mark.parametrize(
    "key", ["server_id", "read-only", "gtid_mode", "log_bin", "skip-log-bin", "loose_sync_binlog"]
)
async def test_a_key_that_the_operator_decides_is_refused(key: str) -> None:
    answer = await said(raw(config={key: "1"}))
    assert isinstance(answer, Refuse)
    assert answer.message == f"spec.config.{key}: the operator decides this one; remove it"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"image": "mariadb:11.4"}, {"image": "mariadb:10.11"}, "older than mariadb:11.4"),
        ({"image": "mysql:9.1"}, {"image": "mysql:8.4.3"}, "older than mysql:9.1"),
        ({"image": "mariadb:10.11"}, {"image": "mysql:8.4"}, "the data is of mariadb"),
        ({}, {"image": "mysql:8.4"}, "the data is of mariadb"),
        ({"storage": {"size": "2Gi"}}, {"storage": {"size": "1Gi"}}, "a volume never shrinks"),
        ({"storage": {"size": "2Gi"}}, {}, "a volume never shrinks"),
        ({}, {"storage": {"emptyDir": {}}}, "the pods keep their data on claims"),
        ({"storage": {"emptyDir": {}}}, {}, "the pods keep their data on an emptyDir"),
        ({}, {"storage": {"storageClass": "fast"}}, "the class they were made with"),
        ({}, {"config": {"lower-case-table-names": "1"}}, "put it back"),
        ({"config": {"innodb_page_size": "8k"}}, {"config": {"innodb_page_size": "16k"}}, "put it back"),
    ],
)
async def test_a_change_that_the_data_forbids_is_refused(
    before: dict[str, Any], after: dict[str, Any], message: str
) -> None:
    answer = await said(raw(**after), raw(**before))
    assert isinstance(answer, Refuse)
    assert message in answer.message
    assert await said(raw(**before), raw(**before)) == Allow()


@pytest.mark.parametrize(
    ("size", "capacities", "allowed"),
    [
        ("3Gi", ["2Gi", "2Gi", "2Gi"], True),
        ("2Gi", ["2Gi", "2Gi", "2Gi"], False),  # the API server wants more than there is
        ("3Gi", ["2Gi", "2Gi"], False),  # one has what was declared
        ("3Gi", [], False),
    ],
)
async def test_an_expansion_that_failed_everywhere_may_be_given_up_for_a_smaller_one(
    size: str, capacities: list[str], allowed: bool
) -> None:
    instances = [{"name": f"demo-{at}"} for at in range(3)]
    volumes = [{"claim": f"data-demo-{at}", "capacity": one} for at, one in enumerate(capacities)]
    old = {**raw(storage={"size": "5Gi"}), "status": {"instances": instances, "volumes": volumes}}
    assert isinstance(await said(raw(storage={"size": size}), old), Allow) is allowed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"image": "mariadb:10.11"}, {"image": "mariadb:11.4"}),
        ({"image": "mariadb:10.11.6"}, {"image": "mariadb:10.11.5"}),
        ({"image": "mariadb:latest"}, {"image": "mariadb:10.11"}),
        ({"storage": {"size": "1Gi"}}, {"storage": {"size": "1024Mi"}}),
        ({"config": {"innodb_page_size": "16k"}}, {"config": {"innodb-page-size": "16384"}}),
    ],
)
async def test_a_change_that_the_data_allows_passes(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert isinstance(await said(raw(**after), raw(**before)), Allow)


async def test_an_old_fault_does_not_keep_other_fields_from_being_edited() -> None:
    answer = await said(raw(config={"server_id": "1"}, size=3), raw(config={"server_id": "1"}, size=1))
    assert isinstance(answer, Allow)
    assert "spec.config.server_id: the operator decides this one; remove it" in answer.warnings


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"size": 1}, "nothing takes over"),
        ({"size": 2}, "writes wait while one of them is away"),
        ({"resources": {"limits": {"memory": "128Mi"}}}, "give at least 192Mi"),
        ({"image": "mysql:8.4", "resources": {"limits": {"memory": "256Mi"}}}, "give at least 512Mi"),
        ({"durability": {"mode": "Async"}}, "loses writes"),
        ({"storage": {"emptyDir": {}}}, "when all pods go, all data is gone"),
        ({"storage": {"keepAfterDeletion": False}}, "will be deleted with the cluster"),
        ({"archive": {"target": {"claim": {"name": "one"}}}}, "unless it is ReadWriteMany"),
        (
            {"archive": {"target": {"s3": {"bucket": "one"}}, "prune": True}},
            "oldest backup in the same target",
        ),
    ],
)
async def test_what_may_be_regretted_is_warned_of(spec: dict[str, Any], warning: str) -> None:
    answer = await said(raw(**spec))
    assert isinstance(answer, Allow)
    assert any(warning in one for one in answer.warnings)


async def test_a_deletion_says_what_becomes_of_the_data() -> None:
    kept, gone = await said(None, raw()), await said(None, raw(storage={"keepAfterDeletion": False}))
    assert isinstance(kept, Allow)
    assert isinstance(gone, Allow)
    assert "are kept" in kept.warnings[0]
    assert "are deleted with it" in gone.warnings[0]
