"""CRDs from types: what the walker emits, what it refuses, and the same markers at run time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
import yaml

from mooring.kube.object import Object, Resource, decode
from mooring.kube.objects import core, meta
from mooring.kube.part import Part
from mooring.runtime.crd import (
    QUANTITY_PATTERN,
    Crd,
    F,
    PrinterColumn,
    Rule,
    Scale,
    SchemaError,
    at_most_one_of,
    check_crds,
    crd,
    crd_of,
    defaulted,
    exactly_one_of,
    immutable,
    render_crd,
    render_schema,
    rules,
    to_yaml,
    unknown_fields,
    write_crds,
)


@rules(at_most_one_of("emptyDir", "claim"))
class Storage(Part, frozen=True, kw_only=True):
    """Where data lives."""

    empty_dir: core.EmptyDirVolumeSource | None = None
    claim: core.PersistentVolumeClaim | None = None
    keep: Annotated[bool | None, F("Keep the data.", default=True)] = None


class Port(Part, frozen=True, kw_only=True):
    name: Annotated[str | None, F(required=True, max_length=15)] = None
    port: Annotated[int | None, F(minimum=1, maximum=65535)] = None
    protocol: Annotated[str | None, F(enum=["TCP", "UDP"], default="TCP")] = None


class WidgetSpec(Part, frozen=True, kw_only=True):
    size: Annotated[int | None, F("Number of pods.", minimum=3, maximum=10, default=3)] = None
    image: Annotated[str | None, F("Image.", max_length=255, rules=(immutable(),))] = None
    config: Annotated[
        dict[str, Annotated[str, F(max_length=1024)]] | None, F("Settings.", max_properties=64)
    ] = None
    storage: Annotated[Storage | None, F(default={})] = None
    ports: Annotated[list[Port] | None, F(max_items=8, list_map_keys=("name",))] = None
    limit: core.ResourceRequirements | None = None
    threshold: int | str | None = None
    extra: Any = None
    template: Annotated[dict[str, Any] | None, F(embedded=True, preserve_unknown=True)] = None


class WidgetStatus(Part, frozen=True, kw_only=True):
    replicas: int | None = None
    conditions: Annotated[
        list[meta.Condition] | None,
        F(max_items=32, schema={"type": "array", "items": {"type": "object"}}),
    ] = None


@crd(
    short_names=("wd",),
    categories=("all",),
    columns=(PrinterColumn("Size", ".spec.size", type="integer", priority=1),),
    scale=Scale(".spec.size", ".status.replicas"),
    rules=(Rule("self.metadata.name.size() <= 48", "a name has at most 48 characters"),),
)
class Widget(Object, frozen=True, kw_only=True):
    """A widget."""

    resource: ClassVar[Resource] = Resource("example.com", "v1", "Widget", "widgets")
    spec: Annotated[WidgetSpec | None, F(required=True)] = None
    status: WidgetStatus | None = None


@crd(storage=False, deprecated="use v1")
class OldWidget(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("example.com", "v1alpha1", "Widget", "widgets")
    spec: WidgetSpec | None = None


def _spec(kind: type[Object] = Widget) -> dict[str, Any]:
    properties: dict[str, Any] = render_schema(kind)["properties"]["spec"]["properties"]
    return properties


def _kind_with(spec: type[Part], **options: Any) -> type[Object]:
    class Thing(Object, frozen=True, kw_only=True):
        resource: ClassVar[Resource] = Resource("example.com", "v1", "Thing", "things", False)

    made: Any = msgspec.defstruct(
        "Thing",
        [("spec", spec | None, None)],
        bases=(Thing,),
        frozen=True,
        kw_only=True,
        namespace={"resource": Thing.resource},
    )
    return crd(**options)(made)  # type: ignore[no-any-return]


def test_definition_names_scope_subresources_and_columns() -> None:
    definition = render_crd(Widget)
    assert definition["metadata"]["name"] == "widgets.example.com"
    assert definition["spec"]["names"] == {
        "kind": "Widget",
        "listKind": "WidgetList",
        "plural": "widgets",
        "singular": "widget",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    (version,) = definition["spec"]["versions"]
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
    }
    assert version["additionalPrinterColumns"] == [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}
    ]
    assert definition["spec"]["scope"] == "Namespaced"


def test_markers_become_constraints() -> None:
    spec = _spec()
    assert spec["size"] == {
        "type": "integer",
        "description": "Number of pods.",
        "minimum": 3,
        "maximum": 10,
        "default": 3,
    }
    assert spec["config"]["additionalProperties"] == {"type": "string", "maxLength": 1024}
    assert spec["ports"]["x-kubernetes-list-type"] == "map"
    assert spec["ports"]["x-kubernetes-list-map-keys"] == ["name"]
    assert spec["ports"]["items"]["required"] == ["name"]
    assert spec["threshold"]["x-kubernetes-int-or-string"] is True
    assert spec["limit"]["properties"]["limits"]["additionalProperties"]["pattern"] == QUANTITY_PATTERN
    assert spec["extra"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert spec["template"]["x-kubernetes-embedded-resource"] is True
    assert spec["storage"]["x-kubernetes-validations"][0]["message"].startswith("at most one of")
    assert render_schema(Widget)["required"] == ["spec"]


def test_keyed_lists_of_built_in_types_stay_keyed() -> None:
    class Spec(Part, frozen=True, kw_only=True):
        container: core.Container | None = None

    container = _spec(_kind_with(Spec))["container"]["properties"]
    assert container["env"]["x-kubernetes-list-map-keys"] == ["name"]
    assert container["ports"]["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert container["ports"]["items"]["properties"]["protocol"]["default"] == "TCP"


def test_a_false_default_is_kept() -> None:
    class Spec(Part, frozen=True, kw_only=True):
        on: Annotated[bool | None, F(default=False)] = None

    assert _spec(_kind_with(Spec))["on"] == {"type": "boolean", "default": False}


def test_taken_over_group_preserves_unknown_fields_in_spec_only() -> None:
    kind = _kind_with(WidgetSpec, preserve_unknown=True)
    spec = render_schema(kind)["properties"]["spec"]
    assert spec["x-kubernetes-preserve-unknown-fields"] is True
    assert spec["properties"]["storage"]["x-kubernetes-preserve-unknown-fields"] is True
    assert "x-kubernetes-preserve-unknown-fields" not in spec["properties"]["config"]


def test_several_versions_with_one_stored() -> None:
    definition = render_crd(Widget, OldWidget)
    assert [v["name"] for v in definition["spec"]["versions"]] == ["v1", "v1alpha1"]
    assert definition["spec"]["versions"][1]["deprecationWarning"] == "use v1"
    with pytest.raises(SchemaError, match="exactly one version"):
        render_crd(OldWidget)


def test_a_rule_that_names_an_unknown_field_is_refused() -> None:
    @rules(Rule("self.sizee > 3"))
    class Spec(Part, frozen=True, kw_only=True):
        size: int | None = None

    with pytest.raises(SchemaError, match=r"sizee.*known are: size"):
        render_schema(_kind_with(Spec))


def test_a_rule_over_an_unbounded_list_is_refused() -> None:
    @rules(Rule("self.items.all(x, x.size() > 0)"))
    class Spec(Part, frozen=True, kw_only=True):
        items: list[str] | None = None

    with pytest.raises(SchemaError, match="needs maxItems"):
        render_schema(_kind_with(Spec))


def test_a_rule_below_an_unbounded_map_is_refused() -> None:
    class Spec(Part, frozen=True, kw_only=True):
        by_name: dict[str, Storage] | None = None

    with pytest.raises(SchemaError, match="unbounded"):
        render_schema(_kind_with(Spec))


def test_a_list_map_key_that_may_be_absent_is_refused() -> None:
    class Spec(Part, frozen=True, kw_only=True):
        items: Annotated[list[_Item] | None, F(list_map_keys=("name",))] = None

    with pytest.raises(SchemaError, match="required or have a default"):
        render_schema(_kind_with(Spec))


def test_a_recursive_type_is_refused_with_its_path() -> None:
    with pytest.raises(SchemaError, match=r"spec\..*contains itself"):
        render_schema(_kind_with(_Tree))


class _Item(Part, frozen=True, kw_only=True):
    name: str | None = None


class _Tree(Part, frozen=True, kw_only=True):
    children: list[_Tree] | None = None


def test_a_class_without_declaration_is_refused() -> None:
    class Plain(Object, frozen=True, kw_only=True):
        resource: ClassVar[Resource] = Resource("example.com", "v1", "Plain", "plains")

    with pytest.raises(SchemaError, match="@crd"):
        crd_of(Plain)
    assert isinstance(crd_of(Widget), Crd)


def test_yaml_is_stable_and_reads_back_to_the_same_definition() -> None:
    text = to_yaml(render_crd(Widget))
    assert yaml.safe_load(text) == render_crd(Widget)
    assert "&id" not in text
    assert text == to_yaml(render_crd(Widget))


def test_drift_between_files_and_types_is_shown(tmp_path: Path) -> None:
    kinds = [(Widget, OldWidget)]
    assert write_crds(kinds, tmp_path) == [tmp_path / "widgets.example.com.yaml"]
    assert write_crds(kinds, tmp_path) == []
    assert check_crds(kinds, tmp_path) == ""
    path = tmp_path / "widgets.example.com.yaml"
    path.write_text(path.read_text().replace("maximum: 10", "maximum: 11"))
    assert re.search(r"^-.*maximum: 11\n\+.*maximum: 10$", check_crds(kinds, tmp_path), re.MULTILINE)


def test_the_decoder_ignores_markers() -> None:
    widget = decode(b'{"metadata":{"name":"a"},"spec":{"size":99}}', Widget)
    assert widget.spec is not None
    assert widget.spec.size == 99


def test_defaults_are_filled_as_the_server_does() -> None:
    widget = decode(b'{"spec":{"ports":[{"name":"a"}]}}', Widget)
    full = defaulted(widget)
    assert full.spec is not None
    assert full.spec.size == 3
    assert full.spec.storage == Storage(keep=True)
    assert full.spec.ports == [Port(name="a", protocol="TCP")]
    assert defaulted(full) == full
    assert defaulted(decode(b"{}", Widget)).spec is None, "a default inside an absent object is not applied"


def test_unknown_fields_are_named_with_the_nearest_known_one() -> None:
    raw = {
        "metadata": {"name": "a", "whatever": 1},
        "spec": {"sizee": 3, "storage": {"Keep": True}, "ports": [{"naem": "x"}], "template": {"free": 1}},
        "colour": "red",
    }
    found = {str(item) for item in unknown_fields(Widget, raw)}
    assert found == {
        'unknown field "spec.sizee"; did you mean "size"?',
        'unknown field "spec.storage.Keep"; did you mean "keep"?',
        'unknown field "spec.ports[0].naem"; did you mean "name"?',
        'unknown field "colour"',
    }


def test_rule_helpers() -> None:
    assert exactly_one_of("a", "b").rule == "[has(self.a), has(self.b)].filter(x, x).size() == 1"
    assert Rule("self > 1", "m", field_path=".a").render() == {
        "rule": "self > 1",
        "message": "m",
        "fieldPath": ".a",
    }
