"""The memcached example on real servers: created, configured while it runs, rolled, adopted, and its reasons told."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from memcached_operator import OPERATOR, Memcached
from memcached_operator.dial import PORT, Dial
from mooring.cli.why import explained
from mooring.kube import MergePatch
from mooring.kube.objects.core import Pod
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

NAMESPACE = "default"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed() -> AsyncIterator[Bed]:
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(path, operators=[OPERATOR]) as running:
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": Memcached.resource.api_version,
        "kind": "Memcached",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


async def pods(bed: Bed, name: str) -> dict[str, Pod]:
    found = (await bed.client.list(Pod, namespace=NAMESPACE)).items
    return {
        pod.metadata.name or "": pod
        for pod in found
        if (pod.metadata.name or "").startswith(f"{name}-") and not pod.metadata.deletion_timestamp
    }


async def addresses(bed: Bed, name: str) -> list[str]:
    found = await pods(bed, name)
    return [(found[pod].status.pod_ip if found[pod].status else None) or "" for pod in sorted(found)]  # type: ignore[union-attr]


async def raw(bed: Bed, name: str) -> dict[str, Any]:
    path = Memcached.resource.path(namespace=NAMESPACE, name=name)
    found: dict[str, Any] = msgspec.json.decode((await bed.client.request("GET", path)).body)
    return found


async def at_rest(bed: Bed, name: str) -> bool:
    found = await raw(bed, name)
    status = found.get("status") or {}
    reasons = {one["type"]: one["reason"] for one in status.get("conditions") or ()}
    current = status.get("observedGeneration") == found["metadata"]["generation"]
    return bool(current and reasons.get("Progressing") == "InSync")


async def exact(bed: Bed, name: str) -> None:
    await bed.until(lambda: at_rest(bed, name), f"{name} is as declared", within=60)


async def edit(bed: Bed, name: str, **spec: Any) -> None:
    await bed.client.patch(Memcached, name, MergePatch({"spec": spec}), namespace=NAMESPACE)


async def talk(ip: str, *lines: str) -> str:
    """Send lines to a server and read what it answers until it closes."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(ip, PORT)
        writer.write("".join(f"{line}\r\n" for line in (*lines, "quit")).encode())
        answer = (await reader.read()).decode()
        writer.close()
    return answer


async def test_settings_change_on_running_servers_and_their_items_stay(bed: Bed) -> None:
    await bed.apply(manifest("live", replicas=2, memoryMegabytes=32))
    await exact(bed, "live")
    (first, second) = await addresses(bed, "live")
    assert "STORED" in await talk(first, "set key 0 0 5", "value")

    await edit(bed, "live", memoryMegabytes=64, verbosity=1)
    await exact(bed, "live")

    dial = Dial(lambda: None)
    assert await dial.look(first) == await dial.look(second) == (64, 1)
    assert "value" in await talk(first, "get key")

    bed.kill(NAMESPACE, "live-0", "memcached")

    async def restarted() -> bool:
        return "STAT maxbytes 67108864" in await talk(first, "stats settings")

    async def answers() -> bool:
        try:
            return await restarted()
        except OSError:
            return False

    await bed.until(answers, "a server that starts again has the same settings", within=60)


async def test_settings_of_a_start_are_rolled_out_one_server_at_a_time(bed: Bed) -> None:
    await bed.apply(manifest("roll", replicas=2))
    await exact(bed, "roll")
    before = {name: pod.metadata.uid for name, pod in (await pods(bed, "roll")).items()}

    await edit(bed, "roll", threads=2)

    async def rolled() -> bool:
        now = {name: pod.metadata.uid for name, pod in (await pods(bed, "roll")).items()}
        assert len(now) >= 1
        return len(now) == 2 and all(now[name] != uid for name, uid in before.items())

    await bed.until(rolled, "both servers are new", within=60)
    await exact(bed, "roll")
    for ip in await addresses(bed, "roll"):
        assert "STAT num_threads 2" in await talk(ip, "stats settings")


async def test_an_image_that_cannot_be_pulled_halts_the_roll_out_and_why_says_so(bed: Bed) -> None:
    await bed.apply(manifest("image", replicas=2))
    await exact(bed, "image")
    before = (await pods(bed, "image"))["image-0"].metadata.uid

    await edit(bed, "image", image="no-such-cache:1")

    async def halted() -> bool:
        conditions = {one["type"]: one for one in (await raw(bed, "image"))["status"]["conditions"]}
        return bool(conditions["Stalled"]["reason"] == "RollHalted")

    await bed.until(halted, "the roll-out is halted", within=60)

    async def serves() -> bool:
        return bool((await raw(bed, "image"))["status"].get("readyReplicas") == 2)

    await bed.until(serves, "the pod comes up with the last good template", within=60)
    assert (await pods(bed, "image"))["image-0"].metadata.uid == before
    assert OPERATOR.explain is not None
    found = await raw(bed, "image")
    said = "\n".join(explained(found, (), await OPERATOR.explain(bed.client, found)))
    assert "image-1 does not come up" in said
    assert "correct spec.image" in said

    await edit(bed, "image", image="memcached:1.6")
    await exact(bed, "image")


async def test_a_set_made_by_hand_is_adopted_with_its_selector(bed: Bed) -> None:
    labels = {"app.kubernetes.io/name": "hand", "app.kubernetes.io/managed-by": "memcached-operator"}
    server = {
        "name": "cache",
        "image": "memcached:1.6",
        "command": ["memcached", "-u", "nobody", "-m", "16"],
    }
    await bed.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "hand", "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "replicas": 2,
                "serviceName": "cache",
                "selector": {"matchLabels": {"app": "cache"}},
                "template": {"metadata": {"labels": {"app": "cache"}}, "spec": {"containers": [server]}},
            },
        }
    )

    async def both() -> bool:
        return len(await pods(bed, "hand")) == 2

    await bed.until(both, "the pods are there")

    await bed.apply(manifest("hand", replicas=2, memoryMegabytes=48))
    await exact(bed, "hand")

    found = await pods(bed, "hand")
    assert {(pod.metadata.labels or {})["app"] for pod in found.values()} == {"cache"}
    dial = Dial(lambda: None)
    assert [await dial.look(ip) for ip in await addresses(bed, "hand")] == [(48, 0), (48, 0)]
