"""The rules of batch: jobs, and what makes them."""

from __future__ import annotations

from typing import Final

from mooring.local.api.fields import (
    invalid,
    not_supported,
    required,
)
from mooring.local.api.validation.pods import template
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
    counts,
    fixed,
    spec_of,
)

__all__ = ["RULES"]


def _job(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    keys = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    yield from counts(spec, *keys)
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
    kept = ["selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"]
    if spec_of(old).get("completionMode") != "Indexed":
        kept.append("completions")
    if spec_of(old).get("suspend"):
        kept.remove("template")
    yield from fixed(*(f"spec.{key}" for key in kept))(obj, old)


def _cron_job(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
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
    yield from counts(spec, *keys)
    pod = ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template") or {}
    yield from template(pod, "spec.jobTemplate.spec.template")


RULES: Final[Table] = {
    ("batch", "Job"): also(_job, _job_update),
    ("batch", "CronJob"): also(_cron_job),
}
