"""The life of a cluster of real MariaDB servers: created from two fields, at rest, paused, deleted, and made again."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from tests.embedded.conftest import MakeMySQL

from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Namespace, Secret, Service
from mooring.operators.mysql.dial import Dial
from mooring.operators.mysql.types import MySQLClusterSpec
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mysql.yaml"


async def test_a_new_cluster_says_what_it_is_and_what_a_failure_would_cost(mysql: MySQLStage) -> None:
    status = await mysql.status()

    assert (status.phase, status.available_replicas, status.durability) == ("Running", 3, "Strict")
    assert status.flavor == mysql.flavor
    image = (await mysql.get()).spec
    assert image is not None
    assert (status.version or "").startswith((image.image or "").rpartition(":")[2])
    assert status.at_risk == ""
    assert {one.state for one in status.instances or ()} == {"Online"}
    assert len(status.ack_set or ()) == 2
    assert status.acks == 1


async def test_clients_write_through_one_service_and_read_through_the_other(mysql: MySQLStage) -> None:
    root = await mysql.login("root")
    async with Dial().open(await mysql.served(), root) as link:
        await link.query("CREATE DATABASE IF NOT EXISTS shop")
        await link.query("CREATE TABLE IF NOT EXISTS shop.orders (id INT PRIMARY KEY)")
        await link.query("REPLACE INTO shop.orders VALUES (1)")
    await mysql.exact()
    async with Dial().open(await mysql.entry(mysql.names.replicas), root) as link:
        assert await link.one("SELECT COUNT(*) AS n FROM shop.orders") == {"n": 1}
        assert await link.one("SELECT @@read_only AS r") == {"r": 1}


async def _with_position(mysql: MySQLStage) -> None:
    """What the primary must still have after a restart is recorded by the pass after the first write: now."""
    await mysql.query(await mysql.primary(), "CREATE DATABASE IF NOT EXISTS shop", account="root")
    async with mysql.operators_away():
        pass

    async def marked() -> bool:
        return bool(((await mysql.status()).promotions or [])[0].position)

    await mysql.bed.until(marked, "a recorded position", within=10)
    await mysql.settled()


async def test_a_cluster_at_rest_writes_nothing(mysql: MySQLStage) -> None:
    async def versions() -> list[str | None]:
        cluster, pods = await mysql.get(), await mysql.pods()
        owned = await mysql.bed.get(StatefulSet, "demo")
        return [one.metadata.resource_version for one in (cluster, owned, *pods)]

    await _with_position(mysql)
    before = await versions()
    await asyncio.sleep(3)  # three beats of the primary's pulse
    async with mysql.operators_away():
        pass  # the next process looks at everything once
    await mysql.settled()
    await asyncio.sleep(1)

    assert await versions() == before


async def test_nothing_is_done_while_a_cluster_is_paused(mysql: MySQLStage) -> None:
    await _with_position(mysql)
    await mysql.patch({"maintenance": {"paused": True}})

    async def paused() -> bool:
        return (await mysql.status()).phase == "Paused"

    await mysql.bed.until(paused, "phase Paused", within=10)
    replica = next(one.name for one in (await mysql.status()).instances or () if one.role == "replica")
    mysql.kill(replica)
    await mysql.bed.restarted("default", {(replica, "mysql"): 0})

    async def said() -> bool:
        return "it would do Open" in (await mysql.condition("Progressing"))[2]

    await mysql.bed.until(said, "it says what it would do", within=10)
    await mysql.patch({"maintenance": None})
    await mysql.exact()


async def test_a_deleted_cluster_leaves_its_data_to_the_next_of_its_name(
    mysql_plane: Bed, make_mysql: MakeMySQL
) -> None:
    stage = await make_mysql()
    async with stage.writing() as ledger:
        await stage.writes(ledger, 100)
    spec = (await stage.get()).spec
    assert spec is not None
    await stage.delete()
    assert len(await stage.claims()) == 3
    await mysql_plane.apply(manifest(stage.name, image=spec.image or ""))
    await stage.exact(within=60)

    assert (await ledger.check()).lost_acknowledged == 0


@pytest.mark.full
async def test_a_namespace_is_deleted_with_its_cluster_while_no_operator_runs(
    mysql: MySQLStage,
) -> None:  # trap 28
    bed, namespace = mysql.bed, "leaving"
    await bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    declared = manifest("last", size=1, image=((await mysql.get()).spec or MySQLClusterSpec()).image or "")
    declared["metadata"]["namespace"] = namespace
    await bed.apply(declared)
    stage = MySQLStage(bed, "last", namespace=namespace, flavor=mysql.flavor)
    await stage.exact(within=60)

    async def gone() -> bool:
        return not any(one.metadata.name == namespace for one in (await bed.client.list(Namespace)).items)

    async with mysql.operators_away():
        await bed.client.delete(Namespace, namespace)
        await bed.until(gone, "the namespace is gone", within=60)


async def test_no_password_stands_in_a_pod_or_a_status(mysql: MySQLStage) -> None:
    secret = await mysql.bed.get(Secret, mysql.names.credentials)
    texts = [text for text in (secret.data or {}).values() if text]
    plain = [base64.b64decode(text).decode() for text in texts]
    shown = [str(await mysql.get()), *(str(pod) for pod in await mysql.pods())]
    shown += [
        str(await mysql.bed.get(StatefulSet, "demo")),
        str(await mysql.bed.get(Service, "demo-primary")),
    ]
    passwords = [one for one in plain if len(one) == 24]
    assert len(passwords) >= 4
    assert not [one for one in passwords for text in shown if one in text]


@pytest.mark.parametrize("size", [2, 4])
async def test_even_sizes_are_as_good_as_odd_ones(make_mysql: MakeMySQL, size: int) -> None:
    stage = await make_mysql(size=size)
    status = await stage.status()
    assert status.available_replicas == size
    assert status.durability == "Strict"
    assert len(await stage.pods()) == size
