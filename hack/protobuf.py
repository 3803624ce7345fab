"""Generate the field numbers of the built-in kinds from Kubernetes' own .proto files.

    python hack/protobuf.py MODULES [--check]

MODULES is the directory that holds k8s.io/api@VERSION and its siblings, such as $(go env GOMODCACHE)/k8s.io
after hack/kubernetes has built the servers. The result lets the embedded API server read bodies that
clients send as application/vnd.kubernetes.protobuf; kubectl does so for `create`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPENAPI = ROOT / "src/mooring/local/api/openapi"
TARGET = OPENAPI / "protobuf.json"
VERSION = "v0.36.3"
FILES = (
    *(
        f"api@{VERSION}/{group}/generated.proto"
        for group in (
            "admissionregistration/v1", "apps/v1", "authentication/v1", "authorization/v1", "autoscaling/v1",
            "autoscaling/v2", "batch/v1", "certificates/v1", "coordination/v1", "core/v1", "discovery/v1",
            "events/v1", "flowcontrol/v1", "networking/v1", "node/v1", "policy/v1", "rbac/v1", "resource/v1",
            "scheduling/v1", "storage/v1",
        )
    ),
    f"apimachinery@{VERSION}/pkg/apis/meta/v1/generated.proto",
    f"apiextensions-apiserver@{VERSION}/pkg/apis/apiextensions/v1/generated.proto",
    f"kube-aggregator@{VERSION}/pkg/apis/apiregistration/v1/generated.proto",
)  # fmt: skip

_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(
    r"^\s*(?:map<string, (?P<value>[\w.]+)>|(?P<label>optional|repeated) (?P<type>[\w.]+)) +"
    r"(?P<name>\w+) = (?P<number>\d+);",
    re.MULTILINE,
)
_SCALARS = {"string", "int32", "int64", "bool", "bytes", "double", "uint32", "uint64"}

Fields = dict[str, list[str]]


def short(name: str) -> str:
    """Return the name that the OpenAPI documents give a message."""
    name = name.lstrip(".").replace("k8s.io.", "io.k8s.", 1)
    return name.replace("apiextensions_apiserver", "apiextensions-apiserver").replace(
        "kube_aggregator", "kube-aggregator"
    )


def schemas() -> dict[str, set[str]]:
    """Return the properties of every definition of the OpenAPI documents."""
    found: dict[str, set[str]] = {}
    for path in OPENAPI.glob("api*.json"):
        for name, schema in json.loads(path.read_text())["components"]["schemas"].items():
            found[name] = set(schema.get("properties", ()))
    return found


def plain(name: str) -> str:
    """Return a field name without what JSON Schema's names have and protobuf's cannot."""
    return re.sub(r"[^a-z]", "", name.lower())


def fields(package: str, name: str, body: str, known: dict[str, set[str]]) -> Fields:
    """Return number -> [JSON name, type, flags]; flags: r repeated, m map, i inlined into its parent."""
    properties = known.get(f"{short(package)}.{name}")
    result: Fields = {}
    for match in _FIELD.finditer(re.sub(r"//.*", "", body)):
        kind = match["value"] or match["type"]
        if kind not in _SCALARS:
            kind = short(kind if "." in kind else f"{package}.{kind}")
        json_name = match["name"]
        if properties and json_name not in properties:
            json_name = {plain(p): p for p in properties}.get(plain(json_name), json_name)
        flags = "r" if match["label"] == "repeated" else "m" if match["value"] else ""
        if not flags and kind not in _SCALARS and properties and json_name not in properties:
            flags = "i"
        result[match["number"]] = [json_name, kind, flags]
    return result


def generate(modules: Path) -> str:
    """Return the table as JSON, one message a line."""
    known = schemas()
    messages: dict[str, Fields] = {}
    for file in FILES:
        text = (modules / file).read_text()
        found = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
        assert found is not None
        for message in _MESSAGE.finditer(text):
            name = f"{short(found[1])}.{message[1]}"
            messages[name] = fields(found[1], message[1], message[2], known)
    lines = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in sorted(messages.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Write the table, or compare it with the committed one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", type=Path)
    parser.add_argument("--check", action="store_true", help="fail when the committed table differs")
    arguments = parser.parse_args()
    text = generate(arguments.modules)
    if not arguments.check:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print(f"{TARGET} is not what {sys.argv[0]} generates: run it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
