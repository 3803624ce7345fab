"""Who did what and when: from Events of the console, Events of operators, and the metadata of objects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.console.bed import ADMIN, ANN, REDIS, SECRET, VALUES, Bed, Browser

Json = Any
EVENTS = "/api/v1/namespaces/{}/events"


async def rows(browser: Browser, query: str = "") -> list[Json]:
    found: list[Json] = (await browser.ok("GET", f"activity{query}"))["rows"]
    return found


async def recorded(browser: Browser, count: int) -> list[Json]:
    """What users did, newest last, once there is so much of it."""
    for _ in range(200):
        found = [row for row in await rows(browser) if row["source"] == "user"]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{count} expected, {found}")


async def event(bed: Bed, namespace: str, about: str, reason: str, **more: Json) -> None:
    reference = {
        "apiVersion": "redis.kun/v1beta1",
        "kind": "RedisCluster",
        "name": about,
        "namespace": namespace,
    }
    body = {
        "metadata": {"name": f"{about}-{reason.lower()}"},
        "involvedObject": reference,
        "reason": reason,
        "type": "Warning",
        "message": "a text",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "reportingComponent": "redis-operator",
        **more,
    }
    await bed.post(EVENTS.format(namespace), body)


async def test_what_a_user_does_is_recorded_with_their_name_and_no_value(
    bed: Bed, browsers: list[Browser]
) -> None:
    await bed.grant("ann", "team-a", "redis.middleware.hc.cn", ["redisclusters"], ["*"])
    await bed.grant("ann", "team-a", "", ["events"], ["list", "watch"])
    ann, root = await browsers[0].signed_in(ANN), await browsers[1].signed_in(ADMIN)
    values = {"replicas": 6, "image": "redis:7.0", "password": SECRET}
    body = {"entry": "redis-cluster", "name": "shop", "values": values}
    one = "namespaces/team-a/instances/redis-cluster/shop"
    await ann.ok("POST", "namespaces/team-a/instances?dryRun=true", body)
    await ann.ok("POST", "namespaces/team-a/instances", body)
    started = await ann.ok("GET", f"{one}/form")
    change = {"base": started["base"], "values": {"replicas": 8, "password": f"{SECRET}-2"}}
    await ann.ok("PATCH", f"{one}?dryRun=true", change)
    await ann.ok("PATCH", one, change)
    await ann.ok("POST", f"{one}/actions/pause", {"uid": started["base"]["uid"]})
    await root.ok("DELETE", f"{one}?uid={started['base']['uid']}")
    told = await recorded(root, 4)
    assert len(told) == 4, "a dry run did nothing"
    found = {row["reason"]: row for row in told}
    assert {reason: row["who"] for reason, row in found.items()} == {
        "CreatedByUser": "ann",
        "ChangedByUser": "ann",
        "ActionByUser": "ann",
        "DeletedByUser": "root",
    }
    assert "spec.replicas" in found["ChangedByUser"]["message"]
    assert "pause" in found["ActionByUser"]["message"]
    assert SECRET not in json.dumps(await rows(root))
    assert {row["name"] for row in found.values()} == {"shop"}
    mine = [row for row in await rows(ann) if row["source"] == "user"]
    assert {row["reason"] for row in mine} == found.keys(), "also what others did with what she may see"


async def test_nothing_is_told_of_what_a_user_may_not_see(bed: Bed, browsers: list[Browser]) -> None:
    for namespace in ("team-a", "team-b"):
        await bed.redis(namespace, f"of-{namespace}", **VALUES)
        await event(bed, namespace, f"of-{namespace}", "Failover")
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["list"])
    ann, root = await browsers[0].signed_in(ANN), await browsers[1].signed_in(ADMIN)
    assert {row["name"] for row in await rows(root)} == {"of-team-a", "of-team-b"}
    found = await ann.ok("GET", "activity")
    assert {(row["name"], row["source"]) for row in found["rows"]} == {("of-team-a", "change")}
    assert found["eventsDenied"], "she may read no events"
    assert "mysql" in found["denied"]
    assert "redis-sentinel" not in found["denied"]
    found = await ann.ok("GET", "activity?namespace=team-b")
    assert found["rows"] == []
    assert "redis-sentinel" in found["denied"]


async def test_events_and_changes_are_told_apart_and_filtered(bed: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await bed.redis("team-a", "one", **VALUES)
    await bed.redis("team-a", "two", **VALUES)
    await event(bed, "team-a", "one", "Failover", count=3)
    kind, path = "application/merge-patch+json", f"{REDIS.format('team-a')}/one"
    found: list[Json] = []
    for turn in range(400):
        # Times have seconds: a change counts as one only after the second of the creation.
        patch = json.dumps({"spec": {"size": 5 + 2 * (turn % 2)}}).encode()
        by = {"fieldManager": "argocd"}
        await bed.admin.request("PATCH", path, query=by, body=patch, content_type=kind)
        found = await rows(root, "?namespace=team-a&entry=redis-sentinel&name=one")
        if len(found) == 3:
            break
        await asyncio.sleep(0.05)
    assert {row["name"] for row in found} == {"one"}
    told = [(row["source"], row["reason"], row["count"]) for row in found]
    assert told == [("change", "Changed", 1), ("change", "Created", 1), ("event", "Failover", 3)], (
        "newest first"
    )
    assert found[0]["who"] == "argocd"
    assert (found[2]["who"], found[2]["type"]) == ("redis-operator", "Warning")
    assert {row["name"] for row in await rows(root, "?entry=redis-sentinel")} == {"one", "two"}
    assert await rows(root, "?entry=mysql") == []
    # An event that only claims to be of a user is not shown as one.
    user = {"kind": "User", "name": "ann"}
    await event(bed, "team-a", "one", "CreatedByUser", related=user)
    assert [row for row in await rows(root) if row["source"] == "user"] == []
