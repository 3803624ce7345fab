"""Discovery and OpenAPI: what clients read to learn what is served."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from mooring.local.api import codec, crd, failures
from mooring.local.api.http import Answer, Request
from mooring.local.api.published import openapi_v2
from mooring.local.api.published.descriptions import described
from mooring.local.api.published.openapi_paths import paths_of
from mooring.local.api.registry import Registry, Served

__all__ = ["GIT_VERSION", "Discovery"]

JsonObject = dict[str, Any]

GIT_VERSION = "v1.36.3+mooring"
_AGGREGATED = "APIGroupDiscoveryList"


class Discovery:
    """Answers everything about the API itself; documents are kept until a definition changes."""

    def __init__(self, registry: Registry, *, address: str = "") -> None:
        self._registry = registry
        self._address = address
        self._documents: dict[str, bytes] = {}

    def changed(self) -> None:
        """Forget what depends on custom resources; what describes built-in groups alone stays."""
        kept = [key for key in self._documents if key.startswith("openapi ") and self._is_builtin(key)]
        self._documents = {key: self._documents[key] for key in kept}

    def _is_builtin(self, key: str) -> bool:
        """Whether an OpenAPI document, now and before, holds no custom resource."""
        parts = key.removeprefix("openapi ").split("/")
        if parts[0] == "api":
            return True
        group, version = (parts[1], parts[2]) if len(parts) == 3 else ("", "")
        if self._registry.schemas.document(group, version) is None:
            return False
        return all(served.custom is None for served in self._registry.resources(group, version))

    def answer(self, request: Request, parts: tuple[str, ...]) -> Answer | None:
        """Answer /api, /apis, /openapi and /version; None for other paths."""
        match parts:
            case ("api",):
                return self._api(request)
            case ("apis",):
                return self._apis(request)
            case ("api", version):
                return self._resources(request, "", version)
            case ("apis", group):
                return self._group(request, group)
            case ("apis", group, version):
                return self._resources(request, group, version)
            case ("openapi", "v2"):
                return self._openapi_v2(request)
            case ("openapi", "v3"):
                return self._openapi_index(request)
            case ("openapi", "v3", *rest):
                return self._openapi_v3(request, "/".join(rest))
            case ("version",):
                return Answer(200, msgspec.json.format(msgspec.json.encode(self.version()), indent=2))
        return None

    @staticmethod
    def version() -> JsonObject:
        """Return what /version says."""
        return {
            "major": "1",
            "minor": "36",
            "emulationMajor": "1",
            "emulationMinor": "36",
            "minCompatibilityMajor": "1",
            "minCompatibilityMinor": "35",
            "gitVersion": GIT_VERSION,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z",
            "goVersion": "none",
            "compiler": "CPython",
            "platform": "linux/amd64",
        }

    def _json(self, request: Request, document: JsonObject) -> Answer:
        body, content_type = codec.encode(document, codec.negotiate(request, shapes=False))
        return Answer(200, body, content_type)

    # --- groups and resources ---------------------------------------------------------------------------

    def _api(self, request: Request) -> Answer:
        if aggregated := _aggregated(request):
            return self._aggregate(request, [("", ["v1"])], aggregated)
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}
        return self._json(
            request, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
        )

    def _apis(self, request: Request) -> Answer:
        if aggregated := _aggregated(request):
            return self._aggregate(request, self._registry.group_versions().items(), aggregated)
        groups = [_group(name, versions) for name, versions in self._registry.group_versions().items()]
        return self._json(request, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def _group(self, request: Request, group: str) -> Answer | None:
        versions = self._registry.group_versions().get(group)
        if versions is None:
            return None
        return self._json(request, {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)})

    def _resources(self, request: Request, group: str, version: str) -> Answer | None:
        served = self._registry.resources(group, version)
        if not served:
            return None
        listed = [entry for one in served for entry in _listed(one)]
        document: JsonObject = {"kind": "APIResourceList"}
        if group:
            document["apiVersion"] = "v1"
        document["groupVersion"] = f"{group}/{version}" if group else version
        document["resources"] = listed
        return self._json(request, document)

    def _aggregate(self, request: Request, groups: Iterable[tuple[str, list[str]]], version: str) -> Answer:
        key = f"{request.path} {version}"
        body = self._documents.get(key)
        if body is None:
            items = [self._discovered(group, versions) for group, versions in groups]
            document = {
                "kind": _AGGREGATED,
                "apiVersion": f"apidiscovery.k8s.io/{version}",
                "metadata": {},
                "items": items,
            }
            body = self._documents[key] = msgspec.json.encode(document) + b"\n"
        tag = f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'
        content_type = f"application/json;g=apidiscovery.k8s.io;v={version};as={_AGGREGATED}"
        headers = {"ETag": tag, "Vary": "Accept", "Cache-Control": "public"}
        if request.header("if-none-match") == tag:
            return Answer(304, b"", content_type, headers)
        return Answer(200, body, content_type, headers)

    def _discovered(self, group: str, versions: list[str]) -> JsonObject:
        return {
            "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "resources": [_discovered(one) for one in self._registry.resources(group, version)],
                    "freshness": "Current",
                }
                for version in versions
            ],
        }

    # --- OpenAPI ----------------------------------------------------------------------------------------

    def _openapi_index(self, request: Request) -> Answer:
        paths: dict[str, JsonObject] = {}
        for key in [
            "api/v1",
            *(f"apis/{g}/{v}" for g, vs in self._registry.group_versions().items() for v in vs),
        ]:
            digest = hashlib.sha256(self._document_bytes(key)).hexdigest()[:32].upper()
            paths[key] = {"serverRelativeURL": f"/openapi/v3/{key}?hash={digest}"}
        return Answer(200, msgspec.json.encode({"paths": paths}))

    def _openapi_v3(self, request: Request, key: str) -> Answer:
        _refuse_protobuf(request)
        body = self._document_bytes(key)
        digest = hashlib.sha256(body).hexdigest()[:32].upper()
        headers = {"ETag": f'"{digest}"', "Vary": "Accept", "Cache-Control": "no-cache, private"}
        if request.query.text("hash") == digest:
            headers["Cache-Control"] = "public, immutable"
        if request.header("if-none-match") == headers["ETag"]:
            return Answer(304, b"", headers=headers)
        return Answer(200, body, headers=headers)

    def _document_bytes(self, key: str) -> bytes:
        body = self._documents.get(f"openapi {key}")
        if body is None:
            body = msgspec.json.encode(self._document(key))
            self._documents[f"openapi {key}"] = body
        return body

    def _document(self, key: str) -> JsonObject:
        parts = key.split("/")
        group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else ("", "")
        if parts[0] == "apis" and len(parts) == 3:
            group, version = parts[1], parts[2]
        served = self._registry.resources(group, version)
        if not served:
            raise failures.page_not_found()
        builtin = self._registry.schemas.document(group, version)
        schemas: JsonObject = dict(builtin["components"]["schemas"]) if builtin else {}
        for one in served:
            if one.definition is not None:
                schemas.update(crd.openapi_v3(one.definition, version))
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": GIT_VERSION},
            "paths": paths_of(served, schemas),
            "components": {"schemas": described(schemas)},
        }

    def _openapi_v2(self, request: Request) -> Answer:
        protobuf = "proto-openapi.spec.v2" in request.header("accept")
        if not protobuf:
            _refuse_protobuf(request)
        key = f"openapi v2 {'protobuf' if protobuf else 'json'}"
        body = self._documents.get(key)
        if body is None:
            whole = self._openapi_v2_document()
            body = openapi_v2.encoded(whole) if protobuf else msgspec.json.encode(whole)
            self._documents[key] = body
        return Answer(200, body, openapi_v2.MEDIA_TYPE) if protobuf else Answer(200, body)

    def _openapi_v2_document(self) -> JsonObject:
        schemas: JsonObject = {}
        for served in self._registry:
            if served.definition is not None:
                schemas.update(crd.openapi_v2(served.definition, served.version))
        for key in [("", "v1"), *((g, v) for g, vs in self._registry.group_versions().items() for v in vs)]:
            builtin = self._registry.schemas.document(*key)
            if builtin:
                schemas.update(described(builtin["components"]["schemas"]))
        return openapi_v2.document(self._registry, schemas, version=GIT_VERSION)


def _refuse_protobuf(request: Request) -> None:
    """Answer 406 to a client that takes only protobuf, so that it asks for JSON."""
    accept = request.header("accept")
    if accept and not any(kind in accept for kind in ("json", "*/*")):
        raise failures.not_acceptable(("application/json",))


def _aggregated(request: Request) -> str:
    """Return the version of aggregated discovery the client prefers, "" when it wants none."""
    for clause in request.header("accept").split(","):
        parameters = dict(part.strip().partition("=")[::2] for part in clause.split(";")[1:])
        if parameters.get("as") == _AGGREGATED and parameters.get("g") == "apidiscovery.k8s.io":
            if parameters.get("v") in ("v2", "v2beta1"):
                return parameters["v"]
        elif codec.media_type(clause) in ("application/json", "*/*"):
            return ""
    return ""


def _group(name: str, versions: list[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _listed(served: Served) -> Iterable[JsonObject]:
    """Yield the APIResource of a resource and of each subresource."""
    resource: JsonObject = {
        "name": served.plural,
        "singularName": served.singular,
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": list(served.verbs),
    }
    if served.short_names:
        resource["shortNames"] = list(served.short_names)
    if served.categories:
        resource["categories"] = list(served.categories)
    if served.storage_hash:
        resource["storageVersionHash"] = served.storage_hash
    elif served.custom is not None:
        digest = hashlib.sha256(f"{served.group}/{served.stored_version}/{served.kind}".encode()).digest()
        resource["storageVersionHash"] = base64.b64encode(digest[:8]).decode()
    yield resource
    names = list(served.subresources) if served.custom is not None else sorted(served.subresources)
    for name in names:
        sub = served.subresources[name]
        entry: JsonObject = {
            "name": f"{served.plural}/{name}",
            "singularName": "",
            "namespaced": served.namespaced,
            "kind": sub.kind,
            "verbs": list(sub.verbs),
        }
        if (sub.group, sub.version) != (served.group, served.version):
            entry["group"], entry["version"] = sub.group, sub.version
        yield entry


def _discovered(served: Served) -> JsonObject:
    """Return the APIResourceDiscovery of a resource."""
    resource: JsonObject = {
        "resource": served.plural,
        "responseKind": {"group": served.group, "version": served.version, "kind": served.kind},
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "singularResource": served.singular,
        "verbs": list(served.verbs),
    }
    if served.short_names:
        resource["shortNames"] = list(served.short_names)
    if served.categories:
        resource["categories"] = list(served.categories)
    if served.subresources:
        resource["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in (served.subresources[name] for name in sorted(served.subresources))
        ]
    return resource
