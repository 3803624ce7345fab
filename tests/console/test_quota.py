"""What an instance needs beside what its namespace allows, told with every preview."""

from __future__ import annotations

from tests.console.bed import ADMIN, ANN, VALUES, Bed, Browser

from mooring.catalog import defaults, packaged

[SENTINEL] = [entry for entry in packaged() if entry.name == "redis-sentinel"]
PATH = "namespaces/team-a/instances?dryRun=true"
CORE = "/api/v1/namespaces/team-a"


def body(**values: object) -> dict[str, object]:
    given = {**defaults(SENTINEL, "small"), **values}
    return {"entry": "redis-sentinel", "name": "cache", "values": given}


async def test_a_preview_says_what_is_needed_and_what_the_quota_leaves(
    bed: Bed, browsers: list[Browser]
) -> None:
    hard = {"pods": "8", "requests.storage": "4Gi", "count/secrets": "5"}
    quota = {"metadata": {"name": "small"}, "spec": {"hard": hard}}
    await bed.post(f"{CORE}/resourcequotas", quota)
    root = await browsers[0].signed_in(ADMIN)
    found = await root.ok("POST", PATH, body(size=3, storage="1Gi"))
    assert found["requests"]["pods"] == 6
    rows = {row["resource"]: row for row in found["quota"]["rows"]}
    assert rows["pods"] == {
        "quota": "small",
        "resource": "pods",
        "hard": 8.0,
        "used": 0.0,
        "wanted": 6.0,
        "over": False,
    }
    assert rows["requests.storage"]["over"] is False
    assert rows["count/secrets"]["wanted"] == 0
    found = await root.ok("POST", PATH, body(size=6, storage="1Gi"))
    rows = {row["resource"]: row for row in found["quota"]["rows"]}
    assert rows["pods"]["over"] is True
    assert rows["requests.storage"]["over"] is True


async def test_a_limit_range_is_told_at_the_field(bed: Bed, browsers: list[Browser]) -> None:
    limits = [
        {"type": "Container", "max": {"memory": "1Gi"}, "min": {"memory": "64Mi"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}},
    ]
    await bed.post(f"{CORE}/limitranges", {"metadata": {"name": "bounds"}, "spec": {"limits": limits}})
    root = await browsers[0].signed_in(ADMIN)
    found = await root.ok("POST", PATH, body(memory="2Gi", maxmemory="1gb", storage="10Gi"))
    assert [(row["field"], row["bound"], row["limit"]) for row in found["quota"]["limits"]] == [
        ("memory", "max", "1Gi"),
        ("storage", "max", "5Gi"),
    ]
    found = await root.ok("POST", PATH, body(memory="32Mi", maxmemory="16mb"))
    assert [(row["field"], row["bound"]) for row in found["quota"]["limits"]] == [("memory", "min")]
    assert (await root.ok("POST", PATH, body()))["quota"]["limits"] == []


async def test_who_may_not_read_quotas_is_told_that_it_is_not_known(
    bed: Bed, browsers: list[Browser]
) -> None:
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["create"])
    await bed.post(
        f"{CORE}/resourcequotas", {"metadata": {"name": "theirs"}, "spec": {"hard": {"pods": "1"}}}
    )
    ann = await browsers[0].signed_in(ANN)
    found = await ann.ok("POST", PATH, {"entry": "redis-sentinel", "name": "cache", "values": VALUES})
    assert found["quota"] == {"rows": [], "limits": [], "denied": True}
