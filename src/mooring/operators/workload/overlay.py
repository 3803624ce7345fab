"""What users add to the pods that an operator makes: ``spec.podTemplate``, laid over the rendered template.

The rules are those of a strategic merge: objects are merged field by field, maps by key, and containers, volumes,
variables and mounts by name; other lists replace what was there. What the operator decides stays: `overlay_rules` refuses
an overlay that names it, and `overlaid` leaves such a field out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar, get_origin

import msgspec
from msgspec.structs import replace

from mooring.kube.objects import core, meta
from mooring.kube.part import Part
from mooring.runtime.crd import F
from mooring.runtime.crd_markers import unwrap

__all__ = [
    "OURS",
    "POD_FIELDS",
    "PROBES",
    "PROBE_NUMBERS",
    "Ours",
    "PodTemplate",
    "PodTemplateMetadata",
    "declared",
    "merged",
    "overlaid",
    "placed",
    "read_pod",
    "read_security",
]

P = TypeVar("P", bound=Part)
E = TypeVar("E")

OURS: Final = "mooring.dev"
"""Labels and annotations of this domain, and of those below it, are the operators'."""
POD_FIELDS: Final[Mapping[str, str]] = {
    "affinity": "Replaces the affinity of other fields and the default one.",
    "automountServiceAccountToken": "Default: false.",
    "containers": "Sidecars; or, by name, additions to the containers that the operator makes.",
    "dnsConfig": "Of the pods.",
    "dnsPolicy": "Default with hostNetwork: ClusterFirstWithHostNet.",
    "enableServiceLinks": "Of the pods.",
    "hostAliases": "Lines of /etc/hosts.",
    "hostNetwork": "The pods use their nodes' network: one for each node.",
    "hostUsers": "false: user ids in the pods are not those of the node.",
    "imagePullSecrets": "Beside those of other fields.",
    "initContainers": "Run before the servers start; with restartPolicy Always, beside them.",
    "nodeSelector": "Beside that of other fields.",
    "preemptionPolicy": "Of the pods.",
    "priorityClassName": "Of the pods.",
    "runtimeClassName": "Of the pods.",
    "schedulerName": "Of the pods.",
    "securityContext": "Of the pods, field by field over that of other fields.",
    "serviceAccountName": "Of the pods.",
    "terminationGracePeriodSeconds": "No less than the servers need to hand over and stop.",
    "tolerations": "Replace those of other fields.",
    "topologySpreadConstraints": "Of the pods.",
    "volumes": "Further volumes.",
}
"""What may be given of the pods, by its name in JSON."""
_PLACING: Final = frozenset(
    {
        *("automountServiceAccountToken", "dnsConfig", "dnsPolicy", "hostAliases", "imagePullSecrets"),
        *("nodeSelector", "priorityClassName", "runtimeClassName", "schedulerName", "securityContext"),
        *("serviceAccountName", "tolerations"),
    }
)
"""What also counts for a pod that is not one of the set's, such as that of a trial start."""
_ATTRIBUTES: Final = dict(
    zip(core.PodSpec.__struct_encode_fields__, core.PodSpec.__struct_fields__, strict=True)
)
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
PROBE_NUMBERS: Final = frozenset(
    {
        *("failure_threshold", "initial_delay_seconds", "period_seconds", "success_threshold"),
        "timeout_seconds",
    }
)
"""What may be given of a probe of a container that the operator makes."""


# --- the field -----------------------------------------------------------------------------------------------


def _shown(name: str) -> dict[str, Any]:
    """The schema of a field of the pods: its type is checked by the API server, what is in it by `overlay_rules`."""
    kind = _TYPES[name]
    schema: dict[str, Any] = {"description": POD_FIELDS[name]}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if kind in _SCALARS:
        return {**schema, "type": _SCALARS[kind]}
    if get_origin(kind) is not list:
        return {**schema, **anything}
    keys = core.PodSpec.list_keys.get(name)
    if keys != ("name",):
        return {**schema, "type": "array", "items": anything}
    items = {**anything, "required": ["name"], "properties": {"name": {"type": "string"}}}
    named = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    return {**schema, "type": "array", "items": items, **named}


_SCALARS: Final[Mapping[Any, str]] = {str: "string", int: "integer", bool: "boolean"}
_TYPES: Final = {one.encode_name: unwrap(one.type)[0] for one in msgspec.structs.fields(core.PodSpec)}
_SPEC: Final[Mapping[str, Any]] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {name: _shown(name) for name in POD_FIELDS},
}


