"""What is refused of a declaration and of a change, with the field that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operators.matrixone.builders import BY_KIND, declared, samples, typed

from mooring.kube.object import decode
from mooring.operators.matrixone.advice import warnings
from mooring.operators.matrixone.changes import changes
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.types import LogSet, MatrixOneCluster
from mooring.operators.matrixone.validate import validate
from mooring.operators.matrixone.webhook import unknown

IP = {"s3": {"type": "aws", "path": "b/p", "endpoint": "http://10.0.0.1:7070"}}
UNPARSED = 'service-type = "LOG\n'


@pytest.mark.parametrize(
    "kind", ["MatrixOneCluster", "LogSet", "DNSet", "CNSet", "ProxySet", "WebUI", "BucketClaim"]
)
def test_the_least_declaration_of_a_set_is_sound(kind: str) -> None:
    assert validate(typed(kind)) == []
    assert others_of(warnings(typed(kind))) == []


@pytest.mark.parametrize("kind", ["BackupJob", "RestoreJob", "CNPool", "CNClaim", "CNClaimSet"])
def test_the_least_declaration_of_a_job_or_a_claim_is_sound(kind: str) -> None:
    assert validate(typed(kind)) == []


@pytest.mark.parametrize("raw", samples(), ids=lambda raw: f"{raw['kind']}-{raw['metadata']['name']}")
def test_upstreams_samples_are_sound(raw: dict[str, Any]) -> None:
    assert validate(decode(raw, BY_KIND[raw["kind"]])) == []


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # Pods of any set.
    ("LogSet", {"spec__image": None}, "spec.image"),
    ("LogSet", {"spec__image": "no image"}, "spec.image"),
    ("LogSet", {"spec__semanticVersion": "nightly"}, "spec.semanticVersion"),
    ("LogSet", {"spec__operatorVersion": "new"}, "spec.operatorVersion"),
    ("CNSet", {"spec__replicas": -1}, "spec.replicas"),
    ("CNSet", {"spec__resources": {"requests": {"memory": "1Q"}}}, "spec.resources.requests.memory"),
    (
        "CNSet",
        {"spec__resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
        "spec.resources.requests.memory",
    ),
    ("LogSet", {"spec__memoryLimitPercent": 0}, "spec.memoryLimitPercent"),
    ("DNSet", {"spec__memoryLimitPercent": 101}, "spec.memoryLimitPercent"),
    ("ProxySet", {"spec__memoryLimitPercent": 0}, "spec.memoryLimitPercent"),
    ("CNSet", {"spec__clusterDomain": "-x"}, "spec.clusterDomain"),
    ("CNSet", {"spec__nodeSelector": {"a b": "c"}}, 'spec.nodeSelector["a b"]'),
    ("CNSet", {"spec__nodeSelector": {"a": "c d"}}, 'spec.nodeSelector["a"]'),
    ("CNSet", {"spec__topologySpread": ["a/b/c"]}, 'spec.topologySpread[0]["a/b/c"]'),
    ("CNSet", {"spec__promDiscoveryScheme": "Node"}, "spec.promDiscoveryScheme"),
    ("CNSet", {"spec__memoryFsSize": "0"}, "spec.memoryFsSize"),
    ("CNSet", {"spec__serviceArgs": ["-cfg", "x"]}, "spec.serviceArgs"),
    ("LogSet", {"spec__config": UNPARSED}, "spec.config"),
    ("LogSet", {"spec__config": 'service-type = "DN"'}, "spec.config"),
    ("LogSet", {"spec__config": '[logservice]\nuuid = "1"'}, "spec.config"),
    ("LogSet", {"spec__config": "logservice = 1"}, "spec.config"),
    ("LogSet", {"spec__config": "fileservice = 1"}, "spec.config"),
    ("LogSet", {"spec__config": '[[fileservice]]\nbackend = "S3"'}, "spec.config"),
    ("CNSet", {"spec__config": "[cn]\nport-base = 1"}, "spec.config"),
    ("CNSet", {"spec__config": '[hakeeper-client]\ndiscovery-address = "x:1"'}, "spec.config"),
    ("DNSet", {"spec__config": '[tn]\nservice-host = "x"'}, "spec.config"),
    ("DNSet", {"spec__config": "[tn]\na = 1\n[dn]\na = 1"}, "spec.config"),
    ("ProxySet", {"spec__config": '[proxy]\nlisten-address = "x:1"'}, "spec.config"),
    ("WebUI", {"spec__config": '[db]\nhost = "x"'}, "spec.config"),
    ("CNSet", {"spec__overlay": {"env": [{"name": "POD_NAME", "value": "x"}]}}, "spec.overlay.env[0]"),
    ("CNSet", {"spec__overlay": {"env": [{"name": "AWS_CA_BUNDLE", "value": "x"}]}}, "spec.overlay.env[0]"),
    ("CNSet", {"spec__overlay": {"env": [{"name": "", "value": "x"}]}}, "spec.overlay.env[0].name"),
    ("CNSet", {"spec__overlay": {"imagePullPolicy": "Now"}}, "spec.overlay.imagePullPolicy"),
    ("CNSet", {"spec__overlay": {"volumes": [{"name": "A"}]}}, "spec.overlay.volumes[0].name"),
    (
        "CNSet",
        {"spec__overlay": {"volumes": [{"name": "a"}, {"name": "a"}]}},
        "spec.overlay.volumes[1].name",
    ),
    (
        "CNSet",
        {"spec__overlay": {"volumeMounts": [{"name": "a"}]}},
        "spec.overlay.volumeMounts[0].mountPath",
    ),
    (
        "CNSet",
        {"spec__overlay": {"volumeClaims": [{"metadata": {"name": "mo-data"}}]}},
        "spec.overlay.volumeClaims[0].name",
    ),
    (
        "CNSet",
        {"spec__overlay": {"sidecarContainers": [{"name": "main"}]}},
        "spec.overlay.sidecarContainers[0].name",
    ),
    ("CNSet", {"spec__overlay": {"podLabels": {"a": "b c"}}}, 'spec.overlay.podLabels["a"]'),
    (
        "CNSet",
        {"spec__overlay": {"terminationGracePeriodSeconds": -1}},
        "spec.overlay.terminationGracePeriodSeconds",
    ),
    # The log service.
    ("LogSet", {"spec__volume__size": "0"}, "spec.volume.size"),
    ("LogSet", {"spec__volume": None}, "spec.volume"),
    ("LogSet", {"spec__sharedStorage": {}}, "spec.sharedStorage"),
    (
        "LogSet",
        {"spec__sharedStorage": {"s3": {"path": "b"}, "fileSystem": {"path": "/x"}}},
        "spec.sharedStorage",
    ),
    ("LogSet", {"spec__sharedStorage__s3__path": "/"}, "spec.sharedStorage.s3.path"),
    ("LogSet", {"spec__sharedStorage__s3__type": "gcs"}, "spec.sharedStorage.s3.type"),
    ("LogSet", {"spec__sharedStorage__s3__endpoint": "http://"}, "spec.sharedStorage.s3.endpoint"),
    ("LogSet", {"spec__sharedStorage__s3__endpoint": None}, "spec.sharedStorage.s3.endpoint"),
    ("LogSet", {"spec__sharedStorage": IP}, "spec.sharedStorage.s3.type"),
    ("LogSet", {"spec__sharedStorage": {"fileSystem": {"path": ""}}}, "spec.sharedStorage.fileSystem.path"),
    (
        "LogSet",
        {"spec__sharedStorage__s3__certificateRef": {"name": "c", "files": ["a/b"]}},
        "spec.sharedStorage.s3.certificateRef.files[0]",
    ),
    ("LogSet", {"spec__storeFailureTimeout": "soon"}, "spec.storeFailureTimeout"),
    ("LogSet", {"spec__failedPodStrategy": "Keep"}, "spec.failedPodStrategy"),
    ("LogSet", {"spec__pvcRetentionPolicy": "Keep"}, "spec.pvcRetentionPolicy"),
    ("LogSet", {"spec__initialConfig": {"logShardReplicas": 5}}, "spec.initialConfig.logShardReplicas"),
    ("LogSet", {"spec__initialConfig": {"logShards": 0}}, "spec.initialConfig.logShards"),
    # What the others depend on.
    ("DNSet", {"deps": None}, "deps"),
    ("CNSet", {"deps": {}}, "deps"),
    ("ProxySet", {"deps": {}}, "deps"),
    ("CNSet", {"deps": {"externalLogSet": {}}}, "deps.externalLogSet.haKeeperEndpoint"),
    (
        "CNSet",
        {"deps": {"externalLogSet": {"haKeeperEndpoint": "x"}}},
        "deps.externalLogSet.haKeeperEndpoint",
    ),
    ("CNSet", {"deps": {"logSet": {}}}, "deps.logSet.metadata.name"),
    ("CNSet", {"deps__externalLogSet": {"haKeeperEndpoint": "x:1"}}, "deps"),
    ("CNSet", {"deps__dnSet": {"metadata": {}}}, "deps.dnSet.metadata.name"),
    ("DNSet", {"spec__cacheVolume": {"size": "0"}}, "spec.cacheVolume.size"),
    ("DNSet", {"spec__cacheVolume": {"size": "much"}}, "spec.cacheVolume.size"),
    (
        "DNSet",
        {"spec__sharedStorageCache": {"memoryCacheSize": "-1"}},
        "spec.sharedStorageCache.memoryCacheSize",
    ),
    # Compute nodes.
    ("CNSet", {"spec__serviceType": "ExternalName"}, "spec.serviceType"),
    ("CNSet", {"spec__nodePort": 30011}, "spec.nodePort"),
    ("CNSet", {"spec__nodePort": 70000, "spec__serviceType": "NodePort"}, "spec.nodePort"),
    ("CNSet", {"spec__cnLabels": [{"key": "", "values": ["a"]}]}, "spec.cnLabels[0].key"),
    ("CNSet", {"spec__cnLabels": [{"key": "a", "values": []}]}, "spec.cnLabels[0].values"),
    ("CNSet", {"spec__cnLabels": [{"key": "a", "values": [""]}]}, "spec.cnLabels[0].values[0]"),
    ("CNSet", {"spec__role": "XP"}, "spec.role"),
    ("CNSet", {"spec__terminationPolicy": "Wait"}, "spec.terminationPolicy"),
    ("CNSet", {"spec__podManagementPolicy": "Parallel"}, "spec.podManagementPolicy"),
    ("CNSet", {"spec__updateStrategy": {"maxSurge": "x"}}, "spec.updateStrategy.maxSurge"),
    ("CNSet", {"spec__updateStrategy": {"maxSurge": 0, "maxUnavailable": "0%"}}, "spec.updateStrategy"),
    ("CNSet", {"spec__scalingConfig": {"storeDrainTimeout": "5"}}, ""),
    ("CNSet", {"spec__scalingConfig": {"storeDrainTimeout": "0s"}}, "spec.scalingConfig.storeDrainTimeout"),
    ("CNSet", {"spec__scalingConfig": {"minDelaySeconds": -1}}, "spec.scalingConfig.minDelaySeconds"),
    ("CNSet", {"spec__pythonUdfSidecar": {"enabled": True, "port": 70000}}, "spec.pythonUdfSidecar.port"),
    ("ProxySet", {"spec__waitPluginAddr": "nowhere"}, "spec.waitPluginAddr"),
    # Clusters.
    ("MatrixOneCluster", {"metadata__name": "1mo"}, "metadata.name"),
    ("MatrixOneCluster", {"metadata__name": "m" * 47}, "metadata.name"),
    ("MatrixOneCluster", {"metadata__name": "m.o"}, "metadata.name"),
    ("MatrixOneCluster", {"spec__version": ""}, "spec.version"),
    ("MatrixOneCluster", {"spec__version": "1 2"}, "spec.version"),
    ("MatrixOneCluster", {"spec__tn": None}, "spec.tn"),
    ("MatrixOneCluster", {"spec__dn": {"replicas": 1}}, "spec.dn"),
    ("MatrixOneCluster", {"spec__logService": None}, "spec.logService"),
    ("MatrixOneCluster", {"spec__logService__volume__size": "0"}, "spec.logService.volume.size"),
    ("MatrixOneCluster", {"spec__logService__sharedStorage": {}}, "spec.logService.sharedStorage"),
    ("MatrixOneCluster", {"spec__logService__replicas": -3}, "spec.logService.replicas"),
    (
        "MatrixOneCluster",
        {"spec__logService__replicas": 5, "spec__logService__initialConfig": {"logShardReplicas": 7}},
        "spec.logService.initialConfig.logShardReplicas",
    ),
    ("MatrixOneCluster", {"spec__tn__config": "[tn]\na = 1\n[dn]\na = 1"}, "spec.tn.config"),
    ("MatrixOneCluster", {"spec__cnGroups__0__name": "a_b"}, "spec.cnGroups[0].name"),
    ("MatrixOneCluster", {"spec__cnGroups__0__name": "a.b"}, "spec.cnGroups[0].name"),
    ("MatrixOneCluster", {"spec__cnGroups__0__name": "g" * 49}, "spec.cnGroups[0].name"),
    ("MatrixOneCluster", {"spec__tp": {"replicas": 1}}, "spec.cnGroups[0].name"),
    ("MatrixOneCluster", {"spec__cnGroups__0__cnLabels": [{"key": ""}]}, "spec.cnGroups[0].cnLabels[0].key"),
    ("MatrixOneCluster", {"spec__proxy": {"replicas": 1, "nodePort": 30000}}, "spec.proxy.nodePort"),
    # Jobs, pools and claims.
    ("BackupJob", {"spec__source": {}}, "spec.source"),
    ("BackupJob", {"spec__source__cnSetRef": "a"}, "spec.source"),
    ("BackupJob", {"spec__source": {"cnSetRef": "a"}}, "spec.source.secretRef"),
    ("BackupJob", {"spec__target": {}}, "spec.target"),
    ("BackupJob", {"spec__ttl": "never"}, "spec.ttl"),
    ("BackupJob", {"spec__schedule": {"cron": "0 0 30 2 *"}}, "spec.schedule.cron"),
    ("BackupJob", {"spec__schedule": {"cron": "* * * *"}}, "spec.schedule.cron"),
    ("BackupJob", {"spec__schedule": {"cron": "@daily", "timeZone": "Mars"}}, "spec.schedule.timeZone"),
    (
        "BackupJob",
        {"spec__schedule": {"cron": "TZ=UTC @daily", "timeZone": "Europe/Berlin"}},
        "spec.schedule.cron",
    ),
    (
        "BackupJob",
        {"spec__target__s3__certificateRef": {"name": "ca", "files": ["ca.crt"]}},
        "spec.target.s3.certificateRef",
    ),
    ("BackupJob", {"spec__image": "mobr:1"}, "spec.image"),
    (
        "BackupJob",
        {"spec__image": "mobr:1", "spec__overlay": {"command": ["a"]}, "spec__incrementalFrom": "b"},
        "spec.incrementalFrom",
    ),
    (
        "BackupJob",
        {
            "spec__image": "mobr:1",
            "spec__overlay": {"command": ["a"]},
            "spec__schedule": {"cron": "@daily", "fullEvery": 2},
        },
        "spec.schedule.fullEvery",
    ),
    ("RestoreJob", {"spec__backupName": None}, "spec.backupName"),
    ("RestoreJob", {"spec__externalSource": {"fileSystem": {"path": "/x"}}}, "spec.externalSource"),
    ("CNPool", {"spec__template__image": None}, "spec.template.image"),
    (
        "CNPool",
        {"spec__strategy__scaleStrategy": {"maxIdle": 3, "maxPods": 2}},
        "spec.strategy.scaleStrategy.maxPods",
    ),
    ("CNClaim", {"spec__selector": None}, "spec.selector"),
    (
        "CNClaim",
        {"spec__selector": {"matchExpressions": [{"operator": "In"}]}},
        "spec.selector.matchExpressions[0].key",
    ),
    (
        "CNClaim",
        {"spec__selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
        "spec.selector.matchExpressions[0].operator",
    ),
    (
        "CNClaim",
        {"spec__additionalPodLabels": {"pool": "x", "team": "a"}},
        'spec.additionalPodLabels["pool"]',
    ),
    (
        "CNClaimSet",
        {
            "spec__template__spec": {
                "selector": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]},
                "additionalPodLabels": {"pool": "c"},
            }
        },
        'spec.template.spec.additionalPodLabels["pool"]',
    ),
    ("CNClaim", {"spec__additionalPodLabels": {"pool": "default"}}, ""),
    ("CNClaimSet", {"spec__template__metadata": None}, "spec.selector.matchLabels"),
    ("BucketClaim", {"spec__s3__path": ""}, "spec.s3.path"),
]


@pytest.mark.parametrize(("kind", "change", "field"), [case for case in REFUSED if case[2]])
def test_a_declaration_that_cannot_be_carried_out_names_the_field_and_the_remedy(
    kind: str, change: dict[str, Any], field: str
) -> None:
    found = validate(typed(kind, **change))
    assert field in [one.field for one in found]
    for one in found:
        assert "; " in one.message, "no remedy"


def test_the_number_of_seconds_alone_is_a_duration_too() -> None:
    assert validate(typed("CNSet", spec__scalingConfig={"storeDrainTimeout": "5"})) == []


@pytest.mark.parametrize("name", ["mo", "m" * 46])
def test_a_name_of_46_characters_leaves_room_for_every_object(name: str) -> None:
    cluster = typed("MatrixOneCluster", name)
    assert validate(cluster) == []


def test_scaling_the_log_service_to_zero_is_allowed() -> None:
    assert validate(typed("LogSet", spec__replicas=0, spec__initialConfig={"logShardReplicas": 3})) == []
    assert warnings(typed("LogSet", spec__replicas=0)) == [
        "spec.replicas: 0: without a log service no cluster serves"
    ]


@pytest.mark.parametrize(
    ("kind", "before", "after", "field"),
    [
        ("LogSet", {}, {"spec__sharedStorage__s3__path": "bucket/other"}, "spec.sharedStorage.s3"),
        ("LogSet", {}, {"spec__sharedStorage": {"fileSystem": {"path": "/x"}}}, "spec.sharedStorage.s3"),
        ("LogSet", {}, {"spec__sharedStorage__s3__endpoint": "http://other:9000"}, "spec.sharedStorage.s3"),
        (
            "LogSet",
            {"spec__initialConfig": {"logShards": 1}},
            {"spec__initialConfig": {"logShards": 2}},
            "spec.initialConfig",
        ),
        ("LogSet", {}, {"spec__initialConfig": {"restoreFrom": "hk"}}, ""),
        ("LogSet", {"spec__initialConfig": {"restoreFrom": "hk"}}, {}, "spec.initialConfig"),
        ("LogSet", {}, {"spec__initialConfig": {"logShardReplicas": 1}}, "spec.initialConfig"),
        ("LogSet", {}, {"spec__volume__size": "9Gi"}, "spec.volume.size"),
        (
            "LogSet",
            {"spec__volume__storageClassName": "a"},
            {"spec__volume__storageClassName": "b"},
            "spec.volume.storageClassName",
        ),
        (
            "DNSet",
            {"spec__cacheVolume": {"size": "2Gi"}},
            {"spec__cacheVolume": {"size": "1Gi"}},
            "spec.cacheVolume.size",
        ),
        (
            "CNSet",
            {"spec__cacheVolume": {"size": "2Gi"}},
            {"spec__cacheVolume": {"size": "2047Mi"}},
            "spec.cacheVolume.size",
        ),
        ("CNSet", {}, {"spec__image": "matrixorigin/matrixone:nightly"}, "spec.semanticVersion"),
        ("CNSet", {"spec__operatorVersion": "1.3.0"}, {}, "spec.operatorVersion"),
        (
            "MatrixOneCluster",
            {},
            {"spec__logService__sharedStorage__s3__path": "other"},
            "spec.logService.sharedStorage.s3",
        ),
        (
            "MatrixOneCluster",
            {"spec__logService__initialConfig": {"logShardReplicas": 3}},
            {"spec__logService__initialConfig": {"logShardReplicas": 1}},
            "spec.logService.initialConfig",
        ),
        ("MatrixOneCluster", {}, {"spec__restoreFrom": "one"}, "spec.restoreFrom"),
        (
            "MatrixOneCluster",
            {"spec__operatorVersion": "1.3.0"},
            {"spec__operatorVersion": "1.2.0"},
            "spec.operatorVersion",
        ),
        ("MatrixOneCluster", {}, {"spec__version": "nightly"}, "spec.semanticVersion"),
        (
            "MatrixOneCluster",
            {"spec__cnGroups__0__cacheVolume": {"size": "2Gi"}},
            {"spec__cnGroups__0__cacheVolume": {"size": "1Gi"}},
            "spec.cnGroups[0].cacheVolume.size",
        ),
    ],
)
def test_a_change_that_cannot_follow_names_the_field(
    kind: str, before: dict[str, Any], after: dict[str, Any], field: str
) -> None:
    found = changes(typed(kind, **before), typed(kind, **after))
    assert [one.field for one in found] == ([field] if field else [])
    assert changes(typed(kind, **before), typed(kind, **before)) == []


def test_region_credentials_and_retention_may_change() -> None:
    new = {
        "spec__sharedStorage__s3__region": "eu-1",
        "spec__sharedStorage__s3__secretRef": {"name": "rotated"},
        "spec__sharedStorage__s3__s3RetentionPolicy": "Retain",
    }
    assert changes(typed("LogSet"), typed("LogSet", **new)) == []


def test_a_bootstrapped_log_service_keeps_its_replicas_of_a_shard_when_it_grows() -> None:
    recorded = '[{"ordinal":0,"replicaId":131072}]'
    one = declared("LogSet", spec__replicas=1)
    one["metadata"]["annotations"] = {"logset.matrixorigin.io/bootstrap": recorded}
    grown = {**one, "spec": {**one["spec"], "replicas": 3}}
    before, after = (with_defaults(decode(raw, LogSet)) for raw in (one, grown))
    assert before.spec is not None
    assert after.spec is not None
    assert after.spec.initial_config == before.spec.initial_config
    assert changes(before, after) == []


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        ("LogSet", {"spec__replicas": 2}, "spec.replicas"),
        ("LogSet", {"spec__image": "matrixone:nightly"}, "spec.image"),
        ("LogSet", {"spec__sharedStorage__s3__region": None}, "spec.sharedStorage.s3.region"),
        ("DNSet", {"spec__replicas": 0}, "spec.replicas"),
        (
            "DNSet",
            {"spec__sharedStorageCache": {"diskCacheSize": "1Gi"}},
            "spec.sharedStorageCache.diskCacheSize",
        ),
        ("CNSet", {"spec__terminationPolicy": "Drain"}, "spec.terminationPolicy"),
        ("CNSet", {"spec__clusterDomain": "cluster.local"}, "spec.clusterDomain"),
        ("CNSet", {"spec__memoryLimitPercent": 90}, "spec.memoryLimitPercent"),
        ("MatrixOneCluster", {"spec__tp": {"replicas": 1}}, "spec.tp"),
        ("MatrixOneCluster", {"spec__cnGroups": None}, "spec.cnGroups"),
        ("MatrixOneCluster", {"spec__version": "nightly"}, "spec.version"),
        ("BackupJob", {"spec__overlay": {"command": ["/mo_br"]}}, "spec.overlay.command"),
        (
            "CNClaim",
            {"spec__additionalPodLabels": {"a.matrixorigin.io/b": "x"}},
            'spec.additionalPodLabels["a.matrixorigin.io/b"]',
        ),
        (
            "CNClaimSet",
            {"spec__template__spec__additionalPodLabels": {"mooring.dev/b": "x"}},
            'spec.template.spec.additionalPodLabels["mooring.dev/b"]',
        ),
    ],
)
def test_what_is_carried_out_but_perhaps_not_as_meant_is_warned_of(
    kind: str, change: dict[str, Any], field: str
) -> None:
    assert field in [one.partition(": ")[0] for one in warnings(typed(kind, **change))]


def test_a_tag_that_is_no_version_is_no_matter_where_the_cluster_has_one() -> None:
    changes = {"spec__cnGroups__0__image": "own:latest"}
    assert others_of(warnings(typed("MatrixOneCluster", **changes))) == []
    assert len(others_of(warnings(typed("MatrixOneCluster", spec__version="nightly", **changes)))) == 2


def test_the_example_is_sound_and_says_nothing_twice() -> None:
    text = (Path(__file__).parents[3] / "examples" / "matrixone.yaml").read_text()
    (cluster,) = [one for one in yaml.safe_load_all(text) if one["kind"] == "MatrixOneCluster"]
    found = decode(cluster, MatrixOneCluster)
    assert (validate(found), warnings(found), unknown(MatrixOneCluster, cluster)) == ([], [], [])


def others_of(said: list[str]) -> list[str]:
    """Without the one that every transaction node without a claim gets."""
    return [one for one in said if ".cacheVolume: not given" not in one]
