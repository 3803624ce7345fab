"""What every operator's webhook warns of: fields it does not know, and objects that no operator manages.

In namespaced mode there is no webhook: its configuration would belong to the whole cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mooring.cache import Clock
from mooring.kube import Client, KubeError, NotFound
from mooring.kube.object import Object
from mooring.kube.objects.coordination import Lease
from mooring.operators.workload.scope import SCOPE_ANNOTATION, lease_name, managed, yields
from mooring.runtime import unknown_fields
from mooring.runtime.webhooks import Review

__all__ = ["Scope", "Served", "annotation_of", "at_most", "part", "served_by", "unknown_warnings"]

NAMED: Final = 6
"""Warnings of one sort that are shown; the rest is counted."""
Served = Callable[[str], Awaitable[bool]]
"""Whether a live namespaced operator works in a namespace."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The scope of the operators that a webhook speaks for; no ``namespaces`` means all."""

    scope: str
    namespaces: Sequence[str]
    served: Served
    annotation: str = SCOPE_ANNOTATION

    async def warnings(self, asked: Review[Any]) -> list[str]:
        """A warning for an object that no live operator will look at."""
        obj: Object | None = asked.typed()
        if obj is None:
            return []
        namespace = asked.key.namespace
        watched = not self.namespaces or namespace in self.namespaces
        wide = annotation_of(asked.object or {}, self.annotation) == "cluster-scoped"
        ours = managed(obj, scope=self.scope, annotation=self.annotation, yielded=lambda _: False)
        if (watched and ours) or (not wide and await self.served(namespace)):
            return []
        if not watched:
            there = ", ".join(self.namespaces)
            return [
                f"no operator manages it: namespace {namespace} is not watched, only {there}; see --namespaces"
            ]
        remedy = f"annotate it {self.annotation}=cluster-scoped, or run a namespaced operator in {namespace}"
        return [f"no operator manages it: {remedy}"]


def served_by(client: Client, clock: Clock, operator: str) -> Served:
    """Look for the Lease of the namespaced operator; read live, since it is asked rarely."""

    async def served(namespace: str) -> bool:
        try:
            lease = await client.get(Lease, lease_name(operator, "namespaced"), namespace=namespace)
        except NotFound:
            return False
        except KubeError:
            return True  # unknown: no warning that may be wrong
        return yields(lease, clock.now())

    return served


def unknown_warnings(spec: type[msgspec.Struct], raw: Mapping[str, Any]) -> list[str]:
    """A warning for each unknown field of a spec, with the nearest known one."""
    found = [f"{one}; it has no effect" for one in unknown_fields(spec, raw, path="spec")]
    return at_most(found, "more unknown fields")


def at_most(warnings: Sequence[str], more: str = "more") -> list[str]:
    """The first warnings, and how many more there are."""
    shown = list(warnings[:NAMED])
    return [*shown, f"and {len(warnings) - NAMED} {more}"] if len(warnings) > NAMED else shown


def part(raw: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """An object below a name; empty where it is missing or of another type."""
    found = (raw or {}).get(name)
    return found if isinstance(found, Mapping) else {}


def annotation_of(raw: Mapping[str, Any], annotation: str = SCOPE_ANNOTATION) -> object:
    """The annotation that says who manages an object."""
    return part(part(raw, "metadata"), "annotations").get(annotation)
