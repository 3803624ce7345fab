"""What a Job's failure policy and success policy say of its pods. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from mooring.kube.objects.batch import (
    Job,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
)
from mooring.kube.objects.core import Pod
from mooring.local.controllers.pods import condition_of, phase_of

__all__ = ["COUNT", "FAILURES", "Judgement", "judge", "parse_ranges", "success_rule"]

#: Annotation of a pod: how often its index has failed before it.
FAILURES = "batch.kubernetes.io/job-index-failure-count"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a failed pod means: an `action` (Count, Ignore, FailIndex, FailJob), for FailJob why."""

    action: str
    message: str = ""


COUNT = Judgement("Count")


def judge(job: Job, pod: Pod) -> Judgement:
    """What the first rule that fits says of a failed pod; without one it counts."""
    policy = job.spec.pod_failure_policy if job.spec else None
    if policy is None or phase_of(pod) != "Failed":
        return COUNT
    for number, rule in enumerate(policy.rules or ()):
        if rule.on_exit_codes is not None:
            why = _fits_exit_codes(rule.on_exit_codes, pod)
        else:
            why = _fits_conditions(rule.on_pod_conditions or (), pod)
        if why:
            action = rule.action or "Count"
            return Judgement(action, f"{why} matching {action} rule at index {number}")
    return COUNT


def _fits_exit_codes(wanted: PodFailurePolicyOnExitCodesRequirement, pod: Pod) -> str:
    values = wanted.values or ()
    for name, code in _exit_codes(pod):
        chosen = wanted.container_name in (None, name) and code != 0
        if chosen and (code in values) == (wanted.operator == "In"):
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            return f"Container {name} for pod {where} failed with exit code {code}"
    return ""


def _exit_codes(pod: Pod) -> Iterator[tuple[str, int]]:
    if pod.status is None:
        return
    for status in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())):
        if status.state is not None and status.state.terminated is not None:
            yield status.name or "", status.state.terminated.exit_code or 0


def _fits_conditions(wanted: Iterable[PodFailurePolicyOnPodConditionsPattern], pod: Pod) -> str:
    for pattern in wanted:
        found = condition_of(pod, pattern.type or "")
        if found is not None and found.status == (pattern.status or "True"):
            return f"Pod {pod.metadata.namespace}/{pod.metadata.name} has condition {pattern.type}"
    return ""


def success_rule(job: Job, indexes: Collection[int]) -> int | None:
    """The first rule of the success policy that these succeeded indexes meet, by its place."""
    policy = job.spec.success_policy if job.spec else None
    for number, rule in enumerate((policy.rules or ()) if policy else ()):
        chosen = None if rule.succeeded_indexes is None else set(parse_ranges(rule.succeeded_indexes))
        have = len(indexes) if chosen is None else len(chosen.intersection(indexes))
        needed = rule.succeeded_count if rule.succeeded_count is not None else len(chosen or ())
        if have >= needed > 0:
            return number
    return None


def parse_ranges(text: str) -> Iterator[int]:
    """The numbers of ``0-2,5``."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
