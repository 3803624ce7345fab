"""The TN's lock table allocator: lock tables that a CN hands over before it stops.

A CN that stops with lock tables stalls writes on every CN for about 16 s. After `set_restart` its tables go to other
CNs; it is ready to stop when `can_restart` says so, usually within two seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mooring.operators.matrixone.rpc.dial import Address, Dial, Link, Refused, Unreachable
from mooring.operators.matrixone.rpc.messages import LockMethod, LockReply, LockRequest, StoreId

__all__ = ["Locks", "locks"]


class Locks:
    """A connection to the TN's lock service."""

    def __init__(self, link: Link, address: Address) -> None:
        self._link, self._address = link, address

    async def can_restart(self, uuid: str) -> bool:
        """Whether a CN has handed its lock tables over.

        True too for one that the TN does not know: a CN that never held a lock table, or any after the TN started.
        """
        method = LockMethod.CAN_RESTART_SERVICE
        request = LockRequest(method=method, can_restart=StoreId(uuid=uuid))
        reply = await self._link.call(request, LockReply)
        if reply.can_restart is None:
            raise Unreachable(f"{self._address}: an empty answer to {method.name}")
        return reply.can_restart.ok

    async def set_restart(self, uuid: str) -> None:
        """Let a CN hand its lock tables over. It cannot be taken back: only a restart of the CN ends it.

        From then on every new transaction that writes on this CN fails with 20635. So only call it when no sessions
        are left and the CN is about to stop.
        """
        method = LockMethod.SET_RESTART_SERVICE
        request = LockRequest(method=method, set_restart=StoreId(uuid=uuid))
        reply = await self._link.call(request, LockReply)
        if reply.set_restart is None or not reply.set_restart.ok:
            raise Refused(f"{self._address}: {method.name} was not accepted", code=0, reply="")


@asynccontextmanager
async def locks(dial: Dial, address: Address) -> AsyncIterator[Locks]:
    """A connection to a TN's lock service, at the address that the cluster state gives; raises `Unreachable`."""
    async with dial.link(address) as link:
        yield Locks(link, address)
