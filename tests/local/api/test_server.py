"""The listener: TLS, tokens, broken requests, limits, slow clients; and the same answers in process."""

from __future__ import annotations

import asyncio
import gzip
import io
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.local.api.conftest import CM, Client, config_map, reader

from mooring.local.api import ApiServer, User, reads
from mooring.local.api import server as server_module
from mooring.local.api.access.tokens import ISSUER, Authority, Claims, TokenError
from mooring.local.api.http import BODY_LIMIT
from mooring.local.api.tls import ensure_certificates

TOKEN = "a-token-of-the-test"


@dataclass
class Https:
    """A listening server and a session that trusts it."""

    url: str
    session: aiohttp.ClientSession
    server: ApiServer
    context: ssl.SSLContext
    port: int

    async def send(
        self, method: str, path: str, *, token: str = TOKEN, data: Any = None, **headers: str
    ) -> tuple[int, Any, Any]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        async with self.session.request(method, self.url + path, data=data, headers=sent) as answer:
            body = await answer.read()
            try:
                return answer.status, answer.headers, msgspec.json.decode(body)
            except msgspec.DecodeError:
                return answer.status, answer.headers, body


@pytest.fixture
async def https(tmp_path: Path) -> AsyncIterator[Https]:
    admin = User("admin", groups=("system:masters",))
    certificates = ensure_certificates(tmp_path / "pki", ["127.0.0.1"])
    context = ssl.create_default_context(cafile=str(certificates.authority))
    async with ApiServer.in_memory(tokens={TOKEN: admin}) as server:
        sock = socket.create_server(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        await server.serve(sock, certificates.server_context())
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Https(f"https://127.0.0.1:{port}", session, server, context, port)
        await asyncio.sleep(0)


async def test_a_request_without_a_valid_token_is_401(https: Https) -> None:
    for token in ("wrong", "Bearer", "a.b.c"):
        status, _, body = await https.send("GET", "/api/v1/pods", token=token)
        assert (status, body["reason"], body["message"]) == (401, "Unauthorized", "Unauthorized")
    assert (await https.send("GET", "/api/v1/pods"))[0] == 200


async def test_a_token_that_is_not_ascii_is_401(https: Https, caplog: pytest.LogCaptureFixture) -> None:
    for token in (b"t\xc3\xb6ken", b"\xff\xfe", b"a.b.\xe9"):
        head = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token
        assert (await raw(https, head + b"\r\nConnection: close\r\n\r\n")).split()[1] == b"401"
    assert not [record for record in caplog.records if record.exc_info]


def test_a_token_is_not_good_before_its_time() -> None:
    authority, now = Authority(), datetime(2026, 1, 1, tzinfo=UTC)
    claims = Claims("default", "one", "u", (ISSUER,), (now + timedelta(hours=3)).timestamp())
    token = authority.sign(claims, now=now + timedelta(hours=1))
    with pytest.raises(TokenError, match="not valid yet"):
        authority.verify(token, now=now)
    assert authority.verify(token, now=now + timedelta(hours=1)).name == "one"


async def test_a_request_without_any_token_is_that_of_nobody(https: Https) -> None:
    status, _, body = await https.send("GET", "/api/v1/pods", token="")
    assert (status, body["reason"]) == (403, "Forbidden")
    assert body["message"].startswith(
        'pods is forbidden: User "system:anonymous" cannot list resource "pods"'
    )


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/apis",
        "/metrics",
        "/logs",
        "/debug/pprof/",
        "/debug/tasks",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/.well-known/openid-configuration",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/nodes/n/proxy/",
        "/apis/apps/v1/deployments",
        "/api/v1/namespaces/default/pods/p/exec?command=id",
        "/api/v1/namespaces/default/pods/p/log",
        "/api/v1/namespaces/default/pods/p/proxy/",
        "/api/v1/namespaces/default/services/s/proxy/",
        "/api/v1/secrets?watch=1",
        "/healthz/../api",
        "/version/../api/v1/secrets",
        "/%61pi/v1/secrets",
        "//api/v1/secrets",
        "/healthz/%2e%2e/api",
        "/no/such/path",
    ],
)
async def test_who_has_no_token_is_shown_nothing(https: Https, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await raw(https, head.encode())
    assert answer.split()[1] == b"403", answer[:200]
    assert b"system:anonymous" in answer


async def test_probes_and_version_need_no_token(https: Https) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        status, _, body = await https.send("GET", path, token="")
        assert (status, body) == (200, b"ok")
    assert (await https.send("GET", "/version", token=""))[2]["gitVersion"] == "v1.36.3+mooring"


async def test_https_and_in_process_answers_are_the_same(https: Https) -> None:
    client = Client(https.server.transport())
    await client.create(CM, config_map(x="1"))
    requests = [
        ("GET", CM + "/a"),
        ("GET", CM + "/none"),
        ("GET", CM),
        ("GET", "/api/v1/nothings"),
        ("PATCH", CM + "/a"),
        ("GET", "/apis/apps/v1"),
    ]
    for method, path in requests:
        inside = await client.send(method, path)
        status, _, body = await https.send(method, path)
        assert (status, body) == (inside.status, msgspec.json.decode(inside.body))


async def test_a_body_that_is_too_large_is_413(https: Https) -> None:
    big = b'{"data":{"x":"' + b"y" * BODY_LIMIT + b'"}}'
    status, _, body = await https.send("POST", CM, data=io.BytesIO(big), Content_Type="application/json")
    assert (status, body["reason"]) == (413, "RequestEntityTooLarge")

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(BODY_LIMIT // 65536 + 2):
            yield b" " * 65536

    status, _, body = await https.send("POST", CM, data=chunks(), Content_Type="application/json")
    assert (status, body["reason"]) == (413, "RequestEntityTooLarge")
    client = Client(https.server.transport())
    assert (await client.refused(413, "POST", CM, big))["reason"] == "RequestEntityTooLarge"


@pytest.mark.parametrize("token", ["", TOKEN])
async def test_a_packed_body_is_refused_and_never_unpacked(
    https: Https, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b"{" + b" " * BODY_LIMIT + b"}")
    unpacked = []
    monkeypatch.setattr(zlib, "decompressobj", lambda *args, **kwargs: unpacked.append(args))
    answer = await https.send(
        "POST", CM, token=token, data=packed, Content_Type="application/json", Content_Encoding="gzip"
    )
    assert answer[0] == (415 if token else 403)
    assert not token or answer[2]["message"].startswith("Content-Encoding gzip is not supported")
    assert not unpacked


async def test_what_is_refused_unread_is_not_read_to_its_end(https: Https) -> None:
    head = (
        b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", https.port, ssl=https.context)
    writer.write(head + b"{")
    async with asyncio.timeout(10):
        answer = await reader.read()  # to the end of the connection
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"Connection: close" in answer
    writer.close()


async def test_a_body_that_does_not_come_is_given_up(https: Https, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_BODY_SECONDS", 0.1)
    head = f"POST {CM} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\n"
    answer = await raw(https, head.encode() + b"{")
    assert b" 504 " in answer.splitlines()[0]
    assert b"the body did not arrive within 0.1 s" in answer


async def test_a_half_request_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_IDLE_SECONDS", 0.1)
    async with ApiServer.in_memory() as server:
        sock = socket.create_server(("127.0.0.1", 0))
        await server.serve(sock, None)
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


async def test_a_server_that_closes_waits_for_no_client_that_keeps_its_connection(tmp_path: Path) -> None:
    certificates = ensure_certificates(tmp_path / "pki", ["127.0.0.1"])

    def connect(port: int) -> socket.socket:
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        idle = anybody.wrap_socket(socket.create_connection(("127.0.0.1", port)))
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        return socket.socket(fileno=idle.detach())  # from here on without TLS: it never ends its side

    def until_the_end(idle: socket.socket) -> None:
        idle.settimeout(20)
        with suppress(ConnectionResetError):
            while idle.recv(65536):
                continue

    async with ApiServer.in_memory() as server:
        sock = socket.create_server(("127.0.0.1", 0))
        await server.serve(sock, certificates.server_context())
        idle = await asyncio.to_thread(connect, sock.getsockname()[1])
    with idle:
        await asyncio.to_thread(until_the_end, idle)


async def test_one_user_holds_so_many_streams_and_no_more(
    https: Https, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "STREAMS_PER_USER", 1)
    admin = Client(https.server.transport())
    await reader(admin, https.server, "system:serviceaccount:default:one")
    account = "/api/v1/namespaces/default/serviceaccounts"
    await admin.create(account, {"metadata": {"name": "one"}})
    token = (await admin.create(f"{account}/one/token", {"spec": {}}))["status"]["token"]

    async def watched(bearer: str) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {bearer}"}
        return await https.session.get(f"{https.url}{CM}?watch=1", headers=headers)

    first = await watched(token)
    second = await watched(token)
    assert (first.status, second.status) == (200, 429)
    assert "system:serviceaccount:default" in (await second.json())["message"]
    assert (await https.send("GET", CM, token=token))[0] == 200
    others = [await watched(TOKEN), await watched(TOKEN)]
    assert [one.status for one in others] == [200, 200]
    for one in (first, *others):
        one.close()
    async with asyncio.timeout(10):
        while https.server._streams:
            await asyncio.sleep(0)


async def test_malformed_requests_leave_one_short_line(
    https: Https, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        assert (await raw(https, b"GET / HTTP/9\r\n" + b"x" * 500 + b"\r\n\r\n")).split()[1] == b"400"
    told = [record for record in caplog.records if "malformed request" in record.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info is None
    assert len(told[0].getMessage()) < 200
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{nope", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"a":' * 100_000, "application/json"),
        (b"k8s\x00\xff\xff\xff\xff\xff", "application/vnd.kubernetes.protobuf"),
        (b"k8s\x00", "application/vnd.kubernetes.protobuf"),
        (b"nothing", "application/vnd.kubernetes.protobuf"),
        (b"a: &a [*a]", "application/yaml"),
        (b"- - - [", "application/yaml"),
        (b"!!python/object/apply:os.system [ls]", "application/yaml"),
        (b'{"metadata":{"name":{"a":1}}}', "application/json"),
        (b'{"metadata":"x"}', "application/json"),
        (b'{"metadata":{"name":"a","labels":{"a":1}}}', "application/json"),
        (b'{"data":{"x":1e999}}', "application/json"),
    ],
)
async def test_a_broken_body_is_400_and_never_a_traceback(
    https: Https, body: bytes, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, _, answer = await https.send("POST", CM, data=body, Content_Type=kind)
    assert (status, answer["kind"], answer["reason"]) == (400, "Status", "BadRequest")
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("method", "body", "said"),
    [
        ("POST", b'{"apiVersion":5}', "Go struct field .apiVersion of type string"),
        ("POST", b'{"kind":[1]}', "cannot unmarshal array into Go struct field .kind"),
        (
            "DELETE",
            b'{"preconditions":5}',
            "Go struct field DeleteOptions.preconditions of type v1.Preconditions",
        ),
        ("DELETE", b'{"preconditions":{"uid":[]}}', "DeleteOptions.preconditions.uid"),
        ("DELETE", b'{"dryRun":1}', "DeleteOptions.dryRun of type []string"),
    ],
)
async def test_a_field_of_a_wrong_type_is_400_in_gos_words(
    https: Https, method: str, body: bytes, said: str
) -> None:
    path = CM if method == "POST" else f"{CM}/nope"

    status, _, answer = await https.send(method, path, data=body, Content_Type="application/json")

    assert (status, answer["reason"]) == (400, "BadRequest")
    assert said in answer["message"]


async def test_a_number_beyond_all_bounds_is_400(https: Https) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"size": {"type": "integer", "maximum": 10}},
                        }
                    },
                }
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    json = {"Content_Type": "application/json"}
    assert (await https.send("POST", path, data=msgspec.json.encode(definition), **json))[0] == 201
    thing = b'{"apiVersion":"test.dev/v1","kind":"Thing","metadata":{"name":"a"},"size":' + b"9" * 400 + b"}"

    status, _, answer = await https.send(
        "POST", "/apis/test.dev/v1/namespaces/default/things", data=thing, **json
    )

    assert status == 400, answer
    assert "out of range" in answer["message"]


@pytest.mark.parametrize("kind", ["merge-patch", "json-patch", "strategic-merge-patch"])
@pytest.mark.parametrize(
    "body", [b"", b"{nope", b"null", b"3", b'"x"', b"[1]", b'[{"op":"add"}]', b"[" * 50_000]
)
async def test_a_broken_patch_is_a_status(
    https: Https, body: bytes, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    await https.send("POST", CM, data=b'{"metadata":{"name":"a"}}', Content_Type="application/json")
    status, _, answer = await https.send(
        "PATCH", CM + "/a", data=body, Content_Type=f"application/{kind}+json"
    )
    assert status in (400, 422)
    assert answer["kind"] == "Status"
    assert not [record for record in caplog.records if record.exc_info]


async def raw(https: Https, text: bytes) -> bytes:
    """Send bytes as they are, for what no client library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", https.port, ssl=https.context)
    try:
        writer.write(text)
        async with asyncio.timeout(10):
            return await reader.read(4096)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "path",
    [
        b"/api/v1/../../etc/passwd",
        b"/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets",
        b"/%61pi/v1/%2e%2e/%2e%2e",
        b"/api/v1/namespaces/default/configmaps/%00",
        b"/api/v1/namespaces/default/configmaps/" + b"a" * 7000,
        b"//etc/passwd",
        b"/api/v1/namespaces/%ff%fe/pods/x",
    ],
)
async def test_path_tricks_find_nothing(https: Https, path: bytes) -> None:
    request = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + TOKEN.encode()
    answer = await raw(https, request + b"\r\nConnection: close\r\n\r\n")
    assert int(answer.split()[1]) in (400, 404)
    assert b"Traceback" not in answer


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_long_list_goes_out_in_pieces_and_is_whole(
    https: Https, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_is_near", lambda peer: encoding == "identity")
    client = Client(https.server.transport())
    made = [await client.create(CM, config_map(f"m{number}", blob="x" * 9000)) for number in range(100)]

    status, headers, body = await https.send("GET", CM, Accept_Encoding="gzip", User_Agent="test")
    pages = await client.get(CM, limit="60")
    pages["items"] += (await client.get(CM, limit="60", **{"continue": pages["metadata"]["continue"]}))[
        "items"
    ]

    assert (status, headers.get("Content-Encoding", "identity")) == (200, encoding)
    assert "Content-Length" not in headers
    assert body["kind"] == "ConfigMapList"
    bare = [{key: one[key] for key in one if key not in ("kind", "apiVersion")} for one in made]
    assert body["items"] == sorted(bare, key=lambda one: one["metadata"]["name"])
    assert body == await client.get(CM)
    assert pages["items"] == body["items"]


async def test_a_slow_watcher_is_closed_and_holds_up_nobody(
    https: Https, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_SLOW_CLIENT", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", https.port, ssl=https.context, limit=1024)
    head = f"GET {CM}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    client = Client(https.server.transport())
    filler = "x" * 200_000

    async with asyncio.timeout(30):
        number = 0
        while https.server.cluster.watchers:
            await client.create(CM, config_map(f"c{number}", x=filler))
            number += 1
            # Else a fast machine makes hundreds while the client is given its time.
            await asyncio.sleep(0.002)

    writer.transport.abort()
    assert number < 400


async def test_a_watch_whose_client_left_is_ended_though_nothing_happens(
    https: Https, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "_ALIVE_SECONDS", 0.05)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=https.context)) as session:
        await https.send("POST", CM, data=b'{"metadata":{"name":"a"}}', Content_Type="application/json")
        answer = await session.get(https.url + CM + "?watch=1", headers=headers)
        await answer.content.readline()
        assert https.server.cluster.watchers == 1
        answer.close()
    async with asyncio.timeout(10):
        while https.server.cluster.watchers:
            await asyncio.sleep(0.01)


async def test_a_bug_is_answered_without_its_insides(
    https: Https, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(reads, "_page", broken)
    status, _, body = await https.send("GET", CM)
    assert (status, body["reason"]) == (500, "InternalError")
    assert "hunter2" not in str(body)
    assert any(record.exc_info for record in caplog.records)


async def test_tokens_are_never_logged(https: Https, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    await https.send("GET", CM)
    await https.send("GET", CM, token="another-secret-token")
    assert TOKEN not in caplog.text
    assert "another-secret-token" not in caplog.text


async def test_certificates_are_kept_and_renamed_on_demand(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path, ["127.0.0.1"])
    authority, certificate = first.authority.read_bytes(), first.certificate.read_bytes()

    assert ensure_certificates(tmp_path, ["127.0.0.1"]).certificate.read_bytes() == certificate
    assert ensure_certificates(tmp_path, ["127.0.0.1", "new.host"]).certificate.read_bytes() != certificate
    assert first.authority.read_bytes() == authority
    assert oct(first.key.stat().st_mode)[-3:] == "600"


async def test_aggregated_discovery_answers_304_when_nothing_changed(https: Https) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    status, headers, body = await https.send("GET", "/apis", Accept=accept)
    assert (status, body["kind"]) == (200, "APIGroupDiscoveryList")
    status, _, body = await https.send("GET", "/apis", Accept=accept, If_None_Match=headers["ETag"])
    assert (status, body) == (304, b"")


async def test_openapi_refuses_protobuf_alone_and_serves_json(https: Https) -> None:
    wanted = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
    assert (await https.send("GET", "/openapi/v3/apis/apps/v1", Accept=wanted))[0] == 406
    status, _, body = await https.send("GET", "/openapi/v3/apis/apps/v1")
    assert status == 200
    patch = body["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert {p["name"] for p in patch["parameters"]} >= {"fieldValidation", "dryRun"}


async def test_a_write_is_refused_for_nothing_that_readers_do_not_see_yet(tmp_path: Path) -> None:
    async with ApiServer.open(tmp_path / "db") as server:
        client = Client(server.transport())
        for number in range(30):
            name = f"/api/v1/namespaces/default/configmaps/c{number}"
            await client.create(CM, config_map(f"c{number}"))
            deleting = asyncio.create_task(client.delete(name))
            while server.cluster.store.collection("configmaps").head(("default", f"c{number}")) is not None:
                await asyncio.sleep(0)
            assert not deleting.done(), "the deletion is staged, not committed"

            await client.refused(
                404, "PATCH", name, {"data": {}}, content_type="application/merge-patch+json"
            )

            await client.refused(404, "GET", name)
            await deleting
