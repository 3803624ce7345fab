"""S3, GCS and Azure as targets, by obstore. Only `open_store` imports this module: obstore is an extra.

obstore sends requests from threads of its own, retries those that are safe to repeat and resumes what it reads.
Credentials are asked for at every request of S3 and Azure, and at every call of GCS.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import aiohttp
import obstore
from obstore.store import AzureStore, GCSStore, S3Store

from mooring.cache.clock import Clock
from mooring.objectstore.answers import status_in, translated
from mooring.objectstore.backend import ABORT_SECONDS, MOST_PARTS, Limits, ObjectInfo
from mooring.objectstore.ending import wait_for_threads
from mooring.objectstore.errors import (
    CredentialsRejected,
    NotFound,
    ObjectStoreError,
    PermissionDenied,
    TimedOut,
    TlsFailed,
    TooLarge,
    Unreachable,
)
from mooring.objectstore.multipart import Credentials, Multipart
from mooring.objectstore.secrets import Secrets, entry, read_secret
from mooring.objectstore.source import CHUNK
from mooring.objectstore.target import S3, Azure, Gcs, location

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureCredential, ClientConfig, ObjectStore, RetryConfig, S3Credential

    from mooring.objectstore.target import Target

__all__ = ["AzureBackend", "BucketBackend", "GcsBackend", "S3Backend"]

T = TypeVar("T")

# A thread of obstore that is still busy would abort the end of the interpreter.
atexit.register(wait_for_threads)

_RANGE_PAST_END = 416


class BucketBackend(ABC):
    """What the clouds have in common."""

    def __init__(self, target: Target, *, secrets: Secrets, clock: Clock, limits: Limits) -> None:
        self.where = location(target)
        self.secrets = secrets
        self.clock = clock
        self.limits = limits
        #: What the credentials' Secret lacked when obstore last asked for it, from a thread of its own.
        self.refused: ObjectStoreError | None = None

        self._clients: dict[tuple[int, bytes], ObjectStore] = {}

    @abstractmethod
    def present(self) -> bytes:
        """A digest of the credentials that a client keeps; raises `CredentialsRejected` where some are missing."""

    @abstractmethod
    def client(self, *, retries: int) -> ObjectStore:
        """A client of obstore with the present credentials."""

    def _client(self, *, retries: int) -> ObjectStore:
        """The client for these retries, which keeps its connections until the credentials in it change."""
        key = (retries, self.present())
        if (known := self._clients.get(key)) is not None:
            return known
        try:
            made = self.client(retries=retries)
        except Exception:  # obstore's; its text may quote what it could not read
            unusable = CredentialsRejected(
                f"{self.where} and its credentials make no client",
                remedy="check the entries of the Secret, the endpoint and caBundle",
            )
        else:
            self._clients = {old: one for old, one in self._clients.items() if old[1] == key[1]} | {key: made}
            return made
        raise unusable

    async def put(self, name: str, chunks: AsyncGenerator[bytes, None], *, part_size: int) -> None:
        what = f"cannot write {name} in {self.where}"
        head = await _filled(chunks, part_size)
        client = self._client(retries=10)
        if len(head) <= part_size:
            # A PUT is safe to repeat: the same bytes under the same name.
            await self._translated(what, lambda: obstore.put_async(client, name, head, use_multipart=False))
            return
        tap = _Tap(head, chunks, most=part_size * MOST_PARTS, what=what)
        upload = asyncio.ensure_future(
            self._translated(
                what,
                lambda: obstore.put_async(
                    client, name, tap, chunk_size=part_size, max_concurrency=self.limits.concurrency
                ),
            )
        )
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            # A source that raises makes obstore remove the parts it has sent; a cancelled call leaves them.
            tap.stop()
            done, _ = await asyncio.wait({upload}, timeout=ABORT_SECONDS)
            for task in done:
                task.exception()
            raise
        except Exception:
            if tap.error is None:
                raise
        finally:
            upload.cancel()
            await tap.end()
        if tap.error is not None:
            raise tap.error

    async def create(self, name: str, data: bytes) -> None:
        """One attempt: after a lost answer, a second one would find the first one's object and call it another's."""
        what = f"cannot create {name} in {self.where}"
        client = self._client(retries=0)
        await self._call(
            what, lambda: obstore.put_async(client, name, data, mode="create", use_multipart=False)
        )

    async def get(self, name: str, *, offset: int, length: int | None) -> AsyncGenerator[bytes, None]:
        what = f"cannot read {name} in {self.where}"
        if length == 0:
            return
        options: dict[str, object] = {}
        if length is not None:
            options["range"] = (offset, offset + length)
        elif offset:
            options["range"] = {"offset": offset}
        client = self._client(retries=10)
        try:
            result = await self._call(
                what, lambda: obstore.get_async(client, name, options=cast(Any, options))
            )
        except _PastEnd:
            return
        begin, end = result.range
        left = end - begin
        stream = result.stream(min_chunk_size=CHUNK)
        while left > 0:
            piece = await self._piece(what, stream)
            if not piece:
                raise Unreachable(f"{what}: the answer ended {left} bytes early")
            left -= len(piece)
            yield piece

    async def head(self, name: str) -> ObjectInfo:
        what = f"cannot read {name} in {self.where}"
        client = self._client(retries=10)
        try:
            return _info(await self._call(what, lambda: obstore.head_async(client, name)))
        except (NotFound, PermissionDenied) as refused:
            found = refused
        # The answer to HEAD has no body to tell a missing object from a missing bucket or a wrong key.
        async with aclosing(self.list(name, after="")) as pages:
            async for _ in pages:
                break
        raise found

    async def list(self, prefix: str, *, after: str) -> AsyncGenerator[list[ObjectInfo], None]:
        what = f"cannot list {prefix or 'everything'} in {self.where}"
        client = self._client(retries=10)
        stream = obstore.list(client, prefix or None, offset=after or None, chunk_size=1000)

        async def page() -> list[ObjectInfo]:
            try:
                return [_info(meta) for meta in await anext(stream)]
            except StopAsyncIteration:
                return []

        while infos := await self._call(what, page):
            yield infos

    async def delete(self, name: str) -> None:
        client = self._client(retries=10)
        try:
            await self._call(
                f"cannot delete {name} in {self.where}", lambda: obstore.delete_async(client, name)
            )
        except NotFound:
            return

    async def copy(self, source: str, to: str) -> None:
        client = self._client(retries=10)
        what = f"cannot copy {source} to {to} in {self.where}"
        await self._call(what, lambda: obstore.copy_async(client, source, to))

    async def clean_uploads(self, prefix: str, *, before: datetime) -> int:
        """Nothing: Azure drops uncommitted blocks after a week, GCS needs a lifecycle rule of the bucket."""
        return 0

    async def close(self) -> None:
        """Let go of the clients and their connections."""
        self._clients.clear()

    def options(self, ca_bundle: str, *, plain: bool) -> ClientConfig:
        """How obstore connects. Its 30 s for a whole request would cut long downloads."""
        options: ClientConfig = {
            "allow_http": plain,
            "connect_timeout": timedelta(seconds=self.limits.connect),
            "read_timeout": timedelta(seconds=self.limits.stall),
            "timeout": timedelta(days=30),
            "user_agent": "mooring",
        }
        if ca_bundle:
            options["root_certificate"] = ca_bundle
        return options

    def retries(self, count: int) -> RetryConfig:
        """How obstore repeats requests that are safe to repeat."""
        return {
            "max_retries": count,
            "retry_timeout": timedelta(seconds=self.limits.retry),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        }

    async def _call(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """A call that moves no stream, within its deadline."""
        try:
            async with self.clock.deadline(self.limits.call):
                return await self._translated(what, call)
        except TimeoutError:
            late = TimedOut(f"{what}: the server did not answer within {self.limits.call:g} s")
        raise await self._cause(what) or late

    async def _cause(self, what: str) -> ObjectStoreError | None:
        """Why no connection is made, by one request without retries: obstore repeats refused ones past the deadline."""
        client = self._client(retries=0)
        try:
            async with self.clock.deadline(self.limits.connect):
                await self._translated(what, lambda: obstore.head_async(client, "mooring"))
        except (Unreachable, TlsFailed) as error:
            return error
        except (ObjectStoreError, TimeoutError):
            return None
        return None

    async def _piece(self, what: str, stream: obstore.BytesStream) -> bytes:
        async def piece() -> bytes:
            try:
                return bytes(await anext(stream))
            except StopAsyncIteration:
                return b""

        return await self._translated(what, piece)

    async def _translated(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """The result, or an error of ours without obstore's as its context: that one quotes the server."""
        self.refused = None
        failed: Exception
        try:
            return await call()
        except ObjectStoreError:
            raise
        except Exception as error:
            if status_in(str(error)) == _RANGE_PAST_END:
                failed = _PastEnd()
            else:
                failed = self.refused or translated(error, what)
        raise failed


