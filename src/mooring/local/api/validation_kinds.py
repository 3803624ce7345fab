"""The rules of the built-in kinds other than pods, by group and kind."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from mooring.local.api import names
from mooring.local.api import validation_access as access
from mooring.local.api.constraints import same
from mooring.local.api.fields import (
    FieldError,
    GoStruct,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from mooring.local.api.validation_certificates import signing_decision, signing_request
from mooring.local.api.validation_metadata import immutable, label_errors, selector_errors, selects
from mooring.local.api.validation_pods import (
    PORT_RANGE,
    int_or_percent,
    nonnegative,
    pod_create,
    pod_update,
    port_errors,
    template,
)
from mooring.local.api.validation_policies import mutation_errors, policy_errors, webhook_errors
from mooring.local.api.wire import quantity_value

__all__ = ["Rules", "rules_of"]

JsonObject = dict[str, Any]
Errors = Iterator[FieldError]

_DATA_LIMIT: Final = 1024 * 1024


def _nothing(obj: JsonObject, old: JsonObject) -> Errors:
    yield from ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What one kind asks of a new object, of a changed one, and of a changed status."""

    create: Callable[[JsonObject], Errors]
    update: Callable[[JsonObject, JsonObject], Errors]
    status: Callable[[JsonObject, JsonObject], Errors] = _nothing


def rules_of(group: str, kind: str) -> Rules | None:
    """Return the rules of a kind, None when it has none here."""
    return _RULES.get((group, kind))


def _also(
    create: Callable[[JsonObject], Errors],
    update: Callable[[JsonObject, JsonObject], Errors],
    *,
    status: Callable[[JsonObject, JsonObject], Errors] = _nothing,
) -> Rules:
    """Rules whose updates are judged like new objects, too, unless the spec stayed the same."""

    def changed(obj: JsonObject, old: JsonObject) -> Errors:
        if not same(_without_meta(obj), _without_meta(old)):
            yield from create(obj)
            yield from update(obj, old)

    return Rules(create, changed, status)


