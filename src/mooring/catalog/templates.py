"""Entries that live in the cluster: ClusterServiceTemplate for everybody, ServiceTemplate for one namespace.

They are written by others than this package's authors, so they may name custom resources alone: what Kubernetes itself
serves (Secrets, roles, webhooks) is never a service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mooring.catalog.entry import API_VERSION, CatalogError, Entry
from mooring.catalog.lint import lint
from mooring.kube.object import Resource

__all__ = ["CLUSTER_TEMPLATES", "TEMPLATES", "definitions", "entry_of"]

_GROUP, _, _VERSION = API_VERSION.partition("/")
CLUSTER_TEMPLATES: Final = Resource(
    _GROUP, _VERSION, "ClusterServiceTemplate", "clusterservicetemplates", namespaced=False
)
TEMPLATES: Final = Resource(_GROUP, _VERSION, "ServiceTemplate", "servicetemplates", namespaced=True)


def entry_of(obj: Mapping[str, Any]) -> Entry:
    """The entry of a template of the cluster; one of a namespace is called ``NAMESPACE.NAME``.

    Raises `CatalogError` naming the template and the path of what is wrong.
    """
    metadata = obj.get("metadata") or {}
    namespace, name = metadata.get("namespace"), str(metadata.get("name") or "")
    kind = TEMPLATES.kind if namespace else CLUSTER_TEMPLATES.kind
    source = f"{kind} {f'{namespace}/' if namespace else ''}{name}"
    document = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": obj.get("spec")}
    try:
        entry = msgspec.convert(document, Entry)
    except msgspec.ValidationError as error:
        raise CatalogError([f"{source}: {error}"]) from error
    problems = [f"{source}: {problem}" for problem in lint(entry)]
    target = entry.spec.target
    if "." not in target.group or target.group.endswith((".k8s.io", f".{_GROUP}")) or target.group == _GROUP:
        problems.append(f"{source}: spec.target.group: {target.group!r} is no group of custom resources")
    if not target.namespaced:
        problems.append(f"{source}: spec.target.namespaced: only kinds in namespaces can be offered")
    if problems:
        raise CatalogError(problems)
    if namespace:
        renamed = msgspec.structs.replace(entry.metadata, name=f"{namespace}.{name}")
        return msgspec.structs.replace(entry, metadata=renamed)
    return entry


def definitions() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of both kinds of template."""
    return [_definition(resource) for resource in (CLUSTER_TEMPLATES, TEMPLATES)]


def _definition(resource: Resource) -> dict[str, Any]:
    schema = {
        "type": "object",
        "description": "A service of the console's catalog; the console says what is wrong with it.",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["display", "target"],
                # The console reads it strictly, and answers with the path of what it does not know.
                "x-kubernetes-preserve-unknown-fields": True,
            }
        },
    }
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }
