"""What the server tells of itself: its checks (/livez, /readyz, /healthz) and its figures (/metrics)."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mooring.local.api.http import Answer, Request

__all__ = ["Tally", "checks"]

_TEXT = "text/plain; charset=utf-8"
#: Checks of a real server that mean something here, in its order.
_LIVE = (
    "ping",
    "log",
    "etcd",
    "poststarthook/crd-informer-synced",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
)
_CHECKS = {
    "healthz": _LIVE,
    "livez": _LIVE,
    "readyz": (*_LIVE[:3], "etcd-readiness", "informer-sync", *_LIVE[3:], "shutdown"),
}


def checks(request: Request, parts: tuple[str, ...], *, failing: Iterable[str]) -> Answer:
    """Answer one of the three, or one of its checks; `failing` are those of /readyz that fail."""
    about, one = parts[0], "/".join(parts[1:])
    known = _CHECKS[about]
    failed = {name for name in failing if about == "readyz"}
    if one:
        if one not in known:
            return _plain(404, "404 page not found\n")
        return (
            _plain(500, "internal server error: failed: reason withheld\n")
            if one in failed
            else _plain(200, "ok")
        )
    excluded = set(request.query.all("exclude"))
    lines = []
    for name in known:
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
        else:
            lines.append(f"[-]{name} failed: reason withheld" if name in failed else f"[+]{name} ok")
    if unknown := sorted(excluded - set(known)):
        named = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {named}")
    if failed - excluded:
        return _plain(500, "\n".join([*lines, f"{about} check failed"]) + "\n")
    if "verbose" not in request.query:
        return _plain(200, "ok")
    return _plain(200, "\n".join([*lines, f"{about} check passed"]) + "\n")


def _plain(status: int, text: str) -> Answer:
    return Answer(status, text.encode(), _TEXT, {"X-Content-Type-Options": "nosniff"})


@dataclass(slots=True)
class Tally:
    """Counts requests; bounded by what is served, since a request for anything else counts as one for nothing."""

    _requests: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def count(self, request: Request, status: int) -> None:
        """Note an answer."""
        self._requests[(*request.about, str(status))] += 1

    def shown(self, *, in_flight: int, objects: Mapping[str, int], version: str) -> Answer:
        """Answer with all figures, as Prometheus reads them."""
        text = "\n".join(self._lines(in_flight, objects, version)) + "\n"
        return Answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _lines(self, in_flight: int, objects: Mapping[str, int], version: str) -> Iterator[str]:
        yield from _head("apiserver_current_inflight_requests", "gauge", "Requests under way.")
        yield f'apiserver_current_inflight_requests{{request_kind="all"}} {in_flight}'
        yield from _head(
            "apiserver_request_total", "counter", "Requests by what they asked for and its status."
        )
        names = ("verb", "group", "version", "resource", "subresource", "code")
        for values, number in sorted(self._requests.items()):
            labels = ",".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))
            yield f"apiserver_request_total{{{labels}}} {number}"
        yield from _head("apiserver_storage_objects", "gauge", "Stored objects of a resource.")
        for resource, number in sorted(objects.items()):
            yield f'apiserver_storage_objects{{resource="{resource}"}} {number}'
        yield from _head("kubernetes_build_info", "gauge", "The version that is served.")
        yield f'kubernetes_build_info{{git_version="{version}"}} 1'
        yield from _head("process_cpu_seconds_total", "counter", "Seconds of processor time.")
        yield f"process_cpu_seconds_total {time.process_time():.2f}"
        yield from _head("process_open_fds", "gauge", "Open descriptors.")
        yield f"process_open_fds {len(os.listdir('/proc/self/fd'))}"
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        yield from _head("process_resident_memory_bytes", "gauge", "Resident memory.")
        yield f"process_resident_memory_bytes {pages * os.sysconf('SC_PAGE_SIZE')}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"
