"""Stores of every kind that runs here: a directory always, a real S3 server in the tier ``full``."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import pytest
from hack.build import versitygw
from hack.kubernetes.binaries import BuildError
from tests.objectstore.servers import BUCKET, S3Server, s3_server

from mooring.objectstore import Limits, Store, Target, open_store
from mooring.objectstore.target import S3, Directory, Encryption

HERE = Path(__file__).parent
KEY = base64.b64encode(bytes(range(32)))

#: Opens the target under test below a prefix, with or without encryption.
Opens = Callable[..., AbstractAsyncContextManager[Store]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the S3 server before the first test that needs it: it takes longer than a test may."""
    needed = any(item.path.parent == HERE and item.get_closest_marker("full") for item in session.items)
    if needed and not session.config.option.collectonly:
        with suppress(BuildError):  # the fixture raises it
            versitygw()


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