def _without_meta(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _spec(obj: JsonObject) -> JsonObject:
    return obj.get("spec") or {}


def _dump(value: JsonObject, **fields: str) -> GoStruct:
    """Return a value as Go dumps it: every field by its Go name, in order."""
    return GoStruct({go: value.get(key) for key, go in fields.items()})


def _fixed(*paths: str) -> Callable[[JsonObject, JsonObject], Errors]:
    """Rules for updates that must leave some fields alone."""

    def check(obj: JsonObject, old: JsonObject) -> Errors:
        for path in paths:
            value, before = obj, old
            for key in path.split("."):
                value, before = (value or {}).get(key), (before or {}).get(key)  # type: ignore[assignment]
            yield from immutable(value, before, path)

    return check


# --- workloads ----------------------------------------------------------------------------------------


def _selector(spec: JsonObject, kind: str) -> Errors:
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    yield from selector_errors(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {kind}")


def _workload_template(spec: JsonObject, kind: str, *, policy: str = "Always") -> Errors:
    pod, selector = spec.get("template") or {}, spec.get("selector") or {}
    labels = (pod.get("metadata") or {}).get("labels") or {}
    if spec.get("selector") is None or not selects(selector, labels):
        text = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels or None, text)
    yield from template(pod, "spec.template")
    inner = pod.get("spec") or {}
    place = "spec.template.spec"
    if inner.get("restartPolicy") != policy:
        yield not_supported(f"{place}.restartPolicy", inner.get("restartPolicy", ""), (policy,))
    if inner.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield forbidden(f"{place}.activeDeadlineSeconds", text)


def _counts(spec: JsonObject, *keys: str) -> Errors:
    for key in keys:
        yield from nonnegative(spec.get(key), f"spec.{key}")


def _deployment(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    yield from _counts(spec, "replicas")
    yield from _selector(spec, "deployment")
    yield from _workload_template(spec, "ReplicaSet")
    strategy = spec.get("strategy") or {}
    place = "spec.strategy"
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden(f"{place}.rollingUpdate", text)
    elif kind != "RollingUpdate":
        dump = (
            None if rolling is None else _dump(rolling, maxUnavailable="MaxUnavailable", maxSurge="MaxSurge")
        )
        shown = GoStruct(Type=kind, RollingUpdate=dump)
        yield not_supported(place, shown, ("Recreate", "RollingUpdate"))
    elif rolling is not None:
        yield from int_or_percent(rolling.get("maxUnavailable"), f"{place}.rollingUpdate.maxUnavailable")
        yield from int_or_percent(rolling.get("maxSurge"), f"{place}.rollingUpdate.maxSurge")
        if all(rolling.get(key) in (0, "0%", "0", None) for key in ("maxUnavailable", "maxSurge")):
            text = "may not be 0 when `maxSurge` is 0"
            yield invalid(f"{place}.rollingUpdate.maxUnavailable", rolling.get("maxUnavailable"), text)
    yield from _counts(spec, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _counted(*names: str, ready: str = "readyReplicas") -> Callable[[JsonObject, JsonObject], Errors]:
    """Return the rule of a status that counts: none of these is above `replicas`, no more available than ready."""

    def check(obj: JsonObject, old: JsonObject) -> Errors:
        status = obj.get("status") or {}
        total = status.get("replicas") or 0
        for name in ("replicas", *names):
            yield from nonnegative(status.get(name), f"status.{name}")
        for name in names:
            if (count := status.get(name) or 0) > total:
                yield invalid(f"status.{name}", count, "cannot be greater than status.replicas")
        available = status.get("availableReplicas") or 0
        if available > (status.get("readyReplicas") or 0):
            yield invalid("status.availableReplicas", available, f"cannot be greater than {ready}")

    return check


def _replica_set(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    yield from _counts(spec, "replicas", "minReadySeconds")
    yield from _selector(spec, "deployment")
    yield from _workload_template(spec, "ReplicaSet")


def _daemon_set(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    yield from _selector(spec, "daemonset")
    yield from _workload_template(spec, "DaemonSet")
    yield from _counts(spec, "minReadySeconds", "revisionHistoryLimit")
    kind = (spec.get("updateStrategy") or {}).get("type", "")
    if kind not in ("OnDelete", "RollingUpdate"):
        yield not_supported("spec.updateStrategy.type", kind, ("OnDelete", "RollingUpdate"))


def _stateful_set(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    yield from _stateful_strategy(spec.get("updateStrategy") or {})
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for key in ("whenDeleted", "whenScaled"):
        if retention.get(key) not in ("Retain", "Delete"):
            place = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
            yield not_supported(place, retention.get(key, ""), ("Retain", "Delete"))
    yield from _counts(spec, "replicas", "minReadySeconds")
    for text in names.dns1123_label(spec["serviceName"]) if spec.get("serviceName") else ():
        yield invalid("spec.serviceName", spec["serviceName"], text)
    yield from _selector(spec, "statefulset")
    yield from _workload_template(_with_claims(spec), "StatefulSet")


def _stateful_strategy(strategy: JsonObject) -> Errors:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            shown = _dump(rolling, partition="Partition", maxUnavailable="MaxUnavailable")
            yield invalid("spec.updateStrategy.rollingUpdate", shown, text)
    elif kind != "RollingUpdate":
        yield invalid("spec.updateStrategy", strategy, "must be 'RollingUpdate' or 'OnDelete'")
    elif rolling is not None:
        place = "spec.updateStrategy.rollingUpdate"
        yield from nonnegative(rolling.get("partition"), f"{place}.partition")
        if (unavailable := rolling.get("maxUnavailable")) is not None:
            yield from int_or_percent(unavailable, f"{place}.maxUnavailable")
            if unavailable in (0, "0%"):
                yield invalid(f"{place}.maxUnavailable", unavailable, "cannot be 0")


def _with_claims(spec: JsonObject) -> JsonObject:
    """Return the spec as the controller completes its template: with a volume for every claim."""
    pod = spec.get("template") or {}
    claims = [(claim.get("metadata") or {}).get("name") for claim in spec.get("volumeClaimTemplates") or ()]
    inner = {
        key: value for key, value in (pod.get("spec") or {}).items() if key not in ("subdomain", "hostname")
    }
    own = [volume for volume in inner.get("volumes") or () if volume.get("name") not in claims]
    made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims if name]
    return {**spec, "template": {**pod, "spec": {**inner, "volumes": [*made, *own]}}}


def _claim_templates(obj: JsonObject) -> Errors:
    yield from _stateful_set(obj)
    for index, claim in enumerate(_spec(obj).get("volumeClaimTemplates") or ()):
        yield from _claim_spec(_spec(claim), f"spec.volumeClaimTemplates[{index}].spec")


_STATEFUL_FREE: Final = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _stateful_set_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = _spec(obj), _spec(old)
    if same(spec, before):
        return
    yield from _stateful_set({**obj, "spec": {**spec, "serviceName": ""}})
    fixed = [
        {key: value for key, value in one.items() if key not in _STATEFUL_FREE} for one in (spec, before)
    ]
    if not same(*fixed):
        yield forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
            "'minReadySeconds' are forbidden",
        )


def _job(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    keys = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    yield from _counts(spec, *keys)
    mode = spec.get("completionMode")
    if mode not in (None, "NonIndexed", "Indexed"):
        yield not_supported("spec.completionMode", mode, ("Indexed", "NonIndexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        yield required("spec.completions", "when completion mode is Indexed")
    pod = spec.get("template") or {}
    yield from template(pod, "spec.template")
    policy = (pod.get("spec") or {}).get("restartPolicy", "")
    if policy not in ("OnFailure", "Never"):
        place = "spec.template.spec.restartPolicy"
        if policy == "Always":
            yield required(place, 'valid values: "OnFailure", "Never"')
        else:
            yield not_supported(place, policy, ("OnFailure", "Never"))


def _job_update(obj: JsonObject, old: JsonObject) -> Errors:
    fixed = ["selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"]
    if _spec(old).get("completionMode") != "Indexed":
        fixed.append("completions")
    if _spec(old).get("suspend"):
        fixed.remove("template")
    yield from _fixed(*(f"spec.{key}" for key in fixed))(obj, old)


def _cron_job(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    schedule = spec.get("schedule", "")
    if not schedule:
        yield required("spec.schedule")
    elif not schedule.startswith("@") and len(schedule.split()) != 5:
        text = f"expected exactly 5 fields, found {len(schedule.split())}: {schedule.split()}".replace(
            "'", ""
        )
        yield invalid("spec.schedule", schedule, text)
    policy = spec.get("concurrencyPolicy", "")
    if policy not in ("Allow", "Forbid", "Replace"):
        yield not_supported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace"))
    keys = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    yield from _counts(spec, *keys)
    pod = ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template") or {}
    yield from template(pod, "spec.jobTemplate.spec.template")


# --- services -----------------------------------------------------------------------------------------


def _service(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    kind, headless = spec.get("type", ""), spec.get("clusterIP") == "None"
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    if headless and kind in ("LoadBalancer", "NodePort"):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name(spec)
    seen: set[str] = set()
    for index, port in enumerate(ports):
        yield from _service_port(port, f"spec.ports[{index}]", seen, named=len(ports) > 1)
    yield from _external_ips(spec)
    yield from label_errors(spec.get("selector"), "spec.selector")
    affinity = spec.get("sessionAffinity", "")
    if affinity not in ("ClientIP", "None"):
        yield not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if kind != "ExternalName":
        yield from _cluster_ips(spec)
    allowed = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    if kind not in allowed:
        yield not_supported("spec.type", kind, allowed)
    yield from _port_pairs(ports, kind)


def _external_ips(spec: JsonObject) -> Errors:
    for index, address in enumerate(spec.get("externalIPs") or ()):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield invalid(
                f"spec.externalIPs[{index}]",
                address,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            )


def _external_name(spec: JsonObject) -> Errors:
    for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(key):
            yield forbidden(f"spec.{key}", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    for text in names.dns1123_subdomain(name) if name else ():
        yield invalid("spec.externalName", name, text)


def _service_port(port: JsonObject, path: str, seen: set[str], *, named: bool) -> Errors:
    name = port.get("name") or ""
    if named and not name:
        yield required(f"{path}.name")
    elif name:
        for text in names.dns1123_label(name):
            yield invalid(f"{path}.name", name, text)
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
    number = port.get("port", 0)
    if not 1 <= number <= 65535:
        yield invalid(f"{path}.port", number, PORT_RANGE)
    if port.get("protocol") not in ("SCTP", "TCP", "UDP"):
        yield not_supported(f"{path}.protocol", port.get("protocol", ""), ("SCTP", "TCP", "UDP"))
    yield from port_errors(port.get("targetPort"), f"{path}.targetPort")


def _cluster_ips(spec: JsonObject) -> Errors:
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        if address == "None":
            if index:
                yield invalid(f"spec.clusterIPs[{index}]", address, "'None' must be the first and only value")
            continue
        try:
            ipaddress.ip_address(address)
        except ValueError:
            text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            yield invalid(f"spec.clusterIPs[{index}]", address, text)
    first = (spec.get("clusterIPs") or [None])[0]
    if first is not None and spec.get("clusterIP") != first:
        yield invalid("spec.clusterIPs[0]", first, "first value must match `clusterIP`")


def _port_pairs(ports: list[JsonObject], kind: str) -> Errors:
    node_ports, pairs = set(), set()
    for index, port in enumerate(ports):
        place = f"spec.ports[{index}]"
        node_port, protocol = port.get("nodePort"), port.get("protocol")
        if node_port and kind == "ClusterIP":
            yield forbidden(f"{place}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if node_port and (node_port, protocol) in node_ports:
            yield duplicate(f"{place}.nodePort", node_port)
        node_ports.add((node_port, protocol))
        if (port.get("port"), protocol) in pairs:
            shown = GoStruct(
                Name="", Protocol=protocol, AppProtocol=None, Port=port.get("port"), TargetPort=0, NodePort=0
            )
            yield duplicate(place, shown)
        pairs.add((port.get("port"), protocol))


def _service_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = _spec(obj), _spec(old)
    if "ExternalName" in (spec.get("type"), before.get("type")):
        return
    addresses, earlier = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if earlier and not addresses:
        yield invalid("spec.clusterIPs[0]", addresses or None, "primary clusterIP can not be unset")
    elif earlier and addresses[0] != earlier[0]:
        yield invalid("spec.clusterIPs[0]", addresses, "may not change once set")


# --- volumes ------------------------------------------------------------------------------------------

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def _access_modes(spec: JsonObject, path: str) -> Errors:
    modes = spec.get("accessModes") or []
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        text = "may not use ReadWriteOncePod with other access modes"
        yield forbidden(f"{path}.accessModes", text)


def _claim_spec(spec: JsonObject, path: str) -> Errors:
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from selector_errors(spec.get("selector"), f"{path}.selector")
    yield from _access_modes(spec, path)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield required(f"{path}.resources[storage]")
    elif quantity_value(size) <= 0:
        yield invalid(f"{path}.resources[storage]", size, "must be greater than zero")
    if spec.get("storageClassName"):
        for text in names.dns1123_subdomain(spec["storageClassName"]):
            yield invalid(f"{path}.storageClassName", spec["storageClassName"], text)
    if spec.get("volumeMode") not in (None, "Block", "Filesystem"):
        yield not_supported(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))


def _claim(obj: JsonObject) -> Errors:
    yield from _claim_spec(_spec(obj), "spec")


def _claim_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = dict(_spec(obj)), dict(_spec(old))
    bound = (obj.get("status") or {}).get("phase") == "Bound"
    size, earlier = (
        ((s.get("resources") or {}).get("requests") or {}).get("storage", "0") for s in (spec, before)
    )
    if not before.get("volumeName"):
        spec.pop("volumeName", None)
        before.pop("volumeName", None)
    if before.get("storageClassName") is None:
        spec.pop("storageClassName", None)
    if bound:
        spec["resources"] = before.get("resources") or {}
        for one in (spec, before):
            one.pop("volumeAttributesClassName", None)
    if not same(spec, before):
        yield forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        )
    capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if quantity_value(size) < quantity_value(earlier) and quantity_value(size) <= quantity_value(capacity):
        text = "field can not be less than status.capacity"
        yield forbidden("spec.resources.requests.storage", text)
    yield from immutable(_spec(obj).get("volumeMode"), _spec(old).get("volumeMode"), "volumeMode")


_VOLUME_FIELDS: Final = frozenset(
    ("accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
     "storageClassName", "volumeAttributesClassName", "volumeMode")
)  # fmt: skip


def _volume(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    yield from _access_modes(spec, "spec")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield required("spec.capacity")
    elif "storage" not in capacity or len(capacity) > 1:
        yield not_supported("spec.capacity", capacity, ("storage",))
    for name, value in capacity.items():
        if quantity_value(value) <= 0:
            yield invalid(f"spec.capacity[{name}]", value, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy not in ("Delete", "Recycle", "Retain"):
        yield not_supported("spec.persistentVolumeReclaimPolicy", policy, ("Delete", "Recycle", "Retain"))
    sources = sorted(set(spec) - _VOLUME_FIELDS)
    if not sources:
        yield required("spec", "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden(f"spec.{extra}", "may not specify more than 1 volume type")
    if "local" in spec and not (spec.get("nodeAffinity") or {}).get("required"):
        yield required("spec.nodeAffinity", "Local volume requires node affinity")


def _volume_update(obj: JsonObject, old: JsonObject) -> Errors:
    sources = [{k: v for k, v in _spec(one).items() if k not in _VOLUME_FIELDS} for one in (obj, old)]
    if not same(*sources):
        yield forbidden(
            "spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"
        )
    yield from immutable(_spec(obj).get("volumeMode"), _spec(old).get("volumeMode"), "volumeMode")


# --- configuration ------------------------------------------------------------------------------------


def _keys(data: JsonObject, path: str) -> Errors:
    for key in data:
        for text in names.config_map_key(key):
            yield invalid(f"{path}[{key}]", key, text)


def _config_map(obj: JsonObject) -> Errors:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    yield from _keys(data, "data")
    for key in data:
        if key in binary:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    yield from _keys(binary, "binaryData")
    size = sum(len(value.encode()) for value in data.values())
    if size + sum(_decoded_size(value) for value in binary.values()) > _DATA_LIMIT:
        yield too_long("[]", _DATA_LIMIT)


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def _secret(obj: JsonObject) -> Errors:
    data = obj.get("data") or {}
    yield from _keys(data, "data")
    if sum(_decoded_size(value) for value in data.values()) > _DATA_LIMIT:
        yield too_long("data", _DATA_LIMIT)
    kind = obj.get("type", "")
    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not ((obj.get("metadata") or {}).get("annotations") or {}).get(name):
            yield required(f"metadata.annotations[{name}]")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        yield required("data[username]")
        yield required("data[password]")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key.startswith(".docker"):
            yield from _docker_config(data[key], f"data[{key}]")


_SECRET_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _docker_config(text: str, path: str) -> Errors:
    try:
        json.loads(base64.b64decode(text))
    except ValueError as error:
        yield invalid(path, "<secret contents redacted>", str(error))


def _frozen(*keys: str) -> Callable[[JsonObject, JsonObject], Errors]:
    """Rules for updates of what says `immutable: true`."""

    def check(obj: JsonObject, old: JsonObject) -> Errors:
        if not old.get("immutable"):
            return
        text = "field is immutable when `immutable` is set"
        if not obj.get("immutable"):
            yield forbidden("immutable", text)
        for key in keys:
            if not same(obj.get(key) or {}, old.get(key) or {}):
                yield forbidden(key, text)

    return check


def _secret_update(obj: JsonObject, old: JsonObject) -> Errors:
    yield from immutable(obj.get("type"), old.get("type"), "type")
    yield from _frozen("data")(obj, old)


# --- the rest -----------------------------------------------------------------------------------------


def _disruption_budget(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = _dump(
            spec,
            minAvailable="MinAvailable",
            selector="Selector",
            maxUnavailable="MaxUnavailable",
            unhealthyPodEvictionPolicy="UnhealthyPodEvictionPolicy",
        )
        yield invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for key in ("minAvailable", "maxUnavailable"):
        if spec.get(key) is not None:
            yield from int_or_percent(spec[key], f"spec.{key}")
    yield from selector_errors(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        place = "spec.unhealthyPodEvictionPolicy"
        yield not_supported(place, policy, ("AlwaysAllow", "IfHealthyBudget"))


def _lease(obj: JsonObject) -> Errors:
    spec = _spec(obj)
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    yield from nonnegative(spec.get("leaseTransitions"), "spec.leaseTransitions")


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


def _storage_class(obj: JsonObject) -> Errors:
    if not obj.get("provisioner"):
        yield required("provisioner")
    policy = obj.get("reclaimPolicy")
    if policy not in ("Delete", "Retain"):
        yield not_supported("reclaimPolicy", policy, ("Delete", "Retain"))
    mode = obj.get("volumeBindingMode")
    if mode not in ("Immediate", "WaitForFirstConsumer"):
        yield not_supported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))


def _storage_class_update(obj: JsonObject, old: JsonObject) -> Errors:
    if not same(obj.get("parameters") or {}, old.get("parameters") or {}):
        yield forbidden("parameters", "updates to parameters are forbidden.")
    if obj.get("provisioner") != old.get("provisioner"):
        yield forbidden("provisioner", "updates to provisioner are forbidden.")
    if obj.get("reclaimPolicy") != old.get("reclaimPolicy"):
        yield forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden.")
    yield from immutable(obj.get("volumeBindingMode"), old.get("volumeBindingMode"), "volumeBindingMode")


def _priority_class(obj: JsonObject) -> Errors:
    value, name = obj.get("value", 0), (obj.get("metadata") or {}).get("name", "")
    if value > 1_000_000_000 and not name.startswith("system-"):
        text = "maximum allowed value of a user defined priority is 1000000000"
        yield forbidden("value", text)


def _priority_class_update(obj: JsonObject, old: JsonObject) -> Errors:
    if obj.get("value", 0) != old.get("value", 0):
        yield forbidden("value", "may not be changed in an update.")


def _free(obj: JsonObject) -> Errors:
    yield from ()


_SELECTOR_FIXED: Final = _fixed("spec.selector")
_RBAC: Final = "rbac.authorization.k8s.io"


def _revision(obj: JsonObject) -> Errors:
    yield from _revision_number(obj)
    data = obj.get("data")
    if data is None:
        yield required("data", "data is mandatory")
    elif not isinstance(data, dict):
        yield required("data", "data must be a valid JSON object")


def _revision_number(obj: JsonObject) -> Errors:
    if (number := obj.get("revision") or 0) < 0:
        yield invalid("revision", number, "must be greater than or equal to 0")


def _revision_update(obj: JsonObject, old: JsonObject) -> Errors:
    yield from _revision_number(obj)
    yield from immutable(obj.get("data"), old.get("data"), "data")


_RULES: Final[dict[tuple[str, str], Rules]] = {
    ("", "Pod"): Rules(pod_create, pod_update),
    ("", "Service"): _also(_service, _service_update),
    ("", "PersistentVolumeClaim"): _also(_claim, _claim_update),
    ("", "PersistentVolume"): _also(_volume, _volume_update),
    ("", "ConfigMap"): _also(_config_map, _frozen("data", "binaryData")),
    ("", "Secret"): _also(_secret, _secret_update),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _also(policy_errors, _nothing),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): _also(mutation_errors, _nothing),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _also(webhook_errors, _nothing),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _also(webhook_errors, _nothing),
    ("certificates.k8s.io", "CertificateSigningRequest"): Rules(signing_request, _nothing, signing_decision),
    ("apps", "ControllerRevision"): Rules(_revision, _revision_update),
    ("apps", "Deployment"): _also(
        _deployment, _SELECTOR_FIXED, status=_counted("updatedReplicas", "readyReplicas", "availableReplicas")
    ),
    ("apps", "ReplicaSet"): _also(
        _replica_set,
        _SELECTOR_FIXED,
        status=_counted("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("apps", "DaemonSet"): _also(_daemon_set, _SELECTOR_FIXED),
    ("apps", "StatefulSet"): Rules(
        _claim_templates,
        _stateful_set_update,
        _counted(
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            ready="status.readyReplicas",
        ),
    ),
    ("batch", "Job"): _also(_job, _job_update),
    ("batch", "CronJob"): _also(_cron_job, _nothing),
    ("policy", "PodDisruptionBudget"): _also(_disruption_budget, _nothing),
    ("coordination.k8s.io", "Lease"): _also(_lease, _nothing),
    ("discovery.k8s.io", "EndpointSlice"): _also(_endpoint_slice, _fixed("addressType")),
    ("storage.k8s.io", "StorageClass"): _also(_storage_class, _storage_class_update),
    ("scheduling.k8s.io", "PriorityClass"): _also(_priority_class, _priority_class_update),
    (_RBAC, "Role"): _also(access.role, _nothing),
    (_RBAC, "ClusterRole"): _also(access.cluster_role, _nothing),
    (_RBAC, "RoleBinding"): _also(access.binding(namespaced=True), access.binding_update),
    (_RBAC, "ClusterRoleBinding"): _also(access.binding(namespaced=False), access.binding_update),
}
