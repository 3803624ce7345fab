"""What users add to pods: merged by known rules, and refused by field where it would go around what the operator decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from mooring.kube import Client
from mooring.kube.object import Key, Object, decode, to_dict
from mooring.kube.objects import apps, core
from mooring.local.api.server import ApiServer
from mooring.operators.mysql import overlay as mysql_overlay
from mooring.operators.mysql.credentials import ACCOUNTS, Credentials
from mooring.operators.mysql.specs import Found as MySQLFound
from mooring.operators.mysql.specs import Specs as MySQLSpecs
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.mysql.validate import validate as validate_mysql
from mooring.operators.mysql.webhook import MySQLClusterReview
from mooring.operators.redis.cluster import overlay as cluster_overlay
from mooring.operators.redis.cluster.specs import Found as ClusterFound
from mooring.operators.redis.cluster.specs import Orders as ClusterOrders
from mooring.operators.redis.cluster.specs import Specs as ClusterSpecs
from mooring.operators.redis.cluster.types import RedisCluster as HarmonyCluster
from mooring.operators.redis.cluster.validate import validate as validate_cluster
from mooring.operators.redis.cluster.webhook import RedisClusterReview as HarmonyClusterReview
from mooring.operators.redis.sentinel import overlay as sentinel_overlay
from mooring.operators.redis.sentinel.names import Component
from mooring.operators.redis.sentinel.specs import Found as SentinelFound
from mooring.operators.redis.sentinel.specs import Specs as SentinelSpecs
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.redis.sentinel.validate import validate as validate_sentinel
from mooring.operators.redis.sentinel.webhook import RedisClusterReview
from mooring.operators.workload.overlay import Ours
from mooring.operators.workload.problem import Problem
from mooring.runtime.crd import unknown_fields
from mooring.runtime.webhooks import Allow, Operation, Refuse, Review, Verdict

Spec = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One component of one kind of cluster."""

    name: str
    main: str
    base: Spec
    template: Callable[[Spec], core.PodTemplateSpec]
    """The pods as they are declared."""
    inputs: Callable[[Spec], str]
    """The digest that decides about a roll."""
    faults: Callable[[Spec], list[Problem]]
    ours: Callable[[Spec], Ours]
    nested: bool = False

    def with_overlay(self, **overlay: Any) -> Spec:
        """The base with an overlay of this component."""
        if self.nested:
            return {**self.base, "sentinel": {**self.base.get("sentinel", {}), "podTemplate": overlay}}
        return {**self.base, "podTemplate": overlay}

    def rendered(self, **overlay: Any) -> core.PodTemplateSpec:
        """The pods with an overlay."""
        return self.template(self.with_overlay(**overlay))

    def refused(self, **overlay: Any) -> dict[str, str]:
        """What is said of an overlay, by field."""
        return {one.field: one.message for one in self.faults(self.with_overlay(**overlay))}


def as_(kind: type[Any], spec: Spec) -> Any:
    labels = {"team": "a"}
    metadata = {"name": "shop", "namespace": "web", "uid": "u", "labels": labels}
    return decode(msgspec.json.decode(msgspec.json.encode({"metadata": metadata, "spec": spec})), kind)


def template_of(one: Object) -> core.PodTemplateSpec:
    assert isinstance(one, apps.StatefulSet)
    assert one.spec is not None
    assert one.spec.template is not None
    return one.spec.template


def sentinel_kind(component: Component) -> Kind:
    def specs(spec: Spec) -> SentinelSpecs:
        return SentinelSpecs(as_(RedisCluster, spec), SentinelFound())

    def rendered(spec: Spec) -> core.PodTemplateSpec:
        made = specs(spec)
        return template_of(made.redis_set() if component == "redis" else made.sentinel_set())

    return Kind(
        name=f"redis.kun {component}",
        main=component,
        base={"image": "redis:7.0"},
        template=rendered,
        inputs=lambda spec: specs(spec).inputs(component),
        faults=lambda spec: validate_sentinel(as_(RedisCluster, spec)),
        ours=lambda spec: sentinel_overlay.ours(as_(RedisCluster, spec).spec, component),
        nested=component == "sentinel",
    )


