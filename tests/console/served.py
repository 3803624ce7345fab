"""A console that is served to others, over the embedded API server in this process, with an audit log."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from tests.console.bed import ADMIN, ANN, BOB, CRDS, RBAC, REDIS, bound, definitions
from tests.console.held import held

from mooring.cache import Clock, SystemClock
from mooring.catalog import packaged
from mooring.console import Console, ConsoleOptions, Settings, Upstream
from mooring.kube import Client, Config
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api import ApiServer, User
from mooring.local.api.access.authentication import Authenticator
from mooring.local.api.audit import AuditLog, Policy

ORIGIN, HOST = "https://console.example", "console.example"
CONSOLE = "console-token"
AUTHENTICATED = ("system:authenticated",)
API = "rbac.authorization.k8s.io"
Json = Any


@dataclass(kw_only=True)
class Reply:
    """An answer, its cookies and everything in it."""

    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Json:
        return json.loads(self.text)


@dataclass(kw_only=True)
class Browser:
    """A browser behind a proxy that ends TLS: it keeps cookies by name, and sends what a page would."""

    url: str
    http: aiohttp.ClientSession
    csrf: str = "sign-in"
    cookies: dict[str, str] = field(default_factory=dict)
    always: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    async def send(self, method: str, path: str, body: Json = None, **headers: str) -> Reply:
        sent = {"Host": HOST, "Origin": ORIGIN, "X-Mooring-Csrf": self.csrf, **self.always}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        where = self.url + (path if path.startswith("/") else f"/api/v1/{path}")
        async with self.http.request(
            method,
            where,
            data=None if body is None else json.dumps(body),
            headers=sent,
            allow_redirects=False,
        ) as answer:
            for name, morsel in answer.cookies.items():
                self.cookies[name] = morsel.value
                if not morsel.value:
                    del self.cookies[name]
            text = await answer.text()
            if path.partition("?")[0] != "stream":
                held(method, where.removeprefix(self.url), answer.status, answer.content_type, text)
        self.seen.append(text)
        return Reply(status=answer.status, headers=answer.headers, text=text)

    async def signed_in(self, token: str = "") -> Browser:
        if token:
            reply = await self.send("POST", "session", {"token": token})
        else:
            reply = await self.send("GET", "session")
        assert reply.status == 200, reply.text
        self.csrf = reply.json["csrf"]
        return self

    def at(self, url: str) -> Browser:
        """The same browser, led to another replica."""
        return replace(self, url=url)


@dataclass(kw_only=True)
class Cluster:
    """An API server, and consoles of it."""

    server: ApiServer
    admin: Client
    url: str
    log: Path
    _stack: AsyncExitStack
    _http: aiohttp.ClientSession

    def browser(self, url: str, **always: str) -> Browser:
        return Browser(
            url=url, http=self._http, always={name.replace("_", "-"): text for name, text in always.items()}
        )

    async def console(self, clock: Clock | None = None, **settings: Any) -> str:
        """Start a console; where it listens."""
        options = ConsoleOptions(
            entries={entry.name: entry for entry in packaged()},
            settings=Settings(url=ORIGIN, **settings),
            clock=clock or SystemClock(),
        )
        console = Console(Upstream.of(Config(server=self.url, token=CONSOLE)), options)
        sock = bound()
        self._stack.push_async_callback(console.stop)
        await console.start(sock)
        return f"http://127.0.0.1:{sock.getsockname()[1]}"

    async def post(self, path: str, body: Json) -> None:
        await self.admin.request("POST", path, body=json.dumps(body).encode())

    async def redis(self, namespace: str, name: str, **spec: Json) -> None:
        kind = {"apiVersion": "redis.kun/v1beta1", "kind": "RedisCluster"}
        await self.post(REDIS.format(namespace), {**kind, "metadata": {"name": name}, "spec": spec})

    async def grant(
        self, namespace: str, verbs: list[str], *, user: str = "", group: str = "", resource: str = ""
    ) -> None:
        """Let a user or a group do something with Redis, or another resource, in a namespace."""
        name = f"{user or group}-{resource.replace('/', '-') or 'redis'}"
        group_of = "" if resource else "redis.kun"
        rules = [{"apiGroups": [group_of], "resources": [resource or "redisclusters"], "verbs": verbs}]
        await self.post(RBAC.format(namespace, "roles"), {"metadata": {"name": name}, "rules": rules})
        subject = {"apiGroup": API, "kind": "User" if user else "Group", "name": user or group}
        role = {"apiGroup": API, "kind": "Role", "name": name}
        body = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        await self.post(RBAC.format(namespace, "rolebindings"), body)

    def know(self, token: str, user: User) -> None:
        """Let the API server take one more token, as one that knows the provider would."""
        known = self.server.authenticator
        more = Authenticator({token: user}, known._authority, known._store)
        known._users |= more._users

    def forget(self, token: str) -> None:
        """Let the API server take a token no more, as when it has expired."""
        known = self.server.authenticator
        for key in Authenticator({token: User("")}, known._authority, known._store)._users:
            del known._users[key]

    async def audited(self) -> list[Json]:
        """The requests so far that were answered, as the log has them."""
        audit = self.server.audit
        assert audit is not None
        while audit._lines or (audit._writing is not None and not audit._writing.done()):
            await asyncio.sleep(0.001)
        lines = await asyncio.to_thread(self.log.read_text)
        events = [json.loads(line) for line in lines.splitlines()]
        return [one for one in events if one["stage"] != "RequestReceived"]


def _audit(server: ApiServer, log: Path) -> AuditLog:
    policy = Policy.read(
        {"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": [{"level": "Metadata"}]}
    )
    return AuditLog(log, policy, now=server.cluster.now)


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    """A cluster with the namespaces team-a, team-b and team-c, and the rights of the console's account."""
    tokens = {
        ADMIN: User("root", groups=("system:masters", *AUTHENTICATED)),
        ANN: User("ann", groups=AUTHENTICATED),
        BOB: User("bob", groups=AUTHENTICATED),
        CONSOLE: User("console", groups=AUTHENTICATED),
    }
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer.in_memory(tokens=tokens))
        admin = Client(server.transport())
        for definition in definitions():
            await admin.request("POST", CRDS, body=definition)
        for name in ("team-a", "team-b", "team-c"):
            await admin.create(Namespace(metadata=ObjectMeta(name=name)))
        server.audit = _audit(server, directory / "audit.log")
        api = bound()
        await server.serve(api, None)
        http = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        made = Cluster(
            server=server,
            admin=admin,
            url=f"http://127.0.0.1:{api.getsockname()[1]}",
            log=directory / "audit.log",
            _stack=stack,
            _http=http,
        )
        await made.post(
            f"/apis/{API}/v1/clusterroles", {"metadata": {"name": "console"}, "rules": list(_rules())}
        )
        role = {"apiGroup": API, "kind": "ClusterRole", "name": "console"}
        subjects = [{"apiGroup": API, "kind": "User", "name": "console"}]
        body = {"metadata": {"name": "console"}, "roleRef": role, "subjects": subjects}
        await made.post(f"/apis/{API}/v1/clusterrolebindings", body)
        yield made


def _rules() -> Iterator[Json]:
    """What the chart grants, with impersonation."""
    watch = ["list", "watch"]
    groups = ["redis.kun", "redis.middleware.hc.cn"]
    yield {"apiGroups": groups, "resources": ["redisclusters"], "verbs": watch}
    yield {"apiGroups": [""], "resources": ["events", "namespaces"], "verbs": watch}
    yield {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}


def new_key() -> str:
    """A line of a file of session keys."""
    return base64.b64encode(os.urandom(32)).decode()
