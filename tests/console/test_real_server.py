"""The console on a real kube-apiserver: what is asked of it there has the answers that the pages count on."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from tests.console.bed import CRDS, REDIS, SECRET, Browser, Json, bound

from mooring.catalog import defaults, diff, json_patch, packaged
from mooring.console import Console, ConsoleOptions, Upstream
from mooring.diagnosis import diagnose, gather
from mooring.kube import AlreadyExists, Client, Config, Conflict, HttpTransport, Resource
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.registry import OPERATORS
from mooring.runtime import render_crd

pytestmark = pytest.mark.kubernetes

DEFINITIONS = Path(__file__).parents[1] / "catalog" / "definitions"
_numbers = itertools.count()
MERGE = "application/merge-patch+json"


class Real:
    """A signed-in browser of a console, the administrator's client, and a namespace of its own."""

    def __init__(self, browser: Browser, admin: Client, namespace: str) -> None:
        self.browser = browser
        self.admin = admin
        self.namespace = namespace
        self.one = f"namespaces/{namespace}/instances/redis-sentinel/cache"
        self.live = REDIS.format(namespace) + "/cache"

    async def patch(self, path: str, body: Json) -> None:
        await self.admin.request("PATCH", path, body=json.dumps(body).encode(), content_type=MERGE)

    async def read(self, path: str) -> Json:
        return json.loads((await self.admin.request("GET", path)).body)


def established(definition: Json) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@pytest.fixture
async def real(real_kubernetes: Path) -> AsyncIterator[Real]:
    config = Config.from_kubeconfig(real_kubernetes)
    admin = Client(HttpTransport(config))
    definitions = [render_crd(kind) for operator in OPERATORS.values() for kind in operator.kinds]
    definitions += [yaml.safe_load(path.read_text()) for path in sorted(DEFINITIONS.glob("*.yaml"))]
    for definition in definitions:
        with suppress(AlreadyExists):
            await admin.request("POST", CRDS, body=json.dumps(definition).encode())
        path = f"{CRDS}/{definition['metadata']['name']}"
        async with asyncio.timeout(20):
            while not established(json.loads((await admin.request("GET", path)).body)):
                await asyncio.sleep(0.05)
    namespace = f"console-{next(_numbers)}"
    await admin.create(Namespace(metadata=ObjectMeta(name=namespace)))
    console = Console(
        Upstream.of(config), ConsoleOptions(entries={entry.name: entry for entry in packaged()})
    )
    sock = bound()
    await console.start(sock)
    browser = Browser(f"http://127.0.0.1:{sock.getsockname()[1]}")
    try:
        async with browser.http.get(console.link, allow_redirects=False) as answer:
            assert answer.status == 303
        browser.csrf = (await browser.ok("GET", "session"))["csrf"]
        yield Real(browser, admin, namespace)
    finally:
        await browser.http.close()
        await console.stop()
        await admin.request("DELETE", f"/api/v1/namespaces/{namespace}")
        await admin.close()


async def made(real: Real) -> None:
    body = {
        "apiVersion": "redis.kun/v1beta1",
        "kind": "RedisCluster",
        "metadata": {"name": "cache"},
        "spec": {"size": 3, "image": "redis:7.0", "password": SECRET},
    }
    await real.admin.request("POST", REDIS.format(real.namespace), body=json.dumps(body).encode())


async def test_an_edit_sends_what_changed_and_a_conflict_is_told(real: Real) -> None:
    await made(real)
    form = await real.browser.ok("GET", real.one + "/form")
    body = {"base": form["base"], "values": {"size": 5}}
    review = await real.browser.ok("PATCH", real.one + "?dryRun=true", body)
    assert [change["path"] for change in review["changes"]] == ["spec.size"]
    assert (await real.read(real.live))["spec"]["size"] == 3
    # A status written meanwhile changes the version, and is no conflict.
    await real.patch(real.live + "/status", {"status": {"observedGeneration": 1}})
    await real.browser.ok("PATCH", real.one, body)
    live = await real.read(real.live)
    assert (live["spec"]["size"], live["spec"]["password"]) == (5, SECRET)
    owned = [
        one["fieldsV1"] for one in live["metadata"]["managedFields"] if one["manager"] == "mooring-console"
    ]
    assert owned == [{"f:spec": {"f:size": {}}}]
    await real.patch(real.live, {"spec": {"size": 7}})
    status, problem, text = await real.browser.send(
        "PATCH", real.one, {"base": form["base"], "values": {"size": 9}}
    )
    assert (status, problem["code"], problem["both"]) == (409, "Changed", ["spec.size"])
    assert SECRET not in text
    assert (await real.read(real.live))["spec"]["size"] == 7


async def test_a_patch_of_an_older_version_is_a_conflict(real: Real) -> None:
    await made(real)
    old = (await real.read(real.live))["metadata"]["resourceVersion"]
    await real.patch(real.live, {"spec": {"size": 4}})
    entry = next(entry for entry in packaged() if entry.name == "redis-sentinel")
    operations = json_patch(diff({"spec": {"size": 3}}, {"spec": {"size": 5}}), resource_version=old)
    path = entry.spec.target.resource.path(namespace=real.namespace, name="cache")
    with pytest.raises(Conflict):
        await real.admin.request(
            "PATCH", path, body=json.dumps(operations).encode(), content_type="application/json-patch+json"
        )
    assert (await real.read(real.live))["spec"]["size"] == 4


async def test_actions_and_the_diagnosis(real: Real) -> None:
    await made(real)
    uid = (await real.read(real.live))["metadata"]["uid"]
    await real.browser.ok("POST", real.one + "/actions/pause", {"uid": uid})
    assert (await real.read(real.live))["metadata"]["annotations"] == {"mooring.dev/pause": "true"}
    await real.browser.ok("POST", real.one + "/actions/resume", {"uid": uid})
    assert (await real.browser.ok("GET", real.one + "/diagnosis"))["diagnosis"]["code"] == "NoOperator"
    assert (await real.browser.ok("GET", real.one.replace("cache", "none") + "/diagnosis"))["diagnosis"][
        "code"
    ] == "NotFound"
    kind = Resource("x.example", "v1", "X", "xs", True)
    found = diagnose(await gather(real.admin, kind, namespace=real.namespace, name="a"))
    assert found is not None
    assert found.code == "DefinitionMissing"
    operators = await real.browser.ok("GET", "operators")
    assert {"entry": "redis-sentinel", "namespace": real.namespace, "name": "cache"} in operators["orphans"]


@pytest.mark.parametrize("entry", [entry.name for entry in packaged()])
async def test_every_entry_is_accepted_with_its_defaults(real: Real, entry: str) -> None:
    found = next(one for one in packaged() if one.name == entry)
    values = {**dict.fromkeys(found.spec.parameters.required, "one"), **defaults(found)}
    values |= {name: "one" for name in ("cluster", "claim") if name in found.parameters}
    body = {"entry": entry, "name": "one", "values": values}
    answer = await real.browser.ok("POST", f"namespaces/{real.namespace}/instances?dryRun=true", body)
    assert answer["warnings"] == []
