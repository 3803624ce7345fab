"""The diagnosis over the API: read with the user's own rights, in both languages, without secrets."""

from __future__ import annotations

import json

from tests.console.bed import ADMIN, ANN, SECRET, Bed, Browser, Json

from mooring.diagnosis import diagnose, gather
from mooring.kube import Resource

ONE = "namespaces/team-a/instances/redis-sentinel/cache/diagnosis"
CORE = "/api/v1/namespaces/team-a/{}"


def owned(name: str, uid: str, api: str = "redis.kun/v1beta1", kind: str = "RedisCluster") -> Json:
    reference = {"apiVersion": api, "kind": kind, "name": "cache", "uid": uid, "controller": True}
    return {"name": name, "ownerReferences": [reference]}


async def test_an_instance_that_nobody_manages_says_so(bed: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await bed.redis("team-a", "cache", size=3)
    found = (await root.ok("GET", ONE))["diagnosis"]
    assert found["code"] == "NoOperator"
    assert "mooring-redis-sentinel" in found["cause"]["en"]
    assert "operator" in found["step"]["zh"]
    missing = await root.ok("GET", ONE.replace("cache", "none"))
    assert missing["diagnosis"]["code"] == "NotFound"


async def test_a_definition_that_is_missing_is_told(bed: Bed) -> None:
    facts = await gather(
        bed.admin, Resource("x.example", "v1", "X", "xs", True), namespace="team-a", name="a"
    )
    found = diagnose(facts)
    assert found is not None
    assert found.code == "DefinitionMissing"


async def test_a_pod_that_finds_no_image_is_the_cause_and_no_secret_comes_out(
    bed: Bed, browsers: list[Browser]
) -> None:
    await bed.redis("team-a", "cache", size=3, password=SECRET)
    root, ann, _ = browsers
    await root.signed_in(ADMIN)
    await ann.signed_in(ANN)
    one = await root.ok("GET", ONE.removesuffix("/diagnosis"))
    container = {"name": "redis", "image": "redis:nope"}
    pod = {
        "metadata": owned("cache-0", one["object"]["metadata"]["uid"]),
        "spec": {"containers": [container]},
    }
    await bed.post(CORE.format("pods"), pod)
    message = f"manifest unknown at https://user:{SECRET}@registry"
    waiting = {"name": "redis", "image": "redis:nope", "imageID": "", "ready": False, "restartCount": 0}
    waiting["state"] = {"waiting": {"reason": "ErrImagePull", "message": message}}
    status = {"status": {"phase": "Pending", "containerStatuses": [waiting]}}
    content = "application/merge-patch+json"
    path = CORE.format("pods/cache-0/status")
    await bed.admin.request("PATCH", path, body=json.dumps(status).encode(), content_type=content)
    _, body, text = await root.send("GET", ONE)
    assert body["diagnosis"]["code"] == "ImageMissing"
    assert body["diagnosis"]["params"]["image"] == "redis:nope"
    assert SECRET not in text
    # Who may not see pods is not told of them.
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["get"])
    limited = await ann.ok("GET", ONE)
    assert limited["diagnosis"]["code"] == "NotObserved"
    assert "pods" in limited["unseen"]
    assert "redis:nope" not in str(limited)
    assert (await browsers[2].send("GET", ONE))[0] == 401
