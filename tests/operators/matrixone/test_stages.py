"""The order in which a cluster's sets are changed and deleted."""

from __future__ import annotations

from typing import Any

from tests.operators.matrixone.test_buckets import eventually, operating

from mooring.kube.object import Object, decode
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.matrixone.cluster.stages import STAGES, in_order, next_deletion
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.specs import ClusterSpecs
from mooring.operators.matrixone.types import (
    CNSet,
    CNSetSpec,
    DNSet,
    DNSetSpec,
    LogSet,
    LogSetSpec,
    MatrixOneCluster,
    ProxySet,
    ProxySetSpec,
    WebUI,
)

META = ObjectMeta(name="mo", namespace="ns")


def sets(image: str, *, nodes: int = 1, **changes: Any) -> list[Object]:
    return [
        LogSet(metadata=META, spec=LogSetSpec(image=image, replicas=3)),
        DNSet(metadata=META, spec=DNSetSpec(image=image, replicas=1)),
        CNSet(metadata=META, spec=CNSetSpec(image=image, replicas=nodes)),
        ProxySet(metadata=META, spec=ProxySetSpec(image=image, replicas=1)),
    ]


def of(made: list[Object]) -> dict[str, tuple[str, int]]:
    return {one.resource.kind: (one.spec.image, one.spec.replicas) for one in made}  # type: ignore[attr-defined]


def live(made: list[Object]) -> dict[tuple[type[Object], str], Object]:
    return {(type(one), "mo"): one for one in made}


def test_all_sets_are_made_at_once() -> None:
    made, held = in_order(sets("mo:1"), {}, lambda one: "")
    assert (len(made), held) == (4, [])


def test_a_new_version_goes_stage_by_stage_and_stops_where_one_does_not_come_up() -> None:
    old, new = sets("mo:1"), sets("mo:2")
    order = []
    now = old
    while (made := in_order(new, live(now), lambda one: "")[0]) and of(made) != of(now):
        changed = [kind for kind in of(made) if of(made)[kind] != of(now)[kind]]
        order += changed
        now = made
    assert order == ["LogSet", "DNSet", "CNSet", "ProxySet"]
    made, held = in_order(
        new, live([new[0], *old[1:]]), lambda one: "is not ready" if isinstance(one, LogSet) else ""
    )
    assert [image for image, _ in of(made).values()] == ["mo:2", "mo:1", "mo:1", "mo:1"]
    assert {(one.kind, one.waits_for) for one in held} == {
        (kind, "LogSet mo is not ready") for kind in ("DNSet", "CNSet", "ProxySet")
    }


def test_the_number_of_compute_nodes_waits_for_nothing() -> None:
    made, held = in_order(sets("mo:2", nodes=4), live(sets("mo:1")), lambda one: "is not ready")
    assert of(made)["CNSet"] == ("mo:1", 4)
    assert {one.kind for one in held} == {"DNSet", "CNSet", "ProxySet"}


def test_a_field_that_is_dropped_waits_for_its_turn_too() -> None:
    found = sets("mo:1")
    configured = CNSet(
        metadata=META, spec=CNSetSpec(image="mo:1", replicas=1, config="[log]\nlevel = 'debug'\n")
    )
    made, held = in_order(sets("mo:1"), live([*found[:2], configured, found[3]]), lambda one: "is not ready")
    kept = next(one for one in made if isinstance(one, CNSet))
    assert kept.spec is not None
    assert kept.spec.config == "[log]\nlevel = 'debug'\n"
    assert [one.kind for one in held] == ["CNSet"]


async def test_nothing_is_held_of_sets_that_are_as_declared_whatever_was_filled_in() -> None:
    """Defaults of the schema and of the webhook are no change: what is stored is read as it was declared."""
    spec = {
        "version": "1.2.4",
        "logService": {
            "replicas": 3,
            "volume": {"size": "1Gi"},
            "sharedStorage": {"fileSystem": {"path": "/shared"}},
        },
        "tn": {"replicas": 1, "resources": {"requests": {"memory": "1Gi"}}},
        "cnGroups": [{"name": "tp", "replicas": 1, "cacheVolume": {"size": "10Gi"}}],
        "proxy": {"replicas": 1},
    }
    async with operating() as client:
        declared = decode(
            {"metadata": {"name": "mo", "namespace": "default"}, "spec": spec}, MatrixOneCluster
        )
        cluster = await client.create(declared)

        async def made() -> list[Object]:
            found = [one for kind in STAGES for one in (await client.list(kind, namespace="default")).items]
            return found if len(found) == 4 else []

        sets_made = await eventually(made)
        stored = {(type(one), one.metadata.name or ""): one for one in sets_made}
        for found in (stored, {key: with_defaults(one) for key, one in stored.items()}):
            wanted = ClusterSpecs(cluster).sets()
            assert in_order(wanted, found, lambda one: "is not ready")[1] == []


def test_sets_are_deleted_from_the_clients_side() -> None:
    left: list[Object] = [*sets("mo:1"), WebUI(metadata=META)]
    gone = []
    while (step := next_deletion(left)[0]) is not None:
        gone.append(sorted(one.resource.kind for one in step.sets))
        left = [one for one in left if one not in step.sets]
    assert gone == [["ProxySet", "WebUI"], ["CNSet"], ["DNSet"], ["LogSet"]]


def test_a_stage_that_still_ends_is_waited_for() -> None:
    ending = ProxySet(
        metadata=ObjectMeta(name="mo", namespace="ns", deletion_timestamp="2026-01-01T00:00:00Z")
    )
    step, text = next_deletion([*sets("mo:1")[:3], ending])
    assert step is None
    assert text == "ProxySet mo end"


def test_pods_that_outlive_their_set_are_waited_for() -> None:
    left = sets("mo:1")[:3]
    assert next_deletion(left, running={ProxySet, CNSet}) == (None, "the pods of ProxySet end")
    step, _ = next_deletion(left, running={CNSet, DNSet, LogSet})
    assert step is not None
    assert [one.resource.kind for one in step.sets] == ["CNSet"]
    assert next_deletion([], running={LogSet}) == (None, "the pods of LogSet end")
