"""Values a container may ask of its own pod: downward API fields, resources, ``$(VAR)`` references."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal

from mooring.kube.objects.core import Container, ObjectFieldSelector, Pod, ResourceFieldSelector
from mooring.kube.quantity import parse_quantity

__all__ = ["FieldError", "PodFacts", "expand"]


class FieldError(ValueError):
    """A field that does not exist or cannot be given; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod with what only its node knows."""

    pod: Pod
    address: str = ""
    host_address: str = ""
    allocatable: Mapping[str, int | float | str] = field(default_factory=dict)

    def field(self, selector: ObjectFieldSelector) -> str:
        """The value of a ``fieldRef``."""
        return self.value(selector.field_path or "")

    def value(self, path: str) -> str:
        """The value of a field path such as ``metadata.labels['app']``."""
        meta, spec = self.pod.metadata, self.pod.spec
        if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            entries = meta.labels if found[1] == "labels" else meta.annotations
            return (entries or {}).get(found[2], "")
        if path in ("metadata.labels", "metadata.annotations"):
            return _lines((meta.labels if path.endswith("labels") else meta.annotations) or {})
        values = {
            "metadata.name": meta.name,
            "metadata.namespace": meta.namespace,
            "metadata.uid": meta.uid,
            "spec.nodeName": spec.node_name if spec else None,
            "spec.serviceAccountName": (spec.service_account_name if spec else None) or "default",
            "status.podIP": self.address,
            "status.podIPs": self.address,
            "status.hostIP": self.host_address,
            "status.hostIPs": self.host_address,
        }
        if path not in values:
            raise FieldError(f"fieldPath {path!r} is not supported")
        return values[path] or ""

    def resource(self, selector: ResourceFieldSelector, default: Container | None = None) -> str:
        """The value of a ``resourceFieldRef``; a limit that is not set is what the node can give."""
        container = self._container(selector.container_name, default)
        kind, _, name = (selector.resource or "").partition(".")
        if kind not in ("limits", "requests") or not name:
            raise FieldError(f"resource {selector.resource!r} is not supported")
        resources = container.resources
        given = (resources.limits if kind == "limits" else resources.requests) if resources else None
        amount = (given or {}).get(name)
        if amount is None:
            amount = self.allocatable.get(name, 0) if kind == "limits" else 0
        divisor = parse_quantity(selector.divisor or 0) or Decimal(1)
        return str((parse_quantity(amount) / divisor).to_integral_value(ROUND_CEILING))

    def _container(self, name: str | None, default: Container | None) -> Container:
        spec = self.pod.spec
        for container in (spec.containers or []) + (spec.init_containers or []) if spec else []:
            if container.name == name:
                return container
        if default is None or name:
            raise FieldError(f"container {name!r} does not exist in the pod")
        return default


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by its value; ``$$`` is a dollar, an unknown name stays as it stands."""

    def value(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        return env.get(found[1], found.group())

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def expand_all(texts: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """:func:`expand` for each."""
    return [expand(text, env) for text in texts]


def _lines(entries: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(entries.items()))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
