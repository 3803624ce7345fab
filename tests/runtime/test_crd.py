"""CRDs from types: what the walker emits, what it refuses, and the same markers at run time."""

from __future__ import annotations

import asyncio
import os
import re
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
import yaml

from mooring.kube import ApiError, ApplyPatch, Client, Config, HttpTransport
from mooring.kube.object import Object, Resource, decode
from mooring.kube.objects import core, meta
from mooring.kube.objects.core import Namespace
from mooring.kube.part import Part
from mooring.local.api.server import ApiServer
from mooring.operators.registry import OPERATORS
from mooring.runtime.crd import (
    QUANTITY_PATTERN,
    Crd,
    F,
    PrinterColumn,
    Rule,
    Scale,
    SchemaError,
    at_least_one_of,
    at_most_one_of,
    check_crds,
    crd,
    crd_of,
    defaulted,
    exactly_one_of,
    immutable,
    never_removed,
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
        "description": "Number of pods. From 3 to 10, 3 by default.",
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
    kinds: list[type[Object]] = [Widget, OldWidget]
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
    off = defaulted(decode(b'{"spec":{"storage":{"keep":false}}}', Widget)).spec
    assert off is not None
    assert off.storage == Storage(keep=False), "what was written stays, be it false"
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


def test_unknown_fields_are_found_inside_an_embedded_object_of_a_known_type() -> None:
    class Spec(Part, frozen=True, kw_only=True):
        claim: Annotated[core.PersistentVolumeClaim | None, F(embedded=True)] = None

    raw = {"spec": {"claim": {"metadata": {"name": "a"}, "spec": {"storageClass": "fast"}}}}
    found = [(one.path, one.nearest) for one in unknown_fields(_kind_with(Spec), raw)]
    assert found == [("spec.claim.spec.storageClass", "storageClassName")]


def test_a_file_of_no_kind_is_drift(tmp_path: Path) -> None:
    write_crds([Widget, OldWidget], tmp_path)
    (tmp_path / "gone.example.com.yaml").write_text("")
    assert "gone.example.com.yaml: belongs to no kind" in check_crds([Widget, OldWidget], tmp_path)


def _field(base: Any, **constraints: Any) -> type[Object]:
    """A kind whose spec has one field ``f``."""
    spec: Any = msgspec.defstruct(
        "Spec",
        [("f", Annotated[base | None, F(**constraints)], None)],
        bases=(Part,),
        frozen=True,
        kw_only=True,
    )
    return _kind_with(spec)


@pytest.mark.parametrize(
    ("base", "constraints", "told"),
    [
        (int, {"default": "3"}, "spec.f: the default '3' is no integer"),
        (int, {"default": True}, "is no integer"),
        (int, {"default": 3, "maximum": 2}, "out of bounds"),
        (str, {"default": "c", "enum": ["a", "b"]}, "not one of a, b"),
        (str, {"default": "c", "pattern": "^[ab]$"}, "does not match"),
        (str, {"default": "abc", "max_length": 2}, "out of bounds"),
        (str, {"default": None}, "not nullable"),
        (list[str], {"default": [1]}, r"spec.f\[0\]: the default 1 is no string"),
        (Port, {"default": {"port": 1}}, "lacks name"),
        (Port, {"default": {"name": "a", "prt": 1}}, "prt, which is no field"),
        (dict[str, int], {"default": {"a": "b"}}, r"spec.f\[a\]"),
        (list[Port], {"list_type": "set", "max_items": 3}, "use 'map' with list_map_keys"),
    ],
)
def test_what_the_server_would_refuse_is_said_with_its_field(
    base: Any, constraints: dict[str, Any], told: str
) -> None:
    with pytest.raises(SchemaError, match=told):
        render_crd(_field(base, **constraints))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": [PrinterColumn("Size", ".spec.sise")]}, r"column Size: .*has no sise, known are: size"),
        ({"columns": [PrinterColumn("Size", "spec.size")]}, "no JSON path"),
        ({"scale": Scale(".spec.size", ".spec.size")}, "must be under .status"),
        ({"scale": Scale(".spec.image", ".status.replicas")}, "is string, it must be integer"),
        ({"selectable_fields": [".spec.config"]}, "is object, it must be string or integer or boolean"),
        ({"short_names": ["W"]}, "'W' is no name"),
        ({"categories": ["all things"]}, "is no name"),
    ],
)
def test_names_and_paths_that_lead_nowhere_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        render_crd(_kind_with(WidgetSpec, **options))


