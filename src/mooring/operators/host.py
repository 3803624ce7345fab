"""Operators in this process: one manager and one Lease each; they share caches, metrics and probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from mooring.cache import InformerPool, SystemClock
from mooring.kube import Client, Forbidden, Key, NotFound
from mooring.kube.object import Object
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.presence import Presence
from mooring.operators.registry import Operator
from mooring.operators.workload.scope import lease_name
from mooring.runtime import Election, Health, LeaseLost, Manager, Metrics, ProbeServer
from mooring.runtime.crd_install import install_crds, served, unserved
from mooring.runtime.webhooks import Webhook, WebhookServer
from mooring.runtime.webhooks_keeper import Registration, WebhookKeeper

__all__ = ["Operate", "Webhooks", "apply_crds", "operate"]

log = structlog.get_logger("mooring.operators")

LONGEST_WAIT: Final = 60.0
"""Most seconds between two checks whether a kind is served; the first ones are closer together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """How the API server reaches the webhooks of this process.

    It uses ``service``, the name of a Service in the operators' namespace, or ``url``; without both a URL of this
    machine's loopback, for an API server in the same process. ``inject_only`` leaves the webhook configurations to a
    chart and sets only their CA bundles. ``port`` 0 takes any free port.
    """

    service: str = ""
    url: str = ""
    host: str = "127.0.0.1"
    port: int = 9443
    inject_only: bool = False

    @property
    def secret(self) -> str:
        """The Secret with the certificates that all replicas share."""
        return f"{self.service or 'mooring-webhooks'}-certificates"

    def registration(self, name: str, *, namespace: str, port: int) -> Registration:
        """The registration at the API server; ``port`` is the one that is bound."""
        if self.service:
            return Registration(name=name, service=Key(namespace, self.service), inject_only=self.inject_only)
        url = self.url or f"https://{self.host}:{port}"
        return Registration(name=name, url=url, inject_only=self.inject_only)


@dataclass(frozen=True, slots=True)
class Operate:
    """How to run operators.

    ``namespace`` holds their Leases; namespaced operators hold theirs where they work. ``namespaces`` restricts what
    is watched; none means all. With ``again`` an operator that loses its Lease stands for election again, and the others
    go on; without it the process fails. ``identity`` is the holder of the Leases, by default a new name for each
    process; a fixed one takes its own Lease back at once after a crash, and is safe only if the former process is
    certainly dead. ``election`` has times of the Leases in seconds, by their names in
    :class:`~mooring.runtime.Election`. Without ``webhooks`` none are served.
    """

    operators: Sequence[Operator]
    scope: str = "all"
    namespace: str = "mooring-system"
    namespaces: Sequence[str] = ()
    workers: int = 8
    host: str = "127.0.0.1"
    metrics_port: int | None = None
    probe_port: int | None = None
    elect: bool = True
    again: bool = False
    identity: str = ""
    election: Mapping[str, float] = field(default_factory=dict)
    webhooks: Webhooks | None = None

    @property
    def lease_namespace(self) -> str:
        """Where the Leases are: a namespaced operator's in the first of its namespaces."""
        return self.namespaces[0] if self.scope == "namespaced" and self.namespaces else self.namespace


async def operate(client: Client, how: Operate) -> None:
    """Run operators until cancelled, then stop them in order."""
    if not how.operators:
        return
    if how.elect:
        await _ensure_namespace(client, how.lease_namespace)
    # The servers end last: until the operators have stopped, reviews and probes are still answered.
    async with _Shared(how) as shared, _webhooks(client, how) as server:
        if server is not None:
            server.metrics.register(shared.metrics.registry)
        async with asyncio.TaskGroup() as group:
            for operator in how.operators:
                group.create_task(_run(client, operator, how, server, shared), name=operator.name)


class _Shared:
    """What the operators of a process have in common: caches, numbers, health, and the ports that show them."""

    def __init__(self, how: Operate) -> None:
        self.missing: dict[str, str] = {}
        """What operators wait for before they can start, by name."""
        self._operators = len(how.operators)
        self.pool = InformerPool()
        self.metrics = Metrics()
        self.health = Health(SystemClock(), self.metrics)
        self._server = ProbeServer(
            self.metrics,
            self.health,
            host=how.host,
            metrics_port=how.metrics_port,
            probe_port=how.probe_port,
        )

    async def __aenter__(self) -> _Shared:
        self.health.start()
        try:
            await self._server.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()
        await self.health.stop()

    def trouble(self, operator: Operator) -> str:
        """Why an operator that has not started blocks readiness.

        A waiting operator blocks readiness only if no other operator in the process is running.
        """
        missing = self.missing.get(operator.name)
        if missing is None:
            return "not begun"
        return missing if len(self.missing) == self._operators else ""


def _hooks(client: Client, operator: Operator, how: Operate) -> Sequence[Webhook[Any]]:
    return operator.webhooks(client, clock=SystemClock(), scope=how.scope, namespaces=tuple(how.namespaces))


