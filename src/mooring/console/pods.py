"""The pods of an instance as its page shows them, and their logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from mooring.catalog import Entry, pointer
from mooring.diagnosis import hidden, safe
from mooring.kube import StreamResponse, TransportError

__all__ = ["LOG_BYTES", "forward", "log_query", "pod_rows"]

#: Lines of a log at first; bytes of one request, followed or not; bytes of a line; seconds a browser has to read.
MOST_LINES, LOG_BYTES, LINE_BYTES, SEND_SECONDS = 5000, 16 * 2**20, 8192, 30.0
#: Pods of an instance that are shown.
MOST_PODS: Final = 500
#: Seconds between two looks whether the session still is.
LOOK: Final = 5.0


def pod_rows(entry: Entry, obj: Any, pods: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each pod, by part and name."""
    rows = [_row(entry, pod, _member(entry, obj, pod)) for pod in pods[:MOST_PODS]]
    return sorted(rows, key=lambda row: (row["part"], row["name"]))


def selected(entry: Entry, name: str) -> dict[str, str]:
    """Labels of the pods of an instance, as its entry says."""
    return {key: value.replace("{name}", name) for key, value in entry.spec.topology.select.items()}


def _member(entry: Entry, obj: Any, pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the status of the instance says of a pod."""
    members = entry.spec.topology.members
    listed = pointer.get(obj, members.list) if members is not None else None
    if members is None or not isinstance(listed, list):
        return {}
    name = pod["metadata"].get("name")
    found = next((one for one in listed if isinstance(one, dict) and one.get(members.name) == name), {})
    return {"role": found.get(members.role), "state": found.get(members.state)}


def _row(entry: Entry, pod: Mapping[str, Any], member: Mapping[str, Any]) -> dict[str, Any]:
    topology, metadata = entry.spec.topology, pod["metadata"]
    labels, status = metadata.get("labels") or {}, pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [((one.get("state") or {}).get("waiting") or {}).get("reason") for one in containers]
    ready = any(
        one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()
    )
    spec = pod.get("spec") or {}
    return {
        "name": str(metadata.get("name") or ""),
        "part": str(labels.get(topology.part) or ""),
        "role": str(labels.get(topology.role) or member.get("role") or ""),
        "state": safe(member.get("state")),
        "node": str(spec.get("nodeName") or ""),
        "ip": str(status.get("podIP") or ""),
        "phase": "Terminating"
        if metadata.get("deletionTimestamp")
        else str(status.get("phase") or "Pending"),
        "why": next((safe(reason) for reason in waiting if reason), safe(status.get("reason"))),
        "ready": ready,
        "restarts": sum(int(one.get("restartCount") or 0) for one in containers),
        "created": str(metadata.get("creationTimestamp") or ""),
        "containers": [
            str(one.get("name") or "")
            for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        ],
    }


def log_query(asked: Mapping[str, str]) -> dict[str, str]:
    """The query for the API server; raises `ValueError` for a number of lines that is none."""
    lines = int(asked.get("lines") or 200)
    query = {"tailLines": str(min(max(lines, 1), MOST_LINES)), "limitBytes": str(LOG_BYTES)}
    if asked.get("container"):
        query["container"] = asked["container"]
    for name in ("follow", "previous"):
        if asked.get(name) == "true":
            query[name] = "true"
    return query


async def forward(
    source: StreamResponse, response: web.StreamResponse, *, check: Callable[[], None], stop: asyncio.Event
) -> None:
    """Pass a log on line by line, without what looks like a secret, until it ends, ``stop``, or ``check`` raises."""
    lines = aiter(source)
    line: asyncio.Task[bytes] | None = None
    ending = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            line = line or asyncio.ensure_future(anext(lines))
            await asyncio.wait((line, ending), timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            check()
            if not line.done():
                continue
            try:
                text = line.result()[:LINE_BYTES].decode(errors="replace")
            except (StopAsyncIteration, TransportError):
                return
            line = None
            # One line waits at a time: who reads slowly slows the source down.
            async with asyncio.timeout(SEND_SECONDS):
                await response.write(hidden(text).encode() + b"\n")
    finally:
        for task in (line, ending):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
