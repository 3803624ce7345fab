"""What a Job needs next: pods to make and remove, what to count, whether it has ended. Pure.

Every pod is counted exactly once: it carries a finalizer until its UID stands in the status
(``uncountedTerminatedPods``); only when the finalizer is off does the UID become a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.objects.batch import Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods
from mooring.kube.objects.core import Pod
from mooring.local.controllers.job.policies import FAILURES, Judgement, judge, parse_ranges, success_rule
from mooring.local.controllers.moments import EPOCH, moment, seconds_since
from mooring.local.controllers.pods import is_active, is_ready, is_terminal, phase_of
from mooring.local.controllers.replicaset.plan import expendable

__all__ = ["INDEX", "TRACKING", "Plan", "finished", "index_of", "index_ranges", "plan"]

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"

FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """``create`` gives the index of each new pod (``None``: no indexes); ``untrack`` after the status is written.

    ``failures``: how often indexes have failed, where each has a limit of its own.
    ``forget``: the deleted pods are given up, not failed, and must not be counted.
    ``notices`` are (warning, reason, message) of what has just become true.
    """

    create: tuple[int | None, ...] = ()
    failures: Mapping[int, int] | None = None
    delete: tuple[Pod, ...] = ()
    forget: bool = False
    untrack: tuple[Pod, ...] = ()
    status: JobStatus | None = None
    after: float | None = None
    notices: tuple[tuple[bool, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _End:
    """How the Job ends: the interim condition, the final one, and why."""

    interim: str
    final: str
    reason: str
    message: str


def finished(job: Job) -> JobCondition | None:
    """The condition that says that the Job has ended, for good or bad."""
    conditions = (job.status.conditions or ()) if job.status else ()
    return next((c for c in conditions if c.type in ("Complete", "Failed") and c.status == "True"), None)


def index_of(pod: Pod) -> int | None:
    """The completion index of a pod."""
    text = (pod.metadata.annotations or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def plan(job: Job, pods: Sequence[Pod], *, now: datetime) -> Plan:
    """The next step of a Job that has not ended; ``pods`` are its own."""
    counted = _Count(job, pods)
    suspended = bool(job.spec and job.spec.suspend)
    active = [pod for pod in pods if is_active(pod)]
    end = _end(job, pods, counted, active, now) if not suspended else _resumed_end(job)
    create: tuple[int | None, ...] = ()
    delete: list[Pod] = []
    after = _deadline(job, now)
    if end is not None or suspended:
        delete = active
    elif job.metadata.deletion_timestamp is None:
        create, delete, wait = _manage(job, pods, counted, active, now)
        after = min((x for x in (after, wait) if x is not None), default=None)
    going = [p for p in pods if p.metadata.deletion_timestamp and not is_terminal(p)]
    status = msgspec.structs.replace(
        counted.status,
        active=(len(active) - len(delete) + len(create)) or None,
        ready=sum(map(is_ready, active)) - sum(map(is_ready, delete)),
        terminating=len(going) + len(delete),
        start_time=_start(job, now, suspended=suspended),
    )
    status, notices = _conditions(job, status, end, done=counted.settled and not active, now=now)
    return Plan(
        create=create,
        failures=counted.failures if job.spec and job.spec.backoff_limit_per_index is not None else None,
        delete=tuple(delete),
        forget=end is None,
        untrack=tuple(counted.untrack),
        status=status,
        after=after,
        notices=tuple(notices),
    )


class _Count:
    """The arithmetic of ended pods: what is a number already, what is noted, what is new."""

    def __init__(self, job: Job, pods: Sequence[Pod]) -> None:
        old, spec = job.status or JobStatus(), job.spec or JobSpec()
        noted = old.uncounted_terminated_pods or UncountedTerminatedPods()
        tracked = {pod.metadata.uid: pod for pod in pods if TRACKING in (pod.metadata.finalizers or ())}
        succeeded = [uid for uid in noted.succeeded or () if uid in tracked]
        failed = [uid for uid in noted.failed or () if uid in tracked]
        self._counted_succeeded = (old.succeeded or 0) + len(noted.succeeded or ()) - len(succeeded)
        self._counted_failed = (old.failed or 0) + len(noted.failed or ()) - len(failed)
        self.indexes = set(parse_ranges(old.completed_indexes or ""))
        self.indexes |= {
            index for pod in pods if phase_of(pod) == "Succeeded" and (index := index_of(pod)) is not None
        }
        judged = {pod.metadata.uid: judge(job, pod) for pod in pods if _has_failed(job, pod)}
        self.fatal = next((one.message for one in judged.values() if one.action == "FailJob"), "")
        self.failures = _failures_of_indexes(pods, judged)
        self.failed_indexes = set(parse_ranges(old.failed_indexes or ""))
        limit = spec.backoff_limit_per_index
        if limit is not None:
            given_up = {index_of(p) for p in pods if _action(judged, p) == "FailIndex"}
            self.failed_indexes |= {index for index in given_up if index is not None}
            self.failed_indexes |= {index for index, number in self.failures.items() if number > limit}
            self.failed_indexes -= self.indexes
        kept = self._kept(pods, judged) if limit is not None and _resumed_end(job) is None else set()
        ignored: list[Pod] = []
        for uid, pod in tracked.items():
            if uid in succeeded or uid in failed or uid in kept:
                continue
            if phase_of(pod) == "Succeeded":
                succeeded.append(uid or "")
            elif _action(judged, pod) == "Ignore":
                ignored.append(pod)
            elif uid in judged:
                failed.append(uid or "")
        self.untrack = [*(tracked[uid] for uid in (*succeeded, *failed)), *ignored]
        self.failed = self._counted_failed + len(failed)
        indexed = spec.completion_mode == "Indexed"
        self.succeeded = len(self.indexes) if indexed else self._counted_succeeded + len(succeeded)
        self.settled = not tracked
        self.status = msgspec.structs.replace(
            old,
            succeeded=(len(self.indexes) if indexed else self._counted_succeeded) or None,
            failed=self._counted_failed or None,
            completed_indexes=index_ranges(self.indexes) or None if indexed else None,
            failed_indexes=index_ranges(self.failed_indexes) if limit is not None else None,
            uncounted_terminated_pods=UncountedTerminatedPods(
                succeeded=succeeded or None, failed=failed or None
            ),
        )

    def _kept(self, pods: Sequence[Pod], judged: Mapping[str | None, Judgement]) -> set[str | None]:
        """The last failed pod of each index that is to run again: the next one takes its count of failures from it."""
        over = self.indexes | self.failed_indexes | {index_of(pod) for pod in pods if is_active(pod)}
        last: dict[int, Pod] = {}
        for pod in pods:
            index = index_of(pod)
            if pod.metadata.uid not in judged or index is None or index in over:
                continue
            if index not in last or _failures_before(pod) >= _failures_before(last[index]):
                last[index] = pod
        return {pod.metadata.uid for pod in last.values()}


def _has_failed(job: Job, pod: Pod) -> bool:
    if phase_of(pod) == "Failed":
        return True
    leaving = pod.metadata.deletion_timestamp is not None and phase_of(pod) != "Succeeded"
    return leaving and not _replaces_only_failed(job)


def _replaces_only_failed(job: Job) -> bool:
    return job.spec is not None and job.spec.pod_replacement_policy == "Failed"


def _action(judged: Mapping[str | None, Judgement], pod: Pod) -> str:
    found = judged.get(pod.metadata.uid)
    return found.action if found else ""


def _failures_before(pod: Pod) -> int:
    text = (pod.metadata.annotations or {}).get(FAILURES, "")
    return int(text) if text.isdigit() else 0


def _failures_of_indexes(pods: Iterable[Pod], judged: Mapping[str | None, Judgement]) -> dict[int, int]:
    """How often each index has failed."""
    found: dict[int, int] = {}
    for pod in pods:
        index = index_of(pod)
        if index is not None:
            more = _action(judged, pod) not in ("", "Ignore")
            found[index] = max(found.get(index, 0), _failures_before(pod) + more)
    return found


def index_ranges(indexes: Iterable[int]) -> str:
    """Indexes as the status writes them: ``0-2,5,7,8``... with ranges from three on, pairs by comma."""
    groups: list[list[int]] = []
    for index in sorted(indexes):
        if groups and groups[-1][-1] == index - 1:
            groups[-1].append(index)
        else:
            groups.append([index])
    parts = []
    for group in groups:
        if len(group) == 1:
            parts.append(str(group[0]))
        elif len(group) == 2:
            parts.append(f"{group[0]},{group[1]}")
        else:
            parts.append(f"{group[0]}-{group[-1]}")
    return ",".join(parts)


def _end(job: Job, pods: Sequence[Pod], counted: _Count, active: Sequence[Pod], now: datetime) -> _End | None:
    before = _resumed_end(job)
    if before is not None:
        return before
    spec = job.spec
    if spec is None:
        return None
    if counted.fatal:
        return _End("FailureTarget", "Failed", "PodFailurePolicy", counted.fatal)
    limit = 6 if spec.backoff_limit is None else spec.backoff_limit
    if counted.failed > limit or _restarted_too_often(job, pods, limit):
        text = "Job has reached the specified backoff limit"
        return _End("FailureTarget", "Failed", "BackoffLimitExceeded", text)
    left = _deadline(job, now)
    if left is not None and left <= 0:
        text = "Job was active longer than specified deadline"
        return _End("FailureTarget", "Failed", "DeadlineExceeded", text)
    if why := _failed_by_indexes(spec, counted):
        return _End("FailureTarget", "Failed", *why)
    rule = success_rule(job, counted.indexes)
    if rule is not None:
        return _End("SuccessCriteriaMet", "Complete", "SuccessPolicy", f"Matched rules at index {rule}")
    if spec.completions is None:
        done = counted.succeeded > 0 and not active
    else:
        done = counted.succeeded >= spec.completions and not active
    if done:
        text = "Reached expected number of succeeded pods"
        return _End("SuccessCriteriaMet", "Complete", "CompletionsReached", text)
    return None


def _failed_by_indexes(spec: JobSpec, counted: _Count) -> tuple[str, str] | None:
    """Reason and message when too many indexes have failed, or all have run and some failed."""
    failed = len(counted.failed_indexes)
    if not failed or spec.backoff_limit_per_index is None:
        return None
    if spec.max_failed_indexes is not None and failed > spec.max_failed_indexes:
        text = "Job has exceeded the specified maximal number of failed indexes"
        return "MaxFailedIndexesExceeded", text
    if failed + counted.succeeded >= (spec.completions or 0):
        return "FailedIndexes", "Job has failed indexes"
    return None


def _resumed_end(job: Job) -> _End | None:
    """The end that an earlier pass decided on."""
    finals = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}
    for condition in (job.status.conditions or ()) if job.status else ():
        if condition.type in finals and condition.status == "True":
            kind = condition.type or ""
            return _End(kind, finals[kind], condition.reason or "", condition.message or "")
    return None


def _restarted_too_often(job: Job, pods: Iterable[Pod], limit: int) -> bool:
    """With restartPolicy OnFailure the restarts of containers count instead of failed pods."""
    template = job.spec.template if job.spec else None
    if template is None or template.spec is None or template.spec.restart_policy != "OnFailure":
        return False
    restarts = 0
    for pod in pods:
        if phase_of(pod) in ("Running", "Pending") and pod.status is not None:
            statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
            restarts += sum(status.restart_count or 0 for status in statuses)
    return restarts > 0 if limit == 0 else restarts >= limit


def _deadline(job: Job, now: datetime) -> float | None:
    started = job.status.start_time if job.status else None
    limit = job.spec.active_deadline_seconds if job.spec else None
    if limit is None or (job.spec is not None and job.spec.suspend):
        return None
    return max(0.0, limit - seconds_since(started, now)) if started else float(limit)


def _manage(
    job: Job, pods: Sequence[Pod], counted: _Count, active: Sequence[Pod], now: datetime
) -> tuple[tuple[int | None, ...], list[Pod], float | None]:
    """Pods to make and to remove, and how long to wait after failures before making more."""
    spec = job.spec
    if spec is None:
        return (), [], None
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        wanted = len(active) if counted.succeeded else parallelism
    else:
        left = spec.completions - counted.succeeded - len(counted.failed_indexes)
        wanted = min(parallelism, max(0, left))
    surplus = len(active) - wanted
    if surplus > 0:
        return (), expendable(active, now=now)[:surplus], None
    there = [*active]
    if _replaces_only_failed(job):
        there += [p for p in pods if p.metadata.deletion_timestamp and not is_terminal(p)]
    missing = wanted - len(there)
    if missing <= 0:
        return (), [], None
    if spec.backoff_limit_per_index is not None:
        return _free_in_time(spec, pods, counted, there, missing, now)
    wait = _backoff(pods, now)
    if wait > 0:
        return (), [], wait
    if spec.completion_mode != "Indexed":
        return (None,) * missing, [], None
    return tuple(_free(spec, counted, there)[:missing]), [], None


def _free(spec: JobSpec, counted: _Count, there: Iterable[Pod]) -> list[int]:
    """The indexes that have no pod and need one."""
    taken = counted.indexes | counted.failed_indexes | {index_of(pod) for pod in there}
    return [index for index in range(spec.completions or 0) if index not in taken]


def _free_in_time(
    spec: JobSpec, pods: Sequence[Pod], counted: _Count, there: Sequence[Pod], missing: int, now: datetime
) -> tuple[tuple[int | None, ...], list[Pod], float | None]:
    """Where each index has a limit of its own, each waits for itself after it has failed."""
    free = _free(spec, counted, there)
    waits = {index: _backoff([pod for pod in pods if index_of(pod) == index], now) for index in free}
    later = min((wait for wait in waits.values() if wait > 0), default=None)
    return tuple([index for index in free if waits[index] <= 0][:missing]), [], later


def _backoff(pods: Iterable[Pod], now: datetime) -> float:
    """Seconds to wait: 10 after a failure, doubling with each further one since the last success."""
    ends = sorted((_ended_at(pod), phase_of(pod)) for pod in pods if is_terminal(pod))
    failures = 0
    for _, phase in reversed(ends):
        if phase == "Succeeded":
            break
        failures += 1
    if not failures:
        return 0.0
    delay = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (failures - 1))
    return max(0.0, delay - (now - ends[-1][0]).total_seconds())


def _ended_at(pod: Pod) -> datetime:
    """When the last container ended; else when Ready became false; else when it was deleted or made."""
    latest = EPOCH
    for status in (pod.status.container_statuses or ()) if pod.status else ():
        if status.state is not None and status.state.terminated is not None:
            latest = max(latest, moment(status.state.terminated.finished_at))
    if latest != EPOCH:
        return latest
    conditions = (pod.status.conditions or ()) if pod.status else ()
    times = [c.last_transition_time for c in conditions if c.type == "Ready"]
    return moment(
        next(iter(times), None) or pod.metadata.deletion_timestamp or pod.metadata.creation_timestamp
    )


def _start(job: Job, now: datetime, *, suspended: bool) -> str | None:
    present = job.status.start_time if job.status else None
    conditions = (job.status.conditions or ()) if job.status else ()
    was_suspended = any(c.type == "Suspended" and c.status == "True" for c in conditions)
    if suspended:
        return None
    return rfc3339(now) if present is None or was_suspended else present


def _conditions(
    job: Job, status: JobStatus, end: _End | None, *, done: bool, now: datetime
) -> tuple[JobStatus, list[tuple[bool, str, str]]]:
    conditions = list(status.conditions or ())
    notices: list[tuple[bool, str, str]] = []

    def has(kind: str, value: str = "True") -> bool:
        return any(c.type == kind and c.status == value for c in conditions)

    def put(kind: str, value: str, reason: str, message: str) -> None:
        moment_ = rfc3339(now)
        made = JobCondition(
            type=kind,
            status=value,
            reason=reason,
            message=message,
            last_probe_time=moment_,
            last_transition_time=moment_,
        )
        conditions[:] = [c for c in conditions if c.type != kind] + [made]

    if end is not None:
        if not has(end.interim):
            put(end.interim, "True", end.reason, end.message)
        if done and not status.terminating:
            put(end.final, "True", end.reason, end.message)
            failed = end.final == "Failed"
            notices.append(
                (failed, end.reason if failed else "Completed", end.message if failed else "Job completed")
            )
            if not failed:
                status = msgspec.structs.replace(status, completion_time=rfc3339(now))
    elif job.spec is not None and job.spec.suspend:
        if not has("Suspended"):
            put("Suspended", "True", "JobSuspended", "Job suspended")
            notices.append((False, "Suspended", "Job suspended"))
    elif has("Suspended"):
        put("Suspended", "False", "JobResumed", "Job resumed")
        notices.append((False, "Resumed", "Job resumed"))
    return msgspec.structs.replace(status, conditions=conditions or None), notices
