"""The way to HAKeeper of every cluster: what it says, shared among the sets of a cluster, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mooring.cache import Clock
from mooring.kube.object import Key
from mooring.kube.objects import core
from mooring.operators.matrixone.names import HAKEEPER
from mooring.operators.matrixone.rpc.dial import Address, Dial, Refused, RpcError, Unreachable, Unsupported
from mooring.operators.matrixone.rpc.hakeeper import Hakeeper, UnknownStore, hakeeper
from mooring.operators.matrixone.rpc.locks import locks
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.operators.matrixone.topology import Topology, Unseen, ask_load, read_topology

__all__ = ["Keeper", "Seen"]

FRESH_FOR: Final = 0.4
"""Seconds for which the sets of one cluster share an answer: it is 45 KB for each compute node."""
Tell = Callable[[Hakeeper], Awaitable[None]]
BETWEEN: Final = 0.3
"""Seconds between two questions that tell whether HAKeeper's clock moves."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What HAKeeper said, or why nothing is known."""

    view: Topology | None = None
    error: str = ""
    advances: bool = True
    """Its clock moved between two questions, where it was asked twice."""


class Keeper:
    """HAKeeper of every cluster, reached by the IPs of the pods of its LogSet.

    Answers are shared for `FRESH_FOR` seconds. What is changed through here is seen from then on, as HAKeeper confirmed it; of
    what it did not confirm the answer is dropped.
    """

    def __init__(self, dial: Dial, clock: Clock) -> None:
        self._dial, self._clock = dial, clock
        self._known: dict[Key, tuple[float, Seen]] = {}
        self._asking: dict[Key, asyncio.Lock] = {}
        self._orders: dict[Key, list[_Order]] = {}

    def forget(self, key: Key) -> None:
        """The LogSet is gone."""
        self._known.pop(key, None)
        self._asking.pop(key, None)
        if not self._orders.get(key):
            self._orders.pop(key, None)

    async def see(
        self,
        key: Key,
        stores: Iterable[core.Pod],
        others: Iterable[core.Pod] = (),
        *,
        ask: Collection[str] = (),
        twice: bool = False,
    ) -> Seen:
        """The state of the cluster whose LogSet is ``key``.

        ``ask``: UUIDs of compute nodes whose sessions are wanted. ``others``: pods whose names this process may not be
        able to resolve. ``twice`` also tells whether HAKeeper's clock moves.
        """
        async with self._asking.setdefault(key, asyncio.Lock()):
            at, known = self._known.get(key, (-1e9, None))
            fresh = self._clock.monotonic() - at < FRESH_FOR
            if known is not None and fresh and not (ask or twice or others):
                return known
            found = await self._look(list(stores), list(others), ask, twice=twice)
            self._known[key] = (self._clock.monotonic(), found)
            return found

    async def load(self, seen: Seen, ask: Collection[str]) -> Seen:
        """The same look with what runs now on the compute nodes of these UUIDs: HAKeeper is not asked again."""
        if seen.view is None:
            return seen
        return replace(seen, view=await ask_load(self._dial, seen.view, ask))

    async def _look(
        self, stores: Sequence[core.Pod], others: Sequence[core.Pod], ask: Collection[str], *, twice: bool
    ) -> Seen:
        hosts = _hosts([*stores, *others])
        first = await read_topology(self._dial, _addresses(stores), hosts=hosts, ask=ask)
        if isinstance(first, Unseen):
            return Seen(error=first.reason)
        if not twice:
            return Seen(view=first)
        await self._clock.sleep(BETWEEN)
        second = await read_topology(self._dial, _addresses(stores), hosts=hosts, ask=ask)
        if isinstance(second, Unseen):
            return Seen(error=second.reason)
        return Seen(view=second, advances=second.tick > first.tick)

    async def set_working(
        self, key: Key, stores: Iterable[core.Pod], uuid: str, labels: Mapping[str, Sequence[str]]
    ) -> None:
        """Send sessions to a compute node with exactly these labels; raises `RpcError`."""

        async def tell(keeper: Hakeeper) -> None:
            if not labels:
                await keeper.set_labels(uuid, {})
            await keeper.patch(uuid, WorkState.WORKING, labels=labels or None)

        given = {name: tuple(values) for name, values in labels.items()}
        await self._tell(key, stores, tell, uuid, state=WorkState.WORKING, labels=given)

    async def drain(self, key: Key, stores: Iterable[core.Pod], uuid: str) -> None:
        """Send no new sessions to a compute node; one that is not known needs none. Raises `RpcError`."""
        try:
            await self._tell(
                key,
                stores,
                lambda keeper: keeper.patch(uuid, WorkState.DRAINING),
                uuid,
                state=WorkState.DRAINING,
            )
        except UnknownStore:
            return

    async def clear_labels(self, key: Key, stores: Iterable[core.Pod], uuid: str) -> None:
        """Take all labels from a compute node, whose state stays; raises `RpcError`."""
        await self._tell(key, stores, lambda keeper: keeper.set_labels(uuid, {}), uuid, labels={})

    async def delete(self, key: Key, stores: Iterable[core.Pod], uuid: str) -> None:
        """Forget a compute node whose process is gone; raises `RpcError`."""
        await self._tell(key, stores, lambda keeper: keeper.delete_cn(uuid))

    async def hand_over(self, seen: Seen, uuid: str) -> None:
        """Have a compute node give its lock tables away; a server that knows no such thing has none to give.

        Raises `RpcError`.
        """
        for address in _lock_services(seen):
            async with locks(self._dial, address) as service:
                try:
                    await service.set_restart(uuid)
                except Unsupported:
                    continue

    async def gave_locks(self, seen: Seen, uuid: str) -> bool:
        """Whether a compute node has given its lock tables away; raises `RpcError`."""
        for address in _lock_services(seen):
            async with locks(self._dial, address) as service:
                try:
                    if not await service.can_restart(uuid):
                        return False
                except Refused:
                    continue
        return True

    async def _tell(
        self, key: Key, stores: Iterable[core.Pod], tell: Tell, uuid: str = "", **changes: Any
    ) -> None:
        """Change something. ``changes``: what of the compute node ``uuid`` is so once it is confirmed.

        What others want to change meanwhile goes over the same connection.
        """
        order = _Order(tell, uuid, changes, asyncio.get_running_loop().create_future())
        self._orders.setdefault(key, []).append(order)
        try:
            async with self._asking.setdefault(key, asyncio.Lock()):
                if not order.done.done():
                    await self._carry_out(key, list(stores), self._orders.setdefault(key, []))
            await order.done
        finally:
            order.done.cancel()  # of a pass that was given up, nothing is carried out later

    async def _carry_out(self, key: Key, stores: Sequence[core.Pod], orders: list[_Order]) -> None:
        """Carry out what there is to do, and what comes meanwhile; the answer that is shared stays as old as it is."""
        at, seen = self._known.pop(key, (0.0, Seen()))
        view: Topology | None = seen.view
        begun: list[_Order] = []
        try:
            async with hakeeper(self._dial, _addresses(stores), hosts=_hosts(stores)) as keeper:
                while orders:
                    begun = [orders.pop(0)]
                    view = await _carried_out(begun[0], keeper, view)
            if view is not None:
                self._known[key] = at, replace(seen, view=view)
        except RpcError as error:
            _fail([*begun, *orders], error)
            orders.clear()
        except BaseException:
            _fail([*begun, *orders], Unreachable("HAKeeper: the connection was given up"))
            orders.clear()
            raise


