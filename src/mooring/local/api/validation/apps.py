"""The rules of what runs pods: apps, and the replication controllers of the core group."""

from __future__ import annotations

from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import (
    GoStruct,
    forbidden,
    invalid,
    not_supported,
    required,
)
from mooring.local.api.validation.metadata import immutable, selector_errors, selects
from mooring.local.api.validation.pods import template
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Rules,
    Table,
    Update,
    also,
    counts,
    dump,
    fixed,
    int_or_percent,
    nonnegative,
    spec_of,
)
from mooring.local.api.validation.volumes import claim_spec

__all__ = ["RULES"]


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


def _deployment(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from counts(spec, "replicas")
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
        shape = (
            None if rolling is None else dump(rolling, maxUnavailable="MaxUnavailable", maxSurge="MaxSurge")
        )
        shown = GoStruct(Type=kind, RollingUpdate=shape)
        yield not_supported(place, shown, ("Recreate", "RollingUpdate"))
    elif rolling is not None:
        yield from int_or_percent(rolling.get("maxUnavailable"), f"{place}.rollingUpdate.maxUnavailable")
        yield from int_or_percent(rolling.get("maxSurge"), f"{place}.rollingUpdate.maxSurge")
        if all(rolling.get(key) in (0, "0%", "0", None) for key in ("maxUnavailable", "maxSurge")):
            text = "may not be 0 when `maxSurge` is 0"
            yield invalid(f"{place}.rollingUpdate.maxUnavailable", rolling.get("maxUnavailable"), text)
    yield from counts(spec, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _counted(*names: str, ready: str = "readyReplicas") -> Update:
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
    spec = spec_of(obj)
    yield from counts(spec, "replicas", "minReadySeconds")
    yield from _selector(spec, "deployment")
    yield from _workload_template(spec, "ReplicaSet")


def _replication_controller(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    selector = spec.get("selector") or {}
    if not selector:
        yield required("spec.selector")
    if spec.get("template") is None:
        yield required("spec.template")
    else:
        labels = {**spec, "selector": {"matchLabels": selector}}
        yield from _workload_template(labels, "ReplicationController")
    if spec.get("replicas") is None:
        yield required("spec.replicas")
    yield from counts(spec, "replicas", "minReadySeconds")


def _daemon_set(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from _selector(spec, "daemonset")
    yield from _workload_template(spec, "DaemonSet")
    yield from counts(spec, "minReadySeconds", "revisionHistoryLimit")
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        yield from _daemon_rolling(rolling or {}, f"{path}.rollingUpdate")
    elif kind != "OnDelete":
        shape = (
            None if rolling is None else dump(rolling, maxUnavailable="MaxUnavailable", maxSurge="MaxSurge")
        )
        shown = GoStruct(Type=kind, RollingUpdate=shape)
        yield not_supported(path, shown, ("RollingUpdate", "OnDelete"))


def _daemon_rolling(rolling: JsonObject, path: str) -> Errors:
    unavailable, surge = (rolling.get(key) for key in ("maxUnavailable", "maxSurge"))
    yield from int_or_percent(unavailable, f"{path}.maxUnavailable")
    yield from int_or_percent(surge, f"{path}.maxSurge")
    some = [value not in (None, 0, "0%", "0") for value in (unavailable, surge)]
    if all(some):
        yield invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
    elif not any(some):
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


_DAEMON_COUNTS: Final = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
    "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
)  # fmt: skip


def _daemon_status(obj: JsonObject, old: JsonObject) -> Errors:
    status = obj.get("status") or {}
    for key in _DAEMON_COUNTS:
        yield from nonnegative(status.get(key), f"status.{key}")


def _stateful_set(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    yield from _stateful_strategy(spec.get("updateStrategy") or {})
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for key in ("whenDeleted", "whenScaled"):
        if retention.get(key) not in ("Retain", "Delete"):
            place = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
            yield not_supported(place, retention.get(key, ""), ("Retain", "Delete"))
    yield from counts(spec, "replicas", "minReadySeconds")
    yield from nonnegative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start")
    for text in names.dns1123_label(spec["serviceName"]) if spec.get("serviceName") else ():
        yield invalid("spec.serviceName", spec["serviceName"], text)
    yield from _selector(spec, "statefulset")
    yield from _workload_template(_with_claims(spec), "StatefulSet")


def _stateful_strategy(strategy: JsonObject) -> Errors:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            shown = dump(rolling, partition="Partition", maxUnavailable="MaxUnavailable")
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
    for index, claim in enumerate(spec_of(obj).get("volumeClaimTemplates") or ()):
        yield from claim_spec(spec_of(claim), f"spec.volumeClaimTemplates[{index}].spec")


_STATEFUL_FREE: Final = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _stateful_set_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = spec_of(obj), spec_of(old)
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


_SELECTOR_FIXED: Final = fixed("spec.selector")


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


RULES: Final[Table] = {
    ("apps", "ControllerRevision"): Rules(_revision, _revision_update),
    ("apps", "Deployment"): also(
        _deployment, _SELECTOR_FIXED, status=_counted("updatedReplicas", "readyReplicas", "availableReplicas")
    ),
    ("apps", "ReplicaSet"): also(
        _replica_set,
        _SELECTOR_FIXED,
        status=_counted("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("", "ReplicationController"): also(
        _replication_controller,
        status=_counted("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("apps", "DaemonSet"): also(_daemon_set, _SELECTOR_FIXED, status=_daemon_status),
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
}