@asynccontextmanager
async def _webhooks(client: Client, how: Operate) -> AsyncIterator[WebhookServer | None]:
    """The server of all operators' webhooks, on every replica; ``None`` when there is none to serve."""
    # Both Redis operators have the kinds of Redis' backups, and review them alike.
    hooks = list(
        {hook.path: hook for operator in how.operators for hook in _hooks(client, operator, how)}.values()
    )
    if how.webhooks is None or not hooks:
        yield None
        return
    server = WebhookServer(hooks, host=how.webhooks.host, port=how.webhooks.port)
    server.bind()
    task = asyncio.create_task(server.serve(client, Key(how.namespace, how.webhooks.secret)), name="webhooks")
    task.add_done_callback(_webhooks_ended)
    try:
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _webhooks_ended(task: asyncio.Task[None]) -> None:
    """Log the failure; operators go on without webhooks, and the readiness probe reports it."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("the webhook server failed", error=str(failure))


def _keep_webhooks(
    manager: Manager, client: Client, operator: Operator, how: Operate, server: WebhookServer
) -> None:
    """Let the leader of an operator keep certificates and registration."""
    hooks = _hooks(client, operator, how)
    if how.webhooks is None or not hooks:
        return
    keeper = WebhookKeeper(
        manager.client.live,
        hooks,
        secret=Key(how.namespace, how.webhooks.secret),
        registration=how.webhooks.registration(
            lease_name(operator.name, how.scope), namespace=how.namespace, port=server.port
        ),
        clock=manager.clock,
    )
    manager.serve(f"{operator.name} webhooks", keeper.run)
    manager.health.ready("webhooks", server.trouble)


async def _run(
    client: Client, operator: Operator, how: Operate, server: WebhookServer | None, shared: _Shared
) -> None:
    shared.health.ready(f"{operator.name} informers", lambda: shared.trouble(operator))
    while True:
        await _defined(client, operator, how, shared)
        waiting = await _missing(client, operator.backups, how)
        clock = SystemClock()
        election = _election(operator, how) if how.elect else None
        manager = Manager(
            client,
            name=operator.name,
            clock=clock,
            election=election,
            pool=shared.pool,
            metrics=shared.metrics,
            health=shared.health,
        )
        options = {"backups": False} if waiting else {}
        operator.register(
            manager, scope=how.scope, namespaces=tuple(how.namespaces), workers=how.workers, **options
        )
        if election is not None and how.scope == "namespaced" and len(how.namespaces) > 1:
            presence = Presence(
                manager.client.live,
                election.name,
                how.namespaces[1:],
                identity=election.identity,
                clock=clock,
            )
            manager.serve(f"{operator.name} presence", presence.run)
        if server is not None:
            _keep_webhooks(manager, client, operator, how, server)
        try:
            async with _waiting(client, operator, how, manager, waiting):
                await manager.run()
        except LeaseLost:
            if not how.again:
                raise
            log.warning("lost the lease; standing for election again", operator=operator.name)


async def _defined(client: Client, operator: Operator, how: Operate, shared: _Shared) -> None:
    """Wait until an operator's kinds are served, but those of backups; the other operators do not wait."""
    kinds = [kind for kind in operator.kinds if kind not in operator.backups]
    wait = 1.0
    while missing := await _missing(client, kinds, how):
        shared.missing[operator.name] = "; ".join(missing)
        log.warning(
            "the operator waits for its kinds: `mooring crds apply` defines them, `--operators` leaves it out",
            operator=operator.name,
            missing=missing,
        )
        await asyncio.sleep(wait)
        wait = min(LONGEST_WAIT, wait * 2)
    shared.missing.pop(operator.name, None)


async def _missing(client: Client, kinds: Iterable[type[Object]], how: Operate) -> list[str]:
    """Which of these kinds cannot be listed, and why."""
    namespace = _namespace(how)
    # An operator of some namespaces may not list what belongs to the whole cluster.
    listed = [kind for kind in kinds if kind.resource.namespaced or not namespace]
    return await unserved(client, listed, namespace=namespace)


def _namespace(how: Operate) -> str:
    """Where kinds are listed to see whether they are served; "" for everywhere."""
    return how.namespaces[0] if how.namespaces else ""


@asynccontextmanager
async def _waiting(
    client: Client, operator: Operator, how: Operate, manager: Manager, missing: Sequence[str]
) -> AsyncIterator[None]:
    """While a manager runs without the kinds of backups: stop it once they are served; the next one has them."""

    async def take_up() -> None:
        wait = 1.0
        while not await served(client, operator.backups, namespace=_namespace(how)):
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, wait * 2)
        log.info(
            "the kinds of backups are served: the operator begins again with them", operator=operator.name
        )
        manager.stop()

    if not missing:
        yield
        return
    log.warning(
        "the operator manages its clusters; backups wait for their kinds: `mooring crds apply` defines them",
        operator=operator.name,
        missing=missing,
    )
    task = asyncio.create_task(take_up(), name=f"{operator.name} backups")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _election(operator: Operator, how: Operate) -> Election:
    election = Election(lease_name(operator.name, how.scope), how.lease_namespace, identity=how.identity)
    times: Mapping[str, Any] = how.election
    return replace(election, **times)


async def _ensure_namespace(client: Client, name: str) -> None:
    try:
        await client.get(Namespace, name)
    except NotFound:
        await client.apply(Namespace(metadata=ObjectMeta(name=name)))
    except Forbidden:
        log.debug("may not look at the namespace", namespace=name)


async def apply_crds(client: Client, operators: Sequence[Operator]) -> None:
    """Server-side apply the definitions of these operators and wait until they are served."""
    kinds = dict.fromkeys(kind for operator in operators for kind in operator.kinds)
    await install_crds(client, list(kinds))
