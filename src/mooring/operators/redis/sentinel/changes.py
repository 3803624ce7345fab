"""What the user changed: live keys, sizes, and the pod template; one small step at a time.

Nothing here starts unless a master serves and the sentinels are whole (`plan` asks in that order). Growth goes
first, shrinking never takes the master with it; the pod template is `roll`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.operators.redis.parameters import SECRET_KEYS, canonical, classify, same_value, spelling, told
from mooring.operators.redis.sentinel import passwords, roll
from mooring.operators.redis.sentinel.moves import (
    ConfigResult,
    Configure,
    PublishConfig,
    Record,
    Resize,
    Verdict,
    Wait,
    data_target,
)
from mooring.operators.redis.sentinel.roll import MasterInTheWay, hopeless
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server, Watcher

__all__ = ["next_change"]


def next_change(snapshot: Snapshot, member: Member, server: Server) -> Verdict | MasterInTheWay | None:
    """The first change still to make."""
    for rule in (
        passwords.begin,
        _configure,
        _grow,
        _shrink_redis,
        _shrink_sentinels,
        roll.begin,
        roll.carry_on_redis,
        roll.carry_on_sentinels,
        roll.end,
    ):
        verdict = rule(snapshot, member, server)
        if verdict is not None:
            return verdict
    return roll.stopped(snapshot) or _missing(snapshot) or roll.refused(snapshot) or _two_passwords(snapshot)


# --- live keys -------------------------------------------------------------------------------------------


def _configure(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Changed keys only, one by one, on every server; the result of each of the user's goes to status.

    First it is noted which keys will change and from what, then they are set, then what came of it is noted:
    two status writes for any number of keys.
    """
    notes: dict[str, ConfigResult] = {}
    moves: list[Configure] = []
    for key, value in sorted(snapshot.wanted.config.items()):
        note, move = _one_key(snapshot, key=key, value=value)
        if note is not None and key in snapshot.wanted.user_keys:
            notes[key] = note
        if move is not None:
            moves.append(move)
    pending = {key: note for key, note in notes.items() if note.state == "Pending"}
    if pending:
        return _note(snapshot, pending)
    if moves:
        return moves[0]
    if notes:
        return _note(snapshot, notes)
    for key, result in sorted(snapshot.recorded.config.items()):
        if key not in snapshot.wanted.user_keys:
            return _give_back(snapshot, key=key, result=result)
    accepted = _accepted(snapshot)
    if dict(snapshot.observed.published) != accepted:
        return PublishConfig(values=accepted, why="a restarting server must find the values in force")
    return None


def _one_key(snapshot: Snapshot, *, key: str, value: str) -> tuple[ConfigResult | None, Configure | None]:
    """What to note of a key, and the move to make."""
    before = snapshot.recorded.config.get(key)
    same = before is not None and before.wanted == value
    if classify(key) == "forbidden":
        shown = "" if canonical(key) in SECRET_KEYS else value
        return _unless(before, shown, "Forbidden", f"{key} is the operator's own; remove it from spec.config")
    if twin := _twin(snapshot, key, value):
        message = (
            f"it is the same key as {twin}, which has another value; remove one of them from spec.config"
        )
        return _unless(before, value, "Rejected", message)
    seen = [(one, it.config[name]) for one, it in snapshot.answering if (name := spelling(key, it.config))]
    if not seen:
        if not any(it.config for _, it in snapshot.answering):
            return None, None
        message = f"this server version has no key {key}; correct or remove it in spec.config"
        return _unless(before, value, "Unknown", message)
    if classify(key) == "restart" or (before is not None and before.restart):
        return _restart_only(snapshot, before, key=key, value=value, shown=seen[0][1])
    if same and before is not None and before.state == "Rejected":
        return None, None
    asked = told(key, value)
    effective = before.effective if same and before is not None and before.effective else asked
    differing = [(one, now) for one, now in seen if not same_value(key, effective, now)]
    previous = before.previous if before is not None and before.previous else seen[0][1]
    if differing:
        one, now = differing[0]
        move = Configure(
            targets=tuple(data_target(other) for other, _ in differing),
            key=key,
            value=asked,
            previous=previous,
            why=f"{key} is to be {asked!r}, found {now!r} on {one.name}",
        )
        note = None if same else ConfigResult(wanted=value, state="Pending", previous=previous)
        return note, move
    if same and before is not None and before.state in ("Applied", "Clamped"):
        return None, None
    return ConfigResult(wanted=value, effective=seen[0][1], state="Applied", previous=previous), None


