"""Delete the data of a path, a bounded number of objects at a time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

from mooring.kube.objects import core
from mooring.objectstore import ContainerNotFound, Limits, Store, Target, open_store
from mooring.objectstore.target import S3
from mooring.operators.matrixone.storage import DEFAULT_REGION, backend_of, bucket_of
from mooring.operators.matrixone.types import S3Provider

__all__ = ["AT_ONCE", "erase", "target_of"]

AT_ONCE: Final = 500
"""Objects of one step."""


def target_of(s3: S3Provider, *, ca_bundle: str | None = None) -> Target:
    """The path as a target of the object storage layer; Amazon's without a region is the one that the servers use."""
    bucket, prefix = bucket_of(s3)
    endpoint = s3.endpoint
    if endpoint and "//" not in endpoint:
        endpoint = f"https://{endpoint}"
    return Target(
        s3=S3(
            bucket=bucket,
            prefix=prefix or None,
            endpoint=endpoint,
            region=s3.region or (None if endpoint else DEFAULT_REGION),
            path_style=backend_of(s3) == "MINIO",
            credentials_secret=s3.secret_ref.name if s3.secret_ref is not None else None,
            ca_bundle=ca_bundle,
        )
    )


def _entries(secret: core.Secret | None) -> Mapping[str, bytes]:
    """The Secret as the object storage layer names its entries."""
    names = {"AWS_ACCESS_KEY_ID": "accessKeyId", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"}
    data = (secret.data if secret is not None else None) or {}
    return {names[key]: base64.b64decode(value) for key, value in data.items() if key in names}


async def erase(s3: S3Provider, secret: core.Secret | None) -> bool:
    """Delete up to `AT_ONCE` objects; whether none is left. A bucket that is gone has none.

    Raises `ObjectStoreError`.
    """

    def read(name: str) -> Mapping[str, bytes]:
        if secret is None or secret.metadata.name != name:
            raise LookupError(name)
        return _entries(secret)

    async with open_store(target_of(s3), secrets=read, limits=Limits()) as store:
        try:
            return await _some(store)
        except ContainerNotFound:
            return True


async def _some(store: Store) -> bool:
    names: list[str] = []
    async with aclosing(store.list()) as objects:
        async for one in objects:
            names.append(one.name)
            if len(names) == AT_ONCE:
                break
    for name in names:
        await store.delete(name)
    return len(names) < AT_ONCE
