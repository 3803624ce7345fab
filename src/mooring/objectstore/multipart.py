"""Unfinished multipart uploads of an S3 bucket: found and aborted.

Their parts stay in the bucket, invisible and paid for, when an uploader dies. obstore has no call for either request,
so that they are signed (AWS Signature Version 4) and sent here.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import aiohttp
from yarl import URL

from mooring.objectstore.answers import CONNECTION_REFUSED, by_code, code_in
from mooring.objectstore.errors import ObjectStoreError, TimedOut, TlsFailed, Unreachable

__all__ = ["Credentials", "Multipart", "Unfinished", "signed"]

_EMPTY: Final = hashlib.sha256(b"").hexdigest()
_LARGEST_ANSWER: Final = 8 << 20


@dataclass(frozen=True)
class Credentials:
    """What a request to S3 is signed with; the repr shows none of it."""

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Unfinished:
    """An upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    began: datetime


@dataclass(frozen=True, kw_only=True)
class Multipart:
    """A bucket by its URL, such as ``https://host/bucket`` or ``https://bucket.host``."""

    url: str
    region: str
    where: str
    timeout: float
    ca_bundle: str = ""

    async def unfinished(
        self, session: aiohttp.ClientSession, prefix: str, credentials: Credentials, now: datetime
    ) -> AsyncIterator[Unfinished]:
        """Unfinished uploads of keys that begin with ``prefix``."""
        marker: dict[str, str] = {}
        while True:
            query = {"uploads": "", "prefix": prefix, **marker}
            text = await self._send(session, "GET", "", query, credentials, now)
            page = ElementTree.fromstring(text)  # noqa: S314 - see the import
            for entry in page.iter():
                if _tag(entry) == "Upload":
                    values = {_tag(child): child.text or "" for child in entry}
                    began = datetime.fromisoformat(values["Initiated"])
                    yield Unfinished(values["Key"], values["UploadId"], began)
            values = {_tag(child): child.text or "" for child in page}
            if values.get("IsTruncated") != "true" or not values.get("NextKeyMarker"):
                return
            # Without upload-id-marker, which versitygw 1.8.0 refuses: more uploads of this key wait for the next call.
            marker = {"key-marker": values["NextKeyMarker"]}

    async def abort(
        self, session: aiohttp.ClientSession, upload: Unfinished, credentials: Credentials, now: datetime
    ) -> None:
        """Remove an upload and its parts; one that is gone meanwhile is no error."""
        await self._send(session, "DELETE", upload.key, {"uploadId": upload.upload_id}, credentials, now)

    def context(self) -> ssl.SSLContext | bool:
        """What the server's certificate is checked with; reads files, so call it in a thread."""
        if not self.url.startswith("https:"):
            return True
        context = ssl.create_default_context()
        if self.ca_bundle:
            context.load_verify_locations(cadata=self.ca_bundle)
        return context

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        key: str,
        query: Mapping[str, str],
        credentials: Credentials,
        now: datetime,
    ) -> str:
        what = f"cannot remove unfinished uploads in {self.where}"
        url, headers = signed(
            method, self.url, key=key, query=query, region=self.region, credentials=credentials, now=now
        )
        failed: ObjectStoreError
        try:
            timeout = aiohttp.ClientTimeout(total=self.timeout)
            target = URL(url, encoded=True)
            async with session.request(
                method, target, headers=headers, timeout=timeout, allow_redirects=False
            ) as got:
                text = (await _body(got)).decode(errors="replace")
                code = code_in(text)
                if got.status < 300 or code == "NoSuchUpload":
                    return text
                failed = by_code(code, got.status, what)
        except TimeoutError:
            failed = TimedOut(f"{what}: the server did not answer within {self.timeout:g} s")
        except aiohttp.ClientError as error:
            failed = _of_connection(error, what)
        raise failed


def signed(
    method: str,
    base: str,
    *,
    key: str,
    query: Mapping[str, str],
    region: str,
    credentials: Credentials,
    now: datetime,
) -> tuple[str, dict[str, str]]:
    """The URL and headers of a request without a body, by AWS Signature Version 4."""
    parts = urlsplit(base)
    path = parts.path.rstrip("/") + "/" + quote(key, safe="/-_.~")
    encoded = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items())
    )
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{path}\n{encoded}\n{lines}\n{names}\n{_EMPTY}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    secret = f"AWS4{credentials.secret}".encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    signature = hmac.digest(secret, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return f"{parts.scheme}://{parts.netloc}{path}?{encoded}", headers


def _of_connection(error: aiohttp.ClientError, what: str) -> ObjectStoreError:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            says = f"{what}: the server's certificate is not trusted or is not for this host"
            return TlsFailed(says, reason="CertificateUntrusted")
        case aiohttp.ClientSSLError():
            return TlsFailed(f"{what}: the TLS handshake failed")
        case aiohttp.ClientConnectorDNSError():
            return Unreachable(f"{what}: the endpoint's host name does not resolve", reason="NameNotResolved")
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            kind, reason, says, remedy = CONNECTION_REFUSED
            return kind(f"{what}: {says}", reason=reason, remedy=remedy)
        case aiohttp.ClientConnectorError():
            return Unreachable(f"{what}: no connection to the endpoint", reason="ConnectionFailed")
        case _:
            return Unreachable(f"{what}: the connection was lost", reason="ConnectionLost")


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_chunked(1 << 16):
        body += piece
        if len(body) > _LARGEST_ANSWER:
            raise aiohttp.ClientPayloadError
    return bytes(body)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
