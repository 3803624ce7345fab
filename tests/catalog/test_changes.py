"""Edits as changes: what differs, what a patch holds, what a form says of a live object."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.catalog import (
    MASKED,
    Change,
    MaskedSecret,
    apply_changes,
    diff,
    editable,
    json_patch,
    overlaps,
    packaged,
    restored,
    values_of,
    with_values,
)

ENTRIES = {entry.name: entry for entry in packaged()}
SENTINEL, CLUSTER = ENTRIES["redis-sentinel"], ENTRIES["redis-cluster"]

leaf = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b/c", "d~e"])
tree = st.recursive(
    leaf,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "d~e"]), below),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["a", "b/c"]), tree), st.dictionaries(st.sampled_from(["a", "b/c"]), tree)
)
def test_the_changes_of_two_objects_make_one_of_the_other(old: Any, new: Any) -> None:
    before = deepcopy(old)
    made, left = apply_changes(old, diff(old, new))
    assert left == []
    assert diff(made, new) == []
    assert old == before


def test_only_what_differs_is_in_the_patch() -> None:
    old = {"spec": {"size": 3, "config": {"a": "1", "b": "2"}, "pod": [{"image": "x", "env": ["a"]}]}}
    new = {"spec": {"size": 5, "config": {"a": "1"}, "pod": [{"image": "x", "env": ["a", "b"]}], "odd": True}}
    assert json_patch(diff(old, new), resource_version="7") == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/spec/size", "value": 5},
        {"op": "remove", "path": "/spec/config/b"},
        {"op": "replace", "path": "/spec/pod/0/env", "value": ["a", "b"]},
        {"op": "add", "path": "/spec/odd", "value": True},
    ]
    assert diff({"a": 1}, {"a": True}) == [Change(op="replace", path="/a", old=1, new=True)]


def test_a_change_for_which_there_is_no_place_is_not_dropped_silently() -> None:
    changes = diff({"spec": {"a": {"b": 1}, "c": 1}}, {"spec": {"a": {"b": 2}}})
    made, left = apply_changes({"spec": {"a": "text", "c": 5}}, changes)
    assert made == {"spec": {"a": "text"}}
    assert [change.path for change in left] == ["/spec/a/b"]


def test_changes_overlap_where_one_is_within_the_other() -> None:
    def at(path: str) -> Change:
        return Change(op="replace", path=path)

    assert overlaps(at("/spec/a"), at("/spec/a/b"))
    assert overlaps(at("/spec/a/b"), at("/spec"))
    assert not overlaps(at("/spec/a"), at("/spec/ab"))


LIVE: dict[str, Any] = {
    "metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "managedFields": [], "labels": {"x": "y"}},
    "spec": {"pod": [{"env": [{"name": "A", "value": "1"}, {"name": "REDIS_PASSWORD", "value": "s3cret"}]}]},
    "status": {"ready": 3},
}


def test_what_is_edited_has_no_status_no_secret_and_nothing_of_the_server() -> None:
    document = editable(LIVE)
    assert document["metadata"] == {"name": "a", "labels": {"x": "y"}}
    assert "status" not in document
    assert "s3cret" not in str(document)
    assert LIVE["metadata"]["uid"] == "1"


def test_a_masked_secret_that_a_change_carries_along_is_the_live_one_again() -> None:
    shown = editable(LIVE)
    edited = deepcopy(shown)
    edited["spec"]["pod"][0]["env"].insert(0, {"name": "B", "value": "2"})
    [change] = restored(diff(shown, edited), shown, LIVE)
    assert change.new[2] == {"name": "REDIS_PASSWORD", "value": "s3cret"}
    assert change.new[0] == {"name": "B", "value": "2"}


@pytest.mark.parametrize("place", ["A", "NEW"])
def test_a_masked_secret_in_another_place_is_refused(place: str) -> None:
    shown = editable(LIVE)
    edited = deepcopy(shown)
    edited["spec"]["pod"][0]["env"] = [{"name": place, "value": MASKED}]
    with pytest.raises(MaskedSecret) as refused:
        restored(diff(shown, edited), shown, LIVE)
    assert refused.value.path == "/spec/pod/0/env/0/value"


def test_a_form_is_filled_from_a_live_object() -> None:
    spec = {
        "size": 5,
        "image": "redis:7.0",
        "config": {"maxmemory": "192mb"},
        "resources": {"limits": {"memory": 1024}},
        "disablePersistence": True,
        "passwordSecret": {"name": ["odd"]},
    }
    assert values_of(SENTINEL, {"spec": spec}) == {
        "size": 5,
        "image": "redis:7.0",
        "memory": "1024",
        "maxmemory": "192mb",
        "disablePersistence": True,
    }
    assert values_of(CLUSTER, {"spec": {"pod": [{"requirepass": MASKED}]}}) == {}


def test_a_form_changes_only_what_was_typed() -> None:
    obj = {"spec": {"size": 3, "config": {"maxmemory": "1gb", "hz": "10"}, "odd": [1]}}
    made = with_values(SENTINEL, obj, {"size": 5, "maxmemory": "", "maxclients": "", "policy": "noeviction"})
    assert made == {"spec": {"size": 5, "config": {"hz": "10", "maxmemory-policy": "noeviction"}, "odd": [1]}}
    assert obj["spec"]["size"] == 3
    kept = {"spec": {"pod": [{"requirepass": MASKED}]}}
    assert with_values(CLUSTER, kept, {"password": ""}) == kept
    assert with_values(CLUSTER, kept, {"password": "x"}) == {"spec": {"pod": [{"requirepass": "x"}]}}
    with pytest.raises(ValueError, match="leads through"):
        with_values(SENTINEL, {"spec": {"config": "text"}}, {"maxmemory": "1gb"})
