"""What the user changed: live keys, sizes, and the pod template; one small step at a time.

Nothing here starts unless a master serves and the sentinels are whole (`plan` asks in that order). Growth goes
first, shrinking never takes the master with it, a roll stops at the first pod that does not come up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.operators.redis.parameters import classify, same_value, spelling
from mooring.operators.redis.sentinel.look import Look
from mooring.operators.redis.sentinel.moves import (
    ConfigResult,
    Configure,
    DeletePod,
    PublishConfig,
    Record,
    Resize,
    Verdict,
    Wait,
    WriteTemplate,
    data_target,
)
from mooring.operators.redis.sentinel.topology import Member, Pod, Server, Watcher

__all__ = ["MasterInTheWay", "next_change", "unblock"]


@dataclass(frozen=True, kw_only=True)
class MasterInTheWay:
    """The change needs the master's pod; a planned switch comes first."""

    why: str


def next_change(look: Look, member: Member, server: Server) -> Verdict | MasterInTheWay | None:
    """The first change still to make."""
    for rule in (
        _configure,
        _grow,
        _shrink_redis,
        _shrink_sentinels,
        _template,
        _roll_redis,
        _roll_sentinels,
    ):
        verdict = rule(look, member, server)
        if verdict is not None:
            return verdict
    return _missing(look)


# --- live keys -------------------------------------------------------------------------------------------


def _configure(look: Look, member: Member, server: Server) -> Verdict | None:
    """Changed keys only, one by one, on every server; the result of each of the user's goes to status.

    First it is noted which keys will change and from what, then they are set, then what came of it is noted:
    two status writes for any number of keys.
    """
    notes: dict[str, ConfigResult] = {}
    moves: list[Configure] = []
    for key, value in sorted(look.wanted.config.items()):
        note, move = _one_key(look, key=key, value=value)
        if note is not None and key in look.wanted.user_keys:
            notes[key] = note
        if move is not None:
            moves.append(move)
    pending = {key: note for key, note in notes.items() if note.state == "Pending"}
    if pending:
        return _note(look, pending)
    if moves:
        return moves[0]
    if notes:
        return _note(look, notes)
    for key, result in sorted(look.recorded.config.items()):
        if key not in look.wanted.user_keys:
            return _give_back(look, key=key, result=result)
    accepted = _accepted(look)
    if dict(look.observed.published) != accepted:
        return PublishConfig(values=accepted, why="a restarting server must find the values in force")
    return None


def _one_key(look: Look, *, key: str, value: str) -> tuple[ConfigResult | None, Configure | None]:
    """What to note of a key, and the move to make."""
    before = look.recorded.config.get(key)
    same = before is not None and before.wanted == value
    if classify(key) == "forbidden":
        return _unless(before, value, "Forbidden", f"{key} is the operator's own; remove it from spec.config")
    seen = [(one, it.config[name]) for one, it in look.answering if (name := spelling(key, it.config))]
    if not seen:
        if not any(it.config for _, it in look.answering):
            return None, None
        message = f"this server version has no key {key}; correct or remove it in spec.config"
        return _unless(before, value, "Unknown", message)
    if classify(key) == "restart":
        return _restart_only(before, key=key, value=value, shown=seen[0][1])
    if same and before is not None and before.state == "Rejected":
        return None, None
    effective = before.effective if same and before is not None and before.effective else value
    differing = [(one, now) for one, now in seen if not same_value(key, effective, now)]
    previous = before.previous if before is not None and before.previous else seen[0][1]
    if differing:
        one, now = differing[0]
        move = Configure(
            targets=tuple(data_target(other) for other, _ in differing),
            key=key,
            value=value,
            previous=previous,
            why=f"{key} is to be {value!r}, found {now!r} on {one.name}",
        )
        note = None if same else ConfigResult(wanted=value, state="Pending", previous=previous)
        return note, move
    if same and before is not None and before.state in ("Applied", "Clamped"):
        return None, None
    return ConfigResult(wanted=value, effective=seen[0][1], state="Applied", previous=previous), None


def _unless(
    before: ConfigResult | None, value: str, state: str, message: str
) -> tuple[ConfigResult | None, None]:
    if before is not None and before.wanted == value and before.state == state:
        return None, None
    return ConfigResult(wanted=value, state=state, message=message), None


def _restart_only(
    before: ConfigResult | None, *, key: str, value: str, shown: str
) -> tuple[ConfigResult | None, None]:
    if same_value(key, value, shown):
        if before is not None and before.wanted == value and before.state == "Applied":
            return None, None
        return ConfigResult(wanted=value, effective=shown, state="Applied"), None
    message = f"{key} is read at start only; it takes effect when the pods are rolled"
    return _unless(before, value, "NeedsRestart", message)


def _note(look: Look, results: Mapping[str, ConfigResult]) -> Record:
    states = ", ".join(f"{key}: {result.state}" for key, result in sorted(results.items()))
    return Record(config={**look.recorded.config, **results}, why=states)


