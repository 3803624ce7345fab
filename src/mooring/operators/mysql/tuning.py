"""Sizes that follow from what runs: measured, recommended, and with ``Auto`` tried one at a time. Pure rules.

A trial goes over a replica to all servers; each stage lasts a window of work. A change that lowers the share of bad events
is kept: `kept_values` joins the configuration that running servers hold and the next start reads. Everything else is taken
back. Where a trial is, and the counters it began with, is in ``status.tuning``: another process goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.kube.quantity import parse_quantity
from mooring.operators.mysql import advice
from mooring.operators.mysql.advice import Window, window_of
from mooring.operators.mysql.config import canonical
from mooring.operators.mysql.moves import Record, Target, Tune, Verdict, target_of
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.mysql.types import (
    MySQLClusterStatus,
    TuningRecommendation,
    TuningResult,
    TuningSample,
    TuningStatus,
    TuningTrial,
)

__all__ = ["MEASURED", "after", "kept_values", "on_trial", "refused", "retreat", "tune"]

MEASURED: Final = frozenset({"Recommend", "Auto"})
"""Modes in which counters are read."""
AGAIN: Final = 86400.0
"""Seconds until a change that did not help is tried again."""
MEMORY: Final = ("pool", "tmp", "log_buffer", "table_cache", "thread_cache")
"""Settings that take memory, in the order in which they go back."""
PATIENCE: Final = 10
"""Windows that a trial waits for work to measure."""


def kept_values(tuning: TuningStatus | None, defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """The kept changes, by variable, but for those that ``defaults`` exceed since the memory limit was raised."""
    kept = (tuning.applied if tuning is not None else None) or {}
    values = {name: one.value for one in kept.values() for name in one.variables or ()}
    return {name: str(value) for name, value in values.items() if value > int((defaults or {}).get(name, 0))}


def on_trial(tuning: TuningStatus | None) -> frozenset[str]:
    """Variables that servers hold another value of than is published."""
    trial = tuning.trial if tuning is not None else None
    return frozenset((trial.variables if trial is not None else None) or ())


def tune(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Measure, and try what was found; comes when nothing else is to be done."""
    now = snapshot.status.tuning
    if snapshot.wanted.tuning not in MEASURED:
        return _leave(snapshot, now) if now is not None else None
    now = now or TuningStatus()
    if verdict := _yield(snapshot, now):
        return verdict
    if now.trial is not None:
        return _trial(snapshot, now, now.trial)
    if verdict := _measure(snapshot, now):
        return verdict
    return _begin(snapshot, now) if snapshot.wanted.tuning == "Auto" else None


