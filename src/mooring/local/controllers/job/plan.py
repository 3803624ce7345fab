"""What a Job needs next: pods to make and remove, what to count, whether it has ended. Pure.

Every pod is counted exactly once: it carries a finalizer until its UID stands in the status
(``uncountedTerminatedPods``); only when the finalizer is off does the UID become a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.objects.batch import Job, JobCondition, JobStatus, UncountedTerminatedPods
from mooring.kube.objects.core import Pod
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

    ``forget``: the deleted pods are given up, not failed, and must not be counted.
    ``notices`` are (warning, reason, message) of what has just become true.
    """

    create: tuple[int | None, ...] = ()
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
        old = job.status or JobStatus()
        noted = old.uncounted_terminated_pods or UncountedTerminatedPods()
        tracked = {pod.metadata.uid: pod for pod in pods if TRACKING in (pod.metadata.finalizers or ())}
        succeeded = [uid for uid in noted.succeeded or () if uid in tracked]
        failed = [uid for uid in noted.failed or () if uid in tracked]
        self._counted_succeeded = (old.succeeded or 0) + len(noted.succeeded or ()) - len(succeeded)
        self._counted_failed = (old.failed or 0) + len(noted.failed or ()) - len(failed)
        for uid, pod in tracked.items():
            if uid in succeeded or uid in failed:
                continue
            if phase_of(pod) == "Succeeded":
                succeeded.append(uid or "")
            elif phase_of(pod) == "Failed" or pod.metadata.deletion_timestamp:
                failed.append(uid or "")
        self.untrack = [tracked[uid] for uid in (*succeeded, *failed)]
        self.succeeded = self._counted_succeeded + len(succeeded)
        self.failed = self._counted_failed + len(failed)
        self.indexes = set(_parse_ranges(old.completed_indexes or ""))
        self.indexes |= {
            index for pod in pods if phase_of(pod) == "Succeeded" and (index := index_of(pod)) is not None
        }
        indexed = job.spec is not None and job.spec.completion_mode == "Indexed"
        if indexed:
            self.succeeded = len(self.indexes)
        self.settled = not tracked
        self.status = msgspec.structs.replace(
            old,
            succeeded=(len(self.indexes) if indexed else self._counted_succeeded) or None,
            failed=self._counted_failed or None,
            completed_indexes=index_ranges(self.indexes) or None if indexed else None,
            uncounted_terminated_pods=UncountedTerminatedPods(
                succeeded=succeeded or None, failed=failed or None
            ),
        )


def _parse_ranges(text: str) -> Iterable[int]:
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


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
    limit = 6 if spec.backoff_limit is None else spec.backoff_limit
    if counted.failed > limit or _restarted_too_often(job, pods, limit):
        text = "Job has reached the specified backoff limit"
        return _End("FailureTarget", "Failed", "BackoffLimitExceeded", text)
    left = _deadline(job, now)
    if left is not None and left <= 0:
        text = "Job was active longer than specified deadline"
        return _End("FailureTarget", "Failed", "DeadlineExceeded", text)
    if spec.completions is None:
        done = counted.succeeded > 0 and not active
    else:
        done = counted.succeeded >= spec.completions and not active
    if done:
        text = "Reached expected number of succeeded pods"
        return _End("SuccessCriteriaMet", "Complete", "CompletionsReached", text)
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
        wanted = min(parallelism, max(0, spec.completions - counted.succeeded))
    surplus = len(active) - wanted
    if surplus > 0:
        return (), expendable(active, now=now)[:surplus], None
    missing = wanted - len(active)
    if spec.pod_replacement_policy == "Failed":
        missing -= sum(bool(p.metadata.deletion_timestamp) and not is_terminal(p) for p in pods)
    if missing <= 0:
        return (), [], None
    wait = _backoff(pods, now)
    if wait > 0:
        return (), [], wait
    if spec.completion_mode != "Indexed":
        return (None,) * missing, [], None
    taken = counted.indexes | {i for pod in active if (i := index_of(pod)) is not None}
    free = [index for index in range(spec.completions or 0) if index not in taken]
    return tuple(free[:missing]), [], None


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