class S3Backend(BucketBackend):
    """A bucket of S3."""

    def __init__(self, target: Target, *, secrets: Secrets, clock: Clock, limits: Limits) -> None:
        super().__init__(target, secrets=secrets, clock=clock, limits=limits)
        assert target.s3 is not None
        self._s3: S3 = target.s3
        self._region = self._s3.region or "us-east-1"
        endpoint = self._s3.endpoint
        self._path_style = self._s3.path_style if self._s3.path_style is not None else bool(endpoint)
        base = (endpoint or f"https://s3.{self._region}.amazonaws.com").rstrip("/")
        scheme, _, host = base.partition("://")
        self._endpoint = base if self._path_style else f"{scheme}://{self._s3.bucket}.{host}"
        self._url = f"{base}/{self._s3.bucket}" if self._path_style else self._endpoint

    def present(self) -> bytes:
        if (secret := self._s3.credentials_secret) is not None:
            self._credentials(secret)
        return b""

    def client(self, *, retries: int) -> ObjectStore:
        secret = self._s3.credentials_secret
        return S3Store(
            self._s3.bucket,
            # Given although they are defaults: the environment would decide otherwise.
            endpoint=self._endpoint,
            aws_endpoint_url_s3=self._endpoint,
            region=self._region,
            virtual_hosted_style_request=not self._path_style,
            skip_signature=False,
            # The request for many objects at once is missing in several servers.
            disable_bulk_delete=True,
            client_options=self.options(self._s3.ca_bundle or "", plain=self._endpoint.startswith("http:")),
            retry_config=self.retries(retries),
            credential_provider=self._provider(secret) if secret is not None else None,
        )

    async def clean_uploads(self, prefix: str, *, before: datetime) -> int:
        secret = self._s3.credentials_secret
        if secret is None:
            raise ObjectStoreError(
                f"cannot remove unfinished uploads in {self.where} with the identity of the pod",
                reason="NotSupported",
                remedy="add a lifecycle rule to the bucket that aborts incomplete multipart uploads",
            )
        multipart = Multipart(
            url=self._url,
            region=self._region,
            where=self.where,
            timeout=self.limits.call,
            ca_bundle=self._s3.ca_bundle or "",
        )
        context = await asyncio.to_thread(multipart.context)
        count = 0
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            below = f"{prefix}/" if prefix else ""
            found = multipart.unfinished(session, below, self._credentials(secret), datetime.now(UTC))
            uploads = [upload async for upload in found if upload.began < before]
            for upload in uploads:
                await multipart.abort(session, upload, self._credentials(secret), datetime.now(UTC))
                count += 1
        return count

    def _credentials(self, secret: str) -> Credentials:
        data = read_secret(self.secrets, secret)
        token = entry(data, secret, "sessionToken") if "sessionToken" in data else ""
        return Credentials(entry(data, secret, "accessKeyId"), entry(data, secret, "secretAccessKey"), token)

    def _provider(self, secret: str) -> Callable[[], S3Credential]:
        def provide() -> S3Credential:
            try:
                found = self._credentials(secret)
            except ObjectStoreError as refused:
                self.refused = refused
                raise
            # Expired at once: the Secret is read again for the next request.
            return {
                "access_key_id": found.key_id,
                "secret_access_key": found.secret,
                "token": found.token or None,
                "expires_at": datetime.now(UTC),
            }

        return provide


