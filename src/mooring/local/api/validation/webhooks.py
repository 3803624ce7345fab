"""The rules of webhooks that judge writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from mooring.local.api import names
from mooring.local.api.fields import duplicate, invalid, not_supported, required
from mooring.local.api.validation.matching import (
    FAILURES,
    MATCHES,
    REINVOCATIONS,
    condition_errors,
    rule_errors,
)
from mooring.local.api.validation.metadata import selector_errors
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    items,
    port_number,
)

__all__ = ["webhooks"]

#: What the conditions of webhooks may look at.
_HOOK_VARIABLES: Final = ("object", "oldObject", "request", "authorizer")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_VERSIONS: Final = ("v1", "v1beta1")
_URL_FORM: Final = "; desired format: https://host[/path]"


def webhooks(obj: JsonObject) -> Errors:
    """Yield what is wrong with a configuration of webhooks."""
    known: set[str] = set()
    for path, hook in items(obj, "webhooks", ""):
        yield from _webhook(hook, path)
        yield from _versions(hook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")
        if (name := hook.get("name") or "") in known:
            yield duplicate(f"{path}.name", name)
        known |= {name} if name else set()


def _webhook(hook: JsonObject, path: str) -> Errors:
    yield from _hook_name(hook.get("name") or "", f"{path}.name")
    for place, rule in items(hook, "rules", path):
        yield from rule_errors(rule, place)
    for key, allowed in (("failurePolicy", FAILURES), ("matchPolicy", MATCHES)):
        if hook.get(key) is not None and hook[key] not in allowed:
            yield not_supported(f"{path}.{key}", hook[key], allowed)
    effects, seconds = hook.get("sideEffects"), hook.get("timeoutSeconds")
    if effects is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    elif effects not in _SIDE_EFFECTS:
        yield not_supported(f"{path}.sideEffects", effects, _SIDE_EFFECTS)
    if seconds is not None and not 1 <= seconds <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        yield invalid(f"{path}.timeoutSeconds", seconds, text)
    for key in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(hook.get(key), f"{path}.{key}")
    if hook.get("reinvocationPolicy") not in (None, *REINVOCATIONS):
        yield not_supported(f"{path}.reinvocationPolicy", hook["reinvocationPolicy"], REINVOCATIONS)
    yield from _client(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from condition_errors(hook, path, _HOOK_VARIABLES)


def _hook_name(name: str, path: str) -> Errors:
    if not name:
        yield required(path)
    elif texts := names.dns1123_subdomain(name):
        yield invalid(path, name, ",".join(texts))
    elif name.count(".") < 2:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _versions(versions: Sequence[str], path: str) -> Errors:
    if not versions:
        yield required(path, f"must specify one of {', '.join(_VERSIONS)}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        for text in names.dns1035_label(version):
            yield invalid(f"{path}[{index}]", version, text)
    if not set(versions) & set(_VERSIONS):
        yield invalid(path, versions, f"must include at least one of {', '.join(_VERSIONS)}")


def _client(client: JsonObject, path: str) -> Errors:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(url, f"{path}.url")
    elif service is not None:
        yield from _service(service, f"{path}.service")


def _url(url: str, path: str) -> Errors:
    parts = urlsplit(url)
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.netloc.rpartition("@")[2]:
        yield invalid(path, "", f"host must be specified{_URL_FORM}")
    if "@" in parts.netloc:
        user = parts.netloc.rpartition("@")[0]
        yield invalid(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _service(service: JsonObject, path: str) -> Errors:
    # A real server passes both in the wrong order, and names the other one.
    for key, other in (("name", "namespace"), ("namespace", "name")):
        if not service.get(other):
            yield required(f"{path}.{key}")
    for error in port_number(service.get("port") or 0, f"{path}.port"):
        yield invalid(error.field, error.value, f"port is not valid: {error.detail}")
    where = service.get("path")
    if not where or where == "/":
        return
    if where == "//":
        yield invalid(f"{path}.path", where, "segment[0] may not be empty")
        return
    if not where.startswith("/"):
        yield invalid(f"{path}.path", where, "must start with a '/'")
    for index, step in enumerate(where[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(f"{path}.path", where, f"segment[{index}] may not be empty")
            continue
        for text in names.dns1123_subdomain(step):
            yield invalid(f"{path}.path", where, f"segment[{index}]: {text}")
