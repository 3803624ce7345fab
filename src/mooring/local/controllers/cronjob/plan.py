"""Which run of a CronJob is due, and what it leaves behind. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.cron import Schedule
from mooring.kube.object import owner_reference
from mooring.kube.objects.batch import CronJob, CronJobStatus, Job, JobTemplateSpec
from mooring.kube.objects.core import ObjectReference
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.controllers.job.plan import finished
from mooring.local.controllers.moments import moment

__all__ = ["Plan", "job_for", "plan"]

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: With more missed runs than this the clock has jumped, or nobody looked for days.
TOO_MANY = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """``create`` is the run that is due; ``replace`` are runs to end for it; ``drop`` old finished ones."""

    create: Job | None
    replace: tuple[Job, ...]
    drop: tuple[Job, ...]
    status: CronJobStatus
    after: float | None
    notices: tuple[tuple[str, str], ...] = ()


def job_for(cron: CronJob, due: datetime) -> Job:
    """The Job of one run; its name is made from the time, so a run happens once."""
    template = (cron.spec.job_template if cron.spec else None) or JobTemplateSpec()
    meta = template.metadata or ObjectMeta()
    return Job(
        metadata=ObjectMeta(
            name=f"{cron.metadata.name}-{int(due.timestamp()) // 60}",
            namespace=cron.metadata.namespace,
            labels=meta.labels,
            annotations={**(meta.annotations or {}), SCHEDULED: rfc3339(due)},
            owner_references=[owner_reference(cron)],
        ),
        spec=template.spec,
    )


def plan(cron: CronJob, jobs: Sequence[Job], schedule: Schedule, *, now: datetime) -> Plan:
    """The next step; ``jobs`` are the CronJob's own."""
    spec = cron.spec
    active = [job for job in jobs if finished(job) is None]
    suspended = cron.metadata.deletion_timestamp is not None or spec is None or bool(spec.suspend)
    due, following, missed = _due(cron, schedule, now)
    create: Job | None = None
    replace: tuple[Job, ...] = ()
    notices: list[tuple[str, str]] = []
    if missed > TOO_MANY:
        text = f"too many missed start times: {missed}. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        notices.append(("TooManyMissedTimes", text))
    if due is not None and not suspended and spec is not None:
        wanted = job_for(cron, due)
        done = any(job.metadata.name == wanted.metadata.name for job in jobs)
        if done:
            pass
        elif spec.concurrency_policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            notices.append(("JobAlreadyActive", text))
        else:
            create = wanted
            replace = tuple(active) if spec.concurrency_policy == "Replace" else ()
    after = max(0.0, (following - now).total_seconds()) if following is not None and not suspended else None
    status = _status(cron, jobs, active, due if create is not None else None)
    return Plan(create, replace, tuple(_history(cron, jobs)), status, after, tuple(notices))


def _due(cron: CronJob, schedule: Schedule, now: datetime) -> tuple[datetime | None, datetime | None, int]:
    """The latest run that is due and not done yet, the next one, and how many were missed."""
    last = cron.status.last_schedule_time if cron.status else None
    since = moment(last or cron.metadata.creation_timestamp)
    deadline = cron.spec.starting_deadline_seconds if cron.spec else None
    if deadline is not None:
        since = max(since, now - timedelta(seconds=deadline))
    due: datetime | None = None
    missed = 0
    longest = timedelta()
    following = schedule.after(since)
    while following is not None and following <= now:
        due, missed = following, missed + 1
        following = schedule.after(due)
        if following is not None:
            longest = max(longest, following - due)
        if missed > TOO_MANY and due < now - 3 * longest:
            following = schedule.after(now - 2 * longest)  # only the latest matters
    return due, following, missed


def _status(
    cron: CronJob, jobs: Sequence[Job], active: Sequence[Job], scheduled: datetime | None
) -> CronJobStatus:
    present = cron.status or CronJobStatus()
    ends = [job.status.completion_time for job in jobs if job.status and job.status.completion_time]
    references = [
        ObjectReference(
            api_version="batch/v1",
            kind="Job",
            name=job.metadata.name,
            namespace=job.metadata.namespace,
            uid=job.metadata.uid,
            resource_version=known.get(job.metadata.uid) or job.metadata.resource_version,
        )
        for known in [{r.uid: r.resource_version for r in present.active or ()}]
        for job in sorted(active, key=lambda j: j.metadata.name or "")
    ]
    return msgspec.structs.replace(
        present,
        active=references or None,
        last_schedule_time=rfc3339(scheduled) if scheduled is not None else present.last_schedule_time,
        last_successful_time=max([*ends, present.last_successful_time or ""]) or None,
    )


def _history(cron: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """Finished runs beyond the limits, oldest first."""
    spec = cron.spec
    if spec is None:
        return []
    drop: list[Job] = []
    limits = (
        ("Complete", 3 if spec.successful_jobs_history_limit is None else spec.successful_jobs_history_limit),
        ("Failed", 1 if spec.failed_jobs_history_limit is None else spec.failed_jobs_history_limit),
    )
    for kind, limit in limits:
        ended = [job for job in jobs if (end := finished(job)) is not None and end.type == kind]
        ended.sort(key=lambda job: (job.metadata.creation_timestamp or "", job.metadata.name or ""))
        drop += ended[: max(0, len(ended) - limit)]
    return drop