def test_a_path_into_metadata_or_free_form_is_taken_as_it_is() -> None:
    columns = [PrinterColumn("Label", ".metadata.labels.app"), PrinterColumn("X", ".spec.extra.deep.down")]
    render_crd(_kind_with(WidgetSpec, columns=columns))


def test_versions_and_groups_are_checked() -> None:
    def kind(group: str, version: str) -> type[Object]:
        class Thing(Object, frozen=True, kw_only=True):
            resource: ClassVar[Resource] = Resource(group, version, "Thing", "things")

        return crd()(Thing)

    with pytest.raises(SchemaError, match="'beta' is no version"):
        render_crd(kind("example.com", "beta"))
    with pytest.raises(SchemaError, match="belongs to Kubernetes"):
        render_crd(kind("apps.k8s.io", "v1"))
    with pytest.raises(SchemaError, match="given twice"):
        render_crd(kind("example.com", "v1"), crd(storage=False)(kind("example.com", "v1")))


def test_a_rule_on_the_old_value_is_checked_as_well() -> None:
    @rules(Rule("oldSelf.sizee == self.size"))
    class Spec(Part, frozen=True, kw_only=True):
        size: int | None = None

    with pytest.raises(SchemaError, match="sizee"):
        render_schema(_kind_with(Spec))


def test_a_message_whose_length_the_server_cannot_bound_is_refused() -> None:
    class Spec(Part, frozen=True, kw_only=True):
        size: Annotated[
            int | None, F(rules=(Rule("self <= 9", message_expression="'not ' + string(self)"),))
        ] = None

    with pytest.raises(SchemaError, match=r"string\(\) has no known length"):
        render_schema(_kind_with(Spec))


def test_rule_helpers() -> None:
    assert at_least_one_of("a", "b").rule.endswith(">= 1")
    assert never_removed("a").rule == "(!has(oldSelf.a) || has(self.a))"
    assert exactly_one_of("a", "b").rule == "[has(self.a), has(self.b)].filter(x, x).size() == 1"
    assert Rule("self > 1", "m", field_path=".a").render() == {
        "rule": "self > 1",
        "message": "m",
        "fieldPath": ".a",
    }


# --- everything at once: a golden file, and both kinds of API server ---------------------------------------


class Mast(Part, frozen=True, kw_only=True):
    """One mast."""

    name: Annotated[str | None, F("Its name.", required=True, max_length=20)] = None
    height: Annotated[int | None, F("In metres.", minimum=1, maximum=60, default=10)] = None


@rules(exactly_one_of("engine", "sails"), never_removed("home"))
class VesselSpec(Part, frozen=True, kw_only=True):
    """What to build."""

    home: Annotated[
        str | None, F("Home port.", max_length=64, rules=(immutable("the home port is fixed"),))
    ] = None
    engine: Annotated[
        str | None,
        F(
            "Its engine.",
            max_length=64,
            rules=(
                Rule(
                    "self != 'steam'",
                    message_expression="'no ' + self + ' engines'",
                    reason="FieldValueInvalid",
                ),
            ),
        ),
    ] = None
    sails: Annotated[int | None, F("How many sails.", minimum=1)] = None
    masts: Annotated[list[Mast] | None, F("By name.", list_map_keys=("name",), max_items=5)] = None
    flags: Annotated[
        list[Annotated[str, F(max_length=20)]] | None, F("No two alike.", list_type="set", max_items=9)
    ] = None
    route: Annotated[list[str] | None, F("Replaced whole.", list_type="atomic")] = None
    crew: Annotated[int | None, F("Hands.", minimum=0, default=3)] = None
    cargo: Annotated[dict[str, Any] | None, F("Any object.", embedded=True, preserve_unknown=True)] = None
    class_: Annotated[str | None, F("Its class.", enum=["sloop", "brig"], default="sloop")] = msgspec.field(
        default=None, name="class"
    )


class VesselStatus(Part, frozen=True, kw_only=True):
    """What was built."""

    hands: Annotated[int | None, F("On board.")] = None
    selector: Annotated[str | None, F("Of the hands.")] = None


@crd(
    short_names=("vsl",),
    categories=("mooring",),
    columns=(
        PrinterColumn("Class", ".spec.class"),
        PrinterColumn("Hands", ".status.hands", type="integer", description="On board."),
        PrinterColumn("Home", ".spec.home", priority=1),
    ),
    scale=Scale(".spec.crew", ".status.hands", ".status.selector"),
    selectable_fields=(".spec.class",),
    rules=(Rule("self.metadata.name.size() <= 20", "a name has at most 20 characters"),),
)
class Vessel(Object, frozen=True, kw_only=True):
    """Something that floats."""

    resource: ClassVar[Resource] = Resource("fleet.example.com", "v1", "Vessel", "vessels")
    spec: Annotated[VesselSpec | None, F("Spec.", required=True)] = None
    status: Annotated[VesselStatus | None, F("Status.")] = None


