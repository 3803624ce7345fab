"""The client against a real kube-apiserver: every verb, every patch, every refusal it can get."""

from __future__ import annotations

import asyncio
import base64
import http.client
import importlib
import json
import pkgutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hack.kubernetes.controlplane import ControlPlane
from hack.kubernetes.rundir import ETCD_SOCKET

import mooring.kube.objects
from mooring.kube import (
    AlreadyExists,
    BadRequest,
    Client,
    Config,
    Conflict,
    Forbidden,
    Gone,
    HttpTransport,
    Invalid,
    JsonPatch,
    MergePatch,
    NotFound,
    Object,
    Part,
    Resource,
    StrategicMergePatch,
    TooManyRequests,
    TransportError,
    Unauthorized,
    WatchEvent,
    decode,
)
from mooring.kube.objects.apiextensions import CustomResourceDefinition
from mooring.kube.objects.apps import Deployment, DeploymentSpec, StatefulSet, StatefulSetSpec
from mooring.kube.objects.core import (
    ConfigMap,
    Container,
    Namespace,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    Secret,
    Service,
    ServiceAccount,
    ServicePort,
    ServiceSpec,
)
from mooring.kube.objects.meta import LabelSelector, ObjectMeta
from mooring.kube.objects.policy import PodDisruptionBudget, PodDisruptionBudgetSpec
from mooring.kube.quantity import same_quantity
from mooring.runtime.crd import crd, render_crd

pytestmark = pytest.mark.kubernetes

DEADLINE = 20.0


class GadgetSpec(Part, frozen=True, kw_only=True):
    size: int | None = None
    colour: str | None = None


class GadgetStatus(Part, frozen=True, kw_only=True):
    ready: int | None = None


@crd()
class Gadget(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("tests.mooring.dev", "v1", "Gadget", "gadgets")
    spec: GadgetSpec | None = None
    status: GadgetStatus | None = None


class Numbers(Object, frozen=True, kw_only=True):
    """ConfigMaps read as if every value were a number: most cannot be."""

    resource: ClassVar[Resource] = ConfigMap.resource
    data: dict[str, int] | None = None


@pytest.fixture
def config(real_kubernetes: Path) -> Config:
    return Config.load(real_kubernetes)


@pytest.fixture
async def client(config: Config) -> AsyncIterator[Client]:
    client = Client(HttpTransport(config), field_manager="alice")
    yield client
    await client.close()


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    made = await client.create(Namespace(metadata=ObjectMeta(generate_name="kube-")))
    name = made.metadata.name or ""
    await until_found(client, ServiceAccount, "default", namespace=name)
    yield name
    await client.delete(Namespace, name)


@pytest.fixture
async def gadgets(client: Client) -> None:
    await client.apply(decode(render_crd(Gadget), CustomResourceDefinition))
    end = time.monotonic() + DEADLINE
    while True:
        made = await client.get(CustomResourceDefinition, "gadgets.tests.mooring.dev")
        conditions = (made.status.conditions if made.status else None) or []
        if {"Established"} <= {c.type for c in conditions if c.status == "True"}:
            break
        assert time.monotonic() < end, "the CRD is not established"
        await asyncio.sleep(0.05)
    while True:
        try:
            async with client.watch(Gadget, timeout_seconds=1):
                return
        except TooManyRequests:  # so a server answers until its cache holds a new kind
            assert time.monotonic() < end, "watches of the new kind are not served"
            await asyncio.sleep(0.05)


async def until_found(client: Client, kind: type[Object], name: str, *, namespace: str) -> None:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            await client.get(kind, name, namespace=namespace)
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError(f"no {kind.resource.kind} {name} within {DEADLINE} s")


def config_map(name: str, namespace: str, **data: str) -> ConfigMap:
    labels = {"app": "test", "name": name}
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), data=data)


def pod(name: str, namespace: str, *, finalizers: list[str] | None = None) -> Pod:
    meta = ObjectMeta(name=name, namespace=namespace, labels={"app": "test"}, finalizers=finalizers)
    return Pod(metadata=meta, spec=pod_spec())


def pod_spec() -> PodSpec:
    needs = ResourceRequirements(requests={"cpu": "0.5", "memory": "64Mi"})
    return PodSpec(containers=[Container(name="main", image="none", resources=needs)])


