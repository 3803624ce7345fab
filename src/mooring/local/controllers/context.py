"""What every controller here stands on: caches, a client that reads its own writes, a clock, events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from mooring.cache.clock import Clock
from mooring.cache.informer import Informer, InformerSet
from mooring.kube.object import Object, controller_of
from mooring.runtime.client import CachedClient

__all__ = ["Context", "Recorder"]

T = TypeVar("T", bound=Object)


class Recorder(Protocol):
    """The part of the runtime's event recorder that is used here."""

    def normal(self, obj: Object, reason: str, message: str, *, action: str = "") -> None:
        """Something went as it should."""

    def warning(self, obj: Object, reason: str, message: str, *, action: str = "") -> None:
        """Something needs attention."""


@dataclass(frozen=True)
class Context:
    """Shared by all controllers of the plane; ``recorder`` makes an event source of a name."""

    client: CachedClient
    informers: InformerSet
    clock: Clock
    recorder: Callable[[str], Recorder]
    _indexes: set[tuple[int, str]] = field(default_factory=set)

    def index(self, informer: Informer[T], name: str, function: Callable[[T], Iterable[str]]) -> None:
        """Add an index, once for all controllers that want it."""
        if (id(informer), name) not in self._indexes:
            self._indexes.add((id(informer), name))
            informer.add_index(name, function)

    def family(self, kind: type[T]) -> Informer[T]:
        """The informer of a kind, indexed so that an owner finds what it controls and what nobody does."""
        informer = self.informers.of(kind)
        self.index(informer, "orphan", _orphan)
        return informer


def _orphan(obj: Object) -> Iterable[str]:
    return (obj.metadata.namespace or "",) if controller_of(obj) is None else ()
