"""A cluster of any kind on a :class:`~mooring.testing.bed.Bed`, seen from outside: what the stages of all kinds share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mooring.kube import MergePatch, NotFound, Object
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed
from mooring.testing.errors import NotInTime

__all__ = ["Stage", "unready", "writing_to"]

K = TypeVar("K", bound=Object)


class _Ledger(Protocol):
    """Clients that write."""

    @property
    def acknowledged(self) -> int: ...

    async def write(self) -> object: ...

    def reset_gap(self) -> None: ...

    def stop(self) -> None: ...


L = TypeVar("L", bound=_Ledger)


@asynccontextmanager
async def writing_to(ledger: L, first: Callable[[L], Awaitable[object]]) -> AsyncIterator[L]:
    """The ledger's clients write all through the block, which begins once ``first`` has seen its writes."""
    task = asyncio.ensure_future(ledger.write())
    try:
        await first(ledger)
        ledger.reset_gap()
        yield ledger
    finally:
        ledger.stop()
        await task


class Stage(ABC, Generic[K]):
    """One cluster: its custom resource, its pods and its claims."""

    kind: ClassVar[type[Any]]

    def __init__(
        self, bed: Bed | ClusterBed | KubernetesBed, name: str, *, namespace: str, selector: str
    ) -> None:
        """``selector``: labels of its pods and claims."""
        self.bed, self.name, self.namespace, self.selector = bed, name, namespace, selector

    # --- what it says

    async def get(self) -> K:
        """The custom resource."""
        found: K = await self.bed.get(self.kind, self.name, self.namespace)
        return found

    @abstractmethod
    async def status(self) -> Any:
        """Its status; an empty one before the first look."""

    async def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a standard condition."""
        for one in (await self.status()).conditions or ():
            if one.type == kind:
                return one.status or "", one.reason or "", one.message or ""
        return "", "", ""

    async def claims(self) -> dict[str, str]:
        """Names and UIDs of its claims."""
        found = await self.bed.client.list(
            PersistentVolumeClaim, namespace=self.namespace, label_selector=self.selector
        )
        return {one.metadata.name or "": one.metadata.uid or "" for one in found.items}

    async def capacities(self) -> dict[str, str]:
        """What the volumes of its claims have, by name of the claim."""
        found = await self.bed.client.list(
            PersistentVolumeClaim, namespace=self.namespace, label_selector=self.selector
        )
        given = {
            one.metadata.name or "": (one.status.capacity if one.status else None) or {}
            for one in found.items
        }
        return {name: str(capacity.get("storage", "")) for name, capacity in given.items()}

    async def capacity(self, size: str, *, within: float = 30.0) -> float:
        """Wait until each of its volumes has that size; returns the seconds."""

        async def grown() -> bool:
            return set((await self.capacities()).values()) == {size}

        return await self.bed.until(grown, f"the volumes of {self.name} have {size}", within=within)

    async def _pods(self, selector: str) -> list[Pod]:
        found = await self.bed.pods(self.namespace, selector)
        return sorted(found, key=lambda pod: pod.metadata.name or "")

    # --- changing it

    async def patch(self, spec: dict[str, Any]) -> None:
        """Merge into the spec, as `kubectl patch` does."""
        body = MergePatch({"spec": spec})
        await self.bed.client.patch(self.kind, self.name, body, namespace=self.namespace)

    async def delete(self, *, claims: bool = False, within: float = 60.0) -> None:
        """Delete the resource and wait until its pods are gone; its claims too if asked."""
        client = self.bed.client
        with contextlib.suppress(NotFound):
            await client.delete(self.kind, self.name, namespace=self.namespace)

        async def gone() -> bool:
            return not await self._pods(self.selector)

        await self.bed.until(gone, f"the pods of {self.name} are gone", within=within)
        for name in await self.claims() if claims else ():
            with contextlib.suppress(NotFound):
                await client.delete(PersistentVolumeClaim, name, namespace=self.namespace)

    # --- waiting

    async def _until(self, wrong: Callable[[], Awaitable[str]], *, within: float) -> float:
        """Wait until nothing is wrong; returns the seconds, raises `NotInTime` with what is."""
        began = time.monotonic()
        while flaw := await wrong():
            if time.monotonic() - began > within:
                raise NotInTime(f"{self.name} after {within:.0f} s: {flaw}")
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def writes(self, ledger: _Ledger, count: int, *, within: float = 30.0) -> float:
        """Wait until so many further writes were acknowledged; returns the seconds."""
        goal = ledger.acknowledged + count

        async def reached() -> bool:
            return ledger.acknowledged >= goal

        return await self.bed.until(reached, f"{count} more writes", within=within)

    # --- faults

    @asynccontextmanager
    async def operators_away(self) -> AsyncIterator[None]:
        """No operator runs within the block."""
        await self.bed.stop_operators()
        try:
            yield
        finally:
            await self.bed.start_operators()


def unready(pods: Sequence[Pod], count: int, *, what: str = "") -> str:
    """What is missing of so many ready pods of ``what``; empty when nothing is."""
    names = [pod.metadata.name for pod in pods if not _ready(pod)]
    kind = f"{what} pods" if what else "pods"
    return f"{len(pods)} of {count} {kind}, not ready: {names}" if len(pods) != count or names else ""


def _ready(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or ()
    leaving = pod.metadata.deletion_timestamp is not None
    return not leaving and any(one.type == "Ready" and one.status == "True" for one in conditions)
