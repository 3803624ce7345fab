"""A server in memory and a client that speaks JSON, for every test of the API server."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from mooring.kube.transport import Response, StreamResponse, Transport
from mooring.local.api import ApiServer, User

Json = Any


@dataclass(frozen=True)
class Client:
    """Sends JSON and reads JSON."""

    transport: Transport

    async def send(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> Response:
        encoded = body if isinstance(body, (bytes, type(None))) else msgspec.json.encode(body)
        sent = {"Content-Type": content_type, **(headers or {})} if encoded is not None else headers
        return await self.transport.request(method, path, query=query, body=encoded, headers=sent)

    async def ok(self, method: str, path: str, body: Json = None, **options: Any) -> Json:
        """Send a request that must succeed and return its body."""
        response = await self.send(method, path, body, **options)
        assert response.status < 300, response.body
        return msgspec.json.decode(response.body)

    async def refused(self, status: int, method: str, path: str, body: Json = None, **options: Any) -> Json:
        """Send a request that must fail and return its Status."""
        response = await self.send(method, path, body, **options)
        assert response.status == status, response.body
        return msgspec.json.decode(response.body)

    async def get(self, path: str, **query: str) -> Json:
        return await self.ok("GET", path, **query)

    async def create(self, path: str, body: Json, **options: Any) -> Json:
        return await self.ok("POST", path, body, **options)

    async def merge(self, path: str, patch: Json, **options: Any) -> Json:
        return await self.ok("PATCH", path, patch, content_type="application/merge-patch+json", **options)

    async def apply(self, path: str, body: Json, manager: str = "me", **options: Any) -> Json:
        return await self.ok(
            "PATCH", path, body, content_type="application/apply-patch+yaml", fieldManager=manager, **options
        )

    async def delete(self, path: str, body: Json = None, **options: Any) -> Json:
        return await self.ok("DELETE", path, body, **options)

    def stream(self, path: str, **query: str) -> AbstractAsyncContextManager[StreamResponse]:
        return self.transport.stream("GET", path, query=query)


@asynccontextmanager
async def lines(stream: AbstractAsyncContextManager[StreamResponse]) -> AsyncIterator[AsyncIterator[Json]]:
    """Yield the decoded lines of a stream."""
    async with stream as response:
        assert response.status == 200

        async def decoded() -> AsyncIterator[Json]:
            async for line in response:
                yield msgspec.json.decode(line)

        yield decoded()


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """A started server in memory."""
    async with ApiServer.in_memory() as started:
        yield started


@pytest.fixture
async def url(server: ApiServer) -> str:
    """Where the server is reached over HTTP."""
    sock = socket.create_server(("127.0.0.1", 0))
    await server.serve(sock, None)
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
async def api(server: ApiServer) -> Client:
    """A client of the server, as the administrator."""
    return Client(server.transport())


async def reader(api: Client, server: ApiServer, name: str = "ann") -> Client:
    """A client of a user who may read everything, and is no administrator."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    await api.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": f"view-{name}"},
            "roleRef": role,
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        },
    )
    return Client(server.transport(user=User(name, groups=("system:authenticated",))))


def config_map(name: str = "a", **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str = "p", *, node: str = "", labels: dict[str, str] | None = None) -> Json:
    spec: Json = {"containers": [{"name": "c", "image": "redis:7"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def definition(group: str = "example.com", **version: Any) -> Json:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [one],
        },
    }


CM = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
