"""What whoever applies a RedisCluster is told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.kube import Client
from mooring.kube.object import Key
from mooring.kube.objects.core import ConfigMap, Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.redis.cluster.webhook import RedisClusterReview
from mooring.runtime.webhooks import Allow, Operation, Review, Verdict

SAMPLE = Path(__file__).with_name("harmonycloud.yaml")


async def said(
    new: dict[str, Any], old: dict[str, Any] | None = None, *, template: str | None = None
) -> Verdict:
    """The verdict; ``template`` is the redis.conf in the ConfigMap ``conf`` there is."""
    operation: Operation = "UPDATE" if old is not None else "CREATE"
    asked = Review(kind=RedisCluster, operation=operation, key=Key("web", "shop"), object=new, old=old)
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        if template is not None:
            await client.create(Namespace(metadata=ObjectMeta(name="web")))
            meta = ObjectMeta(name="conf", namespace="web")
            await client.create(ConfigMap(metadata=meta, data={"redis.conf": template}))
        return await RedisClusterReview(client).review(asked)


async def test_the_samples_misplaced_affinity_is_named_and_nothing_is_refused() -> None:
    document = yaml.safe_load(SAMPLE.read_text())
    document.pop("status")
    verdict = await said(document)
    assert isinstance(verdict, Allow)
    assert "spec.pod[0].affinity.requiredDuringSchedulingIgnoredDuringExecution" in verdict.warnings[0]
    assert any("7 is odd" in one for one in verdict.warnings)


async def test_a_change_of_something_else_is_let_pass_without_a_word() -> None:
    document = {"metadata": {"name": "shop"}, "spec": {"replicas": 4}}
    assert await said(document, {**document, "status": {}}) == Allow()


async def test_a_total_that_makes_no_cluster_is_warned_of() -> None:
    verdict = await said(
        {"metadata": {"name": "shop"}, "spec": {"replicas": 4, "repository": "redis", "version": "7"}}
    )
    assert isinstance(verdict, Allow)
    assert "spec.replicas: 4 nodes cannot form a cluster" in verdict.warnings[0]


def declared(**pod: Any) -> dict[str, Any]:
    pod = {"middlewareImage": "redis:7.0", **pod}
    return {"metadata": {"name": "shop", "namespace": "web"}, "spec": {"replicas": 6, "pod": [pod]}}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("maxmemroy 10mb", "ConfigMap conf: maxmemroy: Redis 7.0 has no such key; did you mean 'maxmemory'?"),
        ("maxmemory lots", "ConfigMap conf: maxmemory: 'lots' is not a number of bytes"),
        ("maxmemory 10mb", ""),
        ("maxmemory $(MAX_MEMORY)", ""),
        ("# maxmemroy 10mb", ""),
        ("port 6380", ""),
    ],
)
async def test_keys_of_the_redis_conf_that_a_server_would_refuse_are_warned_of(line: str, words: str) -> None:
    verdict = await said(declared(configmap="conf"), template=f"timeout 0\n{line}\n")
    assert isinstance(verdict, Allow)
    assert len(verdict.warnings) == (1 if words else 0), verdict.warnings
    assert all(one.startswith(words) for one in verdict.warnings)


async def test_a_redis_conf_that_is_not_there_yet_is_no_matter_here() -> None:
    assert await said(declared(configmap="conf")) == Allow()


async def test_a_maxmemory_that_is_no_size_is_warned_of() -> None:
    verdict = await said(declared(env=[{"name": "MAXMEMORY", "value": "lots"}]))
    assert isinstance(verdict, Allow)
    [warning] = verdict.warnings
    assert warning.startswith("spec.pod[0].env[0].value: MAXMEMORY becomes maxmemory: 'lots' is not")
