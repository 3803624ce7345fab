"""Custom resources of two versions with a conversion webhook: the same answers as a real server's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.conformance.comparing import Server, Step, run
from tests.conformance.converter import Converter, converting
from tests.conformance.scenarios import CRDS, MERGE, apply, delete, get, patch, post, put
from tests.conformance.test_requests import embedded, namespace, real

__all__ = ["embedded", "namespace", "real"]

pytestmark = pytest.mark.kubernetes

Json = Any

V1 = "/apis/{ns}.example.com/v1/namespaces/{ns}/disks"
V2 = "/apis/{ns}.example.com/v2/namespaces/{ns}/disks"
CRD = CRDS + "/disks.{ns}.example.com"


@pytest.fixture(scope="module")
def converter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converter]:
    with converting(tmp_path_factory.mktemp("converter")) as started:
        yield started


def version(name: str, size: Json, **options: Any) -> Json:
    spec = {"type": "object", "properties": {"size": size, "note": {"type": "string"}}}
    status = {"type": "object", "properties": {"used": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {
        "name": name,
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        **options,
    }


def definition(conversion: Json = None, *, storage: str = "v1") -> Json:
    pair = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "unit": {"type": "string", "default": "Gi"}},
    }
    versions = [
        version("v1", {"type": "string"}, storage=storage == "v1"),
        version("v2", pair, storage=storage == "v2"),
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "disks.{ns}.example.com"},
        "spec": {
            "group": "{ns}.example.com",
            "scope": "Namespaced",
            "names": {"plural": "disks", "singular": "disk", "kind": "Disk", "listKind": "DiskList"},
            "versions": versions,
            **({"conversion": conversion} if conversion else {}),
        },
    }


def disk(number: int, spec: Json, name: str = "d", **meta: Any) -> Json:
    api_version = f"{{ns}}.example.com/v{number}"
    return {"apiVersion": api_version, "kind": "Disk", "metadata": {"name": name, **meta}, "spec": spec}


def one(size: str, **rest: Any) -> Json:
    return disk(1, {"size": size}, **rest)


def two(value: int, unit: str = "Gi", **rest: Any) -> Json:
    return disk(2, {"size": {"value": value, "unit": unit}}, **rest)


SCENARIOS: dict[str, list[Step]] = {
        "each version shows every object": [
            post(V1, one("3Gi", name="a")),
            post(V2, two(5, "Mi", name="b")),
            get(V1 + "/b"),
            get(V2 + "/a"),
            get(V1),
            get(V2),
            get(V2 + "?resourceVersion=0"),
            put(V2 + "/a", two(4, name="a")),
            get(V1 + "/a"),
            patch(V1 + "/b", {"spec": {"size": "9Ti"}}, MERGE),
            get(V2 + "/b"),
            patch(V2 + "/b/status", {"status": {"used": "1"}}, MERGE),
            get(V1 + "/b/status"),
            delete(V2 + "/a"),
            delete(V2),
            get(V1, until=200),
        ],
        "a watch shows the version it asks for": [
            post(V1, one("3Gi", name="a")),
            post(V2, two(5, "Mi", name="b")),
            patch(V1 + "/a", {"spec": {"size": "4Gi"}}, MERGE),
            delete(V1 + "/b"),
            get(V2 + "?watch=1&resourceVersion={rv:0}&timeoutSeconds=2"),
        ],
        "what a version leaves out has that version's default": [
            post(V2, disk(2, {"size": {"value": 7}})),
            get(V1 + "/d"),
        ],
        "managers of two versions": [
            apply(V1 + "/d", one("3Gi"), "first"),
            apply(V2 + "/d", two(3), "second"),
            apply(V2 + "/d", two(4), "second"),
            apply(V2 + "/d", two(4), "second", force=True),
            apply(V1 + "/d", disk(1, {"note": "n"}), "first"),
            apply(V2 + "/d", disk(2, {"note": "n"}), "first"),
            apply(V1 + "/d", disk(1, {}), "first"),
            apply(V2 + "/d", disk(2, {}), "second"),
            patch(V1 + "/d", {"spec": {"size": "8Gi"}}, MERGE),
            patch(V2 + "/d", {"spec": {"size": {"value": 9}}}, MERGE),
            get(V2 + "/d"),
        ],
        "an applier changes its version": [
            apply(V1 + "/d", disk(1, {"size": "3Gi", "note": "n"}), "one"),
            apply(V2 + "/d", two(3), "one"),
            apply(V1 + "/d", disk(1, {"note": "m"}), "one"),
            get(V1 + "/d"),
        ],
        "the storage version changes": [
            post(V1, one("3Gi", name="a")),
            patch(CRD, definition(storage="v2"), MERGE, quiet=True),
            get(CRD, ignore=("spec", "metadata")),
            post(V1, one("4Gi", name="b")),
            get(V1 + "/a"),
            get(V2 + "/a"),
            put(V1 + "/a", one("3Gi", name="a"), ignore=("metadata.managedFields",)),
            patch(CRD + "/status", {"status": {"storedVersions": ["v2"]}}, MERGE, ignore=("spec", "metadata")),
            patch(CRD, {"spec": {"versions": definition(storage="v2")["spec"]["versions"][1:]}}, MERGE,
                  quiet=True),
            get(V2 + "/b", ignore=("metadata.managedFields",)),
        ],
}  # fmt: skip


def compare(steps: Sequence[Step], ours: Server, theirs: Server, place: str) -> None:
    """Send the steps to both servers; the definition and its end are not compared."""
    served = [get(V1, until=200, quiet=True), get(V2, until=200, quiet=True)]
    every = [*served, *steps, delete(CRD, quiet=True)]
    mine, real_ones = run(ours, every, place), run(theirs, every, place)
    for step, our, their in zip(every, mine, real_ones, strict=True):
        assert our == their, f"{step.method} {step.path} {json.dumps(step.body)}"


def define(conversion: Json, servers: Sequence[Server], place: str) -> None:
    for server in servers:
        run(server, [post(CRDS, definition(conversion), quiet=True)], place)


@pytest.mark.parametrize("name", SCENARIOS)
def test_versions_are_served_as_a_real_server_serves_them(
    name: str, converter: Converter, embedded: Server, real: Server, namespace: str
) -> None:
    define(converter.conversion(), (embedded, real), namespace)
    steps = SCENARIOS[name]
    # References count from the first step of the scenario; two steps wait for the definition before it.
    moved = [Step(**{**step.__dict__, "path": step.path.replace("{rv:0}", "{rv:2}")}) for step in steps]
    compare(moved, embedded, real, namespace)


@pytest.mark.parametrize(
    "way", ["labels", "failed", "silent", "uid", "none", "version", "kind", "name", "label", "bare", "broken"]
)
def test_a_wrong_answer_is_told_as_a_real_server_tells_it(
    way: str, converter: Converter, embedded: Server, real: Server, namespace: str
) -> None:
    define(converter.conversion(way), (embedded, real), namespace)
    steps = [
        post(V2, two(1, name="b")),
        post(V1, one("3Gi", name="a", labels={"x": "y"})),
        get(V1 + "/a"),
        get(V2 + "/a"),
        put(V2 + "/a", two(4, name="a")),
        patch(V2 + "/a", {"spec": {"note": "n"}}, MERGE),
        apply(V2 + "/a", two(4, name="a")),
        delete(V1 + "/a"),
    ]
    compare(steps, embedded, real, namespace)


def test_a_webhook_that_is_not_there_holds_up_its_own_version_only(
    converter: Converter, embedded: Server, real: Server, namespace: str
) -> None:
    conversion = converter.conversion()
    conversion["webhook"]["clientConfig"] = {"service": {"name": "none", "namespace": "default"}}
    define(conversion, (embedded, real), namespace)
    steps = [post(V1, one("3Gi")), get(V1 + "/d"), get(V2 + "/d"), get(V1), post(V2, two(1, name="b"))]
    compare(steps, embedded, real, namespace)
