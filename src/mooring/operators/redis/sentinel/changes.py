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
from mooring.operators.redis.sentinel.topology import Member, Pod, Server

__all__ = ["MasterInTheWay", "next_change"]


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
    """Changed keys only, one by one, on every server; the result of each goes to status."""
    wanted = look.wanted.config
    for key, value in sorted(wanted.items()):
        verdict = _one_key(look, key=key, value=value)
        if verdict is not None:
            return verdict
    for key, result in sorted(look.recorded.config.items()):
        if key not in wanted:
            return _give_back(look, key=key, result=result)
    accepted = _accepted(look)
    if dict(look.observed.published) != accepted:
        return PublishConfig(values=accepted, why="a restarting server must find the values in force")
    return None


def _one_key(look: Look, *, key: str, value: str) -> Verdict | None:
    before = look.recorded.config.get(key)
    known = before is not None and before.wanted == value
    kind = classify(key)
    if kind == "forbidden":
        refused = ConfigResult(
            wanted=value,
            state="Forbidden",
            message=f"{key} is set by the operator; remove it from spec.config",
        )
        return None if known else _note(look, key, refused)
    seen = [(one, name, it.config[name]) for one, it in look.answering if (name := spelling(key, it.config))]
    if not seen:
        if not look.answering or any(key_unread(it.config, key) for _, it in look.answering):
            return None
        unknown = ConfigResult(
            wanted=value,
            state="Unknown",
            message=f"this server version has no key {key}; correct or remove it in spec.config",
        )
        return None if known and before and before.state == "Unknown" else _note(look, key, unknown)
    if kind == "restart":
        return _restart_only(look, key=key, value=value, shown=seen[0][2])
    if known and before is not None and before.state == "Rejected":
        return None
    effective = before.effective if known and before is not None and before.effective else value
    differing = [(one, now) for one, _, now in seen if not same_value(key, effective, now)]
    if differing:
        return Configure(
            targets=tuple(data_target(one) for one, _ in differing),
            key=key,
            value=value,
            previous=before.previous if before else differing[0][1],
            why=f"{key} is to be {value!r}, found {differing[0][1]!r} on {differing[0][0].name}",
        )
    if not known:
        applied = ConfigResult(
            wanted=value,
            effective=seen[0][2],
            state="Applied",
            previous=before.previous if before else "",
        )
        return _note(look, key, applied)
    return None


def key_unread(config: Mapping[str, str], key: str) -> bool:
    """The look did not include that key at all (a plan made from an older look)."""
    return not config


def _restart_only(look: Look, *, key: str, value: str, shown: str) -> Verdict | None:
    before = look.recorded.config.get(key)
    if same_value(key, value, shown):
        wanted = ConfigResult(wanted=value, effective=shown, state="Applied")
    else:
        wanted = ConfigResult(
            wanted=value,
            effective=shown,
            state="NeedsRestart",
            message=f"{key} is read at start only; it takes effect when the pods are rolled",
        )
    same = before is not None and before.wanted == value and before.state == wanted.state
    return None if same else _note(look, key, wanted)


def _note(look: Look, key: str, result: ConfigResult) -> Record:
    return Record(config={**look.recorded.config, key: result}, why=f"{key}: {result.state}")


def _give_back(look: Look, *, key: str, result: ConfigResult) -> Verdict:
    """A key the user dropped gets its earlier value back, then is forgotten."""
    differing = [
        one
        for one, it in look.answering
        if result.previous
        and result.state in ("Applied", "Clamped")
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
    return {
        key: value
        for key, value in look.wanted.config.items()
        if (result := look.recorded.config.get(key)) is not None
        and result.wanted == value
        and result.state in ("Applied", "Clamped")
        and classify(key) == "live"
    }


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
        if broken := _broken(tuple(one.pod for one in look.topology.members), look.wanted.size):
            return broken
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
    if halted := _halted(pods, revision):
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
    if halted := _halted(pods, revision):
        return halted
    broken = [pod for pod in old if pod.trouble and not pod.running]
    if len(look.watchers) < look.wanted.sentinels and not broken:
        return Wait(reason="RollWaiting", message="the last rolled sentinel is not back yet", after=0.5)
    pod = (broken or sorted(old, key=lambda pod: -pod.ordinal))[0]
    return DeletePod(component="sentinel", pod=pod.name, uid=pod.uid, why="it runs an older template")


_HOPELESS = frozenset(
    [
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "Unschedulable",
        "FailedMount",
    ]
)


def _halted(pods: list[Pod], revision: str) -> Verdict | None:
    """A pod of the new template that does not come up stops the roll."""
    bad = next((pod for pod in pods if pod.revision == revision and pod.trouble in _HOPELESS), None)
    if bad is None:
        return None
    return Wait(
        reason="RollHalted",
        message=f"{bad.name} does not come up with the new template ({bad.trouble}: {bad.trouble_message}); no "
        "other pod is touched until the spec is corrected",
        after=5.0,
        stalled=True,
    )


def _broken(pods: tuple[Pod, ...], size: int) -> Verdict | None:
    """A new template is not begun over pods that are starting."""
    starting = [
        pod for pod in pods if pod.ordinal < size and not pod.running and pod.trouble not in _HOPELESS
    ]
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
            stalled=one.pod.trouble in _HOPELESS,
        )
    if len(wanted) < look.wanted.size:
        return Wait(
            reason="PodsMissing", message=f"{len(wanted)} of {look.wanted.size} redis pods exist", after=1.0
        )
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
            stalled=trouble is not None and trouble.trouble in _HOPELESS,
        )
    return None
