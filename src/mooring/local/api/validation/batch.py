"""The rules of batch: jobs, and what makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import (
    duplicate,
    invalid,
    not_supported,
    omitted,
    required,
    too_long,
    too_many,
)
from mooring.local.api.validation.metadata import immutable, selector_errors, selects
from mooring.local.api.validation.networking import prefixed_path
from mooring.local.api.validation.pods import template
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Rules,
    Table,
    items,
    nonnegative,
    spec_of,
)
from mooring.local.api.validation.schedules import schedule_complaint, zone_complaints

__all__ = ["RULES"]

# --- jobs ---------------------------------------------------------------------------------------------

_COUNTS: Final = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_MOST_INDEXES: Final = 100_000
_MOST_AT_HIGH: Final = 10_000
_LONGEST_MANAGER: Final = 63
_MODES: Final = ("NonIndexed", "Indexed")


def _job(obj: JsonObject) -> Errors:
    yield from _generated_selector(obj)
    yield from _selected_job(spec_of(obj))
    completions = spec_of(obj).get("completions")
    if spec_of(obj).get("completionMode") == "Indexed" and completions:
        name = (obj.get("metadata") or {}).get("name") or ""
        if names.dns1123_label(host := f"{name}-{completions - 1}"):
            yield invalid(
                "metadata.name", name, f"will not able to create pod with invalid DNS label: {host}"
            )


def _generated_selector(obj: JsonObject) -> Errors:
    spec, metadata = spec_of(obj), obj.get("metadata") or {}
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return
    uid, name = metadata.get("uid") or "", metadata.get("name") or ""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    wanted = {
        f"{prefix}{key}": value
        for prefix in ("", "batch.kubernetes.io/")
        for key, value in (("controller-uid", uid), ("job-name", name))
    }
    for key, value in wanted.items():
        place = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            yield required(place, f"must be '{value}'")
        if labels.get(key, "") != value:
            yield invalid(place, labels or None, f"must be '{value}'")
    if not selects(selector, wanted):
        yield invalid("spec.selector", selector, "`selector` not auto-generated")


def _selected_job(spec: JsonObject) -> Errors:
    yield from _job_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    yield from selector_errors(selector, "spec.selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is None or not selects(selector, labels):
        text = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels or None, text)


def _job_spec(spec: JsonObject, path: str) -> Errors:
    for key in _COUNTS:
        yield from nonnegative(spec.get(key), f"{path}.{key}")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if (manager := spec.get("managedBy")) is not None:
        yield from prefixed_path(manager, f"{path}.managedBy")
        if len(manager.encode()) > _LONGEST_MANAGER:
            yield too_long(f"{path}.managedBy", _LONGEST_MANAGER)
    mode = spec.get("completionMode")
    if mode not in (None, *_MODES):
        yield not_supported(f"{path}.completionMode", mode, _MODES)
    if mode == "Indexed":
        yield from _indexed(spec, path)
    elif mode in (None, "NonIndexed"):
        for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(key) is not None:
                yield invalid(f"{path}.{key}", spec[key], "requires indexed completion mode")
    if (policy := spec.get("podFailurePolicy")) is not None:
        yield from _failure_policy(policy, spec, f"{path}.podFailurePolicy")
    if (policy := spec.get("successPolicy")) is not None:
        yield from _success_policy(policy, spec, f"{path}.successPolicy")
    yield from _replacement(spec, path)
    pod = spec.get("template") or {}
    yield from template(pod, f"{path}.template")
    place, restart = f"{path}.template.spec.restartPolicy", (pod.get("spec") or {}).get("restartPolicy") or ""
    if restart in ("", "Always"):
        yield required(place, 'valid values: "OnFailure", "Never"')
    elif restart not in ("OnFailure", "Never"):
        yield not_supported(place, restart, ("OnFailure", "Never"))
    elif restart != "Never" and spec.get("podFailurePolicy") is not None:
        yield invalid(place, restart, 'only "Never" is supported when podFailurePolicy is specified')


def _indexed(spec: JsonObject, path: str) -> Errors:
    total, parallel, failed = (spec.get(key) for key in ("completions", "parallelism", "maxFailedIndexes"))
    if total is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if parallel is not None and parallel > _MOST_INDEXES:
        text = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", parallel, text)
    if total is not None and failed is not None and failed > total:
        yield invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > _MOST_INDEXES:
        yield invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MOST_INDEXES}")
    if total is None or total <= _MOST_INDEXES or spec.get("backoffLimitPerIndex") is None:
        return
    if failed is None:
        text = f"must be specified when completions is above {_MOST_INDEXES}"
        yield required(f"{path}.maxFailedIndexes", text)
    for key, value in (("parallelism", parallel), ("maxFailedIndexes", failed)):
        if value is not None and value > _MOST_AT_HIGH:
            yield invalid(
                f"{path}.{key}",
                value,
                f"must be less than or equal to {_MOST_AT_HIGH} when completions are above {_MOST_INDEXES} "
                "and used with backoff limit per index",
            )


def _replacement(spec: JsonObject, path: str) -> Errors:
    policy = spec.get("podReplacementPolicy")
    allowed: Sequence[str] = ("Failed", "TerminatingOrFailed")
    if spec.get("podFailurePolicy") is not None:
        allowed = allowed[:1]
    if policy is not None and policy not in allowed:
        yield not_supported(f"{path}.podReplacementPolicy", policy, allowed)


# --- policies of jobs ---------------------------------------------------------------------------------

_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_MOST_RULES: Final = 20
_MOST_CODES: Final = 255


def _listed(allowed: Sequence[str]) -> str:
    return "valid values: [" + " ".join(f'"{value}"' for value in allowed) + "]"


def _one_of(value: str, path: str, allowed: Sequence[str]) -> Errors:
    if not value:
        yield required(path, _listed(allowed))
    elif value not in allowed:
        yield not_supported(path, value, allowed)


def _failure_policy(policy: JsonObject, spec: JsonObject, path: str) -> Errors:
    rules = policy.get("rules") or ()
    if len(rules) > _MOST_RULES:
        yield too_many(f"{path}.rules", len(rules), _MOST_RULES)
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {c.get("name") for key in ("containers", "initContainers") for c in pod.get(key) or ()}
    for place, rule in items(policy, "rules", path):
        action = rule.get("action") or ""
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield invalid(f"{place}.action", action, "requires the backoffLimitPerIndex to be set")
        yield from _one_of(action, f"{place}.action", _ACTIONS)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            yield from _exit_codes(codes, containers, f"{place}.onExitCodes")
        if len(conditions) > _MOST_RULES:
            yield too_many(f"{place}.onPodConditions", len(conditions), _MOST_RULES)
        for inner, pattern in items(rule, "onPodConditions", place):
            for text in names.qualified_name(kind := pattern.get("type") or ""):
                yield invalid(f"{inner}.type", kind, text)
            yield from _one_of(pattern.get("status") or "", f"{inner}.status", ("False", "True", "Unknown"))
        if codes is not None and conditions:
            yield invalid(place, omitted, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not conditions:
            yield invalid(place, omitted, "specifying one of OnExitCodes and OnPodConditions is required")


def _exit_codes(codes: JsonObject, containers: set[Any], path: str) -> Errors:
    operator, values = codes.get("operator") or "", codes.get("values") or []
    yield from _one_of(operator, f"{path}.operator", ("In", "NotIn"))
    name = codes.get("containerName")
    if name is not None and name not in containers:
        text = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", name, text)
    if not values:
        yield invalid(f"{path}.values", values or None, "at least one value is required")
    elif len(values) > _MOST_CODES:
        yield too_many(f"{path}.values", len(values), _MOST_CODES)
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        if value in values[:index]:
            yield duplicate(f"{path}.values[{index}]", value)
    if values != sorted(values):
        yield invalid(f"{path}.values", values, "must be ordered")


def _success_policy(policy: JsonObject, spec: JsonObject, path: str) -> Errors:
    if spec.get("completionMode") != "Indexed":
        yield invalid(path, policy, "requires indexed completion mode")
        return
    rules, total = policy.get("rules") or (), spec.get("completions")
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        yield required(f"{path}.rules", text)
    if len(rules) > _MOST_RULES:
        yield too_many(f"{path}.rules", len(rules), _MOST_RULES)
    for place, rule in items(policy, "rules", path):
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            yield required(place, "at least one of succeededCount or succeededIndexes must be specified")
        yield from nonnegative(count, f"{place}.succeededCount")
        if count is not None and total is not None and count > total:
            text = f"must be less than or equal to {total} (the number of specified completions)"
            yield invalid(f"{place}.succeededCount", count, text)


# --- changes of jobs ----------------------------------------------------------------------------------

_FIXED: Final = (
    "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy",
)  # fmt: skip


def _job_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = spec_of(obj), spec_of(old)
    if same(spec, before) and _uid(obj) == _uid(old):
        return
    yield from _job(obj)
    # A real server judges a changed spec twice, and names what is wrong with it twice.
    yield from _selected_job(spec)
    total, earlier = spec.get("completions"), before.get("completions")
    if spec.get("completionMode") != "Indexed":
        yield from immutable(total, earlier, "spec.completions")
    elif total is not None and total not in (earlier, spec.get("parallelism")):
        yield invalid("spec.completions", total, "can only be modified in tandem with spec.parallelism")
    yield from immutable(spec.get("selector"), before.get("selector"), "spec.selector")
    yield from _template_update(spec, old)
    for key in _FIXED:
        yield from immutable(spec.get(key), before.get(key), f"spec.{key}")


def _uid(obj: JsonObject) -> str:
    return (obj.get("metadata") or {}).get("uid") or ""


def _template_update(spec: JsonObject, old: JsonObject) -> Errors:
    """Yield the error for a changed template; a job that is suspended and runs nothing may get another place."""
    pod, before = spec.get("template") or {}, spec_of(old).get("template") or {}
    status = old.get("status") or {}
    paused = any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    idle = (not status.get("startTime") or paused) and not status.get("active")
    if not (spec_of(old).get("suspend") and idle):
        yield from immutable(pod, before, "spec.template")
    else:
        placed = _without_place(pod.get("spec") or {}, before.get("spec") or {})
        if not same(*placed):
            yield invalid("spec.template.spec", pod.get("spec"), "field is immutable")


_PLACE: Final = ("nodeSelector", "tolerations", "schedulingGates")


def _without_place(pod: JsonObject, before: JsonObject) -> list[JsonObject]:
    """Return two specs of pods without what may change: where they run, and what their containers are given."""
    found = []
    for one in (pod, before):
        kept = {key: value for key, value in one.items() if key not in _PLACE}
        near = {key: value for key, value in (one.get("affinity") or {}).items() if key != "nodeAffinity"}
        kept.pop("affinity", None)
        if near:
            kept["affinity"] = near
        for key in ("containers", "initContainers"):
            if key in kept:
                kept[key] = [{k: v for k, v in c.items() if k != "resources"} for c in kept[key]]
        found.append(kept)
    return found


# --- cron jobs ----------------------------------------------------------------------------------------

_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")
_LONGEST_NAME: Final = 52


def _cron_job(obj: JsonObject) -> Errors:
    yield from _cron_spec(spec_of(obj), None)
    name = (obj.get("metadata") or {}).get("name") or ""
    if len(name) > _LONGEST_NAME:
        yield invalid("metadata.name", name, f"must be no more than {_LONGEST_NAME} characters")


def _cron_update(obj: JsonObject, old: JsonObject) -> Errors:
    if not same(spec_of(obj), spec_of(old)):
        yield from _cron_spec(spec_of(obj), spec_of(old))


def _cron_spec(spec: JsonObject, old: JsonObject | None) -> Errors:
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        yield required("spec.schedule")
    elif why := schedule_complaint(schedule):
        yield invalid("spec.schedule", schedule, why)
    if "TZ" in schedule and not (old is not None and "TZ" in (old.get("schedule") or "")):
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid("spec.schedule", schedule, text)
    elif "TZ" in schedule and zone is not None:
        text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        yield invalid("spec.schedule", schedule, text)
    yield from nonnegative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
    if zone is not None and (old is None or old.get("timeZone") != zone):
        for why in zone_complaints(zone):
            yield invalid("spec.timeZone", zone, why)
    policy = spec.get("concurrencyPolicy") or ""
    if not policy:
        yield required("spec.concurrencyPolicy")
    elif policy not in _CONCURRENCY:
        yield not_supported("spec.concurrencyPolicy", policy, _CONCURRENCY)
    job, path = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    yield from _job_spec(job, path)
    if job.get("selector") is not None:
        yield invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        yield not_supported(f"{path}.manualSelector", True, ("nil", "false"))
    for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from nonnegative(spec.get(key), f"spec.{key}")


RULES: Final[Table] = {
    ("batch", "Job"): Rules(_job, _job_update),
    ("batch", "CronJob"): Rules(_cron_job, _cron_update),
}
