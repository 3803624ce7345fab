"""What counters ask for, and what becomes of a change on trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.operators.mysql.builders import NOW, Scene, healthy

from mooring.actor import InSync
from mooring.operators.mysql import advice
from mooring.operators.mysql.config import live_defaults
from mooring.operators.mysql.events import notes_of
from mooring.operators.mysql.explain import lines
from mooring.operators.mysql.moves import Record, Tune, Verdict
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.status import after_failure
from mooring.operators.mysql.topology import Load, Setting
from mooring.operators.mysql.tuning import after, kept_values
from mooring.operators.mysql.types import TuningRecommendation, TuningResult, TuningSample, TuningStatus

MI, GI = 1 << 20, 1 << 30
REST = {
    **dict.fromkeys(
        ("reads", "misses", "tables", "disk_tables", "log_waits", "threads", "connections"), 1000
    ),
    "cache_hits": 1000,
    "cache_misses": 10,
    "free": 500,
    "pages": 1000,
    "age": 10,
    "max_age": 1000,
    "peak": 5,
}
SIZES = {
    "pool": Setting(variables=("innodb_buffer_pool_size",), value=512 * MI, step=16 * MI),
    "redo": Setting(variables=("innodb_log_file_size",), value=96 * MI),
    "log_buffer": Setting(variables=("innodb_log_buffer_size",), value=16 * MI, live=False),
    "tmp": Setting(variables=("tmp_table_size", "max_heap_table_size"), value=1 * MI),
    "thread_cache": Setting(variables=("thread_cache_size",), value=8),
    "table_cache": Setting(variables=("table_open_cache",), value=100),
    "appliers": Setting(variables=("slave_parallel_threads",), value=4, live=False),
}
WORK = {"reads": 1_000_000}
ON_DISK = {**WORK, "tables": 1000, "disk_tables": 600}
IN_MEMORY = {**WORK, "tables": 1000, "disk_tables": 20}


def loaded(counted: Mapping[str, int] | None = None, sizes: Mapping[str, Setting] = SIZES) -> Load:
    """A server at rest, plus so many events."""
    gauges = {name: value for name, value in (counted or {}).items() if name in advice.GAUGES}
    events = {name: value + (counted or {}).get(name, 0) for name, value in REST.items()}
    return Load(
        counters={**events, **gauges},
        settings=sizes,
        per_connection=3 * MI,
        max_connections=150,
        fixed=64 * MI,
    )


def scene(mode: str = "Auto", *, size: int = 3, **wanted: Any) -> Scene:
    """A cluster whose servers can be measured."""
    made = healthy(size=size, **{"tuning": mode, "tuning_window": 60.0, "memory": 4 * GI, **wanted})
    for name in list(made.members):
        made = made.server(name, load=loaded())
    return made


def worked(before: Scene, pod: str, counted: Mapping[str, int], *, seconds: float = 61.0) -> Scene:
    """So many seconds before now every sample was taken, and this server did so much since."""
    tuning = before.status.tuning
    assert tuning is not None
    samples = {
        name: TuningSample(
            server_id=one.server_id, at=NOW - timedelta(seconds=seconds), counters=one.counters
        )
        for name, one in (tuning.samples or {}).items()
    }
    trial = tuning.trial
    made = before.record(tuning=_with(tuning, samples=samples, trial=trial))
    server = made.members[pod].server
    assert server is not None
    assert server.load is not None
    sample = samples[pod].counters or {}
    counters = {
        name: counted.get(name, value)
        if name in advice.GAUGES
        else sample.get(name, value) + counted.get(name, 0)
        for name, value in server.load.counters.items()
    }
    return made.server(pod, load=replace(server.load, counters=counters))


def _with(tuning: TuningStatus, **changes: Any) -> TuningStatus:
    return changed(tuning, **changes)


def tuning_of(one: Scene) -> TuningStatus:
    assert one.status.tuning is not None
    return one.status.tuning


def recommended(one: Scene) -> TuningRecommendation:
    """The one recommendation."""
    found = tuning_of(one).recommendations or []
    assert len(found) == 1
    return found[0]


def done(before: Scene, verdict: Verdict) -> Scene:
    """What a move records, and that the servers took its value."""
    made = before.wrote(verdict)
    if not isinstance(verdict, Tune):
        return made
    for target in verdict.targets:
        server = made.members[target.name].server
        assert server is not None
        assert server.load is not None
        setting = replace(server.load.settings[verdict.setting], value=verdict.value)
        made = made.server(
            target.name,
            load=replace(server.load, settings={**server.load.settings, verdict.setting: setting}),
            held={**server.held, **dict.fromkeys(verdict.variables, str(verdict.value))},
        )
    return replace(made, status=after(made.status, verdict))


def on_trial(counted: Mapping[str, int] = ON_DISK, **how: Any) -> Scene:
    """A change that the primary asked for is on a replica, and measured there."""
    first = scene(**how)
    measured = done(first, first.decide())
    found = worked(measured, "demo-0", counted)
    found = done(found, found.decide())
    begun = done(found, found.decide())
    return done(begun, begun.decide())


def advised(counted: Mapping[str, int], *, memory: int = 4 * GI, **how: Any) -> dict[str, Any]:
    """The recommendations for a window of a minute."""
    load = loaded(counted, **how)
    window = advice.Window(
        pod="demo-0",
        seconds=60.0,
        counted={**dict.fromkeys(REST, 0), "free": 500, "pages": 1000, "max_age": 1000, **counted},
        load=load,
    )
    return {one.setting: one for one in advice.recommend(window, memory=memory, storage=10 * GI)}


# --- what counters ask for -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "counted", "proposed"),
    [
        ("tmp", ON_DISK, 16 * MI),
        ("pool", {**WORK, "misses": 20_000, "free": 10}, 640 * MI),
        ("table_cache", {**WORK, "cache_hits": 900, "cache_misses": 100}, 400),
        ("thread_cache", {**WORK, "threads": 300, "connections": 1000}, 16),
        ("redo", {**WORK, "age": 800}, 192 * MI),
        ("log_buffer", {**WORK, "log_waits": 30}, 32 * MI),
    ],
)
def test_each_counter_asks_for_its_setting_alone(
    setting: str, counted: dict[str, int], proposed: int
) -> None:
    found = advised(counted)
    assert set(found) == {setting}
    assert found[setting].proposed == proposed
    assert "demo-0: " in found[setting].evidence


def test_what_is_read_for_the_first_time_asks_for_no_larger_pool() -> None:
    assert advised({**WORK, "misses": 500_000, "free": 400}) == {}


def test_a_replica_that_is_behind_asks_for_appliers_that_a_running_server_does_not_take() -> None:
    window = advice.Window(pod="demo-1", seconds=60.0, counted=WORK, load=loaded(), lag=12.0)
    [one] = advice.recommend(window, memory=4 * GI)
    assert (one.setting, one.proposed, one.live) == ("appliers", 8, False)


def test_nothing_is_proposed_above_the_memory_guard() -> None:
    tight = {**SIZES, "tmp": replace(SIZES["tmp"], value=64 * MI)}
    one = advised(ON_DISK, memory=3 * GI // 2, sizes=tight)["tmp"]
    assert (one.proposed, one.current) == (64 * MI, 64 * MI)
    assert one.held.startswith("memory guard: ")


def test_every_session_counts_for_the_memory_guard() -> None:
    few, many = loaded(), loaded({"peak": 70})
    assert advice.footprint(many) - advice.footprint(few) == (140 - 32) * (3 * MI - MI // 2) + (35 - 8) * MI


def test_the_buffer_pool_grows_as_far_as_the_guard_allows() -> None:
    one = advised({**WORK, "misses": 20_000, "free": 10}, memory=GI - 130 * MI)["pool"]
    assert 512 * MI < one.proposed < 640 * MI
    assert advice.footprint(loaded(), {"pool": one.proposed}) <= advice.allowed(GI - 130 * MI)


def test_without_a_limit_nothing_that_takes_memory_is_proposed() -> None:
    one = advised(ON_DISK, memory=0)["tmp"]
    assert one.proposed == one.current
    assert "spec.resources.limits.memory" in one.held


# --- measuring -------------------------------------------------------------------------------------------


def test_a_cluster_at_rest_writes_nothing() -> None:
    first = scene("Recommend")
    measured = done(first, first.decide())
    assert isinstance(worked(measured, "demo-0", {"reads": 200}, seconds=900).decide(), InSync)


def test_a_window_of_work_gives_recommendations_and_begins_the_next_one() -> None:
    first = scene("Recommend")
    measured = done(first, first.decide())
    assert isinstance(worked(measured, "demo-0", ON_DISK, seconds=50).decide(), InSync)
    found = worked(measured, "demo-0", ON_DISK)
    verdict = found.decide()
    assert isinstance(verdict, Record)
    after_it = done(found, verdict)
    one = recommended(after_it)
    assert (one.variable, one.current, one.proposed) == ("tmp_table_size", MI, 16 * MI)
    assert one.evidence == "demo-0: 60 % of 1000 temporary tables were written to disk in 61 s"
    assert isinstance(after_it.decide(), InSync)  # Recommend changes nothing
    assert any(
        "Recommended: tmp_table_size" in line
        for line in lines({"tuning": {"recommendations": [{"variable": "tmp_table_size", "evidence": "x"}]}})
    )


def test_counters_of_another_start_are_not_compared() -> None:
    first = scene("Recommend")
    measured = done(first, first.decide())
    found = worked(measured, "demo-0", ON_DISK).server("demo-1", server_id=99).known("demo-1", server_id=99)
    tuning = tuning_of(done(found, found.decide()))
    assert tuning.samples is not None
    assert tuning.samples["demo-1"].server_id == 99


def test_modes_that_do_not_measure_record_nothing() -> None:
    assert isinstance(scene("Static").decide(), InSync)
    assert isinstance(scene("Off").decide(), InSync)


# --- trials ----------------------------------------------------------------------------------------------


def test_a_change_is_tried_on_a_replica_first_and_recorded_before() -> None:
    first = scene()
    measured = done(first, first.decide())
    found = worked(measured, "demo-0", ON_DISK)
    found = done(found, found.decide())
    move = found.decide()
    assert isinstance(move, Tune)
    assert [one.name for one in move.targets] == ["demo-2"]
    assert (move.value, move.variables) == (16 * MI, ("tmp_table_size", "max_heap_table_size"))
    assert move.first is not None
    assert move.first.tuning is not None
    assert move.first.tuning.trial is not None
    assert move.first.tuning.trial.previous == MI
    [note] = notes_of(found.snapshot, move)
    assert note.reason == "TuningTrial"
    assert "60 % of 1000" in note.message


def test_a_process_that_ended_before_the_servers_took_the_value_is_followed_by_one_that_sets_it() -> None:
    first = scene()
    measured = done(first, first.decide())
    found = worked(measured, "demo-0", ON_DISK)
    found = done(found, found.decide())
    recorded = found.wrote(found.decide())
    again = recorded.decide()
    assert isinstance(again, Tune)
    assert (again.effect, again.first) == ("Try", None)


def test_a_change_that_helps_is_kept_on_all_servers_and_in_the_file_of_the_next_start() -> None:
    trial = worked(on_trial(), "demo-2", WORK)
    everywhere = trial.decide()
    assert isinstance(everywhere, Tune)
    assert len(everywhere.targets) == 3
    measured = done(trial, everywhere)
    measured = done(measured, measured.decide())
    verdict = worked(measured, "demo-0", IN_MEMORY).decide()
    assert isinstance(verdict, Record)
    kept = measured.wrote(verdict)
    assert tuning_of(kept).trial is None
    assert kept_values(kept.status.tuning) == {
        "tmp_table_size": str(16 * MI),
        "max_heap_table_size": str(16 * MI),
    }
    [note] = notes_of(measured.snapshot, verdict)
    assert note.reason == "TuningKept"
    assert "60 % of 1000" in note.message
    assert "2.0 % of 1000" in note.message


def test_a_change_that_does_not_help_is_taken_back_everywhere_and_not_tried_again_the_same_day() -> None:
    trial = worked(on_trial(), "demo-2", WORK)
    measured = done(trial, trial.decide())
    measured = done(measured, measured.decide())
    useless = worked(measured, "demo-0", ON_DISK)
    move = useless.decide()
    assert isinstance(move, Tune)
    assert (move.effect, move.value, len(move.targets)) == ("Revert", MI, 3)
    assert [one.reason for one in notes_of(useless.snapshot, move)] == ["TuningReverted"]
    back = done(useless, move)
    assert tuning_of(back).trial is None
    assert kept_values(back.status.tuning) == {}
    again = done(back, back.decide())
    again = worked(again, "demo-0", ON_DISK)
    again = done(again, again.decide())
    one = recommended(again)
    assert "did not help" in one.held
    assert isinstance(again.decide(), InSync)


def test_a_replica_that_falls_behind_ends_the_trial_before_the_primary_is_touched() -> None:
    trial = worked(on_trial(), "demo-2", WORK).link("demo-2", lag=40.0).pod("demo-2", role="")
    move = trial.decide()
    assert isinstance(move, Tune)
    assert move.effect == "Revert"
    assert "fell behind by 40 s" in move.why


def test_a_server_that_starts_again_while_it_is_measured_ends_the_trial() -> None:
    trial = worked(on_trial(), "demo-2", WORK).server("demo-2", server_id=99).known("demo-2", server_id=99)
    move = trial.decide()
    assert isinstance(move, Tune)
    assert (move.effect, "started again" in move.why) == ("Revert", True)


def test_a_trial_without_work_to_measure_ends() -> None:
    trial = worked(on_trial(), "demo-2", WORK)
    measured = done(trial, trial.decide())
    measured = done(measured, measured.decide())
    assert isinstance(worked(measured, "demo-0", {}, seconds=300).decide(), InSync)
    move = worked(measured, "demo-0", {}, seconds=601).decide()
    assert isinstance(move, Tune)
    assert "too little work" in move.why


def test_a_value_that_a_server_does_not_take_goes_back() -> None:
    trial = on_trial()
    move = worked(trial, "demo-2", WORK).decide()
    assert isinstance(move, Tune)
    failed = after_failure(trial.snapshot, move, "it keeps 1", trial.wrote(move).status)
    assert failed.retry is None
    back = replace(trial, status=failed).decide()
    assert isinstance(back, Tune)
    assert (back.effect, "it keeps 1" in back.why) == ("Revert", True)


def test_what_the_user_declares_is_never_touched() -> None:
    first = scene(config={"tmp-table-size": "1M"}, user_keys=frozenset({"tmp-table-size"}))
    for name in first.members:
        first = first.server(name, held={"tmp_table_size": str(MI)})
    first = first.see(published={"tmp-table-size": str(MI)}).settled()
    found = worked(first, "demo-0", ON_DISK)
    found = done(found, found.decide())
    one = recommended(found)
    assert "spec.config declares tmp_table_size" in one.held
    assert isinstance(found.decide(), InSync)


def test_a_declaration_ends_the_trial_of_the_same_variable() -> None:
    trial = on_trial().want(user_keys=frozenset({"max_heap_table_size"}))
    verdict = trial.decide()
    assert isinstance(verdict, Record)
    assert verdict.status.tuning is not None
    assert verdict.status.tuning.trial is None


def test_the_configuration_in_force_does_not_end_a_trial() -> None:
    """A key that the operator holds by default differs on the servers that try another value."""
    trial = on_trial()
    trial = trial.want(config={"tmp_table_size": str(MI)})
    for name in ("demo-0", "demo-1"):
        trial = trial.server(name, held={"tmp_table_size": str(MI)})
    trial = trial.see(published={"tmp_table_size": str(MI)})
    assert isinstance(trial.decide(), InSync)


def kept(value: int = 64 * MI) -> TuningStatus:
    result = TuningResult(
        value=value, previous=MI, variables=["tmp_table_size", "max_heap_table_size"], at=NOW
    )
    return TuningStatus(applied={"tmp": result})


def test_a_kept_change_goes_back_where_more_sessions_come_than_memory_is_for() -> None:
    big = {**SIZES, "tmp": replace(SIZES["tmp"], value=64 * MI)}
    crowd = scene().record(tuning=kept()).server("demo-1", load=loaded({"peak": 75}, big))
    move = crowd.want(memory=3 * GI).decide()
    assert isinstance(move, Tune)
    assert (move.effect, move.value, len(move.targets)) == ("GiveBack", MI, 3)
    assert "memory guard" in move.why


def test_pods_do_not_start_again_with_a_kept_change_past_a_limit_that_fell() -> None:
    big = {**SIZES, "tmp": replace(SIZES["tmp"], value=64 * MI)}
    lower = scene(memory=1280 * MI).server("demo-1", load=loaded(sizes=big))
    lower = lower.see(set=replace(lower.observed.set, current=False))
    assert not isinstance(lower.decide(), Tune | InSync)  # the roll-out begins
    move = lower.record(tuning=kept()).decide()
    assert isinstance(move, Tune)
    assert move.effect == "GiveBack"
    assert "memory guard" in move.why


def test_a_trial_ends_where_a_server_could_come_to_need_more_than_its_limit() -> None:
    trial = on_trial()
    assert isinstance(trial.decide(), InSync)
    move = trial.want(memory=850 * MI).decide()
    assert isinstance(move, Tune)
    assert move.effect == "Revert"
    assert "memory guard" in move.why


def test_a_kept_change_does_not_hold_sizes_below_what_a_raised_limit_gives() -> None:
    pool = TuningResult(value=640 * MI, previous=512 * MI, variables=["innodb_buffer_pool_size"], at=NOW)
    one = TuningStatus(applied={"pool": pool})
    assert kept_values(one, live_defaults("mariadb", 1 * GI)) == {"innodb_buffer_pool_size": str(640 * MI)}
    assert kept_values(one, live_defaults("mariadb", 8 * GI)) == {}


def test_static_tuning_takes_everything_back_and_forgets_it() -> None:
    one = scene("Static").record(tuning=kept())
    move = one.decide()
    assert isinstance(move, Tune)
    assert move.effect == "GiveBack"
    rest = done(one, move)
    verdict = rest.decide()
    assert isinstance(verdict, Record)
    assert verdict.status.tuning is None
    assert isinstance(rest.wrote(verdict).decide(), InSync)


def test_a_single_server_is_tried_on_itself() -> None:
    first = scene(size=1)
    measured = done(first, first.decide())
    found = worked(measured, "demo-0", ON_DISK)
    found = done(found, found.decide())
    move = found.decide()
    assert isinstance(move, Tune)
    assert [one.name for one in move.targets] == ["demo-0"]
    snapshot: Snapshot = found.snapshot
    assert snapshot.wanted.size == 1
