"""The rules of apiregistration: which server serves a group's version."""

from __future__ import annotations

import base64
from typing import Final

from mooring.local.api import names
from mooring.local.api.fields import invalid, not_supported, required
from mooring.local.api.validation.metadata import validate_metadata
from mooring.local.api.validation.rules import Errors, JsonObject, Table, also, items, port_number, spec_of

__all__ = ["RULES"]

_STATUSES: Final = ("True", "False", "Unknown")


def _service(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    group, version = spec.get("group") or "", spec.get("version") or ""
    wanted = f"{version}.{group}"

    def name(text: str) -> tuple[str, ...]:
        wrong = names.http_path_segment(text)
        return wrong or (() if text == wanted else (f'must be `spec.version+"."+spec.group`: "{wanted}"',))

    yield from validate_metadata(obj.get("metadata") or {}, namespaced=False, check=name)
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    for text in names.dns1123_subdomain(group) if group else ():
        yield invalid("spec.group", group, text)
    for text in names.dns1035_label(version):
        yield invalid("spec.version", version, text)
    for key, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < (number := spec.get(key) or 0) <= most:
            yield invalid(f"spec.{key}", number, f"must be positive and less than {most}")
    bundle, insecure = spec.get("caBundle"), bool(spec.get("insecureSkipTLSVerify"))
    service, path = spec.get("service"), "spec.service"
    if service is None:
        if bundle:
            size = f"{len(base64.b64decode(bundle))} bytes"
            yield invalid("spec.caBundle", size, "local APIServices may not have a caBundle")
        if insecure:
            text = "local APIServices may not have insecureSkipTLSVerify"
            yield invalid("spec.insecureSkipTLSVerify", insecure, text)
        return
    for key in ("namespace", "name"):
        if not service.get(key):
            yield required(f"{path}.{key}")
    for error in port_number(service.get("port") or 0, f"{path}.port"):
        yield invalid(error.field, error.value, f"port is not valid: {error.detail}")
    if insecure and bundle:
        yield invalid("spec.insecureSkipTLSVerify", insecure, "may not be true if caBundle is present")


def _service_status(obj: JsonObject, old: JsonObject) -> Errors:
    for path, condition in items(obj.get("status") or {}, "conditions", "status"):
        if (status := condition.get("status") or "") not in _STATUSES:
            yield not_supported(f"{path}.status", status, _STATUSES)


RULES: Final[Table] = {
    ("apiregistration.k8s.io", "APIService"): also(_service, status=_service_status),
}
