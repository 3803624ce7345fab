"""What became of a run, from its Job and pod."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mooring.cache.clock import SystemClock
from mooring.kube.objects import batch, core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.backup import agent
from mooring.operators.backup.outcome import outcome_of
from mooring.operators.backup.run import DATA, STORE

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_container_that_cannot_be_started_ends_the_run() -> None:
    """The store's container would wait for it."""
    job = batch.Job(
        metadata=ObjectMeta(name="one"), status=batch.JobStatus(start_time="2026-01-02T03:04:00Z", active=1)
    )
    ended = core.ContainerStateTerminated(exit_code=128, reason="StartError", message='exec: "sh": not found')
    pod = core.Pod(
        status=core.PodStatus(
            phase="Running",
            container_statuses=[
                core.ContainerStatus(name=DATA, state=core.ContainerState(terminated=ended)),
                core.ContainerStatus(
                    name=STORE, state=core.ContainerState(running=core.ContainerStateRunning())
                ),
            ],
        )
    )
    found = outcome_of(job, [pod], now=NOW)
    assert (found.state, found.reason) == ("Failed", "StartError")
    assert 'exec: "sh": not found; correct the image' in found.message


def _with_init(state: core.ContainerState) -> core.Pod:
    held = core.ContainerState(waiting=core.ContainerStateWaiting(reason="PodInitializing"))
    return core.Pod(
        status=core.PodStatus(
            phase="Pending",
            init_container_statuses=[core.ContainerStatus(name="fetch", state=state)],
            container_statuses=[core.ContainerStatus(name=name, state=held) for name in (DATA, STORE)],
        )
    )


def test_what_an_init_container_says_when_it_fails_is_the_outcome() -> None:
    result = agent.Result(ok=False, reason="Gap", message="0-1-7 to 0-1-9 are missing", remedy="allow it")
    ended = core.ContainerStateTerminated(exit_code=1, reason="Error", message=result.encoded().decode())
    failed = batch.JobCondition(
        type="Failed",
        status="True",
        reason="BackoffLimitExceeded",
        last_transition_time="2026-01-02T03:04:05Z",
    )
    job = batch.Job(
        metadata=ObjectMeta(name="one"),
        status=batch.JobStatus(start_time="2026-01-02T03:00:00Z", conditions=[failed]),
    )
    found = outcome_of(job, [_with_init(core.ContainerState(terminated=ended))], now=NOW)
    assert (found.state, found.reason, found.again) == ("Failed", "Gap", False)
    assert found.message == "0-1-7 to 0-1-9 are missing; allow it"
    # One that said nothing, such as one that the node ended, may be tried again.
    silent = core.ContainerStateTerminated(exit_code=137, reason="OOMKilled")
    found = outcome_of(job, [_with_init(core.ContainerState(terminated=silent))], now=NOW)
    assert (found.state, found.reason, found.again) == ("Failed", "OOMKilled", True)


def test_a_run_whose_init_container_takes_long_is_under_way() -> None:
    job = batch.Job(
        metadata=ObjectMeta(name="one"), status=batch.JobStatus(start_time="2026-01-02T02:00:00Z", active=1)
    )
    running = core.ContainerState(running=core.ContainerStateRunning())
    found = outcome_of(job, [_with_init(running)], now=NOW)
    assert (found.state, found.reason) == ("Running", "")


async def test_a_script_that_never_begins_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "BEGINS", 0.3)
    beside = agent.Beside(run=tmp_path, clock=SystemClock())
    beside.open(["data"])
    beside.begin()
    with pytest.raises(agent.DataFailed, match="did not begin") as failed:
        async for _ in beside.reading("data"):
            pass
    assert failed.value.reason == "DataLost"
    beside.end(1)


@pytest.mark.parametrize(("status", "again"), [(1, True), (3, False)])
async def test_what_a_script_refuses_is_not_tried_again(tmp_path: Path, status: int, again: bool) -> None:
    ended = core.ContainerStateTerminated(exit_code=status, message="the backup has keys in database 3")
    pod = core.Pod(
        metadata=ObjectMeta(name="one", creation_timestamp="2026-01-02T03:04:00Z"),
        status=core.PodStatus(
            container_statuses=[
                core.ContainerStatus(name=DATA, state=core.ContainerState(terminated=ended)),
                core.ContainerStatus(name=STORE, state=core.ContainerState(terminated=ended)),
            ]
        ),
    )
    failed = batch.JobCondition(type="Failed", status="True", last_transition_time="2026-01-02T03:04:05Z")
    job = batch.Job(metadata=ObjectMeta(name="one"), status=batch.JobStatus(conditions=[failed]))
    found = outcome_of(job, [pod], now=NOW)
    assert (found.message, found.again) == ("the backup has keys in database 3", again)
    # Where the container beside it noticed first, its result says the same.
    (tmp_path / "data.status").write_text(f"{status}\n")
    (tmp_path / "failure").write_text("the backup has keys in database 3\n")
    beside = agent.Beside(run=tmp_path)
    beside.open([])
    beside.begin()
    script = os.open(tmp_path / "alive", os.O_WRONLY)
    os.write(script, b"started")
    assert not beside.ended
    os.close(script)
    with pytest.raises(agent.DataFailed) as raised:
        await beside.finish()
    assert agent.failure(raised.value).again is again
    beside.end(1)
