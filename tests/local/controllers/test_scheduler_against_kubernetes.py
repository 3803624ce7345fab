"""The same pods before a real kube-scheduler and before ours: who is placed where, and who has to go.

Nodes are objects of the API without anybody behind them, so victims stay and nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hack.kubernetes.binaries import NODE, NODE_MODULE, built
from tests.local.controllers.bed import running

from mooring.kube import ApiError, Client, Config, HttpTransport, NotFound

Json = dict[str, Any]

# Each act waits until two control planes rest: 50 s on a busy machine, and more on a slower one.
pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly, pytest.mark.timeout(300)]

NAMESPACE = "scheduling"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
MERGE = "application/merge-patch+json"
CLASSES = {"low": 10, "middle": 100, "high": 1000}

#: What a scheduler adds that looked again while a victim was leaving; whether it does is a matter of moments.
AGAIN = (
    " no new claims to deallocate, preemption: not eligible due to a terminating pod on the nominated node."
)


class Side:
    """One of the two control planes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> Json:
        data = json.dumps(body).encode() if body is not None else None
        answer = await self.client.request(method, path, body=data, content_type=content)
        found: Json = json.loads(answer.body)
        return found

    async def node(self, name: str, cpu: str = "4", **meta: Any) -> None:
        labels = {"kubernetes.io/hostname": name, **meta.pop("labels", {})}
        await self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, **meta})
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "Test",
            "message": "",
            "lastHeartbeatTime": None,
        }
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content=MERGE)
        async with asyncio.timeout(20):
            while await self._unready(name):
                await asyncio.sleep(0.05)

    async def _unready(self, name: str) -> bool:
        """Whether a new node still bears the taint that it is born with."""
        taints = (await self.call("GET", f"/api/v1/nodes/{name}"))["spec"].get("taints") or ()
        return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)

    async def pod(self, name: str, cpu: str = "1", priority: str = "low", **options: Any) -> None:
        """Make a pod; one that names its node does not wait for the scheduler."""
        labels = options.pop("labels", {"app": name})
        spec = {
            "containers": [{"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu}}}],
            "priorityClassName": priority,
            **options,
        }
        await self.call("POST", CORE + "/pods", {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def started(self, name: str, time: str) -> None:
        status = {"phase": "Running", "startTime": time}
        await self.call("PATCH", f"{CORE}/pods/{name}/status", {"status": status}, content=MERGE)

    async def budget(self, name: str, allowed: int, **labels: str) -> None:
        body = {
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "maxUnavailable": 0},
        }
        path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
        await self.call("POST", path, body)
        if allowed:
            raise AssertionError("the controllers count the allowed disruptions themselves")

    async def gone(self, name: str) -> None:
        await self.call("DELETE", f"{CORE}/pods/{name}", {"gracePeriodSeconds": 0})

    async def told(self, name: str) -> None:
        """Wait until the scheduler has said something of a pod."""
        async with asyncio.timeout(20):
            while True:
                found = await self.call("GET", f"{CORE}/pods/{name}")
                if found["status"].get("conditions") or found["spec"].get("nodeName"):
                    break
                await asyncio.sleep(0.05)

    async def seen(self) -> Json:
        """What has become of everything, when nothing changes any more."""
        last, since, looks = "", 0.0, 0
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            while True:
                found = await self._seen()
                text = json.dumps(found, sort_keys=True)
                looks += 1
                if text != last:
                    last, since, looks = text, loop.time(), 0
                elif loop.time() - since > 1.2 and looks >= 12:  # not while all stood still
                    return found
                await asyncio.sleep(0.1)

    async def _seen(self) -> Json:
        pods = (await self.call("GET", CORE + "/pods"))["items"]
        events = (await self.call("GET", CORE + "/events?limit=1000"))["items"]
        return {
            pod["metadata"]["name"]: {
                "node": pod["spec"].get("nodeName"),
                "going": "deletionTimestamp" in pod["metadata"],
                "promised": pod["status"].get("nominatedNodeName"),
                "conditions": sorted(
                    [c["type"], c["status"], c.get("reason"), c.get("message", "").removesuffix(AGAIN)]
                    for c in pod["status"].get("conditions") or ()
                    if c["type"] in ("PodScheduled", "DisruptionTarget")
                ),
                "events": sorted(
                    {
                        f"{e['type']} {e['reason']} {_nameless(e['message'], pods)}".removesuffix(AGAIN)
                        for e in events
                        if e["involvedObject"].get("uid") == pod["metadata"]["uid"]
                    }
                ),
            }
            for pod in pods
        }

    async def clear(self) -> None:
        for pod in (await self.call("GET", CORE + "/pods"))["items"]:
            with contextlib.suppress(NotFound):
                await self.gone(pod["metadata"]["name"])
        for kind in ("/events",):
            await self.call("DELETE", CORE + kind)
        await self.call("DELETE", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets")
        await self.call("DELETE", "/api/v1/nodes")


def _nameless(text: str, pods: list[Json]) -> str:
    for pod in pods:
        text = text.replace(pod["metadata"]["uid"], pod["metadata"]["name"])
    return text


Scenario = Callable[[Side], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(act: Scenario) -> Scenario:
    SCENARIOS[act.__name__] = act
    return act


@scenario
async def the_least_important_go(side: Side) -> None:
    await side.node("n1")
    for name, priority in (("a", "low"), ("b", "middle"), ("c", "low"), ("d", "middle")):
        await side.pod(name, priority=priority, nodeName="n1")
    await side.pod("wants", "2", "high")
    await side.told("wants")


@scenario
async def the_later_of_equals_goes(side: Side) -> None:
    await side.node("n1", "2")
    for name, hour in (("early", 1), ("late", 2)):
        await side.pod(name, nodeName="n1")
        await side.started(name, f"2020-01-01T0{hour}:00:00Z")
    await asyncio.sleep(1.0)  # until the schedulers have heard when they were started, which nobody tells
    await side.pod("wants", "1", "high")
    await side.told("wants")


@scenario
async def a_budget_protects(side: Side) -> None:
    await side.node("n1", "2")
    await side.pod("guarded", nodeName="n1", labels={"app": "guarded"})
    await side.pod("free", priority="middle", nodeName="n1")
    await side.budget("guard", 0, app="guarded")
    await asyncio.sleep(1.0)
    await side.pod("wants", "1", "high")
    await side.told("wants")


@scenario
async def a_budget_is_broken_when_nobody_else_is_there(side: Side) -> None:
    await side.node("n1", "1")
    await side.pod("guarded", nodeName="n1", labels={"app": "guarded"})
    await side.budget("guard", 0, app="guarded")
    await asyncio.sleep(1.0)
    await side.pod("wants", "1", "high")
    await side.told("wants")


@scenario
async def the_node_whose_victims_matter_least(side: Side) -> None:
    for name, pods in (("n1", ("middle",)), ("n2", ("low", "low")), ("n3", ("low", "middle"))):
        await side.node(name, "2")
        for index, priority in enumerate(pods):
            await side.pod(f"{name}-{index}", str(2 // len(pods)), priority, nodeName=name)
    await side.pod("wants", "2", "high")
    await side.told("wants")


@scenario
async def fewer_victims(side: Side) -> None:
    for name, count in (("n1", 4), ("n2", 2)):
        await side.node(name)
        for index in range(count):
            await side.pod(f"{name}-{index}", str(4 // count), nodeName=name)
    await side.pod("wants", "4", "high")
    await side.told("wants")


@scenario
async def whom_nobody_can_help(side: Side) -> None:
    await side.node("n1", "2")
    await side.node("n2", "2", spec={"unschedulable": True})
    await side.node("n3", "2", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})
    await side.pod("high-one", "2", "high", nodeName="n1")
    await side.pod("low-one", "1", nodeName="n2")
    await side.pod("equal", "1", "high")
    await side.pod("too-large", "9", "high")
    await side.pod("never", "1", "low", nodeSelector={"disk": "ssd"})
    for name in ("equal", "too-large", "never"):
        await side.told(name)


@scenario
async def one_who_must_not_preempt(side: Side) -> None:
    await side.node("n1", "1")
    await side.pod("low-one", "1", nodeName="n1")
    await side.pod("polite", "1", "polite")
    await side.told("polite")


@scenario
async def a_promised_node_is_taken_when_it_is_free(side: Side) -> None:
    await side.node("n1", "2")
    await side.pod("victim", "2", nodeName="n1", terminationGracePeriodSeconds=600)
    await side.pod("wants", "2", "high")
    await side.told("wants")
    await side.seen()
    await side.pod("latecomer", "1", "middle")
    await side.told("latecomer")
    await side.seen()
    await side.gone("victim")


@scenario
async def a_port_is_freed(side: Side) -> None:
    ports = [{"name": "c", "image": "a", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    await side.node("n1")
    await side.pod("holder", nodeName="n1", containers=ports)
    await side.pod("wants", "1", "high", containers=ports)
    await side.told("wants")


@scenario
async def who_keeps_others_away_goes(side: Side) -> None:
    term = {"labelSelector": {"matchLabels": {"team": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await side.node("n1")
    await side.pod("loner", nodeName="n1", affinity=apart, labels={"team": "b"})
    await side.pod("wants", "1", "high", labels={"team": "a"})
    await side.told("wants")


@scenario
async def uneven_pods_go(side: Side) -> None:
    spread = [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }]  # fmt: skip
    for name, zone in (("n1", "a"), ("n2", "b")):
        await side.node(name, "2", labels={"zone": zone})
    await side.pod("even-1", nodeName="n1", labels={"app": "even"})
    await side.pod("filler", "2", "high", nodeName="n2")
    await side.pod("wants", "1", "middle", labels={"app": "even"}, topologySpreadConstraints=spread)
    await side.told("wants")
    await side.seen()
    await side.gone("even-1")


async def _prepared(client: Client) -> Side:
    side = Side(client)
    await side.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name, value in (*CLASSES.items(), ("polite", 2000)):
        policy = {"preemptionPolicy": "Never"} if name == "polite" else {}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await side.call("POST", path, {"metadata": {"name": name}, "value": value, **policy})
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(NotFound):
                await side.call("GET", CORE + "/serviceaccounts/default")
                return side
            await asyncio.sleep(0.05)


async def _play(client: Client) -> dict[str, Json]:
    side = await _prepared(client)
    seen = {}
    try:
        for name, act in SCENARIOS.items():
            await act(side)
            seen[name] = await side.seen()
            await side.clear()
    finally:
        with contextlib.suppress(ApiError):
            await side.clear()
        await side.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        for name in (*CLASSES, "polite"):
            await side.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    return seen


async def _alone(side: Side) -> None:
    """Remove the pods of others that wait for a node: the real scheduler sends 50 requests a second and no more, and
    would be busy with what it has to say of them, seconds behind."""
    async with asyncio.timeout(60):
        while waiting := (await side.call("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D"))["items"]:
            for pod in waiting:
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                with contextlib.suppress(NotFound):
                    await side.call("PATCH", path, {"metadata": {"finalizers": None}}, content=MERGE)
                    await side.call("DELETE", path, {"gracePeriodSeconds": 0})


@asynccontextmanager
async def _scheduler(kubeconfig: Path) -> AsyncIterator[None]:
    """A real kube-scheduler beside a real control plane."""
    programs = built(NODE, module=NODE_MODULE)
    if programs is None:
        pytest.skip("kube-scheduler is not built; make kubernetes NODE=1 builds it")
    arguments = [f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false"]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        programs / "kube-scheduler", *arguments, stdout=quiet, stderr=quiet
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_pods_are_placed_and_preempted_as_by_the_real_scheduler(
    real_kubernetes: Path, tmp_path: Path
) -> None:
    transport = HttpTransport(Config.load(real_kubernetes))
    client = Client(transport, field_manager="test")
    try:
        await _alone(Side(client))
        async with _scheduler(real_kubernetes):
            theirs = await _play(client)
    finally:
        await transport.close()
    async with running(tmp_path, nodes=(), kubelet=False) as (bed, _):
        ours = await _play(bed.client)

    wrong = [
        f"{name}, {pod}, {part}:\n  ours   {json.dumps(ours[name].get(pod, {}).get(part))}"
        f"\n  theirs {json.dumps(theirs[name].get(pod, {}).get(part))}"
        for name in SCENARIOS
        for pod in sorted({*ours[name], *theirs[name]})
        for part in ("node", "going", "promised", "conditions", "events")
        if ours[name].get(pod, {}).get(part) != theirs[name].get(pod, {}).get(part)
    ]
    assert not wrong, "\n".join(wrong)