def cluster_specs(spec: Spec) -> ClusterSpecs:
    return ClusterSpecs(as_(HarmonyCluster, spec), ClusterFound())


MYSQL_PASSWORDS = Credentials(texts=dict.fromkeys(ACCOUNTS.values(), "x"))


def mysql_specs(spec: Spec) -> MySQLSpecs:
    return MySQLSpecs(as_(MySQLCluster, spec), MySQLFound(credentials=MYSQL_PASSWORDS))


KINDS = [
    sentinel_kind("redis"),
    sentinel_kind("sentinel"),
    Kind(
        name="redis.middleware.hc.cn",
        main="redis",
        base={"replicas": 6, "pod": [{"middlewareImage": "redis:7.0"}]},
        template=lambda spec: template_of(cluster_specs(spec).stateful_set()),
        inputs=lambda spec: cluster_specs(spec).inputs(),
        faults=lambda spec: validate_cluster(as_(HarmonyCluster, spec)),
        ours=lambda spec: cluster_overlay.ours(as_(HarmonyCluster, spec).spec),
    ),
    Kind(
        name="mysql",
        main="mysql",
        base={"image": "mariadb:10.11"},
        template=lambda spec: template_of(mysql_specs(spec).set()),
        inputs=lambda spec: mysql_specs(spec).inputs,
        faults=lambda spec: validate_mysql(as_(MySQLCluster, spec)),
        ours=lambda spec: mysql_overlay.ours(as_(MySQLCluster, spec).spec),
    ),
]
BEFORE = ("f52b876268a88c0e", "ebb3f47b4429bb33", "373e53474819e3d7", "84fa520938022d52")
"""Digests of the inputs of each kind's base before there was an overlay."""
DOCS = Path(__file__).parents[3] / "docs"
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
SIDECAR: Spec = {"name": "shipper", "image": "busybox:1.36", "command": ["sleep", "1000"]}


def container(template: core.PodTemplateSpec, name: str) -> core.Container:
    assert template.spec is not None
    found: dict[str | None, core.Container] = {
        one.name: one for one in (*(template.spec.init_containers or ()), *(template.spec.containers or ()))
    }
    return found[name]


# --- what is merged ------------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize(
    "empty",
    [{}, {"metadata": {}}, {"spec": {}}, {"metadata": {"labels": {}}, "spec": {"containers": []}}],
    ids=str,
)
def test_an_overlay_that_says_nothing_changes_neither_pods_nor_digest(kind: Kind, empty: Spec) -> None:
    said = kind.with_overlay(**empty)
    assert kind.inputs(said) == kind.inputs(kind.base)
    assert kind.template(said) == kind.template(kind.base)
    assert kind.faults(said) == []


