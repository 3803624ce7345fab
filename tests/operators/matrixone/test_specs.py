"""The sets of a cluster, and what makes pods restart."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operators.matrixone.builders import STORAGE, typed

from mooring.kube.objects import core, policy
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.identity import bootstrap_replicas
from mooring.operators.matrixone.names import CLUSTER, CNNames, DNNames, LogNames, ProxyNames, UINames
from mooring.operators.matrixone.specs import (
    ClusterSpecs,
    CNSpecs,
    Credential,
    DNSpecs,
    LogService,
    LogSpecs,
    ProxySpecs,
    UISpecs,
)
from mooring.operators.matrixone.types import (
    CNSet,
    DNSet,
    ExternalLogSet,
    LogSet,
    MatrixOneCluster,
    ProxySet,
    WebUI,
)
from mooring.operators.matrixone.validate import validate

LOG = LogService.of(typed("LogSet"))


def cluster(**changes: Any) -> ClusterSpecs:
    return ClusterSpecs(typed("MatrixOneCluster", **changes))


def one_cn(specs: ClusterSpecs) -> CNSet:
    (found,) = specs.cn_sets()
    return found


def test_a_cluster_is_a_log_service_transaction_nodes_and_groups_of_compute_nodes() -> None:
    sets = cluster(spec__proxy={"replicas": 1}, spec__webui={"replicas": 1}).sets()
    names = [(one.resource.kind, one.metadata.name) for one in sets]
    assert names == [
        ("LogSet", "mo"),
        ("DNSet", "mo"),
        ("CNSet", "mo-tp"),
        ("ProxySet", "mo"),
        ("WebUI", "mo"),
    ]
    for one in sets:
        assert validate(one) == []


def test_what_a_cluster_does_not_declare_is_not_made() -> None:
    assert [one.resource.kind for one in cluster(spec__cnGroups=None).sets()] == ["LogSet", "DNSet"]
    assert [one.resource.kind for one in cluster(spec__tn=None).sets()] == ["LogSet", "CNSet"]


def test_sets_name_what_they_work_with() -> None:
    specs = cluster()
    deps = one_cn(specs).deps
    assert deps is not None
    for reference in (deps.log_set, deps.dn_set):
        assert reference is not None
        assert reference.metadata is not None
        assert (reference.metadata.name, reference.metadata.namespace) == ("mo", "default")


@pytest.mark.parametrize(
    ("changes", "image"),
    [
        ({}, "matrixorigin/matrixone:1.2.4"),
        ({"spec__imageRepository": "registry:5000/mo"}, "registry:5000/mo:1.2.4"),
        ({"spec__cnGroups__0__image": "own:1.2.5"}, "own:1.2.5"),
    ],
)
def test_the_image_is_the_clusters_unless_a_set_has_its_own(changes: dict[str, Any], image: str) -> None:
    spec = one_cn(cluster(**changes)).spec
    assert spec is not None
    assert spec.image == image


def test_policies_are_inherited_where_a_set_has_none_of_its_own() -> None:
    specs = cluster(
        spec__nodeSelector={"disk": "ssd"},
        spec__topologySpread=["zone"],
        spec__imagePullPolicy="Always",
        spec__semanticVersion="1.2.9",
        spec__operatorVersion="1.3.0",
        spec__memoryFsSize="1Gi",
        spec__tn={
            "replicas": 1,
            "nodeSelector": {},
            "topologySpread": ["host"],
            "overlay": {"imagePullPolicy": "Never"},
        },
    )
    log, dn = specs.log_set().spec, specs.dn_set()
    assert log is not None
    assert dn is not None
    assert dn.spec is not None
    assert (log.node_selector, dn.spec.node_selector) == ({"disk": "ssd"}, {})
    assert (log.topology_spread, dn.spec.topology_spread) == (["zone"], ["host"])
    assert (log.semantic_version, log.operator_version, log.memory_fs_size) == ("1.2.9", "1.3.0", "1Gi")
    assert log.overlay is not None
    assert dn.spec.overlay is not None
    assert (log.overlay.image_pull_policy, dn.spec.overlay.image_pull_policy) == ("Always", "Never")
    assert log.overlay.pod_labels == {CLUSTER: "mo"}


def test_a_set_whose_image_has_no_version_gets_the_clusters() -> None:
    spec = one_cn(cluster(spec__cnGroups__0__image="own:latest")).spec
    assert spec is not None
    assert spec.semantic_version == "1.2.4"


def test_compute_nodes_get_the_password_and_serve_proxies_where_there_are_some() -> None:
    plain, behind = (
        one_cn(cluster()).spec,
        one_cn(
            cluster(spec__proxy={"replicas": 1}, spec__cnGroups__0__config="[cn.frontend]\nport = 1\n")
        ).spec,
    )
    assert plain is not None
    assert behind is not None
    assert plain.config is None
    assert toml.parse(behind.config) == {"cn": {"frontend": {"port": 1, "proxy-enabled": True}}}
    assert plain.overlay is not None
    (env,) = plain.overlay.env or []
    assert env.name == "DEFAULT_PASSWORD"
    assert env.value_from is not None
    assert env.value_from.secret_key_ref == core.SecretKeySelector(name="mo-credential", key="password")


def test_deprecated_fields_become_groups_of_their_names() -> None:
    specs = cluster(spec__tp={"replicas": 1}, spec__ap={"replicas": 2}, spec__cnGroups__0__name="x")
    assert [one.metadata.name for one in specs.cn_sets()] == ["mo-tp", "mo-ap", "mo-x"]
    assert all((one.metadata.labels or {})[CLUSTER] == "mo" for one in specs.cn_sets())


def test_a_cluster_from_a_backup_starts_hakeeper_from_its_file() -> None:
    declared = typed("MatrixOneCluster", spec__restoreFrom="nightly")
    spec = ClusterSpecs(declared, restored=True).log_set().spec
    assert spec is not None
    assert spec.initial_config is not None
    assert spec.initial_config.restore_from == "hk_data"


def test_the_dashboard_shows_the_first_group() -> None:
    ui = cluster(spec__webui={"replicas": 1}, spec__cnGroups__0__name="x").web_ui()
    assert ui is not None
    specs = UISpecs(ui, Credential(username="dump", password="secret"))
    assert toml.parse(specs.file)["db"]["host"] == "mo-x-cn"


def test_the_dashboards_password_is_in_a_secret_whose_name_does_not_depend_on_it() -> None:
    def made(password: str, version: str) -> core.Secret:
        return UISpecs(
            typed("WebUI"), Credential(username="dump", password=password, version=version)
        ).secret()

    assert made("a", "1").metadata.name == made("b", "1").metadata.name != made("b", "2").metadata.name
    assert "secret" not in repr(Credential(username="dump", password="secret"))
    assert isinstance(typed("WebUI"), WebUI)


# --- names of 46 characters --------------------------------------------------------------------------------


def test_a_cluster_of_46_characters_has_no_name_that_is_too_long() -> None:
    long = ClusterSpecs(
        typed(
            "MatrixOneCluster",
            "m" * 46,
            spec__proxy={"replicas": 1},
            spec__webui={"replicas": 1},
            spec__cnGroups__0__name="ab12",
        )
    )
    names = []
    for one in long.sets():
        assert validate(one) == []
        for form in (LogNames, DNNames, CNNames, ProxyNames, UINames):
            if one.resource.kind.lower().startswith(form.__name__.lower()[:2]):
                made = form(one)
                names += [made.main, made.headless if form is not UINames else "", made.config[:63]]
    assert max(map(len, names)) <= 63


# --- what makes pods restart -------------------------------------------------------------------------------


def inputs(kind: str, **changes: Any) -> str:
    owner = typed(kind, **changes)
    made = {
        "LogSet": lambda: LogSpecs(owner).inputs(),
        "DNSet": lambda: DNSpecs(owner, LOG).inputs(),
        "CNSet": lambda: CNSpecs(owner, LOG).inputs(),
        "ProxySet": lambda: ProxySpecs(owner, LOG).inputs(),
        "WebUI": lambda: UISpecs(owner, Credential(username="u", password="p")).inputs(),
    }[kind]()
    return str(made)


@pytest.mark.parametrize("kind", ["LogSet", "DNSet", "CNSet", "ProxySet"])
@pytest.mark.parametrize(
    "changes",
    [
        {"spec__image": "x:1.2.5"},
        {"spec__resources": {"limits": {"memory": "1Gi"}}},
        {"spec__config": "[log]\nlevel = 'debug'"},
        {"spec__overlay": {"env": [{"name": "A", "value": "1"}]}},
        {"spec__nodeSelector": {"a": "b"}},
        {"spec__serviceArgs": ["-x"]},
        {"spec__exportToPrometheus": True},
    ],
)
def test_what_the_user_decides_about_pods_restarts_them(kind: str, changes: dict[str, Any]) -> None:
    assert inputs(kind, **changes) != inputs(kind)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("LogSet", {"spec__replicas": 5}),
        ("LogSet", {"spec__volume__size": "20Gi"}),
        ("LogSet", {"spec__storeFailureTimeout": "1h"}),
        ("LogSet", {"spec__pvcRetentionPolicy": "Retain"}),
        ("LogSet", {"spec__operatorVersion": "1.3.0"}),
        ("DNSet", {"spec__replicas": 2}),
        ("CNSet", {"spec__replicas": 7}),
        ("CNSet", {"spec__cnLabels": [{"key": "a", "values": ["b"]}]}),
        ("CNSet", {"spec__podsToDelete": ["x"]}),
        ("CNSet", {"spec__serviceType": "NodePort", "spec__nodePort": 30001}),
        ("CNSet", {"spec__scalingConfig": {"minDelaySeconds": 3}}),
        ("CNSet", {"spec__pauseUpdate": True}),
        ("ProxySet", {"spec__replicas": 3}),
        ("WebUI", {"spec__replicas": 3}),
    ],
)
def test_what_is_not_about_pods_restarts_none(kind: str, changes: dict[str, Any]) -> None:
    assert inputs(kind, **changes) == inputs(kind)


def test_draining_restarts_compute_nodes_since_they_register_otherwise() -> None:
    assert inputs("CNSet", spec__scalingConfig={"storeDrainEnabled": True}) != inputs("CNSet")


def test_another_number_of_stores_restarts_nobody_but_a_single_one() -> None:
    three, five = (typed("LogSet", spec__replicas=count) for count in (3, 5))
    for kind in ("DNSet", "CNSet", "ProxySet"):
        make: Any = {"DNSet": DNSpecs, "CNSet": CNSpecs, "ProxySet": ProxySpecs}[kind]
        assert (
            make(typed(kind), LogService.of(three)).inputs()
            == make(typed(kind), LogService.of(five)).inputs()
        )
    assert (
        LogSpecs(three).inputs()
        == LogSpecs(five).inputs()
        != LogSpecs(typed("LogSet", spec__replicas=1)).inputs()
    )


def test_stored_defaults_and_absent_ones_make_the_same_pods() -> None:
    explicit = typed(
        "LogSet",
        spec__initialConfig={"logShardReplicas": 3, "logShards": 1, "dnShards": 1},
        spec__storeFailureTimeout="10m0s",
        spec__pvcRetentionPolicy="Delete",
        spec__sharedStorage={"s3": {**STORAGE["s3"], "s3RetentionPolicy": "Delete"}},
    )
    assert LogSpecs(explicit).inputs() == LogSpecs(typed("LogSet")).inputs()
    assert LogSpecs(explicit).files == LogSpecs(typed("LogSet")).files


def test_the_bootstrap_that_was_recorded_wins_over_the_declaration() -> None:
    from mooring.operators.matrixone.identity import bootstrap_replicas

    specs = LogSpecs(typed("LogSet", spec__replicas=5), members=bootstrap_replicas(1))
    text = specs.files["bootstrap.toml"]
    assert toml.get(toml.parse(text), "logservice", "BootstrapConfig", "init-hakeeper-members") == [
        "131072:00000000-0000-0000-0000-000000000000"
    ]


# --- a log service elsewhere -------------------------------------------------------------------------------


def test_a_log_service_elsewhere_is_dialled_by_its_endpoint_and_storage_is_the_users() -> None:
    log = LogService.elsewhere(ExternalLogSet(ha_keeper_endpoint="hk.example:32001"))
    config = '[[fileservice]]\nname = "S3"\nbackend = "S3"\n'
    for image, key in (("x:1.2.4", "service-addresses"), ("x:2.0.1", "discovery-address")):
        owner = typed("CNSet", spec__image=image, spec__config=config)
        table = toml.parse(CNSpecs(owner, log).files["config.toml"])
        assert table["hakeeper-client"][key] in ("hk.example:32001", ["hk.example:32001"])
        assert [one["name"] for one in table["fileservice"]] == ["LOCAL", "S3"]


def test_a_store_keeps_its_uuid_and_its_claims_by_its_id() -> None:
    specs = CNSpecs(typed("CNSet", spec__cacheVolume={"size": "1Gi"}), LOG)
    first, again = specs.pod("a1b2c"), specs.pod("a1b2c")
    assert first == again
    assert [one.metadata.name for one in specs.claims("a1b2c")] == ["mo-data-mo-cn-a1b2c"]
    assert specs.uuid("a1b2c") != specs.uuid("other")
    assert isinstance(typed("MatrixOneCluster"), MatrixOneCluster)


# --- evictions


def budget_of(objects: list[Any]) -> tuple[int | None, int | None]:
    """The pods that evictions may take of a set at once, and those that they have to leave."""
    [made] = [one for one in objects if isinstance(one, policy.PodDisruptionBudget)]
    assert made.spec is not None
    assert made.spec.selector is not None
    assert made.spec.selector.match_labels
    return made.spec.max_unavailable, made.spec.min_available  # type: ignore[return-value]


def test_one_log_store_transaction_node_and_proxy_may_be_evicted_at_a_time() -> None:
    made = cluster(spec__proxy={"replicas": 3})
    for one in made.sets():
        match one:
            case LogSet():
                assert budget_of(LogSpecs(one, members=bootstrap_replicas(3)).objects()) == (1, None)
            case DNSet():
                assert budget_of(DNSpecs(one, LOG).objects()) == (1, None)
            case ProxySet():
                assert budget_of(ProxySpecs(one, LOG).objects()) == (1, None)


@pytest.mark.parametrize(("pods", "left"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_no_compute_node_is_evicted_past_the_planner_also_while_there_is_one_more(
    pods: int, left: int
) -> None:
    made = typed("CNSet", spec__replicas=2)
    assert budget_of(CNSpecs(made, LOG).objects(pods=pods)) == (None, left)
