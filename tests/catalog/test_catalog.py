"""The catalog: entries, forms, manifests, what is masked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mooring.catalog import (
    MASKED,
    CatalogError,
    Entry,
    basic_entry,
    check_name,
    check_values,
    defaults,
    field_of,
    lint,
    lint_schema,
    load_catalog,
    load_directory,
    mask,
    packaged,
    parse_entry,
    render,
)
from mooring.operators.registry import OPERATORS
from mooring.runtime import render_crd

CRDS = {
    (kind.resource.group, kind.resource.kind): render_crd(kind)
    for operator in OPERATORS.values()
    for kind in operator.kinds
}
#: Of operators of others, with the fields that the entries use and no more.
FOREIGN = {
    (crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd
    for path in sorted((Path(__file__).parent / "definitions").glob("*.yaml"))
    for crd in [yaml.safe_load(path.read_text())]
}
ENTRIES = {entry.name: entry for entry in packaged()}
SENTINEL = ENTRIES["redis-sentinel"]
CLUSTER = ENTRIES["redis-cluster"]

SMALL = """
apiVersion: catalog.mooring.dev/v1alpha1
kind: ClusterServiceTemplate
metadata: {name: widget}
spec:
  display: {title: {en: Widget, zh: 部件}, summary: {en: A widget, zh: 一个部件}}
  target: {group: example.com, version: v1, kind: Widget, plural: widgets}
  sections: [{name: basics, title: {en: Basics, zh: 基本}}]
  parameters:
    required: [size]
    properties:
      size: {type: integer, title: {en: Size, zh: 大小}, minimum: 1, maximum: 5, default: 2, x-bind: /spec/size, x-ui: {group: basics}}
      note: {type: string, title: {en: Note, zh: 备注}, pattern: "^[a-z ]*$", x-bind: /spec/note, x-ui: {group: basics}}
  plans: [{name: one, title: {en: One, zh: 一}, values: {size: 1}, default: true}]
  render: {spec: {color: red}}
"""


def edited(**changes: Any) -> Entry:
    """The small entry with values at dotted paths replaced (None: removed)."""
    document = yaml.safe_load(SMALL)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = document
        for step in way:
            place = place[int(step)] if step.isdigit() else place[step.replace("_", "-")]
        if value is None:
            del place[last.replace("_", "-")]
        else:
            place[last.replace("_", "-")] = value
    return parse_entry(yaml.safe_dump(document, sort_keys=False))


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_packaged_entries_lint_and_fit_the_schema_of_their_kind(entry: Entry) -> None:
    assert lint(entry) == []
    target = entry.spec.target
    assert lint_schema(entry, (CRDS | FOREIGN)[target.group, target.kind]) == []


#: Kinds that an operator makes itself, or that an older group serves: a basic entry is enough for them.
PARTS = {
    *(
        ("core.matrixorigin.io", kind)
        for kind in ("LogSet", "DNSet", "CNSet", "ProxySet", "WebUI", "BucketClaim")
    ),
    ("example.com", "MySQLCluster"),
}


def test_every_kind_of_every_operator_has_an_entry() -> None:
    targets = [e.spec.target for e in ENTRIES.values()]
    targets += [one.target for e in ENTRIES.values() for one in e.spec.collections]
    assert {(target.group, target.kind) for target in targets} == set(CRDS | FOREIGN) - PARTS


@pytest.mark.parametrize(
    ("entry", "plan"),
    [(entry, plan.name) for entry in ENTRIES.values() for plan in entry.spec.plans],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_plan_is_sound_and_renders(entry: Entry, plan: str) -> None:
    values = {**defaults(entry, plan), **({"cluster": "one"} if "cluster" in entry.parameters else {})}
    assert check_values(entry, values) == []
    manifest = render(entry, name="one", namespace="team-a", values=values)
    assert manifest["metadata"].items() >= {"name": "one", "namespace": "team-a"}.items()
    assert manifest["kind"] == entry.spec.target.kind


@pytest.mark.parametrize(
    ("entry", "plan"),
    [(entry, plan.name) for entry in ENTRIES.values() for plan in entry.spec.plans],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_plan_renders_as_it_is_written_down(entry: Entry, plan: str) -> None:
    values = {**defaults(entry, plan), **({"cluster": "one"} if "cluster" in entry.parameters else {})}
    manifest = render(entry, name="one", namespace="team-a", values=values)
    golden = Path(__file__).parent / "golden" / f"{entry.name}-{plan}.yaml"
    assert manifest == yaml.safe_load(golden.read_text())


def test_a_rendered_redis_is_what_was_asked_for() -> None:
    values = {**defaults(SENTINEL), "size": 5, "passwordSecret": "auth", "maxclients": "500"}
    spec = render(SENTINEL, name="cache", namespace="default", values=values)["spec"]
    assert spec["size"] == 5
    assert spec["passwordSecret"] == {"name": "auth"}
    assert spec["config"] == {"maxmemory": "192mb", "maxmemory-policy": "noeviction", "maxclients": "500"}
    assert spec["resources"] == {
        "requests": {"cpu": "50m", "memory": "64Mi"},
        "limits": {"cpu": "1", "memory": "256Mi"},
    }
    claim = spec["storage"]["persistentVolumeClaim"]["spec"]
    assert claim == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def test_rendering_leaves_the_entry_as_it_is() -> None:
    before = msgspec.json.encode(CLUSTER)
    manifest = render(CLUSTER, name="a", namespace="b", values={**defaults(CLUSTER), "password": "x"})
    manifest["spec"]["pod"][0]["env"].append("more")
    assert msgspec.json.encode(CLUSTER) == before


@pytest.mark.parametrize(
    "text",
    [
        "x\n  hostPID: true",
        "no",
        "{{ 7*7 }}",
        "${{ 1 }}",
        "&a [*a]",
        "!!python/none",
        "- a",
        "'\"",
        "</script>",
    ],
)
def test_a_value_stays_a_value(text: str) -> None:
    manifest = render(SENTINEL, name="a", namespace="b", values={**defaults(SENTINEL), "image": text})
    back = yaml.safe_load(yaml.safe_dump(manifest))
    assert back["spec"]["image"] == text
    assert back.keys() == {"apiVersion", "kind", "metadata", "spec"}


@given(st.text(max_size=50))
def test_no_text_changes_the_shape_of_a_manifest(text: str) -> None:
    plain = render(SENTINEL, name="a", namespace="b", values={**defaults(SENTINEL), "image": "x"})
    manifest = render(SENTINEL, name="a", namespace="b", values={**defaults(SENTINEL), "image": text or "x"})
    manifest["spec"]["image"] = "x"
    assert manifest == plain


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"size": 2}, "size", "at least 3"),
        ({"size": 11}, "size", "at most 10"),
        ({"size": "3"}, "size", "whole number"),
        ({"size": True}, "size", "whole number"),
        ({"size": 3.5}, "size", "whole number"),
        ({"size": None}, "size", "needed"),
        ({"memory": "a lot"}, "memory", "amount"),
        ({"memory": "-1Gi"}, "memory", "amount"),
        ({"maxmemory": "many"}, "maxmemory", "size as Redis"),
        ({"policy": "sometimes"}, "policy", "one of"),
        ({"maxclients": "many"}, "maxclients", "match"),
        ({"maxclients": "5\n6"}, "maxclients", "match"),
        ({"disablePersistence": "yes"}, "disablePersistence", "true or false"),
        ({"image": "x" * 65536}, "image", "at most 500"),
        ({"image": ["x"]}, "image", "text"),
        ({"hostPID": True}, "hostPID", "no such field"),
    ],
)
def test_a_wrong_value_is_told_at_its_field(values: dict[str, Any], field: str, said: str) -> None:
    [problem] = check_values(SENTINEL, {**defaults(SENTINEL), **values})
    assert problem.field == field
    assert said in problem.message.en
    assert problem.message.zh


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a/b", "../x", "a" * 64, "a\n", None, 5])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    assert check_name(name)


def test_a_path_of_the_api_server_leads_to_the_field() -> None:
    assert field_of(SENTINEL, "spec.size") == "size"
    assert field_of(SENTINEL, "spec.config.maxmemory") == "maxmemory"
    assert field_of(CLUSTER, "spec.pod[0].middlewareImage") == "image"
    assert field_of(SENTINEL, "metadata.name") == "name"
    assert field_of(SENTINEL, "spec.affinity") == ""
    assert field_of(SENTINEL, "spec.sizes") == ""


PROPERTY = "spec__parameters__properties__size__"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec__display__title": {"en": "Widget"}}, "spec.display.title.zh: missing"),
        ({PROPERTY + "default": 9}, "default: Must be at most 5"),
        ({PROPERTY + "x_ui": {"group": "none"}}, "there is no section 'none'"),
        ({PROPERTY + "x_ui": {"group": "basics", "widget": "dial"}}, "'dial' is none of"),
        ({PROPERTY + "x_bind": "/metadata/finalizers"}, "is not below /spec"),
        ({PROPERTY + "x_bind": "/metadata/name"}, "is not below /spec"),
        ({PROPERTY + "x_bind": "/spec/color/deep"}, "leads through a value"),
        ({PROPERTY + "x_bind": "/spec/note"}, "bound by another field"),
        ({"spec__plans__0__values": {"size": 7}}, "spec.plans[0].values.size"),
        ({"spec__plans__0__values": {"colour": 7}}, "spec.plans[0].values.colour"),
        ({"spec__plans__0__default": False}, "one of them must be the default"),
        ({"spec__parameters__required": ["length"]}, "there is no field 'length'"),
        ({"spec__render": {"kind": "Secret"}}, "spec.render.kind"),
        ({"spec__parameters__properties__note__pattern": "("}, "pattern"),
        ({"spec__sensitive": ["spec.password"]}, "no JSON pointer"),
        ({"metadata__name": "../x"}, "metadata.name"),
    ],
)
def test_lint_says_what_is_wrong(changes: dict[str, Any], said: str) -> None:
    assert lint(edited()) == []
    assert any(said in problem for problem in lint(edited(**changes)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("[]", "Expected `object`"),
        (SMALL + "  colour: red\n", "unknown field `colour`"),
        (SMALL + "curated: true\n", "unknown field `curated`"),
        (SMALL.replace("v1alpha1", "v9"), "apiVersion"),
        (SMALL.replace("type: integer", "type: date"), "Invalid enum value"),
        (SMALL + "#" * 300_000, "longer than"),
    ],
)
def test_what_is_no_entry_is_refused_with_its_source(text: str, said: str) -> None:
    with pytest.raises(CatalogError, match=r"widget\.yaml") as failed:
        parse_entry(text, source="widget.yaml")
    assert said in str(failed.value)


def test_a_binding_that_the_kind_lacks_is_told() -> None:
    definition = {
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {"type": "object", "properties": {"size": {"type": "string"}}}
                            },
                        }
                    },
                }
            ],
        }
    }
    assert lint_schema(edited(), definition) == [
        "spec.parameters.properties.size.x-bind: spec.size is of type string, the field of type integer",
        "spec.parameters.properties.note.x-bind: the kind has no spec.note",
        "spec.render: the kind has no spec.color",
    ]


def test_a_directory_adds_entries_and_replaces_those_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "widget.yaml").write_text(SMALL)
    (tmp_path / "own.yaml").write_text(SMALL.replace("name: widget", "name: redis-cluster"))
    catalog = load_catalog([tmp_path])
    assert set(catalog) == {*ENTRIES, "widget"}
    assert catalog["redis-cluster"].spec.target.kind == "Widget"


def test_all_problems_of_a_directory_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL.replace("default: 2", "default: 9"))
    (tmp_path / "b.yaml").write_text("a: [")
    with pytest.raises(CatalogError) as failed:
        load_directory(tmp_path)
    assert len(failed.value.problems) == 2
    with pytest.raises(CatalogError, match="no such directory"):
        load_directory(tmp_path / "none")


@pytest.mark.parametrize(
    "crd",
    [crd for crd in CRDS.values() if crd["spec"]["scope"] == "Namespaced"],
    ids=lambda crd: crd["metadata"]["name"],
)
def test_any_definition_gives_a_basic_entry(crd: dict[str, Any]) -> None:
    entry = basic_entry(crd)
    assert not entry.curated
    assert [problem for problem in lint(entry) if not problem.startswith("metadata.name")] == []
    assert lint_schema(entry, crd) == []
    assert 0 < len(entry.parameters) <= 60
    asked = set(entry.spec.parameters.required)
    assert {problem.field for problem in check_values(entry, defaults(entry))} <= asked


def test_a_basic_entry_asks_for_what_is_required_first_and_hides_what_is_secret() -> None:
    spec = {
        "type": "object",
        "required": ["image"],
        "properties": {
            "deep": {
                "type": "object",
                "properties": {"er": {"type": "object", "properties": {"x": {"type": "string"}}}},
            },
            "size": {"type": "integer", "default": 3, "minimum": 1},
            "list": {"type": "array", "items": {"type": "string"}},
            "adminPassword": {"type": "string"},
            "image": {"type": "string"},
            "odd": {"type": "string", "pattern": "(?=x)"},
        },
    }
    crd = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "plural": "widgets"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"properties": {"spec": spec}}},
                }
            ],
        },
    }
    entry = basic_entry(crd)
    assert list(entry.parameters) == ["image", "deep.er.x", "size", "adminPassword", "odd"]
    assert entry.spec.parameters.required == ("image",)
    assert entry.parameters["adminPassword"].sensitive
    assert entry.parameters["size"].default == 3
    with pytest.raises(CatalogError, match="serves no version"):
        basic_entry(
            {"metadata": {"name": "x"}, "spec": {"names": {"kind": "X"}, "versions": [{"name": "v1"}]}}
        )


def test_secrets_are_masked_wherever_they_are() -> None:
    secret = "s3cret-word"
    obj = {
        "metadata": {
            "name": "a",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": f'{{"password":"{secret}"}}'},
        },
        "spec": {
            "password": secret,
            "passwordSecret": {"name": "auth", "key": "password"},
            "config": {"requirepass": secret, "masterauth": secret, "maxmemory": "1gb"},
            "env": [{"name": "REDIS_PASSWORD", "value": secret}, {"name": "MAXMEMORY", "value": "1gb"}],
            "command": ["redis-server", "--requirepass", secret, "--port", "6379", f"--masterauth={secret}"],
            "customConfig": [f"auth-pass {secret}", "down-after-milliseconds 5000"],
            "backup": {"url": f"s3://user:{secret}@host/bucket", "secretName": "auth", "accessKey": secret},
            "own": {"odd": secret},
        },
    }
    shown = mask(obj, ["/spec/own/*"])
    assert secret not in str(shown)
    assert "managedFields" not in shown["metadata"]
    assert "annotations" not in shown["metadata"]
    assert shown["spec"]["passwordSecret"] == {"name": "auth", "key": "password"}
    assert shown["spec"]["config"]["maxmemory"] == "1gb"
    assert shown["spec"]["env"][1] == {"name": "MAXMEMORY", "value": "1gb"}
    assert shown["spec"]["command"][3:5] == ["--port", "6379"]
    assert shown["spec"]["customConfig"][1] == "down-after-milliseconds 5000"
    assert shown["spec"]["backup"]["secretName"] == "auth"
    assert shown["spec"]["password"] == MASKED
    assert obj["spec"]["password"] == secret
