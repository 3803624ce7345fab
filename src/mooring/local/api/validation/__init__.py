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
    apps,
    autoscaling,
    batch,
    certificates,
    coordination,
    core,
    discovery,
    events,
    limits,
    networking,
    nodes,
    policy,
    rbac,
    scheduling,
    services,
    storage,
    volumes,
)
from mooring.local.api.validation.addresses import ip_name
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
    if kind == "Event" and rules is not None:
        # Its own rules come first, and say what its name must be; the others are asked when they are kept.
        return [*rules.create(obj)] or validate_metadata(
            metadata, namespaced=namespaced, check=names.http_path_segment
        )
    check = _NAMES.get((group, kind), names.dns1123_subdomain)
    errors = validate_metadata(metadata, namespaced=namespaced, check=check)
    if (group, kind) not in _FREE_FINALIZERS:
        errors += standard_finalizers(metadata.get("finalizers"), [])
    return errors if rules is None else errors + list(rules.create(obj))


def validate_update(
    obj: JsonObject, old: JsonObject, *, group: str, kind: str, namespaced: bool, subresource: str = ""
) -> list[FieldError]:
    """Return what is wrong with a changed built-in object, metadata included."""
    if obj is old:
        return []
    metadata, before = obj.get("metadata") or {}, old.get("metadata") or {}
    errors = []
    if (group, kind) not in _GENERIC_METADATA:
        errors = validate_metadata_update(metadata, before)
    if (group, kind) not in _FREE_FINALIZERS | _GENERIC_METADATA:
        errors += standard_finalizers(metadata.get("finalizers"), before.get("finalizers") or [])
    rules = _RULES.get((group, kind))
    if rules is None:
        return errors
    if subresource in ("status", "approval"):
        return errors + list(rules.status(obj, old))
    return errors + list(rules.update(obj, old)) if not subresource else errors


#: Kinds whose own rules say nothing of changed metadata: only the generic ones do.
_GENERIC_METADATA: Final = frozenset(
    (
        ("", "Event"),
        ("", "LimitRange"),
        ("", "PersistentVolume"),
        ("batch", "Job"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ("policy", "PodDisruptionBudget"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "VolumeAttachment"),
        *(
            ("admissionregistration.k8s.io", kind)
            for kind in (
                "MutatingAdmissionPolicy",
                "MutatingAdmissionPolicyBinding",
                "MutatingWebhookConfiguration",
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding",
                "ValidatingWebhookConfiguration",
            )
        ),
    )
)
#: Kinds that take any qualified name for a finalizer.
_FREE_FINALIZERS: Final = frozenset(
    (
        ("apiregistration.k8s.io", "APIService"),
        ("coordination.k8s.io", "Lease"),
        ("node.k8s.io", "RuntimeClass"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        *(key for key in _GENERIC_METADATA if key[0] in ("policy", "admissionregistration.k8s.io")),
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
        apps,
        autoscaling,
        autoscaling,
        batch,
        certificates,
        coordination,
        core,
        discovery,
        events,
        limits,
        networking,
        nodes,
        events,
        limits,
        networking,
        nodes,
        policy,
        rbac,
        scheduling,
        services,
        storage,
        volumes,
    )
    for key, rules in group.RULES.items()
}
