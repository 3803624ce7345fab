"""Our definitions beside upstream's: nothing of its interface is missing or another.

``interface.json`` has the names, columns, subresources and fields of upstream's thirteen definitions (commit 2301e3b).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.operators.matrixone.builders import BY_KIND

from mooring.runtime.crd import render_crd

INTERFACE: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "interface.json").read_text())
EXPRESSION: Final = (
    "the types of Kubernetes' own objects require nothing here; validation asks for key and operator"
)
NOT_REQUIRED: Final = {
    ("spec.template", "replicas"): "upstream's own sample of a CNPool leaves it out; the pool decides",
    ("spec.selector.matchExpressions[]", "key"): EXPRESSION,
    ("spec.selector.matchExpressions[]", "operator"): EXPRESSION,
    ("spec.template.spec.selector.matchExpressions[]", "key"): EXPRESSION,
    ("spec.template.spec.selector.matchExpressions[]", "operator"): EXPRESSION,
}
"""What upstream requires and we do not, with the reason."""


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if path:
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}" if path else name)
    if isinstance(schema.get("items"), dict):
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


@pytest.fixture(params=sorted(INTERFACE))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ours(kind: str) -> dict[str, Any]:
    return render_crd(BY_KIND[kind])["spec"]  # type: ignore[no-any-return]


def test_all_thirteen_kinds_are_there() -> None:
    assert set(BY_KIND) == set(INTERFACE)
    assert len(BY_KIND) == 13


def test_names_scope_and_subresources_are_upstreams(kind: str, ours: dict[str, Any]) -> None:
    theirs, (version,) = INTERFACE[kind], ours["versions"]
    assert version["name"] == "v1alpha1"
    assert (ours["names"]["plural"], ours["names"]["singular"]) == (theirs["plural"], theirs["singular"])
    assert ours["names"].get("shortNames", []) == theirs["short"]
    assert ours["scope"] == theirs["scope"]
    assert version.get("subresources", {}) == theirs["subresources"]


def test_printer_columns_are_upstreams(kind: str, ours: dict[str, Any]) -> None:
    assert ours["versions"][0]["additionalPrinterColumns"] == INTERFACE[kind]["columns"]


def test_every_field_of_upstream_has_its_type_default_and_choices(kind: str, ours: dict[str, Any]) -> None:
    schema = ours["versions"][0]["schema"]["openAPIV3Schema"]
    known = dict(walk(schema))
    assert set(INTERFACE[kind]["required"]) == set(schema.get("required", ()))
    opaque = [
        path
        for path, one in known.items()
        if "properties" not in one and one.get("x-kubernetes-preserve-unknown-fields")
    ]
    for path, theirs in INTERFACE[kind]["fields"].items():
        if ".conditions[]" in path or any(path.startswith(f"{one}.") for one in opaque):
            continue
        assert path in known, path
        found = known[path]
        form = "int-or-string" if found.get("x-kubernetes-int-or-string") else found.get("type", "any")
        assert form == theirs["type"] or theirs["type"] == "any", path
        assert found.get("default") == theirs.get("default"), path
        if "enum" in theirs:
            assert list(found["enum"]) == theirs["enum"], path
        assert found.get("x-kubernetes-list-map-keys") == theirs.get("keys"), path
        more = set(found.get("required", ())) - set(theirs.get("required", ()))
        less = set(theirs.get("required", ())) - set(found.get("required", ()))
        assert not more, f"{path} requires {more}"
        assert all((path, one) in NOT_REQUIRED for one in less), f"{path} does not require {less}"


def test_every_typed_object_that_users_write_keeps_unknown_fields(kind: str, ours: dict[str, Any]) -> None:
    schema = ours["versions"][0]["schema"]["openAPIV3Schema"]
    for path, one in walk(schema):
        if path.split(".")[0] in ("status", "metadata") or "properties" not in one:
            continue
        assert one.get("x-kubernetes-preserve-unknown-fields") is True, path


def test_the_oddities_of_upstreams_json_are_kept() -> None:
    assert "string" in dict(walk(schema_of("CNClaim"), ""))["status.store"]["properties"]
    # The status is ours: whether the data of a Backup that is deleted is gone.
    assert set(schema_of("Backup")["properties"]) == {"apiVersion", "kind", "metadata", "meta", "status"}
    assert "overlay" in schema_of("RestoreJob")["properties"]


def schema_of(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = render_crd(BY_KIND[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found
