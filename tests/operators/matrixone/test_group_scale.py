"""The number of compute nodes of a group comes from its declaration, or from an HPA or kubectl that scales its CNSet."""

from __future__ import annotations

from tests.operators.matrixone.test_buckets import eventually, operating

from mooring.kube import Client, MergePatch
from mooring.kube.object import Object, decode
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.matrixone.cluster.scale import DECLARED, asked_about, scaled
from mooring.operators.matrixone.explain import lines
from mooring.operators.matrixone.types import CNSet, CNSetSpec, MatrixOneCluster

HPA = "kube-controller-manager"


def group(replicas: int | None, declared: str | None = None) -> CNSet:
    notes = {DECLARED: declared} if declared is not None else None
    return CNSet(metadata=ObjectMeta(name="mo-tp", annotations=notes), spec=CNSetSpec(replicas=replicas))


def live(there: CNSet) -> dict[tuple[type[Object], str], Object]:
    return {(CNSet, "mo-tp"): there}


def applied(wanted: CNSet, there: CNSet, owner: str = HPA) -> tuple[int | None, str | None]:
    """The number that is applied, and the one that is remembered."""
    [made], others = scaled([wanted], live(there), {"mo-tp": owner})
    assert isinstance(made, CNSet)
    assert made.spec is not None
    assert (others == {"mo-tp": owner}) is (made.spec.replicas is None)
    return made.spec.replicas, (made.metadata.annotations or {}).get(DECLARED)


def test_a_number_that_somebody_scales_is_left_out_and_the_declared_one_is_remembered() -> None:
    assert applied(group(2), group(5)) == (None, "2")
    assert applied(group(2), group(2, "2")) == (None, "2"), "also while both numbers are the same"


def test_another_declared_number_takes_it_back_once() -> None:
    assert applied(group(3), group(5, "2")) == (3, None)
    assert applied(group(3), group(5)) == (None, "3"), "a scaler that writes again wins again"


def test_a_number_that_is_nobody_elses_is_the_groups() -> None:
    assert applied(group(2), group(5, "2"), owner="") == (2, None)


def test_managed_fields_are_read_only_where_they_can_matter() -> None:
    assert asked_about([group(2)], live(group(2))) == []
    assert asked_about([group(2)], {}) == []
    assert [one.spec for one in asked_about([group(2)], live(group(3)))] == [CNSetSpec(replicas=3)]
    assert len(asked_about([group(2)], live(group(2, "2")))) == 1


async def test_an_autoscaler_and_the_group_take_turns_and_the_status_says_whose_turn_it_is() -> None:
    spec = {
        "version": "1.2.4",
        "logService": {
            "replicas": 1,
            "volume": {"size": "1Gi"},
            "sharedStorage": {"fileSystem": {"path": "/shared"}},
        },
        "tn": {"replicas": 1},
        "cnGroups": [{"name": "tp", "replicas": 1}],
    }
    async with operating() as client:
        raw = {"metadata": {"name": "mo", "namespace": "default"}, "spec": spec}
        await client.create(decode(raw, MatrixOneCluster))
        hpa = Client(client.transport, field_manager=HPA)

        async def scale(number: int) -> None:
            body = MergePatch({"spec": {"replicas": number}})
            await hpa.patch(CNSet, "mo-tp", body, namespace="default", subresource="scale")

        async def declare(number: int) -> None:
            body = {"cnGroups": [{"name": "tp", "replicas": number}]}
            await client.patch(MatrixOneCluster, "mo", MergePatch({"spec": body}), namespace="default")

        async def becomes(number: int, scaler: str | None) -> None:
            async def shown() -> bool:
                cluster = await client.get(MatrixOneCluster, "mo", namespace="default")
                groups = (
                    cluster.status.cn_groups.groups if cluster.status and cluster.status.cn_groups else ()
                )
                return [(one.replicas, one.scaled_by) for one in groups or ()] == [(number, scaler)]

            await eventually(shown)
            found = (await client.get(CNSet, "mo-tp", namespace="default")).spec
            assert found is not None
            assert found.replicas == number

        await eventually(lambda: client.list(CNSet, namespace="default"))
        await becomes(1, None)
        await scale(3)
        await becomes(3, HPA)
        await scale(1)
        await becomes(1, HPA)
        await scale(4)
        await becomes(4, HPA)
        await declare(2)
        await becomes(2, None)
        await scale(5)
        await becomes(5, HPA)


def test_why_names_who_scales_a_group() -> None:
    group_status = {"name": "tp", "ready": True, "synced": True, "replicas": 4, "scaledBy": HPA}
    [said] = lines({"cnGroups": {"groups": [group_status]}})
    assert said == (
        f"Group tp: {HPA} set 4 replicas by the scale subresource; to take that back, write another number in the group"
    )
