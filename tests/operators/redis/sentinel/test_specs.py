"""The child objects: UCloud's names, nothing secret in sight, and no restart without a reason."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from mooring.kube.object import Object, decode, to_dict
from mooring.kube.objects import apps, core, policy
from mooring.operators.redis.sentinel.names import INPUTS
from mooring.operators.redis.sentinel.settings import (
    base_conf,
    first_live,
    live_keys,
    render_live,
    sentinel_settings,
    wanted_of,
)
from mooring.operators.redis.sentinel.specs import Found, Specs
from mooring.operators.redis.sentinel.types import RedisCluster, SentinelSettings, spec_of
from mooring.operators.workload.configuration import parse_keys
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.moves import Orders

PASSWORD = "open sesame"
CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def cluster(**spec: Any) -> RedisCluster:
    metadata = {"name": "shop", "namespace": "web", "uid": "u1", "labels": {"team": "a"}}
    return decode({"metadata": metadata, "spec": spec}, RedisCluster)


def children(
    declared: RedisCluster, *, orders: Orders | None = None, **found: Any
) -> dict[tuple[str, str], Object]:
    made = Specs(declared, Found(**found), orders).objects()
    return {(one.resource.kind, one.metadata.name or ""): one for one in made}


def one(kind: type[Any], name: str, declared: RedisCluster, **found: Any) -> Any:
    return children(declared, **found)[(kind.resource.kind, name)]


def main(declared: RedisCluster, component: str = "redis", **found: Any) -> core.Container:
    name = "redis-cluster-shop" if component == "redis" else "redis-sentinel-shop"
    container: core.Container = one(apps.StatefulSet, name, declared, **found).spec.template.spec.containers[
        0
    ]
    return container


def test_every_legacy_name_is_there() -> None:
    names = set(children(cluster(), kept=Kept(password=PASSWORD)))
    assert {
        ("Service", "redis-cluster-shop"),
        ("Service", "redis-sentinel-shop"),
        ("Service", "redis-sentinel-headless-shop"),
        ("ConfigMap", "redis-sentinel-shop"),
        ("ConfigMap", "redis-sentinel-readiness-shop"),
        ("ConfigMap", "redisr-s-shop"),
        ("StatefulSet", "redis-cluster-shop"),
        ("StatefulSet", "redis-sentinel-shop"),
        ("PodDisruptionBudget", "redis-cluster-shop"),
        ("PodDisruptionBudget", "redis-sentinel-shop"),
        ("Secret", "redis-password-shop"),
    } <= names


def test_labels_are_the_legacy_ones_and_the_clusters_own_stay_out_of_selectors() -> None:
    made: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", cluster())
    expected = {
        "app.kubernetes.io/managed-by": "redis-operator",
        "redis.kun/v1beta1": "web_shop",
        "app.kubernetes.io/part-of": "redis-cluster",
        "app.kubernetes.io/component": "redis",
        "app.kubernetes.io/name": "shop",
    }
    assert made.metadata.labels == {**expected, "team": "a"}
    assert made.spec
    assert made.spec.selector
    assert made.spec.selector.match_labels == expected


def test_a_label_value_never_exceeds_what_kubernetes_takes() -> None:
    declared = decode({"metadata": {"name": "c" * 48, "namespace": "n" * 63}, "spec": {}}, RedisCluster)
    for made in Specs(declared, Found()).objects():
        assert all(len(value) <= 63 for value in (made.metadata.labels or {}).values())


def test_ports_and_services_are_where_clients_expect_them() -> None:
    entry: core.Service = one(core.Service, "redis-sentinel-shop", cluster())
    data: core.Service = one(core.Service, "redis-cluster-shop", cluster())
    assert entry.spec
    assert entry.spec.cluster_ip is None
    assert [(port.name, port.port) for port in entry.spec.ports or ()] == [("sentinel", 26379)]
    assert data.spec
    assert data.spec.cluster_ip == "None"


def test_every_start_of_a_server_carries_the_gate() -> None:
    gate = ["--slaveof", "192.0.2.1", "6379", "--slave-priority", "0"]
    assert main(cluster()).args == gate
    own = main(cluster(command=["redis-server", "/etc/mine.conf"]))
    assert (own.command, own.args) == (["redis-server", "/etc/mine.conf"], gate)


def test_the_password_is_in_its_secret_and_nowhere_else() -> None:
    exporter = {"enabled": True, "image": "exporter:1"}
    made = children(cluster(password=PASSWORD, exporter=exporter), kept=Kept(password=PASSWORD))
    secret = made.pop(("Secret", "redis-password-shop"))
    assert isinstance(secret, core.Secret)
    assert base64.b64decode((secret.data or {})["password"]).decode() == PASSWORD
    text = "".join(msgspec.json.encode(to_dict(other)).decode() for other in made.values())
    assert PASSWORD not in text
    assert base64.b64encode(PASSWORD.encode()).decode() not in text
    assert "REDIS_PASSWORD_FILE" in text


def test_what_a_pod_mounts_is_named_by_its_content() -> None:
    first = Specs(cluster(), Found()).redis_config()
    again = Specs(cluster(size=5), Found()).redis_config()
    other = Specs(cluster(config={"databases": "32"}), Found()).redis_config()
    assert first.immutable
    assert first.metadata.name == again.metadata.name != other.metadata.name


def test_pods_are_replaced_by_our_plan_only() -> None:
    made: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", cluster())
    assert made.spec
    assert made.spec.update_strategy
    assert (made.spec.update_strategy.type, made.spec.pod_management_policy) == ("OnDelete", "Parallel")


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ({"image": "redis:7.2"}, True),
        ({"resources": {"limits": {"cpu": "1"}}}, True),
        ({"annotations": {"a": "b"}}, True),
        ({"exporter": {"enabled": True, "image": "exporter:1"}}, True),
        ({"nodeSelector": {"disk": "ssd"}}, True),
        ({"size": 5}, False),
        ({"config": {"hz": "13"}}, False),
        ({"config": {"databases": "32"}}, False),
        ({"disablePersistence": True}, False),
        ({"sentinel": {"image": "redis:7.2"}}, False),
        ({"exporter": {"enabled": False, "image": "exporter:1"}}, False),
    ],
)
def test_only_what_concerns_the_pods_asks_for_new_ones(change: dict[str, Any], rolls: bool) -> None:
    there: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", cluster())
    assert Specs(cluster(**change), Found(redis=there)).current("redis") is not rolls


def test_restart_only_keys_are_rolled_out_where_that_is_asked_for() -> None:
    before = cluster(configPolicy="roll", config={"hz": "13"})
    there: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", before)
    asked = cluster(configPolicy="roll", config={"databases": "32"})
    assert not Specs(asked, Found(redis=there)).current("redis")
    assert Specs(cluster(configPolicy="roll"), Found(redis=there)).current("redis")
    assert Specs(cluster(), Found(redis=there)).current("redis")
    learnt = cluster(configPolicy="roll", config={"odd-key": "1"})
    assert Specs(learnt, Found(redis=there)).current("redis")
    assert not Specs(learnt, Found(redis=there, read_at_start=frozenset({"odd-key"}))).current("redis")


def test_the_services_by_role_follow_the_label() -> None:
    for role in ("master", "replica"):
        made: core.Service = one(core.Service, f"redis-{role}-shop", cluster())
        assert made.spec
        assert made.spec.cluster_ip is None
        assert (made.spec.selector or {})["mooring.dev/role"] == role
        assert (made.spec.selector or {})["app.kubernetes.io/name"] == "shop"


def test_a_template_in_place_stays_until_the_roll_begins() -> None:
    there: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", cluster())
    changed = cluster(image="redis:7.2")
    assert main(changed, redis=there).image == "redis:5.0.4-alpine"
    rolled: apps.StatefulSet = one(
        apps.StatefulSet,
        "redis-cluster-shop",
        changed,
        redis=there,
        orders=Orders(templates=frozenset({"redis"})),
    )
    assert rolled.spec
    assert rolled.spec.template
    assert rolled.spec.template.spec
    assert (rolled.spec.template.spec.containers or [])[0].image == "redis:7.2"
    assert (rolled.metadata.annotations or {})[INPUTS] != (there.metadata.annotations or {})[INPUTS]


def test_a_size_in_place_stays_until_it_may_change() -> None:
    there: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", cluster(size=5))
    kept: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", cluster(size=3), redis=there)
    cut: apps.StatefulSet = one(
        apps.StatefulSet,
        "redis-cluster-shop",
        cluster(size=3),
        redis=there,
        orders=Orders(replicas={"redis": 3}),
    )
    assert kept.spec
    assert cut.spec
    assert (kept.spec.replicas, cut.spec.replicas) == (5, 3)


def test_the_first_start_reads_known_values_and_later_ones_what_was_accepted() -> None:
    declared = cluster(config={"maxmemory": "nonsense"})
    first: core.ConfigMap = one(core.ConfigMap, "redis-live-shop", declared)
    later: core.ConfigMap = one(core.ConfigMap, "redis-live-shop", declared, live='hz "13"\n')
    assert "nonsense" not in (first.data or {})["live.conf"]
    assert (later.data or {})["live.conf"] == 'hz "13"\n'


@pytest.mark.parametrize(("size", "least"), [(3, 2), (4, 3), (5, 3), (10, 6)])
def test_a_majority_is_never_evicted(size: int, least: int) -> None:
    budget: policy.PodDisruptionBudget = one(
        policy.PodDisruptionBudget, "redis-cluster-shop", cluster(size=size)
    )
    assert budget.spec
    assert budget.spec.min_available == least


@pytest.mark.parametrize(
    ("storage", "kept"),
    [
        (None, False),
        ({"emptyDir": {}}, False),
        ({"persistentVolumeClaim": CLAIM}, True),
        ({"persistentVolumeClaim": CLAIM, "keepAfterDeletion": True}, True),
        ({"persistentVolumeClaim": CLAIM, "keepAfterDeletion": False}, False),
    ],
)
def test_claims_are_kept_unless_the_user_wrote_otherwise(storage: dict[str, Any] | None, kept: bool) -> None:
    declared = cluster(**({"storage": storage} if storage else {}))
    assert Specs(declared, Found()).keeps_claims is kept


def test_the_claims_name_names_the_volume() -> None:
    declared = cluster(storage={"persistentVolumeClaim": CLAIM})
    made: apps.StatefulSet = one(apps.StatefulSet, "redis-cluster-shop", declared)
    assert made.spec
    assert [claim.metadata.name for claim in made.spec.volume_claim_templates or ()] == ["data"]
    assert {mount.name: mount.mount_path for mount in main(declared).volume_mounts or ()}["data"] == "/data"


def claiming(size: str, name: str = "data") -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"persistentVolumeClaim": {"metadata": {"name": name}, "spec": spec}}


@pytest.mark.parametrize("storage", [{"emptyDir": {}}, claiming("1Gi", "other")])
def test_a_set_that_exists_keeps_its_volumes_whatever_is_declared(storage: dict[str, Any]) -> None:
    live = one(apps.StatefulSet, "redis-cluster-shop", cluster(storage=claiming("1Gi")))
    specs = Specs(cluster(storage=storage), Found(redis=live), Orders(templates=frozenset({"redis"})))
    template = specs.redis_set().spec.template  # type: ignore[union-attr]
    assert template
    assert template.spec
    mounts = (template.spec.containers or [])[0].volume_mounts or ()
    assert [mount.name for mount in mounts if mount.mount_path == "/data"] == ["data"]
    assert "redis-data" not in {volume.name for volume in template.spec.volumes or ()}
    assert specs.keeps_claims
    assert "put it back" in specs.unlike_declared({})


def test_a_claim_of_another_class_than_declared_is_named() -> None:
    live = one(apps.StatefulSet, "redis-cluster-shop", cluster(storage=claiming("1Gi")))
    claim = claiming("1Gi")["persistentVolumeClaim"]
    there = {"data-redis-cluster-shop-2": decode(claim, core.PersistentVolumeClaim)}
    wanted = claiming("2Gi")
    assert not Specs(cluster(storage=wanted), Found(redis=live)).unlike_declared(there)
    wanted["persistentVolumeClaim"]["spec"]["storageClassName"] = "fast"
    said = Specs(cluster(storage=wanted), Found(redis=live)).unlike_declared(there)
    assert "data-redis-cluster-shop-2 has another value of storage_class_name" in said


def test_claims_of_every_pod_grow_and_those_of_pods_to_come_are_made_larger() -> None:
    live = one(apps.StatefulSet, "redis-cluster-shop", cluster(storage=claiming("1Gi")))
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    made = {"metadata": {"name": "data-redis-cluster-shop-1"}, "status": bound}
    claim = decode({**claiming("1Gi")["persistentVolumeClaim"], **made}, core.PersistentVolumeClaim)
    there = {"data-redis-cluster-shop-1": claim}
    specs = Specs(cluster(storage=claiming("2Gi"), size=4), Found(redis=live))
    growth = specs.growth(there)
    assert [(one.claim, one.requested, one.wanted) for one in growth.volumes if one.small] == [
        ("data-redis-cluster-shop-1", "1Gi", "2Gi")
    ]
    new = specs.claims_to_make(4, there)
    assert [one.metadata.name for one in new] == ["data-redis-cluster-shop-3"]
    assert new[0].spec
    assert new[0].spec.resources
    assert new[0].spec.resources.requests == {"storage": "2Gi"}
    assert not Specs(cluster(storage=claiming("1Gi"), size=4), Found(redis=live)).claims_to_make(4, there)


def test_the_users_shutdown_script_runs_before_a_pod_stops() -> None:
    files = Specs(cluster(), Found(shutdown="exit 0")).redis_config().data or {}
    assert files["shutdown.sh"] == "exit 0"


# --- settings --------------------------------------------------------------------------------------------


def test_persistence_sets_ucloud_s_defaults_and_the_user_s_values_win() -> None:
    keys = live_keys(spec_of(cluster(config={"save": "60 1", "min-replicas-to-write": "0"})))
    assert keys["appendonly"] == "yes"
    assert keys["auto-aof-rewrite-min-size"] == "536870912"
    assert keys["save"] == "60 1"
    assert "min-slaves-to-write" not in keys
    assert wanted_of(cluster(config={"min-replicas-to-write": "0"})).min_replicas == 0


def test_memory_follows_the_limit_and_the_user_s_value_wins() -> None:
    assert live_keys(spec_of(cluster()), memory=1 << 30)["maxmemory"] == str(3 << 28)
    assert live_keys(spec_of(cluster(config={"maxmemory": "1gb"})), memory=1 << 30)["maxmemory"] == "1gb"
    assert "maxmemory" not in live_keys(spec_of(cluster()))


def test_a_cluster_that_ran_before_gets_no_new_limits_by_itself_and_keeps_those_it_has() -> None:
    spec = spec_of(cluster())
    adopted = first_live(spec, born=False, memory=1 << 30)
    assert not {"maxmemory", "min-slaves-to-write", "repl-diskless-sync-delay"} & adopted.keys()
    assert "maxmemory" not in live_keys(spec, memory=1 << 30, held=adopted)
    held = live_keys(spec, memory=1 << 20, held={"maxmemory": "1"})
    assert held["maxmemory"] == str(3 << 18)
    assert live_keys(spec, held={"maxmemory": "1"})["maxmemory"] == "0"


def test_a_new_cluster_accepts_no_writes_that_nobody_follows() -> None:
    assert wanted_of(cluster()).min_replicas == 1
    assert wanted_of(cluster(config={"min-replicas-to-write": "0"})).min_replicas == 0


def test_the_persistence_switch_wins_over_keys_that_say_otherwise() -> None:
    keys = live_keys(spec_of(cluster(disablePersistence=True, config={"appendonly": "yes", "save": "1 1"})))
    assert (keys["appendonly"], keys["save"]) == ("no", "")


def test_slave_priority_is_never_the_user_s() -> None:
    assert "slave-priority" not in live_keys(spec_of(cluster(config={"slave-priority": "7"})))


def test_live_keys_survive_being_written_and_read() -> None:
    values = {
        "save": "900 1 300 10",
        "client-output-buffer-limit": "normal 0 0 0 slave 256mb 64mb 60",
        "notify-keyspace-events": 'K"E\\x',
        "appendonly": "yes",
    }
    assert parse_keys(render_live(values)) == values
    assert parse_keys(render_live({"save": ""})) == {"save": ""}


def test_restart_only_keys_are_in_the_immutable_part() -> None:
    assert 'databases "32"' in base_conf(spec_of(cluster(config={"databases": "32", "hz": "13"})))
    assert "hz" not in base_conf(spec_of(cluster(config={"databases": "32", "hz": "13"})))


def test_the_users_sentinel_settings_win_and_the_quorum_is_his_if_given() -> None:
    given = SentinelSettings(custom_config=["down-after-milliseconds 1500", "quorum 2"])
    assert sentinel_settings(given)["down-after-milliseconds"] == "1500"
    declared = cluster(sentinel={"replicas": 5, "customConfig": ["down-after-milliseconds 1500", "quorum 2"]})
    assert (wanted_of(declared).down_after, wanted_of(declared).quorum) == (1.5, 2)
    assert wanted_of(cluster(sentinel={"replicas": 5})).quorum is None


def test_pods_that_do_not_run_as_root_ask_for_no_privilege_and_others_keep_what_their_image_needs() -> None:
    declared = {"runAsNonRoot": True, "runAsUser": 999}
    strict = cluster(securityContext=declared, sentinel={"securityContext": declared})
    for component in ("redis", "sentinel"):
        asked = main(strict, component).security_context
        assert asked is not None
        assert asked.allow_privilege_escalation is False
        assert asked.capabilities is not None
        assert asked.capabilities.drop == ["ALL"]
        assert main(cluster(), component).security_context is None


def test_with_both_ports_open_pods_and_services_have_both() -> None:
    declared = cluster(tls={"enabled": True, "plainPorts": True})
    found: dict[str, Any] = {"ports": "both", "open": "both", "transport": "plain"}
    container = main(declared, **found)
    assert {one.name: one.container_port for one in container.ports or ()} == {
        "redis": 6379,
        "redis-tls": 6380,
    }
    env = {one.name: one.value for one in container.env or ()}
    assert env["KEEP_PLAIN"] == "plain"
    service = one(core.Service, "redis-master-shop", declared, **found)
    assert [port.port for port in service.spec.ports] == [6379, 6380]
    sentinels = one(core.Service, "redis-sentinel-shop", declared, **found)
    assert [port.port for port in sentinels.spec.ports] == [26379, 26380]
    pods = one(apps.StatefulSet, "redis-cluster-shop", declared, **found).spec.template
    assert pods.metadata.annotations["mooring.dev/tls"] == "both"


def test_the_transport_alone_restarts_no_pod_but_the_ports_do() -> None:
    declared = cluster(tls={"enabled": True})
    digests = {
        (ports, transport): Specs(declared, Found(ports=ports, transport=transport)).inputs("redis")
        for ports in ("plain", "both", "tls")
        for transport in ("plain", "tls")
    }
    for ports in ("plain", "both", "tls"):
        assert digests[ports, "plain"] == digests[ports, "tls"]
    assert len(set(digests.values())) == 3
    # As it was before both could be open: an operator upgrade rolls no cluster.
    assert digests["plain", "plain"] == Specs(cluster(), Found()).inputs("redis")


def test_services_by_role_have_the_declared_type_and_annotations() -> None:
    balancer = {"type": "LoadBalancer", "annotations": {"cloud/internal": "true"}}
    declared = cluster(services={"master": balancer})
    service = one(core.Service, "redis-master-shop", declared)
    assert service.spec.type == "LoadBalancer"
    assert service.metadata.annotations == {"cloud/internal": "true"}
    for name in ("redis-replica-shop", "redis-sentinel-shop", "redis-cluster-shop"):
        assert one(core.Service, name, declared).spec.type == "ClusterIP"
    nodes = cluster(services={"replica": {"type": "NodePort"}})
    assert one(core.Service, "redis-replica-shop", nodes).spec.type == "NodePort"


def test_services_keep_a_port_as_long_as_a_pod_has_it_open() -> None:
    service = one(core.Service, "redis-master-shop", cluster(), ports="tls", open="both")
    assert [(port.name, port.port) for port in service.spec.ports] == [("redis", 6379), ("redis-tls", 6380)]
    closed = one(core.Service, "redis-master-shop", cluster(), ports="tls", open="tls")
    assert [(port.name, port.port) for port in closed.spec.ports] == [("redis", 6380)]