async def take(
    events: AsyncIterator[WatchEvent[Any]], stop: Callable[[WatchEvent[Any]], bool]
) -> list[WatchEvent[Any]]:
    """The events up to the one that `stop` wants."""
    found = []
    async with asyncio.timeout(DEADLINE):
        async for event in events:
            found.append(event)
            if stop(event):
                return found
    raise AssertionError(f"the watch ended first: {found}")


# --- reading and creating --------------------------------------------------------------------------


async def test_create_returns_what_the_server_stored(client: Client, namespace: str) -> None:
    made = await client.create(config_map("one", namespace, key="value"))
    assert made.metadata.uid
    assert made.metadata.resource_version
    assert made == await client.get(ConfigMap, "one", namespace=namespace)


async def test_a_generated_name_is_the_servers(client: Client, namespace: str) -> None:
    made = await client.create(ConfigMap(metadata=ObjectMeta(generate_name="gen-", namespace=namespace)))
    assert (made.metadata.name or "").startswith("gen-")
    assert await client.get(ConfigMap, made.metadata.name or "", namespace=namespace) == made


async def test_a_dry_run_is_answered_and_not_stored(client: Client, namespace: str) -> None:
    assert (await client.create(config_map("dry", namespace), dry_run=True)).metadata.uid
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "dry", namespace=namespace)


async def test_list_of_a_namespace_and_of_all(client: Client, namespace: str) -> None:
    await client.create(config_map("one", namespace))
    here = await client.list(ConfigMap, namespace=namespace)
    everywhere = await client.list(ConfigMap)
    assert {"one", "kube-root-ca.crt"} >= {item.metadata.name for item in here.items}
    assert {item.metadata.namespace for item in here.items} == {namespace}
    assert {item.metadata.namespace for item in everywhere.items} > {namespace}
    assert here.resource_version
    assert here.undecodable == []


async def test_lists_select_by_label_and_by_field(client: Client, namespace: str) -> None:
    for name in ("a", "b", "c"):
        await client.create(config_map(name, namespace))
    by_label = await client.list(ConfigMap, namespace=namespace, label_selector="app=test,name notin (c)")
    by_field = await client.list(ConfigMap, namespace=namespace, field_selector="metadata.name=c")
    assert [item.metadata.name for item in by_label.items] == ["a", "b"]
    assert [item.metadata.name for item in by_field.items] == ["c"]


async def test_pages_are_of_one_moment_and_complete(client: Client, namespace: str) -> None:
    names = [f"page-{number}" for number in range(7)]
    for name in names:
        await client.create(config_map(name, namespace))
    seen: list[str | None] = []
    versions = set()
    token = ""
    while True:
        page = await client.list(
            ConfigMap, namespace=namespace, label_selector="app=test", limit=3, continue_=token
        )
        if not token:  # written between two pages: not part of what is being read
            await client.create(config_map("page-9", namespace))
        seen += [item.metadata.name for item in page.items]
        versions.add(page.resource_version)
        token = page.continue_
        if not token:
            break
    assert seen == names
    assert len(versions) == 1


async def test_a_list_from_the_cache_takes_a_version(client: Client, namespace: str) -> None:
    made = await client.create(config_map("one", namespace))
    page = await client.list(
        ConfigMap,
        namespace=namespace,
        resource_version=made.metadata.resource_version,
        resource_version_match="NotOlderThan",
    )
    assert "one" in {item.metadata.name for item in page.items}


async def test_one_object_that_does_not_fit_does_not_hide_the_others(client: Client, namespace: str) -> None:
    await client.create(config_map("bad", namespace, text="no number"))
    await client.create(ConfigMap(metadata=ObjectMeta(name="good", namespace=namespace)))
    page = await client.list(Numbers, namespace=namespace)
    assert "good" in {item.metadata.name for item in page.items}
    assert (namespace, "bad") in {entry.key for entry in page.undecodable}
    assert page.resource_version
    async with client.watch(Numbers, namespace=namespace, send_initial_events=True) as events:
        found = await take(events, lambda event: event.initial_events_end)
    bad = {event.undecodable.key.name: event for event in found if event.undecodable}
    assert bad["bad"].type == "ADDED"
    assert bad["bad"].object is None
    assert bad["bad"].resource_version


def every_kind() -> list[type[Object]]:
    modules = [
        importlib.import_module(f"mooring.kube.objects.{module.name}")
        for module in pkgutil.iter_modules(mooring.kube.objects.__path__)
    ]
    return sorted(
        {
            value
            for module in modules
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Object) and value is not Object
        },
        key=lambda kind: (kind.resource.group, kind.resource.kind),
    )


