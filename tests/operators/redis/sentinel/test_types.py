"""The custom resource: its schema, defaults and status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mooring.kube.object import decode, to_dict
from mooring.local.api.jsonpath import find
from mooring.operators.redis.sentinel.lineage import Lineage, Standing
from mooring.operators.redis.sentinel.types import (
    LastFailover,
    Operation,
    RedisCluster,
    RedisClusterStatus,
    spec_of,
)
from mooring.operators.workload.configuration import ConfigResult
from mooring.runtime.crd import render_crd


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


def columns() -> dict[str, str]:
    (version,) = render_crd(RedisCluster)["spec"]["versions"]
    return {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}


def test_the_columns_are_the_legacy_ones_first() -> None:
    assert list(columns())[:3] == ["Size", "Status", "Age"]


HEALTHY = {"type": "Healthy", "status": "True"}
CREATING = {"type": "Creating", "status": "True"}
NOT_READY = {"type": "Ready", "status": "False"}
WORKS = {"type": "Progressing", "status": "True", "reason": "Restoring"}


@pytest.mark.parametrize(
    ("conditions", "status", "ready"),
    [
        ([CREATING, HEALTHY, NOT_READY, WORKS], ["Creating"], ["False"]),  # UCloud's: the newest one
        ([NOT_READY, WORKS], ["Progressing"], ["False"]),
        (
            [NOT_READY, {**WORKS, "status": "False"}, {"type": "Stalled", "status": "True"}],
            ["Stalled"],
            ["False"],
        ),
        ([], [], []),
    ],
)
def test_the_status_column_never_shows_a_condition_that_is_false(
    conditions: list[dict[str, str]], status: list[str], ready: list[str]
) -> None:
    cluster = {"status": {"conditions": conditions}}
    assert find(cluster, columns()["Status"])[:1] == status  # the server prints the first
    assert find(cluster, columns()["Ready"]) == ready


def test_an_absent_spec_means_three_and_three() -> None:
    spec = spec_of(decode({"metadata": {"name": "a"}}, RedisCluster))
    assert spec.size == 3
    assert spec.sentinel is not None
    assert spec.sentinel.replicas == 3
    assert spec.image == "redis:5.0.4-alpine"


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
