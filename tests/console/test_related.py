"""Collections of an instance, on CloudNativePG's definitions: listed, made, deleted, and new instances made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.console.bed import ADMIN, ANN, CRDS, Bed, Browser

DEFINITIONS = Path(__file__).parents[1] / "catalog" / "definitions"
API = "/apis/postgresql.cnpg.io/v1/namespaces/team-a"
ONE = "namespaces/team-a/instances/cnpg-postgres/main"


@pytest.fixture
async def postgres(bed: Bed) -> Bed:
    """A bed with CloudNativePG's kinds, two clusters, and a backup of each."""
    for name in ("cnpg-postgres", "cnpg-backup", "cnpg-scheduledbackup"):
        await bed.post(CRDS, yaml.safe_load((DEFINITIONS / f"{name}.yaml").read_text()))
    for name in ("main", "other"):
        spec = {
            "instances": 3,
            "storage": {"size": "7Gi"},
            "bootstrap": {"initdb": {"database": "shop", "owner": "app"}},
        }
        await bed.post(f"{API}/clusters", {**kind("Cluster"), "metadata": {"name": name}, "spec": spec})
        await backup(bed, f"{name}-1", of=name, phase="completed")
    return bed


def kind(name: str) -> dict[str, str]:
    return {"apiVersion": "postgresql.cnpg.io/v1", "kind": name}


async def backup(bed: Bed, name: str, *, of: str, phase: str = "") -> None:
    spec = {"cluster": {"name": of}, "method": "barmanObjectStore"}
    await bed.post(f"{API}/backups", {**kind("Backup"), "metadata": {"name": name}, "spec": spec})
    if phase:
        body = json.dumps({"status": {"phase": phase, "error": "postgres://u:s3cret-word@h/x"}}).encode()
        await bed.admin.request(
            "PATCH", f"{API}/backups/{name}/status", body=body, content_type="application/merge-patch+json"
        )


