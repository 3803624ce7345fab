"""The rules of built-in kinds: required fields, names, labels, what must not change.

What all objects share is in `metadata`; every group has a module with a table of its kinds' rules, which
are put together here. Texts, their order and their fields are those of k8s.io/kubernetes/pkg/apis/*/validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mooring.local.api import names
from mooring.local.api.fields import FieldError
from mooring.local.api.validation import (
    admissionregistration,
    apiregistration,
    apps,
    autoscaling,
    batch,
    certificates,
    coordination,
    core,
    discovery,
    events,
    flowcontrol,
    limits,
    networking,
    node,
    nodes,
    policy,
    rbac,
    resource,
    scheduling,
    services,
    storage,
    volumes,
)
from mooring.local.api.validation.addresses import ip_name
from mooring.local.api.validation.changes import FREE_FINALIZERS, own_changed_metadata
from mooring.local.api.validation.metadata import (
    standard_finalizers,
    validate_metadata,
    validate_metadata_update,
)
from mooring.local.api.validation.rules import Table

__all__ = ["validate_create", "validate_metadata", "validate_metadata_update", "validate_update"]

JsonObject = dict[str, Any]


def validate_create(obj: JsonObject, *, group: str, kind: str, namespaced: bool) -> list[FieldError]:
    """Return what is wrong with a new built-in object (after defaulting), metadata included."""
    metadata = obj.get("metadata") or {}
    rules = _RULES.get((group, kind))
    if rules is not None and (group, kind) in _OWN_FIRST:
        return [*rules.create(obj)] or validate_metadata(
            metadata, namespaced=namespaced, check=names.http_path_segment
        )
    check = _NAMES.get((group, kind), names.dns1123_subdomain)
    errors = validate_metadata(metadata, namespaced=namespaced, check=check)
    if (group, kind) not in FREE_FINALIZERS:
        errors += standard_finalizers(metadata.get("finalizers"), [])
    return errors if rules is None else errors + list(rules.create(obj))


def validate_update(
    obj: JsonObject, old: JsonObject, *, group: str, kind: str, namespaced: bool, subresource: str = ""
) -> list[FieldError]:
    """Return what is wrong with a changed built-in object, metadata included."""
    if obj is old:
        return []
    metadata, before = obj.get("metadata") or {}, old.get("metadata") or {}
    errors = own_changed_metadata(metadata, before, (group, kind), status=bool(subresource))
    rules = _RULES.get((group, kind))
    if rules is None:
        return errors
    if subresource == "status":
        return errors + list(rules.status(obj, old))
    if subresource == "approval":
        return errors + list(rules.approval(obj, old))
    return errors + list(rules.update(obj, old)) if not subresource else errors


#: Kinds whose own rules come first, and say what a name must be; what is asked of all only when they are kept.
_OWN_FIRST: Final = frozenset(
    (
        ("", "Event"),
        ("apiregistration.k8s.io", "APIService"),
        ("events.k8s.io", "Event"),
        ("policy", "PodDisruptionBudget"),
    )
)


def _long_name(text: str) -> tuple[str, ...]:
    """Judge a name by the newer words for the same rule."""
    return tuple(why.replace("253 characters", "253 bytes") for why in names.dns1123_subdomain(text))


_NAMES: Final[dict[tuple[str, str], Callable[[str], tuple[str, ...]]]] = {
    ("", "Service"): names.dns1123_label,
    ("", "Namespace"): names.dns1123_label,
    ("apps", "StatefulSet"): names.dns1123_label,
    ("certificates.k8s.io", "CertificateSigningRequest"): names.http_path_segment,
    ("policy", "PodDisruptionBudget"): names.http_path_segment,
    ("", "ReplicationController"): _long_name,
    ("resource.k8s.io", "DeviceClass"): _long_name,
    ("networking.k8s.io", "IPAddress"): ip_name,
    **{
        ("rbac.authorization.k8s.io", kind): names.http_path_segment
        for kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    },
}
_RULES: Final[Table] = {
    key: rules
    for group in (
        admissionregistration,
        apiregistration,
        apps,
        autoscaling,
        batch,
        certificates,
        coordination,
        core,
        discovery,
        events,
        flowcontrol,
        limits,
        networking,
        node,
        nodes,
        policy,
        rbac,
        resource,
        scheduling,
        services,
        storage,
        volumes,
    )
    for key, rules in group.RULES.items()
}
