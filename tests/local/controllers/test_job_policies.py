"""A Job's failure policy, success policy and limits of single indexes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.local.controllers.builders import NOW, ago, make, pod, terminating

from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import Pod
from mooring.local.controllers.job.plan import INDEX, TRACKING, Plan, plan
from mooring.local.controllers.job.policies import FAILURES, parse_ranges, success_rule


def job(*, status: dict[str, Any] | None = None, **spec: Any) -> Job:
    body = {"spec": {"completions": 1, "parallelism": 1, "backoffLimit": 0, **spec}, "status": status or {}}
    return make(Job, "j", body)


def indexed(**spec: Any) -> Job:
    return job(
        **{"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimit": 99, **spec}
    )


def member(
    name: str,
    phase: str = "Running",
    *,
    code: int = 0,
    index: int | None = None,
    failures: int | None = None,
    conditions: list[dict[str, Any]] | None = None,
) -> Pod:
    ended = phase in ("Succeeded", "Failed")
    state = {"terminated": {"exitCode": code, "finishedAt": ago(600)}} if ended else {}
    body = {
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "c", "state": state}],
            "conditions": conditions or [],
        }
    }
    notes = {} if index is None else {INDEX: str(index)}
    if failures is not None:
        notes[FAILURES] = str(failures)
    return pod(name, body, finalizers=[TRACKING], annotations=notes)


def failing(action: str, operator: str = "In", *values: int) -> dict[str, Any]:
    return {"rules": [{"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}]}


def act(of: Job, *pods: Pod) -> Plan:
    return plan(of, list(pods), now=NOW)


def ends(made: Plan) -> list[tuple[str | None, str | None]]:
    assert made.status is not None
    return [(condition.type, condition.reason) for condition in made.status.conditions or ()]


def noted(made: Plan) -> list[str]:
    assert made.status is not None
    assert made.status.uncounted_terminated_pods is not None
    return made.status.uncounted_terminated_pods.failed or []


def test_an_exit_code_fails_the_job_early_and_says_which() -> None:
    made = act(
        job(backoffLimit=6, podFailurePolicy=failing("FailJob", "In", 42)), member("a", "Failed", code=42)
    )
    assert ends(made) == [("FailureTarget", "PodFailurePolicy")]
    assert made.status is not None
    assert made.status.conditions is not None
    assert made.status.conditions[0].message == (
        "Container c for pod default/a failed with exit code 42 matching FailJob rule at index 0"
    )
    assert made.create == ()


@pytest.mark.parametrize(
    ("operator", "values", "code", "fails"),
    [("In", [1], 2, False), ("NotIn", [1], 2, True), ("NotIn", [1], 1, False), ("NotIn", [1], 0, False)],
)
def test_exit_codes_are_listed_or_not_and_zero_never_fits(
    operator: str, values: list[int], code: int, fails: bool
) -> None:
    one = job(backoffLimit=6, podFailurePolicy=failing("FailJob", operator, *values))
    assert bool(ends(act(one, member("a", "Failed", code=code)))) is fails


def test_an_ignored_failure_is_untracked_and_counts_against_no_limit() -> None:
    pattern = {"type": "DisruptionTarget", "status": "True"}
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [pattern]}]}
    evicted = member("a", "Failed", code=137, conditions=[pattern])
    made = act(job(podFailurePolicy=policy, podReplacementPolicy="Failed"), evicted)
    assert (ends(made), noted(made), made.untrack) == ([], [], (evicted,))
    assert len(made.create) == 1

    counted = act(job(podReplacementPolicy="Failed"), evicted)
    assert ends(counted) == [("FailureTarget", "BackoffLimitExceeded")]


def test_a_leaving_pod_has_not_failed_where_only_failed_ones_are_replaced() -> None:
    leaving = terminating(member("a"))
    made = act(job(podReplacementPolicy="Failed"), leaving)
    assert (made.untrack, made.create) == ((), ())


def test_an_index_runs_again_up_to_its_own_limit_and_the_others_go_on() -> None:
    one = indexed(backoffLimitPerIndex=1)
    first = act(one, member("a", "Failed", code=1, index=0, failures=0), member("b", index=1))
    # Its last pod is kept until the next one has the count of failures from it.
    assert (first.create, first.untrack, first.failures) == ((0, 2, 3), (), {0: 1, 1: 0})
    second = act(one, member("a", "Failed", code=1, index=0, failures=1), member("b", index=1))
    assert second.status is not None
    assert second.status.failed_indexes == "0"
    assert second.create == (2, 3)
    assert len(second.untrack) == 1


def test_too_many_failed_indexes_end_the_job_and_so_does_the_last_one() -> None:
    lost = [member(f"p{n}", "Failed", code=1, index=n, failures=0) for n in (0, 1)]
    many = indexed(backoffLimitPerIndex=0, maxFailedIndexes=1)
    assert ends(act(many, *lost)) == [("FailureTarget", "MaxFailedIndexesExceeded")]
    done = [member(f"p{n}", "Succeeded", index=n) for n in (2, 3)]
    assert ends(act(indexed(backoffLimitPerIndex=0), *lost, *done)) == [("FailureTarget", "FailedIndexes")]
    assert ends(act(indexed(backoffLimitPerIndex=0), *lost)) == []


def test_an_index_can_be_given_up_at_once() -> None:
    one = indexed(backoffLimitPerIndex=5, podFailurePolicy=failing("FailIndex", "In", 42))
    made = act(one, member("a", "Failed", code=42, index=2, failures=0))
    assert made.status is not None
    assert made.status.failed_indexes == "2"
    assert made.create == (0, 1, 3)


@pytest.mark.parametrize(
    ("rule", "indexes", "met"),
    [
        ({"succeededIndexes": "0-2"}, {0, 1}, None),
        ({"succeededIndexes": "0-2"}, {0, 1, 2}, 0),
        ({"succeededIndexes": "0-2", "succeededCount": 1}, {2}, 0),
        ({"succeededCount": 2}, {1, 3}, 0),
        ({"succeededCount": 2}, {3}, None),
    ],
)
def test_a_success_rule_is_met_by_indexes_or_by_their_number(
    rule: dict[str, Any], indexes: set[int], met: int | None
) -> None:
    assert success_rule(indexed(successPolicy={"rules": [rule]}), indexes) == met


def test_a_met_success_rule_ends_the_job_and_its_other_pods() -> None:
    one = indexed(successPolicy={"rules": [{"succeededIndexes": "3"}, {"succeededIndexes": "1"}]})
    running = member("a", index=0)
    made = act(one, running, member("b", "Succeeded", index=1))
    assert ends(made) == [("SuccessCriteriaMet", "SuccessPolicy")]
    assert made.delete == (running,)
    assert made.status is not None
    assert made.status.conditions is not None
    assert made.status.conditions[0].message == "Matched rules at index 1"


def test_ranges_are_read_as_the_status_writes_them() -> None:
    assert list(parse_ranges("0-2,5,7,8")) == [0, 1, 2, 5, 7, 8]
    assert list(parse_ranges("")) == []
