"""Answers of servers as errors; requests that are signed here; rates and sources."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from mooring.objectstore import (
    CredentialsRejected,
    Limits,
    ObjectStoreError,
    Store,
    Target,
    Throttle,
    open_store,
)
from mooring.objectstore.answers import translated
from mooring.objectstore.multipart import Credentials, signed
from mooring.objectstore.source import CHUNK, Meter, chunks
from mooring.objectstore.target import Azure, Gcs
from mooring.testing.clock import VirtualClock

QUICK = Limits(connect=1, call=2, stall=1, retry=0.3)


def test_requests_are_signed_as_aws_documents() -> None:
    # Signature Version 4, "GET Bucket Lifecycle" of Amazon's examples for the authorization header.
    url, headers = signed(
        "GET",
        "https://examplebucket.s3.amazonaws.com",
        key="",
        query={"lifecycle": ""},
        region="us-east-1",
        credentials=Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert url == "https://examplebucket.s3.amazonaws.com/?lifecycle="
    assert headers["authorization"].endswith(
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    )


def test_an_unknown_error_does_not_quote_the_server() -> None:
    error = translated(Exception("status code: 418 <Code>Teapot</Code> secret-of-the-body"), "cannot read a")
    assert "418 Teapot" in str(error)
    assert "secret" not in str(error)


@asynccontextmanager
async def answering(status: int, body: str) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body, content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def azure(endpoint: str, data: dict[str, bytes]) -> AsyncIterator[Store]:
    target = Target(
        azure=Azure(account="account", container="backups", endpoint=endpoint, credentials_secret="azure")
    )
    async with open_store(target, secrets={"azure": data}.__getitem__, limits=QUICK) as store:
        yield store


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (404, "ContainerNotFound", "BucketNotFound"),
        (404, "BlobNotFound", "ObjectNotFound"),
        (403, "AuthenticationFailed", "SecretKeyWrong"),
        (403, "AuthorizationPermissionMismatch", "PermissionDenied"),
        (503, "ServerBusy", "StoreOverloaded"),
        (500, "InternalError", "StoreFailed"),
        (507, "", "OutOfSpace"),
    ],
)
async def test_answers_of_azure_have_reasons(status: int, code: str, reason: str) -> None:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>account-key-1</Message></Error>'
    async with answering(status, body) as endpoint, azure(endpoint, {"accountKey": b"YWNjb3VudA=="}) as store:
        with pytest.raises(ObjectStoreError) as caught:
            await store.read("a")
    assert caught.value.reason == reason
    assert "account-key-1" not in str(caught.value)


@pytest.mark.parametrize("data", [{}, {"accountKey": b""}, {"sasToken": b"\xff"}])
async def test_azure_without_credentials_names_the_entry(data: dict[str, bytes]) -> None:
    async with azure("http://127.0.0.1:1", data) as store:
        check = await store.check()
    assert check.reason == "SecretEntryMissing"
    assert "sasToken" in check.message


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (404, "NoSuchBucket", "BucketNotFound"),
        (404, "NoSuchKey", "ObjectNotFound"),
        (403, "", "PermissionDenied"),
    ],
)
async def test_answers_of_gcs_have_reasons(status: int, code: str, reason: str) -> None:
    async with answering(status, f"<Error><Code>{code}</Code></Error>") as endpoint:
        key = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        data = {"serviceAccount": json.dumps({**key, "private_key_id": ""}).encode()}
        target = Target(gcs=Gcs(bucket="backups", credentials_secret="gcs"))
        async with open_store(target, secrets={"gcs": data}.__getitem__, limits=QUICK) as store:
            with pytest.raises(ObjectStoreError) as caught:
                await store.read("a")
    assert caught.value.reason == reason


async def test_a_broken_service_account_does_not_show() -> None:
    target = Target(gcs=Gcs(bucket="backups", credentials_secret="gcs"))
    secrets = {"gcs": {"serviceAccount": b'{"private_key": "PRIVATE-1", "broken'}}
    async with open_store(target, secrets=secrets.__getitem__, limits=QUICK) as store:
        with pytest.raises(Exception) as caught:
            await store.head("a")
    assert isinstance(caught.value, CredentialsRejected)
    assert "PRIVATE-1" not in "".join(traceback.format_exception(caught.value))


async def test_a_throttle_keeps_the_rate_after_its_burst() -> None:
    clock = VirtualClock()
    throttle = Throttle(100.0, burst=1.0, clock=clock)
    passed: list[float] = []

    async def take() -> None:
        for _ in range(5):
            await throttle.take(100)
            passed.append(clock.monotonic())

    task = asyncio.ensure_future(take())
    await clock.advance(10)
    await task
    assert passed == [0, 1, 2, 3, 4]
    # The clock stands at 10: the pause has filled one burst again, not six.
    passed.clear()
    again = asyncio.ensure_future(take())
    await clock.advance(10)
    await again
    assert passed == [10, 11, 12, 13, 14]
    with pytest.raises(ValueError, match="above 0"):
        Throttle(0)


async def test_a_source_is_cut_into_chunks_and_closed() -> None:
    closed = False

    async def source() -> AsyncGenerator[bytes, None]:
        nonlocal closed
        try:
            yield b"1"
            yield b""
            yield bytes(3 * CHUNK)
        finally:
            closed = True

    assert [len(piece) async for piece in chunks(source())] == [CHUNK, CHUNK, CHUNK, 1]
    assert closed
    closed = False
    passing = Meter().passing(chunks(source()))
    await anext(passing)
    await passing.aclose()
    assert closed
