"""pods/proxy and services/proxy, through to real servers on loopback that stand for pods."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.local.api.conftest import PODS, Client, pod
from tests.local.api.test_audit import events, policy

from mooring.local.api import ApiServer, User
from mooring.local.api.audit import AuditLog, Policy
from mooring.local.api.streams import links
from mooring.local.api.streams.links import Place
from mooring.local.api.tls import ensure_certificates

SERVICES = "/api/v1/namespaces/default/services"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
PROXY = f"{PODS}/p/proxy"
PAGE = b'<!-- <a href="/no"> -->\n<p>x<a class=c href="/x?a=1&amp;b=2">y</a>\n<A HREF=z>\xff<img src="/i.png"/></p>'
SEEN = (
    f'<!-- <a href="/no"> -->\n<p>x<a class="c" href="{PROXY}/x?a=1&amp;b=2">y</a>\n'.encode()
    + b"<A HREF=z>\xff"
    + f'<img src="{PROXY}/i.png"/></p>'.encode()
)

Json = Any


@dataclass
class Pod:
    """A program in a pod: says what it is sent, or does as its path says."""

    port: int = 0
    hung: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/large-page"):
            encoding = request.query.get("encoding", "")
            headers = {"Content-Type": "text/html", **({"Content-Encoding": encoding} if encoding else {})}
            return web.Response(body=_PACK[encoding](LARGE), headers=headers)
        if request.path.endswith("page"):
            encoding = request.query.get("encoding", "")
            body = _PACK[encoding](PAGE)
            return web.Response(body=body, content_type="text/html", headers={"Content-Encoding": encoding})
        match request.path:
            case "/moved":
                return web.Response(status=302, headers={"Location": request.query["to"]})
            case "/socket":
                return await self._talk(request)
            case "/stream":
                return await self._stream(request)
            case "/late":
                self.asked.set()
                await self.hung.wait()
            case "/empty":
                return web.Response(status=204)
            case "/quit":
                assert request.transport is not None
                request.transport.abort()
        return await self._said(request)

    async def _said(self, request: web.BaseRequest) -> web.StreamResponse:
        shown = {
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": (await request.content.read()).decode(),
        }
        response = web.json_response(shown, status=int(request.query.get("status", 200)))
        response.headers.extend(
            [
                ("X-Mine", "yes"),
                ("Set-Cookie", "a=1"),
                ("Set-Cookie", "b=2"),
                ("Access-Control-Allow-Origin", "*"),
                ("Connection", "keep-alive, x-hop"),
                ("X-Hop", "no"),
            ]
        )
        return response

    async def _talk(self, request: web.BaseRequest) -> web.StreamResponse:
        talk = web.WebSocketResponse(protocols=("mine",))
        await talk.prepare(request)
        async for message in talk:
            if message.data == "bye":
                break
            await talk.send_str(message.data.upper())
        await talk.close()
        return talk

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        try:
            await self.hung.wait()
            if "break" in request.query and request.transport is not None:
                request.transport.abort()
            await response.write(b"second")
        finally:
            self.left.set()
        return response


LARGE = b'<a href="/x">' + b" " * (2 * links.LARGEST_PAGE)


def _deflated(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


_PACK: Mapping[str, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress, "deflate": _deflated}
_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "deflate": lambda data: zlib.decompress(data, wbits=-15),
}


@pytest.fixture
async def served(server: ApiServer, api: Client) -> AsyncIterator[Pod]:
    """A pod p on loopback, whose first port is that of its program."""
    program = Pod()
    sock = socket.create_server(("127.0.0.1", 0))
    program.port = sock.getsockname()[1]
    # What is hung up on leaves at once.
    runner = web.ServerRunner(web.Server(program.answer, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, sock).start()
    server.cluster.proxies_to_loopback = True
    await running(api, "p", port=program.port)
    yield program
    program.hung.set()
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    admin = User("admin", groups=("system:masters",))
    async with ApiServer.in_memory(tokens={"t": admin, "u": User("ann")}) as started:
        yield started


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session:
        yield session


async def running(api: Client, name: str, *, port: int, address: str = "127.0.0.1") -> None:
    """Make a pod that has an address."""
    made = pod(name, node="n")
    made["spec"]["containers"][0]["ports"] = [{"containerPort": port}]
    await api.create(PODS, made)
    addresses = {"podIP": address, "podIPs": [{"ip": address}]}
    await api.merge(f"{PODS}/{name}/status", {"status": addresses})


async def exposed(api: Client, subset: Json, *, ports: Json = None) -> None:
    """Make a Service s with endpoints."""
    await api.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports or [{"port": 80}]}})
    await api.create(ENDPOINTS, {"metadata": {"name": "s"}, "subsets": [subset] if subset else []})


def of_pod(name: str) -> Json:
    return {"ip": "10.9.9.9", "targetRef": {"kind": "Pod", "namespace": "default", "name": name}}


async def moved_to_loopback(server: ApiServer) -> None:
    """Put the endpoints of s where the pod of a test is; the rules of Endpoints forbid it."""
    endpoints = server.cluster.store.collection("endpoints")
    entry = endpoints.head(("default", "s"))
    assert entry is not None
    (subset,) = entry.obj["subsets"]
    addresses = [{**address, "ip": "127.0.0.1"} for address in subset["addresses"]]
    obj = {**entry.obj, "subsets": [{**subset, "addresses": addresses}]}
    await server.cluster.store.put(endpoints, entry.place, obj, base=entry).committed()


# --- there ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_a_request_reaches_the_pod_as_it_was_sent(
    served: Pod, url: str, client: aiohttp.ClientSession, method: str
) -> None:
    body = b"text" if method in ("POST", "PUT", "PATCH") else None
    async with client.request(method, f"{url}{PROXY}/a%20b/c/?x=1&y", data=body) as answer:
        said = await answer.json()

    assert (said["method"], said["path"], said["body"]) == (method, "/a%20b/c/?x=1&y", (body or b"").decode())


async def test_head_has_the_headers_alone(served: Pod, url: str, client: aiohttp.ClientSession) -> None:
    async with client.head(f"{url}{PROXY}/") as answer:
        assert (answer.status, answer.headers["X-Mine"], await answer.read()) == (200, "yes", b"")
        assert int(answer.headers["Content-Length"]) > 0
    async with client.get(f"{url}{PROXY}/empty") as empty:
        assert (empty.status, await empty.read()) == (204, b"")


async def test_credentials_stay_and_what_it_came_through_is_told(
    served: Pod, url: str, client: aiohttp.ClientSession
) -> None:
    given = {
        "X-Forwarded-For": "192.0.2.7",
        "X-Mine": "kept",
        "Impersonate-User": "root",
        "Impersonate-Group": "system:masters",
        "Te": "trailers",
    }
    async with client.get(f"{url}{PROXY}/a/", headers=given) as answer:
        headers = (await answer.json())["headers"]

    assert not {"authorization", "impersonate-user", "impersonate-group", "te"} & headers.keys()
    assert headers["x-mine"] == "kept"
    assert headers["x-forwarded-for"] == "192.0.2.7, 127.0.0.1"
    assert headers["x-forwarded-uri"] == f"{PROXY}/a/"
    assert headers["host"] == url.removeprefix("http://")


async def test_a_large_body_is_handed_on_both_ways(
    served: Pod, url: str, client: aiohttp.ClientSession
) -> None:
    text = "x" * (5 << 20)  # more than an object may have

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 64 << 10):
            yield text[start : start + (64 << 10)].encode()

    async with client.post(f"{url}{PROXY}/", data=pieces()) as answer:
        assert (await answer.json())["body"] == text


async def test_a_pod_is_named_with_scheme_and_port(served: Pod, api: Client) -> None:
    for name in (f"p:{served.port}", f"http:p:{served.port}", "http:p:", "p:"):
        assert (await api.get(f"{PODS}/{name}/proxy/x"))["path"] == "/x"


async def test_tls_of_a_pod_is_not_verified(server: ApiServer, api: Client, tmp_path: Path) -> None:
    certificates = ensure_certificates(tmp_path, ["elsewhere.example.com"])
    sock = socket.create_server(("127.0.0.1", 0))
    runner = web.ServerRunner(web.Server(Pod().answer))
    await runner.setup()
    await web.SockSite(runner, sock, ssl_context=certificates.server_context()).start()
    server.cluster.proxies_to_loopback = True
    port = sock.getsockname()[1]
    await running(api, "p", port=port)

    said = await api.get(f"{PODS}/https:p:{port}/proxy/secure")

    await runner.cleanup()
    assert said["path"] == "/secure"


# --- and back -------------------------------------------------------------------------------------------


async def test_an_answer_comes_back_as_it_is(served: Pod, url: str, client: aiohttp.ClientSession) -> None:
    async with client.get(f"{url}{PROXY}/?status=418") as answer:
        assert (answer.status, answer.content_type) == (418, "application/json")
        assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]
        assert not {"X-Hop", "Access-Control-Allow-Origin"} & answer.headers.keys()


async def test_an_answer_comes_as_it_is_written(served: Pod, url: str, client: aiohttp.ClientSession) -> None:
    async with client.get(f"{url}{PROXY}/stream") as answer:
        assert await answer.content.read(5) == b"first"
        served.hung.set()
        assert await answer.content.read() == b"second"


async def test_a_client_of_http_1_0_reads_an_answer_to_its_end(served: Pod, url: str) -> None:
    served.hung.set()
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
    writer.write(f"GET {PROXY}/stream HTTP/1.0\r\nAuthorization: Bearer t\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert (head.split()[1], body) == (b"200", b"firstsecond")


async def test_an_answer_cut_short_is_cut_short_for_the_client(
    served: Pod, url: str, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{url}{PROXY}/stream?break=1") as answer:
        assert await answer.content.read(5) == b"first"
        served.hung.set()
        with pytest.raises(aiohttp.ClientError):
            await answer.content.read()


async def test_a_client_that_leaves_is_no_more_waited_for_by_the_pod(
    served: Pod, url: str, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.local.api.server._ALIVE_SECONDS", 0.02)
    async with client.get(f"{url}{PROXY}/stream") as answer:
        assert await answer.content.read(5) == b"first"
    async with asyncio.timeout(10):
        await served.left.wait()


async def test_an_answer_that_comes_when_the_client_is_gone_harms_nobody(
    served: Pod, api: Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what earlier tests left tells of itself now
    caplog.clear()
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as leaving:
        asking = asyncio.create_task(leaving.get(f"{url}{PROXY}/late"))
        await served.asked.wait()
        asking.cancel()
        await asyncio.wait((asking,))
    served.hung.set()

    assert (await api.get(f"{PROXY}/"))["path"] == "/"
    gc.collect()
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]


async def test_the_root_is_redirected_to_a_slash(
    served: Pod, url: str, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{url}{PROXY}?x=1", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (301, f"{PROXY}/?x=1")
    async with client.post(f"{url}{PROXY}") as answer:
        assert (await answer.json())["path"] == "/"


@pytest.mark.parametrize(
    ("to", "seen"),
    [
        ("/there/?x=1#y", PROXY + "/there/?x=1#y"),
        ("http://127.0.0.1:{port}/there", PROXY + "/there"),
        ("http://example.com/there", "http://example.com/there"),
        ("there", "there"),
        (PROXY + "/there", PROXY + "/there"),
    ],
)
async def test_a_redirection_leads_through_the_proxy(
    served: Pod, url: str, client: aiohttp.ClientSession, to: str, seen: str
) -> None:
    query = {"to": to.format(port=served.port)}
    async with client.get(f"{url}{PROXY}/moved", params=query, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, seen)


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
async def test_links_of_pages_lead_through_the_proxy(served: Pod, url: str, encoding: str) -> None:
    headers = {"Authorization": "Bearer t"}
    async with (
        aiohttp.ClientSession(headers=headers, auto_decompress=False) as client,
        client.get(f"{url}{PROXY}/page", params={"encoding": encoding}) as answer,
    ):
        body = await answer.read()
    assert _UNPACK[encoding](body) == SEEN


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
async def test_a_large_page_goes_through_as_it_is(served: Pod, url: str, encoding: str) -> None:
    headers = {"Authorization": "Bearer t"}
    async with (
        aiohttp.ClientSession(headers=headers, auto_decompress=False) as client,
        client.get(f"{url}{PROXY}/large-page", params={"encoding": encoding}) as answer,
    ):
        body = await answer.read()
    assert _UNPACK[encoding](body) == LARGE


def test_a_page_is_unpacked_no_further_than_it_is_used() -> None:
    place = Place("/proxy", ("10.1.1.1", "localhost:8001"))
    packed = gzip.compress(bytes(200 << 20), compresslevel=1)[: links.LARGEST_PAGE]
    tracemalloc.start()
    assert links.recoded(packed, "gzip", place) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("piece", [b"<a ", b'<a href="', b"<!--", b"</a ", b"&", b"<a '"])
def test_pages_take_the_time_of_their_length(piece: bytes) -> None:
    place = Place("/proxy", ("10.1.1.1", "localhost:8001"))
    began = time.process_time()
    links.rewritten_page(piece * (150_000 // len(piece)), place)
    assert time.process_time() - began < 5


def test_scripts_and_what_is_no_page_stay_as_they_are() -> None:
    place = Place("/proxy", ("10.1.1.1", "localhost:8001"))
    script = b'<script>if (a < b) { x = "<a href=\'/x\'>" }</script><a href="/x'
    assert links.rewritten_page(script, place) == script
    assert links.recoded(script, "br", place) is None
    with pytest.raises(ValueError, match="header"):
        links.recoded(b"no gzip", "gzip", place)
    assert place.through("http://localhost:8001/x") == "http://localhost:8001/proxy/x"
    assert links.rewritten_page(b'<a href="//[">', place) == b'<a href="//[">'


async def test_a_websocket_goes_through(served: Pod, url: str, client: aiohttp.ClientSession) -> None:
    async with client.ws_connect(f"{url}{PROXY}/socket", protocols=("mine",)) as talk:
        assert talk.protocol == "mine"
        for text in ("a", "b" * 100_000):
            await talk.send_str(text)
            assert await talk.receive_str() == text.upper()
        await talk.send_str("bye")
        assert (await talk.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_an_upgrade_that_is_refused_is_answered(
    served: Pod, url: str, client: aiohttp.ClientSession
) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "mine"}
    async with client.get(f"{url}{PROXY}/?status=403", headers=upgrade) as answer:
        assert (answer.status, (await answer.json())["headers"]["upgrade"]) == (403, "mine")
    async with client.get(f"{url}{PROXY}/", headers=upgrade) as answer:
        status = await answer.json()
    assert (status["code"], status["message"]) == (500, "invalid upgrade response: status code 200")


# --- services -------------------------------------------------------------------------------------------


async def test_a_service_leads_to_a_ready_pod_by_name_or_number_of_a_port(
    served: Pod, api: Client, server: ApiServer
) -> None:
    subset = {"addresses": [of_pod("p")], "ports": [{"name": "web", "port": served.port}]}
    await exposed(api, subset, ports=[{"name": "web", "port": 80}])
    await moved_to_loopback(server)

    for name in ("s:web", "s:80", "http:s:web"):
        assert (await api.get(f"{SERVICES}/{name}/proxy/x"))["path"] == "/x"
    status = await api.refused(503, "GET", f"{SERVICES}/s/proxy/")
    assert status["message"] == 'no endpoints available for service "s"'
    status = await api.refused(503, "GET", f"{SERVICES}/s:81/proxy/")
    assert status["message"] == 'no service port 81 found for service "s"'


@pytest.mark.parametrize(
    "address",
    [{"ip": "10.9.9.9"}, of_pod("gone"), of_pod("p")],
    ids=["by hand", "of a pod that is gone", "that a pod has no more"],
)
async def test_an_endpoint_that_is_no_pod_is_not_proxied_to(served: Pod, api: Client, address: Json) -> None:
    await exposed(api, {"addresses": [address], "ports": [{"port": served.port}]})

    status = await api.refused(503, "GET", f"{SERVICES}/s/proxy/")

    assert (status["reason"], status["message"]) == (
        "ServiceUnavailable",
        'no endpoints available for service "s"',
    )


# --- what goes wrong ------------------------------------------------------------------------------------


async def test_what_is_not_there_is_said(api: Client) -> None:
    for path, kind in ((PODS, "pods"), (SERVICES, "services")):
        status = await api.refused(404, "GET", f"{path}/none/proxy/")
        assert status["message"] == f'{kind} "none" not found'
        assert status["details"] == {"name": "none", "kind": kind}
    assert (await api.refused(404, "GET", f"{SERVICES}/none:80/proxy/"))["details"]["name"] == "none"
    await exposed(api, None)
    status = await api.refused(503, "GET", f"{SERVICES}/s:x/proxy/")
    assert status["message"] == 'no endpoints available for service "s"'


async def test_a_pod_that_does_not_answer_is_said(served: Pod, api: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        free = sock.getsockname()[1]
    reasons = {
        f"p:{free}/proxy/": f"dial tcp 127.0.0.1:{free}: connect: connection refused",
        "p:web/proxy/": "dial tcp: lookup tcp/web: unknown port",
        "p:70000/proxy/": "dial tcp: address 70000: invalid port",
        "p/proxy/quit": "EOF",
        f"https:p:{served.port}/proxy/": "http: server gave HTTP response to HTTPS client",
    }
    for path, why in reasons.items():
        status = await api.refused(503, "GET", f"{PODS}/{path}")
        assert (status["reason"], status["message"]) == (
            "ServiceUnavailable",
            f"error trying to reach service: {why}",
        )


@pytest.mark.parametrize("address", ["", "127.0.0.1", "169.254.169.254", "224.0.0.1", "::1"])
async def test_what_is_no_address_of_a_pod_is_not_proxied_to(api: Client, address: str) -> None:
    if address:
        await running(api, "p", port=80, address=address)
    else:
        await api.create(PODS, pod(node="n"))
    status = await api.refused(400, "GET", f"{PROXY}/")
    assert (status["reason"], status["message"]) == ("BadRequest", "address not allowed")


@pytest.mark.parametrize("name", ["a:b:c", "a:b:c:d", ":80", "ftp:p:21"])
async def test_names_that_are_wrong_are_refused(api: Client, name: str) -> None:
    status = await api.refused(400, "GET", f"{PODS}/{name}/proxy/")
    assert status["message"] == f'invalid pod request "{name}"'
    status = await api.refused(400, "GET", f"{SERVICES}/{name}/proxy/")
    assert status["message"] == f'invalid service request "{name}"'


async def test_a_dry_run_is_refused(served: Pod, api: Client) -> None:
    status = await api.refused(400, "POST", f"{PROXY}/", dryRun="All")
    assert status["message"] == "dryRun is not supported"


# --- who may --------------------------------------------------------------------------------------------


async def test_the_method_is_the_verb_that_roles_allow(
    served: Pod, api: Client, server: ApiServer, url: str
) -> None:
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get", "create"]}]
    await api.create(f"/apis/{group}/v1/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}],
    }
    await api.create(f"/apis/{group}/v1/clusterrolebindings", binding)
    ann = Client(server.transport(user=User("ann")))

    await ann.get(f"{PROXY}/")
    await ann.ok("POST", f"{PROXY}/", {})
    for method, verb in {"PUT": "update", "PATCH": "patch", "DELETE": "delete", "OPTIONS": ""}.items():
        status = await ann.refused(403, method, f"{PROXY}/")
        assert f'cannot {verb} resource "pods/proxy"' in status["message"]
    await ann.refused(403, "GET", f"{SERVICES}/s/proxy/")


async def test_policies_are_asked_about_the_connection(served: Pod, api: Client) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CONNECT"],
        "resources": ["pods/proxy"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.kind == 'PodProxyOptions' && object.path != '/secret/'"}],
    }
    await api.create(POLICIES, {"metadata": {"name": "no"}, "spec": spec})
    binding = {"metadata": {"name": "no"}, "spec": {"policyName": "no", "validationActions": ["Deny"]}}
    await api.create(POLICIES.replace("policies", "policybindings"), binding)

    await api.refused(422, "GET", f"{PROXY}/secret/")
    assert (await api.get(f"{PROXY}/open"))["path"] == "/open"


async def test_the_audit_log_has_its_beginning_and_its_end(
    served: Pod, server: ApiServer, url: str, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    log = tmp_path / "audit.jsonl"
    server.audit = AuditLog(log, Policy.read(policy({"level": "Request"})), now=server.cluster.now)
    async with client.post(f"{url}{PROXY}/a?b", json={"secret": 1}) as answer:
        msgspec.json.decode(await answer.read())
    async with asyncio.timeout(10):
        while b"ResponseComplete" not in log.read_bytes():
            await asyncio.sleep(0.01)

    assert [event["stage"] for event in events(log)] == [
        "RequestReceived",
        "ResponseStarted",
        "ResponseComplete",
    ]
    last = events(log)[-1]
    assert (last["requestURI"], last["verb"], last["responseStatus"]["code"]) == (
        f"{PROXY}/a?b",
        "create",
        200,
    )
    assert last["objectRef"] == {
        "resource": "pods",
        "namespace": "default",
        "name": "p",
        "apiVersion": "v1",
        "subresource": "proxy",
    }
    assert "secret" not in log.read_text()
