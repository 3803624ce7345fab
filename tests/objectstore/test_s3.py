"""A real S3 server: what goes wrong there, each with its reason, and what survives it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.objectstore.servers import BUCKET, OTHER, ROOT, S3Server, proxy_to, s3_server
from yarl import URL

from mooring.objectstore import (
    CredentialsRejected,
    Limits,
    ObjectStoreError,
    Store,
    Target,
    TimedOut,
    Unreachable,
    open_store,
)
from mooring.objectstore.multipart import Credentials, signed
from mooring.objectstore.target import S3

pytestmark = [pytest.mark.full]

MIB = 1 << 20
SMALL = Limits(part_size=5 * MIB, concurrency=2, retry=20, call=20)
IMPATIENT = Limits(part_size=5 * MIB, concurrency=2, retry=0.5, call=2, connect=1, stall=1)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("tls"), tls=True) as server:
        yield server


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return f"t/{tmp_path.name}"


def opened(
    server: S3Server,
    prefix: str,
    *,
    limits: Limits = SMALL,
    data: dict[str, bytes] | None = None,
    **fields: Any,
) -> AbstractAsyncContextManager[Store]:
    given = {"bucket": BUCKET, "endpoint": server.endpoint, "credentials_secret": "root", **fields}
    secrets = server.secrets if data is None else {**server.secrets, "root": data}
    return open_store(Target(s3=S3(prefix=prefix, **given)), secrets=secrets.__getitem__, limits=limits)


async def zeros(count: int, size: int = MIB) -> AsyncGenerator[bytes, None]:
    for number in range(count):
        yield bytes([number % 251]) * size


async def everything(store: Store, name: str) -> bytes:
    async with aclosing(store.download(name)) as stream:
        return b"".join([piece async for piece in stream])


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("fields", "data", "reason"),
    [
        ({"bucket": "of-another-name"}, ROOT, "BucketNotFound"),
        ({}, {**ROOT, "secretAccessKey": b"a-wrong-one-0123456789"}, "SecretKeyWrong"),
        ({}, {**ROOT, "accessKeyId": b"nobody"}, "AccessKeyUnknown"),
        ({}, OTHER, "PermissionDenied"),
        ({}, {"accessKeyId": b"root"}, "SecretEntryMissing"),
        ({"credentials_secret": "absent"}, ROOT, "SecretNotFound"),
        ({"endpoint": "http://nowhere.invalid"}, ROOT, "NameNotResolved"),
        ({"endpoint": "http://127.0.0.1:{closed}"}, ROOT, "ConnectionRefused"),
        ({"endpoint": "https://127.0.0.1:{port}"}, ROOT, "TLSFailed"),
    ],
)
async def test_a_check_says_what_is_wrong(
    s3: S3Server, prefix: str, fields: dict[str, str], data: dict[str, bytes], reason: str
) -> None:
    fields = {name: value.format(port=s3.port, closed=closed_port()) for name, value in fields.items()}
    async with opened(s3, prefix, data=data, limits=IMPATIENT, **fields) as store:
        check = await store.check()
        assert (check.ok, check.reason) == (False, reason), check
        assert check.remedy
        shown = [str(check)]
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.head("certificate"),
            lambda: store.create("certificate", b""),
            lambda: store.upload("certificate", zeros(1)),
            lambda: store.upload("certificate", zeros(12)),
            lambda: store.read("certificate"),
            lambda: store.delete("certificate"),
            lambda: store.copy("certificate", "b"),
            lambda: store.clean_uploads(),
        ]
        for call in calls:
            with pytest.raises(ObjectStoreError) as caught:
                await call()
            error = caught.value
            shown += [str(error), repr(error), "".join(traceback.format_exception(error))]
            assert error.reason == reason, repr(error)
            assert isinstance(error.__context__, ObjectStoreError | LookupError | None)
        for text in (*shown, repr(store)):
            for value in data.values():
                assert value not in (b"root", b"other") or f"={value.decode()}" not in text
                assert value in (b"root", b"other") or value.decode() not in text
            assert "AWS4-HMAC-SHA256" not in text


async def test_a_certificate_is_trusted_by_its_authority_alone(tls: S3Server, prefix: str) -> None:
    async with opened(tls, prefix, limits=IMPATIENT) as store:
        assert (await store.check()).reason == "CertificateUntrusted"
    async with opened(tls, prefix, ca_bundle=tls.ca) as store:
        assert (await store.check()).reason == "Ready"
        assert await store.clean_uploads() == 0


async def test_a_server_that_does_not_answer_is_timed_out(s3: S3Server, prefix: str) -> None:
    async with proxy_to(s3.port) as proxy:
        proxy.mute = True
        async with opened(s3, prefix, limits=IMPATIENT, endpoint=f"http://127.0.0.1:{proxy.port}") as store:
            assert (await store.check()).reason == "TimedOut"
            with pytest.raises(TimedOut):
                await store.head("a")


async def test_a_refused_connection_is_told_when_its_retries_outlast_the_call(
    s3: S3Server, prefix: str
) -> None:
    limits = Limits(call=0.5, connect=5, retry=60)
    async with opened(s3, prefix, limits=limits, endpoint=f"http://127.0.0.1:{closed_port()}") as store:
        check = await store.check()
        assert check.reason == "ConnectionRefused", check
        assert "nothing listens" in check.message
        assert "endpoint" in check.remedy
        with pytest.raises(Unreachable, match="nothing listens"):
            await store.head("a")


async def test_the_environment_decides_nothing(
    s3: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_REGION", "of-the-environment")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    async with opened(s3, prefix) as store:
        assert (await store.check()).reason == "Ready"


async def test_credentials_are_read_for_every_request(s3: S3Server, prefix: str) -> None:
    data = dict(ROOT)
    async with opened(s3, prefix, data=data) as store:
        await store.create("a", b"")
        data["secretAccessKey"] = b"rotated-on-the-client-alone"
        with pytest.raises(CredentialsRejected, match="does not fit"):
            await store.create("b", b"")
        data.update(ROOT)
        await store.create("b", b"")

        async def rotating() -> AsyncGenerator[bytes, None]:
            async for chunk in zeros(11):
                yield chunk
            data["secretAccessKey"] = b"rotated-on-the-client-alone"
            async for chunk in zeros(11):
                yield chunk

        with pytest.raises(CredentialsRejected, match="does not fit"):
            await store.upload("c", rotating())
        data.update(ROOT)
        assert [info.name async for info in store.list()] == ["a", "b"]
        data.clear()
        with pytest.raises(CredentialsRejected, match="accessKeyId"):
            await store.head("a")


async def test_an_upload_survives_a_cut_connection(s3: S3Server, prefix: str) -> None:
    async with proxy_to(s3.port) as proxy:
        proxy.cut_up_at = 12 * MIB
        async with opened(s3, prefix, endpoint=f"http://127.0.0.1:{proxy.port}") as store:
            done = await store.upload("a", zeros(24))
            assert proxy.cuts == 1
            assert (await store.head("a")).size == done.size == 24 * MIB


async def test_an_upload_cut_for_good_is_an_error_and_its_parts_can_be_removed(
    s3: S3Server, prefix: str
) -> None:
    left = set(s3.parts())
    async with proxy_to(s3.port) as proxy:
        proxy.for_good = True
        proxy.cut_up_at = 17 * MIB
        limits = Limits(part_size=5 * MIB, concurrency=2, retry=1, call=5)
        async with opened(s3, prefix, limits=limits, endpoint=f"http://127.0.0.1:{proxy.port}") as store:
            with pytest.raises(Unreachable) as caught:
                await store.upload("sub/a", zeros(40))
            assert caught.value.reason in ("ConnectionFailed", "ConnectionLost")
    assert left < set(s3.parts())
    async with opened(s3, prefix) as store:
        assert [info async for info in store.list()] == []
        assert await store.clean_uploads("elsewhere", older_than=-3600) == 0
        assert await store.clean_uploads(older_than=3600) == 0
        assert await store.clean_uploads("sub", older_than=-3600) == 1
        assert await store.clean_uploads(older_than=-3600) == 0
    assert left == set(s3.parts())


async def test_a_cancelled_upload_removes_the_parts_that_arrived(s3: S3Server, prefix: str) -> None:
    left = set(s3.parts())

    async def hanging() -> AsyncGenerator[bytes, None]:
        async for chunk in zeros(12):
            yield chunk
        await asyncio.Event().wait()

    async with opened(s3, prefix) as store:
        upload = asyncio.ensure_future(store.upload("a", hanging()))
        # Two whole parts of 5 MiB; one still on its way could arrive after the removal.
        async with asyncio.timeout(20):
            while sum(path.stat().st_size for path in set(s3.parts()) - left) < 10 * MIB:
                await asyncio.sleep(0.02)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert await store.clean_uploads(older_than=-3600) == 0
    assert set(s3.parts()) == left


async def test_a_download_survives_a_cut_connection(s3: S3Server, prefix: str) -> None:
    async with opened(s3, prefix) as store:
        await store.upload("a", zeros(24))
    async with proxy_to(s3.port) as proxy:
        proxy.cut_down_at = 9 * MIB
        async with opened(s3, prefix, endpoint=f"http://127.0.0.1:{proxy.port}") as store:
            data = await everything(store, "a")
        assert proxy.cuts == 1
    assert data == b"".join([chunk async for chunk in zeros(24)])


async def test_a_download_cut_for_good_never_looks_complete(s3: S3Server, prefix: str) -> None:
    async with opened(s3, prefix) as store:
        await store.upload("a", zeros(24))
    async with proxy_to(s3.port) as proxy:
        proxy.for_good = True
        proxy.cut_down_at = 9 * MIB
        async with opened(s3, prefix, limits=IMPATIENT, endpoint=f"http://127.0.0.1:{proxy.port}") as store:
            with pytest.raises((Unreachable, TimedOut)):
                await everything(store, "a")


async def test_a_create_whose_answer_was_lost_knows_its_own_object(s3: S3Server, prefix: str) -> None:
    limits = Limits(part_size=5 * MIB, concurrency=2, retry=1, call=2, stall=1)
    async with (
        opened(s3, prefix) as direct,
        proxy_to(s3.port) as proxy,
        opened(s3, prefix, limits=limits, endpoint=f"http://127.0.0.1:{proxy.port}") as store,
    ):
        proxy.mute = True
        create = asyncio.ensure_future(store.create("m", b"ours"))
        await until_exists(direct, "m")
        proxy.cut()
        proxy.mute = False
        await create
        assert await direct.read("m") == b"ours"


async def until_exists(store: Store, name: str) -> None:
    async with asyncio.timeout(20):
        while name not in [info.name async for info in store.list()]:
            await asyncio.sleep(0.02)


async def test_more_unfinished_uploads_than_a_page_are_removed(s3: S3Server, prefix: str) -> None:
    root = Credentials(ROOT["accessKeyId"].decode(), ROOT["secretAccessKey"].decode())
    base = f"{s3.endpoint}/{BUCKET}"
    async with aiohttp.ClientSession() as session:
        for number in range(1010):
            url, headers = signed(
                "POST",
                base,
                key=f"{prefix}/{number:04}",
                query={"uploads": ""},
                region="us-east-1",
                credentials=root,
                now=datetime.now(UTC),
            )
            async with session.post(URL(url, encoded=True), headers=headers) as answer:
                assert answer.status == 200, await answer.text()
    async with opened(s3, prefix) as store:
        assert await store.clean_uploads(older_than=-3600) == 1010
        assert await store.clean_uploads(older_than=-3600) == 0


async def test_ten_thousand_objects_are_listed(s3: S3Server, prefix: str) -> None:
    directory = s3.data / BUCKET / prefix
    directory.mkdir(parents=True)
    for number in range(10_000):
        (directory / f"{number:05}").touch()
    async with opened(s3, prefix) as store:
        found = [info.name async for info in store.list()]
        assert found == [f"{number:05}" for number in range(10_000)]
        assert [info.name async for info in store.list(after="09997")] == ["09998", "09999"]


_UPLOAD = """
import asyncio, os, resource, sys
from mooring.objectstore import Target, open_store
from mooring.objectstore.target import Encryption, S3

