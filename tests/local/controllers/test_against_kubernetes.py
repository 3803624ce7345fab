"""The same acts before the real kube-controller-manager and before ours: the same states must follow.

There is no node and no scheduler; the test itself says which pods run. After every act both sides come to
rest, and everything the controllers wrote is compared: names, hashes, owners, counts, conditions, messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.local.controllers.bed import running

from mooring.kube import AlreadyExists, Client, Config, HttpTransport, NotFound

Json = dict[str, Any]
Scenario = Callable[["Side"], Awaitable[None]]

# Each act waits until two control planes rest: 50 s on a busy machine, and more on a slower one.
pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly, pytest.mark.timeout(300)]

PATHS = {
    "pods": "/api/v1",
    "services": "/api/v1",
    "endpoints": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "statefulsets": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "daemonsets": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "jobs": "/apis/batch/v1",
}
#: How long nothing must happen before a side counts as at rest, in seconds.
REST = 0.6
#: Seconds between two looks.
LOOK = 0.1
WHEN = "2029-12-31T23:00:00Z"


class Side:
    """One of the two control planes, in a namespace of its own; ``states`` is what is compared."""

    def __init__(self, client: Client, namespace: str, kinds: list[str], rest: float = REST) -> None:
        self.client = client
        self.quiet = rest
        self.namespace = namespace
        self.kinds = kinds
        self.states: list[tuple[str, Json]] = []

    def path(self, kind: str, name: str = "", sub: str = "") -> str:
        parts = [PATHS[kind], "namespaces", self.namespace, kind, name, sub]
        return "/".join(part for part in parts if part)

    async def call(self, method: str, path: str, body: Any = None, *, content: str = "") -> Json:
        data = json.dumps(body).encode() if body is not None else None
        answer = await self.client.request(
            method, path, body=data, content_type=content or "application/json"
        )
        found: Json = json.loads(answer.body)
        return found

    async def make(self, kind: str, name: str, body: Json, **meta: Any) -> Json:
        return await self.call("POST", self.path(kind), {"metadata": {"name": name, **meta}, **body})

    async def edit(self, kind: str, name: str, body: Json, *, sub: str = "") -> Json:
        content = "application/merge-patch+json"
        return await self.call("PATCH", self.path(kind, name, sub), body, content=content)

    async def delete(self, kind: str, name: str, **options: Any) -> None:
        await self.call("DELETE", self.path(kind, name), options or None)

    async def list(self, kind: str) -> list[Json]:
        found: list[Json] = (await self.call("GET", self.path(kind))).get("items") or []
        return found

    async def report(self, name: str, *, phase: str = "Running", ready: bool = True, ip: str = "") -> None:
        """Say what a kubelet would say of a pod."""
        conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": WHEN}]
        status: Json = {"phase": phase, "conditions": conditions}
        if ip:
            status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
        await self.edit("pods", name, {"status": status}, sub="status")

    async def report_all(self, *, broken: str = "broken") -> None:
        """Every pod is ready, but for those whose image is broken."""
        for pod in await self.list("pods"):
            if pod["spec"]["containers"][0]["image"] != broken:
                with contextlib.suppress(NotFound):  # a roll-out goes on
                    await self.report(pod["metadata"]["name"])

    async def rest(self, act: str) -> None:
        """Wait until nothing changes any more, and keep what is there."""
        last, since, looks = "", 0.0, 0
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            while True:
                found = {kind: await self.list(kind) for kind in self.kinds}
                text = json.dumps(found, sort_keys=True)
                now = loop.time()
                looks += 1
                if text != last:
                    last, since, looks = text, now, 0
                elif now - since > self.quiet and looks * LOOK >= self.quiet:  # not while all stood still
                    break
                await asyncio.sleep(LOOK)
        self.states.append((act, normal(found)))

    async def settle(self, act: str) -> None:
        """Report all pods ready again and again until that changes nothing."""
        for _ in range(30):
            await self.rest(act)
            before = self.states.pop()
            await self.report_all()
            await self.rest(act)
            if self.states[-1] == before:
                return
            self.states.pop()
        raise AssertionError(f"{act}: does not settle")


VOLATILE = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "namespace",
    "selfLink",
    "lastHeartbeatTime",
    "startTime",
    "deletionTimestamp",
}
#: Times again, and a count that the API server keeps for DaemonSets.
NOISE = {"endpoints.kubernetes.io/last-change-trigger-time", "deprecated.daemonset.template.generation"}


def normal(found: dict[str, list[Json]]) -> Json:
    """What the controllers decided, without identities, times and what others wrote."""
    shown: Json = {}
    names: dict[str, str] = {}
    for replica_set in sorted(found.get("replicasets", []), key=_created):
        template = replica_set["spec"]["template"]["spec"]["containers"][0]["image"]
        names[replica_set["metadata"]["labels"]["pod-template-hash"]] = f"HASH-{template}"
    for revision in found.get("controllerrevisions", []):
        # A DaemonSet's hash is one of Go's own; a StatefulSet's is compared as it is.
        if digest := revision["metadata"]["labels"].get("controller-revision-hash"):
            names[digest] = f"HASH-{revision['data']['spec']['template']['spec']['containers'][0]['image']}"
    for kind, items in found.items():
        shown[kind] = sorted(
            (_show(kind, item) for item in items), key=lambda i: json.dumps(i, sort_keys=True)
        )
    text = json.dumps(shown, sort_keys=True)
    for digest, name in names.items():
        text = text.replace(digest, name)
    done: Json = json.loads(text)
    return done


def _created(item: Json) -> str:
    return str(item["metadata"]["creationTimestamp"])


def _show(kind: str, item: Json) -> Json:
    item = _strip(item)
    meta = item["metadata"]
    for key in NOISE:
        meta.get("annotations", {}).pop(key, None)
    if not meta.get("annotations"):
        meta.pop("annotations", None)
    if kind == "pods":
        return _pod(item)
    if kind == "endpointslices":
        meta["name"] = re.sub(r"-[a-z0-9]{5}$", "-X", meta["name"])
        meta.pop("generation", None)  # counts writes, which merge differently
        item["endpoints"] = sorted(item.get("endpoints") or [], key=lambda e: json.dumps(e, sort_keys=True))
        item["ports"] = item.get("ports") or []
    if kind == "jobs":
        item["status"].pop("completionTime", None)
        for labels in (
            meta["labels"],
            item["spec"]["template"]["metadata"]["labels"],
            item["spec"]["selector"]["matchLabels"],
        ):
            for label in ("controller-uid", "batch.kubernetes.io/controller-uid"):
                labels.pop(label, None)
    if kind == "replicasets":  # how many steps a roll-out takes depends on when pods become ready
        meta.pop("generation", None)
        item["status"].pop("observedGeneration", None)
    if "conditions" in item.get("status", {}):
        item["status"]["conditions"].sort(key=lambda c: c["type"])
    return item


def _pod(item: Json) -> Json:
    meta, spec = item["metadata"], item["spec"]
    if any(owner["kind"] != "StatefulSet" for owner in meta.get("ownerReferences") or ()):
        meta["name"] = meta["generateName"] + "X"
    for label in ("controller-uid", "batch.kubernetes.io/controller-uid", "pod-template-generation"):
        meta.get("labels", {}).pop(label, None)
    claims = [v for v in spec.get("volumes") or () if "persistentVolumeClaim" in v]
    return {
        "metadata": {
            k: v for k, v in meta.items() if k in ("name", "labels", "ownerReferences", "generateName")
        },
        "hostname": spec.get("hostname"),
        "subdomain": spec.get("subdomain"),
        "image": spec["containers"][0]["image"],
        "claims": claims,
        "phase": item["status"].get("phase"),
    }


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _strip(v) for k, v in value.items() if k not in VOLATILE}
    if isinstance(value, list):
        return [_strip(v) for v in value]
    return value


async def compare(
    scenario: Scenario, *, kinds: list[str], name: str, kubeconfig: Path, directory: Path, rest: float = REST
) -> None:
    """Run a scenario on both sides and compare every state."""
    transport = HttpTransport(Config.load(kubeconfig))
    real = Client(transport, field_manager="test")
    try:
        theirs = await _play(scenario, Side(real, f"controllers-{name}", kinds, rest))
    finally:
        await transport.close()
    async with running(directory, nodes=(), kubelet=False) as (bed, _):
        ours = await _play(scenario, Side(bed.client, f"controllers-{name}", kinds))
    assert [act for act, _ in ours.states] == [act for act, _ in theirs.states]
    for (act, mine), (_, expected) in zip(ours.states, theirs.states, strict=True):
        for kind in kinds:
            assert mine[kind] == expected[kind], (
                f"after {act!r}: {kind} differ\n{_diff(expected[kind], mine[kind])}"
            )


def _diff(expected: Any, mine: Any) -> str:
    before, after = (json.dumps(each, indent=1, sort_keys=True).splitlines() for each in (expected, mine))
    return "\n".join(difflib.unified_diff(before, after, "kubernetes", "ours", lineterm="", n=4))


async def _play(scenario: Scenario, side: Side) -> Side:
    await side.call("POST", "/api/v1/namespaces", {"metadata": {"name": side.namespace}})
    try:
        await _furnished(side)
        await scenario(side)
    finally:
        await side.call("DELETE", f"/api/v1/namespaces/{side.namespace}")
    return side


async def _furnished(side: Side) -> None:
    """Wait for the default ServiceAccount, without which the real server takes no pods."""
    path = f"/api/v1/namespaces/{side.namespace}/serviceaccounts"
    async with asyncio.timeout(20):
        while not (await side.call("GET", path)).get("items"):
            await asyncio.sleep(0.05)


def stateful(*, replicas: int = 3, image: str = "a", **spec: Any) -> Json:
    claim = {
        "metadata": {"name": "data", "labels": {"tier": "db"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return {
        "spec": {
            "replicas": replicas,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(image),
            "volumeClaimTemplates": [claim],
            **spec,
        }
    }


def template(image: str) -> Json:
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", "a && b > c"],
        "ports": [{"name": "r", "containerPort": 6379}],
        "resources": {"requests": {"cpu": "0.1", "memory": "64Mi"}},
    }
    return {
        "metadata": {"labels": {"app": "web"}, "annotations": {"note": "<é>"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def to_image(image: str) -> Json:
    wanted = template(image)
    return {"spec": {"template": {"spec": {"containers": wanted["spec"]["containers"]}}}}


SETS = ["statefulsets", "pods", "controllerrevisions", "persistentvolumeclaims"]


async def test_a_stateful_set_in_order(real_kubernetes: Path, tmp_path: Path) -> None:
    async def scenario(side: Side) -> None:
        await side.make("statefulsets", "web", stateful(), annotations={"owner": "me"})
        await side.rest("created")
        for number in range(3):
            await side.report(f"web-{number}")
            await side.rest(f"web-{number} ready")
        await side.delete("pods", "web-1", gracePeriodSeconds=0)
        await side.rest("web-1 deleted")
        await side.report("web-1", ready=False)
        await side.rest("web-1 not ready")
        await side.settle("all ready")
        await side.report("web-2", phase="Failed", ready=False)
        await side.rest("web-2 failed")
        await side.settle("all ready again")
        await side.edit("statefulsets", "web", {"spec": {"replicas": 1}})
        await side.rest("scaled to 1")
        await side.edit("statefulsets", "web", {"spec": {"replicas": 3}})
        await side.settle("scaled to 3")

    await compare(scenario, kinds=SETS, name="ordered", kubeconfig=real_kubernetes, directory=tmp_path)


async def test_a_stateful_set_rolls(real_kubernetes: Path, tmp_path: Path) -> None:
    async def scenario(side: Side) -> None:
        await side.make("statefulsets", "web", stateful(revisionHistoryLimit=1))
        await side.settle("ready")
        await side.edit("statefulsets", "web", to_image("b"))
        await side.rest("rolling to b")
        await side.settle("at b")
        await side.edit("statefulsets", "web", to_image("broken"))
        await side.settle("stuck")
        await side.edit("statefulsets", "web", to_image("a"))
        await side.settle("back to a, still stuck")
        await side.delete("pods", "web-2", gracePeriodSeconds=0)
        await side.settle("at a")
        partition = {"updateStrategy": {"rollingUpdate": {"partition": 2}}}
        await side.edit("statefulsets", "web", {"spec": partition})
        await side.edit("statefulsets", "web", to_image("c"))
        await side.settle("c above the partition")
        await side.delete("pods", "web-0", gracePeriodSeconds=0)
        await side.settle("web-0 made again")

    await compare(scenario, kinds=SETS, name="rolls", kubeconfig=real_kubernetes, directory=tmp_path)


async def test_a_stateful_set_on_delete_and_parallel(real_kubernetes: Path, tmp_path: Path) -> None:
    async def scenario(side: Side) -> None:
        spec = stateful(
            updateStrategy={"type": "OnDelete"},
            podManagementPolicy="Parallel",
            ordinals={"start": 5},
            persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete", "whenScaled": "Delete"},
        )
        await side.make("statefulsets", "web", spec)
        await side.rest("created")
        await side.settle("ready")
        await side.edit("statefulsets", "web", to_image("b"))
        await side.settle("template b")
        for number in (7, 5, 6):
            await side.delete("pods", f"web-{number}", gracePeriodSeconds=0)
            await side.settle(f"web-{number} exchanged")
        await side.edit("statefulsets", "web", {"spec": {"replicas": 1}})
        await side.rest("scaled to 1")

    await compare(scenario, kinds=SETS, name="ondelete", kubeconfig=real_kubernetes, directory=tmp_path)


@pytest.mark.nightly
async def test_orphans_and_strangers(real_kubernetes: Path, tmp_path: Path) -> None:
    async def scenario(side: Side) -> None:
        await side.make("statefulsets", "web", stateful(volumeClaimTemplates=None))
        await side.settle("ready")
        await side.edit("pods", "web-1", {"metadata": {"labels": {"app": "other"}}})
        await side.rest("web-1 let go")
        await side.edit("pods", "web-1", {"metadata": {"labels": {"app": "web"}}})
        await side.rest("web-1 taken back")
        await side.delete("statefulsets", "web", propagationPolicy="Orphan")
        await side.rest("orphaned")
        await side.make("statefulsets", "web", stateful(volumeClaimTemplates=None))
        await side.settle("adopted")
        await side.delete("statefulsets", "web", propagationPolicy="Foreground")
        await side.rest("deleted")

    await compare(scenario, kinds=SETS[:3], name="orphans", kubeconfig=real_kubernetes, directory=tmp_path)


def deployment(**spec: Any) -> Json:
    return {
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("a"),
            **spec,
        }
    }


async def test_a_deployment(real_kubernetes: Path, tmp_path: Path) -> None:
    async def scenario(side: Side) -> None:
        await side.make("deployments", "web", deployment(revisionHistoryLimit=1), annotations={"owner": "me"})
        await side.rest("created")
        await side.settle("ready")
        await side.edit("deployments", "web", to_image("b"))
        await side.rest("rolling")
        await side.settle("at b")
        await side.edit("deployments", "web", to_image("broken"))
        await side.settle("stuck")
        await side.edit("deployments", "web", {"spec": {"replicas": 8}})
        await side.settle("scaled while stuck")
        await side.edit("deployments", "web", to_image("b"))
        await side.settle("taken back")
        await side.edit("deployments", "web", {"spec": {"paused": True}})
        await side.edit("deployments", "web", to_image("c"))
        await side.rest("paused")
        await side.edit("deployments", "web", {"spec": {"paused": False}})
        await side.settle("at c")
        strategy = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
        await side.edit("deployments", "web", {"spec": strategy})
        await side.edit("deployments", "web", to_image("d"))
        await side.settle("recreated")
        await side.edit("deployments", "web", {"spec": {"replicas": 0}})
        await side.rest("scaled to 0")

    kinds = ["deployments", "replicasets", "pods"]
    await compare(scenario, kinds=kinds, name="deployment", kubeconfig=real_kubernetes, directory=tmp_path)


@pytest.mark.nightly
async def test_daemon_sets(real_kubernetes: Path, tmp_path: Path) -> None:
    def daemons(**spec: Any) -> Json:
        pod = template("a")
        pod["spec"] |= {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"daemons": "yes"}}
        return {"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod, **spec}}

    async def node(side: Side, name: str, answer: str) -> None:
        path = "/api/v1/nodes"
        try:
            await side.call("POST", path, {"metadata": {"name": name, "labels": {"daemons": answer}}})
        except AlreadyExists:
            body = {"metadata": {"labels": {"daemons": answer}}}
            await side.call("PATCH", f"{path}/{name}", body, content="application/merge-patch+json")

    async def scenario(side: Side) -> None:
        for name, answer in (("d1", "yes"), ("d2", "yes"), ("d3", "no")):
            await node(side, name, answer)
        await side.make("daemonsets", "web", daemons(), annotations={"owner": "me"})
        await side.rest("created")
        await side.settle("ready")
        await node(side, "d3", "yes")
        await side.settle("a third node")
        await side.edit("daemonsets", "web", to_image("b"))
        await side.rest("rolling")
        await side.settle("at b")
        on_delete = {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}
        await side.edit("daemonsets", "web", {"spec": on_delete})
        await side.edit("daemonsets", "web", to_image("c"))
        await side.settle("on delete")

    async def without_leftovers(side: Side) -> None:
        try:
            await scenario(side)
        finally:
            await side.delete("daemonsets", "web")
            for name in ("d1", "d2", "d3"):
                await side.call("DELETE", f"/api/v1/nodes/{name}")

    kinds = ["daemonsets", "pods", "controllerrevisions"]
    await compare(
        without_leftovers,
        kinds=kinds,
        name="daemons",
        kubeconfig=real_kubernetes,
        directory=tmp_path,
        rest=1.5,
    )


@pytest.mark.nightly
async def test_jobs(real_kubernetes: Path, tmp_path: Path) -> None:
    def job(**spec: Any) -> Json:
        pod = template("a")
        pod["spec"]["restartPolicy"] = "Never"
        return {"spec": {"template": pod, **spec}}

    async def end(side: Side, name: str, *, phase: str = "Succeeded", most: int = 1) -> None:
        for pod in await side.list("pods"):
            mine = any(owner["name"] == name for owner in pod["metadata"].get("ownerReferences") or ())
            if mine and pod["status"]["phase"] not in ("Succeeded", "Failed") and most:
                most -= 1
                await side.report(pod["metadata"]["name"], phase=phase, ready=False)

    async def scenario(side: Side) -> None:
        await side.make("jobs", "once", job(), labels={"x": "y"})
        await side.make("jobs", "many", job(completions=3, parallelism=2), labels={"x": "y"})
        await side.make(
            "jobs", "indexed", job(completions=3, parallelism=3, completionMode="Indexed"), labels={"x": "y"}
        )
        await side.make("jobs", "failing", job(backoffLimit=0), labels={"x": "y"})
        await side.make("jobs", "held", job(suspend=True), labels={"x": "y"})
        await side.rest("created")
        await side.report_all()
        await side.rest("running")
        await end(side, "once")
        await end(side, "many")
        await end(side, "indexed")
        await end(side, "failing", phase="Failed")
        await side.edit("jobs", "held", {"spec": {"suspend": False}})
        await side.rest("first ends")
        await end(side, "many", most=2)
        await end(side, "indexed", most=2)
        await side.edit("jobs", "held", {"spec": {"suspend": True}})
        await side.rest("second ends")
        await side.delete("jobs", "many", propagationPolicy="Background")
        await side.rest("deleted")

    kinds = ["jobs", "pods"]
    # The real controller gathers what happens to pods for a second.
    await compare(
        scenario, kinds=kinds, name="jobs", kubeconfig=real_kubernetes, directory=tmp_path, rest=2.0
    )


async def test_disruption_budgets(real_kubernetes: Path, tmp_path: Path) -> None:
    budgets: dict[str, Json] = {
        "a": {"minAvailable": 2},
        "b": {"minAvailable": "50%"},
        "c": {"maxUnavailable": "34%"},
        "d": {"maxUnavailable": 0},
    }

    async def scenario(side: Side) -> None:
        # One set each: of several budgets over one pod the real controller wakes only one.
        for name, spec in budgets.items():
            selector = {"matchLabels": {"app": name}}
            await side.make("poddisruptionbudgets", name, {"spec": {"selector": selector, **spec}})
        await side.rest("no pods")
        for name in budgets:
            body = stateful(volumeClaimTemplates=None, podManagementPolicy="Parallel")
            body["spec"]["selector"] = {"matchLabels": {"app": name}}
            body["spec"]["template"]["metadata"]["labels"] = {"app": name}
            await side.make("statefulsets", name, body)
        await side.rest("unready pods")
        await side.settle("ready pods")
        for name in budgets:
            await side.report(f"{name}-1", ready=False)
        await side.rest("one not ready")
        for name in budgets:
            await side.edit("statefulsets", name, {"spec": {"replicas": 5}})
        await side.settle("five")
        for name in budgets:
            bare = {"spec": template("a")["spec"]}
            await side.make("pods", f"stranger-{name}", bare, labels={"app": name})
        await side.settle("and a stranger")

    kinds = ["poddisruptionbudgets", "pods"]
    await compare(scenario, kinds=kinds, name="budgets", kubeconfig=real_kubernetes, directory=tmp_path)


async def test_endpoints(real_kubernetes: Path, tmp_path: Path) -> None:
    def service(**spec: Any) -> Json:
        return {"spec": {"selector": {"app": "web"}, "ports": [{"port": 6379, "targetPort": "r"}], **spec}}

    async def scenario(side: Side) -> None:
        await side.make("services", "web", service(clusterIP="None"), labels={"tier": "db"})
        await side.make("services", "all", service(clusterIP="None", publishNotReadyAddresses=True))
        await side.make("services", "portless", {"spec": {"selector": {"app": "web"}, "clusterIP": "None"}})
        await side.make("services", "manual", {"spec": {"ports": [{"port": 1}]}})
        await side.rest("no pods")
        for number in range(3):
            spec = {
                **template("a")["spec"],
                "hostname": f"web-{number}",
                "subdomain": "web",
                "nodeName": "n1",
            }
            if number == 2:
                spec["containers"] = [{**spec["containers"][0], "ports": [{"name": "x", "containerPort": 1}]}]
            await side.make("pods", f"web-{number}", {"spec": spec}, labels={"app": "web"})
        await side.rest("no addresses")
        for number in range(3):
            await side.report(f"web-{number}", ready=number != 1, ip=f"10.99.0.{number + 1}")
        await side.rest("addresses")
        await side.report("web-1", ip="10.99.0.2")
        await side.rest("all ready")
        await side.report("web-0", phase="Failed", ready=False, ip="10.99.0.1")
        await side.rest("one failed")
        await side.edit("pods", "web-1", {"metadata": {"finalizers": ["example.com/hold"]}})
        await side.delete("pods", "web-1", gracePeriodSeconds=0)
        await side.rest("one terminating")
        await side.edit("pods", "web-1", {"metadata": {"finalizers": None}})
        await side.edit("services", "web", {"metadata": {"labels": {"tier": "cache"}}})
        await side.rest("relabelled")
        await side.delete("services", "all")
        await side.rest("one service less")

    async def with_node(side: Side) -> None:
        await side.call(
            "POST",
            "/api/v1/nodes",
            {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z"}}},
        )
        try:
            await scenario(side)
        finally:
            await side.call("DELETE", "/api/v1/nodes/n1")

    kinds = ["endpointslices", "endpoints"]
    # The real controller tries again a second after it found its own cache out of date.
    await compare(
        with_node, kinds=kinds, name="endpoints", kubeconfig=real_kubernetes, directory=tmp_path, rest=2.5
    )
