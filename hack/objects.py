"""Generate ``mooring.kube.objects`` from the OpenAPI documents of a real Kubernetes.

    python hack/objects.py [--check]

One module per API group, one frozen msgspec Struct per schema, every field optional. The documents are
those the embedded API server serves (``src/mooring/local/api/openapi``); ``--check`` fails when the
committed modules differ from what they would generate.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OPENAPI = ROOT / "src/mooring/local/api/openapi"
TARGET = ROOT / "src/mooring/kube/objects"

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
# Module name -> (document, schema prefix).
MODULES: dict[str, tuple[str, str]] = {
    "meta": ("api__v1", META),
    "core": ("api__v1", "io.k8s.api.core.v1."),
    "apps": ("apis__apps__v1", "io.k8s.api.apps.v1."),
    "policy": ("apis__policy__v1", "io.k8s.api.policy.v1."),
    "batch": ("apis__batch__v1", "io.k8s.api.batch.v1."),
    "certificates": ("apis__certificates.k8s.io__v1", "io.k8s.api.certificates.v1."),
    "coordination": ("apis__coordination.k8s.io__v1", "io.k8s.api.coordination.v1."),
    "discovery": ("apis__discovery.k8s.io__v1", "io.k8s.api.discovery.v1."),
    "events": ("apis__events.k8s.io__v1", "io.k8s.api.events.v1."),
    "storage": ("apis__storage.k8s.io__v1", "io.k8s.api.storage.v1."),
    "rbac": ("apis__rbac.authorization.k8s.io__v1", "io.k8s.api.rbac.v1."),
    "networking": ("apis__networking.k8s.io__v1", "io.k8s.api.networking.v1."),
    "scheduling": ("apis__scheduling.k8s.io__v1", "io.k8s.api.scheduling.v1."),
    "authentication": ("apis__authentication.k8s.io__v1", "io.k8s.api.authentication.v1."),
    "authorization": ("apis__authorization.k8s.io__v1", "io.k8s.api.authorization.v1."),
    "autoscaling": ("apis__autoscaling__v2", "io.k8s.api.autoscaling.v2."),
    "admissionregistration": (
        "apis__admissionregistration.k8s.io__v1",
        "io.k8s.api.admissionregistration.v1.",
    ),
    "apiextensions": (
        "apis__apiextensions.k8s.io__v1",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
    ),
}
# Schemas that are values of their own kind, not structures.
SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "int | float | str",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int | str",
    META + "Time": "str",
    META + "MicroTime": "str",
    META + "FieldsV1": "dict[str, Any]",
    META + "Patch": "dict[str, Any]",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "dict[str, Any]",
}
SKIPPED_KINDS = {META + n for n in ("APIResource", "APIResourceList", "WatchEvent", "ManagedFieldsEntry")}
ANY_PREFIX = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON"
# The managers of fields are many bytes that no controller reads.
DROPPED = {(META + "ObjectMeta", "managedFields")}

WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake(name: str) -> str:
    """Python's name of a JSON field: ``podIPs`` -> ``pod_ips``."""
    plural = re.sub(r"(IP|CIDR|URL|WWN|ID)s(?=$|[A-Z])", lambda m: m[1].capitalize() + "s", name)
    result = WORDS.sub("_", plural).lower()
    return result + "_" if keyword.iskeyword(result) else result


