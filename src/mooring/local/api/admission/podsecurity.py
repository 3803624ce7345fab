"""Pod Security admission: the labels of a namespace say what its pods must keep to.

`pod-security.kubernetes.io/enforce` refuses pods, `warn` warns of them and of workloads that would make such, `audit`
tells the audit log; each has a `-version`. Without labels everything is allowed, as a real server's default is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

from mooring.local.api import fields
from mooring.local.api.admission.podstandards import LATEST, Level, Violation, described, violations
from mooring.local.api.call import Call
from mooring.local.api.errors import invalid_object
from mooring.local.api.fields import FieldError

__all__ = ["check_pod_security"]

JsonObject = dict[str, Any]

_PREFIX: Final = "pod-security.kubernetes.io/"
_LEVELS: Final = get_args(Level)
#: Where workloads have their pods; of a CronJob and a PodTemplate it is elsewhere than of the others.
_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "daemonsets.apps",
            "deployments.apps",
            "jobs.batch",
            "replicasets.apps",
            "replicationcontrollers",
            "statefulsets.apps",
        ),
        ("spec", "template"),
    ),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
    "podtemplates": ("template",),
}
#: Pods of a namespace that are looked at when its label changes.
_MOST_PODS: Final = 3000


@dataclass(frozen=True, slots=True)
class _Standard:
    """A level and the version of it."""

    level: Level = "privileged"
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def violated(self, meta: JsonObject, spec: JsonObject) -> list[Violation]:
        minor = LATEST if self.version == "latest" else int(self.version.removeprefix("v1.")[:4])
        return violations(meta, spec, level=self.level, minor=minor)


@dataclass(frozen=True, slots=True)
class _Policy:
    """What holds in a namespace."""

    enforce: _Standard
    audit: _Standard
    warn: _Standard

    @property
    def privileged(self) -> bool:
        """Whether nothing is forbidden, warned of or told."""
        return {self.enforce.level, self.audit.level, self.warn.level} == {"privileged"}


def check_pod_security(call: Call, obj: JsonObject, old: JsonObject | None) -> None:
    """Refuse a pod that its namespace does not allow (403), and labels that cannot be read (422); warn of the others."""
    storage, subresource = call.served.storage, call.target.subresource
    if storage == "namespaces":
        if not subresource:
            _check_namespace(call, obj, old)
    elif storage == "pods":
        if subresource in ("", "ephemeralcontainers", "resize") and (old is None or _matters(obj, old)):
            _check_pod(call, obj["metadata"], obj.get("spec") or {}, enforced=True)
    elif (path := _TEMPLATES.get(storage)) is not None and not subresource:
        template: Any = obj
        for step in path:
            template = (template or {}).get(step)
        if template:
            _check_pod(call, template.get("metadata") or {}, template.get("spec") or {}, enforced=False)


def _check_pod(call: Call, meta: JsonObject, spec: JsonObject, *, enforced: bool) -> None:
    namespace = call.cluster.store.collection("namespaces").head(("", call.namespace))
    labels = (namespace.obj["metadata"].get("labels") or {}) if namespace is not None else {}
    policy, _ = _policy(labels)
    if policy.privileged:
        return
    request = call.request
    if enforced:
        request.annotations[f"{_PREFIX}enforce-policy"] = str(policy.enforce)
    if told := policy.audit.violated(meta, spec):
        request.annotations[f"{_PREFIX}audit-violations"] = _would(policy.audit, told)
    if enforced and (refused := policy.enforce.violated(meta, spec)):
        why = f'violates PodSecurity "{policy.enforce}": {described(refused)}'
        raise call.forbidden(why, meta.get("name") or "")
    if warned := policy.warn.violated(meta, spec):
        request.warnings.append(_would(policy.warn, warned))


def _would(standard: _Standard, found: list[Violation]) -> str:
    return f'would violate PodSecurity "{standard}": {described(found)}'


def _matters(pod: JsonObject, old: JsonObject) -> bool:
    """Whether a changed pod is looked at again: it has other containers, or other images."""
    return _images(pod) != _images(old)


def _images(pod: JsonObject) -> list[list[tuple[str, str]]]:
    spec = pod.get("spec") or {}
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return [[(one["name"], one.get("image", "")) for one in spec.get(kind) or ()] for kind in kinds]


# --- namespaces -----------------------------------------------------------------------------------------


def _policy(labels: Mapping[str, str]) -> tuple[_Policy, list[FieldError]]:
    """Return what labels ask for, and what is wrong with them; what cannot be read is enforced as `restricted`."""
    errors: list[FieldError] = []
    standards = {mode: _standard(labels, mode, errors) for mode in ("enforce", "audit", "warn")}
    enforce, warn = standards["enforce"], standards["warn"]
    said = labels.get(f"{_PREFIX}enforce") in _LEVELS and f"{_PREFIX}warn" not in labels
    if said and enforce.level != "privileged":
        own = f"{_PREFIX}warn-version" in labels
        warn = _Standard(enforce.level, warn.version if own else enforce.version)
    return _Policy(enforce, standards["audit"], warn), errors


def _standard(labels: Mapping[str, str], mode: str, errors: list[FieldError]) -> _Standard:
    level = labels.get(f"{_PREFIX}{mode}", "privileged")
    version = labels.get(f"{_PREFIX}{mode}-version", "latest")
    if level not in _LEVELS:
        errors.append(_wrong(mode, level, f"must be one of {', '.join(_LEVELS)}"))
        level = "restricted" if mode == "enforce" else "privileged"
    if version != "latest" and not re.fullmatch(r"v1\.(0|[1-9][0-9]*)", version):
        errors.append(_wrong(f"{mode}-version", version, 'must be "latest" or "v1.x"'))
        version = "latest"
    return _Standard(cast(Level, level), version)


def _wrong(label: str, value: str, why: str) -> FieldError:
    return fields.invalid(f"metadata.labels[{_PREFIX}{label}]", value, why)


def _check_namespace(call: Call, obj: JsonObject, old: JsonObject | None) -> None:
    policy, errors = _policy(obj["metadata"].get("labels") or {})
    before, earlier = _policy(((old or {}).get("metadata") or {}).get("labels") or {})
    if errors and (old is None or errors != earlier):
        raise invalid_object(errors, group="", kind="Namespace", name=obj["metadata"].get("name") or "")
    now, then = policy.enforce, before.enforce
    relaxed = now.version == then.version and _LEVELS.index(now.level) <= _LEVELS.index(then.level)
    if old is not None and now != then and not relaxed:
        call.request.warnings += _pods_in_the_way(call, obj["metadata"]["name"], now)


def _pods_in_the_way(call: Call, namespace: str, standard: _Standard) -> list[str]:
    """Return the warnings about pods of a namespace that violate what is to hold in it."""
    pods = [entry.obj for entry in call.cluster.store.collection("pods").entries(namespace)]
    by_reason: dict[str, list[str]] = {}
    for pod in pods[:_MOST_PODS]:
        if found := standard.violated(pod["metadata"], pod.get("spec") or {}):
            by_reason.setdefault(", ".join(one.reason for one in found), []).append(pod["metadata"]["name"])
    told = []
    if len(pods) > _MOST_PODS:
        about = f"only checked against the first {_MOST_PODS} of {len(pods)} existing pods"
        told.append(f"new PodSecurity enforce level {about}")
    if by_reason:
        told.append(
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"'
        )
    return told + sorted(f"{_first(names)}: {reason}" for reason, names in by_reason.items())


def _first(names: list[str]) -> str:
    others = len(names) - 1
    more = f" (and {others} other pod{'s' if others > 1 else ''})" if others else ""
    return min(names) + more
