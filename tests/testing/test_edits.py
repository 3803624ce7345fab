"""Edits that a schema suggests: what is made of them, and that the Redis sentinel operator follows each."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

import pytest
from bench.campaign import WORKLOADS
from bench.redis_model import in_memory, monitors

from mooring.actor import Actor, Context, Outcome, run_actor
from mooring.kube import AlreadyExists, Key, MergePatch, NotFound, Object, Part, Resource, owner_reference
from mooring.kube.objects.apps import Deployment, DeploymentSpec
from mooring.kube.objects.core import ConfigMap, Container, PodSpec, PodTemplateSpec
from mooring.kube.objects.meta import Condition, LabelSelector, ObjectMeta
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.workload.pods import ROLE
from mooring.runtime import Controller, Done, Manager, Result, crd
from mooring.runtime.crd import F
from mooring.testing.edits import Edit, Report, edits_of, explore, sample
from mooring.testing.redis import manifest
from mooring.testing.workload import Workload

JsonObject = dict[str, Any]


# --- RedisCluster

#: Valid values that only somebody who knows the field can give.
KNOWN: Final[dict[str, list[Any]]] = {
    "image": ["redis:7.2", "redis", "redis 7"],
    "imagePullPolicy": ["Always", "Never"],
    "imagePullSecrets": [[{"name": "registry"}], []],
    "command": [["redis-server", "--loglevel", "verbose"]],
    "config": [
        {"maxmemory": "100mb"},
        {"maxmemory-policy": "nonsense"},
        {"tcp-backlog": "64"},
        {"requirepass": "x"},
        {"no-such-key": "1"},
        {"hz": "5000"},
        {"min-slaves-to-write": "0"},
    ],
    # Not memory: maxmemory follows it in new clusters alone, on purpose.
    "resources.limits": [{"cpu": "1"}, {}],
    "resources.requests": [{"memory": "32Mi", "cpu": "20m"}],
    "resources.claims": [],
    "sentinel.image": ["redis:7.2"],
    "sentinel.imagePullPolicy": ["Always"],
    "sentinel.customConfig": [["down-after-milliseconds 3000"], ["nonsense 1"], ["quorum"], []],
    "sentinel.replicas": [0, 3, 5],
    "sentinel.resources": [{"limits": {"memory": "64Mi"}}],
    "sentinel.command": [],
    # Turned on and off on real servers (tests/embedded/test_redis_tls.py): those of the model have one port each.
    "tls.enabled": [],
    "tls.plainPorts": [],
    "shutdownConfigMap": ["not-there"],
    "passwordSecret": [{"name": "not-there"}],
    "password": ["mooring", "m" * 48],
    "passwordGraceSeconds": [0, 604800],
    "size": [3, 5, 10],
}


#: Entries of the cluster's Secret that stay once they were needed.
_OWN: Final = re.compile(r"previous|mooring-.*|exporter\.json|users\..*")


def declared(resource: str, obj: JsonObject) -> JsonObject:
    """An object without what tells how a cluster came to be as it is: who leads, and since when."""
    if resource == "pods":
        labels = {name: value for name, value in obj["metadata"]["labels"].items() if name != ROLE}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}}
    if resource == "redisclusters.redis.kun":
        conditions = (obj.get("status") or {}).get("conditions") or []
        ready = {one["type"]: one["status"] for one in conditions if one["type"] in ("Ready", "Stalled")}
        return {**obj, "status": {"conditions": ready}}
    if (
        resource == "secrets"
    ):  # the password before may be needed once more, and accounts stay with their passwords
        kept = {name: text for name, text in obj["data"].items() if not _OWN.fullmatch(name)}
        return {**obj, "data": kept}
    if resource == "networkpolicies.networking.k8s.io":
        return {"metadata": {"name": obj["metadata"]["name"]}, "spec": obj["spec"]}
    if resource == "statefulsets.apps":
        return {name: value for name, value in obj.items() if name != "status"}
    if obj["metadata"]["name"].startswith("redis-live-"):  # what was set once is set back, not left out
        text = obj["data"]["live.conf"].replace('maxmemory "0"\n', "")
        return {**obj, "data": {"live.conf": text}}
    if obj["metadata"]["name"].startswith("redis-lineage-"):
        return {"metadata": obj["metadata"]}
    return obj


def redis() -> Workload:
    return replace(
        WORKLOADS["sentinel-create"](), compared=declared, monitors=monitors(), secrets=("m" * 48,)
    )


async def explored(edits: list[Edit], *, at_once: int = 20) -> Report:
    report = Report()
    with in_memory():
        for first in range(0, len(edits), at_once):
            document = manifest("demo", persistence=False)
            report.add(await explore(redis(), document, edits[first : first + at_once]))
    return report


async def test_the_sentinel_operator_follows_or_answers_edits_of_every_kind() -> None:
    edits = edits_of(RedisCluster, values=KNOWN)
    chosen = sample([one for one in edits if one.valid], seed=2, most=7) + sample(
        [one for one in edits if not one.valid], seed=2, most=12
    )

    report = await explored(chosen)

    assert report.findings == []
    assert report.refused >= 12


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_the_sentinel_operator_follows_or_answers_every_edit() -> None:
    report = await explored(edits_of(RedisCluster, values=KNOWN))

    assert report.findings == []
    assert report.edits > 120


# --- a kind and an operator of its own


class Spec(Part, frozen=True, kw_only=True):
    size: Annotated[int | None, F("How many.", minimum=1, maximum=3)] = None
    mode: Annotated[str | None, F("Which.", enum=("fast", "safe"))] = None
    title: Annotated[str | None, F("What.", max_length=5)] = None


class Status(Part, frozen=True, kw_only=True):
    size: int | None = None


@crd()
class Shelf(Object, frozen=True, kw_only=True):
    """Wants a ConfigMap that says what it is."""

    resource: ClassVar[Resource] = Resource("campaign.example.com", "v1", "Shelf", "shelves")
    spec: Spec | None = None
    status: Status | None = None


SHELF: Final = {
    "apiVersion": "campaign.example.com/v1",
    "kind": "Shelf",
    "metadata": {"name": "s", "namespace": "default"},
    "spec": {"size": 2},
}


class Shelves:
    """Applies what is declared; as it stands, it is sound."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.shelves = manager.informers.of(Shelf)
        manager.add(Controller("shelves", self.one_pass).watch(self.shelves))

    async def one_pass(self, key: Key) -> Result:
        shelf = self.shelves.get(key)
        if shelf is not None:
            meta = ObjectMeta(name="shelf", namespace="default", owner_references=[owner_reference(shelf)])
            await self.write(ConfigMap(metadata=meta, data=self.data(shelf.spec or Spec())))
        return Done()

    def data(self, spec: Spec) -> dict[str, str]:
        given = {"size": spec.size, "mode": spec.mode, "title": spec.title}
        return {name: str(value) for name, value in given.items() if value is not None}

    async def write(self, wanted: ConfigMap) -> None:
        await self.client.apply(wanted)


