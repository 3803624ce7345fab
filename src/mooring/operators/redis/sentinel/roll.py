"""Rolling a new pod template out: one pod at a time, the master's last, stopped by the first that does not come up.

The template is written only over a cluster that is whole, after it was recorded what ran before. When a pod of
it does not come up, that is recorded and the last good template is put back, since under OnDelete any pod that
dies comes up with the newest one. Pods that run the new template well keep it; nothing else is touched until
the declaration changes: back, and the rest is forgotten; to something else, and that is rolled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from mooring.operators.redis.sentinel.moves import (
    DeletePod,
    Record,
    RestoreTemplate,
    Roll,
    Verdict,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server, Watcher
from mooring.operators.redis.versions import file_format, image_format
from mooring.operators.workload.pods import Pod

__all__ = [
    "MasterInTheWay",
    "begin",
    "carry_on_redis",
    "carry_on_sentinels",
    "end",
    "hopeless",
    "refused",
    "stopped",
    "unblock",
]

Component = Literal["redis", "sentinel"]
COMPONENTS: tuple[Component, ...] = ("redis", "sentinel")

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
COMES_UP_WITHIN = 600.0
"""Seconds a rolled pod may take to serve, not counting what it loads or synchronises."""
SYNCS_WITHIN = 10.0
"""Seconds after which an older server that does not follow a newer master never will."""


@dataclass(frozen=True, kw_only=True)
class MasterInTheWay:
    """The change needs the master's pod; a planned switch comes first."""

    why: str


def hopeless(snapshot: Snapshot, pod: Pod) -> bool:
    """It will not come up without a person."""
    if pod.trouble not in _HOPELESS or (pod.running and pod.ready):
        return False
    return pod.trouble not in _MAY_PASS or snapshot.seconds_since(pod.created) > PASSES_WITHIN


# --- the beginning ---------------------------------------------------------------------------------------


