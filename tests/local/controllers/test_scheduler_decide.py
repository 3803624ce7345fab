"""Where a pod goes, and the words it gets when it goes nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from tests.local.controllers.builders import make, merged, pod

from mooring.kube.object import key_of
from mooring.kube.objects.core import Node, PersistentVolume, PersistentVolumeClaim, Pod
from mooring.kube.objects.storage import StorageClass
from mooring.local.controllers.scheduler.claims import ClaimView, PodClaims
from mooring.local.controllers.scheduler.decide import Decision, Placement, Unfit, decide
from mooring.local.controllers.scheduler.requests import requests_of
from mooring.local.controllers.scheduler.state import ClusterState


class World:
    """Nodes, pods and volumes of a test."""

    def __init__(self, *nodes: Node) -> None:
        self.cluster = ClusterState()
        self.claims: dict[tuple[str, str], PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.storage: dict[str, StorageClass] = {}
        self.namespaces: dict[str, dict[str, str]] = {"default": {"team": "a"}, "other": {"team": "b"}}
        for each in nodes:
            self.cluster.node_changed(each.metadata.name or "", each)

    def run(self, on: str, other: Pod) -> None:
        placed = merged(other, {"spec": {"nodeName": on}})
        self.cluster.pod_changed(key_of(placed), placed)

    def decide(self, wanted: Pod, *, preferred: str = "") -> Decision:
        view = ClaimView(
            claim=lambda ns, name: self.claims.get((ns, name)),
            volume=self.volumes.get,
            candidates=lambda claim: self.volumes.values(),
            storage=self.storage.get,
        )
        return decide(
            wanted,
            self.cluster,
            claims=PodClaims(wanted, view),
            namespaces=self.namespaces,
            preferred=preferred,
        )

    def node_for(self, wanted: Pod) -> str:
        decision = self.decide(wanted)
        assert isinstance(decision, Placement), decision
        return decision.node

    def refusal(self, wanted: Pod) -> str:
        decision = self.decide(wanted)
        assert isinstance(decision, Unfit), decision
        return decision.message


def node(
    name: str, *, cpu: str = "4", memory: str = "8Gi", labels: dict[str, str] | None = None, **spec: Any
) -> Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": "10"}
    named = {"kubernetes.io/hostname": name, **(labels or {})}
    return make(Node, name, {"spec": spec, "status": {"allocatable": amounts}}, labels=named)


def asking(
    name: str = "p", cpu: str = "", memory: str = "", labels: dict[str, str] | None = None, **spec: Any
) -> Pod:
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    container = {"name": "main", "image": "a", "resources": {"requests": requests}}
    return pod(name, {"spec": {"containers": [container], **spec}}, labels=labels or {})


def test_without_nodes_the_message_is_the_schedulers_own() -> None:
    assert World().refusal(asking()) == "no nodes available to schedule pods"


def test_too_large_requests_are_named_by_resource_and_counted_over_nodes() -> None:
    world = World(node("a"), node("b", cpu="16"))
    assert world.refusal(asking(cpu="8", memory="100Gi")) == (
        "0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory."
    )


def test_running_pods_take_room_until_they_end_or_go() -> None:
    world = World(node("a"))
    running = asking("big", cpu="3")
    world.run("a", running)
    assert world.refusal(asking(cpu="2")) == "0/1 nodes are available: 1 Insufficient cpu."
    world.run("a", merged(running, {"status": {"phase": "Succeeded"}}))
    assert world.node_for(asking(cpu="2")) == "a"
    world.run("a", running)
    world.cluster.pod_changed(key_of(running), None)
    assert world.node_for(asking(cpu="4")) == "a"


def test_a_node_holds_no_more_pods_than_it_says() -> None:
    world = World(node("a"))
    for number in range(10):
        world.run("a", asking(f"p{number}"))
    assert world.refusal(asking()) == "0/1 nodes are available: 1 Too many pods."


def test_requests_count_init_containers_sidecars_and_overhead() -> None:
    wanted = pod(
        "p",
        {
            "spec": {
                "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                    {"name": "i", "resources": {"requests": {"cpu": "2"}}},
                ],
                "overhead": {"cpu": "100m"},
            }
        },
    )
    amounts = requests_of(wanted)
    assert {name: float(value) for name, value in amounts.items()} == {"cpu": 2.6, "memory": 2.0**30}


REFUSALS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("cordoned", {"unschedulable": True}, {}, "1 node(s) were unschedulable"),
    (
        "tainted",
        {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        {"tolerations": [{"key": "k", "operator": "Equal", "value": "other"}]},
        "1 node(s) had untolerated taint(s)",
    ),
    (
        "node selector",
        {},
        {"nodeSelector": {"disk": "ssd"}},
        "1 node(s) didn't match Pod's node affinity/selector",
    ),
    (
        "node affinity",
        {},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z1"]}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
                            {},
                        ]
                    }
                }
            }
        },
        "1 node(s) didn't match Pod's node affinity/selector",
    ),
]


@pytest.mark.parametrize(("case", "node_spec", "pod_spec", "reason"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_a_node_is_refused(
    case: str, node_spec: dict[str, Any], pod_spec: dict[str, Any], reason: str
) -> None:
    world = World(node("a", labels={"zone": "z1"}, **node_spec))
    assert world.refusal(asking(**pod_spec)) == f"0/1 nodes are available: {reason}."


def test_tolerations_open_tainted_and_cordoned_nodes() -> None:
    taints = [{"key": "k", "value": "v", "effect": "NoExecute"}]
    world = World(node("a", taints=taints, unschedulable=True))
    assert world.node_for(asking(tolerations=[{"operator": "Exists"}])) == "a"
    exact = [{"key": "k", "value": "v"}, {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    assert world.node_for(asking(tolerations=exact)) == "a"


def test_host_ports_are_given_once() -> None:
    world = World(node("a"))
    container = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
    world.run("a", pod("web", {"spec": {"containers": [container]}}))
    refusal = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    assert world.refusal(pod("p", {"spec": {"containers": [container]}})) == refusal
    udp = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]}
    assert world.node_for(pod("q", {"spec": {"containers": [udp]}})) == "a"


def _apart(app: str, **term: Any) -> dict[str, Any]:
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}, **term}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}


def _near(app: str, **term: Any) -> dict[str, Any]:
    return {"podAffinity": _apart(app, **term)["podAntiAffinity"]}


def test_anti_affinity_spreads_over_nodes_and_then_refuses() -> None:
    world = World(node("a"), node("b"))
    for number in range(2):
        wanted = asking(f"r{number}", labels={"app": "redis"}, affinity=_apart("redis"))
        world.run(world.node_for(wanted), wanted)
    assert {len(state.pods) for state in world.cluster.nodes} == {1}
    assert world.refusal(asking(labels={"app": "redis"}, affinity=_apart("redis"))) == (
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    )
    plain = asking(affinity=_apart("redis"))
    assert world.refusal(plain) == (
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    )


def test_anti_affinity_holds_in_its_own_namespace_unless_it_names_others() -> None:
    world = World(node("a"))
    elsewhere = pod("x", {"spec": {"containers": []}}, namespace="other", labels={"app": "redis"})
    world.run("a", elsewhere)
    assert world.node_for(asking(affinity=_apart("redis"))) == "a"
    for term in ({"namespaces": ["other"]}, {"namespaceSelector": {"matchLabels": {"team": "b"}}}):
        assert "anti-affinity" in world.refusal(asking(affinity=_apart("redis", **term)))


def test_the_first_of_an_affine_group_may_go_anywhere_the_next_must_follow() -> None:
    world = World(node("a"), node("b"))
    first = asking("g0", labels={"app": "g"}, affinity=_near("g"))
    where = world.node_for(first)
    world.run(where, first)
    assert world.node_for(asking("g1", labels={"app": "g"}, affinity=_near("g"))) == where
    assert world.refusal(asking(affinity=_near("nobody"))) == (
        "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
    )


def test_spread_refuses_a_node_that_would_be_too_full_and_one_without_the_label() -> None:
    zones = [node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"}), node("c")]
    world = World(*zones)
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "s"}},
    }
    spread: dict[str, Any] = {"labels": {"app": "s"}, "topologySpreadConstraints": [constraint]}
    for number in range(4):
        wanted = asking(f"s{number}", **spread)
        world.run(world.node_for(wanted), wanted)
    assert sorted(len(state.pods) for state in world.cluster.nodes) == [0, 2, 2]
    world.cluster.node_changed("b", merged(zones[1], {"spec": {"unschedulable": True}}))
    world.run("a", asking("s9", **spread))
    assert world.refusal(asking(**spread)) == (
        "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, "
        "1 node(s) didn't match pod topology spread constraints (missing required label), "
        "1 node(s) were unschedulable."
    )


def test_siblings_are_spread_and_preferred_nodes_win() -> None:
    world = World(node("a"), node("b"))
    owner = asking("owner")
    for number in range(4):
        wanted = pod(f"w{number}", {"spec": {"containers": []}}, owner=owner)
        world.run(world.node_for(wanted), wanted)
    assert [len(state.pods) for state in world.cluster.nodes] == [2, 2]
    term = {
        "weight": 100,
        "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
    }
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert world.node_for(asking(affinity=preferred)) == "b"


def _claiming() -> Pod:
    return asking(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])


def _claim(**spec: Any) -> PersistentVolumeClaim:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return make(PersistentVolumeClaim, "data", {"spec": body, "status": {"phase": "Pending"}})


def _volume(name: str, on: str, size: str = "5Gi") -> PersistentVolume:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}]}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return make(PersistentVolume, name, {"spec": spec, "status": {"phase": "Available"}})


def _class(provisioner: str, mode: str = "WaitForFirstConsumer") -> StorageClass:
    return make(StorageClass, "local", {"provisioner": provisioner, "volumeBindingMode": mode})


def test_claims_that_cannot_be_used_refuse_the_pod_before_nodes_are_looked_at() -> None:
    world = World(node("a"))
    start = "0/1 nodes are available: "
    assert world.refusal(_claiming()) == f'{start}persistentvolumeclaim "data" not found.'
    world.claims["default", "data"] = _claim()
    assert world.refusal(_claiming()) == f"{start}pod has unbound immediate PersistentVolumeClaims."
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    world.claims["default", "data"] = merged(
        _claim(volumeName="pv"), {"metadata": {"annotations": bound}, "status": {"phase": "Lost"}}
    )
    assert world.refusal(_claiming()) == (
        f'{start}persistentvolumeclaim "data" bound to non-existent persistentvolume "pv".'
    )


def test_a_waiting_claim_is_provisioned_on_the_chosen_node() -> None:
    world = World(node("a"))
    world.claims["default", "data"] = _claim(storageClassName="local")
    world.storage["local"] = _class("mooring.dev/local")
    decision = world.decide(_claiming())
    assert isinstance(decision, Placement)
    assert [claim.metadata.name for claim in decision.volumes.provision] == ["data"]


def test_a_waiting_claim_takes_the_smallest_existing_volume_of_a_node() -> None:
    world = World(node("a"), node("b"))
    world.claims["default", "data"] = _claim(storageClassName="local")
    world.storage["local"] = _class("kubernetes.io/no-provisioner")
    reason = "node(s) didn't find available persistent volumes to bind"
    assert world.refusal(_claiming()) == f"0/2 nodes are available: 2 {reason}."
    world.volumes = {v.metadata.name or "": v for v in (_volume("big", "b"), _volume("small", "b", "2Gi"))}
    decision = world.decide(_claiming())
    assert isinstance(decision, Placement)
    assert decision.node == "b"
    assert [volume.metadata.name for _, volume in decision.volumes.bind] == ["small"]


def test_a_bound_volume_holds_its_pod_on_its_node() -> None:
    world = World(node("a"), node("b", unschedulable=True))
    bound = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
    world.claims["default", "data"] = merged(_claim(volumeName="v", storageClassName="local"), bound)
    world.volumes["v"] = _volume("v", "b")
    assert world.refusal(_claiming()) == (
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, "
        "1 node(s) were unschedulable."
    )


def test_a_claim_whose_node_does_not_exist_is_named_with_it() -> None:
    world = World(node("a"))
    bound = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
    world.claims["default", "data"] = merged(_claim(volumeName="v", storageClassName="local"), bound)
    world.volumes["v"] = _volume("v", "gone")
    assert world.refusal(_claiming()) == (
        "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity. "
        'persistentvolumeclaim "data" is bound to node "gone", which does not exist.'
    )


def test_room_is_held_for_a_pod_that_was_promised_a_node() -> None:
    world = World(node("a"))
    first, second = asking("first", cpu="3"), asking("second", cpu="3")
    world.cluster.assume(first, "a")
    world.cluster.pod_changed(key_of(first), merged(first, {"metadata": {"annotations": {"x": "y"}}}))
    assert "Insufficient cpu" in world.refusal(second)
    assert world.cluster.assumed(first) == "a"
    world.cluster.forget(first)
    assert world.node_for(second) == "a"


def test_a_node_that_says_no_number_of_pods_takes_none() -> None:
    bare = make(Node, "bare", {"spec": {}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}})
    assert "Too many pods" in World(bare).refusal(asking())
    assert "Too many pods" in World(make(Node, "new", {"spec": {}})).refusal(asking())