def _twin(snapshot: Snapshot, key: str, value: str) -> str:
    """An earlier key that is this one under another spelling and wants another value, or "".

    Set in turn they would never come to rest.
    """
    for other, wanted in sorted(snapshot.wanted.config.items()):
        if other == key:
            return ""
        if canonical(other) == canonical(key) and not same_value(key, wanted, value):
            return other
    return ""


def _unless(
    before: ConfigResult | None, value: str, state: str, message: str
) -> tuple[ConfigResult | None, None]:
    if before is not None and before.wanted == value and before.state == state:
        return None, None
    return ConfigResult(wanted=value, state=state, message=message), None


def _restart_only(
    snapshot: Snapshot, before: ConfigResult | None, *, key: str, value: str, shown: str
) -> tuple[ConfigResult | None, None]:
    learnt = classify(key) != "restart"
    if same_value(key, value, shown):
        result = ConfigResult(wanted=value, effective=shown, state="Applied", restart=learnt)
    else:
        remedy = (
            "the pods are rolled for it"
            if snapshot.wanted.rolls_config
            else ("it takes effect when the pods are rolled; spec.configPolicy: roll does that by itself")
        )
        message = f"{key} is read at start only; {remedy}"
        result = ConfigResult(
            wanted=value, effective=shown, state="NeedsRestart", message=message, restart=learnt
        )
    return (None if result == before else result), None


def _note(snapshot: Snapshot, results: Mapping[str, ConfigResult]) -> Record:
    states = ", ".join(f"{key}: {result.state}" for key, result in sorted(results.items()))
    return Record(config={**snapshot.recorded.config, **results}, why=states)


def _give_back(snapshot: Snapshot, *, key: str, result: ConfigResult) -> Verdict:
    """A key the user dropped gets its earlier value back, then is forgotten."""
    changed = result.previous and result.state in ("Applied", "Clamped") and key not in snapshot.wanted.config
    differing = [
        one
        for one, it in snapshot.answering
        if changed
        and (name := spelling(key, it.config))
        and not same_value(key, result.previous, it.config[name])
    ]
    if differing:
        return Configure(
            targets=tuple(data_target(one) for one in differing),
            key=key,
            value=result.previous,
            previous=result.previous,
            why=f"{key} was dropped from the spec; its earlier value comes back",
        )
    rest = {name: value for name, value in snapshot.recorded.config.items() if name != key}
    return Record(config=rest, why=f"{key} is the server's own again")


def _accepted(snapshot: Snapshot) -> dict[str, str]:
    """What the servers took, by key: this and nothing else may stand in a file that a start reads."""
    return {
        key: told(key, value) for key, value in snapshot.wanted.config.items() if _took(snapshot, key, value)
    }


def _took(snapshot: Snapshot, key: str, value: str) -> bool:
    if classify(key) != "live":
        return False
    result = snapshot.recorded.config.get(key)
    if key in snapshot.wanted.user_keys:
        return result is not None and result.wanted == value and result.state in ("Applied", "Clamped")
    return any(spelling(key, it.config) for _, it in snapshot.answering)


# --- sizes -----------------------------------------------------------------------------------------------


