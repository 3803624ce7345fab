"""Declarations and what they are rendered to: child objects, inputs, configuration files, passwords."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.operators.mysql.declared import BORN, answer, cluster, inputs, made, secret

from mooring.actor import Terminal, Wait
from mooring.kube.object import Object, decode, to_dict
from mooring.kube.objects import apps, core, meta, policy
from mooring.operators.mysql import compatible
from mooring.operators.mysql.actor import CompatibleActor, MySQLActor
from mooring.operators.mysql.config import (
    base_cnf,
    forced,
    is_forbidden,
    keys_of,
    live_cnf,
    live_defaults,
    parse_live,
    same_value,
    sent,
)
from mooring.operators.mysql.credentials import credentials_in
from mooring.operators.mysql.names import COMPONENT, labels_of
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.workload.configuration import ConfigResult
from mooring.operators.workload.moves import Orders
from mooring.runtime.crd import render_crd

GI = 1 << 30


def found(objects: list[Object], kind: type[Any], name: str) -> Any:
    return next(one for one in objects if isinstance(one, kind) and one.metadata.name == name)


def container(one: apps.StatefulSet, name: str = COMPONENT) -> core.Container:
    assert one.spec is not None
    assert one.spec.template is not None
    assert one.spec.template.spec is not None
    return next(each for each in one.spec.template.spec.containers or () if each.name == name)


# --- child objects ---------------------------------------------------------------------------------------


def test_size_and_image_alone_give_a_whole_cluster() -> None:
    objects = inputs(cluster({"size": 3, "image": "mariadb:10.11"})).specs.objects()
    names = [(one.resource.kind, one.metadata.name) for one in objects]
    assert [name for name in names if name[0] == "Service"] == [
        ("Service", "demo"),
        ("Service", "demo-primary"),
        ("Service", "demo-replicas"),
    ]
    assert {("Secret", "demo-credentials"), ("StatefulSet", "demo"), ("PodDisruptionBudget", "demo")} <= set(
        names
    )
    one = found(objects, apps.StatefulSet, "demo")
    assert (one.spec.replicas, one.spec.service_name) == (3, "demo")
    assert one.spec.update_strategy.type == "OnDelete"
    assert one.spec.pod_management_policy == "Parallel"
    assert one.spec.volume_claim_templates[0].metadata.name == "data"


def test_a_replica_that_lags_leaves_the_replicas_service_by_its_label() -> None:
    objects = inputs(cluster()).specs.objects()
    for name, labels, unready in (
        ("demo-primary", {"mooring.dev/role": "primary"}, True),
        ("demo-replicas", {"mooring.dev/reads": "true"}, None),
    ):
        spec = found(objects, core.Service, name).spec
        assert spec.selector == {**labels_of("demo"), **labels}
        assert spec.publish_not_ready_addresses is unready


def test_the_replicas_service_keeps_its_selector_until_pods_of_an_earlier_version_have_the_new_label() -> (
    None
):
    labels = {**labels_of("demo"), "mooring.dev/role": "replica"}
    for more, selects in (({}, "mooring.dev/role"), ({"mooring.dev/reads": "true"}, "mooring.dev/reads")):
        metadata = meta.ObjectMeta(name="demo-1", namespace="shop", labels={**labels, **more})
        specs = inputs(cluster(), core.Pod(metadata=metadata)).specs
        service = found(specs.objects(), core.Service, "demo-replicas")
        assert service.spec.selector.keys() - labels_of("demo").keys() == {selects}


def test_pods_find_each_other_before_they_are_ready() -> None:
    spec = found(inputs(cluster()).specs.objects(), core.Service, "demo").spec
    assert (spec.cluster_ip, spec.publish_not_ready_addresses) == ("None", True)


@pytest.mark.parametrize(("size", "away"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (9, 4)])
def test_a_drain_is_never_blocked_for_ever_and_never_takes_a_majority(size: int, away: int) -> None:
    spec = found(inputs(cluster({"size": size})).specs.objects(), policy.PodDisruptionBudget, "demo").spec
    assert spec.max_unavailable == away
    assert spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
    assert size <= 2 or size - away > size // 2


def test_a_pod_that_holds_the_only_copy_of_its_data_is_not_evicted_while_it_is_not_ready() -> None:
    specs = inputs(cluster({"storage": {"emptyDir": {}}})).specs
    assert specs.budget().spec.unhealthy_pod_eviction_policy == "IfHealthyBudget"  # type: ignore[union-attr]


def test_no_secret_is_in_arguments_or_environment() -> None:
    one = inputs(cluster())
    texts = set(one.credentials.texts.values())
    pod = container(one.specs.set())
    shown = [*(pod.command or ()), *(pod.args or ()), *(each.value or "" for each in pod.env or ())]
    assert len(texts) == 5
    assert not any(text in word for text in texts for word in shown)
    assert not any(text in repr(one) for text in texts)


def test_pods_meet_the_restricted_standard_unless_they_are_to_run_as_root() -> None:
    plain = inputs(cluster()).specs.set()
    assert plain.spec.template.spec.security_context.run_as_non_root  # type: ignore[union-attr]
    assert container(plain).security_context.allow_privilege_escalation is False  # type: ignore[union-attr]
    rooted = inputs(cluster({"pod": {"securityContext": {"runAsUser": 0}}})).specs.set()
    assert container(rooted).security_context is None


def test_the_exporter_reads_its_account_from_a_file() -> None:
    one = inputs(cluster({"exporter": {"enabled": True, "image": "exporter:1"}}))
    made_of = container(one.specs.set(), "exporter")
    assert "--config.my-cnf=/mooring/auth/monitor.cnf" in (made_of.args or ())
    assert not made_of.env


# --- the template ----------------------------------------------------------------------------------------


def test_a_template_that_is_there_stays_until_a_move_writes_the_declared_one() -> None:
    objects = made(inputs(cluster({"image": "mariadb:10.11"})).specs)
    changed = inputs(cluster({"image": "mariadb:11.4"}), *objects)
    assert container(changed.specs.set()).image == "mariadb:10.11"
    assert not changed.observed.set.current
    assert changed.observed.set.image == "mariadb:10.11"
    ordered = changed.ordered(Orders(templates=frozenset({COMPONENT})))
    assert container(ordered.set()).image == "mariadb:11.4"


def test_a_template_of_another_version_of_the_operator_restarts_nothing() -> None:
    objects = made(inputs(cluster()).specs)
    one = found(objects, apps.StatefulSet, "demo")
    template = replace(
        one.spec.template, spec=replace(one.spec.template.spec, termination_grace_period_seconds=7)
    )
    objects[objects.index(one)] = replace(one, spec=replace(one.spec, template=template))
    again = inputs(cluster(), *objects)
    assert again.observed.set.current
    assert again.specs.set().spec.template.spec.termination_grace_period_seconds == 7  # type: ignore[union-attr]


def test_the_number_of_pods_is_the_planners() -> None:
    objects = made(inputs(cluster({"size": 3})).specs)
    grown = inputs(cluster({"size": 5}), *objects)
    assert (grown.specs.set().spec.replicas, grown.wanted.size) == (3, 5)  # type: ignore[union-attr]
    assert grown.ordered(Orders(replicas={COMPONENT: 5})).set().spec.replicas == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("config", "policy", "rolls"),
    [
        ({"max_connections": "200"}, "roll", False),
        ({"back_log": "100"}, "roll", True),
        ({"back_log": "100"}, "report", False),
    ],
)
def test_only_a_key_that_is_read_at_start_rolls_the_pods(
    config: dict[str, str], policy: str, rolls: bool
) -> None:
    objects = made(inputs(cluster()).specs)
    changed = inputs(cluster({"config": config, "configPolicy": policy}), *objects)
    assert changed.observed.set.current is not rolls


def test_a_key_that_a_server_refused_to_change_goes_to_the_file_of_the_next_start() -> None:
    one = cluster({"config": {"some_key": "7"}})
    results = {"some_key": ConfigResult(wanted="7", state="NeedsRestart", restart=True)}
    assert one.status is None
    learnt = replace(one, status=replace(inputs(one).status, config=results))
    assert 'loose_some_key="7"' in (inputs(learnt).specs.scripts().data or {})["base.cnf"]
    assert "some_key" not in (inputs(one).specs.scripts().data or {})["base.cnf"]


# --- inputs ----------------------------------------------------------------------------------------------


def test_a_faulty_declaration_leaves_a_running_cluster_as_it_runs() -> None:
    bad = cluster({"size": 4, "image": "mariadb:11.4", "users": [{"name": "root"}]})
    assert isinstance(answer(bad), Terminal)
    running = inputs(bad, *made(inputs(cluster({"size": 3})).specs))
    assert isinstance(running.blocked, Terminal)
    assert "spec.users[0].name" in running.blocked.message
    assert running.wanted.size == 3
    assert not running.wanted.sound
    assert running.observed.set.current


def test_declared_accounts_of_mariadb_get_no_right_to_write_to_replicas() -> None:
    users = [{"name": "shop", "passwordSecret": {"name": "app"}, "grants": ["ALL ON *.*"]}]
    assert inputs(cluster({"users": users})).wanted.users[0].withheld == {"READ ONLY ADMIN"}
    mysql = cluster({"image": "mysql:9.7", "users": users})
    assert not inputs(mysql).wanted.users[0].withheld


def test_a_secret_of_the_users_that_is_missing_is_named() -> None:
    found = answer(cluster({"credentialsSecret": "mine"}))
    assert isinstance(found, Wait)
    assert found.reason == "CredentialsMissing"
    assert "Secret mine with a key root-password does not exist; create it" in found.message


def test_passwords_that_the_servers_know_are_not_made_anew() -> None:
    status = {"primary": "demo-0", "term": 1}
    running = decode({**to_dict(cluster()), "status": status}, MySQLCluster)

    lost = inputs(running)

    assert lost.credentials.lost
    assert not [one for one in lost.specs.objects() if isinstance(one, core.Secret)]

    told = inputs(running, secret("demo-credentials", operator_password="o")).credentials

    assert told.in_force["operator-password"] == "o"
    assert told.changed == {"root-password", "replication-password", "monitor-password", "backup-password"}
    assert told.in_force["root-password"] != told.declared["root-password"]
    assert not inputs(cluster()).credentials.changed


def test_a_claim_that_is_older_than_the_cluster_may_hold_data() -> None:
    claim = core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(
            name="data-demo-1", namespace="shop", creation_timestamp="2025-01-01T00:00:00Z"
        )
    )
    assert inputs(cluster(), claim).observed.old_claims == {"demo-1"}


@pytest.mark.parametrize(("image", "flavor"), [("mysql:8.4", "mysql"), ("r.io/mariadb-server:11", "mariadb")])
def test_the_flavour_is_told_by_the_image(image: str, flavor: str) -> None:
    assert inputs(cluster({"image": image})).wanted.flavor == flavor


def test_pause_and_maintenance_reach_the_planner() -> None:
    spec = {"maintenance": {"paused": True, "readOnly": True, "fenced": ["demo-1"]}}
    wanted = inputs(cluster(spec)).wanted
    assert (wanted.paused, wanted.read_only, set(wanted.fenced)) == (True, True, {"demo-1"})
    annotated = cluster(annotations={"mooring.dev/pause": "true", "mysql.mooring.dev/switch-to": "demo-2"})
    assert (inputs(annotated).wanted.paused, inputs(annotated).wanted.switch_to) == (True, "demo-2")


# --- passwords -------------------------------------------------------------------------------------------


def test_passwords_are_made_once_and_outlive_the_cluster_with_its_claims() -> None:
    first = inputs(cluster())
    objects = made(first.specs)
    again = inputs(cluster(), *objects)
    assert again.credentials.texts == first.credentials.texts
    assert [name for _, name in again.specs.unowned()] == ["demo-credentials", "demo-credentials-copy"]
    deleted = inputs(cluster({"storage": {"keepAfterDeletion": False}}), *objects)
    assert deleted.specs.unowned() == []


def test_a_deleted_secret_comes_back_with_the_passwords_that_the_servers_know() -> None:
    objects = made(inputs(cluster()).specs)
    known = inputs(cluster(), *objects).credentials.texts
    left = [one for one in objects if one.metadata.name != "demo-credentials"]
    assert inputs(cluster(), *left).credentials.texts == known


def test_an_edited_password_is_a_change_until_it_is_published() -> None:
    own = secret("demo-credentials", root_password="new", operator_password="o")
    copy = secret("demo-credentials-copy", root_password="old", operator_password="o")
    found = inputs(cluster(), own, copy)
    assert found.observed.changed_passwords == {"root-password"}
    assert found.credentials.of("root") == [("root-password", "new"), ("root-password-previous", "old")]
    assert found.credentials.in_force["root-password"] == "old"
    assert found.credentials.published().in_force["root-password"] == "new"
    assert not found.credentials.published().changed


def test_the_users_own_secret_has_the_password_of_root() -> None:
    own = secret("mine", root_password="theirs\n")
    found = inputs(cluster({"credentialsSecret": "mine"}), own)
    assert found.credentials.text("root-password") == "theirs"
    assert found.credentials.text("operator-password")


def test_a_line_end_that_an_editor_left_is_no_part_of_a_password() -> None:
    assert credentials_in(secret("x", root_password="a\r\n")).text("root-password") == "a"


# --- configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "left", "right"),
    [
        ("innodb_buffer_pool_size", "1G", "1073741824"),
        ("slow_query_log", "on", "1"),
        ("slow_query_log", "OFF", "0"),
        ("long_query_time", "2", "2.000000"),
        ("sql_mode", "ANSI,STRICT_TRANS_TABLES", "STRICT_TRANS_TABLES,ANSI"),
        ("character_set_server", "UTF8MB4", "utf8mb4"),
    ],
)
def test_values_that_mean_the_same_are_the_same(key: str, left: str, right: str) -> None:
    assert same_value(key, left, right)
    assert not same_value(key, left, "7")


def test_a_size_is_sent_as_a_number() -> None:
    assert sent("innodb_buffer_pool_size", "64M") == "67108864"
    assert sent("time_zone", "+02:00") == "+02:00"


@pytest.mark.parametrize(
    "key",
    [
        *(
            "server_id",
            "SERVER-ID",
            "loose-read_only",
            "super_read_only",
            "gtid_mode",
            "log_bin",
            "skip-log-bin",
        ),
        *("rpl_semi_sync_master_enabled", "replicate_do_db", "relay_log_recovery", "datadir", "ssl_key"),
    ],
)
def test_the_operators_own_keys_are_known_in_every_spelling(key: str) -> None:
    assert is_forbidden(key)
    assert keys_of().classify(key) == "forbidden"


@pytest.mark.parametrize("key", ["max_connections", "log_bin_trust_function_creators", "binlog_cache_size"])
def test_other_keys_are_the_users(key: str) -> None:
    assert keys_of().classify(key) == "live"
    assert keys_of({key}).classify(key) == "restart"


def test_live_keys_are_read_as_they_were_written() -> None:
    values = {"max_connections": "100", "init_connect": 'SET NAMES "utf8"', "sql_mode": ""}
    assert parse_live(live_cnf(values)) == values


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_what_durability_rests_on_is_the_last_word_of_every_start_and_corrected_live(flavor: Any) -> None:
    image = {"mariadb": "mariadb:10.11", "mysql": "mysql:8.4"}[flavor]
    text = (inputs(cluster({"image": image})).specs.scripts().data or {})["forced.cnf"]
    for line in ("sync_binlog=1", "innodb_flush_log_at_trx_commit=1", "log_bin=binlog"):
        assert line in text.splitlines()
    assert {"sync_binlog", "innodb_flush_log_at_trx_commit"} <= forced(flavor).keys()
    assert not {"read_only", "super_read_only"} & forced(flavor).keys()
    assert all(is_forbidden(key) for key in forced(flavor))


@pytest.mark.parametrize("memory", [256 << 20, 512 << 20, GI, 4 * GI, 64 * GI])
def test_a_memory_limit_is_never_filled_by_the_buffer_pool(memory: int) -> None:
    keys = live_defaults("mariadb", memory)
    assert int(keys["innodb_buffer_pool_size"]) <= memory * 0.7
    assert int(keys["max_connections"]) >= 50
    more = live_defaults("mariadb", memory * 2)
    assert int(more["innodb_buffer_pool_size"]) > int(keys["innodb_buffer_pool_size"])


def test_tuning_off_leaves_sizes_to_the_server_and_the_users_word_counts_more_than_ours() -> None:
    off = inputs(cluster({"tuning": "Off"})).wanted.config
    assert "innodb_buffer_pool_size" not in off
    given = inputs(cluster({"config": {"Innodb-Buffer-Pool-Size": "1G"}})).wanted.config
    assert given["Innodb-Buffer-Pool-Size"] == "1G"
    assert "innodb_buffer_pool_size" not in given


def test_a_key_that_a_server_does_not_know_does_not_keep_it_from_starting() -> None:
    text = base_cnf("mysql", {"performance-schema": "ON", "back_log": "9"})
    assert 'loose_performance_schema="ON"' in text
    assert 'loose_back_log="9"' in text
    assert all(line.startswith(("loose_", "[")) for line in text.splitlines())


# --- the tutorial's kind ---------------------------------------------------------------------------------


def test_the_tutorials_kind_has_the_same_fields() -> None:
    ours, theirs = render_crd(MySQLCluster), render_crd(compatible.MySQLCluster)
    assert theirs["spec"]["group"] == "example.com"
    assert (ours["spec"]["names"]["shortNames"], theirs["spec"]["names"].get("shortNames")) == (["mc"], None)
    version, other = ours["spec"]["versions"][0], theirs["spec"]["versions"][0]
    assert other["name"] == "v1"
    assert other["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
    assert (
        other["schema"]["openAPIV3Schema"]["properties"]["spec"]
        == version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    )
    assert "availableReplicas" in other["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


# --- certificates ----------------------------------------------------------------------------------------


def test_pods_mount_the_certificate_without_the_key_of_the_authority() -> None:
    found_ = inputs(cluster({"tls": {}}))
    pod = found_.specs.set().spec.template.spec  # type: ignore[union-attr]
    volume = next(one for one in pod.volumes or () if one.name == "tls")  # type: ignore[union-attr]
    assert volume.secret is not None
    assert (volume.secret.secret_name, [one.key for one in volume.secret.items or ()]) == (
        "demo-tls",
        ["tls.crt", "tls.key", "ca.crt"],
    )
    assert found_.wanted.certificate.endswith(" GMT")
    assert found_.credentials.tls is not None
    assert "require_secure_transport" not in (found_.specs.scripts().data or {})["extra.cnf"]
    required = inputs(cluster({"tls": {"required": True}})).specs.scripts().data or {}
    assert required["extra.cnf"] == "require_secure_transport=ON\n"


def test_servers_that_were_started_without_a_certificate_are_reached_without_encryption() -> None:
    def pod(name: str, ip: str, *volumes: str) -> core.Pod:
        return core.Pod(
            metadata=meta.ObjectMeta(name=name, namespace="shop"),
            spec=core.PodSpec(volumes=[core.Volume(name=one) for one in volumes]),
            status=core.PodStatus(pod_ip=ip),
        )

    found_ = inputs(cluster({"tls": {}}), pod("demo-0", "10.0.0.1", "data"), pod("demo-1", "10.0.0.2", "tls"))
    assert found_.credentials.plain == {"10.0.0.1"}


def test_a_certificate_of_the_users_that_is_missing_stops_nothing_that_runs() -> None:
    declared = cluster({"tls": {"secretName": "mine"}})
    missing = answer(declared)
    assert isinstance(missing, Wait)
    assert "Secret mine: does not exist; create it with tls.crt" in missing.message
    objects = made(inputs(cluster({"tls": {}})).specs)
    running = inputs(declared, *objects)
    assert isinstance(running.blocked, Wait)
    assert running.observed.set.current
    kept = found(objects, core.Secret, "demo-tls")
    assert running.specs.certificates()[0].data == kept.data


# --- storage ---------------------------------------------------------------------------------------------


def claim_of(pod: str, size: str, storage_class: str = "plain") -> core.PersistentVolumeClaim:
    return core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name=f"data-{pod}", namespace="shop", creation_timestamp=BORN),
        status=core.PersistentVolumeClaimStatus(phase="Bound", capacity={"storage": size}),
        spec=core.PersistentVolumeClaimSpec(
            storage_class_name=storage_class,
            resources=core.VolumeResourceRequirements(requests={"storage": size}),
        ),
    )


def test_claims_that_are_smaller_than_declared_are_to_grow() -> None:
    objects = made(inputs(cluster()).specs)
    grown = cluster({"storage": {"size": "2Gi"}})
    found_ = inputs(grown, *objects, claim_of("demo-0", "1Gi"), claim_of("demo-1", "2048Mi"))
    assert [one.claim for one in found_.growth.volumes if one.small] == ["data-demo-0"]
    assert found_.observed.set.current
    new = found_.specs.claims_to_make(4, found_.around.claims)
    assert [one.metadata.name for one in new] == ["data-demo-3"]


@pytest.mark.parametrize(
    ("storage", "text"),
    [
        (
            {"size": "500Mi"},
            "spec.storage.size: the claim data-demo-0 is larger than 500Mi; a volume never shrinks",
        ),
        ({"emptyDir": {}}, "spec.storage: the pods keep their data on claims; put it back"),
        ({"storageClass": "fast"}, "spec.storage.storageClass: the claim data-demo-0 is of the class plain"),
    ],
)
def test_storage_that_cannot_be_changed_is_named_and_what_runs_goes_on(
    storage: dict[str, Any], text: str
) -> None:
    objects = made(inputs(cluster()).specs)
    found_ = inputs(cluster({"storage": storage}), *objects, claim_of("demo-0", "1Gi"))
    assert isinstance(found_.blocked, Wait)
    assert found_.blocked.message.startswith(text)
    assert found_.specs.claimed
    assert found_.observed.set.current


def test_pods_on_a_node_that_takes_no_more_pods_are_known() -> None:
    nodes = [
        core.Node(metadata=meta.ObjectMeta(name=name), spec=core.NodeSpec(unschedulable=away))
        for name, away in (("left", True), ("right", None))
    ]
    pods = [
        core.Pod(
            metadata=meta.ObjectMeta(name=f"demo-{at}", namespace="shop"), spec=core.PodSpec(node_name=name)
        )
        for at, name in enumerate(("left", "right"))
    ]
    assert inputs(cluster(), *nodes, *pods).observed.cordoned == {"demo-0"}


# --- what deletion and history rest on ------------------------------------------------------------------------


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(key for one in value.values() for key in _keys(one))}
    return {key for one in value for key in _keys(one)} if isinstance(value, list) else set()


@pytest.mark.parametrize("image", ["mariadb:10.11", "mysql:8.4"])
@pytest.mark.parametrize("keeps", [True, False])
def test_nothing_that_the_operator_makes_has_finalizers(image: str, keeps: bool) -> None:  # trap 28
    """A cluster or its namespace is deleted while the operator is gone: owner references do it all."""
    declared = {
        "image": image,
        "tls": {},
        "exporter": {"enabled": True, "image": "exporter:1"},
        "archive": {"target": {"claim": {"name": "backups"}}},
        "storage": {"size": "1Gi", "keepAfterDeletion": keeps},
    }
    one = inputs(cluster(declared))
    made_of = [*one.specs.objects(), one.specs.trial(), one.specs.first_claim()]

    assert {"Secret", "StatefulSet", "PodDisruptionBudget", "Deployment", "Job"} <= {
        each.resource.kind for each in made_of
    }
    for each in made_of:
        assert "finalizers" not in _keys(to_dict(each)), each.metadata.name
    assert (MySQLActor.finalizer, CompatibleActor.finalizer) == ("", "")


@pytest.mark.parametrize(
    ("image", "key"), [("mariadb:10.11", "log_slave_updates"), ("mysql:8.4", "log_replica_updates")]
)
def test_a_replica_logs_what_it_applies_whatever_is_declared(image: str, key: str) -> None:  # trap 5
    spelled = (f"skip-{key}", key.replace("_", "-").upper(), "skip_log_bin", "sql_log_bin")
    specs = inputs(cluster({"image": image, "config": dict.fromkeys(spelled, "OFF")})).specs
    data = specs.scripts().data or {}

    lines = data["forced.cnf"].splitlines()
    assert [line for line in lines if "updates" in line] == [f"{key}=ON"]
    assert [line for line in lines if "log_bin" in line] == ["log_bin=binlog"]
    theirs = [*data["base.cnf"].splitlines(), *(specs.live_config().data or {})["live.cnf"].splitlines()]
    assert [line for line in theirs if "updates" in line or "log_bin" in line] == []
    assert all(map(is_forbidden, spelled))
