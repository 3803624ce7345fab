"""Operators in this process: one manager and one Lease each, over shared caches and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from mooring.cache import SystemClock
from mooring.kube import ApiError, Client, Forbidden, NotFound
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import ApplyPatch
from mooring.operators.registry import Operator
from mooring.operators.scope import lease_name
from mooring.runtime import Election, LeaseLost, Manager, Metrics
from mooring.runtime.crd import render_crd

__all__ = ["Operate", "apply_crds", "operate"]

log = structlog.get_logger("mooring.operators")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: Seconds for a definition to be served after it was applied.
ESTABLISH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Operate:
    """How to run operators.

    ``namespace`` is where their Leases are. ``namespaces`` restricts what is watched; none means all.
    ``again`` stands for election anew after a lost Lease instead of failing. ``identity`` is who holds the
    Leases, by default a new name for each process; one that is kept takes its own Lease back at once after a
    crash, and is only for whoever can be sure that its former process is dead.
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


async def operate(client: Client, how: Operate) -> None:
    """Run operators until cancelled, then stop them in order."""
    if how.elect and how.operators:
        await _ensure_namespace(client, how.namespace)
    async with asyncio.TaskGroup() as group:
        for number, operator in enumerate(how.operators):
            group.create_task(_run(client, operator, how, first=number == 0), name=operator.name)


async def _run(client: Client, operator: Operator, how: Operate, *, first: bool) -> None:
    while True:
        clock = SystemClock()
        election = _election(operator, how) if how.elect else None
        manager = Manager(
            client,
            name=operator.name,
            clock=clock,
            election=election,
            informers=None,
            metrics=Metrics(),
            host=how.host,
            metrics_port=how.metrics_port if first else None,
            probe_port=how.probe_port if first else None,
        )
        operator.register(manager, scope=how.scope, namespaces=tuple(how.namespaces), workers=how.workers)
        try:
            await manager.run()
        except LeaseLost:
            if not how.again:
                raise
            log.warning("lost the lease; standing for election again", operator=operator.name)


def _election(operator: Operator, how: Operate) -> Election:
    return Election(lease_name(operator.name, how.scope), how.namespace, identity=how.identity)


async def _ensure_namespace(client: Client, name: str) -> None:
    try:
        await client.get(Namespace, name)
    except NotFound:
        await client.apply(Namespace(metadata=ObjectMeta(name=name)))
    except Forbidden:
        log.debug("may not look at the namespace", namespace=name)


async def apply_crds(client: Client, operators: Sequence[Operator]) -> None:
    """Server-side apply the definitions of these operators and wait until they are served."""
    names = []
    for operator in operators:
        for kind in operator.kinds:
            definition = render_crd(kind)
            names.append(definition["metadata"]["name"])
            await client.request(
                "PATCH",
                f"{CRDS}/{names[-1]}",
                query={"fieldManager": "mooring-crds", "force": "true"},
                body=ApplyPatch(definition).encode(),
                content_type=ApplyPatch.content_type,
            )
    async with asyncio.timeout(ESTABLISH_SECONDS):
        for operator in operators:
            for kind in operator.kinds:
                await _served(client, kind.resource.path())


async def _served(client: Client, path: str) -> None:
    delay = 0.01
    while True:
        try:
            await client.request("GET", path, query={"limit": "1"})
            return
        except ApiError as error:
            if error.status != 404:
                raise
        await asyncio.sleep(delay)
        delay = min(0.5, delay * 2)
