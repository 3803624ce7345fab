"""Finding by label without looking at everything: who selects an object, and what a selector selects.

A selector is filed under one of the labels it demands; an object can only be selected by selectors filed
under one of its labels, or by those that demand none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from mooring.cache.informer import Informer
from mooring.kube.object import Object

__all__ = ["filed_labels", "selected_by", "selecting"]

T = TypeVar("T", bound=Object)

ANY = "*"


def filed_labels(namespace: str | None, demanded: Mapping[str, str] | None) -> Iterable[str]:
    """The index value of a selector that demands these labels exactly (among other things)."""
    label = min(demanded.items(), default=None) if demanded else None
    return (f"{namespace}/{label[0]}={label[1]}" if label is not None else f"{namespace}/{ANY}",)


def selecting(informer: Informer[T], namespace: str, labels: Mapping[str, str] | None) -> list[T]:
    """The objects whose selector, filed in index ``selects``, may select something with these labels."""
    found = informer.by_index("selects", f"{namespace}/{ANY}")
    for key, value in (labels or {}).items():
        found += informer.by_index("selects", f"{namespace}/{key}={value}")
    return found


def selected_by(informer: Informer[T], namespace: str, demanded: Mapping[str, str] | None) -> list[T]:
    """The objects that may be selected by a selector that demands these labels."""
    if not demanded:
        return informer.list(namespace)
    key, value = min(demanded.items())
    found = informer.by_index(f"label:{key}", value)
    return [obj for obj in found if obj.metadata.namespace == namespace]
