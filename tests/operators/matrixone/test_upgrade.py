"""What an upgrade of the operator would roll: nothing of what it made itself, and what it renders differently by its field."""

from __future__ import annotations

from tests.operators.matrixone.test_buckets import eventually, operating, runs

from mooring.kube.object import decode
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.patches import StrategicMergePatch
from mooring.operators.matrixone.types import LogSet, MatrixOneCluster
from mooring.operators.matrixone.upgrade import plan_upgrade


async def test_only_what_this_version_renders_differently_would_roll() -> None:
    async with operating() as client:
        spec = {
            "image": "matrixorigin/matrixone:1.2.4",
            "replicas": 1,
            "volume": {"size": "1Gi"},
            "sharedStorage": {"fileSystem": {"path": "/shared"}},
        }
        await client.create(
            decode({"metadata": {"name": "mo", "namespace": "default"}, "spec": spec}, LogSet)
        )
        await eventually(lambda: runs(client, "mo"))
        [planned] = await plan_upgrade(client, await client.get(LogSet, "mo", namespace="default"))
        assert (planned.component, tuple(planned.fields), planned.waiting, planned.trouble) == (
            "log",
            (),
            False,
            "",
        )
        env = [{"name": "GODEBUG", "value": "an earlier version's"}]
        template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "env": env}]}}}}
        await client.patch(StatefulSet, "mo-log", StrategicMergePatch(template), namespace="default")
        [planned] = await plan_upgrade(client, await client.get(LogSet, "mo", namespace="default"))
        assert tuple(planned.fields) == ("spec.containers[main].env",)
        assert await plan_upgrade(client, MatrixOneCluster()) == []