async def test_backups_of_an_instance_are_listed_with_their_outcome(
    postgres: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await backup(postgres, "main-2", of="main", phase="failed")
    await backup(postgres, "main-3", of="main")
    status, found, text = await root.send("GET", f"{ONE}/collections")
    assert status == 200
    backups, schedules = found["collections"]
    rows = {row["name"]: row["outcome"] for row in backups["rows"]}
    assert rows == {"main-1": "good", "main-2": "bad", "main-3": "pending"}, "those of others are not its"
    assert (schedules["state"], schedules["rows"], schedules["restore"]) == ("listed", [], None)
    assert "s3cret-word" not in text
    titles = [column["title"]["en"] for column in backups["columns"]]
    cells = dict(
        zip(titles, next(row["cells"] for row in backups["rows"] if row["name"] == "main-1"), strict=True)
    )
    assert (cells["Method"], cells["State"], cells["Begun"]) == ("barmanObjectStore", "completed", "")


async def test_a_backup_and_a_schedule_are_made_and_deleted(postgres: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    body: dict[str, Any] = {"name": "main-now", "values": {"method": "volumeSnapshot"}}
    await root.ok("POST", f"{ONE}/collections/backups?dryRun=true", body)
    path = f"{API}/backups/main-now"
    assert "main-now" not in str((await postgres.admin.request("GET", f"{API}/backups")).body)
    assert (await root.send("POST", f"{ONE}/collections/backups", body))[0] == 201
    made = json.loads((await postgres.admin.request("GET", path)).body)
    assert made["spec"]["cluster"]["name"] == "main"
    assert made["spec"]["method"] == "volumeSnapshot"
    schedule = {"name": "nightly", "values": {"schedule": "0 0 2 * * *", "method": "barmanObjectStore"}}
    assert (await root.send("POST", f"{ONE}/collections/schedules", schedule))[0] == 201
    made = json.loads((await postgres.admin.request("GET", f"{API}/scheduledbackups/nightly")).body)
    assert made["spec"]["backupOwnerReference"] == "self"
    wrong = {"name": "weekly", "values": {"schedule": "daily", "method": "x"}}
    status, problem, _ = await root.send("POST", f"{ONE}/collections/schedules", wrong)
    assert status == 422
    assert {error["field"] for error in problem["errors"]} == {"schedule", "method"}
    assert (await root.send("POST", f"{ONE}/collections/nothing", body))[0] == 404
    uid = json.loads((await postgres.admin.request("GET", path)).body)["metadata"]["uid"]
    assert (await root.send("DELETE", f"{ONE}/collections/backups/main-now"))[0] == 400
    assert (await root.send("DELETE", f"{ONE}/collections/backups/main-now?uid=another"))[0] == 409
    elsewhere = ONE.replace("/main", "/other")
    assert (await root.send("DELETE", f"{elsewhere}/collections/backups/main-now?uid={uid}"))[0] == 404
    assert (await root.send("DELETE", f"{ONE}/collections/backups/main-now?uid={uid}"))[0] == 202
    assert "main-now" not in str((await postgres.admin.request("GET", f"{API}/backups")).body)


async def test_a_backup_is_restored_into_a_new_instance(postgres: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    form = await root.ok("GET", f"{ONE}/form")
    assert form["values"]["storage"] == "7Gi"
    body = {"entry": "cnpg-postgres", "name": "again", "values": form["values"]}
    origin = {"collection": "backups", "name": "main-1"}
    await root.ok("POST", "namespaces/team-a/instances", {**body, "from": origin})
    made = json.loads((await postgres.admin.request("GET", f"{API}/clusters/again")).body)
    assert made["spec"]["bootstrap"] == {"recovery": {"backup": {"name": "main-1"}}}
    assert made["spec"]["storage"]["size"] == "7Gi"
    await backup(postgres, "half", of="main")
    for wrong, status in (
        ({"collection": "backups", "name": "half"}, 409),
        ({"collection": "backups", "name": "nothing"}, 404),
        ({"collection": "schedules", "name": "main-1"}, 400),
        ({"collection": "backups", "name": "../clusters/main"}, 400),
        ("main-1", 400),
    ):
        answer = await root.send(
            "POST", "namespaces/team-a/instances", {**body, "name": "third", "from": wrong}
        )
        assert answer[0] == status, answer


async def test_what_may_not_be_listed_is_denied_and_what_is_not_served_is_said(
    postgres: Bed, browsers: list[Browser]
) -> None:
    await postgres.grant("ann", "team-a", "postgresql.cnpg.io", ["clusters"], ["get", "list"])
    await postgres.admin.request("DELETE", f"{CRDS}/scheduledbackups.postgresql.cnpg.io")
    ann, root = await browsers[0].signed_in(ANN), await browsers[1].signed_in(ADMIN)
    found = await ann.ok("GET", f"{ONE}/collections")
    assert found["collections"][0]["state"] == "denied"
    found = await root.ok("GET", f"{ONE}/collections")
    assert [each["state"] for each in found["collections"]] == ["listed", "unserved"]
    body = {"name": "mine", "values": {"method": "volumeSnapshot"}}
    assert (await ann.send("POST", f"{ONE}/collections/backups", body))[0] == 403


async def test_a_list_that_is_cut_says_so(
    postgres: Bed, browsers: list[Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await backup(postgres, "main-2", of="main")
    for limit, value in (("MOST", 1), ("LIMIT", "1")):
        [backups, _] = (await root.ok("GET", f"{ONE}/collections"))["collections"]
        assert backups["truncated"] is False
        with monkeypatch.context() as less:
            less.setattr(f"mooring.console.related.{limit}", value)
            [backups, _] = (await root.ok("GET", f"{ONE}/collections"))["collections"]
            assert backups["truncated"] is True


# --- Mooring's own kinds

BACKUPS = "/apis/redis.mooring.dev/v1alpha1/namespaces/team-a/redisbackups"
SENTINEL, CLUSTER = "redis.kun", "redis.middleware.hc.cn"
TARGET = {"s3": {"bucket": "kept", "prefix": "prod", "credentialsSecret": "keys"}}


async def redis_backup(bed: Bed, name: str, *, group: str, phase: str = "", **spec: Any) -> None:
    api = {"apiVersion": "redis.mooring.dev/v1alpha1", "kind": "RedisBackup"}
    declared = {"cluster": {"name": "main", "group": group}, "target": TARGET, **spec}
    await bed.post(BACKUPS, {**api, "metadata": {"name": name}, "spec": declared})
    if phase:
        status = {"phase": phase, "sizeBytes": 3_000_000, "verified": {"passed": True}}
        body = json.dumps({"status": status}).encode()
        await bed.admin.request(
            "PATCH", f"{BACKUPS}/{name}/status", body=body, content_type="application/merge-patch+json"
        )


async def test_two_kinds_of_cluster_of_one_name_have_backups_of_their_own(
    bed: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await redis_backup(bed, "of-sentinel", group=SENTINEL, phase="Succeeded")
    await redis_backup(bed, "of-cluster", group=CLUSTER, phase="Succeeded")
    for entry, expected, restore in (
        ("redis-sentinel", "of-sentinel", True),
        ("redis-cluster", "of-cluster", False),
    ):
        one = f"namespaces/team-a/instances/{entry}/main"
        [backups, _] = (await root.ok("GET", f"{one}/collections"))["collections"]
        assert [row["name"] for row in backups["rows"]] == [expected]
        assert [row["restorable"] for row in backups["rows"]] == [restore]
        assert backups["entry"] == "redis-backup"
        cells = dict(zip((c["path"] for c in backups["columns"]), backups["rows"][0]["cells"], strict=True))
        assert cells["/status/sizeBytes"] == "3000000"
        assert cells["/status/verified/passed"] == "true"
    other = {
        "entry": "redis-sentinel",
        "name": "copy",
        "values": {"size": 3, "image": "redis:7.0", "storage": "1Gi"},
    }
    wrong = {**other, "from": {"collection": "backups", "name": "of-cluster"}}
    assert (await root.send("POST", "namespaces/team-a/instances", wrong))[0] == 400


async def test_the_next_backup_begins_with_the_place_of_the_newest_one(
    bed: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    one = "namespaces/team-a/instances/redis-cluster/main"
    [backups, _] = (await root.ok("GET", f"{one}/collections"))["collections"]
    assert backups["values"] == {"deletionPolicy": "Retain"}
    await redis_backup(bed, "first", group=CLUSTER, deletionPolicy="Delete")
    [backups, _] = (await root.ok("GET", f"{one}/collections"))["collections"]
    assert backups["values"] == {
        "deletionPolicy": "Delete",
        "bucket": "kept",
        "prefix": "prod",
        "credentials": "keys",
    }
    body = {"name": "second", "values": backups["values"]}
    assert (await root.send("POST", f"{one}/collections/backups", body))[0] == 201
    made = json.loads((await bed.admin.request("GET", f"{BACKUPS}/second")).body)["spec"]
    assert made["cluster"] == {"name": "main", "group": CLUSTER}
    assert made["target"] == TARGET


async def test_the_page_of_a_backup_leads_to_a_new_cluster_after_the_old_one_is_gone(
    bed: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await redis_backup(bed, "good", group=SENTINEL, phase="Succeeded")
    await redis_backup(bed, "broken", group=SENTINEL, phase="Failed")
    found = await root.ok("GET", "namespaces/team-a/instances/redis-backup/good")
    [offered] = found["restores"]
    assert (offered["entry"], offered["collection"], offered["instance"]) == (
        "redis-sentinel",
        "backups",
        "main",
    )
    assert (await root.ok("GET", "namespaces/team-a/instances/redis-backup/broken"))["restores"] == []
    body = {
        "entry": "redis-sentinel",
        "name": "again",
        "values": {"size": 3, "image": "redis:7.0", "storage": "1Gi"},
        "from": {"collection": "backups", "name": "good"},
    }
    await root.ok("POST", "namespaces/team-a/instances", body)
    path = "/apis/redis.kun/v1beta1/namespaces/team-a/redisclusters/again"
    assert json.loads((await bed.admin.request("GET", path)).body)["spec"]["restoreFrom"] == {
        "backup": "good"
    }


async def test_backups_of_the_whole_cluster_are_those_that_name_the_instance_and_its_namespace(
    bed: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    api = "/apis/core.matrixorigin.io/v1alpha1"
    for name, namespace in (("mine", "team-a"), ("theirs", "team-b")):
        meta = {
            "location": {"s3": {"path": "kept/x"}},
            "id": name,
            "size": "3Mi",
            "atTime": "2026-01-01T00:00:00Z",
            "completeTime": "2026-01-01T00:01:00Z",
            "sourceRef": f"matrixonecluster/{namespace}/main",
            "raw": "",
        }
        kind_of = {"apiVersion": "core.matrixorigin.io/v1alpha1", "kind": "Backup"}
        await bed.post(f"{api}/backups", {**kind_of, "metadata": {"name": name}, "meta": meta})
    one = "namespaces/team-a/instances/matrixone/main"
    [backups, jobs, _] = (await root.ok("GET", f"{one}/collections"))["collections"]
    assert [(row["name"], row["restorable"]) for row in backups["rows"]] == [("mine", True)]
    assert (backups["create"], backups["restore"]["ask"]) == (None, ["path"])
    assert (jobs["rows"], jobs["entry"]) == ([], "matrixone-backup")
    values = {"version": "1.2.4", "compute": 1, "logDisk": "10Gi", "path": "kept/new"}
    body = {"entry": "matrixone", "name": "again", "values": values}
    origin = {"collection": "backups", "name": "theirs"}
    status, problem, _ = await root.send("POST", "namespaces/team-a/instances", {**body, "from": origin})
    assert (status, problem["code"]) == (400, "WrongOrigin"), "that of another namespace is not offered here"
    origin = {"collection": "backups", "name": "mine"}
    await root.ok("POST", "namespaces/team-a/instances", {**body, "from": origin})
    path = f"{api}/namespaces/team-a/matrixoneclusters/again"
    assert json.loads((await bed.admin.request("GET", path)).body)["spec"]["restoreFrom"] == "mine"
    uid = json.loads((await bed.admin.request("GET", f"{api}/backups/theirs")).body)["metadata"]["uid"]
    assert (await root.send("DELETE", f"{one}/collections/backups/theirs?uid={uid}"))[0] == 404