async def test_every_kind_lives_where_its_resource_says(client: Client) -> None:
    """Plural, scope and group-version of all generated kinds, against the server's own discovery."""
    served: dict[tuple[str, str], dict[str, Any]] = {}
    for api_version in sorted({kind.resource.api_version for kind in every_kind()}):
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        for entry in json.loads((await client.request("GET", root)).body)["resources"]:
            if "/" not in entry["name"]:
                served[api_version, entry["kind"]] = entry
    listed = 0
    for kind in every_kind():
        resource = kind.resource
        entry = served[resource.api_version, resource.kind]
        assert (entry["name"], entry["namespaced"]) == (resource.plural, resource.namespaced)
        if "list" in entry["verbs"]:
            page = await client.list(kind)
            assert page.undecodable == [], resource
            listed += 1
    assert listed > 30


# --- apply and patches -----------------------------------------------------------------------------


async def test_apply_creates_then_owns_exactly_what_it_says(client: Client, namespace: str) -> None:
    await client.apply(config_map("owned", namespace, one="1", two="2"))
    other = client.as_manager("bob")
    await other.patch(ConfigMap, "owned", MergePatch({"data": {"three": "3"}}), namespace=namespace)

    changed = await client.apply(config_map("owned", namespace, one="1"))
    assert changed.data == {"one": "1", "three": "3"}, "what we no longer say goes, what bob said stays"


async def test_the_same_apply_again_writes_nothing(client: Client, namespace: str) -> None:
    first = await client.apply(config_map("still", namespace, one="1"))
    again = await client.apply(config_map("still", namespace, one="1"))
    assert again.metadata.resource_version == first.metadata.resource_version


async def test_an_owned_field_is_taken_only_by_force(client: Client, namespace: str) -> None:
    await client.apply(config_map("mine", namespace, one="1"))
    bob = client.as_manager("bob")
    with pytest.raises(Conflict) as refused:
        await bob.apply(config_map("mine", namespace, one="2"), force=False)
    assert refused.value.reason == "Conflict"
    [cause] = refused.value.causes
    assert cause["reason"] == "FieldManagerConflict"
    assert cause["field"] == ".data.one"
    assert "alice" in cause["message"]

    taken = await bob.apply(config_map("mine", namespace, one="2"))
    assert taken.data == {"one": "2"}
    with pytest.raises(Conflict):
        await client.apply(config_map("mine", namespace, one="1"), force=False)


async def test_a_manager_can_be_named_for_one_call(client: Client, namespace: str) -> None:
    await client.apply(config_map("named", namespace, one="1"), field_manager="carol")
    answer = await client.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/named")
    managers = {entry["manager"] for entry in json.loads(answer.body)["metadata"]["managedFields"]}
    assert managers == {"carol"}


async def test_apply_of_a_list_by_its_keys_leaves_the_entries_of_others(
    client: Client, namespace: str
) -> None:
    def service(*ports: ServicePort) -> Service:
        meta = ObjectMeta(name="ports", namespace=namespace)
        return Service(metadata=meta, spec=ServiceSpec(selector={"app": "x"}, ports=list(ports)))

    await client.apply(service(ServicePort(name="redis", port=6379)))
    await client.as_manager("bob").apply(service(ServicePort(name="metrics", port=9121)))
    moved = await client.apply(service(ServicePort(name="redis", port=6380)))
    assert moved.spec is not None
    assert {port.name: port.port for port in moved.spec.ports or []} == {"redis": 6380, "metrics": 9121}


async def test_a_merge_patch_changes_and_deletes(client: Client, namespace: str) -> None:
    await client.create(config_map("merge", namespace, one="1", two="2"))
    patch = MergePatch({"data": {"one": None, "two": "22"}})
    changed = await client.patch(ConfigMap, "merge", patch, namespace=namespace)
    assert changed.data == {"two": "22"}


async def test_a_merge_patch_of_an_old_version_conflicts(client: Client, namespace: str) -> None:
    made = await client.create(config_map("stale", namespace, one="1"))
    patch = MergePatch(
        {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"one": "2"}}
    )
    await client.patch(ConfigMap, "stale", patch, namespace=namespace)
    with pytest.raises(Conflict) as refused:
        await client.patch(ConfigMap, "stale", patch, namespace=namespace)
    assert refused.value.details["name"] == "stale"


