"""Whom a change makes suspect, and what becomes of an object."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.kube.object import Key, Resource
from mooring.kube.objects.meta import OwnerReference
from mooring.local.controllers.collector.graph import (
    FOREGROUND,
    ORPHAN,
    Delete,
    Graph,
    Item,
    Keep,
    OwnerState,
    Release,
    Verdict,
    judge,
)

SETS = Resource("apps", "v1", "StatefulSet", "statefulsets", True)
PODS = Resource("", "v1", "Pod", "pods", True)


def ref(uid: str, *, block: bool = True, name: str = "") -> OwnerReference:
    return OwnerReference(
        api_version="apps/v1", kind="StatefulSet", name=name or uid, uid=uid, block_owner_deletion=block
    )


def item(
    uid: str, *owners: OwnerReference, resource: Resource = PODS, namespace: str = "ns", **more: Any
) -> Item:
    more = {"deleting": False, "finalizers": (), **more}
    return Item(resource, Key(namespace, uid), uid, tuple(owners), **more)


def owner(uid: str, **more: Any) -> Item:
    return item(uid, resource=SETS, **more)


GOING: dict[str, Any] = {"deleting": True, "finalizers": (FOREGROUND,)}


def test_an_object_whose_owner_is_known_raises_no_suspicion() -> None:
    graph = Graph()
    assert graph.put(owner("o")) == set()
    assert graph.put(item("p", ref("o"))) == set()
    assert [d.uid for d in graph.dependents("o")] == ["p"]


@pytest.mark.parametrize(
    ("known", "reference"),
    [
        (None, ref("o")),
        (owner("o", namespace="other"), ref("o")),
        (owner("o"), ref("o", name="another-name")),
        (item("o"), ref("o")),
        (owner("o", **GOING), ref("o")),
    ],
    ids=["unknown", "other namespace", "other name", "other kind", "going"],
)
def test_an_object_whose_owner_is_not_as_referred_to_is_suspect(
    known: Item | None, reference: OwnerReference
) -> None:
    graph = Graph()
    if known is not None:
        graph.put(known)
    assert "p" in graph.put(item("p", reference))
    assert "p" in graph.suspects()


def test_when_an_owner_goes_its_dependents_are_suspect() -> None:
    graph = Graph()
    graph.put(owner("o"))
    graph.put(item("p", ref("o")))
    graph.put(item("q", ref("o")))
    assert graph.drop("o") == {"p", "q"}
    assert graph.drop("o") == set()


def test_a_foreground_deletion_makes_dependents_suspect_and_then_the_owner_as_they_go() -> None:
    graph = Graph()
    graph.put(owner("o"))
    graph.put(item("p", ref("o")))
    graph.put(item("free", ref("o", block=False)))
    assert graph.put(owner("o", **GOING)) == {"o", "p", "free"}
    assert [d.uid for d in graph.blocking("o")] == ["p"]
    assert graph.drop("p") == {"o"}
    assert graph.blocking("o") == []


def test_references_that_are_taken_away_are_forgotten() -> None:
    graph = Graph()
    graph.put(owner("o"))
    graph.put(item("p", ref("o")))
    graph.put(item("p"))
    assert graph.drop("o") == set()


VERDICTS: list[tuple[str, dict[str, OwnerState], list[Item], dict[str, Any], Verdict]] = [
    ("an owner is there", {"a": "solid"}, [], {}, Keep()),
    ("one of two is gone", {"a": "solid", "b": "absent"}, [], {}, Release(frozenset({"b"}))),
    ("one of two is going", {"a": "solid", "b": "waiting"}, [], {}, Release(frozenset({"b"}))),
    ("all are gone", {"a": "absent", "b": "absent"}, [], {}, Delete("Background")),
    ("the owner waits for it", {"a": "waiting"}, [], {}, Delete("Background")),
    ("the owner waits, and others below", {"a": "waiting"}, [item("x")], {}, Delete("Foreground")),
    ("a ring", {"a": "waiting"}, [item("x", **GOING)], {}, Delete("Foreground", unblock=True)),
    ("orphan asked before", {"a": "absent"}, [], {"finalizers": (ORPHAN,)}, Delete("Orphan")),
    ("foreground asked before", {"a": "absent"}, [], {"finalizers": (FOREGROUND,)}, Delete("Foreground")),
    ("an impossible owner", {"a": "absent", "b": "invalid"}, [], {}, Keep()),
    ("no owners", {}, [], {}, Keep()),
]


@pytest.mark.parametrize(
    ("case", "states", "below", "more", "verdict"), VERDICTS, ids=[v[0] for v in VERDICTS]
)
def test_verdict(
    case: str, states: dict[str, OwnerState], below: list[Item], more: dict[str, Any], verdict: Verdict
) -> None:
    assert judge(item("p", *map(ref, states), **more), states, below) == verdict