@each_kind
def test_everything_that_may_be_given_is_in_the_pods_and_what_was_there_stays(kind: Kind) -> None:
    before = kind.template(kind.base)
    overlay: Spec = {
        "metadata": {"labels": {"tier": "gold"}, "annotations": {"scrape": "yes"}},
        "spec": {
            "initContainers": [{"name": "tune", "image": "busybox:1.36"}],
            "containers": [
                {
                    "name": kind.main,
                    "env": [{"name": "TZ", "value": "Asia/Shanghai"}],
                    "volumeMounts": [{"name": "extra", "mountPath": "/opt/modules"}],
                    "livenessProbe": {"timeoutSeconds": 20},
                    "securityContext": {"readOnlyRootFilesystem": True},
                    "lifecycle": {"postStart": {"exec": {"command": ["true"]}}},
                },
                {**SIDECAR, "volumeMounts": [{"name": "run", "mountPath": "/run/db", "readOnly": True}]},
            ],
            "volumes": [{"name": "extra", "emptyDir": {}}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "db", "operator": "Exists"}],
            "priorityClassName": "high",
            "serviceAccountName": "db",
            "automountServiceAccountToken": True,
            "imagePullSecrets": [{"name": "registry"}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "terminationGracePeriodSeconds": 300,
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
            "hostNetwork": True,
            "runtimeClassName": "gvisor",
            "securityContext": {"fsGroup": 4711},
        },
    }
    said = kind.with_overlay(**overlay)
    assert kind.faults(said) == []
    assert kind.inputs(said) != kind.inputs(kind.base)
    made = kind.template(said)
    assert made.metadata is not None
    assert before.metadata is not None
    assert made.metadata.labels == {**(before.metadata.labels or {}), "tier": "gold"}
    assert made.metadata.annotations == {"scrape": "yes"}
    plain, was = to_dict(made)["spec"], to_dict(before)["spec"]
    given = overlay["spec"]
    merged = ("containers", "initContainers", "volumes", "securityContext")
    for name, value in given.items():
        if name not in merged:
            assert plain[name] == value, name
    assert plain["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert plain["securityContext"] == {**was.get("securityContext", {}), "fsGroup": 4711}
    assert plain["volumes"] == [*was["volumes"], *given["volumes"]]
    assert plain["initContainers"] == [*was.get("initContainers", []), *given["initContainers"]]
    first, *rest = plain["containers"]
    assert rest == [*was["containers"][1:], given["containers"][1]]
    old = was["containers"][0]
    assert first["command"] == old["command"]
    assert first.get("args") == old.get("args")
    assert first["env"] == [*old["env"], {"name": "TZ", "value": "Asia/Shanghai"}]
    assert first["volumeMounts"] == [*old["volumeMounts"], {"name": "extra", "mountPath": "/opt/modules"}]
    assert first["livenessProbe"] == {**old["livenessProbe"], "timeoutSeconds": 20}
    assert first["securityContext"] == {**old.get("securityContext", {}), "readOnlyRootFilesystem": True}
    hook = {"exec": {"command": ["true"]}}
    assert first["lifecycle"] == {**old.get("lifecycle", {}), "postStart": hook}
    assert {name for name in plain if name not in given} == {*was, "dnsPolicy"} - given.keys()


@each_kind
def test_a_change_of_any_part_of_the_overlay_is_another_digest(kind: Kind) -> None:
    said: list[Spec] = [
        {"metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"a": "2"}}},
        {"metadata": {"annotations": {"a": "1"}}},
        {"spec": {"containers": [SIDECAR]}},
        {"spec": {"containers": [{**SIDECAR, "image": "busybox:1.37"}]}},
        {"spec": {"hostNetwork": False}},
        {"spec": {"terminationGracePeriodSeconds": 600}},
    ]
    digests = [kind.inputs(kind.base), *(kind.inputs(kind.with_overlay(**one)) for one in said)]
    assert len(set(digests)) == len(digests)


def test_the_overlay_of_sentinels_does_not_touch_the_servers_nor_the_other_way_round() -> None:
    redis, sentinel = KINDS[:2]
    of_redis = redis.with_overlay(spec={"priorityClassName": "high"})
    of_sentinel = sentinel.with_overlay(spec={"priorityClassName": "high"})
    assert sentinel.inputs(of_redis) == sentinel.inputs(sentinel.base)
    assert redis.inputs(of_sentinel) == redis.inputs(redis.base)
    assert sentinel.template(of_redis) == sentinel.template(sentinel.base)
    assert redis.template(of_sentinel) == redis.template(redis.base)


def test_the_overlay_wins_over_the_fields_that_were_there_before() -> None:
    """Maps are joined and lists replaced."""
    redis, mysql = KINDS[0], KINDS[3]
    older: Spec = {
        "nodeSelector": {"disk": "hdd", "zone": "a"},
        "tolerations": [{"key": "old"}],
        "affinity": {"nodeAffinity": {}},
        "annotations": {"by": "field", "kept": "yes"},
        "securityContext": {"runAsUser": 1, "fsGroup": 1},
    }
    newer: Spec = {
        "metadata": {"annotations": {"by": "overlay"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "new"}],
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
            },
            "securityContext": {"runAsUser": 2},
        },
    }
    as_kun: Spec = {
        ("toleRations" if name == "tolerations" else name): value for name, value in older.items()
    }
    for spec in (
        {**redis.base, **as_kun, "podTemplate": newer},
        {**mysql.base, "pod": older, "podTemplate": newer},
    ):
        kind = redis if spec["image"] == "redis:7.0" else mysql
        made = to_dict(kind.template(spec))
        assert made["metadata"]["annotations"] == {"by": "overlay", "kept": "yes"}
        assert made["spec"]["nodeSelector"] == {"disk": "ssd", "zone": "a"}
        assert made["spec"]["tolerations"] == [{"key": "new"}]
        assert made["spec"]["affinity"].keys() == {"podAffinity"}
        assert made["spec"]["securityContext"] == {"runAsUser": 2, "fsGroup": 1}