def _grow(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    redis, sentinels = snapshot.observed.redis_set.replicas, snapshot.observed.sentinel_set.replicas
    if redis and redis < snapshot.wanted.size:
        return Resize(
            component="redis", replicas=snapshot.wanted.size, why=f"from {redis} to {snapshot.wanted.size}"
        )
    if sentinels and sentinels < snapshot.wanted.sentinels:
        return Resize(
            component="sentinel",
            replicas=snapshot.wanted.sentinels,
            why=f"from {sentinels} to {snapshot.wanted.sentinels}",
        )
    return None


def _shrink_redis(snapshot: Snapshot, member: Member, server: Server) -> Verdict | MasterInTheWay | None:
    replicas, size = snapshot.observed.redis_set.replicas, snapshot.wanted.size
    if replicas <= size:
        return None
    if member.pod.ordinal >= size:
        return MasterInTheWay(why=f"scaling from {replicas} to {size} removes the master's pod")
    staying = [one for one, it in snapshot.answering if one.pod.ordinal < size and it.in_sync_with(member.ip)]
    if size > 1 and not staying:
        return Wait(
            reason="ScaleInBlocked",
            message="no replica that stays is in sync with the master; nothing is removed before",
            after=1.0,
        )
    return Resize(component="redis", replicas=size, why=f"from {replicas} to {size}")


def _shrink_sentinels(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """One at a time, so that the majority the sentinels count by shrinks with them."""
    replicas = snapshot.observed.sentinel_set.replicas
    if replicas <= snapshot.wanted.sentinels:
        return None
    leaving = [one for one in snapshot.topology.watchers if one.pod.ordinal >= replicas]
    if leaving:
        return Wait(reason="SentinelLeaving", message=f"{leaving[0].name} is on its way out", after=0.5)
    return Resize(
        component="sentinel", replicas=replicas - 1, why=f"towards {snapshot.wanted.sentinels}, one by one"
    )


# --- what is missing --------------------------------------------------------------------------------------


def _two_passwords(snapshot: Snapshot) -> Wait | None:
    left = passwords.two_valid(snapshot)
    if not left:
        return None
    until = snapshot.later(left).strftime("%H:%M:%S")
    message = f"the old and the new password are both valid until {until} UTC; then the new one alone is"
    return Wait(reason="PasswordChanging", message=message, after=left)


def _missing(snapshot: Snapshot) -> Verdict | None:
    """Pods that are not there or not right; everything that can be done without them is done."""
    answering = {member.name for member, _ in snapshot.answering}
    wanted = [one for one in snapshot.topology.members if one.pod.ordinal < snapshot.wanted.size]
    silent = [one for one in wanted if one.name not in answering]
    if silent:
        one = silent[0]
        return Wait(
            reason=one.pod.trouble or "RedisNotAnswering",
            message=f"{one.name}: {one.pod.trouble_message or one.error}",
            after=1.0,
            stalled=hopeless(snapshot, one.pod),
        )
    if len(wanted) < snapshot.wanted.size:
        return Wait(
            reason="PodsMissing",
            message=f"{len(wanted)} of {snapshot.wanted.size} redis pods exist",
            after=1.0,
        )
    aside = [one for one, it in snapshot.answering if it.gated and snapshot.set_aside(one)]
    if aside:
        return Wait(
            reason="ForeignDataSetAside",
            message=f"{aside[0].name} holds data of an unrelated history and is kept as it is; copy out what you "
            f"need, then name it in the annotation mooring.dev/discard-data: {aside[0].name}",
            after=10.0,
            stalled=True,
        )
    unready: list[Member | Watcher] = [one for one in wanted if not one.pod.ready]
    unsynced = [one for one, it in snapshot.answering if not it.is_master and not it.link_up]
    if unsynced:
        return Wait(
            reason="ReplicaSynchronising", message=f"{unsynced[0].name} is not in sync yet", after=0.5
        )
    lost = [one for one in snapshot.topology.watchers if one.sentinel is None]
    if lost or len(snapshot.topology.watchers) < snapshot.wanted.sentinels:
        trouble = next((one.pod for one in lost if one.pod.trouble), None)
        return Wait(
            reason=trouble.trouble if trouble else "SentinelNotAnswering",
            message=f"{lost[0].name}: {lost[0].pod.trouble_message or lost[0].error}"
            if lost
            else f"{len(snapshot.topology.watchers)} of {snapshot.wanted.sentinels} sentinel pods exist",
            after=1.0,
            stalled=trouble is not None and hopeless(snapshot, trouble),
        )
    unready = [*unready, *(one for one in snapshot.topology.watchers if not one.pod.ready)]
    if unready:
        names = ", ".join(one.name for one in unready)
        troubled = next((one.pod for one in unready if one.pod.trouble), None)
        why = f": {troubled.trouble_message}" if troubled else ""
        return Wait(
            reason="PodsNotReady",
            message=f"{names} not ready yet{why}",
            after=5.0,
            stalled=troubled is not None and hopeless(snapshot, troubled),
        )
    return None