async def test_a_json_patch_is_all_or_nothing(client: Client, namespace: str) -> None:
    await client.create(config_map("json", namespace, one="1"))
    good = JsonPatch(
        [
            {"op": "test", "path": "/data/one", "value": "1"},
            {"op": "add", "path": "/data/two", "value": "2"},
        ]
    )
    assert (await client.patch(ConfigMap, "json", good, namespace=namespace)).data == {"one": "1", "two": "2"}
    bad = JsonPatch(
        [
            {"op": "remove", "path": "/data/two"},
            {"op": "test", "path": "/data/one", "value": "no"},
        ]
    )
    with pytest.raises(Invalid):
        await client.patch(ConfigMap, "json", bad, namespace=namespace)
    assert (await client.get(ConfigMap, "json", namespace=namespace)).data == {"one": "1", "two": "2"}


async def test_a_strategic_patch_merges_a_list_by_its_key(client: Client, namespace: str) -> None:
    await client.create(deployment("strategic", namespace))
    containers = [{"name": "main", "image": "newer"}, {"name": "side", "image": "car"}]
    patch = StrategicMergePatch({"spec": {"template": {"spec": {"containers": containers}}}})
    changed = await client.patch(Deployment, "strategic", patch, namespace=namespace)
    assert changed.spec is not None
    assert changed.spec.template is not None
    assert changed.spec.template.spec is not None
    images = {c.name: c.image for c in changed.spec.template.spec.containers or []}
    kept = next(c for c in changed.spec.template.spec.containers or [] if c.name == "main")
    assert images == {"main": "newer", "side": "car"}
    assert kept.resources is not None, "a strategic merge keeps what it does not name"


def deployment(name: str, namespace: str) -> Deployment:
    labels = {"app": name}
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=pod_spec())
    spec = DeploymentSpec(replicas=0, selector=LabelSelector(match_labels=labels), template=template)
    return Deployment(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


@pytest.mark.usefixtures("gadgets")
async def test_spec_and_status_are_written_apart(client: Client, namespace: str) -> None:
    meta = ObjectMeta(name="g", namespace=namespace)
    both = Gadget(metadata=meta, spec=GadgetSpec(size=3), status=GadgetStatus(ready=9))
    made = await client.apply(both)
    assert made.status is None
    assert made.metadata.generation == 1

    shown = await client.apply(Gadget(metadata=meta, status=GadgetStatus(ready=2)), subresource="status")
    assert shown.spec == GadgetSpec(size=3)
    assert shown.status == GadgetStatus(ready=2)
    assert shown.metadata.generation == 1

    patch = MergePatch({"spec": {"size": 99}, "status": {"ready": 3}})
    patched = await client.patch(Gadget, "g", patch, namespace=namespace, subresource="status")
    assert patched.spec == GadgetSpec(size=3)
    assert patched.status == GadgetStatus(ready=3)


@pytest.mark.usefixtures("gadgets")
async def test_an_empty_value_can_be_applied(client: Client, namespace: str) -> None:
    meta = ObjectMeta(name="zero", namespace=namespace)
    zero = await client.apply(Gadget(metadata=meta, spec=GadgetSpec(size=0, colour="")))
    assert zero.spec == GadgetSpec(size=0, colour="")


async def test_a_quantity_comes_back_as_the_server_writes_it_and_means_the_same(
    client: Client, namespace: str
) -> None:
    made = await client.create(pod("quantity", namespace))
    assert made.spec is not None
    [container] = made.spec.containers or []
    assert container.resources is not None
    requests = container.resources.requests or {}
    assert requests["cpu"] == "500m"
    assert same_quantity(requests["cpu"], "0.5")


# --- deleting --------------------------------------------------------------------------------------


async def test_delete_is_final_and_then_not_found(client: Client, namespace: str) -> None:
    await client.create(config_map("gone", namespace))
    assert await client.delete(ConfigMap, "gone", namespace=namespace) is None
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, "gone", namespace=namespace)


async def test_delete_keeps_its_preconditions(client: Client, namespace: str) -> None:
    made = await client.create(config_map("guarded", namespace))
    changed = await client.patch(
        ConfigMap, "guarded", MergePatch({"data": {"one": "1"}}), namespace=namespace
    )
    with pytest.raises(Conflict):
        await client.delete(
            ConfigMap, "guarded", namespace=namespace, uid="00000000-0000-0000-0000-000000000000"
        )
    with pytest.raises(Conflict):
        await client.delete(
            ConfigMap, "guarded", namespace=namespace, resource_version=made.metadata.resource_version
        )
    assert await client.get(ConfigMap, "guarded", namespace=namespace) == changed
    await client.delete(
        ConfigMap,
        "guarded",
        namespace=namespace,
        uid=changed.metadata.uid,
        resource_version=changed.metadata.resource_version,
    )


