"""Write what a real API server tells of its kinds and fields, for `kubectl explain`.

    python hack/descriptions.py

The OpenAPI documents of the embedded server are kept without texts; this is the one file that holds them,
once for each schema, however many documents it stands in.
"""

from __future__ import annotations

import gzip
import json
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if not __package__:
    sys.path.insert(0, str(ROOT))

from hack.kubernetes.controlplane import ControlPlane  # noqa: E402

from mooring.kube import Config  # noqa: E402

TARGET = ROOT / "src/mooring/local/api/openapi/descriptions.json.gz"


def told(schemas: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The texts of schemas by name and field; the schema's own under ""."""
    found: dict[str, dict[str, str]] = {}
    for name, schema in schemas.items():
        texts = {"": schema.get("description", "")}
        texts |= {key: part.get("description", "") for key, part in (schema.get("properties") or {}).items()}
        if kept := {key: text for key, text in texts.items() if text}:
            found[name] = kept
    return found


def main() -> int:
    """Ask a real server for every document, and write the file."""
    found: dict[str, dict[str, str]] = {}
    with ControlPlane(controllers=False) as plane:
        config = Config.load(plane.kubeconfig)
        context = replace(config).ssl_context()

        def get(path: str) -> Any:
            with urllib.request.urlopen(config.server + path, context=context, timeout=60) as answer:
                return json.load(answer)

        for about in get("/openapi/v3")["paths"].values():
            found |= told(get(about["serverRelativeURL"]).get("components", {}).get("schemas", {}))
    text = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    TARGET.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{TARGET}: {len(found)} schemas, {TARGET.stat().st_size >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
