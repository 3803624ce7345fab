"""Rolling a template out: replicas first, the master last, stopped by the first pod that does not come up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operators.redis.sentinel.builders import Scene, ago, healthy
from tests.operators.redis.sentinel.test_plan import is_a, waits_for

from mooring.operators.redis.sentinel.moves import (
    Configure,
    DeletePod,
    InSync,
    Record,
    RestoreTemplate,
    Wait,
    WriteTemplate,
)
from mooring.operators.workload.rollout import Roll, SetState

GOOD, BAD = "digest-good", "digest-bad"


def rolling(scene: Scene, *old: str) -> Scene:
    for name in scene.members:
        scene = scene.pod(name, revision="r1" if name in old else "r2")
    return scene.see(redis_set=SetState(replicas=3, update_revision="r2"))


def rolls(scene: Scene) -> Roll:
    found = is_a(Record, scene.decide()).rolls
    assert found is not None
    return found["redis"]


def declared(scene: Scene, asked: str, *, inputs: str, update_revision: str = "r1") -> Scene:
    """The user asks for a template; the one in place was made from ``inputs``."""
    state = SetState(
        replicas=3, current=asked == inputs, inputs=inputs, asked=asked, update_revision=update_revision
    )
    return scene.see(redis_set=state)


def test_what_ran_before_is_recorded_and_then_the_template_is_written() -> None:
    scene = declared(healthy(), BAD, inputs=GOOD)
    roll = rolls(scene)
    assert (roll.inputs, roll.good, roll.revision) == (BAD, GOOD, "r1")
    assert is_a(WriteTemplate, scene.record(rolls={"redis": roll}).decide()).component == "redis"


def test_a_template_is_not_written_over_a_pod_that_starts() -> None:
    scene = declared(healthy(), BAD, inputs=GOOD).silent("redis-2", seconds=2).pod("redis-2", running=False)
    waits_for("PodsStarting", scene.settled().decide())


def test_an_invalid_declaration_rolls_nothing() -> None:
    scene = healthy(roll=False).see(redis_set=SetState(replicas=3, current=False))
    assert is_a(InSync, scene.decide())


def test_replicas_are_rolled_first_from_the_highest() -> None:
    assert is_a(DeletePod, rolling(healthy(), "redis-0", "redis-1", "redis-2").decide()).pod == "redis-2"
    assert is_a(DeletePod, rolling(healthy(), "redis-0", "redis-1").decide()).pod == "redis-1"


def test_a_server_that_writes_its_log_is_not_stopped_yet() -> None:
    scene = rolling(healthy(), "redis-0", "redis-1", "redis-2").server("redis-2", rewriting=True)
    waits_for("RollWaiting", scene.decide())


def test_the_next_pod_waits_until_the_last_one_is_in_sync() -> None:
    scene = rolling(healthy(), "redis-0", "redis-1").server("redis-2", link_up=False, priority=0)
    lineage = scene.recorded.lineage
    assert lineage is not None
    kept = [scene.members[name].pod for name in ("redis-0", "redis-1")]
    scene = scene.record(lineage=lineage.with_members(kept))
    waits_for("RollWaiting", scene.decide())


def test_the_master_is_rolled_last_and_hands_over_first() -> None:
    operation = is_a(Record, rolling(healthy(), "redis-0").decide()).operation
    assert operation is not None
    assert (operation.kind, operation.subject) == ("Switch", "redis-0")


def test_a_new_pod_that_does_not_come_up_halts_the_roll() -> None:
    scene = rolling(healthy(), "redis-0", "redis-1").silent("redis-2", seconds=3)
    scene = scene.pod("redis-2", running=False, trouble="ImagePullBackOff", trouble_message="no such image")
    halted = waits_for("RollHalted", scene.settled().decide())
    assert halted.stalled
    assert "no such image" in halted.message


def test_a_corrected_template_replaces_the_pod_that_did_not_come_up_first() -> None:
    scene = rolling(healthy(), "redis-0", "redis-1", "redis-2").silent("redis-2", seconds=3)
    scene = scene.pod("redis-2", running=False, trouble="ImagePullBackOff", revision="r1", version="77")
    step = is_a(DeletePod, scene.settled().decide())
    assert (step.pod, step.uid, step.version) == ("redis-2", scene.members["redis-2"].pod.uid, "77")


def test_an_image_that_never_existed_can_be_corrected_before_anything_ran() -> None:
    scene = healthy().record(lineage=None).silent("redis-0", "redis-1", "redis-2")
    for name in scene.members:
        scene = scene.pod(
            name, running=False, trouble="ErrImagePull", trouble_message="no such image", revision="r1"
        )
    stuck = is_a(Wait, scene.decide())
    assert stuck.stalled
    assert "no such image" in stuck.message
    corrected = scene.see(redis_set=SetState(replicas=3, update_revision="r1", current=False))
    assert is_a(WriteTemplate, corrected.decide())
    written = scene.see(redis_set=SetState(replicas=3, update_revision="r2"))
    assert is_a(DeletePod, written.decide())


# --- stopped ---------------------------------------------------------------------------------------------


def failing(*, trouble: str = "ImagePullBackOff") -> Scene:
    """redis-2 was made anew from a template that does not work."""
    scene = rolling(healthy(), "redis-0", "redis-1").silent("redis-2", seconds=3)
    scene = scene.pod("redis-2", running=False, ready=False, trouble=trouble, trouble_message="no such image")
    scene = declared(scene, BAD, inputs=BAD, update_revision="r2")
    return scene.record(rolls={"redis": Roll(inputs=BAD, good=GOOD, revision="r1", since=ago(9))})


def stopped() -> Scene:
    """The same after the failure was recorded."""
    return failing().settled()


def restored() -> Scene:
    """The same after the last good template was put back and the pod came up with it."""
    scene = declared(rolling(healthy()), BAD, inputs=GOOD, update_revision="r2")
    return scene.record(rolls=stopped().recorded.rolls)


def test_the_pod_that_does_not_come_up_is_recorded_before_anything_else_is_done() -> None:
    scene = failing()
    lineage = scene.recorded.lineage
    assert lineage is not None
    kept = [scene.members[name].pod for name in ("redis-0", "redis-1")]
    roll = rolls(scene.record(lineage=lineage.with_members(kept)))
    assert (roll.pod, roll.reason, roll.message) == ("redis-2", "ImagePullBackOff", "no such image")


def test_the_last_good_template_is_put_back() -> None:
    move = is_a(RestoreTemplate, stopped().decide())
    assert (move.component, move.revision, move.inputs) == ("redis", "r1", GOOD)


def test_the_pod_that_did_not_come_up_is_made_from_the_good_template_again() -> None:
    scene = declared(stopped(), BAD, inputs=GOOD)
    assert is_a(DeletePod, scene.decide()).pod == "redis-2"


def test_a_declaration_that_failed_is_not_tried_again_and_said_until_it_is_corrected() -> None:
    waiting = waits_for("RollHalted", restored().decide())
    assert waiting.stalled
    assert "redis-2" in waiting.message
    assert "no such image" in waiting.message


def test_pods_that_run_the_new_template_well_keep_it_while_the_roll_is_stopped() -> None:
    scene = restored().pod("redis-1", revision="r-bad")
    waits_for("RollHalted", scene.decide())


def test_a_declaration_taken_back_ends_it_and_rolls_back_what_had_been_rolled() -> None:
    scene = declared(restored().pod("redis-1", revision="r-bad"), GOOD, inputs=GOOD, update_revision="r2")
    assert is_a(Record, scene.decide()).rolls == {}
    assert is_a(DeletePod, scene.record(rolls={}).decide()).pod == "redis-1"


def test_a_corrected_declaration_is_rolled_out_and_the_good_one_stays_known() -> None:
    roll = rolls(declared(restored(), "digest-better", inputs=GOOD))
    assert (roll.inputs, roll.good, roll.revision, roll.pod) == ("digest-better", GOOD, "r1", "")


def test_live_keys_are_still_set_while_a_roll_is_stopped() -> None:
    scene = restored().want(config={"hz": "13"})
    for name in scene.members:
        scene = scene.server(name, config={"slave-priority": "1", "hz": "10"})
    assert is_a(Configure, scene.decide()).value == "13"


def test_a_sidecar_that_cannot_run_stops_the_roll_too() -> None:
    scene = declared(rolling(healthy(), "redis-0", "redis-1"), BAD, inputs=BAD, update_revision="r2")
    scene = scene.record(rolls={"redis": Roll(inputs=BAD, good=GOOD, revision="r1")})
    scene = scene.pod(
        "redis-2", ready=False, trouble="ErrImagePull", trouble_message="container redis-exporter"
    )
    assert rolls(scene).pod == "redis-2"
    starting = scene.pod("redis-2", trouble="ContainerCreating")
    waits_for("RollWaiting", starting.decide())


def test_a_template_that_has_no_revision_yet_is_not_taken_for_rolled_out() -> None:
    scene = declared(rolling(healthy()), BAD, inputs=BAD, update_revision="")
    waits_for(
        "RollWaiting", scene.record(rolls={"redis": Roll(inputs=BAD, good=GOOD, revision="r1")}).decide()
    )


def test_a_finished_roll_is_forgotten() -> None:
    scene = declared(rolling(healthy()), BAD, inputs=BAD, update_revision="r2")
    scene = scene.record(rolls={"redis": Roll(inputs=BAD, good=GOOD, revision="r1")})
    assert is_a(Record, scene.decide()).rolls == {}
    assert is_a(InSync, scene.record(rolls={}).decide())


def test_sentinels_are_rolled_one_by_one_and_stopped_alike() -> None:
    scene = healthy()
    for name, watcher in scene.watchers.items():
        pod = replace(watcher.pod, revision="r2" if name == "sentinel-2" else "r1")
        scene = replace(scene, watchers={**scene.watchers, name: replace(watcher, pod=pod)})
    state = SetState(replicas=3, update_revision="r2", inputs=BAD, asked=BAD)
    scene = scene.see(sentinel_set=state)
    assert is_a(DeletePod, scene.decide()).pod == "sentinel-1"
    waits_for("RollWaiting", scene.blind("sentinel-2").decide())
    watcher = scene.watchers["sentinel-2"]
    bad = replace(watcher, sentinel=None, pod=replace(watcher.pod, running=False, trouble="ErrImagePull"))
    scene = replace(scene, watchers={**scene.watchers, "sentinel-2": bad})
    scene = scene.record(rolls={"sentinel": Roll(inputs=BAD, good=GOOD, revision="r1")})
    found = is_a(Record, scene.decide()).rolls
    assert found is not None
    assert found["sentinel"].pod == "sentinel-2"


# --- versions --------------------------------------------------------------------------------------------


def versioned(image: str, *, running: str, before: str = "redis:7.0") -> Scene:
    scene = healthy(image=image).see(
        redis_set=SetState(
            replicas=3, current=False, asked="x", inputs="y", image=before, update_revision="r"
        )
    )
    for name in scene.members:
        scene = scene.server(name, version=running)
    return scene


def test_a_version_that_cannot_read_the_files_is_refused_with_a_reason() -> None:
    waiting = waits_for("VersionRefused", versioned("redis:5.0.4-alpine", running="7.0.15").decide())
    assert waiting.stalled
    assert "spec.image" in waiting.message
    assert "7.0.15" in waiting.message


@pytest.mark.parametrize(
    ("image", "running"),
    [
        ("valkey/valkey:8.1", "8.0.2"),
        ("valkey:9.1", "7.4.1"),
        ("valkey:8.1", "Valkey 9.1.2"),
        ("redis:8.2", "Valkey 9.1.2"),
    ],
)
def test_a_change_of_kind_that_cannot_read_the_files_is_refused_too(image: str, running: str) -> None:
    waiting = waits_for("VersionRefused", versioned(image, running=running).decide())
    assert image in waiting.message
    assert running in waiting.message
    assert waiting.stalled


@pytest.mark.parametrize(
    ("image", "running"),
    [
        *(("redis:7.2", "7.0.15"), ("redis:7", "7.2.4"), ("redis", "7.0.15"), ("redis:6.2", "5.0.6")),
        *(("valkey/valkey:8.1", "7.0.15"), ("valkey:9.1", "Valkey 8.1.1"), ("redis:8.0", "Valkey 8.1.1")),
    ],
)
def test_a_version_that_can_read_the_files_is_rolled_out(image: str, running: str) -> None:
    is_a(Record, versioned(image, running=running).decide())


def test_an_image_that_did_not_change_is_not_judged_by_its_tag() -> None:
    is_a(Record, versioned("redis:5.0.4", running="7.0.15", before="redis:5.0.4").decide())


def test_an_older_server_that_cannot_follow_the_newer_master_stops_the_roll() -> None:
    scene = declared(rolling(healthy(), "redis-0", "redis-1"), BAD, inputs=BAD, update_revision="r2")
    scene = scene.record(rolls={"redis": Roll(inputs=BAD, good=GOOD, revision="r1")})
    scene = scene.server("redis-0", version="7.0.15").server(
        "redis-2", version="5.0.6", link_up=False, priority=0
    )
    lineage = scene.recorded.lineage
    assert lineage is not None
    kept = [scene.members[name].pod for name in ("redis-0", "redis-1")]
    assert rolls(scene.record(lineage=lineage.with_members(kept))).reason == "VersionCannotRead"
