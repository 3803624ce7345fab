"""Which operators work, shared or private, what they manage, and what nobody manages.

Leases are read with the console's own credential and told to users by name, scope and health alone: a shared operator
concerns everybody, a private one those who see its namespace.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mooring.cache import Clock
from mooring.catalog import Entry
from mooring.console.upstream import Upstream
from mooring.console.watches import Watches
from mooring.diagnosis import alive, managers, scope_of
from mooring.kube import Forbidden, NotFound, Object, Unauthorized
from mooring.kube.objects.coordination import Lease

__all__ = ["Leases", "operators"]

#: Seconds that a list of Leases counts; Leases of a list; instances named as orphans or contested.
FRESH, LIMIT, MOST = 3.0, "2000", 500
Json = dict[str, Any]


class Leases:
    """The Leases that the console may read, for all who look within a few seconds."""

    def __init__(self, upstream: Upstream, watches: Watches, clock: Clock) -> None:
        self._upstream = upstream
        self._watches = watches
        self._clock = clock
        self._known: tuple[float, list[Json] | None] | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> list[Json] | None:
        """The Leases, None when the console may not read them; raises `KubeError`."""
        async with self._lock:
            if self._known is None or self._clock.monotonic() - self._known[0] > FRESH:
                self._known = (self._clock.monotonic(), await self._read())
            return self._known[1]

    async def _read(self) -> list[Json] | None:
        scopes = await self._watches.scopes(Lease.resource)
        if not scopes:
            return None
        found: list[Json] = []
        for namespace in scopes:
            path = Lease.resource.path(namespace=namespace)
            try:
                answer = await self._upstream.own.request("GET", path, query={"limit": LIMIT})
            except (Forbidden, NotFound, Unauthorized):
                return None
            found += msgspec.json.decode(answer.body).get("items") or ()
        return found


def operators(
    instances: Iterable[tuple[Entry, Object]],
    leases: Sequence[Json],
    *,
    entries: Iterable[Entry],
    seen: frozenset[str] | None,
    now: datetime,
) -> Json:
    """What a user is told; ``seen`` are the namespaces whose Leases they may list, None for all."""
    managed: Counter[str] = Counter()
    orphans, contested = [], []
    for entry, obj in instances:
        operator = entry.spec.operator
        if operator is None:
            continue
        meta = obj.metadata
        shown = {"metadata": {"namespace": meta.namespace, "annotations": meta.annotations or {}}}
        found = managers(operator.hint, shown, leases, now)
        row = {"entry": entry.name, "namespace": meta.namespace or "", "name": meta.name or ""}
        if not found:
            orphans.append(row)
        elif len(found) > 1:
            contested.append(row)
        for lease in found:
            managed[_id(entry, lease)] += 1
    rows, unknown = [], []
    for entry in entries:
        operator = entry.spec.operator
        if operator is None:
            if not entry.spec.companion:
                unknown.append(entry.name)
            continue
        for lease in leases:
            scope = scope_of(operator.hint, lease)
            namespace = lease["metadata"].get("namespace") or ""
            visible = seen is None or namespace in seen
            count = managed[_id(entry, lease)]
            if scope is None or not (visible or count or scope != "namespaced"):
                continue
            # Who sees a namespace's instances knows it already; a shared operator's namespace is nobody's business.
            known = visible or scope == "namespaced"
            rows.append(
                {
                    "entry": entry.name,
                    "lease": lease["metadata"]["name"],
                    "scope": scope,
                    "namespace": namespace if known else "",
                    "healthy": alive(lease, now),
                    "renewed": str((lease.get("spec") or {}).get("renewTime") or ""),
                    "instances": count,
                }
            )
    rows.sort(key=lambda row: (row["entry"], row["scope"], row["namespace"]))
    return {"operators": rows, "orphans": orphans[:MOST], "contested": contested[:MOST], "unknown": unknown}


def _id(entry: Entry, lease: Mapping[str, Any]) -> str:
    return f"{entry.name} {lease['metadata'].get('namespace')} {lease['metadata']['name']}"