class GcsBackend(BucketBackend):
    """A bucket of Google Cloud Storage."""

    def __init__(self, target: Target, *, secrets: Secrets, clock: Clock, limits: Limits) -> None:
        super().__init__(target, secrets=secrets, clock=clock, limits=limits)
        assert target.gcs is not None
        self._gcs: Gcs = target.gcs

    def present(self) -> bytes:
        return hashlib.sha256(self._key().encode()).digest()

    def client(self, *, retries: int) -> ObjectStore:
        again = self.retries(retries)
        key = self._key()
        if not key:
            options = self.options("", plain=False)
            return GCSStore(self._gcs.bucket, client_options=options, retry_config=again)
        # An emulator's key names its endpoint.
        plain = str(json.loads(key).get("gcs_base_url", "")).startswith("http:")
        options = self.options("", plain=plain)
        return GCSStore(self._gcs.bucket, service_account_key=key, client_options=options, retry_config=again)

    def _key(self) -> str:
        secret = self._gcs.credentials_secret
        return "" if secret is None else entry(read_secret(self.secrets, secret), secret, "serviceAccount")


class AzureBackend(BucketBackend):
    """A container of Azure Blob Storage."""

    def __init__(self, target: Target, *, secrets: Secrets, clock: Clock, limits: Limits) -> None:
        super().__init__(target, secrets=secrets, clock=clock, limits=limits)
        assert target.azure is not None
        self._azure: Azure = target.azure

    def present(self) -> bytes:
        if (secret := self._azure.credentials_secret) is not None:
            self._credential(secret)
        return b""

    def client(self, *, retries: int) -> ObjectStore:
        secret = self._azure.credentials_secret
        endpoint = self._azure.endpoint or f"https://{self._azure.account}.blob.core.windows.net"
        return AzureStore(
            self._azure.container,
            account_name=self._azure.account or "",
            endpoint=endpoint,
            skip_signature=False,
            client_options=self.options(self._azure.ca_bundle or "", plain=endpoint.startswith("http:")),
            retry_config=self.retries(retries),
            credential_provider=self._provider(secret) if secret is not None else None,
        )

    def _credential(self, secret: str) -> AzureCredential:
        data = read_secret(self.secrets, secret)
        now = datetime.now(UTC)
        if "sasToken" in data:
            return {"sas_token": entry(data, secret, "sasToken").removeprefix("?"), "expires_at": now}
        return {"access_key": entry(data, secret, "accountKey", "sasToken"), "expires_at": now}

    def _provider(self, secret: str) -> Callable[[], AzureCredential]:
        def provide() -> AzureCredential:
            try:
                return self._credential(secret)
            except ObjectStoreError as refused:
                self.refused = refused
                raise

        return provide


