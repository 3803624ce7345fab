"""A faulty declaration is named by its field, with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.kube.object import decode
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.redis.sentinel.validate import validate
from mooring.runtime.crd import unknown_fields

EXAMPLE = Path(__file__).parents[4] / "examples" / "redis-sentinel.yaml"
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"resources": {"requests": {"storage": "1Gi"}}},
}


def declared(name: str = "shop", **spec: Any) -> RedisCluster:
    return decode({"metadata": {"name": name, "namespace": "web"}, "spec": spec}, RedisCluster)


def test_the_example_is_sound() -> None:
    raw = yaml.safe_load(EXAMPLE.read_text())
    assert validate(decode(raw, RedisCluster)) == []
    assert unknown_fields(RedisCluster, raw) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": 2}, "spec.size"),
        ({"size": 11}, "spec.size"),
        ({"sentinel": {"replicas": 2}}, "spec.sentinel.replicas"),
        ({"password": "x" * 49}, "spec.password"),
        ({"password": "x", "passwordSecret": {"name": "s"}}, "spec.passwordSecret"),
        ({"services": {"replica": {"type": "ExternalName"}}}, "spec.services.replica.type"),
        ({"image": "re dis"}, "spec.image"),
        ({"exporter": {"enabled": True}}, "spec.exporter.image"),
        ({"storage": {"emptyDir": {}, "persistentVolumeClaim": CLAIM}}, "spec.storage"),
        ({"storage": {"keepAfterDeletion": True}}, "spec.storage.keepAfterDeletion"),
        (
            {"storage": {"persistentVolumeClaim": {"metadata": {"name": "d"}, "spec": {}}}},
            "spec.storage.persistentVolumeClaim.spec.resources.requests.storage",
        ),
        *(
            (
                {
                    "storage": {
                        "persistentVolumeClaim": {
                            "metadata": {"name": "d"},
                            "spec": {"resources": {"requests": {"storage": size}}},
                        }
                    }
                },
                "spec.storage.persistentVolumeClaim.spec.resources.requests.storage",
            )
            for size in ("-1Gi", "0", "much")
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
