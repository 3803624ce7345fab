"""MatrixOne as pods of the embedded plane, by its official image's name: a log store, a TN and a CN."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncmy
import pytest
from asyncmy.errors import MySQLError

from mooring.kube.objects.core import Pod
from mooring.operators.matrixone.rpc.dial import Address, Dial
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.operators.matrixone.topology import Topology, read_topology
from mooring.testing.bed import Bed
from mooring.testing.matrixone import LOG_PORT, PASSWORD, SQL_PORT, USER

pytestmark = [pytest.mark.mo_service, pytest.mark.nightly, pytest.mark.timeout(180)]

IMAGE = "matrixorigin/matrixone:1.2.4"
CN, LOG, TN = (f"00000000-0000-0000-0000-{number}00000000000" for number in "201")
COMMON = """data-dir = "/var/lib/matrixone"
[[fileservice]]
name = "LOCAL"
backend = "DISK"
data-dir = "/var/lib/matrixone/data"
[[fileservice]]
name = "S3"
backend = "DISK"
data-dir = "/shared/data"
[fileservice.cache]
memory-capacity = "64MB"
[[fileservice]]
name = "ETL"
backend = "DISK-ETL"
data-dir = "/shared/etl"
[hakeeper-client]
discovery-address = "discovery.default.svc:32001"
service-addresses = ["discovery.default.svc:32001"]
"""
ROLES = {
    "log": f"""service-type = "LOG"
{COMMON}[logservice]
deployment-id = 1
uuid = "{LOG}"
raft-address = "$POD_IP:32000"
logservice-address = "$POD_IP:32001"
gossip-address = "$POD_IP:32002"
gossip-seed-addresses = ["$POD_IP:32002"]
gossip-allow-self-as-seed = true
[logservice.BootstrapConfig]
bootstrap-cluster = true
num-of-log-shards = 1
num-of-tn-shards = 1
num-of-log-shard-replicas = 1
init-hakeeper-members = ["131072:{LOG}"]
""",
    "tn": f"""service-type = "DN"
{COMMON}[dn]
uuid = "{TN}"
port-base = 41010
service-host = "$POD_IP"
""",
    "cn": f"""service-type = "CN"
{COMMON}[cn]
uuid = "{CN}"
role = "TP"
port-base = 6002
service-host = "$POD_IP"
""",
}


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(path, operators=[]) as running:
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


def pod(role: str, shared: Path) -> dict[str, Any]:
    script = f"cat >/tmp/config.toml <<E\n{ROLES[role]}E\nexec /mo-service -cfg /tmp/config.toml"
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": role, "namespace": "default", "labels": {"role": role}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [
                {"name": "shared", "hostPath": {"path": str(shared)}},
                {"name": "data", "emptyDir": {}},
            ],
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "command": ["sh", "-c", script],
                    "env": [address],
                    "volumeMounts": [
                        {"name": "shared", "mountPath": "/shared"},
                        {"name": "data", "mountPath": "/var/lib/matrixone"},
                    ],
                }
            ],
        },
    }


async def address_of(bed: Bed, name: str) -> str:
    found = await bed.get(Pod, name)
    return (found.status.pod_ip if found.status else None) or ""


async def answers_sql(host: str) -> bool:
    try:
        async with asyncio.timeout(5):
            connection = await asyncmy.connect(host=host, port=SQL_PORT, user=USER, password=PASSWORD)
            async with connection.cursor() as cursor:
                await cursor.execute("select 1 + 1")
                answer = await cursor.fetchone()
            connection.close()
    except (MySQLError, OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    return bool(answer[0] == 2)


async def test_pods_of_the_official_image_make_a_cluster(bed: Bed, mo_service: Path, tmp_path: Path) -> None:
    discovery = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "discovery", "namespace": "default"},
        "spec": {"selector": {"role": "log"}, "ports": [{"port": LOG_PORT}]},
    }
    await bed.apply(discovery)
    for role in ROLES:
        await bed.apply(pod(role, tmp_path))

    async def ready() -> bool:
        host = await address_of(bed, "cn")
        return bool(host) and await answers_sql(host)

    await bed.until(ready, "the CN answers SQL", within=90, every=0.2)
    found = await bed.get(Pod, "cn")
    statuses = (found.status.container_statuses if found.status else None) or ()
    assert [one.image_id.split("#")[0].rsplit("@", 1)[1] for one in statuses if one.image_id] == ["1.2.4"]
    seen = await read_topology(Dial(), [Address(await address_of(bed, "log"), LOG_PORT)], ask=[CN])
    assert isinstance(seen, Topology), seen
    node = seen.cns[CN]
    assert (node.state, node.silence) == (WorkState.WORKING, "")
    assert node.query_address == Address(await address_of(bed, "cn"), 6004)
    assert seen.tns[TN].lock_address == Address(await address_of(bed, "tn"), 41012)
    assert seen.settled(LOG)