def camel(name: str) -> str:
    """What msgspec's ``rename="camel"`` makes of a Python name."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


class Module:
    """One generated module: the schemas of one API group."""

    def __init__(self, name: str) -> None:
        self.name = name
        _, self.prefix = MODULES[name]
        self.imports: set[str] = set()

    def type_of(self, schema: dict[str, Any]) -> str:
        if "allOf" in schema:
            schema = schema["allOf"][0]
        if ref := schema.get("$ref"):
            return self.reference(ref.removeprefix("#/components/schemas/"))
        match schema.get("type"):
            case "string":
                return "str"
            case "boolean":
                return "bool"
            case "integer":
                return "int"
            case "number":
                return "float"
            case "array":
                return f"list[{self.type_of(schema['items'])}]"
            case "object" if "additionalProperties" in schema:
                return f"dict[str, {self.type_of(schema['additionalProperties'])}]"
            case "object":
                return "dict[str, Any]"
        return "Any"

    def reference(self, name: str) -> str:
        if name in SCALARS:
            return SCALARS[name]
        if name.startswith(ANY_PREFIX):
            return "Any"
        short = name.rpartition(".")[2]
        if name.startswith(self.prefix):
            return short
        for module, (_, prefix) in MODULES.items():
            if name.startswith(prefix):
                self.imports.add(module)
                return f"{module}.{short}"
        raise SystemExit(f"{self.name}: no module holds {name}")

    def render(self, resources: dict[tuple[str, str, str], tuple[str, bool]]) -> str:
        schemas = all_schemas()
        classes, names = [], []
        for full in sorted(n for n in schemas if n.startswith(self.prefix)):
            if full in SCALARS or full in SKIPPED_KINDS or full.startswith(ANY_PREFIX):
                continue
            short = full.rpartition(".")[2]
            if short.endswith("List") and "items" in schemas[full].get("properties", {}):
                continue
            names.append(short)
            classes.append(self.render_class(full, schemas[full], resources))
        kinds = any("(Object," in text for text in classes)
        lines = [
            f'"""Typed objects of `{self.prefix.rstrip(".")}`, generated by hack/objects.py; do not edit."""',
            "",
        ]
        lines += ["from __future__ import annotations", "", "from typing import Any, ClassVar", ""]
        lines += ["from msgspec import field", ""]
        if kinds:
            lines.append("from mooring.kube.object import Object, Resource")
        for module in sorted(self.imports):
            lines.append(f"from mooring.kube.objects import {module}")
        lines += ["from mooring.kube.part import Part", "", "__all__ = ["]
        lines += [f'    "{name}",' for name in names] + ["]", ""]
        return "\n".join(lines) + "\n\n" + "\n\n\n".join(classes) + "\n"

    def render_class(
        self, full: str, schema: dict[str, Any], resources: dict[tuple[str, str, str], tuple[str, bool]]
    ) -> str:
        short = full.rpartition(".")[2]
        properties: dict[str, Any] = schema.get("properties", {})
        gvk = (schema.get("x-kubernetes-group-version-kind") or [{}])[0]
        identity = (gvk.get("group", ""), gvk.get("version", ""), gvk.get("kind", ""))
        kind = identity in resources and "metadata" in properties
        lines = [
            f"class {short}({'Object' if kind else 'Part'}, frozen=True, kw_only=True):",
            f'    """`{full}`."""',
            "",
        ]
        if kind:
            plural, namespaced = resources[identity]
            group, version, name = identity
            place = f'Resource("{group}", "{version}", "{name}", "{plural}", {namespaced})'
            lines.append(f"    resource: ClassVar[Resource] = {place}")
        keyed = {
            json_name: tuple(value["x-kubernetes-list-map-keys"])
            for json_name, value in sorted(properties.items())
            if value.get("x-kubernetes-list-type") == "map"
        }
        if keyed:
            lines.append(f"    list_keys: ClassVar[dict[str, tuple[str, ...]]] = {keyed!r}".replace("'", '"'))
        for json_name, value in sorted(properties.items()):
            if (full, json_name) in DROPPED or (kind and json_name in ("apiVersion", "kind", "metadata")):
                continue
            name = snake(json_name)
            kind_of = self.type_of(value)
            optional = kind_of if kind_of == "Any" else f"{kind_of} | None"
            default = "None" if camel(name) == json_name else f'field(default=None, name="{json_name}")'
            lines.append(f"    {name}: {optional} = {default}")
        if lines[-1] == "":
            lines.pop()
        return "\n".join(lines)


@cache
def all_schemas() -> dict[str, Any]:
    """Every schema of every document; documents repeat what they refer to."""
    schemas: dict[str, Any] = {}
    for document in sorted({document for document, _ in MODULES.values()}):
        schemas |= json.loads((OPENAPI / f"{document}.json").read_text())["components"]["schemas"]
    return schemas


def resources() -> dict[tuple[str, str, str], tuple[str, bool]]:
    """(group, version, kind) -> (plural, namespaced), from discovery."""
    found: dict[tuple[str, str, str], tuple[str, bool]] = {}
    for key, value in json.loads((OPENAPI / "discovery.json").read_text()).items():
        if not isinstance(value, dict) or value.get("kind") != "APIResourceList":
            continue
        group_version = key.replace("api_v1", "v1").removeprefix("apis/")
        group, _, version = group_version.rpartition("/")
        for item in value["resources"]:
            if "/" not in item["name"]:
                found[(group, version, item["kind"])] = (item["name"], item["namespaced"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="fail when a committed module is out of date")
    check = parser.parse_args().check
    known = resources()
    stale = []
    for name in MODULES:
        text = Module(name).render(known)
        text = subprocess.run(
            ["ruff", "format", "--isolated", "--line-length", "110", "-"],
            input=text,
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        path = TARGET / f"{name}.py"
        if check:
            stale += [path.name] if not path.exists() or path.read_text() != text else []
        else:
            path.write_text(text)
    if stale:
        print(f"out of date: {', '.join(stale)}; run python hack/objects.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
