"""The custom resource: schema, defaults, and what is said of a bad declaration."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from mooring.kube.object import decode, to_dict
from mooring.operators.redis.sentinel.lineage import Lineage, Standing
from mooring.operators.redis.sentinel.types import (
    LastFailover,
    Operation,
    RedisCluster,
    RedisClusterStatus,
    spec_of,
)
from mooring.operators.redis.sentinel.validate import validate
from mooring.operators.workload.configuration import ConfigResult
from mooring.runtime.crd import render_crd, unknown_fields

EXAMPLE = Path(__file__).parents[4] / "examples" / "redis-sentinel.yaml"
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"resources": {"requests": {"storage": "1Gi"}}},
}


def declared(name: str = "shop", **spec: Any) -> RedisCluster:
    return decode({"metadata": {"name": name, "namespace": "web"}, "spec": spec}, RedisCluster)


def schema() -> dict[str, Any]:
    (version,) = render_crd(RedisCluster)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def test_a_claim_needs_no_kind_as_existing_yaml_has_none() -> None:
    claim = schema()["spec"]["properties"]["storage"]["properties"]["persistentVolumeClaim"]
    # A real API server asks an embedded resource for apiVersion and kind, which UCloud's schema never did.
    assert "x-kubernetes-embedded-resource" not in claim


def test_the_legacy_field_names_are_all_there() -> None:
    spec = schema()["spec"]["properties"]
    assert set(spec) >= {
        *(
            "size",
            "resources",
            "image",
            "imagePullPolicy",
            "imagePullSecrets",
            "command",
            "shutdownConfigMap",
        ),
        *("storage", "password", "exporter", "affinity", "securityContext", "nodeSelector", "toleRations"),
        *("config", "annotations", "disablePersistence", "sentinel"),
    }
    assert set(spec["sentinel"]["properties"]) >= {
        *("image", "imagePullPolicy", "imagePullSecrets", "replicas", "resources", "customConfig", "command"),
        *("affinity", "securityContext", "tolerations", "nodeSelector", "annotations"),
    }
    assert {"conditions", "masterIP", "sentinelIP"} <= set(schema()["status"]["properties"])


def test_unknown_fields_of_old_manifests_are_kept() -> None:
    assert schema()["spec"]["x-kubernetes-preserve-unknown-fields"]
    assert schema()["spec"]["properties"]["sentinel"]["x-kubernetes-preserve-unknown-fields"]


def test_the_columns_are_the_legacy_ones_first() -> None:
    (version,) = render_crd(RedisCluster)["spec"]["versions"]
    columns = [(column["name"], column["jsonPath"]) for column in version["additionalPrinterColumns"][:3]]
    assert columns == [
        ("Size", ".spec.size"),
        ("Status", ".status.conditions[].type"),
        ("Age", ".metadata.creationTimestamp"),
    ]


def test_the_example_is_sound() -> None:
    raw = yaml.safe_load(EXAMPLE.read_text())
    assert validate(decode(raw, RedisCluster)) == []
    assert unknown_fields(RedisCluster, raw) == []


def test_an_absent_spec_means_three_and_three() -> None:
    spec = spec_of(decode({"metadata": {"name": "a"}}, RedisCluster))
    assert spec.size == 3
    assert spec.sentinel is not None
    assert spec.sentinel.replicas == 3
    assert spec.image == "redis:5.0.4-alpine"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": 2}, "spec.size"),
        ({"size": 11}, "spec.size"),
        ({"sentinel": {"replicas": 2}}, "spec.sentinel.replicas"),
        ({"password": "x" * 49}, "spec.password"),
        ({"password": "x", "passwordSecret": {"name": "s"}}, "spec.passwordSecret"),
        ({"image": "re dis"}, "spec.image"),
        ({"exporter": {"enabled": True}}, "spec.exporter.image"),
        ({"storage": {"emptyDir": {}, "persistentVolumeClaim": CLAIM}}, "spec.storage"),
        ({"storage": {"keepAfterDeletion": True}}, "spec.storage.keepAfterDeletion"),
        (
            {"storage": {"persistentVolumeClaim": {"metadata": {"name": "d"}, "spec": {}}}},
            "spec.storage.persistentVolumeClaim.spec.resources.requests.storage",
        ),
        ({"sentinel": {"customConfig": ["down-after-milliseconds"]}}, "spec.sentinel.customConfig[0]"),
        ({"sentinel": {"customConfig": ["nosuch 1"]}}, "spec.sentinel.customConfig[0]"),
        ({"sentinel": {"customConfig": ["quorum 2\nmyid 1"]}}, "spec.sentinel.customConfig[0]"),
        ({"image": "Redis:7.0"}, "spec.image"),
        ({"image": "redis:7.0:latest"}, "spec.image"),
        ({"sentinel": {"image": "redis:"}}, "spec.sentinel.image"),
        ({"resources": {"limits": {"memory": "-1Gi"}}}, "spec.resources.limits.memory"),
        ({"sentinel": {"resources": {"requests": {"cpu": "some"}}}}, "spec.sentinel.resources.requests.cpu"),
        (
            {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
            "spec.resources.requests.memory",
        ),
    ],
)
def test_a_bad_field_is_named_with_a_remedy(spec: dict[str, Any], field: str) -> None:
    (problem,) = validate(declared(**spec))
    assert problem.field == field
    assert len(problem.message.split()) > 3


@pytest.mark.parametrize(
    "image",
    [
        *("redis", "redis:7.0", "redis:7.0-alpine", "library/redis:5.0.4-alpine", "valkey/valkey:8.0"),
        *(
            "registry.local:5000/a/b_c/redis:7",
            f"redis@sha256:{'0' * 64}",
            f"Host.local/redis:7@sha256:{'f' * 64}",
        ),
    ],
)
def test_an_image_as_registries_have_it_is_taken(image: str) -> None:
    assert validate(declared(image=image)) == []


def test_equal_requests_and_limits_are_taken_however_they_are_written() -> None:
    resources = {"requests": {"memory": "1024Mi", "cpu": "0"}, "limits": {"memory": "1Gi"}}
    assert validate(declared(resources=resources)) == []


def test_a_name_that_is_too_long_is_refused() -> None:
    assert validate(declared("n" * 48)) == []
    assert validate(declared("n" * 49))[0].field == "metadata.name"


def test_a_name_that_no_service_can_have_is_refused() -> None:
    (problem,) = validate(declared("shop.prod"))
    assert problem.field == "metadata.name"
    assert "dot" in problem.message


@pytest.mark.parametrize("replicas", [0, 3])
def test_zero_sentinels_mean_the_default(replicas: int) -> None:
    assert validate(declared(sentinel={"replicas": replicas})) == []


def test_status_survives_the_way_through_the_api() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
    member = Standing(pod="a", uid="u", volume="v", ip="1", incarnation="u/0")
    status = RedisClusterStatus(
        master_ip="1",
        sentinel_ip="2",
        lineage=Lineage(epoch=2, replid="r", master=member, members=(member,), sentinel_epoch=3),
        operation=Operation(kind="FailOver", subject="a", since=now),
        last_failover=LastFailover(at=now, old="a", new="b", cause="MasterDied", gap_seconds=0.5),
        config={"hz": ConfigResult(wanted="1", state="Applied")},
    )
    plain = to_dict(status)
    assert plain["masterIP"] == "1"
    assert plain["lineage"]["sentinelEpoch"] == 3
    assert msgspec.convert(plain, RedisClusterStatus) == status


def test_a_status_of_another_version_never_stops_the_operator() -> None:
    odd = {"lineage": {}, "operation": {"kind": "Dance", "new": 1}, "lastFailover": {}, "nodes": [{}]}
    status = decode({"metadata": {"name": "a"}, "status": odd}, RedisCluster).status
    assert status is not None
    assert status.operation is not None
    assert status.operation.kind == "Dance"
