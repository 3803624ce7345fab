"""Paths of object stores on an API server (in memory): taken by one LogSet, released, taken again, emptied."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.objectstore.conftest import s3  # noqa: F401 - the fixture
from tests.objectstore.servers import BUCKET, S3Server
from tests.operators.redis.sentinel.test_actor import eventually as soon

from mooring.kube import Client, NotFound
from mooring.kube.object import decode
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import LocalObjectReference, Namespace, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.objectstore import open_store
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.bucket.erase import erase, target_of
from mooring.operators.matrixone.types import BucketClaim, LogSet, S3Provider


async def eventually(check: Any) -> Any:
    return await soon(check, within=12)


@asynccontextmanager
async def operating(**options: Any) -> AsyncIterator[Client]:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await apply_crds(client, [OPERATOR])
        await client.create(Namespace(metadata=ObjectMeta(name="other")))
        task = asyncio.create_task(operate(client, Operate(operators=[OPERATOR], elect=False, **options)))
        try:
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def declare(client: Client, name: str, *, namespace: str = "default", **given: Any) -> LogSet:
    provider = {"path": f"{BUCKET}/mo", "type": "minio", "endpoint": "http://minio:9000", **given}
    spec = {
        "image": "matrixorigin/matrixone:1.2.4",
        "replicas": 1,
        "volume": {"size": "1Gi"},
        "sharedStorage": {"s3": provider},
    }
    metadata = {"name": name, "namespace": namespace}
    return await client.create(decode({"metadata": metadata, "spec": spec}, LogSet))


async def claims(client: Client) -> dict[str, tuple[str, str]]:
    """State and LogSet of every claim."""
    found = (await client.list(BucketClaim)).items
    return {
        one.metadata.name or "": (one.status.state or "", one.status.bind_to or "")
        for one in found
        if one.status is not None
    }


async def stalled(client: Client, name: str, namespace: str) -> str:
    found = await client.get(LogSet, name, namespace=namespace)
    listed = (found.status.conditions if found.status else None) or ()
    return next((one.message or "" for one in listed if one.type == "Stalled" and one.status == "True"), "")


async def runs(client: Client, name: str, namespace: str = "default") -> bool:
    try:
        await client.get(StatefulSet, f"{name}-log", namespace=namespace)
    except NotFound:
        return False
    return True


async def test_one_log_set_takes_a_path_and_another_is_told_who_holds_it() -> None:
    async with operating() as client:
        first = await declare(client, "mo", s3RetentionPolicy="Retain")
        await eventually(lambda: runs(client, "mo"))
        assert await claims(client) == {f"bucket-{first.metadata.uid}": ("InUse", "default/mo")}
        await declare(client, "second", namespace="other", path=f"/{BUCKET}/mo/deeper/")
        text = await eventually(lambda: stalled(client, "second", "other"))
        assert "already bind to default/mo" in text
        assert not await runs(client, "second", "other")


async def test_kept_data_is_released_and_taken_by_a_log_set_of_the_namespace_alone() -> None:
    async with operating() as client:
        first = await declare(client, "mo", s3RetentionPolicy="Retain")
        name = f"bucket-{first.metadata.uid}"
        await eventually(lambda: runs(client, "mo"))
        await client.delete(LogSet, "mo", namespace="default")

        async def released() -> bool:
            return await claims(client) == {name: ("Released", "")}

        await eventually(released)
        await declare(client, "stranger", namespace="other")
        assert "keeps data there" in await eventually(lambda: stalled(client, "stranger", "other"))
        await declare(client, "again", s3RetentionPolicy="Retain")

        async def taken() -> bool:
            return await claims(client) == {name: ("InUse", "default/again")}

        await eventually(taken)
        await eventually(lambda: runs(client, "again"))


async def test_a_claim_in_use_cannot_be_deleted_and_says_so() -> None:
    async with operating() as client:
        first = await declare(client, "mo", s3RetentionPolicy="Retain")
        await eventually(lambda: runs(client, "mo"))
        name = f"bucket-{first.metadata.uid}"
        await client.delete(BucketClaim, name, namespace="default")

        async def said() -> bool:
            found = await client.get(BucketClaim, name, namespace="default")
            listed = (found.status.conditions if found.status else None) or ()
            return any(
                one.type == "recyclable" and one.status == "False" and "uses the path" in (one.message or "")
                for one in listed
            )

        await eventually(said)
        await client.delete(LogSet, "mo", namespace="default")

        async def gone() -> bool:
            return not await claims(client)

        await eventually(gone)


@pytest.mark.full
async def test_data_is_deleted_with_its_log_set_and_nothing_beside_it(s3: S3Server) -> None:  # noqa: F811
    keys = {
        "AWS_ACCESS_KEY_ID": s3.secrets["root"]["accessKeyId"],
        "AWS_SECRET_ACCESS_KEY": s3.secrets["root"]["secretAccessKey"],
    }
    provider = S3Provider(path=f"{BUCKET}/gone", type="minio", endpoint=s3.endpoint)
    async with operating() as client:
        await client.create(
            Secret(
                metadata=ObjectMeta(name="keys", namespace="default"),
                data={key: base64.b64encode(value).decode() for key, value in keys.items()},
            )
        )
        whole = target_of(S3Provider(path=BUCKET, type="minio", endpoint=s3.endpoint, secret_ref=None))
        assert whole.s3 is not None
        whole = replace(whole, s3=replace(whole.s3, credentials_secret="root"))
        async with open_store(whole, secrets=s3.secrets.__getitem__) as store:
            for name in ("gone/data/1", "gone/etl/2", "gone2/data/3"):
                await store.create(name, b"x")
            await declare(
                client,
                "mo",
                path=provider.path,
                endpoint=s3.endpoint,
                secretRef={"name": "keys"},
                s3RetentionPolicy="Delete",
            )
            await eventually(lambda: runs(client, "mo"))
            await client.delete(LogSet, "mo", namespace="default")

            async def gone() -> bool:
                return not await claims(client)

            await eventually(gone)
            assert [one.name async for one in store.list() if one.name.startswith("gone")] == ["gone2/data/3"]

            # A path that has nothing, and a bucket that is gone, are as good as erased.
            secret = await client.get(Secret, "keys", namespace="default")
            for path in (f"{BUCKET}/gone", f"{BUCKET}/never", "no-such-bucket/gone"):
                assert await erase(
                    replace(provider, path=path, secret_ref=LocalObjectReference(name="keys")), secret
                )
            assert [one.name async for one in store.list() if one.name.startswith("gone")] == ["gone2/data/3"]


async def test_an_operator_of_one_namespace_knows_the_paths_of_that_namespace() -> None:
    async with operating(scope="namespaced", namespaces=("default",)) as client:
        first = await declare(client, "mo", s3RetentionPolicy="Retain")
        await eventually(lambda: runs(client, "mo"))
        assert await claims(client) == {f"bucket-{first.metadata.uid}": ("InUse", "default/mo")}
        await declare(client, "second")
        assert "already bind to default/mo" in await eventually(lambda: stalled(client, "second", "default"))
