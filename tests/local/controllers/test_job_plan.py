"""What a Job does next: counting, backoff, ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.local.controllers.builders import NOW, ago, make, merged, pod, terminating

from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import Pod
from mooring.local.controllers.job.plan import TRACKING, Plan, finished, index_ranges, plan


def job(*, status: dict[str, Any] | None = None, **spec: Any) -> Job:
    body = {"spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, **spec}, "status": status or {}}
    return make(Job, "j", body)


def member(
    name: str, phase: str = "Running", *, ended: float = 600, tracked: bool = True, **more: Any
) -> Pod:
    state = {"terminated": {"finishedAt": ago(ended)}} if phase in ("Succeeded", "Failed") else {}
    body = {"status": {"phase": phase, "containerStatuses": [{"name": "c", "state": state}]}}
    return pod(name, body, finalizers=[TRACKING] if tracked else [], **more)


def act(of: Job, *pods: Pod, later: float = 0) -> Plan:
    return plan(of, list(pods), now=NOW + timedelta(seconds=later))


def counts(made: Plan) -> tuple[int | None, int | None, int | None]:
    assert made.status is not None
    return made.status.active, made.status.succeeded, made.status.failed


def test_pods_are_made_up_to_the_parallelism_and_never_more_than_are_still_needed() -> None:
    assert len(act(job(completions=5, parallelism=3)).create) == 3
    running = [member("a"), member("b")]
    made = act(
        job(
            completions=5,
            parallelism=3,
        ),
        *running,
    )
    assert len(made.create) == 1
    nearly = job(completions=5, parallelism=3, status={"succeeded": 4})
    assert [len(act(nearly, *running).delete), len(act(nearly).create)] == [1, 1]


def test_a_pod_is_noted_first_then_untracked_and_only_then_counted() -> None:
    one = job(completions=2)
    done = member("a", "Succeeded")
    made = act(one, done)
    assert counts(made) == (1, None, None)
    assert made.status is not None
    assert made.status.uncounted_terminated_pods is not None
    assert made.status.uncounted_terminated_pods.succeeded == [done.metadata.uid]
    assert made.untrack == (done,)
    noted = msgspec.structs.replace(one, status=made.status)
    assert counts(act(noted, done))[1] is None
    freed = merged(done, {"metadata": {"finalizers": None}})
    settled = act(noted, freed)
    assert counts(settled)[1] == 1
    assert act(msgspec.structs.replace(one, status=settled.status), freed).status == settled.status


def test_a_deleted_pod_counts_as_failed_and_is_replaced_after_the_backoff() -> None:
    made = act(job(), terminating(member("a")))
    assert made.untrack
    assert len(made.create) == 1


@pytest.mark.parametrize(("failures", "wait"), [(1, 10), (2, 20), (4, 80), (5, 160)])
def test_failures_in_a_row_double_the_wait(failures: int, wait: float) -> None:
    failed = [member(f"p{n}", "Failed", ended=5, tracked=False) for n in range(failures)]
    made = act(job(status={"failed": failures}), *failed)
    assert (made.create, made.after) == ((), wait - 5)
    assert len(act(job(status={"failed": failures}), *failed, later=wait).create) == 1


def test_a_job_is_complete_when_enough_succeeded_and_nothing_is_left_to_count() -> None:
    one = job()
    done = member("a", "Succeeded")
    first = act(one, done)
    assert first.status is not None
    assert [c.type for c in first.status.conditions or ()] == ["SuccessCriteriaMet"]
    assert not first.notices
    freed = merged(done, {"metadata": {"finalizers": None}})
    last = act(msgspec.structs.replace(one, status=first.status), freed)
    ended = msgspec.structs.replace(one, status=last.status)
    assert (end := finished(ended)) is not None
    assert (end.type, end.reason) == ("Complete", "CompletionsReached")
    assert last.status is not None
    assert last.status.completion_time is not None
    assert last.notices == ((False, "Completed", "Job completed"),)


ENDS: list[tuple[str, Job, list[Pod], str]] = [
    ("backoff limit", job(backoffLimit=1, status={"failed": 2}), [member("a")], "BackoffLimitExceeded"),
    (
        "deadline",
        job(activeDeadlineSeconds=30, status={"startTime": ago(31)}),
        [member("a")],
        "DeadlineExceeded",
    ),
    (
        "restarts",
        job(backoffLimit=2, template={"spec": {"restartPolicy": "OnFailure"}}),
        [merged(member("a"), {"status": {"containerStatuses": [{"name": "c", "restartCount": 2}]}})],
        "BackoffLimitExceeded",
    ),
]


@pytest.mark.parametrize(("case", "failing", "pods", "reason"), ENDS, ids=[e[0] for e in ENDS])
def test_a_job_fails_by(case: str, failing: Job, pods: list[Pod], reason: str) -> None:
    made = act(failing, *pods)
    assert made.delete == tuple(pods)
    assert not made.forget
    assert made.status is not None
    assert [(c.type, c.reason) for c in made.status.conditions or ()] == [("FailureTarget", reason)]
    last = act(msgspec.structs.replace(failing, status=made.status))
    assert last.status is not None
    assert [c.type for c in last.status.conditions or ()] == ["FailureTarget", "Failed"]


def test_a_deadline_ahead_is_awaited() -> None:
    assert act(job(activeDeadlineSeconds=30, status={"startTime": ago(10)}), member("a")).after == 20


def test_a_suspended_job_gives_its_pods_up_without_counting_them() -> None:
    made = act(job(suspend=True, status={"startTime": ago(5)}), member("a"))
    assert [len(made.delete), made.forget] == [1, True]
    assert made.status is not None
    assert made.status.start_time is None
    resumed = act(msgspec.structs.replace(job(), status=made.status)).status
    assert resumed is not None
    assert [(c.type, c.status) for c in resumed.conditions or ()] == [("Suspended", "False")]


def test_indexes_that_succeeded_are_not_run_again() -> None:
    indexed = job(completions=4, parallelism=2, completionMode="Indexed", status={"completedIndexes": "0"})
    two = member("i2", "Succeeded", annotations={"batch.kubernetes.io/job-completion-index": "2"})
    made = act(indexed, two)
    assert made.create == (1, 3)
    assert made.status is not None
    assert made.status.completed_indexes == "0,2"


@pytest.mark.parametrize(
    ("indexes", "text"), [([], ""), ([3], "3"), ([1, 2], "1,2"), ([0, 1, 2, 5, 7, 8], "0-2,5,7,8")]
)
def test_indexes_are_written_as_ranges(indexes: list[int], text: str) -> None:
    assert index_ranges(indexes) == text
