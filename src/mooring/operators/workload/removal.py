"""Delete the clusters of a release before it is uninstalled, where that was asked for: the data stays.

The operator has to be running: a cluster that would take its claims along (``keepAfterDeletion: false``, say) is first
changed to keep them, and deleted once the operator no longer owns them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.object import Object
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.operators.workload.claims import owned
from mooring.operators.workload.scope import SCOPE_ANNOTATION, lease_name, managed, yields

__all__ = ["NotRemoved", "Removable", "remove_clusters"]

_POLL = 0.5


@dataclass(frozen=True, kw_only=True)
class Removable:
    """How the clusters of one operator are removed: their kind, the selector of their objects, and how they keep claims.

    ``selector``: beside the label ``app.kubernetes.io/name``, or with ``{name}`` for the cluster's name, alone. ``keeps``
    gives the change of spec after which a cluster keeps its claims, ``None`` where it keeps them already; ``kept`` says
    whether that change has reached what owns them, where that is not the cluster itself.
    """

    kind: type[Object]
    selector: str
    keeps: Callable[[Any], dict[str, Any] | None]
    annotation: str = SCOPE_ANNOTATION
    """See `mooring.operators.workload.scope.SCOPE_ANNOTATION`."""
    label: str = "app.kubernetes.io/name"
    """The label of its pods and claims that holds the cluster's name."""
    also: tuple[type[Object], ...] = ()
    """Further kinds of the same operator."""
    kept: Callable[[Client, Any], Awaitable[bool]] | None = None

    def selecting(self, name: str) -> str:
        """The selector of the objects of one cluster."""
        if "{name}" in self.selector:
            return self.selector.format(name=name)
        return f"{self.label}={name},{self.selector}"


class NotRemoved(Exception):
    """Clusters are left at the deadline; the message names them and what is waited for."""


async def remove_clusters(
    client: Client,
    *,
    operators: Mapping[str, Removable],
    scope: str,
    namespaces: Sequence[str],
    within: float,
    say: Callable[[str], None],
) -> int:
    """Delete every cluster of a scope and wait until its pods are gone; returns how many there were.

    ``operators``: by name, those whose clusters are deleted. ``within`` is a deadline in seconds for all of them
    together; raises :class:`NotRemoved` after it.
    """
    ours = [
        (one, how)
        for name, how in operators.items()
        for one in await _ours(client, name, how, scope, namespaces)
    ]
    left = {_key(one): "not begun" for one, _ in ours}

    async def remove(one: Object, how: Removable) -> None:
        async for step in _removal(client, one, how):
            left[_key(one)] = step
            say(f"{_key(one)}: {step}")
        del left[_key(one)]

    try:
        async with asyncio.timeout(within), asyncio.TaskGroup() as group:
            for one, how in ours:
                group.create_task(remove(one, how))
    except TimeoutError:
        state = "; ".join(f"{key}: {step}" for key, step in left.items())
        raise NotRemoved(
            f"after {within:g} s these are left: {state}. Is the operator running? Nothing else was removed: "
            "try again, or delete these clusters yourself and uninstall without uninstall.deleteClusters"
        ) from None
    return len(ours)


def _key(one: Object) -> str:
    return f"{one.metadata.namespace}/{one.metadata.name} ({one.resource.group})"


async def _ours(
    client: Client, operator: str, how: Removable, scope: str, namespaces: Sequence[str]
) -> list[Object]:
    found: list[Object] = []
    for namespace in namespaces or ("",):
        for kind in (how.kind, *how.also):
            with suppress(NotFound):  # what is not defined has no clusters
                found += (await client.list(kind, namespace=namespace)).items
    yielded = set()
    if scope == "all":
        for namespace in {one.metadata.namespace or "" for one in found}:
            if await _others_work_in(client, operator, namespace):
                yielded.add(namespace)
    return [
        one
        for one in found
        if managed(one, scope=scope, annotation=how.annotation, yielded=yielded.__contains__)
    ]


async def _others_work_in(client: Client, operator: str, namespace: str) -> bool:
    """Whether a namespaced operator lives there: its clusters are not this release's."""
    try:
        lease = await client.get(Lease, lease_name(operator, "namespaced"), namespace=namespace)
    except NotFound:
        return False
    return yields(lease, datetime.now(UTC))


async def _removal(client: Client, one: Object, how: Removable) -> AsyncIterator[str]:
    """The steps of one removal, each told before it is waited for."""
    name, namespace = one.metadata.name or "", one.metadata.namespace or ""
    selector = how.selecting(name)
    if change := how.keeps(one):
        await client.patch(type(one), name, MergePatch({"spec": change}), namespace=namespace)
        yield "waiting for the operator to release its claims"
        while await _owned_claims(client, one, selector) or not (
            how.kept is None or await how.kept(client, one)
        ):
            await asyncio.sleep(_POLL)
    try:
        await client.delete(type(one), name, namespace=namespace, uid=one.metadata.uid or "")
    except NotFound:
        return
    yield "its pods end"
    while (await client.list(Pod, namespace=namespace, label_selector=selector)).items or await _is_there(
        client, one
    ):
        await asyncio.sleep(_POLL)


async def _is_there(client: Client, one: Object) -> bool:
    """The operator has not finished with it: it runs until then."""
    try:
        found = await client.get(type(one), one.metadata.name or "", namespace=one.metadata.namespace or "")
    except NotFound:
        return False
    return found.metadata.uid == one.metadata.uid


async def _owned_claims(client: Client, one: Object, selector: str) -> list[str]:
    claims = await client.list(
        PersistentVolumeClaim, namespace=one.metadata.namespace or "", label_selector=selector
    )
    return [claim.metadata.name or "" for claim in claims.items if owned(one, claim)]