@crd(storage=False, deprecated="fleet.example.com/v1alpha1 Vessel is old; use v1", columns=())
class OldVessel(Object, frozen=True, kw_only=True):
    """Something that floated."""

    resource: ClassVar[Resource] = Resource("fleet.example.com", "v1alpha1", "Vessel", "vessels")
    spec: Annotated[VesselSpec | None, F("Spec.")] = None
    status: Annotated[VesselStatus | None, F("Status.")] = None


GOLDEN = Path(__file__).parent / "golden"


def test_the_definition_is_the_golden_one() -> None:
    if os.environ.get("MOORING_GOLDEN"):
        write_crds([Vessel, OldVessel], GOLDEN)
    assert check_crds([Vessel, OldVessel], GOLDEN) == "", (
        "if that is meant: MOORING_GOLDEN=1 pytest, and read it"
    )


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """The embedded API server in this process, and a real kube-apiserver."""
    if request.param == "embedded":
        async with ApiServer.in_memory() as server:
            yield Client(server.transport())
        return
    client = Client(HttpTransport(Config.load(request.getfixturevalue("real_kubernetes"))))
    yield client
    await client.close()


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def install(client: Client, definition: dict[str, Any], **query: str) -> None:
    await client.request(
        "PATCH",
        f"{CRDS}/{definition['metadata']['name']}",
        query={"fieldManager": "crds", "force": "true", "fieldValidation": "Strict", **query},
        body=ApplyPatch(definition).encode(),
        content_type=ApplyPatch.content_type,
    )


