"""Subresources: status, scale, and those that do something to a pod or account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mooring.local.api import codec, failures, reads, writes
from mooring.local.api.call import Call
from mooring.local.api.http import Answer

__all__ = ["answer"]

JsonObject = dict[str, Any]


async def answer(call: Call) -> Answer:
    """Answer a request on a subresource; raises 404 and 405."""
    sub = call.served.subresources.get(call.target.subresource)
    if sub is None:
        raise failures.page_not_found()
    if call.verb not in sub.verbs:
        raise failures.method_not_allowed()
    handler = _HANDLERS.get((call.served.storage, sub.name)) or _HANDLERS.get(("", sub.name))
    if handler is None:
        raise failures.page_not_found()
    return await handler(call)


async def _status(call: Call) -> Answer:
    if call.verb == "get":
        return reads.get(call)
    form = codec.negotiate(call.request)
    verb = writes.replace if call.verb == "update" else writes.patch_object
    status, obj = await verb(call)
    return reads.answer_object(call, status, obj, form)


_HANDLERS: Mapping[tuple[str, str], Callable[[Call], Awaitable[Answer]]] = {
    ("", "status"): _status,
}
