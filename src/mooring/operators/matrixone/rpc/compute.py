"""A CN's query service: what still runs on it."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.operators.matrixone.rpc.dial import Address, Dial, Link, Unreachable, Unsupported
from mooring.operators.matrixone.rpc.messages import (
    Nothing,
    QueryMethod,
    QueryReply,
    QueryRequest,
    Session,
    SessionsOf,
)

__all__ = ["Load", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What runs on a CN; 0 where the server has no such thing."""

    sessions: int
    """Of clients that came through a proxy: those that a drain moves, and the only ones that are waited for."""
    others: int
    """Internal ones, and those of clients that connected directly; they cannot be told apart."""
    pipelines: int
    """Parts of queries of other CNs."""
    replicas: int = 0
    """Of sharded tables."""


async def load(dial: Dial, address: Address, *, sharding: bool = False, timeout: float | None = None) -> Load:
    """Ask a CN what runs on it; raises `RpcError` where it does not say.

    ``sharding`` also asks for replicas. Only for servers from release 2.0.0: builds before it end where their shard
    service is off, the default.
    """
    async with dial.link(address, reply_timeout=timeout) as link:
        sessions = await _sessions(link, address)
        proxied = sum(one.from_proxy for one in sessions)
        return Load(
            sessions=proxied,
            others=len(sessions) - proxied,
            pipelines=await _pipelines(link, address),
            replicas=await _replicas(link, address) if sharding else 0,
        )


async def _sessions(link: Link, address: Address) -> tuple[Session, ...]:
    request = QueryRequest(method=QueryMethod.SHOW_PROCESS_LIST, sessions=SessionsOf())
    reply = await link.call(request, QueryReply)
    if reply.sessions is None:
        raise Unreachable(f"{address}: an empty answer to {request.method.name}")
    return reply.sessions.sessions


async def _pipelines(link: Link, address: Address) -> int:
    method = QueryMethod.GET_PIPELINE_INFO
    request = QueryRequest(method=method, pipelines=Nothing())
    try:
        reply = await link.call(request, QueryReply)
    except Unsupported:
        return 0
    if reply.pipelines is None:
        raise Unreachable(f"{address}: an empty answer to {method.name}")
    return reply.pipelines.count


async def _replicas(link: Link, address: Address) -> int:
    method = QueryMethod.GET_REPLICA_COUNT
    request = QueryRequest(method=method, replicas=Nothing())
    try:
        reply = await link.call(request, QueryReply)
    except Unsupported:
        return 0
    if reply.replicas is None:
        raise Unreachable(f"{address}: an empty answer to {method.name}")
    return reply.replicas.count
