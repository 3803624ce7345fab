"""The operators page: who works, shared or private, what they manage, what nobody manages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.console.bed import ADMIN, ANN, BOB, REDIS, Bed, Browser, Json

from mooring.cli.console import _upgrades
from mooring.kube import Client
from mooring.operators.registry import OPERATORS

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


async def lease(bed: Bed, namespace: str, name: str, *, ago: float = 0, holder: str = "pod-1") -> None:
    renewed = (
        (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": renewed}
    await bed.post(LEASES.format(namespace), {"metadata": {"name": name}, "spec": spec})


async def annotated(bed: Bed, namespace: str, name: str) -> None:
    body = {
        "apiVersion": "redis.kun/v1beta1",
        "kind": "RedisCluster",
        "metadata": {"name": name, "annotations": {"redis.kun/scope": "cluster-scoped"}},
        "spec": {},
    }
    await bed.post(f"/apis/redis.kun/v1beta1/namespaces/{namespace}/redisclusters", body)


def rows(found: Json) -> list[tuple[str, str, bool, int]]:
    return [(one["scope"], one["namespace"], one["healthy"], one["instances"]) for one in found["operators"]]


async def test_shared_and_private_operators_and_what_they_manage(bed: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await lease(bed, "team-a", "mooring-redis-sentinel-namespaced")
    await lease(bed, "default", "mooring-redis-sentinel-cluster")
    await lease(bed, "default", "mooring-redis-cluster-all", ago=7200)
    await lease(bed, "default", "mooring-redis-sentinel-odd")
    await bed.redis("team-a", "private")
    await bed.redis("team-b", "orphan")
    await annotated(bed, "team-a", "wide")
    found = await root.ok("GET", "operators")
    assert rows(found) == [
        ("all", "default", False, 0),
        ("cluster", "default", True, 1),
        ("namespaced", "team-a", True, 1),
    ]
    assert [(one["namespace"], one["name"]) for one in found["orphans"]] == [("team-b", "orphan")]
    assert (found["contested"], found["unknown"]) == ([], [])


async def test_two_operators_of_one_instance_are_told(bed: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await lease(bed, "default", "mooring-redis-sentinel-cluster")
    await lease(bed, "team-b", "mooring-redis-sentinel-all")
    await annotated(bed, "team-a", "wide")
    assert [one["name"] for one in (await root.ok("GET", "operators"))["contested"]] == ["wide"]


async def test_a_user_sees_shared_operators_and_nothing_of_other_namespaces(
    bed: Bed, browsers: list[Browser]
) -> None:
    ann, bob, _ = browsers
    await lease(bed, "team-b", "mooring-redis-sentinel-namespaced")
    await lease(bed, "team-a", "mooring-redis-sentinel-namespaced")
    await lease(bed, "kube-system", "mooring-redis-cluster-all")
    await bed.redis("team-a", "mine")
    await bed.redis("team-b", "theirs")
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["get", "list", "watch"])
    await ann.signed_in(ANN)
    await bob.signed_in(BOB)
    found = await ann.ok("GET", "operators")
    assert rows(found) == [("all", "", True, 0), ("namespaced", "team-a", True, 1)]
    assert rows(await bob.ok("GET", "operators")) == [("all", "", True, 0)]
    for browser in (ann, bob):
        text = (await browser.send("GET", "operators"))[2]
        assert "team-b" not in text
        assert "theirs" not in text
        assert "pod-1" not in text
    assert (await browsers[2].send("GET", "operators"))[0] == 401


@dataclass
class Planned:
    component: str
    fields: tuple[str, ...] = ()
    waiting: bool = False
    trouble: str = ""


async def test_the_upgrade_preview_asks_for_each_instance_that_the_user_sees(
    bed: Bed, browsers: list[Browser]
) -> None:
    asked = []

    async def plan(client: Client, namespace: str, name: str) -> list[Planned]:
        asked.append((namespace, name))
        # As the user: who may not read the instance is told nothing of it.
        await client.request("GET", f"{REDIS.format(namespace)}/{name}")
        return [
            Planned("redis", fields=("spec.containers[0].args",), waiting=name == "waits"),
            Planned("sentinel"),
        ]

    bed.console._api._upgrades = {("redis.kun", "redisclusters"): plan}
    await bed.redis("team-a", "waits")
    await bed.redis("team-b", "other")
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["list", "watch"])
    root, ann = await browsers[0].signed_in(ADMIN), await browsers[1].signed_in(ANN)
    found = await root.ok("GET", "operators/upgrade")
    assert found["instances"] == 2
    assert [(row["name"], row["component"], row["fields"], row["waiting"]) for row in found["rows"]] == [
        ("waits", "redis", ["spec.containers[0].args"], True),
        ("waits", "sentinel", [], False),
        ("other", "redis", ["spec.containers[0].args"], False),
        ("other", "sentinel", [], False),
    ]
    asked.clear()
    found = await ann.ok("GET", "operators/upgrade")
    assert asked == [("team-a", "waits")]
    [row] = found["rows"]
    assert (row["name"], row["fields"]) == ("waits", [])
    assert "cannot get" in row["trouble"]


def test_the_command_line_gives_the_console_the_plans_of_its_operators() -> None:
    of_jobs = ("backups", "backupschedules")
    assert set(_upgrades()) == {
        (kind.resource.group, kind.resource.plural)
        for operator in OPERATORS.values()
        if operator.plan_upgrade is not None
        for kind in operator.kinds
        if not kind.resource.group.endswith(".mooring.dev") or not kind.resource.plural.endswith(of_jobs)
    }
    assert ("redis.mooring.dev", "redisbackups") not in _upgrades(), "its pods are those of Jobs"
    assert _upgrades()