class _PastEnd(Exception):
    """The range begins behind the object's end."""


class _Stopped(Exception):
    """Raised in a source whose upload was cancelled."""


class _Tap:
    """A source that obstore pulls from, which can be made to fail from outside and keeps its own error."""

    def __init__(self, head: bytes, chunks: AsyncGenerator[bytes, None], *, most: int, what: str) -> None:
        self._head: bytes | None = head
        self._chunks = chunks
        self._left = most
        self._what = what
        self._pull: asyncio.Future[bytes] | None = None
        self._stopped = False
        self.error: Exception | None = None

    def stop(self) -> None:
        """Fail the pull that is under way, or the next one."""
        self._stopped = True
        if self._pull is not None:
            self._pull.cancel()

    async def end(self) -> None:
        """Wait until nothing runs in the source, so that it can be closed."""
        self._stopped = True
        if (pull := self._pull) is not None:
            pull.cancel()
            await asyncio.wait({pull})

    def __aiter__(self) -> _Tap:
        return self

    async def __anext__(self) -> bytes:
        if self._stopped:
            raise _Stopped
        if (head := self._head) is not None:
            self._head = None
            return self._counted(head)
        self._pull = asyncio.ensure_future(_next(self._chunks))
        try:
            return self._counted(await self._pull)
        except StopAsyncIteration:
            raise
        except asyncio.CancelledError:
            if self._stopped:
                raise _Stopped from None
            raise
        except Exception as error:
            self.error = error
            raise
        finally:
            self._pull = None

    def _counted(self, chunk: bytes) -> bytes:
        self._left -= len(chunk)
        if self._left < 0:
            raise TooLarge(f"{self._what}: more than {MOST_PARTS} parts")
        return chunk


async def _filled(chunks: AsyncGenerator[bytes, None], size: int) -> bytes:
    """The first chunks: all of them, or as many as have more than that many bytes."""
    head = bytearray()
    async for chunk in chunks:
        head += chunk
        if len(head) > size:
            break
    return bytes(head)


async def _next(chunks: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(chunks)


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(
        name=meta["path"], size=meta["size"], modified=meta["last_modified"], etag=meta["e_tag"] or ""
    )