class NeverTakesBack(Shelves):
    """Adds what is declared, and leaves what no longer is."""

    async def write(self, wanted: ConfigMap) -> None:
        try:
            await self.client.patch(
                ConfigMap, "shelf", MergePatch({"data": wanted.data}), namespace="default"
            )
        except NotFound:
            await self.client.create(wanted)


class OnlyBegins(Shelves):
    """Follows its declaration when it makes the child, and never again."""

    async def write(self, wanted: ConfigMap) -> None:
        with suppress(AlreadyExists):
            await self.client.create(wanted)


class Stumbles(Shelves):
    """Knows one of two modes."""

    def data(self, spec: Spec) -> dict[str, str]:
        words = {None: "0", "fast": "1"}
        return {**super().data(spec), "mode": words[spec.mode]}


def shelves(operator: type[Shelves]) -> Workload:
    return Workload(name="shelves", kinds=(Shelf,), operator=operator, steps=(), controllers=False)


def test_a_schema_suggests_values_at_its_bounds_and_beyond() -> None:
    said = {(".".join(one.path), repr(one.value), one.valid) for one in edits_of(Shelf)}

    assert {("size", "1", True), ("size", "3", True), ("size", "0", False), ("size", "4", False)} <= said
    assert {("mode", "'fast'", True), ("mode", "'safe'", True), ("title", "'mmmmmm'", False)} <= said
    known = edits_of(Shelf, values={"title": ["short"], "size": []})
    assert [one.value for one in known if one.valid] == ["fast", "safe", "short"]


