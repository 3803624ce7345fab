"""The benchmark's kind: a Widget asks for n ConfigMaps that hold its value, and says in its status that they do."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mooring.kube import Object, Part, Resource
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import Condition, ObjectMeta
from mooring.runtime import F, crd

__all__ = ["LABEL", "Widget", "WidgetSpec", "WidgetStatus", "children"]

LABEL = "bench.mooring.dev/widget"


class WidgetSpec(Part, frozen=True, kw_only=True):
    children: Annotated[int | None, F("How many ConfigMaps.", minimum=0, required=True)] = None
    value: Annotated[str | None, F("What they hold.", required=True)] = None
    notes: Annotated[str | None, F("Ballast: it makes the object as large as real ones.")] = None


class WidgetStatus(Part, frozen=True, kw_only=True):
    observed_generation: int | None = None
    children: int | None = None
    value: str | None = None
    conditions: list[Condition] | None = None


@crd(preserve_unknown=True)
class Widget(Object, frozen=True, kw_only=True):
    """Something that wants ConfigMaps."""

    resource: ClassVar[Resource] = Resource("bench.mooring.dev", "v1", "Widget", "widgets")
    spec: WidgetSpec | None = None
    status: WidgetStatus | None = None


def children(widget: Widget) -> list[ConfigMap]:
    """The ConfigMaps of a widget."""
    spec, name = widget.spec or WidgetSpec(), widget.metadata.name or ""
    return [
        ConfigMap(
            metadata=ObjectMeta(name=f"{name}-{number}", labels={LABEL: name}),
            data={"value": spec.value or "", "number": str(number)},
        )
        for number in range(spec.children or 0)
    ]
