"""Everything that goes to a user with rights in two namespaces, read word by word; and what the audit log says of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.bed import ADMIN, ANN, CRDS, VALUES
from tests.console.served import HOST, Browser, Cluster, cluster
from tests.console.test_templates import ready, template

from mooring.catalog import KINDS
from mooring.console.settings import Proxy
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import render_crd

#: Words of what Ann has no rights to.
HIDDEN = ("zz-hidden", "zz-instance", "zz-event", "zz-pod", "zz-template", "zz-lease", "zz-secret")
ONE = "namespaces/{}/instances/redis-sentinel/{}"
Json = Any


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
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]},
        ]
        await made.post(f"/apis/{api}/v1/clusterroles", {"metadata": {"name": "more"}, "rules": rules})
        role = {"apiGroup": api, "kind": "ClusterRole", "name": "more"}
        subjects = [{"apiGroup": api, "kind": "User", "name": "console"}]
        body = {"metadata": {"name": "more"}, "roleRef": role, "subjects": subjects}
        await made.post(f"/apis/{api}/v1/clusterrolebindings", body)
        await made.admin.create(Namespace(metadata=ObjectMeta(name="zz-hidden")))
        await fill(made, "zz-hidden", "zz-instance", "zz-event", "zz-pod")
        await fill(made, "team-a", "seen-a", "event-a", "pod-a")
        await fill(made, "team-b", "seen-b", "event-b", "pod-b")
        place = "/apis/catalog.mooring.dev/v1alpha1/namespaces/zz-hidden/servicetemplates"
        await made.post(place, template("zz-template", namespace="zz-hidden"))
        # A private operator, and one for all: everybody may know of that one, but not where it is.
        for scope in ("namespaced", "all"):
            metadata = {"name": f"mooring-redis-sentinel-{scope}"}
            lease = {"metadata": metadata, "spec": {"holderIdentity": "zz-lease"}}
            await made.post("/apis/coordination.k8s.io/v1/namespaces/zz-hidden/leases", lease)
        yield made


async def fill(served: Cluster, namespace: str, name: str, event: str, pod: str) -> None:
    """An instance with an event, a pod and a Secret."""
    await served.redis(namespace, name, size=3, image="redis:7.0", password="zz-secret")
    involved = {
        "apiVersion": "redis.kun/v1beta1",
        "kind": "RedisCluster",
        "namespace": namespace,
        "name": name,
    }
    body = {"metadata": {"name": event}, "involvedObject": involved, "reason": "Seen", "message": event}
    await served.post(f"/api/v1/namespaces/{namespace}/events", body)
    place = f"/apis/redis.kun/v1beta1/namespaces/{namespace}/redisclusters/{name}"
    uid = json.loads((await served.admin.request("GET", place)).body)["metadata"]["uid"]
    owner = {"apiVersion": "redis.kun/v1beta1", "kind": "RedisCluster", "name": name, "uid": uid}
    made = {
        "metadata": {"name": pod, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "redis", "image": "redis:7.0"}]},
    }
    await served.post(f"/api/v1/namespaces/{namespace}/pods", made)


async def rights(served: Cluster, verbs: list[str], *, user: str) -> None:
    """Rights in two namespaces."""
    for namespace in ("team-a", "team-b"):
        await served.grant(namespace, verbs, user=user)
        for resource in ("events", "pods"):
            await served.grant(namespace, ["get", "list", "watch"], user=user, resource=resource)


async def every_answer(browser: Browser, *, name: str, namespace: str) -> None:
    """Ask for everything that there is to ask for, about one instance too."""
    one = ONE.format(namespace, name)
    asked = [
        *(
            "session",
            "signin",
            "openapi.json",
            "catalog",
            "catalog/redis-sentinel",
            "namespaces",
            "operators",
        ),
        *("instances", f"instances?namespace={namespace}"),
        f"instances?entry=redis-sentinel&namespace={namespace}&name={name}",
        f"permissions?entry=redis-sentinel&namespace={namespace}",
        *(one, f"{one}/events", f"{one}/form", f"{one}/diagnosis", f"{one}/actions", f"{one}/pods"),
        f"{one}/pods/pod-a/log",
        *("catalog/crd-redisclusters.redis.kun", "nothing", f"{one}/nothing"),
    ]
    for path in asked:
        await browser.send("GET", path)


async def streamed(browser: Browser, path: str, act: Any) -> str:
    """What a stream says before and after something happens, up to a change of what may be seen."""
    headers = {"Host": HOST, "Cookie": "; ".join(f"{k}={v}" for k, v in browser.cookies.items())}
    text = ""
    async with (
        asyncio.timeout(20),
        browser.http.get(f"{browser.url}/api/v1/{path}", headers=headers) as answer,
    ):
        assert answer.status == 200
        await act()
        while '"name":"last"' not in text:
            text += (await answer.content.readany()).decode()
    return text


async def test_nothing_of_other_namespaces_is_in_any_answer(served: Cluster) -> None:
    url = await served.console(catalog_resources=True)
    place = "/apis/catalog.mooring.dev/v1alpha1/namespaces/zz-hidden/servicetemplates/zz-template"
    await ready(served, place)
    await rights(served, ["get", "list", "watch"], user="ann")
    ann = await served.browser(url).signed_in(ANN)
    for namespace, name in (("team-a", "seen-a"), ("team-b", "seen-b")):
        await every_answer(ann, namespace=namespace, name=name)
    # What she has rights to is there, or this proves nothing.
    shown = "".join(ann.seen)
    for word in ("seen-a", "seen-b", "event-a", "event-b", "pod-a", "pod-b"):
        assert word in shown, word

    async def act() -> None:
        await fill(served, "zz-hidden", "zz-instance-2", "zz-event-2", "zz-pod-2")
        await served.redis("team-a", "last", size=3)

    for path in ("stream", "stream?namespace=team-a", "stream?entry=redis-sentinel"):
        ann.seen.append(await streamed(ann, path, act))
        await served.admin.request("DELETE", "/apis/redis.kun/v1beta1/namespaces/team-a/redisclusters/last")
        for kind, name in (("pods", "zz-pod-2"), ("events", "zz-event-2")):
            await served.admin.request("DELETE", f"/api/v1/namespaces/zz-hidden/{kind}/{name}")
        hidden = "/apis/redis.kun/v1beta1/namespaces/zz-hidden/redisclusters/zz-instance-2"
        await served.admin.request("DELETE", hidden)
    for word in HIDDEN:
        found = [text for text in ann.seen if word in text]
        assert found == [], word

    # The same of the administrator has all of it but the secret: the words are those that would be there.
    root = await served.browser(url).signed_in(ADMIN)
    await every_answer(root, namespace="zz-hidden", name="zz-instance")
    shown = "".join(root.seen)
    assert {word for word in HIDDEN if word in shown} >= {"zz-hidden", "zz-instance", "zz-event", "zz-pod"}
    assert "zz-secret" not in shown


async def test_asking_for_another_namespace_by_name_tells_nothing(served: Cluster) -> None:
    url = await served.console(catalog_resources=True)
    await rights(served, ["get", "list", "watch"], user="ann")
    ann = await served.browser(url).signed_in(ANN)
    ann.seen.clear()
    await every_answer(ann, namespace="zz-hidden", name="zz-instance")
    there = len(ann.seen)
    await every_answer(ann, namespace="zz-nowhere", name="zz-instance")
    # What is there and what is not are told apart by nothing but the names that she gave.
    for one, other in zip(ann.seen[:there], ann.seen[there:], strict=True):
        assert _plain(one) == _plain(other).replace("zz-nowhere", "zz-hidden")
    for there_or_not in ("zz-template", "zz-nothing"):
        reply = await ann.send("GET", f"catalog/zz-hidden:{there_or_not}")
        assert (reply.status, reply.json["code"]) == (404, "NoSuchEntry")
    for word in ("zz-event", "zz-pod", "zz-secret", "zz-lease"):
        assert word not in "".join(ann.seen)


def _plain(text: str) -> str:
    found = json.loads(text) if text.startswith("{") else text
    if isinstance(found, dict):
        found.pop("requestId", None)
    return json.dumps(found, sort_keys=True)


@pytest.mark.parametrize("via", ["token", "proxy"])
async def test_a_viewers_changes_are_403_whatever_the_page_shows(
    served: Cluster, tmp_path: Path, via: str
) -> None:
    viewer = await _signed_in(served, tmp_path, via)
    one = ONE.format("team-a", "seen-a")
    begun = (await viewer.send("GET", f"{one}/form")).json
    actions = (await viewer.send("GET", f"{one}/actions")).json["actions"]
    possible = next(one["name"] for one in actions if one["possible"] and not one["field"])
    calls = [
        ("POST", "namespaces/team-a/instances", {"entry": "redis-sentinel", "name": "new", "values": VALUES}),
        (
            "POST",
            "namespaces/team-a/instances?dryRun=true",
            {"entry": "redis-sentinel", "name": "new", "values": VALUES},
        ),
        ("PATCH", one, {"base": begun["base"], "values": {"size": 5}}),
        ("PATCH", f"{one}?dryRun=true", {"base": begun["base"], "values": {"size": 5}}),
        ("POST", f"{one}/actions/{possible}", {"uid": begun["base"]["uid"]}),
        ("DELETE", f"{one}?uid={begun['base']['uid']}", None),
    ]
    before = await _stored(served)
    for method, path, body in calls:
        reply = await viewer.send(method, path, body)
        assert (reply.status, reply.json["code"]) == (403, "Forbidden"), (method, path, reply.text)
    assert await _stored(served) == before


async def _signed_in(served: Cluster, tmp_path: Path, via: str) -> Browser:
    """Ann as a viewer, by her token or by a proxy's word."""
    await rights(served, ["get", "list", "watch"], user="ann")
    secret = tmp_path / "secret"
    secret.write_text("between")
    url = await served.console(impersonate=True, proxy=Proxy(secret_file=str(secret)))
    if via == "token":
        return await served.browser(url).signed_in(ANN)
    return await served.browser(url, X_Forwarded_User="ann", X_Mooring_Proxy_Secret="between").signed_in()


