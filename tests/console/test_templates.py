"""Entries that are objects of the cluster: who is offered which, and why one is not."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.console.bed import ADMIN, ANN, CRDS, VALUES
from tests.console.served import Browser, Cluster, cluster

from mooring.catalog import KINDS, CatalogError, StoredClusterTemplate, entry_of, packaged
from mooring.kube import Invalid
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import render_crd

API = "/apis/catalog.mooring.dev/v1alpha1"
FIRST = next(entry for entry in packaged() if entry.name == "redis-sentinel")
Json = Any


def template(name: str, *, namespace: str = "", **changed: Json) -> Json:
    """The packaged entry as an object under another name."""
    text = (resources.files("mooring.catalog") / "entries" / "redis-sentinel.yaml").read_text()
    made = copy.deepcopy(yaml.safe_load(text))
    made["kind"] = "ServiceTemplate" if namespace else "ClusterServiceTemplate"
    made["metadata"] = {"name": name}
    made["spec"]["display"]["title"] = {"en": f"Redis {name}", "zh": f"Redis {name}"}
    made["spec"] |= changed
    return made


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as made:
        for kind in KINDS:
            await made.post(CRDS, render_crd(kind))
        api = "rbac.authorization.k8s.io"
        rules = [
            {
                "apiGroups": ["catalog.mooring.dev"],
                "resources": ["servicetemplates", "clusterservicetemplates"],
                "verbs": ["list", "watch"],
            },
            {
                "apiGroups": ["catalog.mooring.dev"],
                "resources": ["servicetemplates/status", "clusterservicetemplates/status"],
                "verbs": ["patch"],
            },
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "verbs": ["get"],
            },
        ]
        await made.post(f"/apis/{api}/v1/clusterroles", {"metadata": {"name": "templates"}, "rules": rules})
        body = {
            "metadata": {"name": "templates"},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "templates"},
            "subjects": [{"apiGroup": api, "kind": "User", "name": "console"}],
        }
        await made.post(f"/apis/{api}/v1/clusterrolebindings", body)
        yield made


async def until(look: Callable[[], Awaitable[Json]]) -> Json:
    """Wait until something is there."""
    async with asyncio.timeout(20):
        while not (found := await look()):
            await asyncio.sleep(0.02)
    return found


async def add(served: Cluster, made: Json, namespace: str = "") -> str:
    """Create a template; its path."""
    place = (
        f"{API}/namespaces/{namespace}/servicetemplates" if namespace else f"{API}/clusterservicetemplates"
    )
    await served.post(place, made)
    return f"{place}/{made['metadata']['name']}"


async def ready(served: Cluster, path: str) -> Json:
    """The condition Ready of a template once there is one for its generation."""

    async def look() -> Json:
        found = json.loads((await served.admin.request("GET", path)).body)
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return None
        return status

    return await until(look)


async def cards(browser: Browser) -> dict[str, Json]:
    found = (await browser.send("GET", "catalog")).json["entries"]
    return {card["name"]: card for card in found}


async def test_a_template_for_all_is_offered_and_makes_instances(served: Cluster) -> None:
    root = await served.browser(await served.console(catalog_resources=True)).signed_in(ADMIN)
    status = await ready(served, await add(served, template("redis-small")))
    assert (status["conditions"][0]["status"], status.get("problems")) == ("True", None)
    assert (await cards(root))["redis-small"]["display"]["title"]["en"] == "Redis redis-small"
    body = {"entry": "redis-small", "name": "a", "values": VALUES}
    assert (await root.send("POST", "namespaces/team-a/instances", body)).status == 201
    # Two entries make the kind: the instance is there once.
    assert [row["name"] for row in (await root.send("GET", "instances")).json["rows"]] == ["a"]
    await served.admin.request("DELETE", f"{API}/clusterservicetemplates/redis-small")

    async def gone() -> bool:
        return "redis-small" not in await cards(root)

    await until(gone)


async def test_a_namespaces_template_is_there_alone_and_for_those_who_may_see_it(served: Cluster) -> None:
    url = await served.console(catalog_resources=True)
    await ready(served, await add(served, template("redis-own", namespace="team-b"), "team-b"))
    for namespace in ("team-a", "team-b"):
        await served.grant(namespace, ["get", "list", "watch", "create"], user="ann")
    ann = await served.browser(url).signed_in(ANN)
    root = await served.browser(url).signed_in(ADMIN)
    name = "team-b:redis-own"
    assert (await cards(root))[name]["namespace"] == "team-b"
    # Ann may make Redis there, but not read what the team offers.
    assert name not in await cards(ann)
    assert "redis-own" not in "".join(ann.seen)
    assert (await ann.send("GET", f"catalog/{name}")).json["code"] == "NoSuchEntry"
    body = {"entry": name, "name": "a", "values": VALUES}
    assert (await ann.send("POST", "namespaces/team-b/instances", body)).status == 404
    reply = await root.send("POST", "namespaces/team-a/instances", body)
    assert (reply.status, reply.json["code"]) == (404, "OtherNamespace")
    assert (await root.send("POST", "namespaces/team-b/instances", body)).status == 201
    await served.redis("team-a", "x")
    one = f"instances?entry={name}"
    assert [row["namespace"] for row in (await root.send("GET", one)).json["rows"]] == ["team-b"]
    for path in ("", "/form", "/diagnosis", "/actions", "/pods", "/events"):
        assert (await root.send("GET", f"namespaces/team-a/instances/{name}/x{path}")).status == 404


async def test_a_packaged_entry_is_replaced_only_when_told_so(served: Cluster) -> None:
    root = await served.browser(await served.console(catalog_resources=True)).signed_in(ADMIN)
    path = await add(served, template("redis-sentinel"))
    status = await ready(served, path)
    assert status["conditions"][0]["reason"] == "NameTaken"
    assert (await cards(root))["redis-sentinel"]["display"]["title"]["en"] == FIRST.spec.display.title.en
    patch = json.dumps({"spec": {"override": True}}).encode()
    await served.admin.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
    assert (await ready(served, path))["conditions"][0]["status"] == "True"
    assert (await cards(root))["redis-sentinel"]["display"]["title"]["en"] == "Redis redis-sentinel"


async def test_the_form_has_the_order_that_is_given(served: Cluster) -> None:
    root = await served.browser(await served.console(catalog_resources=True)).signed_in(ADMIN)
    made = template("ordered")
    names = list(made["spec"]["parameters"]["properties"])
    made["spec"]["parameters"]["order"] = [*reversed(names)]
    await ready(served, await add(served, made))
    form = (await root.send("GET", "catalog/ordered")).json["form"]
    assert list(form["parameters"]["properties"]) == [*reversed(names)]


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (
            {
                "target": {
                    "group": "redis.kun",
                    "version": "v9",
                    "kind": "RedisCluster",
                    "plural": "redisclusters",
                }
            },
            "DoesNotFit",
            "v9",
        ),
        ({"render": {"spec": {"hostPID": True}}}, "DoesNotFit", "hostPID"),
        (
            {"target": {"group": "", "version": "v1", "kind": "Secret", "plural": "secrets"}},
            "DoesNotLint",
            "spec.target.group",
        ),
        ({"display": {"title": {"en": "A"}, "summary": {"en": "B", "zh": "C"}}}, "DoesNotLint", "title.zh"),
        ({"display": {}}, "DoesNotLint", "title"),
        (
            {"plans": [{"name": "a", "title": {"en": "a", "zh": "a"}, "values": {"size": 99}}]},
            "DoesNotLint",
            "plans",
        ),
        ({"parameters": {"order": ["nothing"]}}, "DoesNotLint", "order"),
    ],
)
async def test_a_template_that_is_not_usable_says_why(
    served: Cluster, change: Json, reason: str, said: str
) -> None:
    root = await served.browser(await served.console(catalog_resources=True)).signed_in(ADMIN)
    status = await ready(served, await add(served, template("broken", **change)))
    [condition] = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert said in "\n".join(status["problems"])
    assert "broken" not in await cards(root)
    problems = (await root.send("GET", "catalog")).json["problems"]
    assert problems == [f"ClusterServiceTemplate broken: {line}" for line in status["problems"]]


@pytest.mark.parametrize(
    "target",
    [
        {"group": ""},
        {"group": "apps"},
        {"group": "rbac.authorization.k8s.io"},
        {"group": "catalog.mooring.dev"},
        {"namespaced": False},
    ],
)
def test_an_entry_makes_custom_resources_in_namespaces_alone(target: Json) -> None:
    document = template("one")
    document["spec"]["target"] |= target
    spec = document["spec"]
    with pytest.raises(CatalogError, match=f"spec.target.{next(iter(target))}"):
        entry_of(StoredClusterTemplate(metadata=ObjectMeta(name="one"), spec=spec))


async def test_what_is_wrong_in_a_namespace_is_told_to_those_who_may_see_it(served: Cluster) -> None:
    url = await served.console(catalog_resources=True)
    made = template("broken", namespace="team-b", display={})
    await ready(served, await add(served, made, "team-b"))
    root = await served.browser(url).signed_in(ADMIN)
    ann = await served.browser(url).signed_in(ANN)
    assert "ServiceTemplate team-b/broken" in (await root.send("GET", "catalog")).text
    assert "broken" not in (await ann.send("GET", "catalog")).text


async def test_a_template_of_a_namespace_takes_no_others_place(served: Cluster) -> None:
    await served.console(catalog_resources=True)
    made = template("redis-sentinel", namespace="team-a", override=True)
    status = await ready(served, await add(served, made, "team-a"))
    assert "spec.override" in status["problems"][0]


async def test_templates_are_not_looked_at_unless_asked_for(served: Cluster) -> None:
    root = await served.browser(await served.console()).signed_in(ADMIN)
    await add(served, template("redis-small"))
    assert "redis-small" not in await cards(root)
    watched = [one["objectRef"]["resource"] for one in await served.audited() if one["verb"] == "watch"]
    assert not {"servicetemplates", "clusterservicetemplates"} & set(watched)


async def test_a_second_replica_leaves_a_status_that_says_so_already(served: Cluster) -> None:
    await served.console(catalog_resources=True)
    await ready(served, await add(served, template("first")))
    root = await served.browser(await served.console(catalog_resources=True)).signed_in(ADMIN)
    await add(served, template("second"))

    async def offered() -> bool:
        return "second" in await cards(root)

    # It looks at one after the other, so it is done with the first.
    await until(offered)
    written = [one["objectRef"]["name"] for one in await served.audited() if one["verb"] == "patch"]
    assert written.count("first") == 1


async def test_a_template_that_breaks_the_console_keeps_no_other_from_being_offered(
    served: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(found: Json) -> Json:
        if found.metadata.name == "bad":
            raise RuntimeError("a defect")
        return entry_of(found)

    monkeypatch.setattr("mooring.console.templates.entry_of", breaks)
    await add(served, template("bad"))
    macro = {"cel": "[1.0].all(a, a > 0.0)", "message": {"en": "a", "zh": "b"}}
    wrong = await add(served, template("macro", rules=[macro]))
    good = await add(served, template("redis-small"))
    root = await served.browser(await served.console(catalog_resources=True)).signed_in(ADMIN)
    assert "are not available" in (await ready(served, wrong))["problems"][0]
    assert (await ready(served, good))["conditions"][0]["status"] == "True"
    found = (await root.send("GET", "catalog")).json
    assert {"bad", "macro"}.isdisjoint(card["name"] for card in found["entries"])
    assert any("bad: the console cannot look at this template" in each for each in found["problems"])


async def test_the_definition_refuses_names_that_lead_elsewhere(served: Cluster) -> None:
    for wrong in ({"group": "../x.y"}, {"version": "v1/x"}, {"plural": "../x"}, {"kind": "a b"}):
        made = template("redis-small")
        made["spec"]["target"] |= wrong
        with pytest.raises(Invalid):
            await add(served, made)