class Harbour:
    """A namespace on a server that serves vessels."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def path(self, name: str = "", version: str = "v1", subresource: str = "") -> str:
        kind = Vessel if version == "v1" else OldVessel
        return kind.resource.path(namespace=self.namespace, name=name, subresource=subresource)

    async def apply(self, name: str, spec: dict[str, Any], manager: str = "me") -> dict[str, Any]:
        body = {
            "apiVersion": "fleet.example.com/v1",
            "kind": "Vessel",
            "metadata": {"name": name},
            "spec": spec,
        }
        answer = await self.client.request(
            "PATCH",
            self.path(name),
            query={"fieldManager": manager, "fieldValidation": "Strict"},
            body=ApplyPatch(body).encode(),
            content_type=ApplyPatch.content_type,
        )
        made: dict[str, Any] = msgspec.json.decode(answer.body)
        return made

    async def refused(self, name: str, spec: dict[str, Any]) -> str:
        with pytest.raises(ApiError) as error:
            await self.apply(name, spec)
        return str(error.value)


@pytest.fixture
async def harbour(client: Client) -> AsyncIterator[Harbour]:
    await install(client, render_crd(Vessel, OldVessel))
    deadline = time.monotonic() + 20
    for version in (Vessel, OldVessel):
        while (await client.transport.request("GET", version.resource.path())).status != 200:
            assert time.monotonic() < deadline, "the definition was not served"
            await asyncio.sleep(0.05)
    name = f"fleet-{uuid.uuid4().hex[:8]}"
    await client.create(Namespace(metadata=meta.ObjectMeta(name=name)))
    yield Harbour(client, name)
    await client.delete(Namespace, name)


async def test_every_operators_definitions_are_accepted(client: Client) -> None:
    for operator in OPERATORS.values():
        for kind in operator.kinds:
            definition = render_crd(kind)
            assert len(msgspec.json.encode(definition)) < 1 << 20, "etcd holds 1.5 MiB"
            await install(client, definition, dryRun="All")


async def test_the_server_fills_defaults_and_keeps_lists_as_declared(harbour: Harbour) -> None:
    first = await harbour.apply("a", {"sails": 2, "masts": [{"name": "main"}], "route": ["x"]})
    assert (first["spec"]["crew"], first["spec"]["class"]) == (3, "sloop")
    assert first["spec"]["masts"] == [{"name": "main", "height": 10}]
    both = await harbour.apply("a", {"masts": [{"name": "mizzen", "height": 5}]}, manager="other")
    assert [one["name"] for one in both["spec"]["masts"]] == ["main", "mizzen"], "a keyed list is merged"
    cargo = {"apiVersion": "v1", "kind": "Box", "metadata": {"name": "x"}, "anything": {"else": 1}}
    assert (await harbour.apply("b", {"sails": 1, "cargo": cargo}))["spec"]["cargo"] == cargo
    assert "uplicate" in await harbour.refused("b", {"sails": 1, "flags": ["x", "x"]})


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, "exactly one of engine, sails must be set"),
        ({"sails": 1, "engine": "diesel"}, "exactly one of engine, sails must be set"),
        ({"sails": 0}, "spec.sails"),
        ({"sails": 1, "class": "raft"}, 'supported values: "sloop", "brig"'),
        ({"engine": "steam"}, "no steam engines"),
        ({"sails": 1, "masts": [{"height": 3}]}, "name"),
        ({"sails": 1, "anchor": 1}, "anchor"),
        ({"sails": 1, "cargo": {"kind": "Box"}}, "spec.cargo.apiVersion: Required value"),
        ({"sails": 1, "cargo": {"apiVersion": "v1"}}, "spec.cargo.kind: Required value"),
    ],
)
async def test_the_server_refuses_with_our_words(harbour: Harbour, spec: dict[str, Any], told: str) -> None:
    assert told in await harbour.refused("c", spec)


async def test_the_rule_on_the_name_is_the_servers(harbour: Harbour) -> None:
    assert "at most 20 characters" in await harbour.refused("n" * 21, {"sails": 1})


async def test_what_is_immutable_can_be_set_later_but_neither_changed_nor_removed(harbour: Harbour) -> None:
    await harbour.apply("d", {"sails": 1})
    await harbour.apply("d", {"sails": 1, "home": "Kiel"})
    assert "the home port is fixed" in await harbour.refused("d", {"sails": 1, "home": "Rostock"})
    assert "home cannot be removed once set" in await harbour.refused("d", {"sails": 1})


async def test_the_scale_subresource_reads_and_writes_the_declared_paths(harbour: Harbour) -> None:
    await harbour.apply("e", {"sails": 1})
    status = msgspec.json.encode({"status": {"hands": 2, "selector": "ship=e"}})
    merge = "application/merge-patch+json"
    await harbour.client.request(
        "PATCH", harbour.path("e", subresource="status"), body=status, content_type=merge
    )
    patch = msgspec.json.encode({"spec": {"replicas": 7}})
    await harbour.client.request(
        "PATCH", harbour.path("e", subresource="scale"), body=patch, content_type=merge
    )
    answer = await harbour.client.request("GET", harbour.path("e", subresource="scale"))
    scale = msgspec.json.decode(answer.body)
    assert scale["spec"]["replicas"] == 7
    assert scale["status"] == {"replicas": 2, "selector": "ship=e"}


async def test_columns_categories_and_selectable_fields_are_served(harbour: Harbour) -> None:
    await harbour.apply("f", {"sails": 1, "home": "Kiel"})
    await harbour.apply("g", {"sails": 1, "class": "brig"})
    table = "application/json;as=Table;g=meta.k8s.io;v=v1"
    answer = await harbour.client.transport.request("GET", harbour.path(), headers={"Accept": table})
    shown = msgspec.json.decode(answer.body)
    columns = {one["name"]: one["priority"] for one in shown["columnDefinitions"]}
    assert columns == {"Name": 0, "Class": 0, "Hands": 0, "Home": 1}
    assert [row["cells"][:2] for row in shown["rows"]] == [["f", "sloop"], ["g", "brig"]]

    page = await harbour.client.list(Vessel, namespace=harbour.namespace, field_selector="spec.class=brig")
    assert [one.metadata.name for one in page.items] == ["g"]

    groups = await harbour.client.request("GET", "/apis/fleet.example.com/v1")
    (found,) = [one for one in msgspec.json.decode(groups.body)["resources"] if one["name"] == "vessels"]
    assert (found["shortNames"], found["categories"]) == (["vsl"], ["mooring"])


async def test_users_of_a_deprecated_version_are_told(harbour: Harbour) -> None:
    await harbour.apply("h", {"sails": 1})
    answer = await harbour.client.request("GET", harbour.path("h", version="v1alpha1"))
    assert "Vessel is old; use v1" in dict(answer.headers).get("Warning", "")
    assert msgspec.json.decode(answer.body)["apiVersion"] == "fleet.example.com/v1alpha1"
    current = await harbour.client.request("GET", harbour.path("h"))
    assert "Warning" not in dict(current.headers)
