"""HarmonyCloud's own sample by kubectl: the file byte for byte, and as it is once somebody has filled it in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.cli.program import Running, needs_kubectl, ourselves, temporary, until

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    needs_kubectl,
]

HERE = Path(__file__).resolve().parents[1] / "operators" / "redis" / "cluster"
SAMPLE = HERE / "harmonycloud.yaml"
#: What somebody has to fill in, and nothing else.
FILLED_IN = HERE / "harmonycloud.diff"
MISPLACED = "spec.pod[0].affinity.requiredDuringSchedulingIgnoredDuringExecution"
NAME, NAMESPACE = "example000-redis-cluster", "kube-system"
#: What the filled-in file refers to: a template of the configuration, and one volume for all pods.
REFERRED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: example000-redis-conf, namespace: kube-system}
data: {redis.conf: "maxclients 321\\nmaxmemory $(MAX_MEMORY)\\n"}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: example000-redis-data}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  hostPath: {path: %s, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: example000-redis-data, namespace: kube-system}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: example000-redis-data
  resources: {requests: {storage: 1Gi}}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[Running]:
    """A plane with room for seven pods of one CPU each."""
    with temporary() as home:
        options = ("--operators", "redis-cluster", "--nodes", "7")
        async with ourselves(home).up(home / "data", *options) as running:

            async def warns() -> bool:
                hooks = await running.kubectl("get", "validatingwebhookconfiguration", "-o", "name")
                return "mooring-redis-cluster-all" in hooks.fine()

            await until(warns, "declarations are reviewed", every=0.1)
            yield running
            assert "Traceback" not in running.said()


async def apply(plane: Running, file: Path) -> str:
    """As people apply a file, strictly; what kubectl said beside the result."""
    done = await plane.kubectl("apply", "--validate=strict", "-f", str(file))
    assert NAME in done.fine()
    return done.err


async def status(plane: Running) -> dict[str, object]:
    shown = await plane.kubectl("get", "rec", NAME, "-n", NAMESPACE, "-o", "jsonpath={.status}")
    found: dict[str, object] = json.loads(shown.fine() or "{}")
    return found


async def reason(plane: Running, kind: str) -> str:
    """The reason, as soon as it is of this kind."""

    async def told() -> bool:
        return (await status(plane)).get("reasonType") == kind

    await until(told, f"the reason is {kind}", every=0.1)
    return str((await status(plane))["reason"])


async def children(plane: Running) -> str:
    """Everything that was made for the cluster."""
    kinds = "pods,statefulsets,services,configmaps,secrets,pvc,pdb"
    shown = await plane.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name")
    return "\n".join(line for line in shown.fine().splitlines() if NAME in line)


async def test_the_file_as_it_is_is_taken_strictly_warned_of_and_creates_nothing(plane: Running) -> None:
    warned = await apply(plane, SAMPLE)

    assert f'Warning: unknown field "{MISPLACED}"; it has no effect' in warned
    said = await reason(plane, "Paused")
    assert said.startswith("spec.pause: nothing is created while it is true; set it to false to begin")
    assert MISPLACED in said
    assert await children(plane) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "field"),
    [
        ("  replicas: 6", "  replica: 6", "status.replica"),
        ("    slots: 1024-2048", "    slot: 1024-2048", "status.conditions[0].slot"),
    ],
)
async def test_the_status_in_the_file_is_checked_too(
    plane: Running, tmp_path: Path, right: str, wrong: str, field: str
) -> None:
    """The server takes no status from a file, and reads it all the same: the sample's has no field it does not know."""
    changed = tmp_path / "wrong.yaml"
    text = SAMPLE.read_text().replace(NAME, "another")
    assert text.count(f"{right}\n") == 1
    changed.write_text(text.replace(f"{right}\n", f"{wrong}\n"))

    done = await plane.kubectl("apply", "--validate=strict", "-f", str(changed))
    assert done.status == 1
    assert f'unknown field "{field}"' in done.err


async def test_unpaused_one_reason_names_every_placeholder(plane: Running, tmp_path: Path) -> None:
    unpaused = tmp_path / "unpaused.yaml"
    unpaused.write_text(SAMPLE.read_text().replace("pause: true", "pause: false"))
    await apply(plane, unpaused)

    said = await reason(plane, "InvalidArgs")
    for field, value in (
        ("spec.pod[0].middlewareImage", "string"),
        ("spec.pod[0].monitorImage", "string"),
        ("spec.pod[0].initImage", "string"),
        ("spec.pod[0].configmap", "name"),
        ("spec.pod[0].volumes.persistentVolumeClaimName", "pvcName"),
        ("spec.updateStrategy.assignStrategies[0].fromReplicas", "nodeId1"),
        ("spec.updateStrategy.assignStrategies[1].fromReplicas", "nodeId3,nodeId4"),
    ):
        assert f"{field}: '{value}' is the sample's placeholder; give " in said
    assert MISPLACED in said
    assert await children(plane) == ""


async def test_with_its_placeholders_filled_in_it_runs(plane: Running, tmp_path: Path) -> None:
    filled = tmp_path / "filled.yaml"
    filled.write_bytes(SAMPLE.read_bytes())
    (await plane.program.other("patch", filled, FILLED_IN)).fine()
    (await plane.kubectl("apply", "-f", "-", text=REFERRED % (tmp_path / "shared"))).fine()
    await apply(plane, filled)

    wait = ("wait", "--for=jsonpath={.status.phase}=Running", f"rec/{NAME}", "-n", NAMESPACE)
    assert (await plane.kubectl(*wait, "--timeout=120s", seconds=130)).status == 0

    nodes = (await status(plane))["conditions"]
    assert isinstance(nodes, list)
    assert [one["name"] for one in nodes] == [f"{NAME}-{at}" for at in range(7)]
    assert sum(one["type"] == "master" for one in nodes) == 3
    ask = ("exec", f"{NAME}-0", "-c", "redis", "-n", NAMESPACE, "--", "redis-cli")
    assert "cluster_state:ok" in (await plane.kubectl(*ask, "CLUSTER", "INFO")).fine()
    for key, value in (("maxmemory", "2147483648"), ("maxclients", "321")):
        assert (await plane.kubectl(*ask, "CONFIG", "GET", key)).fine().split() == [key, value]
