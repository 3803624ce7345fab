"""Users as a whole RedisCluster declares them, of either kind: the documented examples, and what pods are made of."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operators.redis.cluster.stage import manifest as cluster_manifest

from mooring.kube.object import decode
from mooring.kube.objects import apps, core
from mooring.operators.redis.cluster import inputs as cluster_inputs
from mooring.operators.redis.cluster import validate as cluster_validate
from mooring.operators.redis.cluster.types import RedisCluster as Cluster
from mooring.operators.redis.cluster.types import RedisClusterStatus
from mooring.operators.redis.sentinel import inputs as sentinel_inputs
from mooring.operators.redis.sentinel import validate as sentinel_validate
from mooring.operators.redis.sentinel.types import RedisCluster as Sentinel
from mooring.operators.workload.surroundings import Surroundings
from mooring.testing.redis import manifest

PAGES = Path(__file__).parents[4] / "docs"


def users(**more: Any) -> dict[str, Any]:
    app = {"name": "app", "rules": ["+@read"], "passwordSecrets": [{"name": "given", "key": "app"}]}
    return {"users": [app], **more}


def objects_of(kind: str, spec: dict[str, Any], live: apps.StatefulSet | None = None) -> list[Any]:
    """The child objects of a cluster."""
    if kind == "sentinel":
        body = manifest("demo", **{"exporter": {"enabled": True, "image": "exporter:1"}, **spec})
        found = sentinel_inputs.read_inputs(decode(body, Sentinel), Surroundings([live]))
        assert isinstance(found, sentinel_inputs.Inputs), found
        return list(found.specs.objects())
    body = cluster_manifest("demo", pod={"monitorImage": "exporter:1"}, **spec)
    made = cluster_inputs.read_inputs(decode(body, Cluster), Surroundings([live]), RedisClusterStatus())
    return list(made.specs.objects())


def servers_of(objects: list[Any]) -> apps.StatefulSet:
    sets = [one for one in objects if isinstance(one, apps.StatefulSet)]
    return next(one for one in sets if "sentinel" not in (one.metadata.name or ""))


def secret_of(objects: list[Any]) -> dict[str, str]:
    secret = next(one for one in objects if isinstance(one, core.Secret))
    return {name: base64.b64decode(text).decode() for name, text in (secret.data or {}).items()}


def container(made: apps.StatefulSet, name: str) -> core.Container:
    assert made.spec is not None
    assert made.spec.template is not None
    assert made.spec.template.spec is not None
    return next(one for one in made.spec.template.spec.containers or () if one.name == name)


@pytest.mark.parametrize(
    ("page", "kind", "faults"),
    [
        ("redis-sentinel.md", Sentinel, sentinel_validate.validate),
        ("redis-cluster.md", Cluster, cluster_validate.validate),
    ],
)
def test_the_example_of_the_page_is_whole(page: str, kind: Any, faults: Any) -> None:
    text = (PAGES / page).read_text().partition("## Users\n")[2]
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert example is not None
    secret, declared = yaml.safe_load_all(example[1])
    found = decode(declared, kind)
    assert faults(found) == []
    named = {(ref.name, ref.key) for one in found.spec.users for ref in one.password_secrets}
    assert named == {(secret["metadata"]["name"], key) for key in secret["stringData"]}
    assert found.spec.default_user.mode == "Off"


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_pods_of_a_cluster_without_users_are_as_they_always_were(kind: str) -> None:
    objects = objects_of(kind, {})
    env = {one.name for one in container(servers_of(objects), "redis-exporter").env or ()}
    assert "REDIS_USER" not in env
    assert not any(name.startswith(("mooring-", "users.")) for name in secret_of(objects))


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_a_new_cluster_with_the_default_user_off_has_its_accounts_from_the_start(kind: str) -> None:
    objects = objects_of(kind, users(defaultUser={"mode": "Off"}))
    secret = secret_of(objects)
    lines = secret["users.conf"].splitlines()
    assert "user default off" in lines
    assert not any(one.startswith("user app") for one in lines)  # not before servers took it
    exporter = container(servers_of(objects), "redis-exporter")
    assert {one.name: one.value for one in exporter.env or ()}["REDIS_USER"] == "mooring-exporter"
    assert secret["mooring-exporter"] in secret["exporter.json"]
    shown = [one.value or "" for one in (*(container(servers_of(objects), "redis").env or ()), *exporter.env)]  # type: ignore[misc]
    assert not any(secret[name] in text for name in secret if name.startswith("mooring-") for text in shown)


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_a_cluster_without_an_exporter_declares_the_same_pods_with_users(kind: str) -> None:
    none = {"exporter": None} if kind == "sentinel" else {}

    def pods(spec: dict[str, Any]) -> Any:
        if kind == "cluster":
            body = cluster_manifest("demo", **spec)
            read = cluster_inputs.read_inputs(decode(body, Cluster), Surroundings([]), RedisClusterStatus())
            return servers_of(list(read.specs.objects())).spec
        return servers_of(objects_of(kind, {**spec, **none})).spec

    assert pods({}) == pods(users(defaultUser={"mode": "Off"}))
