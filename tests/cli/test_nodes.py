"""``mooring up`` with other nodes than before, on the same data."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.program import Program, until

from mooring.kube.objects.core import (
    Container,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    Volume,
    VolumeResourceRequirements,
)
from mooring.kube.objects.meta import ObjectMeta

pytestmark = pytest.mark.embedded


def claiming(name: str) -> Pod:
    source = PersistentVolumeClaimVolumeSource(claim_name="data")
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodSpec(
            containers=[Container(name="main", image="registry.k8s.io/pause:3.10")],
            volumes=[Volume(name="data", persistent_volume_claim=source)],
        ),
    )


async def test_data_on_a_node_that_is_not_started_is_named_at_the_start_and_at_its_pods(
    program: Program, home: Path
) -> None:
    async with program.up(home / "data", "--operators", "none", "--nodes", "left") as running:
        client = running.client()
        claim = PersistentVolumeClaim(
            metadata=ObjectMeta(name="data", namespace="default"),
            spec=PersistentVolumeClaimSpec(
                access_modes=["ReadWriteOnce"],
                resources=VolumeResourceRequirements(requests={"storage": "1Mi"}),
            ),
        )
        await client.create(claim)
        await client.create(claiming("first"))

        async def bound() -> bool:
            found = await client.get(PersistentVolumeClaim, "data", namespace="default")
            return found.status is not None and found.status.phase == "Bound"

        await until(bound, "the claim is bound")
        await client.delete(Pod, "first", namespace="default", grace_period=0)
        running.kill()
        await running.client_closed()
        running.options = ("--operators", "none", "--nodes", "right,other")

        await running.start()

        said = running.said()
        assert "warning: the data of default/data is on node left, which is not started" in said
        assert "Add it: --nodes left,right,other" in said
        client = running.client()
        await client.create(claiming("second"))

        async def refused() -> str:
            pod = await client.get(Pod, "second", namespace="default")
            conditions = (pod.status.conditions if pod.status else None) or ()
            return next((one.message or "" for one in conditions if one.type == "PodScheduled"), "")

        await until(refused, "the scheduler looked at it")
        assert 'persistentvolumeclaim "data" is bound to node "left", which does not exist' in await refused()