def test_a_variable_of_the_field_is_replaced_and_one_of_the_operator_is_not() -> None:
    kind = KINDS[2]
    pods = [{"middlewareImage": "redis:7.0", "env": [{"name": "MAXMEMORY", "value": "1gb"}]}]
    env = [{"name": "MAXMEMORY", "value": "2gb"}, {"name": "POD_IP", "value": "10.0.0.1"}]
    spec = {
        **kind.base,
        "pod": pods,
        "podTemplate": {"spec": {"containers": [{"name": "redis", "env": env}]}},
    }
    found = {one.name: one for one in container(kind.template(spec), "redis").env or ()}
    assert found["MAXMEMORY"].value == "2gb"
    assert found["POD_IP"].value is None
    assert [one.field for one in kind.faults(spec)] == ["spec.podTemplate.spec.containers[0].env[1].name"]


def test_pods_that_may_not_run_as_root_have_unprivileged_servers() -> None:
    for kind in KINDS[:2]:
        made = kind.rendered(spec={"securityContext": {"runAsNonRoot": True, "runAsUser": 999}})
        context = container(made, kind.main).security_context
        assert context is not None
        assert context.allow_privilege_escalation is False


def test_what_is_taken_out_of_the_overlay_goes_from_the_pods_of_a_redis_cluster() -> None:
    kind = KINDS[2]
    with_sidecar = kind.with_overlay(spec={"containers": [SIDECAR]})
    live = cluster_specs(with_sidecar).stateful_set()
    after = ClusterSpecs(as_(HarmonyCluster, kind.base), ClusterFound(live=live), ClusterOrders(rewrite=True))
    assert not after.current()
    assert template_of(after.stateful_set()) == kind.template(kind.base)
    kept = ClusterSpecs(as_(HarmonyCluster, kind.base), ClusterFound(live=live))
    assert template_of(kept.stateful_set()) == kind.template(with_sidecar)


def test_a_trial_start_of_mysql_runs_where_and_as_whom_the_overlay_says_without_its_sidecars() -> None:
    kind = KINDS[3]
    spec = kind.with_overlay(
        spec={
            "containers": [SIDECAR],
            "nodeSelector": {"disk": "ssd"},
            "serviceAccountName": "db",
            "imagePullSecrets": [{"name": "registry"}],
            "hostNetwork": True,
        }
    )
    job = mysql_specs(spec).trial()
    assert job.spec is not None
    assert job.spec.template is not None
    pod = to_dict(job.spec.template)["spec"]
    assert [one["name"] for one in pod["containers"]] == ["trial"]
    assert (pod["nodeSelector"], pod["serviceAccountName"]) == ({"disk": "ssd"}, "db")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "hostNetwork" not in pod


# --- what is refused -----------------------------------------------------------------------------------------


def where(kind: Kind, rest: str) -> str:
    return f"{kind.ours(kind.base).where}.{rest}"


