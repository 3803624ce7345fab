"""What is wrong with changed metadata, told as often as a real server tells it.

Every update is checked for what metadata may be and for what of it may change; then most kinds check one of
that, or both, again by rules of their own, and the ones among those that ask more of a finalizer's name say so
each time. A client sees every cause of a refusal, so how often it is told is part of the answer.
"""

from __future__ import annotations

from typing import Any, Final

from mooring.local.api.fields import FieldError
from mooring.local.api.validation.metadata import (
    changed_parts,
    standard_finalizers,
    validate_metadata_update,
)

__all__ = ["FREE_FINALIZERS", "changed_metadata", "own_changed_metadata"]

JsonObject = dict[str, Any]
Key = tuple[str, str]


def changed_metadata(meta: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return what is wrong with the metadata of any changed object, custom resources included."""
    return [*changed_parts(meta, old), *validate_metadata_update(meta, old)]


def own_changed_metadata(meta: JsonObject, old: JsonObject, key: Key, *, status: bool) -> list[FieldError]:
    """Return what the rules of a built-in kind (group, kind) say of changed metadata besides."""
    if meta is old or key in _SILENT:
        return []
    finalizers: list[FieldError] = []
    if key not in FREE_FINALIZERS:
        finalizers = [*standard_finalizers(meta.get("finalizers"), old.get("finalizers") or [])]
    errors = [] if key in _WHOLE else [*validate_metadata_update(meta, old), *finalizers]
    if status:
        return errors
    for _ in range(_WHOLE.get(key, 1 if key in _BOTH else 0)):
        errors += [*changed_parts(meta, old), *finalizers]
    return errors


#: Kinds whose own rules say nothing of metadata.
_SILENT: Final = frozenset((("", "Event"), ("policy", "PodDisruptionBudget")))
_ADMISSION: Final = frozenset(
    ("admissionregistration.k8s.io", kind)
    for kind in (
        "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
    )
)  # fmt: skip
#: Kinds whose rules say again what metadata may be, and how often, but not what of it may change.
_WHOLE: Final[dict[Key, int]] = {
    ("", "LimitRange"): 1,
    ("", "PersistentVolume"): 2,
    ("discovery.k8s.io", "EndpointSlice"): 1,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): 1,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): 1,
    ("storage.k8s.io", "CSINode"): 1,
    ("storage.k8s.io", "VolumeAttachment"): 1,
    **dict.fromkeys(_ADMISSION, 1),
}
#: Kinds whose rules say both again; those of all others only what may change.
_BOTH: Final = frozenset(
    (group, kind)
    for group, kinds in (
        ("", (
            "ConfigMap", "Endpoints", "Namespace", "Node", "PersistentVolumeClaim", "Pod", "Secret",
            "ServiceAccount",
        )),
        ("apiregistration.k8s.io", ("APIService",)),
        ("apps", ("ControllerRevision",)),
        ("batch", ("Job",)),
        ("certificates.k8s.io", ("CertificateSigningRequest",)),
        ("networking.k8s.io", ("IPAddress", "Ingress", "IngressClass")),
        ("node.k8s.io", ("RuntimeClass",)),
        ("rbac.authorization.k8s.io", ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
        ("resource.k8s.io", ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate")),
        ("storage.k8s.io", ("CSIStorageCapacity", "StorageClass", "VolumeAttributesClass")),
    )
    for kind in kinds
)  # fmt: skip
#: Kinds that take any qualified name for a finalizer.
FREE_FINALIZERS: Final = _ADMISSION | {
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("coordination.k8s.io", "Lease"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodDisruptionBudget"),
}
