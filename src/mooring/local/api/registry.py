"""Which resources are served: the built-in ones of discovery and, live, those of CRDs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring.local.api import crd as crds
from mooring.local.api.constraints import same
from mooring.local.api.crd import CompiledVersion
from mooring.local.api.schema import Schema, Schemas

__all__ = ["Registry", "Served", "SubResource"]

JsonObject = dict[str, Any]

CRUD = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
#: Resources served in two groups or versions are stored once, in this one.
_STORED_AS = {
    ("events.k8s.io", "v1", "events"): ("", "v1", "events"),
    ("autoscaling", "v1", "horizontalpodautoscalers"): ("autoscaling", "v2", "horizontalpodautoscalers"),
}


@dataclass(frozen=True, slots=True)
class SubResource:
    """One subresource, with the kind its body has."""

    name: str
    kind: str
    group: str
    version: str
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """One resource in one served version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""
    subresources: Mapping[str, SubResource] = field(default_factory=dict)
    storage: str = ""
    stored_version: str = ""
    storage_hash: str = ""
    custom: CompiledVersion | None = None
    definition: JsonObject | None = None
    terminating: bool = False
    #: How objects of other versions are converted; None: by their apiVersion alone.
    webhook: Mapping[str, Any] | None = None

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_group(self) -> str:
        """The group of its collection, which errors about its objects name."""
        return self.storage.partition(".")[2]

    @property
    def converts(self) -> bool:
        """Whether stored objects have another shape than this version shows."""
        return (self.group, self.version, self.plural) in _STORED_AS

    @property
    def header(self) -> bytes:
        """What precedes the stored part of an object's JSON."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @property
    def qualified(self) -> str:
        """`statefulsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Registry:
    """Looks resources up by group, version and plural."""

    def __init__(self, schemas: Schemas) -> None:
        self.schemas = schemas
        self._served: dict[tuple[str, str, str], Served] = {}
        self._groups: dict[str, list[str]] = {}
        self._custom: dict[str, list[Served]] = {}
        self._versions: dict[str, dict[str, CompiledVersion]] = {}
        self._compiled: dict[str, JsonObject] = {}
        self._load_builtin()
        self._builtin_groups = list(self._groups)
        self._offered: dict[str, list[str]] = {}

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """Return a served resource."""
        return self._served.get((group, version, plural))

    def of_kind(self, group: str, version: str, kind: str) -> Served | None:
        """Return the resource whose objects have a kind."""
        for served in self._served.values():
            if served.kind == kind and served.group == group and served.version == version:
                return served
        return None

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def group_versions(self) -> dict[str, list[str]]:
        """Return every group but the core one with its versions, the preferred one first."""
        groups = {name: list(versions) for name, versions in self._groups.items()}
        custom: dict[str, set[str]] = {}
        for served in self._served.values():
            if served.custom is not None:
                custom.setdefault(served.group, set()).add(served.version)
        for name in sorted(custom):
            groups[name] = sorted({*groups.get(name, ()), *custom[name]}, key=_version_rank)
        return {**groups, **self._offered}

    def builtin_group(self, group: str) -> bool:
        """Whether a group is one of the server's own."""
        return group == "" or group in self._groups

    def resources(self, group: str, version: str) -> list[Served]:
        """Return the resources of a group version, sorted by plural."""
        found = [s for s in self._served.values() if s.group == group and s.version == version]
        return sorted(found, key=lambda served: served.plural)

    def definition_name(self, api_version: str, kind: str) -> str | None:
        """Return the OpenAPI name of a built-in kind (`io.k8s.api.core.v1.Pod`), None when unknown."""
        group, _, version = api_version.rpartition("/")
        if kind == "DeleteOptions":
            return "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
        schema = self.schemas.get(group, version, kind)
        if schema is not None:
            return schema.name
        # Bodies of subresources stand in the document of the resource: Scale, Eviction, TokenRequest.
        return f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{kind}"

    def schema(self, served: Served) -> Schema:
        """Return the schema of a resource's objects."""
        if served.custom is not None:
            return served.custom.schema
        schema = self.schemas.get(served.group, served.version, served.kind)
        if schema is None:
            raise LookupError(f"no schema for {served.kind} in {served.api_version}")
        return schema

    def set_definition(self, crd: JsonObject) -> None:
        """Serve what a CustomResourceDefinition declares, once it is established."""
        name, spec = crd["metadata"]["name"], crd["spec"]
        before, known = self._compiled.get(name), self._versions.get(name)
        self.drop_definition(name)
        if not _is_true(crd, "Established"):
            return
        if known is None or not same(spec, before):
            # The compiled versions stay while the spec does: what objects look like by them is kept.
            known = {
                version["name"]: crds.compile_version(crd, version["name"]) for version in spec["versions"]
            }
        self._compiled[name], self._versions[name] = spec, known
        served = [
            _custom(crd, known[version["name"]]) for version in spec["versions"] if version.get("served")
        ]
        self._custom[name] = served
        for one in served:
            self._served[one.group, one.version, one.plural] = one

    def version(self, served: Served, name: str) -> CompiledVersion | None:
        """Return a version of a custom resource, served or not."""
        return self._versions.get(served.storage, {}).get(name)

    def has_versions(self, served: Served) -> bool:
        """Whether a custom resource has more than one version."""
        return len(self._versions.get(served.storage, ())) > 1

    def offer(self, group: str, version: str, resources: Iterable[JsonObject]) -> None:
        """Serve a group that other servers aggregate; it comes after all others, as with them."""
        self._offered[group] = [version]
        self._add_list(group, version, resources)

    def drop_definition(self, name: str) -> None:
        """Stop serving a CustomResourceDefinition."""
        self._compiled.pop(name, None)
        self._versions.pop(name, None)
        for served in self._custom.pop(name, ()):
            self._served.pop((served.group, served.version, served.plural), None)

    def _load_builtin(self) -> None:
        documents = {key.replace("/", "_"): value for key, value in self.schemas.discovery().items()}
        self._add_list("", "v1", documents["api_v1"]["resources"])
        for group in documents["apis"]["groups"]:
            versions = [version["version"] for version in group["versions"]]
            self._groups[group["name"]] = versions
            for version in versions:
                resources = documents[f"apis_{group['name']}_{version}"]["resources"]
                self._add_list(group["name"], version, resources)

    def _add_list(self, group: str, version: str, resources: Iterable[JsonObject]) -> None:
        subresources: dict[str, dict[str, SubResource]] = {}
        for resource in resources:
            plural, _, sub = resource["name"].partition("/")
            if sub:
                subresources.setdefault(plural, {})[sub] = SubResource(
                    sub,
                    resource["kind"],
                    resource.get("group", group),
                    resource.get("version", version),
                    tuple(resource["verbs"]),
                )
        for resource in resources:
            if "/" not in resource["name"]:
                served = _builtin(group, version, resource, subresources.get(resource["name"], {}))
                self._served[group, version, served.plural] = served


def _builtin(
    group: str, version: str, resource: JsonObject, subresources: Mapping[str, SubResource]
) -> Served:
    plural = resource["name"]
    stored = _STORED_AS.get((group, version, plural), (group, version, plural))
    return Served(
        group=group,
        version=version,
        kind=resource["kind"],
        plural=plural,
        singular=resource["singularName"],
        namespaced=resource["namespaced"],
        verbs=tuple(resource["verbs"]),
        short_names=tuple(resource.get("shortNames", ())),
        categories=tuple(resource.get("categories", ())),
        list_kind=resource["kind"] + "List",
        subresources=subresources,
        storage=f"{stored[2]}.{stored[0]}" if stored[0] else stored[2],
        stored_version=stored[1],
        storage_hash=resource.get("storageVersionHash", ""),
    )


def _custom(crd: JsonObject, compiled: CompiledVersion) -> Served:
    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    group, version = spec["group"], compiled.name
    conversion = spec.get("conversion") or {}
    subresources = {}
    if compiled.status:
        subresources["status"] = SubResource(
            "status", names["kind"], group, version, ("get", "patch", "update")
        )
    if compiled.scale is not None:
        subresources["scale"] = SubResource("scale", "Scale", "autoscaling", "v1", ("get", "patch", "update"))
    return Served(
        group=group,
        version=version,
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", names["kind"].lower()),
        namespaced=spec["scope"] == "Namespaced",
        verbs=("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        list_kind=names.get("listKind", names["kind"] + "List"),
        subresources=subresources,
        storage=f"{names['plural']}.{group}",
        stored_version=next(v["name"] for v in spec["versions"] if v.get("storage")),
        custom=compiled,
        definition=crd,
        terminating=bool(crd["metadata"].get("deletionTimestamp")),
        webhook=conversion.get("webhook") if conversion.get("strategy") == "Webhook" else None,
    )


def _is_true(obj: JsonObject, condition: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)


_KUBE_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def _version_rank(version: str) -> tuple[int, int, int, str]:
    """Order versions by preference: v2, v1, v1beta2, v1beta1, v1alpha1, then other names."""
    match = _KUBE_VERSION.fullmatch(version)
    if not match:
        return (3, 0, 0, version)
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stability, -int(match[1]), -int(match[3] or 0), version)
