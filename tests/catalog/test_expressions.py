"""Rules and requests of entries: what they see, what stops them, and what lint finds in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from mooring.catalog import (
    check_edit,
    check_values,
    defaults,
    lint,
    lint_collection,
    packaged,
    parse_entry,
    requests_of,
)
from mooring.catalog.expressions import ExpressionError, evaluate, params
from mooring.catalog.promql import lint_query

ENTRIES = {entry.name: entry for entry in packaged()}
SENTINEL = ENTRIES["redis-sentinel"]
DEFINITIONS = Path(__file__).parent / "definitions"


def test_numbers_quantities_and_sizes_are_doubles() -> None:
    values = {"size": 3, "memory": "2Gi", "maxmemory": "100mb", "image": "redis:7.0"}
    known = params(SENTINEL.parameters, values)
    assert known == {"size": 3.0, "memory": 2.0 * 2**30, "maxmemory": 100.0 * 2**20, "image": "redis:7.0"}
    assert evaluate("params.size * params.memory", known) == 6.0 * 2**30
    assert evaluate("has(params.storage)", known) is False


@pytest.mark.parametrize(
    "text",
    [
        "params.nothing",
        "1/0",
        "params.size * 2",
        "no such",
        "true && " * 400 + "true",
    ],
    ids=["missing", "zero", "types", "syntax", "length"],
)
def test_an_expression_without_a_value_is_an_error_and_nothing_more(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text, {"size": 3.0})


def test_a_rule_is_told_at_its_field_once_the_fields_are_sound() -> None:
    values = {**defaults(SENTINEL, "small"), "maxmemory": "1gb"}
    [problem] = check_values(SENTINEL, values)
    assert problem.field == "maxmemory"
    assert "less than the memory limit" in problem.message.en
    assert "内存上限" in problem.message.zh
    values["size"] = 99
    assert [one.field for one in check_values(SENTINEL, values)] == ["size"]
    assert check_values(SENTINEL, {**values, "size": 3, "maxmemory": "200mb"}) == []


def test_an_edit_is_held_to_the_rules_that_it_breaks_itself() -> None:
    present = {"size": 3, "memory": "256Mi", "maxmemory": "192mb"}
    [problem] = check_edit(SENTINEL, {"memory": "128Mi"}, present)
    assert problem.field == "maxmemory", "the other side of the rule was changed"
    assert check_edit(SENTINEL, {"memory": "512Mi"}, present) == []
    assert check_edit(SENTINEL, {"size": 5}, {**present, "memory": "64Mi"}) == [], "it was so before"
    assert [one.field for one in check_edit(SENTINEL, {"size": 99}, present)] == ["size"]


def test_what_an_instance_needs_follows_its_values() -> None:
    values = {**defaults(SENTINEL, "small"), "size": 5, "storage": "10Gi"}
    assert requests_of(SENTINEL, values) == {
        "pods": 8.0,
        "persistentvolumeclaims": 5.0,
        "requests.cpu": 0.25,
        "requests.storage": 50.0 * 2**30,
    }
    assert requests_of(SENTINEL, {**values, "disablePersistence": True})["requests.storage"] == 0.0
    assert "requests.cpu" not in requests_of(SENTINEL, {}), "what cannot be told is left out"


BASE: dict[str, Any] = msgspec.to_builtins(ENTRIES["cnpg-postgres"])
BASE.pop("curated", None)
WORDS = {"title": {"en": "a", "zh": "b"}, "description": {"en": "a", "zh": "b"}}
SENSITIVE = {
    "type": "string",
    "title": {"en": "a", "zh": "b"},
    "x-bind": "/spec/key",
    "x-ui": {"widget": "secret"},
    "x-sensitive": True,
}
RULE = {"cel": "true", "message": {"en": "a", "zh": "b"}}
ACTION = {"name": "go", **WORDS, "set": {"/spec/instances": 1}}
FIGURE = {"title": {"en": "a", "zh": "b"}, "path": "/status/phase"}
CHART = {"title": {"en": "a", "zh": "b"}, "query": 'up{namespace="$namespace",pod="$name"}'}
TARGET = BASE["spec"]["target"]
COLLECTION = BASE["spec"]["collections"][0]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"rules": [{"cel": "params.x(", "message": {"en": "a", "zh": "b"}}]}, "spec.rules[0].cel"),
        ({"rules": [{"cel": "false", "message": {"en": "a", "zh": "b"}}]}, "not true for the values of plan"),
        (
            {"rules": [{"cel": "true", "field": "x", "message": {"en": "a", "zh": "b"}}]},
            "spec.rules[0].field",
        ),
        ({"rules": [{"cel": "true", "message": {"en": "a"}}]}, "spec.rules[0].message.zh: missing"),
        ({"requests": {"gpus": "1.0"}}, "spec.requests.gpus: none of"),
        ({"requests": {"pods": "'three'"}}, "gives 'three', not an amount"),
        ({"requests": {"pods": "params.nothing"}}, "spec.requests.pods"),
        (
            {"metrics": {"charts": [{"title": {"en": "a", "zh": "b"}, "query": "up"}]}},
            'needs namespace="$namespace"',
        ),
        (
            {
                "metrics": {
                    "charts": [{"title": {"en": "a", "zh": "b"}, "query": 'up{namespace="$namespace"}'}]
                }
            },
            "nothing in it is about $name",
        ),
        (
            {"metrics": {"figures": [{"title": {"en": "a", "zh": "b"}, "path": "status"}]}},
            "spec.metrics.figures[0].path",
        ),
        (
            {"metrics": {"figures": [{"title": {"en": "a", "zh": "b"}, "path": "/spec/password"}]}},
            "spec.metrics.figures[0].path: '/spec/password' is not below /status",
        ),
        ({"rules": [RULE] * 51}, "spec.rules: more than 50"),
        ({"actions": [ACTION] * 31}, "spec.actions: more than 30"),
        ({"metrics": {"charts": [CHART] * 21}}, "spec.metrics.charts: more than 20"),
        ({"metrics": {"figures": [FIGURE] * 21}}, "spec.metrics.figures: more than 20"),
        ({"collections": [COLLECTION] * 11}, "spec.collections: more than 10"),
        (
            {"collections": [{**COLLECTION, "columns": [FIGURE] * 21}]},
            "spec.collections[0].columns: more than 20",
        ),
        (
            {"actions": [{**ACTION, "target": {"plural": "../secrets", "name": "x"}}]},
            "spec.actions.go.target.plural: '../secrets' is none",
        ),
        (
            {"actions": [{**ACTION, "target": {"group": "a/b", "plural": "cs", "name": "x"}}]},
            "spec.actions.go.target.group: 'a/b' is none",
        ),
        ({"target": {**TARGET, "group": "../api/v1/secrets?x=a.b"}}, "spec.target.group: "),
        ({"target": {**TARGET, "version": "v1/namespaces"}}, "spec.target.version: "),
        ({"target": {**TARGET, "plural": "../../x"}}, "spec.target.plural: "),
        ({"target": {**TARGET, "plural": "clusters\n"}}, "spec.target.plural: "),
        ({"target": {**TARGET, "kind": "a b"}}, "spec.target.kind: "),
    ],
)
def test_lint_finds_what_is_wrong_with_expressions_and_metrics(change: dict[str, Any], wanted: str) -> None:
    document = {**BASE, "spec": {**BASE["spec"], **change}}
    found = lint(parse_entry(msgspec.yaml.encode(document).decode()))
    assert any(wanted in line for line in found), found


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"name": "Backups"}, "lower case letters"),
        ({"of": "/metadata/labels/x"}, "is not below /spec"),
        (
            {"target": {"group": "", "version": "v1", "kind": "Secret", "plural": "secrets"}},
            "none of custom resources",
        ),
        ({"target": {**TARGET, "plural": "a/../../secrets"}}, "target.plural: "),
        (
            {"columns": [{"title": {"en": "a", "zh": "b"}, "path": "/data/password"}]},
            "is not below /spec, /status",
        ),
        (
            {"create": {**WORDS, "parameters": {"properties": {"key": SENSITIVE}}}},
            "create.parameters.key: the form of a collection has no sensitive field",
        ),
        ({"title": {"en": "Backups"}}, "title.zh: missing"),
        ({"restore": {"title": {}, "description": {}, "drop": ["/metadata/name"]}}, "is not below /spec"),
    ],
)
def test_lint_finds_what_is_wrong_with_a_collection(change: dict[str, Any], wanted: str) -> None:
    [first, *_] = BASE["spec"]["collections"]
    document = {**BASE, "spec": {**BASE["spec"], "collections": [{**first, **change}]}}
    found = lint(parse_entry(msgspec.yaml.encode(document).decode()))
    assert any(wanted in line for line in found), found


@pytest.mark.parametrize("name", ["cnpg-backup", "cnpg-scheduledbackup"])
def test_the_collections_fit_the_definitions_of_their_kinds(name: str) -> None:
    definition = yaml.safe_load((DEFINITIONS / f"{name}.yaml").read_text())
    kind = definition["spec"]["names"]["kind"]
    [one] = [one for one in ENTRIES["cnpg-postgres"].spec.collections if one.target.kind == kind]
    assert lint_collection(one, definition) == []
    broken = msgspec.structs.replace(one, of="/spec/nothing/name")
    assert lint_collection(broken, definition) == [
        f"spec.collections.{one.name}: the kind has no spec.nothing.name"
    ]


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_the_packaged_entries_are_sound(name: str) -> None:
    assert lint(ENTRIES[name]) == []


@pytest.mark.parametrize("macro", ["all", "exists", "exists_one", "existsOne", "map", "filter"])
def test_no_expression_iterates(macro: str) -> None:
    with pytest.raises(ExpressionError, match="are not available"):
        evaluate(f"[1.0].{macro} (a, true)", {})
    with pytest.raises(ExpressionError):
        evaluate(f"[1.0].`a//b`.{macro}(a, true)", {})
    assert evaluate(f"'x.{macro}(a, true)' != ''", {}) is True, "in a text it is no macro"


def test_an_expression_cannot_fill_the_memory() -> None:
    text = "v19 == v19"
    for number in range(19, 0, -1):
        text = f"[v{number - 1}+v{number - 1}].all(v{number},{text})"
    with pytest.raises(ExpressionError):
        evaluate(f"[params.s].all(v0,{text})", {"s": "a" * 4096})


def test_nothing_else_is_looked_at_in_an_entry_with_too_many_parts() -> None:
    rules = [{"cel": "params.x(", "message": {}}] * 51
    document = {**BASE, "spec": {**BASE["spec"], "rules": rules}}
    assert lint(parse_entry(msgspec.yaml.encode(document).decode())) == ["spec.rules: more than 50"]


@pytest.mark.parametrize(
    "query",
    [
        'kube_secret_info or up{namespace="$namespace"}',
        'kube_secret_info # {namespace="$namespace"}',
        'up{namespace="$namespace"} + {job="x"}',
        'up{namespace="$namespace" or job="x"}',
        'up{namespace=~"$namespace"}',
        'up{namespace!="$namespace"}',
        """up{job='namespace="$namespace"'}""",
        'up{job="a\\",namespace="$namespace"}',
        'sum by (pod) (up) + up{namespace="$namespace"}',
        'sum by (up + up) (up{namespace="$namespace"})',
        'up{namespace="$namespace"} + $name',
        'up{namespace="$namespace"} + é',
        "up[5m]",
    ],
)
def test_a_query_that_asks_for_more_than_its_namespace_is_refused(query: str) -> None:
    assert list(lint_query(query))


@pytest.mark.parametrize(
    "query",
    [
        'sum by (pod) (rate(up{namespace="$namespace",pod=~"$name-[0-9]+"}[5m]))',
        'sum(up{job="a", namespace="$namespace"}) by (pod) / on (pod) group_left max without (x) (up{namespace="$namespace",})',
        """max_over_time(job:up{ namespace="$namespace", pod=~'$name-.*' }[1h:5m] offset 5m) > bool 1e3""",
        'label_replace({__name__="up",namespace="$namespace"}, "a", "$1", "b", `(.*)`) and vector(1)',
    ],
)
def test_a_query_of_its_namespace_alone_is_sound(query: str) -> None:
    assert list(lint_query(query)) == []
