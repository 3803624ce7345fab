"""What one request may cost: depth, copies, merges, bodies. Times are bounds of growth, far above what is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.local.api.conftest import CM, CRDS, WIDGETS, Client, config_map, definition

from mooring.kube.errors import ApiError, BadRequest, Invalid
from mooring.local.api import codec, patch, schema
from mooring.local.api.constraints import validate
from mooring.local.api.fields import FieldError

Json = Any

#: Seconds for what takes a tenth of it; what it took before was ten times that.
SOON = 5.0
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


def nested(depth: int) -> Json:
    value: Json = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def took(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


# --- depth ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["'[' * 30_000", "'{a: ' * 30_000", "'? ' * 30_000", "'- ' * 30_000"])
def test_yaml_nested_deeply_is_refused_before_it_is_built(text: str) -> None:
    code = f"from mooring.local.api import codec; codec.decode(({text}).encode(), 'application/yaml')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.splitlines()[-1]) == (
        1,
        "ValueError: yaml: exceeded max depth of 200",
    )


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
def test_bodies_nest_as_deep_as_the_limit_and_no_deeper(content_type: str) -> None:
    def read(depth: int) -> Json:
        return codec.decode(msgspec.json.encode([nested(depth - 1)]), content_type)

    assert read(codec.DEEPEST) == [nested(codec.DEEPEST - 1)]
    for depth in (codec.DEEPEST + 1, 900):
        with pytest.raises(ValueError, match="exceeded max depth of 200"):
            read(depth)
    with pytest.raises(ValueError, match="exceeded max depth of 200"):
        codec.decode(b'{"a":' * 30_000, content_type)


async def test_a_nested_custom_resource_is_refused_or_can_be_read(api: Client) -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await api.create(CRDS, definition(schema={"openAPIV3Schema": free}))
    base = {"apiVersion": "example.com/v1", "kind": "Widget"}
    widget = {**base, "metadata": {"name": "w"}, "spec": nested(codec.DEEPEST - 1)}
    await api.create(WIDGETS, widget)
    await api.apply(f"{WIDGETS}/w", {**widget, "metadata": {"name": "w", "labels": {"a": "b"}}}, force="true")
    await api.merge(f"{WIDGETS}/w", {"spec": nested(codec.DEEPEST - 1)})
    version = (await api.get(f"{WIDGETS}/w"))["metadata"]["resourceVersion"]
    await api.ok("PUT", f"{WIDGETS}/w", {**widget, "metadata": {"name": "w", "resourceVersion": version}})
    assert (await api.get(f"{WIDGETS}/w"))["spec"] == widget["spec"]
    for accept in ("application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io"):
        assert (await api.send("GET", WIDGETS, headers={"Accept": accept})).status == 200
    for name in ("x", "w"):
        deeper = {**base, "metadata": {"name": name}, "spec": nested(codec.DEEPEST)}
        status = await api.refused(400, "POST", WIDGETS, deeper)
        assert "exceeded max depth of 200" in status["message"]
    move = [{"op": "copy", "from": "/spec", "path": "/spec/a/a/a/b"}]
    status = await api.refused(400, "PATCH", f"{WIDGETS}/w", move, content_type="application/json-patch+json")
    assert status["message"] == "the patched document exceeded max depth of 200"


def test_a_long_path_of_a_json_patch_fits_no_document() -> None:
    with pytest.raises(Invalid):
        patch.json_patch({}, [{"op": "add", "path": "/a" * 1_000_000, "value": 1}])


# --- yaml -----------------------------------------------------------------------------------------------


def test_yaml_merge_keys_are_counted_as_what_they_repeat() -> None:
    bomb = "a: &a {k1: v}\n" + "".join(
        f"{name}: &{name} {{<<: [*{last}, *{last}]}}\n"
        for last, name in zip("abcdefghijklmnopqrstu", "bcdefghijklmnopqrstuv", strict=True)
    )
    assert len(bomb) < 500

    def refused() -> None:
        with pytest.raises(ValueError, match="excessive aliasing"):
            codec.decode(bomb.encode(), "application/yaml")

    assert took(refused) < 1


def test_yaml_aliases_and_merge_keys_that_repeat_little_are_read() -> None:
    text = b"base: &b {x: 1, l: [1, 2]}\none: {<<: *b, z: 3}\ntwo: *b\n"
    base = {"x": 1, "l": [1, 2]}
    assert codec.decode(text, "application/yaml") == {"base": base, "one": {**base, "z": 3}, "two": base}


def test_yaml_that_contains_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="anchor 'a' value contains itself"):
        codec.decode(b"a: &a [*a]", "application/yaml")


def test_a_list_or_an_object_is_no_yaml_key() -> None:
    text = "x"
    for _ in range(60):
        text = f'{{? {text} : "\'"}}'

    def refused() -> None:
        with pytest.raises(ValueError, match="invalid map key"):
            codec.decode(text.encode(), "application/yaml")

    assert took(refused) < 1


def test_yaml_numbers_of_base_60_are_text() -> None:
    assert codec.decode(b"a: 1:30\nb: 1:30.5\nc: 90", "application/yaml") == {
        "a": "1:30",
        "b": "1:30.5",
        "c": 90,
    }
    assert took(lambda: codec.decode(b"a: 1" + b":1" * 500_000, "application/yaml")) < SOON


# --- patches --------------------------------------------------------------------------------------------


def test_the_copies_of_a_json_patch_are_bounded() -> None:
    def doubled(times: int) -> Json:
        steps = [{"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(times)]
        return patch.json_patch({"a": {"text": "x" * 100}}, steps)

    assert len(msgspec.json.encode(doubled(10))) > 100 << 10
    with pytest.raises(Invalid, match="the server rejected our request due to an error in our request"):
        doubled(25)


def test_copies_of_a_json_patch_are_apart_from_what_they_copy() -> None:
    given = {"a": {"b": [1]}}
    steps = [
        {"op": "copy", "from": "/a", "path": "/c"},
        {"op": "add", "path": "/c/b/-", "value": 2},
        {"op": "add", "path": "/a/b/-", "value": 3},
    ]
    assert patch.json_patch(given, steps) == {"a": {"b": [1, 3]}, "c": {"b": [1, 2]}}
    assert given == {"a": {"b": [1]}}


def test_what_a_json_patch_adds_is_not_changed_by_its_next_steps() -> None:
    added: Json = {"x": []}
    steps = [{"op": "add", "path": "/a", "value": added}, {"op": "add", "path": "/a/x/-", "value": 1}]
    assert patch.json_patch({}, steps) == {"a": {"x": [1]}}
    assert added == {"x": []}


def test_a_json_patch_of_many_steps_copies_a_long_list_once() -> None:
    steps = [{"op": "add", "path": "/a/-", "value": 1}] * 10_000
    assert took(lambda: patch.json_patch({"a": [0] * 300_000}, steps)) < SOON


async def test_a_json_patch_of_too_many_operations_is_refused(api: Client) -> None:
    await api.create(CM, config_map())
    steps = [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001
    status = await api.refused(413, "PATCH", f"{CM}/a", steps, content_type="application/json-patch+json")
    assert status["message"] == "The allowed maximum operations in a JSON patch is 10000, got 10001"


def test_a_wrong_json_patch_is_sorted_in_the_time_of_its_length() -> None:
    paths = [["data", str(n), "x"] for n in range(10_000)]
    document = {"data": [{"x": 1} for _ in range(10_000)]}
    assert took(lambda: patch.by_name(document, paths)) < SOON


def strategic(live: Json, change: Json) -> Json:
    pods = schema.builtin().get("", "v1", "Pod")
    assert pods is not None

    def inside(spec: Json) -> Json:
        return {"spec": {"containers": [{"name": "c", **spec}]}}

    found = patch.strategic_merge_patch(inside(live), inside(change), pods)
    return found["spec"]["containers"][0]


MANY = 15_000


@pytest.mark.parametrize(
    "change",
    [
        {"env": [{"name": f"n{n}", "value": "2"} for n in range(MANY // 2, MANY + MANY // 2)]},
        {"env": [{"name": f"n{n}", "$patch": "delete"} for n in range(MANY)]},
        {"$setElementOrder/env": [{"name": f"n{n}"} for n in reversed(range(MANY))]},
        {
            "env": [{"name": f"n{n}", "value": "2"} for n in range(0, MANY, 2)],
            "$setElementOrder/env": [{"name": f"n{n}"} for n in range(MANY)],
        },
    ],
    ids=["merged", "deleted", "ordered", "both"],
)
def test_a_strategic_merge_of_long_lists_takes_the_time_of_their_length(change: Json) -> None:
    live = {"env": [{"name": f"n{n}", "value": "1"} for n in range(MANY)]}
    assert took(lambda: strategic(live, change)) < SOON


def test_a_strategic_merge_of_long_lists_of_texts_takes_the_time_of_their_length() -> None:
    meta = schema.builtin().object_meta()
    live = {"finalizers": [f"example.com/{n}" for n in range(MANY)]}
    change = {"finalizers": [f"example.com/{n}" for n in range(MANY // 2, MANY * 2)]}
    gone = {"$deleteFromPrimitiveList/finalizers": live["finalizers"]}
    assert took(lambda: patch.strategic_merge_patch(live, change, meta)) < SOON
    assert took(lambda: patch.strategic_merge_patch(live, gone, meta)) < SOON


# --- schemas --------------------------------------------------------------------------------------------


def words(number: int) -> schema.Schema:
    listed = {"type": "array", "items": {"type": "string", "enum": [f"w{n}" for n in range(number)]}}
    return schema.compile_node({"type": "object", "properties": {"spec": listed}})


def test_a_long_enumeration_takes_the_time_of_the_list_that_it_bounds() -> None:
    many = words(3000)
    assert took(lambda: validate({"spec": ["w2999"] * 20_000}, many)) < SOON
    found: list[FieldError] = []
    assert took(lambda: found.extend(validate({"spec": ["x"] * 20_000}, many))) < SOON
    assert [error.field for error in found] == [f"spec[{n}]" for n in range(100)]


def test_an_enumeration_tells_numbers_and_truth_apart_and_knows_whole_values() -> None:
    allowed = [1, "1", {"a": [True]}, [1.0]]
    source = {
        "type": "object",
        "properties": {"spec": {"x-kubernetes-preserve-unknown-fields": True, "enum": allowed}},
    }
    one = schema.compile_node(source)
    good = [1, 1.0, "1", {"a": [True]}, [1]]
    bad = [True, 2, "2", {"a": [1]}, {"a": []}, [True], []]
    assert [validate({"spec": value}, one) == [] for value in (*good, *bad)] == [True] * 5 + [False] * 7


def test_unique_items_take_the_time_of_their_list() -> None:
    items = {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}
    one = schema.compile_node({"type": "object", "properties": {"spec": items}})
    assert took(lambda: validate({"spec": list(range(20_000))}, one)) < SOON
    assert len(validate({"spec": [1, 2, 1]}, one)) == 1


async def test_warnings_without_end_are_cut_short_as_by_a_real_server(api: Client) -> None:
    await api.create(CRDS, definition())
    unknown = {f"k{n:05}": 1 for n in range(20_000)} | {"z" * 300: 1}
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": unknown}
    answer = await api.send("POST", WIDGETS, body)
    assert answer.status == 201
    told = answer.headers["Warning"].split(", 299")
    assert 100 < len(told) < 200
    assert 'unknown field \\"spec.k00000\\"' in told[0]


def test_refusals_name_the_limit() -> None:
    with pytest.raises(ApiError) as found:
        patch.json_patch({}, [{"op": "add", "path": "/a", "value": nested(codec.DEEPEST)}])
    assert isinstance(found.value, BadRequest)
