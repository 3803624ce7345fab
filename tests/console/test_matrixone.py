"""MatrixOne's pages: what their entries show is in the kinds' schemas, and a pool and a claim show who has what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.bed import ADMIN, Bed, Browser

from mooring.catalog import Entry, packaged, pointer
from mooring.operators.registry import OPERATORS
from mooring.runtime import render_crd

GROUP = "core.matrixorigin.io"
API = f"/apis/{GROUP}/v1alpha1/namespaces/team-a"
ENTRIES = {one.name: one for one in packaged() if one.spec.target.group == GROUP}
SCHEMAS: dict[str, Any] = {
    kind.resource.kind: render_crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for kind in OPERATORS["matrixone"].kinds
}


def paths(entry: Entry) -> Iterator[tuple[str, str]]:
    """Everything of a status or a declaration that the page of an entry shows: the kind and where it is."""
    kind = entry.spec.target.kind
    yield kind, entry.spec.status.conditions
    yield from ((kind, one.path) for one in entry.spec.metrics.figures)
    for each in entry.spec.collections:
        yield each.target.kind, each.of
        yield from ((each.target.kind, one.path) for one in each.columns)
        yield from ((each.target.kind, place) for place in each.where)
        if each.outcome is not None:
            yield each.target.kind, each.outcome.path
        if each.restore is not None:
            yield from ((kind, place) for place in each.restore.set)
            if each.restore.object:
                yield each.target.kind, each.restore.object


def declared(kind: str, path: str) -> bool:
    """Whether a property is declared; of an object without any, such as a reference, anything may be named."""
    schema = SCHEMAS[kind]
    for step in pointer.parts(path):
        if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
            return True
        schema = schema["items"] if schema.get("type") == "array" else schema.get("properties", {}).get(step)
        if schema is None:
            return False
    return True


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_whatever_a_page_shows_is_in_the_schema(entry: Entry) -> None:
    shown = list(paths(entry))
    assert len(shown) > 1
    assert [one for one in shown if not declared(*one)] == []


def test_a_path_that_no_schema_has_is_found() -> None:
    assert declared("CNClaim", "/status/store/string")
    assert not declared("CNClaim", "/status/store/podName")
    assert not declared("CNPool", "/status/idle/number")


async def make(bed: Bed, kind: str, plural: str, name: str, spec: Any, status: Any) -> None:
    head = {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": {"name": name}}
    await bed.post(f"{API}/{plural}", {**head, "spec": spec})
    await bed.admin.request(
        "PATCH",
        f"{API}/{plural}/{name}/status",
        body=json.dumps({"status": status}).encode(),
        content_type="application/merge-patch+json",
    )


async def pod(bed: Bed, name: str, pool: str, phase: str, claim: str = "") -> None:
    """A compute node of a pool, which its pool does not own itself."""
    labels = {
        "matrixorigin.io/component": "CNSet",
        "pool.matrixorigin.io/pool-name": pool,
        "pool.matrixorigin.io/phase": phase,
        **({"pool.matrixorigin.io/claimed-by": claim} if claim else {}),
    }
    spec = {"containers": [{"name": "main", "image": "matrixorigin/matrixone:1.2.4"}]}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    await bed.post("/api/v1/namespaces/team-a/pods", body)


@pytest.fixture
async def pooled(bed: Bed) -> Bed:
    """A pool with an idle pod and a claimed one, a claim that moves from it, and another pool and claim."""
    for name in ("warm", "other"):
        spec = {
            "template": {"image": "matrixorigin/matrixone:1.2.4"},
            "deps": {"logSet": {"metadata": {"name": "mo" if name == "warm" else "else"}}},
            "strategy": {"updateStrategy": {}, "scaleStrategy": {"maxIdle": 1}},
        }
        await make(bed, "CNPool", "cnpools", name, spec, {"idle": 1, "bound": 1, "draining": 0})
    await pod(bed, "warm-cn-0", "warm", "Bound", "mine")
    await pod(bed, "warm-cn-1", "warm", "Idle")
    await pod(bed, "other-cn-0", "other", "Bound", "theirs")
    for name, pool in (("mine", "warm"), ("theirs", "other")):
        spec = {"selector": {}, "poolName": pool, "podName": f"{pool}-cn-0"}
        status: dict[str, Any] = {"phase": "Bound", "store": {"string": f"{pool}-cn-0"}}
        if name == "mine":
            source = {"connections": 3}
            move = {"reason": "its node is cordoned", "fromPod": "warm-cn-0", "toPod": "warm-cn-1"}
            status["migrate"] = {**move, "source": source}
        await make(bed, "CNClaim", "cnclaims", name, spec, status)
    return bed


async def figures(root: Browser, entry: str, name: str) -> dict[str, Any]:
    found = await root.ok("GET", f"namespaces/team-a/instances/{entry}/{name}/metrics")
    return {one["title"]["en"]: one["value"] for one in found["figures"]}


async def pods(root: Browser, entry: str, name: str) -> dict[str, str]:
    """The role of every pod."""
    found = await root.ok("GET", f"namespaces/team-a/instances/{entry}/{name}/pods")
    assert {row["part"] for row in found["pods"]} <= set(found["parts"])
    return {row["name"]: found["roles"][row["role"]]["en"] for row in found["pods"]}


async def rows(root: Browser, entry: str, name: str, collection: str) -> dict[str, list[str]]:
    found = await root.ok("GET", f"namespaces/team-a/instances/{entry}/{name}/collections")
    one = next(one for one in found["collections"] if one["name"] == collection)
    return {row["name"]: row["cells"] for row in one["rows"]}


async def test_the_page_of_a_pool_shows_idle_and_claimed_pods_and_its_claims(
    pooled: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    seen = await figures(root, "matrixone-pool", "warm")
    assert seen == {"Nodes that wait": 1, "Claimed nodes": 1, "Draining nodes": 0}
    assert await pods(root, "matrixone-pool", "warm") == {"warm-cn-0": "Claimed", "warm-cn-1": "Idle"}
    assert await rows(root, "matrixone-pool", "warm", "claims") == {
        "mine": ["Bound", "warm-cn-0", "warm-cn-1"]
    }


async def test_the_page_of_a_claim_shows_its_pod_and_where_it_moves(
    pooled: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    seen = await figures(root, "matrixone-claim", "mine")
    assert seen == {
        "Phase": "Bound",
        "Pod": "warm-cn-0",
        "Moves because": "its node is cordoned",
        "Moves from": "warm-cn-0",
        "Moves to": "warm-cn-1",
        "Sessions left on the old pod": 3,
    }
    assert await pods(root, "matrixone-claim", "mine") == {"warm-cn-0": "Claimed"}
    assert await figures(root, "matrixone-claim", "theirs") == {"Phase": "Bound", "Pod": "other-cn-0"}


async def test_the_page_of_a_cluster_lists_its_pools(pooled: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    assert await rows(root, "matrixone", "mo", "pools") == {"warm": ["1", "1", "0"]}
