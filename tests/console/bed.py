"""A console over the embedded API server in this process, and browsers that send what its page would."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import aiohttp
import pytest
from tests.console.held import held

from mooring.catalog import packaged
from mooring.console import Console, ConsoleOptions, Upstream
from mooring.kube import Client, Config
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api import ApiServer, User
from mooring.operators.registry import OPERATORS
from mooring.runtime import render_crd

ADMIN, ANN, BOB = "admin-token", "ann-token", "bob-token"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REDIS = "/apis/redis.kun/v1beta1/namespaces/{}/redisclusters"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{}"
VALUES = {"size": 3, "image": "redis:7.0"}
SECRET = "s3cret-word"
Json = Any


def bound() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    return sock


@dataclass
class Bed:
    """A console over an API server; ``url`` is the console's, ``admin`` writes to the API server."""

    console: Console
    url: str
    admin: Client

    async def post(self, path: str, body: Json) -> None:
        await self.admin.request("POST", path, body=json.dumps(body).encode())

    async def grant(
        self, user: str, namespace: str, group: str, resources: list[str], verbs: list[str]
    ) -> None:
        name = f"{user}-{resources[0]}"
        rules = [{"apiGroups": [group], "resources": resources, "verbs": verbs}]
        await self.post(RBAC.format(namespace, "roles"), {"metadata": {"name": name}, "rules": rules})
        api = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        }
        await self.post(RBAC.format(namespace, "rolebindings"), binding)

    async def redis(self, namespace: str, name: str, **spec: Json) -> None:
        body = {
            "apiVersion": "redis.kun/v1beta1",
            "kind": "RedisCluster",
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.post(REDIS.format(namespace), body)


@cache
def definitions() -> tuple[bytes, ...]:
    """The definitions of all operators' kinds as JSON, made once: it takes as long as the API server needs to take them."""
    kinds = dict.fromkeys(kind for operator in OPERATORS.values() for kind in operator.kinds)
    return tuple(json.dumps(render_crd(kind)).encode() for kind in kinds)


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    authenticated = ("system:authenticated",)
    tokens = {
        ADMIN: User("root", groups=("system:masters", *authenticated)),
        ANN: User("ann", groups=authenticated),
        BOB: User("bob", groups=authenticated),
    }
    async with ApiServer.in_memory(tokens=tokens) as server:
        admin = Client(server.transport())
        for definition in definitions():
            await admin.request("POST", CRDS, body=definition)
        for name in ("team-a", "team-b"):
            await admin.create(Namespace(metadata=ObjectMeta(name=name)))
        api = bound()
        await server.serve(api, None)
        config = Config(server=f"http://127.0.0.1:{api.getsockname()[1]}", token=ADMIN)
        options = ConsoleOptions(entries={entry.name: entry for entry in packaged()})
        console = Console(Upstream.of(config), options)
        sock = bound()
        await console.start(sock)
        try:
            yield Bed(console, f"http://127.0.0.1:{sock.getsockname()[1]}", admin)
        finally:
            await console.stop()


class Browser:
    """Sends what a page of the console would, and keeps cookies."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.csrf = "sign-in"
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def send(self, method: str, path: str, body: Json = None, **headers: str) -> tuple[int, Json, str]:
        sent = {"Origin": self.url, "Sec-Fetch-Site": "same-origin", "X-Mooring-Csrf": self.csrf}
        data = None if body is None else json.dumps(body).encode()
        sent |= {"Content-Type": "application/json"} if data is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in sent.items() if value}
        async with self.http.request(method, f"{self.url}/api/v1/{path}", data=data, headers=sent) as answer:
            text = await answer.text()
            held(method, f"/api/v1/{path}", answer.status, answer.content_type, text)
            return answer.status, json.loads(text), text

    async def ok(self, method: str, path: str, body: Json = None) -> Json:
        status, answer, text = await self.send(method, path, body)
        assert status < 300, text
        return answer

    async def signed_in(self, token: str) -> Browser:
        self.csrf = (await self.ok("POST", "session", {"token": token}))["csrf"]
        return self


@pytest.fixture
async def browsers(bed: Bed) -> AsyncIterator[list[Browser]]:
    made = [Browser(bed.url) for _ in range(3)]
    yield made
    for browser in made:
        await browser.http.close()