def begin(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Record what runs now, then write the template; not over pods that are starting."""
    for component in COMPONENTS:
        rolls = snapshot.recorded.rolls
        state, known = snapshot.set_of(component), rolls.get(component)
        if known is not None and known.pod and state.inputs == known.inputs and known.revision:
            return RestoreTemplate(
                component=component,
                revision=known.revision,
                inputs=known.good,
                why=f"{known.pod} does not come up with the new template; the last good one is put back",
            )
        if state.current:
            if known is not None and known.inputs != state.asked:
                return _forget(snapshot, component, why="the declaration is the last good one again")
            continue
        if not snapshot.wanted.roll or (component == "redis" and _cannot_read(snapshot)):
            continue
        if known is None or known.inputs != state.asked:
            if component == "redis" and (starting := _starting(snapshot)):
                return starting
            return Record(
                rolls={**rolls, component: _first(snapshot, component)},
                why=f"{component} pods will be rolled",
            )
        if not known.pod:
            return WriteTemplate(component=component, why="the declared pods differ from those that run")
    return None


def _first(snapshot: Snapshot, component: Component) -> Roll:
    """The roll to what is asked now; what was good stays what all pods ran last."""
    state, known = snapshot.set_of(component), snapshot.recorded.rolls.get(component)
    mixed = known is not None and known.revision and _old(_pods(snapshot, component), state.update_revision)
    if known is not None and (known.pod or mixed):
        return Roll(inputs=state.asked, good=known.good, revision=known.revision, since=snapshot.now)
    return Roll(inputs=state.asked, good=state.inputs, revision=state.update_revision, since=snapshot.now)


def _forget(snapshot: Snapshot, component: str, *, why: str) -> Record:
    rest = {name: one for name, one in snapshot.recorded.rolls.items() if name != component}
    return Record(rolls=rest, why=why)


def _starting(snapshot: Snapshot) -> Wait | None:
    """A new template is not begun over pods that are starting."""
    pods, size = _pods(snapshot, "redis"), snapshot.wanted.size
    starting = [pod for pod in pods if pod.ordinal < size and not pod.running and not hopeless(snapshot, pod)]
    if not starting:
        return None
    return Wait(reason="PodsStarting", message=f"{starting[0].name} is starting", after=1.0)


# --- pod by pod ------------------------------------------------------------------------------------------


def carry_on_redis(snapshot: Snapshot, member: Member, server: Server) -> Verdict | MasterInTheWay | None:
    """Replicas first from the highest ordinal, one planned switch, the old master's pod last."""
    pods, revision = _pods(snapshot, "redis"), snapshot.observed.redis_set.update_revision
    if halted := _halted(snapshot, "redis", server):
        return halted
    old = _old(pods, revision)
    broken = [
        pod for pod in old if hopeless(snapshot, pod) and pod.name != member.name and not pod.terminating
    ]
    if broken:
        why = f"its old template cannot run: {broken[0].trouble}"
        return _remove("redis", broken[0], why=why)
    if not old or _is_stopped(snapshot, "redis"):
        return None
    if waiting := _not_yet(snapshot, member, revision):
        return waiting
    for pod in sorted(old, key=lambda pod: -pod.ordinal):
        if pod.name != member.name:
            return _remove("redis", pod, why="it runs an older template")
    return MasterInTheWay(why="its pod runs an older template")


def _not_yet(snapshot: Snapshot, member: Member, revision: str) -> Wait | None:
    """The next pod is touched when all others serve: running as a whole, in sync, in election."""
    wanted = [one for one in snapshot.topology.members if one.pod.ordinal < snapshot.wanted.size]
    for one in wanted:
        it = one.server
        in_sync = it is not None and (
            one.name == member.name or (it.in_sync_with(member.ip) and it.priority > 0)
        )
        if not in_sync or one.pod.terminating or (one.pod.revision == revision and one.pod.trouble):
            return Wait(reason="RollWaiting", message=f"{one.name} is not in sync yet", after=0.5)
    if len(wanted) < snapshot.wanted.size:
        return Wait(reason="RollWaiting", message="the last rolled pod is not there yet", after=0.5)
    return None


def carry_on_sentinels(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """From the highest ordinal, one at a time, each back before the next."""
    pods, revision = _pods(snapshot, "sentinel"), snapshot.observed.sentinel_set.update_revision
    if halted := _halted(snapshot, "sentinel", None):
        return halted
    old = [pod for pod in _old(pods, revision) if not pod.terminating]
    broken = [pod for pod in old if hopeless(snapshot, pod)]
    if not old or (not broken and _is_stopped(snapshot, "sentinel")):
        return None
    leaving = any(pod.terminating for pod in pods)
    if not broken and (leaving or len(snapshot.watchers) < snapshot.wanted.sentinels):
        return Wait(reason="RollWaiting", message="the last rolled sentinel is not back yet", after=0.5)
    pod = (broken or sorted(old, key=lambda pod: -pod.ordinal))[0]
    return _remove("sentinel", pod, why="it runs an older template")


def _remove(component: Component, pod: Pod, *, why: str) -> DeletePod:
    """Exactly the pod that was decided about: its UID, and the version at which it was seen."""
    return DeletePod(component=component, pod=pod.name, uid=pod.uid, version=pod.version, why=why)


def end(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Every pod runs the new template: the roll is over."""
    for component in COMPONENTS:
        known, state = snapshot.recorded.rolls.get(component), snapshot.set_of(component)
        if known is None or known.pod or not state.current:
            continue
        if not state.update_revision:
            text = f"the new template of the {component} pods has no revision yet"
            return Wait(reason="RollWaiting", message=text, after=0.2)
        pods = _pods(snapshot, component)
        whole = all(pod.running and not pod.trouble and not pod.terminating for pod in pods)
        if whole and pods and len(pods) >= state.replicas and not _old(pods, state.update_revision):
            return _forget(snapshot, component, why=f"every {component} pod runs the new template")
    return None


def _pods(snapshot: Snapshot, component: Component) -> list[Pod]:
    members: Sequence[Member | Watcher] = (
        snapshot.topology.members if component == "redis" else snapshot.topology.watchers
    )
    return [one.pod for one in members]


def _old(pods: list[Pod], revision: str) -> list[Pod]:
    return [pod for pod in pods if revision and pod.revision and pod.revision != revision]


# --- when it does not work -------------------------------------------------------------------------------


def _halted(snapshot: Snapshot, component: Component, master: Server | None) -> Verdict | None:
    """A pod of the new template that does not come up stops the roll; that is recorded first."""
    state = snapshot.set_of(component)
    failed = next(
        (
            (pod, *why)
            for pod in _pods(snapshot, component)
            if pod.revision == state.update_revision and (why := _failure(snapshot, pod, master))
        ),
        None,
    )
    if failed is None:
        return None
    pod, reason, message = failed
    known = snapshot.recorded.rolls.get(component)
    if known is not None and not known.pod and known.inputs == state.inputs and known.revision:
        stopped = replace(known, pod=pod.name, reason=reason, message=message)
        return Record(
            rolls={**snapshot.recorded.rolls, component: stopped}, why=f"{pod.name}: {reason}: {message}"
        )
    if not _old(_pods(snapshot, component), state.update_revision):
        return None
    return _halt(pod.name, reason, message)


def _failure(snapshot: Snapshot, pod: Pod, master: Server | None) -> tuple[str, str] | None:
    """Why a pod that was made anew will not serve, if that is certain."""
    if hopeless(snapshot, pod):
        return pod.trouble, pod.trouble_message
    age = snapshot.seconds_since(pod.created)
    member = snapshot.topology.member(pod.name)
    server = member.server if member is not None else None
    if master is not None and server is not None and not server.is_master and not server.link_up:
        if file_format(server.version) < file_format(master.version) and age > SYNCS_WITHIN:
            text = f"{server.version} cannot read what {master.version} sends; correct spec.image"
            return "VersionCannotRead", text
        if server.loading or server.syncing:
            return None
    if age > COMES_UP_WITHIN and not pod.ready and snapshot.unreachable_for(pod.name) + 60 > COMES_UP_WITHIN:
        return "NotInTime", f"it does not serve after {COMES_UP_WITHIN:.0f} s; its log and events say why"
    return None


def _is_stopped(snapshot: Snapshot, component: str) -> bool:
    known = snapshot.recorded.rolls.get(component)
    return known is not None and bool(known.pod)


def _halt(pod: str, reason: str, message: str) -> Wait:
    return Wait(
        reason="RollHalted",
        message=f"{pod} does not come up with the new template ({reason}: {message}); no other pod is touched until "
        "the spec is corrected",
        after=2.0,
        stalled=True,
    )


def stopped(snapshot: Snapshot) -> Wait | None:
    """What is declared was tried and does not work."""
    for component in COMPONENTS:
        known = snapshot.recorded.rolls.get(component)
        if known is not None and known.pod and known.inputs == snapshot.set_of(component).asked:
            return _halt(known.pod, known.reason, known.message)
    return None


def refused(snapshot: Snapshot) -> Wait | None:
    """A declared version that could not read the files there are is not rolled out at all."""
    if snapshot.observed.redis_set.current or not snapshot.wanted.roll or not _cannot_read(snapshot):
        return None
    newest = max((it.version for _, it in snapshot.answering), key=file_format)
    return Wait(
        reason="VersionRefused",
        message=f"spec.image: {snapshot.wanted.image} cannot read the files of {newest}, which runs; nothing was "
        f"changed. Give {newest} or a later version; to go back, restore a backup into a new cluster",
        after=10.0,
        stalled=True,
    )


def _cannot_read(snapshot: Snapshot) -> bool:
    reads = image_format(snapshot.wanted.image)
    kept = max((file_format(it.version) for _, it in snapshot.answering), default=0)
    return snapshot.wanted.image != snapshot.observed.redis_set.image and 0 < reads < kept


def unblock(snapshot: Snapshot) -> Verdict | None:
    """No server runs and some cannot: a corrected declaration reaches them, else it is said what is wrong."""
    stuck = [pod for pod in _pods(snapshot, "redis") if hopeless(snapshot, pod)]
    if not stuck:
        return None
    if snapshot.wanted.roll and not snapshot.observed.redis_set.current:
        return WriteTemplate(component="redis", why="no server runs with the template there is")
    old = next(iter(_old(stuck, snapshot.observed.redis_set.update_revision)), None)
    if old is not None:
        why = f"its old template cannot run: {old.trouble}"
        return _remove("redis", old, why=why)
    pod = stuck[0]
    return Wait(reason=pod.trouble, message=f"{pod.name}: {pod.trouble_message}", after=2.0, stalled=True)
