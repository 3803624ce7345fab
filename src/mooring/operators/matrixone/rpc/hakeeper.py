"""HAKeeper, in the log service: the state of the whole cluster, and states and labels of its CNs.

Any log store that runs a replica of HAKeeper answers for it. A store without quorum says so after seconds, with an
empty state beside the error; one that merely answers `shard` may be such a store, so only `state` says that HAKeeper
works, and only if its tick advances.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from mooring.operators.matrixone.rpc.dial import Address, Dial, Link, Refused, RpcError, Unreachable
from mooring.operators.matrixone.rpc.messages import (
    CheckerState,
    ClusterDetails,
    KeeperState,
    LabelList,
    LogMethod,
    LogQuestion,
    LogReply,
    LogRequest,
    Named,
    ShardInfo,
    StateLabel,
    StoreId,
    WorkState,
)

__all__ = ["HAKEEPER_SHARD", "LOG_SHARD", "Hakeeper", "NotRunning", "UnknownStore", "hakeeper"]

HAKEEPER_SHARD = 0
"""The log shard in which HAKeeper keeps its state."""
LOG_SHARD = 1
"""The log shard of the first TN."""
_INTERNAL = 20101


class NotRunning(RpcError):
    """HAKeeper answered, and is not running yet or any more."""


class UnknownStore(RpcError):
    """HAKeeper knows no CN with that UUID."""


class Hakeeper:
    """A connection to a log store that runs a replica of HAKeeper."""

    def __init__(self, link: Link, address: Address) -> None:
        self._link = link
        self.address = address

    async def is_hakeeper(self) -> bool:
        """Whether this log store runs a replica of HAKeeper; not whether HAKeeper has a quorum."""
        return (await self._call(LogRequest(method=LogMethod.CHECK_HAKEEPER))).is_hakeeper

    async def shard(self, shard: int = HAKEEPER_SHARD) -> ShardInfo:
        """Members of a log shard as this store knows them, perhaps stale; raises `Refused` for an unknown one."""
        request = LogRequest(method=LogMethod.GET_SHARD_INFO, question=LogQuestion(shard_id=shard))
        found = (await self._call(request)).shard
        if found is None:
            raise Unreachable(f"{self.address}: an empty answer to GET_SHARD_INFO")
        return found

    async def state(self) -> CheckerState:
        """The state of the cluster; 45 KB on the wire per CN, of which a few hundred bytes are kept.

        Raises `NotRunning` where HAKeeper is not running: its state is no statement about any store.
        """
        found = (await self._call(LogRequest(method=LogMethod.GET_CLUSTER_STATE))).state
        if found is None or not found.tick:
            raise Unreachable(f"{self.address}: an empty answer to GET_CLUSTER_STATE")
        if found.state is not KeeperState.RUNNING:
            raise NotRunning(f"{self.address}: HAKeeper is {found.state.name}")
        return found

    async def details(self) -> ClusterDetails:
        """All stores with HAKeeper's verdict on each, and the stores it has forgotten; as large as `state`."""
        found = (await self._call(LogRequest(method=LogMethod.GET_CLUSTER_DETAILS))).details
        if found is None:
            raise Unreachable(f"{self.address}: an empty answer to GET_CLUSTER_DETAILS")
        return found

    async def set_labels(self, uuid: str, labels: Mapping[str, Sequence[str]]) -> None:
        """Replace all labels of a CN; raises `UnknownStore`."""
        request = LogRequest(
            method=LogMethod.UPDATE_CN_LABEL, labels=Named(uuid=uuid, labels=_label_lists(labels))
        )
        await self._change(request, uuid)

    async def patch(
        self, uuid: str, state: WorkState, *, labels: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Set the work state of a CN, and with ``labels`` replace all of them; raises `UnknownStore`.

        An empty mapping leaves the labels as they are, as none does: `set_labels` clears them. An open transaction
        keeps its session on a draining CN without any limit.
        """
        change = StateLabel(uuid=uuid, state=state, labels=_label_lists(labels or {}))
        await self._change(LogRequest(method=LogMethod.PATCH_CN_STORE, patch=change), uuid)

    async def delete_cn(self, uuid: str) -> None:
        """Forget a CN whose process is gone; nothing happens for an unknown one.

        A CN that still runs would register again within a second, without its labels.
        """
        await self._call(LogRequest(method=LogMethod.DELETE_CN_STORE, delete=StoreId(uuid=uuid)))

    async def _change(self, request: LogRequest, uuid: str) -> None:
        try:
            await self._call(request)
        except Refused as refused:
            if refused.code == _INTERNAL and "does not exist" in refused.reply:
                raise UnknownStore(f"{self.address}: HAKeeper knows no CN {uuid}") from refused
            raise

    async def _call(self, request: LogRequest) -> LogReply:
        return await self._link.call(request, LogReply)


def _label_lists(labels: Mapping[str, Sequence[str]]) -> dict[str, LabelList]:
    return {name: LabelList(labels=tuple(values)) for name, values in labels.items()}


@asynccontextmanager
async def hakeeper(
    dial: Dial, addresses: Iterable[Address], *, hosts: Mapping[str, str] | None = None
) -> AsyncIterator[Hakeeper]:
    """A connection to the first of these log stores that runs a replica of HAKeeper.

    Where none of them does, those that they name are asked; ``hosts`` gives the IPs of names that this process cannot
    resolve, such as those of pods. Raises the last `RpcError` where none is found.
    """
    async with AsyncExitStack() as stack:
        yield await _found(dial, list(addresses), hosts or {}, stack)


async def _found(
    dial: Dial, addresses: Sequence[Address], hosts: Mapping[str, str], stack: AsyncExitStack
) -> Hakeeper:
    failed: RpcError = Unreachable("no log store is known")
    asked: set[Address] = set()
    queue = list(addresses)
    while queue:
        address = queue.pop(0)
        if address in asked:
            continue
        asked.add(address)
        try:
            async with AsyncExitStack() as attempt:
                keeper = Hakeeper(await attempt.enter_async_context(dial.link(address)), address)
                if await keeper.is_hakeeper():
                    stack.push_async_exit(attempt.pop_all())
                    return keeper
                failed = Unreachable(f"{address}: runs no replica of HAKeeper")
                queue += _named((await keeper.shard()), hosts)
        except RpcError as error:
            failed = error
    raise failed


def _named(shard: ShardInfo, hosts: Mapping[str, str]) -> list[Address]:
    found = (Address.parse(replica.service_address) for replica in shard.replicas.values())
    return [Address(hosts.get(one.host, one.host), one.port) for one in found if one is not None]