@dataclass(frozen=True, slots=True)
class _Order:
    tell: Tell
    uuid: str
    changes: Mapping[str, Any]
    done: asyncio.Future[None]


async def _carried_out(order: _Order, keeper: Hakeeper, view: Topology | None) -> Topology | None:
    """What is known afterwards; nothing where HAKeeper did not confirm it, or the compute node is not known."""
    if order.done.done():
        return view
    try:
        await order.tell(keeper)
    except (Refused, UnknownStore) as error:
        _fail([order], error)
        return None
    if not order.done.done():
        order.done.set_result(None)
    store = view.cns.get(order.uuid) if view is not None else None
    if view is None or store is None:
        return None
    made = replace(store, load=None, silence="", **order.changes)
    return replace(view, cns={**view.cns, order.uuid: made})


def _fail(orders: Iterable[_Order], error: RpcError) -> None:
    for one in orders:
        if not one.done.done():
            one.done.set_exception(error)


def _lock_services(seen: Seen) -> Iterator[Address]:
    """Of every transaction node; raises `Unreachable` where they are unknown."""
    if seen.view is None:
        raise Unreachable(seen.error)
    for node in seen.view.tns.values():
        if node.lock_address is not None:
            yield node.lock_address


def _addresses(stores: Iterable[core.Pod]) -> list[Address]:
    return [Address(_ip(pod), HAKEEPER) for pod in stores if _ip(pod)]


def _hosts(pods: Iterable[core.Pod]) -> dict[str, str]:
    """The IPs of pods by their names in DNS, as they name themselves."""
    return {
        f"{pod.metadata.name}.{_subdomain(pod)}.{pod.metadata.namespace}.svc": _ip(pod)
        for pod in pods
        if _ip(pod)
    }


def _subdomain(pod: core.Pod) -> str:
    return (pod.spec.subdomain if pod.spec is not None else None) or ""


def _ip(pod: core.Pod) -> str:
    return (pod.status.pod_ip if pod.status is not None else None) or ""
