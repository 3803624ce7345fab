"""Upgrades of the servers: which version may follow which, the trial start before any pod is touched, and the steps."""

from __future__ import annotations

from dataclasses import replace as seen
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operators.mysql.builders import healthy
from tests.operators.mysql.declared import cluster, inputs, made

from mooring.kube.object import decode, owner_reference, to_dict
from mooring.kube.objects import apps, batch, core, meta
from mooring.operators.mysql.config import declared_lines, forced
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.moves import InSync, Record, TryImage, Wait
from mooring.operators.mysql.names import COMPONENT, TRIAL
from mooring.operators.mysql.snapshot import Trial
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.trial import is_trial, with_trial
from mooring.operators.mysql.upgrade import upgrade_steps
from mooring.operators.mysql.versions import next_stop, stops

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("flavor", "since", "to", "stop"),
    [
        ("mysql", "8.0.36", (8, 4), ""),
        ("mysql", "8.4.2", (9, 7), ""),
        ("mysql", "8.4.2", (9, 1), ""),
        ("mysql", "8.0.36", (9, 7), "8.4"),
        ("mysql", "8.0.36", (9, 1), "8.4"),
        ("mysql", "9.7.4", (9, 7), ""),
        ("mysql", "8.0.36", (9,), ""),  # a tag that does not say which
        ("mysql", "", (9, 7), ""),
        ("mariadb", "10.11.19", (11, 8), ""),
        ("mariadb", "10.11.19", (11, 4), ""),
        ("mariadb", "10.6.20", (11, 8), "11.4"),
        ("mariadb", "10.11.19", (12, 3), "11.8"),
    ],
)
def test_an_upgrade_leaves_out_no_series_that_has_to_be_run(
    flavor: Flavor, since: str, to: tuple[int, ...], stop: str
) -> None:
    assert next_stop(flavor, since, to) == stop


def test_all_series_on_the_way_are_named() -> None:
    assert stops("mysql", "5.7.44", (9, 7)) == ["8.0", "8.4"]


# --- the trial start --------------------------------------------------------------------------------------


def scene(trial: Trial | None, *, image: str = "mariadb:11.8") -> Any:
    found = healthy().settled()
    state = seen(found.observed.set, inputs="old", asked="new", current=False, image="mariadb:10.11")
    return found.want(image=image).see(set=state, trial=trial)


def test_a_new_image_is_tried_before_anything_is_recorded() -> None:
    verdict = scene(Trial()).decide()
    assert isinstance(verdict, TryImage)
    assert verdict.image == "mariadb:11.8"


def test_a_trial_that_runs_is_waited_for() -> None:
    verdict = scene(Trial(state="Running")).decide()
    assert isinstance(verdict, Wait)
    assert verdict.reason == "TrialRunning"


def test_a_trial_that_failed_stops_the_upgrade_and_is_reported_with_its_field() -> None:
    message = "spec.config: this version does not know innodb_change_buffering; remove it"
    verdict = scene(Trial(state="Failed", message=message)).decide()
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("TrialFailed", True)
    assert message in verdict.message


def test_a_trial_that_passed_begins_the_roll_out() -> None:
    verdict = scene(Trial(state="Passed")).decide()
    assert isinstance(verdict, Record)
    assert (verdict.status.rolls or {})[COMPONENT].inputs == "new"


def test_a_version_that_cannot_follow_is_not_even_tried() -> None:
    verdict = scene(Trial(), image="mariadb:12.3").decide()
    assert isinstance(verdict, Wait)
    assert verdict.reason == "VersionRefused"
    assert "give 11.8 first" in verdict.message
    back = scene(Trial(), image="mariadb:10.6").decide()
    assert isinstance(back, Wait)
    assert back.reason == "VersionRefused"


def test_nothing_is_tried_where_no_image_waits() -> None:
    assert healthy().settled().decide() == InSync()


def upgraded(**spec: Any) -> Inputs:
    """The inputs of a cluster whose image was changed."""
    there = [
        one
        for one in made(inputs(cluster({"image": "mariadb:10.11"})).specs)
        if isinstance(one, apps.StatefulSet)
    ]
    return inputs(cluster({"image": "mariadb:11.8", **spec}), *there)


