"""The cached objects of each cluster, found by their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from mooring.cache import Informer
from mooring.kube.object import Key, Object
from mooring.runtime import Manager

__all__ = ["ClusterIndex", "keys_of"]

K = TypeVar("K", bound=Object)
Owner = Callable[[dict[str, str] | None], str]
"""From an object's labels to the name of its cluster, "" for none."""


class ClusterIndex(Generic[K]):
    """The objects of one kind that belong to clusters, found by cluster.

    ``selector`` restricts what is cached, ``cluster_of`` tells whose an object is. No ``namespaces`` means all.
    """

    def __init__(
        self,
        manager: Manager,
        kind: type[K],
        *,
        selector: str,
        cluster_of: Owner,
        namespaces: Sequence[str] = (),
    ) -> None:
        self._index = f"cluster of {manager.name}, {selector}"
        self._informers: list[Informer[K]] = []
        for namespace in namespaces or ("",):
            informer = manager.informers.of(kind, namespace=namespace, label_selector=selector)
            informer.ensure_index(self._index, lambda obj: [str(key) for key in keys_of(obj, cluster_of)])
            self._informers.append(informer)

    def of(self, key: Key) -> list[K]:
        """Those of one cluster."""
        return [obj for informer in self._informers for obj in informer.by_index(self._index, str(key))]

    def all(self) -> list[K]:
        """Those of every cluster."""
        return [obj for informer in self._informers for obj in informer.list()]


def keys_of(obj: Object, cluster_of: Owner) -> list[Key]:
    """The cluster an object belongs to, if any."""
    name = cluster_of(obj.metadata.labels)
    return [Key(obj.metadata.namespace or "", name)] if name else []
