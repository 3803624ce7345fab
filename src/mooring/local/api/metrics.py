"""metrics.k8s.io: what pods and nodes use, as metrics-server shows it.

Nothing is stored: the objects are the pods and nodes there are, with the figures of whoever measures them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from mooring.local.api import failures, reads
from mooring.local.api.call import Call
from mooring.local.api.http import Answer
from mooring.local.api.objectmeta import rfc3339
from mooring.local.api.selectors import Filter
from mooring.local.api.storage import Entry

__all__ = ["GROUP", "RESOURCES", "VERSION", "Measured", "Meter", "answers"]

JsonObject = dict[str, Any]

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
#: As metrics-server's discovery document lists them.
RESOURCES: tuple[JsonObject, ...] = (
    {
        "name": "nodes",
        "singularName": "",
        "namespaced": False,
        "kind": "NodeMetrics",
        "verbs": ["get", "list"],
    },
    {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
)


class Amount(Protocol):
    """A use of cpu (cores) and memory (bytes)."""

    @property
    def cpu(self) -> float: ...
    @property
    def memory(self) -> int: ...


class Measured(Protocol):
    """What was used over `window` seconds before `time`, by container (a node: by `""`)."""

    @property
    def time(self) -> datetime: ...
    @property
    def window(self) -> float: ...
    @property
    def parts(self) -> Mapping[str, Amount]: ...


class Meter(Protocol):
    """Knows the newest figures."""

    @property
    def pods(self) -> Mapping[tuple[str, str], Measured]: ...
    @property
    def nodes(self) -> Mapping[str, Measured]: ...


def answers(meter: Meter) -> Mapping[str, Callable[[Call], Awaitable[Answer]]]:
    """Return the answer to every verb, by the resource's name in storage."""
    pods = _Kind("pods", lambda entry: meter.pods.get((entry.namespace, entry.name)), _of_pod)
    nodes = _Kind("nodes", lambda entry: meter.nodes.get(entry.name), _of_node)
    return {f"pods.{GROUP}": pods.answer, f"nodes.{GROUP}": nodes.answer}


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the two resources: the stored objects behind it, their figures, and how these are shown."""

    plural: str
    find: Callable[[Entry], Measured | None]
    show: Callable[[Measured], JsonObject]

    async def answer(self, call: Call) -> Answer:
        """Answer get and list."""
        return self._get(call) if call.verb == "get" else self._list(call)

    def _get(self, call: Call) -> Answer:
        form, name = call.form(), call.target.name
        entry = call.cluster.store.collection(self.plural).get((call.namespace, name))
        if entry is None:
            raise failures.not_found("", self.plural, name)
        measured = self.find(entry)
        if measured is None:
            place = f"{call.namespace}/{name}" if call.namespace else name
            raise failures.not_found(GROUP, call.served.kind.lower(), place)
        head = {"kind": call.served.kind, "apiVersion": call.served.api_version}
        return reads.answer_object(call, 200, {**head, **self._object(entry, measured)}, form)

    def _list(self, call: Call) -> Answer:
        form = call.form(listing=True)
        wanted = Filter.parse(call.request.query, call.served, namespace=call.namespace)
        objects = [
            self._object(entry, measured)
            for entry in call.cluster.store.collection(self.plural).entries(call.namespace)
            if wanted.matches(entry) and (measured := self.find(entry)) is not None
        ]
        return reads.answer_list(call, objects, {}, form)

    def _object(self, entry: Entry, measured: Measured) -> JsonObject:
        meta: JsonObject = {"name": entry.name}
        if entry.namespace:
            meta["namespace"] = entry.namespace
        meta["creationTimestamp"] = rfc3339(measured.time)
        if entry.labels:
            meta["labels"] = dict(entry.labels)
        timing = {"timestamp": rfc3339(measured.time), "window": f"{measured.window:.3f}s"}
        return {"metadata": meta, **timing, **self.show(measured)}


def _of_pod(measured: Measured) -> JsonObject:
    parts = sorted(measured.parts.items())
    return {"containers": [{"name": name, "usage": _usage(amount)} for name, amount in parts]}


def _of_node(measured: Measured) -> JsonObject:
    return {"usage": _usage(measured.parts[""])}


def _usage(amount: Amount) -> JsonObject:
    """Nanocores and kibibytes, as the kubelet's figures come out of metrics-server."""
    nano = round(amount.cpu * 1e9)
    return {"cpu": f"{nano}n" if nano else "0", "memory": f"{amount.memory >> 10}Ki"}
