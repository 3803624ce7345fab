"""The objects around one cluster that a decision about it reads: its sets, pods, claims, and what it refers to.

An operator names them once. A running operator takes them from its caches; a command such as ``mooring why --save`` reads
the same ones from the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from mooring.kube.client import Client
from mooring.kube.errors import NotFound
from mooring.kube.object import Object
from mooring.kube.objects import core

__all__ = ["Reference", "Surroundings", "read_surroundings"]

T = TypeVar("T", bound=Object)
Reference = tuple[type[Object], str]
"""Kind and name of an object in the cluster's namespace."""


class Surroundings:
    """Objects as they were read, found by kind and name."""

    def __init__(self, objects: Iterable[Object | None]) -> None:
        self._objects = [one for one in objects if one is not None]

    def find(self, kind: type[T], name: str) -> T | None:
        """The object of that name; ``None`` when there is none."""
        return next((one for one in self.of(kind) if one.metadata.name == name), None)

    def of(self, kind: type[T]) -> list[T]:
        """All objects of a kind."""
        return [one for one in self._objects if isinstance(one, kind)]

    @property
    def pods(self) -> list[core.Pod]:
        """The cluster's pods."""
        return self.of(core.Pod)

    @property
    def claims(self) -> dict[str, core.PersistentVolumeClaim]:
        """The cluster's claims by name."""
        return {one.metadata.name or "": one for one in self.of(core.PersistentVolumeClaim)}


async def read_surroundings(
    client: Client, namespace: str, references: Sequence[Reference], *, label_selector: str
) -> Surroundings:
    """Read them from the API server; ``label_selector`` finds the pods and claims."""
    found: list[Object] = []
    for kind in (core.Pod, core.PersistentVolumeClaim):
        found += (await client.list(kind, namespace=namespace, label_selector=label_selector)).items
    for one, name in references:
        try:
            found.append(await client.get(one, name, namespace=namespace))
        except NotFound:
            continue
    return Surroundings(found)
