"""The rules of discovery: slices of endpoints."""

from __future__ import annotations

from typing import Final

from mooring.local.api.fields import (
    duplicate,
    not_supported,
    required,
)
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
    fixed,
)

__all__ = ["RULES"]


def _endpoint_slice(obj: JsonObject) -> Errors:
    kind = obj.get("addressType") or ""
    allowed = ("FQDN", "IPv4", "IPv6")
    if not kind:
        yield required("addressType")
    elif kind not in allowed:
        yield not_supported("addressType", kind, allowed)
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        if not endpoint.get("addresses"):
            yield required(f"endpoints[{index}].addresses", "must contain at least 1 address")
    seen: set[str] = set()
    for index, port in enumerate(obj.get("ports") or ()):
        if (name := port.get("name") or "") in seen:
            yield duplicate(f"ports[{index}].name", name)
        seen.add(name)


RULES: Final[Table] = {
    ("discovery.k8s.io", "EndpointSlice"): also(_endpoint_slice, fixed("addressType")),
}