@each_kind
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"restartPolicy": "Never"}, "restartPolicy"),
        ({"hostname": "a"}, "hostname"),
        ({"subdomain": "a"}, "subdomain"),
        ({"setHostnameAsFQDN": True}, "setHostnameAsFQDN"),
        ({"shareProcessNamespace": True}, "shareProcessNamespace"),
        ({"hostPID": True}, "hostPID"),
        ({"hostIPC": True}, "hostIPC"),
        ({"nodeName": "n1"}, "nodeName"),
        ({"activeDeadlineSeconds": 5}, "activeDeadlineSeconds"),
        ({"serviceAccount": "a"}, "serviceAccount"),
        ({"schedulingGates": [{"name": "a"}]}, "schedulingGates"),
        ({"readinessGates": [{"conditionType": "a"}]}, "readinessGates"),
        ({"terminationGracePeriodSeconds": 2}, "terminationGracePeriodSeconds"),
        ({"terminationGracePeriodSeconds": "60"}, "terminationGracePeriodSeconds"),
        ({"priorityClas": "a"}, "priorityClas"),
        ({"containers": [{**SIDECAR, "imag": "a"}]}, "containers[0].imag"),
        ({"containers": [{**SIDECAR, "command": "sleep"}]}, "containers[0].command"),
        ({"volumes": [{"name": "run", "emptyDir": {}}]}, "volumes[0].name"),
        ({"volumes": [{"name": "tls", "emptyDir": {}}]}, "volumes[0].name"),
        ({"volumes": [{"name": "Not_A_Name", "emptyDir": {}}]}, "volumes[0].name"),
        ({"containers": [{"name": "shipper"}]}, "containers[0].image"),
        ({"containers": [SIDECAR], "initContainers": [SIDECAR]}, "containers[0].name"),
        ({"containers": [{**SIDECAR, "volumeMounts": [{"name": "no", "mountPath": "/a"}]}]}, "containers[0].volumeMounts[0].name"),
        ({"containers": [{**SIDECAR, "volumeMounts": [{"name": "auth", "mountPath": "/a"}]}]}, "containers[0].volumeMounts[0].readOnly"),
        ({"containers": [{**SIDECAR, "resources": {"limits": {"cpu": "lots"}}}]}, "containers[0].resources.limits.cpu"),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_break_a_server_is_refused_by_its_field(kind: Kind, spec: Spec, field: str) -> None:
    said = kind.refused(spec=spec)
    assert where(kind, f"spec.{field}") in said
    assert all(message.strip() for message in said.values())


@each_kind
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"command": ["sh"]}, "command"),
        ({"args": ["--port", "1"]}, "args"),
        ({"image": "redis:7.2"}, "image"),
        ({"imagePullPolicy": "Never"}, "imagePullPolicy"),
        ({"resources": {"limits": {"memory": "1Gi"}}}, "resources"),
        ({"ports": [{"containerPort": 1}]}, "ports"),
        ({"workingDir": "/"}, "workingDir"),
        ({"envFrom": [{"configMapRef": {"name": "a"}}]}, "envFrom"),
        ({"restartPolicy": "Always"}, "restartPolicy"),
        ({"env": [{"name": "POD_IP", "value": "1"}]}, "env[0].name"),
        ({"env": [{"name": "MOORING_HOME", "value": "1"}]}, "env[0].name"),
        ({"env": [{"name": "PATH", "value": "1"}]}, "env[0].name"),
        ({"readinessProbe": {"exec": {"command": ["true"]}}}, "readinessProbe.exec"),
        ({"livenessProbe": {"tcpSocket": {"port": 1}}}, "livenessProbe.tcpSocket"),
        ({"livenessProbe": {"periodSeconds": 0}}, "livenessProbe.periodSeconds"),
        ({"livenessProbe": {"successThreshold": 2}}, "livenessProbe.successThreshold"),
        ({"livenessProbe": {"terminationGracePeriodSeconds": 1}}, "livenessProbe.terminationGracePeriodSeconds"),
        ({"lifecycle": {"stopSignal": "SIGKILL"}}, "lifecycle.stopSignal"),
        ({"volumeMounts": [{"name": "x", "mountPath": "/mooring"}]}, "volumeMounts[0].mountPath"),
        ({"volumeMounts": [{"name": "x", "mountPath": "/mooring/run/a"}]}, "volumeMounts[0].mountPath"),
        ({"volumeMounts": [{"name": "x", "mountPath": "/"}]}, "volumeMounts[0].mountPath"),
        ({"volumeMounts": [{"name": "x", "mountPath": "/usr/bin/"}]}, "volumeMounts[0].mountPath"),
        ({"volumeMounts": [{"name": "x", "mountPath": "relative"}]}, "volumeMounts[0].mountPath"),
    ],
    ids=str,
)  # fmt: skip
def test_a_container_of_the_operator_keeps_what_starts_it(kind: Kind, given: Spec, field: str) -> None:
    volumes = [{"name": "x", "emptyDir": {}}]
    spec = {"containers": [{"name": kind.main, **given}], "volumes": volumes}
    assert list(kind.refused(spec=spec)) == [where(kind, f"spec.containers[0].{field}")]
    made = container(kind.rendered(spec=spec), kind.main)
    was = container(kind.template(kind.base), kind.main)
    assert (made.command, made.args, made.image, made.ports) == (was.command, was.args, was.image, was.ports)