class PodTemplateMetadata(Part, frozen=True, kw_only=True):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, str] | None, F("Beside those of the operator and of other fields.")] = None
    annotations: Annotated[dict[str, str] | None, F("Beside those of the operator and of other fields.")] = (
        None
    )


class PodTemplate(Part, frozen=True, kw_only=True):
    """What is laid over the template of the pods; a change is rolled out."""

    metadata: Annotated[PodTemplateMetadata | None, F("Labels and annotations.")] = None
    # As it was written: what cannot be read is a fault of this field, and the cluster is looked after all the same.
    spec: Annotated[dict[str, Any] | None, F("As the spec of a pod.", schema=_SPEC)] = None


def declared(given: PodTemplate | None) -> dict[str, Any]:
    """What an overlay says, for the digest of the inputs; empty where it says nothing."""
    plain = msgspec.to_builtins(given) if given is not None else {}
    found = _without_nothing(plain)
    return found if isinstance(found, dict) else {}


def _without_nothing(value: Any) -> Any:
    """The value without members that are null or empty, but for those of lists, such as ``emptyDir: {}`` of a volume."""
    if not isinstance(value, dict):
        return value
    cleared = {name: _without_nothing(one) for name, one in value.items()}
    return {name: one for name, one in cleared.items() if one is not None and one not in ({}, [])}


def read_pod(given: PodTemplate | None) -> core.PodSpec:
    """The overlay's pod; `msgspec.ValidationError` where a field has another type."""
    return msgspec.convert(declared(given).get("spec", {}), core.PodSpec)


def read_security(given: PodTemplate | None) -> core.PodSecurityContext | None:
    """The overlay's security context of the pods, where the overlay can be read."""
    try:
        return read_pod(given).security_context
    except msgspec.ValidationError:
        return None


# --- the merge -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ours:
    """What an operator decides about the pods of one component, as far as an overlay could contradict it."""

    where: str
    """The path of the overlay: ``spec.podTemplate``."""
    containers: Mapping[str, Mapping[str, str]]
    """Containers of the operator, which may or may not be there now; of each, fields that are declared elsewhere (by
    their names in JSON) and where."""
    inits: Collection[str] = ()
    """Of these, the init containers."""
    off: Mapping[str, str] = field(default_factory=dict)
    """Of these, those that are not there now, and what to do to have them."""
    volumes: Collection[str]
    """Names of its volumes, those included that are not there now."""
    absent: Collection[str] = ()
    """Of these, those that are not there now."""
    claims: Collection[str] = ()
    """Volumes of the user's that are declared elsewhere."""
    paths: Sequence[str] = ()
    """Where its containers mount volumes."""
    variables: Collection[str] = ()
    """Variables that its scripts read."""
    ports: Collection[int] = ()
    """Where its containers listen."""
    labels: Collection[str] = ()
    """Labels that select the pods."""
    grace: int = 30
    """Seconds that its containers may need to stop."""
    probes: Mapping[str, Collection[str]]
    """The probes of its containers, by their names in JSON."""
    stops: Collection[str] = ()
    """Its containers that do something before they stop."""

    def keeps(self, key: str) -> bool:
        """Whether a label or an annotation is for the operator or for Kubernetes to set."""
        domain = key.partition("/")[0] if "/" in key else ""
        return (
            key in self.labels
            or key in _OF_KUBERNETES
            or domain == OURS
            or domain.endswith(f".{OURS}")
            or domain == "redis.kun"
        )