def test_the_job_runs_the_declared_image_apart_from_the_servers_pods() -> None:
    found = upgraded(config={"Innodb-Change-Buffering": "all", "max_connections": "7"})
    job = found.specs.trial()
    assert found.observed.trial == Trial()
    assert job.spec is not None
    assert job.spec.template is not None
    pod = job.spec.template.spec
    assert pod is not None
    container = (pod.containers or [])[0]
    assert container.image == "mariadb:11.8"
    declared = next(one.value for one in container.env or () if one.name == "DECLARED")
    assert declared == 'innodb_change_buffering="all"\nmax_connections="7"'
    selected = found.specs.selector.items()
    assert not selected <= (job.spec.template.metadata.labels or {}).items()  # type: ignore[union-attr]
    assert not any(one.name == "auth" for one in pod.volumes or ())  # it needs no password


def test_another_declaration_is_tried_again() -> None:
    first, second = upgraded(config={"max_connections": "7"}), upgraded()
    assert first.specs.trial_name != second.specs.trial_name


def test_keys_that_servers_do_not_know_already_hold_up_no_upgrade() -> None:
    assert declared_lines({"no_such": "1", "max_connections": "7"}, but=["no_such"]) == 'max_connections="7"'


def standing(found: Inputs, status: batch.JobStatus, pod: core.PodStatus) -> Trial | None:
    job = found.specs.trial()
    job = replace(job, metadata=replace(job.metadata, uid="j1"), status=status)
    made = core.Pod(
        metadata=meta.ObjectMeta(
            name="trial-x", labels={"app.kubernetes.io/name": TRIAL}, owner_references=[owner_reference(job)]
        ),
        spec=core.PodSpec(containers=[core.Container(name="trial")]),
        status=pod,
    )
    assert is_trial(made)
    return with_trial(found, [job], [made], now=NOW).observed.trial


def container(state: core.ContainerState) -> core.PodStatus:
    return core.PodStatus(container_statuses=[core.ContainerStatus(name="trial", state=state)])


def test_how_a_trial_stands_is_read_from_its_job_and_its_pod() -> None:
    found = upgraded()
    failed = batch.JobStatus(
        conditions=[batch.JobCondition(type="Failed", status="True", reason="BackoffLimitExceeded")]
    )
    said = container(
        core.ContainerState(
            terminated=core.ContainerStateTerminated(exit_code=1, message="spec.config: no\n")
        )
    )
    assert standing(found, failed, said) == Trial(state="Failed", message="spec.config: no")
    assert standing(found, batch.JobStatus(succeeded=1), core.PodStatus()) == Trial(state="Passed")
    running = container(core.ContainerState(running=core.ContainerStateRunning()))
    assert standing(found, batch.JobStatus(active=1), running) == Trial(state="Running")
    absent = container(
        core.ContainerState(waiting=core.ContainerStateWaiting(reason="ErrImagePull", message="gone"))
    )
    trial = standing(found, batch.JobStatus(active=1), absent)
    assert trial is not None
    assert trial.state == "Failed"
    assert "spec.image" in trial.message


# --- plan-upgrade ------------------------------------------------------------------------------------------


def known(image: str, version: str) -> Inputs:
    members = {f"demo-{number}": {"volume": "v", "version": version} for number in range(3)}
    one = cluster({"image": image})
    status = {"primary": "demo-1", "version": version, "members": members}
    return inputs(decode({**to_dict(one), "status": status}, type(one)))


def test_the_steps_of_an_upgrade_are_told_in_their_order() -> None:
    steps = upgrade_steps(known("mariadb:11.8", "10.11.19"))
    assert [step.split()[0] for step in steps] == ["mariadb:11.8", "demo-2", "demo-0", "a", "demo-1"]
    assert ["system tables included" in step for step in steps] == [False, True, True, False, True]
    assert not any("system tables" in step for step in upgrade_steps(known("mysql:9.7", "8.4.3")))
    assert upgrade_steps(known("mariadb:10.11", "10.11.19")) == []
    assert "refused" in upgrade_steps(known("mariadb:10.11", "11.8.9"))[0]
    through = upgrade_steps(known("mysql:9.7", "8.0.36"))
    assert [step.partition(",")[0] for step in through] == ["spec.image: 8.4", "spec.image: mysql:9.7"]


# --- settings ----------------------------------------------------------------------------------------------


def test_a_receiver_gives_up_a_hung_source_before_that_is_taken_for_dead() -> None:
    """A receiver that connects cannot be stopped, or late: two tries, and a second between them, must not reach beyond it."""
    assert 2 * int(forced("mariadb")["slave_net_timeout"]) <= 4
    assert 2 * int(forced("mysql")["replica_net_timeout"]) <= 4