def _give_back(look: Look, *, key: str, result: ConfigResult) -> Verdict:
    """A key the user dropped gets its earlier value back, then is forgotten."""
    changed = result.previous and result.state in ("Applied", "Clamped") and key not in look.wanted.config
    differing = [
        one
        for one, it in look.answering
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
    rest = {name: value for name, value in look.recorded.config.items() if name != key}
    return Record(config=rest, why=f"{key} is the server's own again")


def _accepted(look: Look) -> dict[str, str]:
    """What the servers took, by key: this and nothing else may stand in a file that a start reads."""
    return {key: value for key, value in look.wanted.config.items() if _took(look, key, value)}


def _took(look: Look, key: str, value: str) -> bool:
    if classify(key) != "live":
        return False
    result = look.recorded.config.get(key)
    if key in look.wanted.user_keys:
        return result is not None and result.wanted == value and result.state in ("Applied", "Clamped")
    return any(spelling(key, it.config) for _, it in look.answering)


# --- sizes -----------------------------------------------------------------------------------------------


def _grow(look: Look, member: Member, server: Server) -> Verdict | None:
    redis, sentinels = look.observed.redis_set.replicas, look.observed.sentinel_set.replicas
    if redis and redis < look.wanted.size:
        return Resize(component="redis", replicas=look.wanted.size, why=f"from {redis} to {look.wanted.size}")
    if sentinels and sentinels < look.wanted.sentinels:
        return Resize(
            component="sentinel",
            replicas=look.wanted.sentinels,
            why=f"from {sentinels} to {look.wanted.sentinels}",
        )
    return None


def _shrink_redis(look: Look, member: Member, server: Server) -> Verdict | MasterInTheWay | None:
    replicas, size = look.observed.redis_set.replicas, look.wanted.size
    if replicas <= size:
        return None
    if member.pod.ordinal >= size:
        return MasterInTheWay(why=f"scaling from {replicas} to {size} removes the master's pod")
    staying = [one for one, it in look.answering if one.pod.ordinal < size and it.in_sync_with(member.ip)]
    if size > 1 and not staying:
        return Wait(
            reason="ScaleInBlocked",
            message="no replica that stays is in sync with the master; nothing is removed before",
            after=1.0,
        )
    return Resize(component="redis", replicas=size, why=f"from {replicas} to {size}")


def _shrink_sentinels(look: Look, member: Member, server: Server) -> Verdict | None:
    """One at a time, so that the majority the sentinels count by shrinks with them."""
    replicas = look.observed.sentinel_set.replicas
    if replicas <= look.wanted.sentinels:
        return None
    leaving = [one for one in look.topology.watchers if one.pod.ordinal >= replicas]
    if leaving:
        return Wait(reason="SentinelLeaving", message=f"{leaving[0].name} is on its way out", after=0.5)
    return Resize(
        component="sentinel", replicas=replicas - 1, why=f"towards {look.wanted.sentinels}, one by one"
    )


# --- the roll --------------------------------------------------------------------------------------------


def _template(look: Look, member: Member, server: Server) -> Verdict | None:
    if not look.wanted.roll:
        return None
    if not look.observed.redis_set.current:
        if starting := _starting(look):
            return starting
        return WriteTemplate(component="redis", why="the declared pods differ from those that run")
    if not look.observed.sentinel_set.current:
        return WriteTemplate(
            component="sentinel", why="the declared sentinel pods differ from those that run"
        )
    return None


def _roll_redis(look: Look, member: Member, server: Server) -> Verdict | MasterInTheWay | None:
    """Replicas first from the highest ordinal, one planned switch, the old master's pod last."""
    revision = look.observed.redis_set.update_revision
    pods = [one.pod for one in look.topology.members]
    old = [pod for pod in pods if revision and pod.revision and pod.revision != revision]
    if not old:
        return None
    if halted := _halted(look, pods, revision):
        return halted
    settled = all(
        it.in_sync_with(member.ip) and it.priority > 0
        for one, it in look.answering
        if one.name != member.name and one.pod.ordinal < look.wanted.size
    )
    if len(look.answering) < look.wanted.size or not settled:
        return _unless_broken(old, look) or Wait(
            reason="RollWaiting", message="the last rolled pod is not in sync yet", after=0.5
        )
    for pod in sorted(old, key=lambda pod: -pod.ordinal):
        if pod.name != member.name:
            return DeletePod(component="redis", pod=pod.name, uid=pod.uid, why="it runs an older template")
    return MasterInTheWay(why="its pod runs an older template")


def _unless_broken(old: list[Pod], look: Look) -> Verdict | None:
    """A pod of the old template that cannot run has nothing to lose: it is made anew at once."""
    answering = {member.name for member, _ in look.answering}
    for pod in old:
        if pod.name not in answering and pod.trouble and not pod.running:
            return DeletePod(
                component="redis",
                pod=pod.name,
                uid=pod.uid,
                why=f"its old template cannot run: {pod.trouble}",
            )
    return None


def _roll_sentinels(look: Look, member: Member, server: Server) -> Verdict | None:
    revision = look.observed.sentinel_set.update_revision
    pods = [one.pod for one in look.topology.watchers]
    old = [pod for pod in pods if revision and pod.revision and pod.revision != revision]
    if not old:
        return None
    if halted := _halted(look, pods, revision):
        return halted
    broken = [pod for pod in old if pod.trouble and not pod.running]
    if len(look.watchers) < look.wanted.sentinels and not broken:
        return Wait(reason="RollWaiting", message="the last rolled sentinel is not back yet", after=0.5)
    pod = (broken or sorted(old, key=lambda pod: -pod.ordinal))[0]
    return DeletePod(component="sentinel", pod=pod.name, uid=pod.uid, why="it runs an older template")


_HOPELESS = frozenset(
    (
        *("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "FailedMount"),
        *("Unschedulable", "UnboundClaim"),
    )
)
_MAY_PASS = frozenset({"Unschedulable", "UnboundClaim"})
PASSES_WITHIN = 10.0
"""Seconds in which a claim is bound and a place is found, as a rule."""


def _hopeless(look: Look, pod: Pod) -> bool:
    """It will not come up without a person."""
    if pod.running or pod.trouble not in _HOPELESS:
        return False
    return pod.trouble not in _MAY_PASS or look.seconds_since(pod.created) > PASSES_WITHIN


def unblock(look: Look) -> Verdict | None:
    """No server runs and some cannot: a corrected declaration reaches them, else it is said what is wrong."""
    stuck = [one.pod for one in look.topology.members if _hopeless(look, one.pod)]
    if not stuck:
        return None
    if look.wanted.roll and not look.observed.redis_set.current:
        return WriteTemplate(component="redis", why="no server runs with the template there is")
    revision = look.observed.redis_set.update_revision
    old = next((pod for pod in stuck if revision and pod.revision and pod.revision != revision), None)
    if old is not None:
        return DeletePod(
            component="redis", pod=old.name, uid=old.uid, why=f"its old template cannot run: {old.trouble}"
        )
    pod = stuck[0]
    return Wait(reason=pod.trouble, message=f"{pod.name}: {pod.trouble_message}", after=2.0, stalled=True)


def _halted(look: Look, pods: list[Pod], revision: str) -> Verdict | None:
    """A pod of the new template that does not come up stops the roll."""
    bad = next((pod for pod in pods if pod.revision == revision and _hopeless(look, pod)), None)
    if bad is None:
        return None
    return Wait(
        reason="RollHalted",
        message=f"{bad.name} does not come up with the new template ({bad.trouble}: {bad.trouble_message}); no "
        "other pod is touched until the spec is corrected",
        after=5.0,
        stalled=True,
    )


def _starting(look: Look) -> Verdict | None:
    """A new template is not begun over pods that are starting."""
    pods, size = [one.pod for one in look.topology.members], look.wanted.size
    starting = [pod for pod in pods if pod.ordinal < size and not pod.running and not _hopeless(look, pod)]
    if not starting:
        return None
    return Wait(reason="PodsStarting", message=f"{starting[0].name} is starting", after=1.0)


def _missing(look: Look) -> Verdict | None:
    """Pods that are not there or not right; everything that can be done without them is done."""
    answering = {member.name for member, _ in look.answering}
    wanted = [one for one in look.topology.members if one.pod.ordinal < look.wanted.size]
    silent = [one for one in wanted if one.name not in answering]
    if silent:
        one = silent[0]
        return Wait(
            reason=one.pod.trouble or "RedisNotAnswering",
            message=f"{one.name}: {one.pod.trouble_message or one.error}",
            after=1.0,
            stalled=_hopeless(look, one.pod),
        )
    if len(wanted) < look.wanted.size:
        return Wait(
            reason="PodsMissing", message=f"{len(wanted)} of {look.wanted.size} redis pods exist", after=1.0
        )
    aside = [one for one, it in look.answering if it.gated and look.set_aside(one)]
    if aside:
        return Wait(
            reason="ForeignDataSetAside",
            message=f"{aside[0].name} holds data of an unrelated history and is kept as it is; copy out what you "
            f"need, then name it in the annotation mooring.dev/discard-data: {aside[0].name}",
            after=10.0,
            stalled=True,
        )
    unready: list[Member | Watcher] = [one for one in wanted if not one.pod.ready]
    unsynced = [one for one, it in look.answering if not it.is_master and not it.link_up]
    if unsynced:
        return Wait(
            reason="ReplicaSynchronising", message=f"{unsynced[0].name} is not in sync yet", after=0.5
        )
    lost = [one for one in look.topology.watchers if one.sentinel is None]
    if lost or len(look.topology.watchers) < look.wanted.sentinels:
        trouble = next((one.pod for one in lost if one.pod.trouble), None)
        return Wait(
            reason=trouble.trouble if trouble else "SentinelNotAnswering",
            message=f"{lost[0].name}: {lost[0].pod.trouble_message or lost[0].error}"
            if lost
            else f"{len(look.topology.watchers)} of {look.wanted.sentinels} sentinel pods exist",
            after=1.0,
            stalled=trouble is not None and _hopeless(look, trouble),
        )
    unready = [*unready, *(one for one in look.topology.watchers if not one.pod.ready)]
    if unready:
        names = ", ".join(one.name for one in unready)
        return Wait(reason="PodsNotReady", message=f"{names} not ready yet", after=5.0)
    return None
