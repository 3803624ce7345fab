"""The kinds of the corpus: sample objects from objects.yaml, and where their resources are served."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mooring.local.api.registry import Registry, Served
from mooring.local.api.schema import builtin

__all__ = ["Sample", "registry", "samples"]

Json = Any


@functools.cache
def registry() -> Registry:
    """Return the built-in resources, as the discovery documents of a real server list them."""
    return Registry(builtin())


@dataclass(frozen=True)
class Sample:
    """One kind: objects without kind, apiVersion and name, and what is known of it."""

    served: Served
    minimal: Json
    rich: Json
    change: Json
    status: Json = None
    broken: tuple[Json, ...] = ()
    name: str = "x-{ns}"
    noise: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """`apps/v1/deployments`."""
        return f"{self.served.api_version}/{self.served.plural}"

    @property
    def collection(self) -> str:
        """The path of the collection."""
        root = "/apis/" if self.served.group else "/api/"
        where = "/namespaces/{ns}" if self.served.namespaced else ""
        return f"{root}{self.served.api_version}{where}/{self.served.plural}"

    def body(self, obj: Json, *, name: str | None = None, **meta: Any) -> Json:
        """Return a whole object; `meta` is put into its metadata beside the label of the run."""
        own = obj.get("metadata") or {}
        labels = {"corpus": "{ns}", **(meta.pop("labels", None) or {})}
        metadata = {**own, "name": self.name if name is None else name, "labels": labels, **meta}
        head = {"apiVersion": self.served.api_version, "kind": self.served.kind}
        return {**head, **obj, "metadata": {k: v for k, v in metadata.items() if v != ""}}


@functools.cache
def samples() -> Mapping[str, Sample]:
    """Return the samples by resource."""
    text = (Path(__file__).parent / "objects.yaml").read_text()
    found = {
        key: value for key, value in yaml.load(text, yaml.CSafeLoader).items() if not key.startswith(".")
    }
    return {resource: _sample(resource, about) for resource, about in found.items()}


def _sample(resource: str, about: Json) -> Sample:
    api_version, _, plural = resource.rpartition("/")
    group, _, version = api_version.rpartition("/")
    served = registry().find(group, version, plural)
    assert served is not None, resource
    lists: dict[str, Any] = {key: tuple(about.pop(key, ())) for key in ("broken", "noise")}
    return Sample(served, **about, **lists)