_OF_KUBERNETES: Final = frozenset(
    {"controller-revision-hash", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"}
)


def overlaid(template: core.PodTemplateSpec, given: PodTemplate | None, ours: Ours) -> core.PodTemplateSpec:
    """The rendered template with the overlay laid over it; the very template where the overlay says nothing.

    An overlay that cannot be read is left out as a whole: `overlay_rules.faults` says so, and nothing is rolled.
    """
    if not declared(given) or given is None:
        return template
    try:
        over = read_pod(given)
    except msgspec.ValidationError:
        return template
    metadata = given.metadata or PodTemplateMetadata()
    there, pod = template.metadata or meta.ObjectMeta(), template.spec or core.PodSpec()
    return core.PodTemplateSpec(
        metadata=replace(
            there,
            labels=_keyed(there.labels, metadata.labels, ours),
            annotations=_keyed(there.annotations, metadata.annotations, ours),
        ),
        spec=_pod(pod, over, ours),
    )


def placed(pod: core.PodSpec, given: PodTemplate | None) -> core.PodSpec:
    """``pod`` with the placement and the account of the overlay, without the containers and volumes of the overlay."""
    try:
        over = read_pod(given)
    except msgspec.ValidationError:
        return pod
    return _fields(pod, over, _PLACING)


def _keyed(there: dict[str, str] | None, given: dict[str, str] | None, ours: Ours) -> dict[str, str] | None:
    added = {key: value for key, value in (given or {}).items() if not ours.keeps(key)}
    return {**(there or {}), **added} if added else there


def _pod(pod: core.PodSpec, over: core.PodSpec, ours: Ours) -> core.PodSpec:
    made = _fields(pod, over, POD_FIELDS.keys() - _MERGED.keys())
    if over.host_network and over.dns_policy is None:
        made = replace(made, dns_policy="ClusterFirstWithHostNet")
    given = over.termination_grace_period_seconds
    return replace(
        made,
        termination_grace_period_seconds=pod.termination_grace_period_seconds
        if given is None
        else max(given, ours.grace),
        volumes=_beside(pod.volumes, over.volumes, lambda one: one.name, ours.volumes),
        containers=_containers(pod.containers, over.containers, ours),
        init_containers=_containers(pod.init_containers, over.init_containers, ours),
    )


_MERGED: Final = dict.fromkeys(("terminationGracePeriodSeconds", "volumes", "containers", "initContainers"))


def _fields(pod: core.PodSpec, over: core.PodSpec, names: Iterable[str]) -> core.PodSpec:
    """The pod with these fields of the overlay."""
    changes: dict[str, Any] = {}
    for name in sorted(names):
        attribute = _ATTRIBUTES[name]
        value, there = getattr(over, attribute), getattr(pod, attribute)
        if value is None:
            continue
        if name == "securityContext":
            value = merged(there, value)
        elif name == "nodeSelector":
            value = {**(there or {}), **value}
        elif name == "imagePullSecrets":
            value = _beside(there, value, lambda one: one.name)
        changes[attribute] = value
    return replace(pod, **changes) if changes else pod


def merged(there: P | None, over: P | None) -> P | None:
    """Field by field: what ``over`` says, else what was there."""
    if there is None or over is None:
        return there if over is None else over
    changes: dict[str, Any] = {}
    for name in over.__struct_fields__:
        value, before = getattr(over, name), getattr(there, name)
        if value is not None:
            both = isinstance(value, Part) and isinstance(before, Part)
            changes[name] = merged(before, value) if both else value
    return replace(there, **changes)


def _beside(
    there: list[E] | None, given: list[E] | None, key: Callable[[E], str | None], ours: Collection[str] = ()
) -> list[E] | None:
    """What was there, then what is new; one of the same key takes the place of the other, but for ``ours``."""
    taken = {key(one): one for one in given or () if key(one) not in ours}
    if not taken:
        return there
    kept = [taken.pop(key(one), one) for one in there or ()]
    return [*kept, *taken.values()]


def _containers(
    there: list[core.Container] | None, given: list[core.Container] | None, ours: Ours
) -> list[core.Container] | None:
    """Those of the operator with what is added to them, then those of the user."""
    over = {one.name: one for one in given or ()}
    kept = [_container(one, over[one.name], ours) if one.name in over else one for one in there or ()]
    added = [one for one in given or () if one.name not in ours.containers]
    return [*kept, *added] or there


def _container(there: core.Container, over: core.Container, ours: Ours) -> core.Container:
    elsewhere = ours.containers[there.name or ""]
    stop = over.lifecycle.pre_stop if over.lifecycle and there.name not in ours.stops else None
    after = over.lifecycle.post_start if over.lifecycle else None
    hooks = core.Lifecycle(post_start=after, pre_stop=stop) if after or stop else None
    return replace(
        there,
        env=_beside(there.env, over.env, lambda one: one.name, ours.variables),
        volume_mounts=_beside(
            there.volume_mounts, over.volume_mounts, lambda one: one.mount_path, ours.paths
        ),
        liveness_probe=_tuned(there.liveness_probe, over.liveness_probe),
        readiness_probe=_tuned(there.readiness_probe, over.readiness_probe),
        startup_probe=_tuned(there.startup_probe, over.startup_probe),
        security_context=merged(there.security_context, over.security_context),
        lifecycle=merged(there.lifecycle, hooks),
        resources=there.resources if "resources" in elsewhere else over.resources or there.resources,
        termination_message_path=over.termination_message_path or there.termination_message_path,
        termination_message_policy=over.termination_message_policy or there.termination_message_policy,
    )


def _tuned(there: core.Probe | None, over: core.Probe | None) -> core.Probe | None:
    """The operator's probe with the user's numbers."""
    if there is None or over is None:
        return there
    numbers = {name: getattr(over, name) for name in PROBE_NUMBERS if getattr(over, name) is not None}
    return replace(there, **numbers)
