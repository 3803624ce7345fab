"""Stores of every kind that runs here: a directory always, a real S3 server in the tier ``full``."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.objectstore.servers import BUCKET, S3Server, s3_server

from mooring.objectstore import Limits, Store, Target, open_store
from mooring.objectstore.target import S3, Directory, Encryption

KEY = base64.b64encode(bytes(range(32)))

#: Opens the target under test below a prefix, with or without encryption.
Opens = Callable[..., AbstractAsyncContextManager[Store]]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.full)])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    prefix = f"p/{tmp_path.name}"
    if request.param == "directory":
        (root := tmp_path / "root").mkdir()
        target = Target(directory=Directory(path=str(root), prefix=prefix))
        secrets = {}
    else:
        server: S3Server = request.getfixturevalue("s3")
        target = Target(
            s3=S3(bucket=BUCKET, endpoint=server.endpoint, prefix=prefix, credentials_secret="root")
        )
        secrets = dict(server.secrets)
    secrets["keys"] = {"k1": KEY}

    def opened(
        *, encrypted: bool = False, limits: Limits | None = None
    ) -> AbstractAsyncContextManager[Store]:
        encryption = Encryption(secret="keys") if encrypted else None
        chosen = Target(s3=target.s3, directory=target.directory, encryption=encryption)
        return open_store(chosen, secrets=secrets.__getitem__, limits=limits)

    return opened


@pytest.fixture
async def store(opens: Opens) -> AsyncIterator[Store]:
    async with opens() as store:
        yield store