async def source():
    chunk = os.urandom(1 << 20)
    for _ in range(512):
        yield chunk

async def main():
    endpoint, bucket, prefix = sys.argv[1:]
    secrets = {
        "root": {"accessKeyId": b"root", "secretAccessKey": sys.stdin.buffer.readline().strip()},
        "keys": {"k": bytes(32)},
    }
    target = Target(
        s3=S3(bucket=bucket, endpoint=endpoint, prefix=prefix, credentials_secret="root"),
        encryption=Encryption(secret="keys"),
    )
    async with open_store(target, secrets=secrets.__getitem__) as store:
        await store.upload("small", small())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        done = await store.upload("large", source())
        size = 0
        async for piece in store.download("large"):
            size += len(piece)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert size == done.size == 512 << 20
        await store.delete("large")
        print(after - before)

async def small():
    yield b"1"

asyncio.run(main())
"""


async def test_the_memory_of_a_transfer_is_bounded(s3: S3Server, prefix: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _UPLOAD, s3.endpoint, BUCKET, prefix),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate(ROOT["secretAccessKey"] + b"\n")
    assert process.returncode == 0
    # Five parts of 8 MiB, and as much again for what allocators keep.
    assert int(out) / 1024 < 80, f"{int(out) / 1024:.0f} MiB for 512 MiB"
