"""What a cluster reports of its sets, and the first SQL user that it makes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.operators.matrixone.builders import declared, typed
from tests.operators.matrixone.test_buckets import operating
from tests.operators.redis.sentinel.test_actor import eventually

from mooring.actor import InSync, Wait
from mooring.kube import NotFound
from mooring.kube.object import Object, decode
from mooring.kube.objects.core import Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.matrixone.cluster.status import Snapshot, decide, report
from mooring.operators.matrixone.specs import ClusterSpecs
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, MatrixOneCluster
from mooring.operators.workload.credentials import secret_value

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETS: tuple[tuple[type[Object], str], ...] = ((LogSet, "mo"), (DNSet, "mo"), (CNSet, "mo-tp"))


def cluster(**changes: str) -> Snapshot:
    """All sets are ready and as declared, but for those whose condition is named: by kind, False."""
    live: dict[tuple[type[Object], str], Object] = {}
    for kind, name in SETS:
        lacks = changes.get(kind.resource.kind)
        if lacks == "missing":
            continue
        conditions = [
            {"type": one, "status": str(one != lacks), "reason": "R", "message": "m"}
            for one in ("Ready", "Synced")
        ]
        raw = declared(kind.resource.kind, name)
        live[kind, name] = decode({**raw, "status": {"conditions": conditions}}, kind)
    return Snapshot(cluster=typed("MatrixOneCluster"), wanted=SETS, live=live, now=NOW)


def test_a_cluster_whose_sets_are_ready_and_as_declared_is_both() -> None:
    seen = cluster()
    verdict = decide(seen)
    assert isinstance(verdict, InSync)
    made = report(seen, verdict)
    assert (made.ready.status, made.ready.reason) == (True, "AllSetsReady")
    status: Any = made.status
    assert status.phase == "Ready"
    assert status.credential_ref.name == "mo-credential"
    assert (status.cn_groups.desired_groups, status.cn_groups.ready_groups) == (1, 1)
    synced = next(one for one in status.conditions if one.type == "Synced")
    assert (synced.status, synced.reason) == ("True", "AllSetsSynced")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("LogSet", "LogServiceNotReady"),
        ("DNSet", "DNSetNotReady"),
        ("CNSet", "SomeCNSetsAreNotReady"),
    ],
)
@pytest.mark.parametrize("lacks", ["Ready", "missing"])
def test_a_set_that_does_not_serve_is_named(kind: str, reason: str, lacks: str) -> None:
    seen = cluster(**{kind: lacks})
    made = report(seen, decide(seen))
    assert (made.ready.status, made.ready.reason) == (False, reason)
    assert kind in made.ready.message
    status: Any = made.status
    assert status.phase == "NotReady"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("LogSet", "LogServiceNotSynced"),
        ("DNSet", "DNSetNotSynced"),
        ("CNSet", "SomeCNSetsAreNotSynced"),
    ],
)
def test_a_set_that_is_not_as_declared_is_named_though_the_cluster_serves(kind: str, reason: str) -> None:
    seen = cluster(**{kind: "Synced"})
    verdict = decide(seen)
    assert isinstance(verdict, Wait)
    assert verdict.reason == reason
    made = report(seen, verdict)
    assert made.ready.status is True
    status: Any = made.status
    synced = next(one for one in status.conditions if one.type == "Synced")
    assert (synced.status, synced.reason) == ("False", reason)


async def test_the_first_user_is_made_once_and_a_secret_that_is_there_is_used() -> None:
    async with operating() as client:
        given = Secret(
            metadata=ObjectMeta(name="old-credential", namespace="default"), data={"password": "MTEx"}
        )
        await client.create(given)
        for name in ("mo", "old"):
            raw = declared("MatrixOneCluster", name)
            raw["metadata"].pop("uid")
            raw["spec"]["logService"]["sharedStorage"]["s3"]["path"] = f"bucket/{name}"
            await client.create(decode(raw, MatrixOneCluster))

        async def made() -> bool:
            try:
                for name in ("mo", "old"):
                    await client.get(LogSet, name, namespace="default")
            except NotFound:
                return False
            return True

        await eventually(made)
        new = await client.get(Secret, "mo-credential", namespace="default")
        assert secret_value(new, "username") == "dump"
        assert len(secret_value(new, "password")) >= 15
        old = await client.get(Secret, "old-credential", namespace="default")
        assert secret_value(old, "password") == "111"


async def test_every_object_of_a_cluster_with_a_name_of_46_characters_is_accepted() -> None:
    async with operating() as client:
        name = "m" * 46
        raw = declared("MatrixOneCluster", name)
        raw["metadata"].pop("uid")
        made = await client.create(decode(raw, MatrixOneCluster))

        async def there() -> bool:
            try:
                for one in ClusterSpecs(made).sets():
                    await client.get(type(one), one.metadata.name or "", namespace="default")
            except NotFound:
                return False
            return True

        await eventually(there)