@each_kind
def test_a_server_that_hands_over_keeps_its_hook_and_its_data(kind: Kind) -> None:
    stop = {"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}
    said = kind.refused(spec={"containers": [{"name": kind.main, **stop}]})
    made = container(kind.rendered(spec={"containers": [{"name": kind.main, **stop}]}), kind.main)
    if kind.nested:
        assert said == {}
        assert to_dict(made)["lifecycle"] == stop["lifecycle"]
        return
    assert list(said) == [where(kind, "spec.containers[0].lifecycle.preStop")]
    assert made == container(kind.template(kind.base), kind.main)
    data = kind.ours(kind.base).paths[-1]
    mount = [{"name": "x", "mountPath": f"{data}/"}]
    overlay = {
        "containers": [{"name": kind.main, "volumeMounts": mount}],
        "volumes": [{"name": "x", "emptyDir": {}}],
    }
    assert list(kind.refused(spec=overlay)) == [where(kind, "spec.containers[0].volumeMounts[0].mountPath")]


@each_kind
def test_labels_and_annotations_of_the_operator_are_refused(kind: Kind) -> None:
    before = kind.template(kind.base)
    ours = sorted(((before.metadata and before.metadata.labels) or {}).keys() - {"team"})
    keys = [*ours, "mooring.dev/role", "mysql.mooring.dev/order", "controller-revision-hash"]
    for one in ("labels", "annotations"):
        said = kind.refused(metadata={one: dict.fromkeys(keys, "x")})
        assert sorted(said) == sorted(where(kind, f'metadata.{one}["{key}"]') for key in keys)
        assert kind.rendered(metadata={one: dict.fromkeys(keys, "x")}) == before


@each_kind
def test_what_the_operator_reserves_is_what_its_pods_have(kind: Kind) -> None:
    """Each volume, path, port, variable, probe and container of the rendered pods is on the list that overlays are held against."""
    ours, made = kind.ours(kind.base), kind.template(kind.base)
    assert made.spec is not None
    assert {one.name for one in made.spec.volumes or ()} <= {*ours.volumes}
    assert {one.name for one in made.spec.containers or ()} <= ours.containers.keys()
    main = container(made, kind.main)
    assert {one.name for one in main.env or ()} <= {*ours.variables}
    assert {one.container_port for one in main.ports or ()} <= {*ours.ports}
    assert all(
        any(f"{one.mount_path}/".startswith(f"{path}/") for path in ours.paths)
        for one in main.volume_mounts or ()
    )
    assert set(to_dict(main)) & {"livenessProbe", "readinessProbe", "startupProbe"} == {
        *ours.probes[kind.main]
    }
    assert (made.spec.termination_grace_period_seconds or ours.grace) == ours.grace
    labels = (made.metadata and made.metadata.labels) or {}
    assert {key for key in labels if not ours.keeps(key)} <= {"team"}
    lifecycle = main.lifecycle
    assert (lifecycle is not None and lifecycle.pre_stop is not None) is (kind.main in ours.stops)


@each_kind
def test_a_sidecar_may_not_listen_where_the_server_does(kind: Kind) -> None:
    taken = next(iter(kind.ours(kind.base).ports))
    ports = [{"containerPort": 1234}, {"containerPort": taken}]
    said = kind.refused(spec={"containers": [{**SIDECAR, "ports": ports}]})
    assert list(said) == [where(kind, "spec.containers[0].ports[1].containerPort")]


def test_an_exporter_that_is_not_there_cannot_be_added_to() -> None:
    for kind, name in ((KINDS[0], "redis-exporter"), (KINDS[2], "redis-exporter"), (KINDS[3], "exporter")):
        said = kind.refused(spec={"containers": [{"name": name, "env": [{"name": "A", "value": "1"}]}]})
        assert list(said) == ["spec.podTemplate.spec.containers[0].name"]


@each_kind
def test_an_overlay_that_cannot_be_read_leaves_the_pods_as_they_were(kind: Kind) -> None:
    assert kind.rendered(spec={"hostNetwork": "yes"}) == kind.template(kind.base)


# --- at admission --------------------------------------------------------------------------------------------


async def verdict(kind: Kind, new: Spec, old: Spec | None = None) -> Verdict:
    async def served(namespace: str) -> bool:
        return True

    def obj(spec: Spec | None) -> Spec | None:
        return None if spec is None else {"metadata": {"name": "shop", "namespace": "web"}, "spec": spec}

    def asked(of: type[Any]) -> Review[Any]:
        operation: Operation = "CREATE" if old is None else "UPDATE"
        return Review(kind=of, operation=operation, key=Key("web", "shop"), object=obj(new), old=obj(old))

    scope: dict[str, Any] = {"scope": "all", "namespaces": (), "served": served}
    if kind.name == "mysql":
        return await MySQLClusterReview(**scope).review(asked(MySQLCluster))
    if kind.name.startswith("redis.kun"):
        return await RedisClusterReview(**scope).review(asked(RedisCluster))
    async with ApiServer.in_memory() as server:
        return await HarmonyClusterReview(Client(server.transport())).review(asked(HarmonyCluster))


@each_kind
async def test_a_faulty_overlay_is_rejected_when_it_is_applied_and_an_old_one_can_be_edited(
    kind: Kind,
) -> None:
    faulty = kind.with_overlay(spec={"hostPID": True})
    field = where(kind, "spec.hostPID")
    for old in (None, kind.base):
        refused = await verdict(kind, faulty, old)
        assert isinstance(refused, Refuse)
        assert [one[0] for one in refused.causes] == [field]
        assert field in refused.message
        assert not any(field in one for one in refused.warnings)
    allowed = await verdict(
        kind, kind.with_overlay(spec={"hostPID": True, "priorityClassName": "high"}), faulty
    )
    assert isinstance(allowed, Allow)
    assert any(field in one for one in allowed.warnings)
    assert isinstance(
        await verdict(kind, kind.with_overlay(spec={"containers": [SIDECAR]}), kind.base), Allow
    )


# --- the documentation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "kinds"),
    [("redis-sentinel", KINDS[:2]), ("redis-cluster", KINDS[2:3]), ("mysql", KINDS[3:])],
    ids=["redis-sentinel", "redis-cluster", "mysql"],
)
def test_the_sample_of_the_documentation_can_be_pasted(page: str, kinds: list[Kind]) -> None:
    text = (DOCS / f"{page}.md").read_text().partition("## Pod template\n")[2]
    sample = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    form = {"redis-sentinel": RedisCluster, "redis-cluster": HarmonyCluster, "mysql": MySQLCluster}[page]
    assert unknown_fields(form, sample) == []
    for kind in kinds:
        assert kind.faults(sample["spec"]) == []
        assert kind.inputs(sample["spec"]) != kind.inputs(kind.base)
        made = kind.template(sample["spec"])
        assert made.spec is not None
        assert made.spec.priority_class_name == "system-cluster-critical"
        for one in made.spec.topology_spread_constraints or ():
            labels = (one.label_selector.match_labels if one.label_selector else None) or {}
            has = (made.metadata.labels if made.metadata else None) or {}
            assert labels.keys() <= has.keys()
            assert (
                labels.items()
                <= {**has, **{key: "demo" for key, was in has.items() if was == "shop"}}.items()
            )


@pytest.mark.parametrize(
    ("kind", "digest"), list(zip(KINDS, BEFORE, strict=True)), ids=[kind.name for kind in KINDS]
)
def test_clusters_of_before_have_the_digest_that_they_had(kind: Kind, digest: str) -> None:
    """Another one would restart the pods of every cluster with an upgrade of the operator."""
    assert kind.inputs(kind.base) == digest