def test_an_edit_is_taken_back_to_what_was_there() -> None:
    spec = {"a": {"b": "old"}, "map": {"kept": "1"}}

    assert Edit(("a", "b"), "new").undone(spec) == {"a": {"b": "old"}}
    assert Edit(("c", "d"), "new").undone(spec) == {"c": None}
    assert Edit(("map",), {"new": "1"}).undone(spec) == {"map": {"new": None, "kept": "1"}}
    assert Edit(("a", "c"), "new").applied(spec) == {"a": {"b": "old", "c": "new"}, "map": {"kept": "1"}}


async def test_a_sound_operator_follows_every_edit() -> None:
    report = await explore(shelves(Shelves), SHELF, edits_of(Shelf))

    assert report.findings == []
    assert (report.edits, report.refused, report.followed) == (13, 7, 6)


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        (
            NeverTakesBack,
            "mode = 'fast': configmaps default/shelf: data.mode is 'fast', not 'nothing' once it is taken",
        ),
        (OnlyBegins, "size = 3: configmaps default/shelf: data.size is '2', not '3' as one created so"),
        (Stumbles, "panicked"),
    ],
)
async def test_a_bug_planted_in_an_operator_shows_in_an_edit(operator: type[Shelves], says: str) -> None:
    report = await explore(shelves(operator), SHELF, edits_of(Shelf))

    assert any(says in one for one in report.findings), report.findings


# --- an operator with a Deployment


class SiteStatus(Part, frozen=True, kw_only=True):
    observed_generation: int | None = None
    conditions: list[Condition] | None = None


@crd()
class Site(Object, frozen=True, kw_only=True):
    """Wants a web server."""

    resource: ClassVar[Resource] = Resource("campaign.example.com", "v1", "Site", "sites")
    spec: Spec | None = None
    status: SiteStatus | None = None


class SiteActor(Actor[Site]):
    kind = Site
    name = "site"
    owns = (Deployment,)

    async def observe(self, ctx: Context[Site]) -> Outcome:
        labels, spec = {"site": ctx.key.name}, ctx.obj.spec or Spec()
        web = Container(name="web", image=f"nginx:{spec.mode or 'plain'}")
        pod = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[web]))
        selector = LabelSelector(match_labels=labels)
        wanted = Deployment(
            metadata=ObjectMeta(name=ctx.key.name, labels=labels),
            spec=DeploymentSpec(replicas=spec.size, selector=selector, template=pod),
        )
        if drift := ctx.children.diff([wanted]):
            return ctx.act("ApplyDeployment", ctx.children.apply, drift)
        return ctx.in_sync()


async def test_the_past_that_a_deployment_keeps_is_no_finding() -> None:
    workload = Workload(
        name="site", kinds=(Site,), operator=lambda manager: run_actor(SiteActor(), manager), steps=()
    )
    document = {**SHELF, "kind": "Site"}

    report = await explore(workload, document, edits_of(Site, values={"title": []}))

    assert report.findings == []
    assert report.followed >= 4, "two sizes and two modes, each a template of its own"