async def test_delete_returns_the_object_while_a_finalizer_holds_it(client: Client, namespace: str) -> None:
    await client.create(pod("held", namespace, finalizers=["tests.mooring.dev/hold"]))
    dying = await client.delete(Pod, "held", namespace=namespace, grace_period=0)
    assert dying is not None
    assert dying.metadata.deletion_timestamp
    released = MergePatch({"metadata": {"finalizers": None}})
    await client.patch(Pod, "held", released, namespace=namespace)
    with pytest.raises(NotFound):
        await client.get(Pod, "held", namespace=namespace)


async def test_orphans_keep_living(client: Client, namespace: str) -> None:
    labels = {"app": "orphan"}
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=pod_spec())
    spec = StatefulSetSpec(
        replicas=1, service_name="x", selector=LabelSelector(match_labels=labels), template=template
    )
    await client.create(StatefulSet(metadata=ObjectMeta(name="set", namespace=namespace), spec=spec))
    await until_found(client, Pod, "set-0", namespace=namespace)
    await client.delete(StatefulSet, "set", namespace=namespace, propagation="Orphan")
    end = time.monotonic() + DEADLINE
    while (await client.get(Pod, "set-0", namespace=namespace)).metadata.owner_references:
        assert time.monotonic() < end, "the pod is still owned"
        await asyncio.sleep(0.05)


# --- watching --------------------------------------------------------------------------------------


async def test_a_watch_tells_every_change_in_order(client: Client, namespace: str) -> None:
    start = (await client.list(ConfigMap, namespace=namespace)).resource_version
    async with client.watch(
        ConfigMap, namespace=namespace, label_selector="app=test", resource_version=start
    ) as events:
        made = await client.create(config_map("seen", namespace, one="1"))
        changed = await client.patch(
            ConfigMap, "seen", MergePatch({"data": {"one": "2"}}), namespace=namespace
        )
        await client.delete(ConfigMap, "seen", namespace=namespace)
        found = await take(events, lambda event: event.type == "DELETED")
    found = [event for event in found if event.type != "BOOKMARK"]
    assert [event.type for event in found] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.object for event in found[:2]] == [made, changed]
    versions = [int(event.resource_version) for event in found]
    assert versions == sorted(set(versions))


async def test_an_object_that_leaves_the_selector_is_told_as_deleted(client: Client, namespace: str) -> None:
    made = await client.create(config_map("leaves", namespace))
    async with client.watch(
        ConfigMap,
        namespace=namespace,
        label_selector="app=test",
        resource_version=made.metadata.resource_version or "",
    ) as events:
        patch = MergePatch({"metadata": {"labels": {"app": "other"}}})
        await client.patch(ConfigMap, "leaves", patch, namespace=namespace)
        [event] = await take(events, lambda event: event.type != "BOOKMARK")
    assert event.type == "DELETED"


