"""Actions as entries declare them: tried first, done as the user, never on what is not the instance's."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
import yaml
from tests.console.bed import ADMIN, ANN, REDIS, Bed, Browser, Json

from mooring.catalog import lint, packaged, parse_entry

ONE = "namespaces/team-a/instances/redis-sentinel/cache"
LIVE = REDIS.format("team-a") + "/cache"
SETS = "/apis/apps/v1/namespaces/team-a/statefulsets"
STAMP = "kubectl.kubernetes.io/restartedAt"


async def read(bed: Bed, path: str = LIVE) -> Json:
    return json.loads((await bed.admin.request("GET", path)).body)


@pytest.fixture
async def root(bed: Bed, browsers: list[Browser]) -> Browser:
    await bed.redis("team-a", "cache", size=3, image="redis:7.0")
    return await browsers[0].signed_in(ADMIN)


async def uid(bed: Bed) -> str:
    return str((await read(bed))["metadata"]["uid"])


async def possible(browser: Browser) -> dict[str, bool]:
    return {one["name"]: one["possible"] for one in (await browser.ok("GET", ONE + "/actions"))["actions"]}


async def statefulset(bed: Bed, owner: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "redis", "image": "x"}]}}
    reference = {"apiVersion": "redis.kun/v1beta1", "kind": "RedisCluster", "name": "cache", "uid": owner}
    metadata = {"name": "redis-cluster-cache", "ownerReferences": [reference]}
    spec = {"serviceName": "a", "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await bed.post(SETS, {"metadata": metadata, "spec": spec})


async def test_an_action_is_tried_done_and_then_not_possible_any_more(bed: Bed, root: Browser) -> None:
    assert await possible(root) == {"scale": True, "pause": True, "resume": False, "restart": True}
    body = {"uid": await uid(bed)}
    tried = await root.ok("POST", ONE + "/actions/pause?dryRun=true", body)
    assert tried["changes"][0]["path"] == "metadata.annotations"
    assert "mooring.dev/pause" in tried["diff"]
    assert "annotations" not in (await read(bed))["metadata"]
    await root.ok("POST", ONE + "/actions/pause", body)
    assert (await read(bed))["metadata"]["annotations"] == {"mooring.dev/pause": "true"}
    assert await possible(root) == {"scale": True, "pause": False, "resume": True, "restart": True}
    assert (await root.send("POST", ONE + "/actions/pause", body))[1]["code"] == "NotNow"
    await root.ok("POST", ONE + "/actions/resume", body)
    assert (await possible(root))["pause"]


async def test_an_action_asks_for_a_field_of_the_form(bed: Bed, root: Browser) -> None:
    body = {"uid": await uid(bed), "value": 5}
    status, problem, _ = await root.send("POST", ONE + "/actions/scale", {**body, "value": 99})
    assert (status, problem["errors"][0]["field"]) == (422, "size")
    assert (await root.send("POST", ONE + "/actions/scale", {"uid": body["uid"]}))[0] == 422
    done = await root.ok("POST", ONE + "/actions/scale", body)
    assert [(one["path"], one["old"], one["new"]) for one in done["changes"]] == [("spec.size", "3", "5")]
    assert (await read(bed))["spec"]["size"] == 5
    assert (await root.ok("POST", ONE + "/actions/scale", body))["changes"] == []


async def test_an_action_changes_an_object_of_the_instance_alone(bed: Bed, root: Browser) -> None:
    body = {"uid": await uid(bed)}
    assert (await root.send("POST", ONE + "/actions/restart", body))[0] == 404
    await statefulset(bed, body["uid"])
    await root.ok("POST", ONE + "/actions/restart", body)
    made = await read(bed, SETS + "/redis-cluster-cache")
    assert STAMP in made["spec"]["template"]["metadata"]["annotations"]
    await bed.admin.request("DELETE", SETS + "/redis-cluster-cache")
    await statefulset(bed, "somebody-else")
    assert (await root.send("POST", ONE + "/actions/restart", body))[1]["code"] == "NotOwned"


async def test_an_action_needs_the_rights_and_the_instance_it_was_shown_for(
    bed: Bed, root: Browser, browsers: list[Browser]
) -> None:
    body = {"uid": await uid(bed)}
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["get"])
    ann = await browsers[1].signed_in(ANN)
    for query in ("", "?dryRun=true"):
        assert (await ann.send("POST", ONE + "/actions/pause" + query, body))[0] == 403
    assert (await root.send("POST", ONE + "/actions/pause", {"uid": "other"}))[1]["code"] == "Replaced"
    assert (await root.send("POST", ONE + "/actions/none", body))[0] == 404
    assert "annotations" not in (await read(bed))["metadata"]


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"name": "Bad"}, "lower case"),
        ({"set": {}}, "it does nothing"),
        ({"field": "none"}, "no field 'none'"),
        ({"field": "storageClass"}, "that can be changed"),
        ({"field": "size", "target": {"plural": "pods", "name": "x"}}, "of the instance itself"),
        ({"set": {"/metadata/finalizers": []}}, "is not below"),
        ({"set": {"/status/x": 1}}, "is not below"),
        ({"name": "scale"}, "is there twice"),
    ],
)
def test_lint_says_what_is_wrong_with_an_action(action: dict[str, Any], said: str) -> None:
    source = resources.files("mooring.catalog") / "entries" / "redis-sentinel.yaml"
    document = yaml.safe_load(source.read_text())
    text = {"en": "x", "zh": "x"}
    sound = {"name": "own", "title": text, "description": text, "set": {"/spec/x": 1}}
    document["spec"]["actions"].append(sound)
    assert lint(parse_entry(yaml.safe_dump(document))) == []
    document["spec"]["actions"][-1] = {**sound, **action}
    assert any(said in problem for problem in lint(parse_entry(yaml.safe_dump(document))))


def test_every_packaged_entry_can_be_scaled_and_paused() -> None:
    for entry in packaged():
        if entry.name.startswith("redis") and not entry.spec.companion:
            assert {"scale", "pause", "resume"} <= {action.name for action in entry.spec.actions}