async def _stored(served: Cluster) -> Json:
    found = await served.admin.request("GET", "/apis/redis.kun/v1beta1/redisclusters")
    return json.loads(found.body)["items"]


@pytest.mark.parametrize("via", ["token", "proxy"])
async def test_the_audit_log_shows_the_user_and_not_the_console(
    served: Cluster, tmp_path: Path, via: str
) -> None:
    ann = await _signed_in(served, tmp_path, via)
    await served.grant("team-a", ["create", "patch", "delete"], group="system:authenticated")
    body = {"entry": "redis-sentinel", "name": "new", "values": VALUES}
    assert (await ann.send("POST", "namespaces/team-a/instances", body)).status == 201
    one = ONE.format("team-a", "new")
    begun = (await ann.send("GET", f"{one}/form")).json
    edit = {"base": begun["base"], "values": {"size": 5}}
    assert (await ann.send("PATCH", one, edit)).status == 200
    assert (await ann.send("DELETE", f"{one}?uid={begun['base']['uid']}")).status == 202
    events = [
        event
        for event in await served.audited()
        if event["objectRef"].get("resource") == "redisclusters" and event["objectRef"].get("name") == "new"
    ]
    assert {event["verb"] for event in events} >= {"create", "get", "patch", "delete"}
    acted = {event.get("impersonatedUser", event["user"])["username"] for event in events}
    assert acted == {"ann"}
    if via == "token":
        assert not any("impersonatedUser" in event for event in events)
    # The console itself reads lists alone, and writes nothing but what it records of users.
    own = [
        event
        for event in await served.audited()
        if event["user"]["username"] == "console" and "impersonatedUser" not in event
    ]
    reviews = ("selfsubjectaccessreviews", "selfsubjectreviews")
    asked = {(event["verb"], event["objectRef"].get("resource")) for event in own}
    written = {(verb, resource) for verb, resource in asked if verb not in ("list", "watch", "get")}
    assert {one for one in written if one[1] not in reviews} <= {("create", "events")}
