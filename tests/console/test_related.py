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
