"""The definitions alone, without webhooks, on the embedded and on a real API server: what they take and what they refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.operators.matrixone.builders import BY_KIND, declared, samples

from mooring.kube import ApiError, Client, Config, HttpTransport
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.matrixone.types import KINDS, CNSet
from mooring.runtime.crd_install import install_crds

HOME = "matrixone-definitions"

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("MatrixOneCluster", {"spec__tn": None}, "give spec.tn"),
    ("MatrixOneCluster", {"spec__dn": {"replicas": 1}}, "give spec.tn"),
    ("MatrixOneCluster", {"metadata__name": "m" * 47}, "longer than 46"),
    ("MatrixOneCluster", {"metadata__name": "1mo"}, "must begin with a letter"),
    ("MatrixOneCluster", {"spec__version": None}, "spec.version"),
    ("MatrixOneCluster", {"spec__logService__sharedStorage": {}}, "give either s3 or fileSystem"),
    ("MatrixOneCluster", {"spec__logService__volume": {}}, "spec.logService.volume.size"),
    (
        "MatrixOneCluster",
        {"spec__cnGroups": [{"name": "a", "replicas": 1}, {"name": "a", "replicas": 1}]},
        "spec.cnGroups[1]",
    ),
    ("LogSet", {"spec__replicas": -1}, "spec.replicas"),
    ("LogSet", {"spec__initialConfig": {"logShardReplicas": 5}}, "must not be more than replicas"),
    ("LogSet", {"spec__sharedStorage__fileSystem": {"path": "/x"}}, "give either s3 or fileSystem"),
    ("CNSet", {"spec__serviceType": "ExternalName"}, "spec.serviceType"),
    ("CNPool", {"spec__strategy__scaleStrategy": {}}, "maxIdle"),
    ("CNClaim", {"spec__selector": None}, "spec.selector"),
    ("BucketClaim", {"spec__s3": {}}, "spec.s3.path"),
]


@asynccontextmanager
async def embedded() -> AsyncIterator[Client]:
    async with ApiServer.in_memory() as server:
        yield Client(server.transport())


@asynccontextmanager
async def real(kubeconfig: Path) -> AsyncIterator[Client]:
    client = Client(HttpTransport(Config.load(kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


async def create(client: Client, raw: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in raw["metadata"].items() if key not in ("uid", "namespace")}
    path = BY_KIND[raw["kind"]].resource.path(namespace=HOME)
    body = msgspec.json.encode({**raw, "metadata": metadata})
    answer = await client.request("POST", path, query={"fieldValidation": "Strict"}, body=body)
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found


async def holds(client: Client) -> None:
    """The samples are stored, the schema alone refuses what it can, what was decided stays, and scale works."""
    await client.apply(Namespace(metadata=ObjectMeta(name=HOME)))
    await install_crds(client, KINDS)
    for raw in samples():
        stored = await create(client, raw)
        for part in ("spec", "deps", "meta", "overlay"):
            assert set(raw.get(part, {})) <= set(stored.get(part, {})), raw["metadata"]["name"]
    for kind, change, text in REFUSED:
        with pytest.raises(ApiError) as refused:
            await create(client, declared(kind, "refused", **change))
        assert refused.value.status == 422, (kind, change)
        assert text in str(refused.value)
    await create(client, declared("LogSet", "fixed", spec__initialConfig={"logShards": 1}))
    path = BY_KIND["LogSet"].resource.path(namespace=HOME, name="fixed")
    for change, text in (
        ({"sharedStorage": {"s3": {"path": "b/other"}}}, "the bucket and its path cannot be changed"),
        ({"sharedStorage": {"s3": None, "fileSystem": {"path": "/x"}}}, "sharedStorage.s3 cannot be changed"),
        ({"initialConfig": {"logShards": 2}}, "cannot be changed"),
        ({"initialConfig": {"logShards": None}}, "cannot be removed"),
    ):
        with pytest.raises(ApiError) as refused:
            await merge(client, path, {"spec": change})
        assert text in str(refused.value)
    await merge(client, path, {"spec": {"sharedStorage": {"s3": {"region": "eu-1", "type": "minio"}}}})
    await create(client, declared("CNSet", "scaled"))
    scaled = CNSet.resource.path(namespace=HOME, name="scaled")
    await merge(client, f"{scaled}/scale", {"spec": {"replicas": 5}})
    assert msgspec.json.decode((await client.request("GET", scaled)).body)["spec"]["replicas"] == 5


async def merge(client: Client, path: str, patch: dict[str, Any]) -> None:
    body = msgspec.json.encode(patch)
    await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")


async def test_the_definitions_hold_on_the_embedded_api_server() -> None:
    async with embedded() as client:
        await holds(client)


@pytest.mark.kubernetes
async def test_the_definitions_hold_on_a_real_api_server(real_kubernetes: Path) -> None:
    async with real(real_kubernetes) as client:
        await holds(client)