def retreat(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """What cannot stay goes back before anything else goes on: pods must not start again with more than a limit that fell.

    That is a trial under which a replica falls behind, or that is being taken back, and a kept change past the memory guard.
    """
    now = snapshot.status.tuning
    if now is None:
        return None
    if now.trial is None:
        return _yield(snapshot, now) or _guard(snapshot, now)
    late = [
        (one.name, it.replication.lag or 0)
        for one, it in snapshot.replicas
        if it.replication is not None and (it.replication.lag or 0) > snapshot.wanted.max_lag
    ]
    if now.trial.stage == "Revert":
        return _revert(snapshot, now, now.trial, now.trial.result)
    if late and now.trial.applied:
        name, lag = late[0]
        return _revert(snapshot, now, now.trial, f"{name} fell behind by {lag:.0f} s")
    if now.trial.applied and now.trial.setting in MEMORY and (why := _over(snapshot)):
        return _revert(snapshot, now, now.trial, why)
    return None


# --- taking back -----------------------------------------------------------------------------------------


def _leave(snapshot: Snapshot, now: TuningStatus) -> Verdict:
    """Neither Recommend nor Auto: every change is taken back, then all of it is forgotten."""
    if now.trial is not None:
        return _revert(snapshot, now, now.trial, f"spec.tuning is {snapshot.wanted.tuning}")
    for name, one in sorted((now.applied or {}).items()):
        return _give_back(snapshot, name, one, f"spec.tuning is {snapshot.wanted.tuning}")
    return Record(status=replace(snapshot.status, tuning=None), why="nothing is measured any more")


def _give_back(snapshot: Snapshot, name: str, one: TuningResult, why: str) -> Tune:
    return Tune(
        setting=name,
        variables=tuple(one.variables or ()),
        value=one.previous,
        previous=one.value,
        targets=_all(snapshot),
        effect="GiveBack",
        decided=snapshot.now,
        why=f"{', '.join(one.variables or ())} is {one.previous} again: {why}",
    )


def _yield(snapshot: Snapshot, now: TuningStatus) -> Verdict | None:
    """What the user declares is no longer tuning's."""
    theirs = {canonical(key) for key in snapshot.wanted.user_keys}
    applied = {
        name: one for name, one in (now.applied or {}).items() if not theirs & {*(one.variables or ())}
    }
    trial = now.trial if not theirs & on_trial(now) else None
    if trial == now.trial and len(applied) == len(now.applied or {}):
        return None
    return _record(
        snapshot, replace(now, trial=trial, applied=applied or None), "spec.config declares it now"
    )


def _guard(snapshot: Snapshot, now: TuningStatus) -> Verdict | None:
    """The memory limit fell, or more sessions work than when a change was kept: it goes back."""
    why = _over(snapshot)
    for name in MEMORY if why else ():
        if kept := (now.applied or {}).get(name):
            return _give_back(snapshot, name, kept, why)
    return None


def _over(snapshot: Snapshot) -> str:
    """Which server could come to need more memory than it may; "" for none."""
    memory = snapshot.wanted.memory
    for one, it in snapshot.topology.answering:
        if not memory or it.load is None or advice.footprint(it.load) <= advice.allowed(memory):
            continue
        needed = advice.footprint(it.load) >> 20
        return (
            f"memory guard: {one.name} could come to need {needed} MiB of {advice.allowed(memory) >> 20} MiB"
        )
    return ""


# --- measuring -------------------------------------------------------------------------------------------


def _measure(snapshot: Snapshot, now: TuningStatus) -> Verdict | None:
    """Where a window of work is over: what it asks for, and the next one begins."""
    known, ripe, unknown = now.samples or {}, list[Window](), list[str]()
    for one, it in snapshot.topology.answering:
        window = window_of(one.name, it, known.get(one.name), snapshot.now)
        if window is None:
            unknown += [one.name] if it.load is not None else []
        elif window.seconds >= snapshot.wanted.tuning_window and window.works:
            ripe.append(window)
    if not ripe and not unknown:
        return None
    changed = _sampled(snapshot, now, [*(one.pod for one in ripe), *unknown])
    if ripe:
        changed = replace(changed, recommendations=_recommended(snapshot, now, ripe))
    why = f"{', '.join(one.pod for one in ripe)}: a window is over" if ripe else "a measurement begins"
    return _record(snapshot, changed, why)


def _recommended(
    snapshot: Snapshot, now: TuningStatus, windows: Sequence[Window]
) -> list[TuningRecommendation] | None:
    """One for each setting: that with the largest share. What servers said whose window goes on stays."""
    measured = {one.pod for one in windows}
    found = {one.setting: one for one in now.recommendations or () if one.pod not in measured}
    storage = int(parse_quantity(snapshot.observed.storage)) if snapshot.observed.storage else 0
    for window in windows:
        for one in advice.recommend(window, memory=snapshot.wanted.memory, storage=storage):
            before = found.get(one.setting)
            if before is None or before.permille < one.permille:
                found[one.setting] = replace(one, held=one.held or _held(snapshot, now, one))
    return [found[name] for name in sorted(found)] or None


def _held(snapshot: Snapshot, now: TuningStatus, one: TuningRecommendation) -> str:
    """Why a change is left to a person; "" for nothing."""
    theirs = {canonical(key) for key in snapshot.wanted.user_keys}
    for _, it in snapshot.topology.answering:
        setting = it.load.settings.get(one.setting) if it.load is not None else None
        for name in setting.variables if setting is not None else ():
            if name in theirs:
                return f"spec.config declares {name}; change it there"
    if _tried(snapshot, now, one):
        return "it was tried and did not help; it is tried again a day later"
    if not one.live:
        return "a running server does not take it; set it in spec.config"
    return ""


def _tried(snapshot: Snapshot, now: TuningStatus, one: TuningRecommendation) -> bool:
    before = (now.rejected or {}).get(one.setting)
    return before is not None and snapshot.seconds_since(before.at) < AGAIN


def _sampled(snapshot: Snapshot, now: TuningStatus, pods: Iterable[str]) -> TuningStatus:
    """The status in which the windows of these pods begin now; of pods that are gone nothing is kept."""
    present = {one.name for one in snapshot.topology.members}
    samples = {name: one for name, one in (now.samples or {}).items() if name in present}
    for name in pods:
        one = snapshot.topology.member(name)
        if one is not None and one.server is not None and one.server.load is not None:
            counters = dict(sorted(one.server.load.counters.items()))
            samples[name] = TuningSample(server_id=one.server.server_id, at=snapshot.now, counters=counters)
    return replace(now, samples=samples)


# --- trials ----------------------------------------------------------------------------------------------


def _begin(snapshot: Snapshot, now: TuningStatus) -> Verdict | None:
    """The first recommendation that may be tried, on a replica where there is one."""
    for one in now.recommendations or ():
        judge = snapshot.topology.member(one.pod)
        load = judge.server.load if judge is not None and judge.server is not None else None
        setting = load.settings.get(one.setting) if load is not None else None
        if setting is None or setting.value != one.current or one.proposed <= one.current:
            continue
        if one.held or _held(snapshot, now, one):
            continue
        pod = next(
            (it.name for it, server in reversed(snapshot.replicas) if snapshot.healthy(it, server)), ""
        )
        trial = TuningTrial(
            setting=one.setting,
            variables=list(setting.variables),
            value=one.proposed,
            previous=one.current,
            stage="Replica" if pod else "All",
            pod=pod or one.pod,
            judge=one.pod,
            since=snapshot.now,
            permille=one.permille,
            evidence=one.evidence,
        )
        return _try(
            snapshot, now, trial, why=f"{_change(trial)} is tried on {pod or 'every server'}: {one.evidence}"
        )
    return None


def _try(snapshot: Snapshot, now: TuningStatus, trial: TuningTrial, *, why: str) -> Tune:
    """Set it where this stage is; what is measured begins once the servers took it."""
    samples = {name: one for name, one in (now.samples or {}).items() if name != trial.pod}
    first = replace(snapshot.status, tuning=replace(now, trial=trial, samples=samples or None))
    return _move(snapshot, trial, why, first=first if first != snapshot.status else None)


def _move(
    snapshot: Snapshot, trial: TuningTrial, why: str, *, first: MySQLClusterStatus | None = None
) -> Tune:
    only = {trial.pod} if trial.stage == "Replica" else None
    return Tune(
        setting=trial.setting,
        variables=tuple(trial.variables or ()),
        value=trial.value,
        previous=trial.previous,
        targets=_all(snapshot, only),
        effect="Try",
        decided=snapshot.now,
        first=first,
        why=why,
    )


def _trial(snapshot: Snapshot, now: TuningStatus, trial: TuningTrial) -> Verdict | None:
    """Go on with the change on trial."""
    if (
        not trial.applied
    ):  # the process that began it ended before the servers took it, or did not record that
        return _move(snapshot, trial, f"{_change(trial)} is tried: {trial.evidence}")
    member = snapshot.topology.member(trial.pod)
    if member is None or member.server is None:
        return _revert(snapshot, now, trial, f"{trial.pod} is gone, which was measured")
    sample = (now.samples or {}).get(trial.pod)
    if sample is None:
        return _record(snapshot, _sampled(snapshot, now, [trial.pod]), f"{trial.pod} is measured")
    window = window_of(trial.pod, member.server, sample, snapshot.now)
    if window is None:
        return _revert(snapshot, now, trial, f"{trial.pod} started again while it was measured")
    if window.seconds < snapshot.wanted.tuning_window:
        return None
    if trial.stage == "Replica":
        return _after_replica(snapshot, now, trial, window)
    return _after_all(snapshot, now, trial, window)


def _after_replica(snapshot: Snapshot, now: TuningStatus, trial: TuningTrial, window: Window) -> Verdict:
    """It did no harm there (see `retreat`); and helped, if this is the server that asked for it."""
    share = advice.permille(trial.setting, window)
    if trial.pod == trial.judge and share is not None and not advice.gained(trial.permille, share):
        return _revert(snapshot, now, trial, advice.says(trial.setting, window))
    judge = trial.judge if snapshot.topology.member(trial.judge) is not None else snapshot.primary
    following = replace(trial, stage="All", pod=judge, since=snapshot.now, applied=False)
    why = f"{_change(trial)} did no harm on {trial.pod}; it is tried on every server"
    return _try(snapshot, now, following, why=why)


def _after_all(snapshot: Snapshot, now: TuningStatus, trial: TuningTrial, window: Window) -> Verdict | None:
    """Kept where the share fell enough."""
    share, result = advice.permille(trial.setting, window), advice.says(trial.setting, window)
    if share is None or not window.works:
        if window.seconds < PATIENCE * snapshot.wanted.tuning_window:
            return None
        return _revert(snapshot, now, trial, f"{trial.pod} had too little work to measure it")
    if not advice.gained(trial.permille, share):
        return _revert(snapshot, now, trial, result)
    before = (now.applied or {}).get(trial.setting)
    kept = TuningResult(
        value=trial.value,
        previous=before.previous if before is not None else trial.previous,
        variables=trial.variables,
        at=snapshot.now,
        evidence=f"before: {trial.evidence}; since: {result}",
    )
    changed = replace(
        now,
        trial=None,
        applied={**(now.applied or {}), trial.setting: kept},
        recommendations=[one for one in now.recommendations or () if one.setting != trial.setting] or None,
        samples=None,
    )
    return _record(snapshot, changed, f"{_change(trial)} is kept. {kept.evidence}")


def _revert(snapshot: Snapshot, now: TuningStatus, trial: TuningTrial, result: str) -> Tune:
    """The value before, on every server; recorded before it is done."""
    ending = replace(trial, stage="Revert", result=result)
    return Tune(
        setting=trial.setting,
        variables=tuple(trial.variables or ()),
        value=trial.previous,
        previous=trial.value,
        targets=_all(snapshot),
        effect="Revert",
        decided=snapshot.now,
        first=replace(snapshot.status, tuning=replace(now, trial=ending)) if ending != trial else None,
        why=f"{_change(trial)} is taken back. before: {trial.evidence}; since: {result}",
    )


def _change(trial: TuningTrial) -> str:
    return f"{' and '.join(trial.variables or ())} from {trial.previous} to {trial.value}"


def _all(snapshot: Snapshot, only: set[str] | None = None) -> tuple[Target, ...]:
    return tuple(target_of(one) for one, _ in snapshot.topology.answering if only is None or one.name in only)


def _record(snapshot: Snapshot, now: TuningStatus, why: str) -> Record:
    return Record(status=replace(snapshot.status, tuning=now), why=why)


# --- after a step ----------------------------------------------------------------------------------------


def after(status: MySQLClusterStatus, move: Tune) -> MySQLClusterStatus:
    """The status once every server took a value."""
    now = status.tuning or TuningStatus()
    trial = now.trial
    if move.effect == "Try" and trial is not None:
        now = replace(now, trial=replace(trial, applied=True))
    elif move.effect == "Revert" and trial is not None:
        now = _rejected(now, trial, move.decided)
    elif move.effect == "GiveBack":
        rest = {name: one for name, one in (now.applied or {}).items() if name != move.setting}
        now = replace(now, applied=rest or None, samples=None)
    return replace(status, tuning=now)


def _rejected(now: TuningStatus, trial: TuningTrial, at: datetime) -> TuningStatus:
    result = TuningResult(
        value=trial.value,
        previous=trial.previous,
        variables=trial.variables,
        at=at,
        evidence=f"before: {trial.evidence}; since: {trial.result}",
    )
    rejected: Mapping[str, TuningResult] = {**(now.rejected or {}), trial.setting: result}
    rest = [one for one in now.recommendations or () if one.setting != trial.setting]
    return replace(now, trial=None, rejected=dict(rejected), recommendations=rest or None, samples=None)


def refused(status: MySQLClusterStatus, message: str) -> MySQLClusterStatus:
    """The status after a server did not take a value on trial: it goes back on all of them."""
    now = status.tuning or TuningStatus()
    if now.trial is None:
        return status
    return replace(status, tuning=replace(now, trial=replace(now.trial, stage="Revert", result=message)))