async def test_a_watch_list_begins_with_everything_and_says_when(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(config_map(name, namespace))
    async with client.watch(
        ConfigMap, namespace=namespace, label_selector="app=test", send_initial_events=True
    ) as events:
        initial = await take(events, lambda event: event.initial_events_end)
        assert [event.type for event in initial] == ["ADDED", "ADDED", "BOOKMARK"]
        assert initial[-1].object is None
        assert initial[-1].resource_version
        await client.create(config_map("c", namespace))
        [later] = await take(events, lambda event: event.type != "BOOKMARK")
    assert later.object is not None
    assert later.object.metadata.name == "c"


async def test_a_watch_ends_quietly_after_its_time(client: Client, namespace: str) -> None:
    start = (await client.list(ConfigMap, namespace=namespace)).resource_version
    async with (
        asyncio.timeout(DEADLINE),
        client.watch(ConfigMap, namespace=namespace, resource_version=start, timeout_seconds=1) as events,
    ):
        found = [event async for event in events]
    assert {event.type for event in found} <= {"BOOKMARK", "ADDED"}


@pytest.mark.usefixtures("gadgets")
async def test_a_watch_from_a_forgotten_version_is_told_gone(client: Client) -> None:
    async with client.watch(Gadget, resource_version="1") as events:
        [event] = await take(events, lambda event: event.type == "ERROR")
    assert isinstance(event.error, Gone)
    assert event.error.reason == "Expired"


@pytest.mark.usefixtures("gadgets")
async def test_410_for_a_page_whose_moment_is_forgotten(
    client: Client, namespace: str, real_kubernetes: Path
) -> None:
    for name in ("a", "b"):
        await client.apply(Gadget(metadata=ObjectMeta(name=name, namespace=namespace)))
    page = await client.list(Gadget, limit=1)
    token = json.loads(base64.urlsafe_b64decode(page.continue_ + "=="))
    old = base64.urlsafe_b64encode(json.dumps({**token, "rv": 2}).encode()).decode().rstrip("=")
    forget_before(int(page.resource_version), real_kubernetes.parent)
    with pytest.raises(Gone) as refused:
        await client.list(Gadget, limit=1, continue_=old)
    assert refused.value.reason == "Expired"


def forget_before(revision: int, directory: Path) -> None:
    """Compact etcd, as the API server does every five minutes."""
    connection = http.client.HTTPConnection("etcd")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(DEADLINE)
    try:
        connection.sock.connect(str(directory / ETCD_SOCKET))
        connection.request("POST", "/v3/kv/compaction", json.dumps({"revision": revision}))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
    finally:
        connection.close()


async def test_closing_a_watch_half_way_leaves_the_client_usable(client: Client, namespace: str) -> None:
    for _ in range(20):
        async with client.watch(ConfigMap, send_initial_events=True) as events:
            await take(events, lambda event: True)
    assert await client.list(ConfigMap, namespace=namespace)


async def test_a_watch_whose_server_dies_raises(tmp_path: Path) -> None:
    with ControlPlane(directory=tmp_path / "run") as plane:
        doomed = Client(HttpTransport(Config.load(plane.kubeconfig)))
        try:
            async with doomed.watch(Namespace, send_initial_events=True) as events:
                await take(events, lambda event: event.initial_events_end)
                plane.state.processes["kube-apiserver"].end(signal.SIGKILL)
                with pytest.raises(TransportError):
                    await take(events, lambda event: False)
        finally:
            await doomed.close()


# --- refusals --------------------------------------------------------------------------------------


async def test_400_for_a_field_that_does_not_exist(client: Client, namespace: str) -> None:
    wrong = msgspec.to_builtins(config_map("typo", namespace)) | {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "daata": {},
    }
    path, strict = f"/api/v1/namespaces/{namespace}/configmaps", {"fieldValidation": "Strict"}
    with pytest.raises(BadRequest, match="daata"):
        await client.request("POST", path, query=strict, body=msgspec.json.encode(wrong))
    await client.create(config_map("typo", namespace))
    with pytest.raises(Invalid, match="daata"):  # a patch of it is a 422, says the server
        await client.patch(ConfigMap, "typo", MergePatch({"daata": {}}), namespace=namespace)


async def test_400_for_a_selector_that_cannot_be_read(client: Client) -> None:
    with pytest.raises(BadRequest) as refused:
        await client.list(ConfigMap, label_selector="a in (")
    assert refused.value.status == 400


async def test_401_for_a_token_nobody_knows(config: Config) -> None:
    stranger = Client(HttpTransport(replace(config, client_cert=None, client_key=None, token="stranger")))
    try:
        with pytest.raises(Unauthorized):
            await stranger.list(ConfigMap)
    finally:
        await stranger.close()


async def test_403_names_who_may_not_do_what(client: Client, config: Config, namespace: str) -> None:
    ask = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    answer = await client.request("POST", path, body=msgspec.json.encode(ask))
    token = json.loads(answer.body)["status"]["token"]
    account = Client(HttpTransport(replace(config, client_cert=None, client_key=None, token=token)))
    try:
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:default"):
            await account.list(Secret, namespace=namespace)
    finally:
        await account.close()


async def test_404_for_an_object_and_for_a_kind(client: Client, namespace: str) -> None:
    class Nothing(Object, frozen=True, kw_only=True):
        resource: ClassVar[Resource] = Resource("none.mooring.dev", "v1", "Nothing", "nothings")

    with pytest.raises(NotFound) as missing:
        await client.get(ConfigMap, "missing", namespace=namespace)
    assert missing.value.reason == "NotFound"
    assert missing.value.details["kind"] == "configmaps"
    with pytest.raises(NotFound):
        await client.list(Nothing)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2Fb", "a?b", "a#b", ""])
async def test_a_name_that_would_be_another_path_is_never_sent(client: Client, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        await client.delete(ConfigMap, name, namespace="default")
    with pytest.raises(ValueError, match="namespace"):
        await client.delete(ConfigMap, "a", namespace=name)
    if name:
        with pytest.raises(ValueError, match="namespace"):
            await client.list(ConfigMap, namespace=name)


async def test_409_for_a_name_that_is_taken(client: Client, namespace: str) -> None:
    await client.create(config_map("taken", namespace))
    with pytest.raises(AlreadyExists) as refused:
        await client.create(config_map("taken", namespace))
    assert refused.value.details["name"] == "taken"


async def test_422_names_the_field(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as refused:
        await client.create(ConfigMap(metadata=ObjectMeta(name="Not_A_Name", namespace=namespace)))
    assert refused.value.causes[0]["field"] == "metadata.name"
    await client.create(deployment("fixed", namespace))
    patch = MergePatch({"spec": {"selector": {"matchLabels": {"app": "other"}}}})
    with pytest.raises(Invalid) as immutable:
        await client.patch(Deployment, "fixed", patch, namespace=namespace)
    assert "spec.selector" in {cause["field"] for cause in immutable.value.causes}


async def test_429_while_a_budget_forbids_an_eviction(client: Client, namespace: str) -> None:
    budget = PodDisruptionBudgetSpec(min_available=1, selector=LabelSelector(match_labels={"app": "test"}))
    await client.create(
        PodDisruptionBudget(metadata=ObjectMeta(name="one", namespace=namespace), spec=budget)
    )
    await client.create(pod("evicted", namespace))
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch(
        Pod, "evicted", MergePatch({"status": running}), namespace=namespace, subresource="status"
    )
    with pytest.raises(TooManyRequests) as refused:
        await client.evict("evicted", namespace=namespace)
    assert refused.value.causes[0]["reason"] == "DisruptionBudget"


async def test_no_answer_is_a_transport_error(config: Config) -> None:
    nowhere = Client(HttpTransport(replace(config, server="https://127.0.0.1:1")))
    try:
        with pytest.raises(TransportError, match="/api/v1/configmaps"):
            await nowhere.list(ConfigMap)
    finally:
        await nowhere.close()


async def test_a_server_of_another_authority_is_not_trusted(config: Config) -> None:
    stranger = Client(HttpTransport(replace(config, ca_data=None)))
    try:
        with pytest.raises(TransportError, match=r"(?i)certificate"):
            await stranger.list(ConfigMap)
    finally:
        await stranger.close()


# --- finding the server ----------------------------------------------------------------------------


async def test_the_kubeconfig_of_the_environment_is_used(
    real_kubernetes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"/nonexistent:{real_kubernetes}")
    client = Client(HttpTransport(Config.load()))
    try:
        assert await client.get(Namespace, "default")
    finally:
        await client.close()


async def test_a_kubeconfig_may_name_files_relative_to_itself(
    real_kubernetes: Path, tmp_path: Path, config: Config
) -> None:
    assert config.ca_data
    assert config.client_cert
    assert config.client_key
    (tmp_path / "ca.crt").write_bytes(config.ca_data)
    (tmp_path / "me.crt").write_bytes(config.client_cert)
    (tmp_path / "me.key").write_bytes(config.client_key)
    written = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "nobody"}},
            {"name": "two", "context": {"cluster": "c", "user": "me", "namespace": "kube-system"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": config.server + "/", "certificate-authority": "ca.crt"}}
        ],
        "users": [
            {"name": "nobody", "user": {}},
            {"name": "me", "user": {"client-certificate": "me.crt", "client-key": "me.key"}},
        ],
    }
    (tmp_path / "config").write_text(json.dumps(written))
    chosen = Config.load(tmp_path / "config", "two")
    assert chosen.namespace == "kube-system"
    client = Client(HttpTransport(chosen))
    anonymous = Client(HttpTransport(Config.load(tmp_path / "config")))
    try:
        assert await client.get(Namespace, "default")
        with pytest.raises(Forbidden, match="system:anonymous"):
            await anonymous.get(Namespace, "default")
    finally:
        await client.close()
        await anonymous.close()
