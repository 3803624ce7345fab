"""What must hold of the pure engine whatever the input: nothing changes its arguments, sets behave as sets."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.local.api.engine_harness import Engine
from tests.local.api.engine_scenarios import DEPLOYMENT, RICH_POD, SCENARIOS, WIDGETS_CRD

from mooring.kube.errors import BadRequest, Invalid
from mooring.local.api import apply as ssa
from mooring.local.api import crd, defaults, fieldset, patch, schema, wire
from mooring.local.api.constraints import same

Json = Any
WIDGETS = crd.compile_version(crd.default_crd(WIDGETS_CRD), "v1")
PODS = schema.builtin().get("", "v1", "Pod")
DEPLOYMENTS = schema.builtin().get("apps", "v1", "Deployment")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_requests_and_stored_objects_stay_as_they_are(name: str) -> None:
    engine = Engine(WIDGETS)
    for template in SCENARIOS[name]:
        request = template.within("engine-golden")
        body, stored = copy.deepcopy(request.body), dict(engine.objects)
        before = copy.deepcopy(stored)
        engine.answer(request)
        assert request.body == body
        assert stored == before


def test_the_canonical_form_of_a_canonical_object_is_the_object_itself() -> None:
    assert PODS is not None
    once = defaults.default_builtin(wire.decode(RICH_POD, PODS).value, group="", kind="Pod")
    assert wire.decode(once, PODS).value is once
    assert defaults.default_builtin(once, group="", kind="Pod") is once


def test_applying_the_same_configuration_again_returns_the_live_object_itself() -> None:
    assert DEPLOYMENTS is not None
    live = _applied(None, DEPLOYMENT, "2024-01-01T00:00:00Z")
    assert ssa.apply(live, copy.deepcopy(DEPLOYMENT), DEPLOYMENTS, _later(), reset=("status",)) is live


def test_a_change_of_spelling_alone_leaves_the_live_object() -> None:
    spelled = copy.deepcopy(DEPLOYMENT)
    resources = {"limits": {"cpu": 0.5, "memory": "1024Mi"}}
    spelled["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    live = _applied(None, spelled, "2024-01-01T00:00:00Z")
    again = _applied(live, spelled, "2030-01-01T00:00:00Z")
    assert again is not live
    assert ssa.restore_times(again, live) is live


def _later() -> ssa.Writer:
    return ssa.Writer("me", "apps/v1", "2030-01-01T00:00:00Z")


def _applied(live: Json, config: Json, time: str) -> Json:
    assert DEPLOYMENTS is not None
    merged = ssa.apply(live, config, DEPLOYMENTS, ssa.Writer("me", "apps/v1", time), reset=("status",))
    return defaults.default_builtin(wire.decode(merged, DEPLOYMENTS).value, group="apps", kind="Deployment")


def test_a_custom_resource_without_anything_to_fill_in_comes_back_itself() -> None:
    widget = {
        "apiVersion": "engine.mooring.dev/v1", "kind": "Widget", "metadata": {"name": "x"},
        "spec": {"size": 3, "limit": 5, "mode": "a", "deep": {"on": True}},
    }  # fmt: skip
    assert schema.prune(widget, WIDGETS.schema) is widget
    assert schema.default(widget, WIDGETS.schema) is widget
    assert WIDGETS.validate(widget, widget) == []


def test_defaults_shared_between_objects_are_not_changed_through_one_of_them() -> None:
    widget = {"apiVersion": "engine.mooring.dev/v1", "kind": "Widget", "metadata": {}, "spec": {"size": 1}}
    first = schema.default(widget, WIDGETS.schema)
    second = patch.merge_patch(first, {"spec": {"deep": {"on": False}}})
    assert first["spec"]["deep"] == {"on": True}
    assert second["spec"]["deep"] == {"on": False}


def test_an_oversized_json_patch_is_refused_before_it_is_carried_out() -> None:
    operations = [{"op": "add", "path": "/a", "value": 1}] * (patch.MAX_OPERATIONS + 1)
    with pytest.raises(Exception, match="maximum operations") as refused:
        patch.json_patch({}, operations)
    assert refused.value.status == 413  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/a/b/c", "/l/7", "/l/-9", "/s/x", "nopath"])
def test_json_patches_that_lead_nowhere_are_refused(path: str) -> None:
    with pytest.raises(Invalid):
        patch.json_patch({"l": [1], "s": "text"}, [{"op": "add", "path": path, "value": 1}])


@pytest.mark.parametrize("body", ["text", 5, [1]])
def test_a_merge_patch_that_is_no_object_is_refused(body: Json) -> None:
    with pytest.raises(BadRequest):
        patch.merge_patch({}, body)


# --- laws ---------------------------------------------------------------------------------------------

_ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])


def _node(children: st.SearchStrategy[fieldset.FieldSet]) -> st.SearchStrategy[fieldset.FieldSet]:
    def build(found: dict[str, fieldset.FieldSet], member: bool) -> fieldset.FieldSet:
        return {**found, ".": {}} if member and found else found

    return st.builds(build, st.dictionaries(_ELEMENTS, children, min_size=1, max_size=3), st.booleans())


_SETS = st.dictionaries(_ELEMENTS, st.recursive(st.just({}), _node, max_leaves=6), max_size=3)


def _paths(fields: fieldset.FieldSet) -> set[tuple[str, ...]]:
    return set(fieldset.paths(fields))


@given(_SETS, _SETS)
def test_field_sets_are_sets_of_paths(left: fieldset.FieldSet, right: fieldset.FieldSet) -> None:
    ours, theirs = copy.deepcopy(left), copy.deepcopy(right)
    assert _paths(fieldset.union(left, right)) == _paths(left) | _paths(right)
    assert _paths(fieldset.difference(left, right)) == _paths(left) - _paths(right)
    assert _paths(fieldset.intersection(left, right)) == _paths(left) & _paths(right)
    assert (left, right) == (ours, theirs)


@given(_SETS, _SETS)
def test_taking_a_field_away_takes_what_is_below_it(
    left: fieldset.FieldSet, right: fieldset.FieldSet
) -> None:
    gone = _paths(right)
    rest = {path for path in _paths(left) if not any(path[: len(g)] == g for g in gone)}
    assert _paths(fieldset.without(left, right)) == rest


@given(_SETS)
def test_every_member_is_found(fields: fieldset.FieldSet) -> None:
    assert all(fieldset.has(fields, path) for path in _paths(fields))
    assert fieldset.is_field_set(fields)


_NUMBERS = st.decimals(min_value=-(10**9), max_value=10**9, places=6, allow_nan=False)
_SUFFIXES = st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-3"])


@given(_NUMBERS, _SUFFIXES)
def test_the_canonical_form_of_a_quantity_has_its_value(number: Decimal, suffix: str) -> None:
    text = f"{number:f}{suffix}"
    canonical = wire.canonical_quantity(text)
    assert wire.canonical_quantity(canonical) == canonical
    assert abs(wire.quantity_value(canonical) - wire.quantity_value(text)) <= Decimal("1e-9")


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", "a"])
    | st.sampled_from([0.0, 1.0, 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def _plainly_same(left: Json, right: Json) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_plainly_same(v, right[k]) for k, v in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_plainly_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


@given(_JSON, _JSON)
def test_values_are_compared_by_json_not_by_python(left: Json, right: Json) -> None:
    assert same(left, right) == _plainly_same(left, right)
    assert same(left, copy.deepcopy(left))


_DOCUMENTS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.none() | st.integers(0, 3),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    ),
    max_size=3,
)


def _by_the_rfc(target: Json, change: Json) -> Json:
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _by_the_rfc(result.get(key), value)
    return result


@given(_DOCUMENTS, _DOCUMENTS)
def test_merge_patches_are_those_of_rfc_7386(obj: Json, change: Json) -> None:
    assert patch.merge_patch(obj, change) == _by_the_rfc(obj, change)


def test_deployments_share_the_schema_of_pods() -> None:
    assert DEPLOYMENTS is not None
    assert PODS is not None
    spec = DEPLOYMENTS.properties["spec"].properties["template"].properties["spec"]
    assert spec is PODS.properties["spec"]
