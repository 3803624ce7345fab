"""Rolling out a new pod template under OnDelete: one pod at a time, and taken back where a pod does not come up.

What ran before is recorded, then the template is written, then pods are deleted one after the other, those that lead
last. A pod of the new template that does not come up halts the roll-out: that is recorded and the last good template is
put back, since any pod that dies comes up with the newest one. Pods that run the new template well keep it. Nothing
else is touched until the declaration changes: back, and the rest is forgotten; to something else, and that is rolled
out.

Pure. An operator builds a `Rollout` of each StatefulSet from its snapshot and asks it, in this order, for `begin`,
`advance`, `end` and, when nothing else is to be done, `halt`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

from msgspec.structs import replace

from mooring.actor.verdict import Move, Wait
from mooring.kube.part import Part
from mooring.operators.workload import trouble
from mooring.operators.workload.moves import DeletePod, RestoreTemplate, WriteTemplate
from mooring.operators.workload.pods import Pod
from mooring.runtime.crd import F

__all__ = [
    "COMES_UP_WITHIN",
    "RESTART_AFTER",
    "Failure",
    "HandOver",
    "RecordRolls",
    "Roll",
    "Rollout",
    "SetState",
    "hopeless",
    "needs_restart",
]

COMES_UP_WITHIN: Final = 600.0
"""Seconds a rolled pod may take to serve, not counting what it loads or synchronises."""
SERVES_WITHIN: Final = 300.0
"""Seconds a pod of the older template may run without being ready, while others wait for it, before that is reported."""
RESTART_AFTER: Final = 300.0
"""Seconds a file system may wait to be enlarged under a running pod, before the pod is recreated for it."""
TIME: Final = {"type": "string", "format": "date-time"}


class Roll(Part, frozen=True, kw_only=True):
    """A roll-out under way, or one that was halted by a pod that does not come up."""

    inputs: Annotated[str, F("Digest of the declaration that is rolled out.")] = ""
    good: Annotated[str, F("Digest of the last one that all pods ran.")] = ""
    revision: Annotated[str, F("The ControllerRevision with the template of that.")] = ""
    since: Annotated[datetime | None, F("When it began.", schema=TIME)] = None
    pod: Annotated[str, F("The pod that did not come up; the roll-out is stopped.")] = ""
    reason: Annotated[str, F("Why it did not.")] = ""
    message: Annotated[str, F("For people.")] = ""


@dataclass(frozen=True, kw_only=True)
class SetState:
    """A StatefulSet, as far as decisions need it."""

    replicas: int = 0
    update_revision: str = ""
    """The revision new pods get; "" while its controller has not seen the newest template."""
    current: bool = True
    """Its template is what the user's inputs ask for."""
    inputs: str = ""
    """Digest of the inputs its template was made from."""
    asked: str = ""
    """Digest of the user's present inputs."""
    image: str = ""
    """The main container's image in the template."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a pod will not serve: a CamelCase reason, and a message for people."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RecordRolls(Move):
    """Record in status where the roll-outs stand, by component."""

    rolls: Mapping[str, Roll]


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """The next pod to recreate leads: a planned switch comes first."""

    pod: str
    why: str


def hopeless(pod: Pod, now: datetime) -> bool:
    """Whether a pod will not come up without a person."""
    if pod.running and pod.ready:
        return False
    return trouble.hopeless(pod.trouble, age=_seconds(pod.created, now))


def needs_restart(pod: Pod, now: datetime) -> bool:
    """Its driver enlarges a file system only while no pod uses it. A pod made since then has waited for nothing."""
    since = pod.resize_since
    if since is None or _seconds(since, now) <= RESTART_AFTER:
        return False
    return pod.created is None or pod.created <= since


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """The roll-out of one StatefulSet at one moment."""

    component: str
    state: SetState
    pods: Sequence[Pod]
    rolls: Mapping[str, Roll]
    """As recorded, of all components."""
    now: datetime
    failures: Mapping[str, Failure] = field(default_factory=dict)
    """Pods of which the database knows that they will not serve with the new template."""
    working: Collection[str] = ()
    """Pods whose server loads or synchronises; they have all the time they need."""
    silent: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which each pod has not answered."""

    # --- the beginning -----------------------------------------------------------------------------------

    def begin(self, *, allowed: bool = True, wait: Wait | None = None) -> Move | Wait | None:
        """Put a failed template back, forget a roll-out that was taken back, or begin one.

        ``allowed`` is false where the declared template must not be written; ``wait`` is what has to be over before
        another roll-out is recorded.
        """
        known, state = self.known, self.state
        if known is not None and known.pod and state.inputs == known.inputs and known.revision:
            return RestoreTemplate(
                component=self.component,
                revision=known.revision,
                inputs=known.good,
                why=f"{known.pod} did not come up ({known.reason}), and the last good template is put back",
            )
        if state.current:
            if known is not None and known.inputs != state.asked:
                return self._forget("the declaration is the last good one again")
            return None
        if not allowed:
            return None
        if known is None or known.inputs != state.asked:
            if wait is not None:
                return wait
            rolls = {**self.rolls, self.component: self._first()}
            return RecordRolls(rolls=rolls, why=f"{self.component} pods will be rolled")
        if not known.pod:
            return WriteTemplate(component=self.component, why="the declared pods differ from those that run")
        return None

    @property
    def known(self) -> Roll | None:
        """What is recorded of it."""
        return self.rolls.get(self.component)

    def _first(self) -> Roll:
        """The roll-out to what is asked now; what was good stays what all pods ran last."""
        state, known = self.state, self.known
        if known is not None and (known.pod or (known.revision and self.old)):
            return Roll(inputs=state.asked, good=known.good, revision=known.revision, since=self.now)
        return Roll(inputs=state.asked, good=state.inputs, revision=state.update_revision, since=self.now)

    def _forget(self, why: str) -> RecordRolls:
        rest = {name: one for name, one in self.rolls.items() if name != self.component}
        return RecordRolls(rolls=rest, why=why)

    def starting(self) -> Wait | None:
        """A wait while pods start: a new template is not begun over them."""
        for pod in self.pods:
            if pod.ordinal < self.state.replicas and not pod.running and not hopeless(pod, self.now):
                return Wait(reason="PodsStarting", message=f"{pod.name} is starting", after=1.0)
        return None

    # --- pod by pod --------------------------------------------------------------------------------------

    @property
    def old(self) -> list[Pod]:
        """Pods of another template than the present one, and those that a volume needs to restart."""
        revision = self.state.update_revision
        return [
            pod
            for pod in self.pods
            if revision and pod.revision and (pod.revision != revision or needs_restart(pod, self.now))
        ]

    def advance(
        self, *, wait: Wait | None = None, leading: Collection[str] = ()
    ) -> Move | Wait | HandOver | None:
        """Recreate the next pod: the highest ordinal first, those that lead (``leading``, by name) last.

        A pod that its old template keeps from running goes at once. For every other pod ``wait`` is what the database
        still needs before one may go.
        """
        if halted := self._halted():
            return halted
        old = [pod for pod in self.old if not pod.terminating]
        stuck = [pod for pod in old if hopeless(pod, self.now) and pod.name not in leading]
        if stuck:
            return self.recreate(stuck[0], f"its old template cannot run: {stuck[0].trouble}")
        if not self.old or self.is_halted:
            return None
        if wait is not None:
            return self._blocked(wait) or wait
        for pod in sorted(old, key=lambda pod: -pod.ordinal):
            if pod.name not in leading:
                return self.recreate(pod, f"{pod.name}: {self._why(pod)}")
        if not old:
            return None
        last = max(old, key=lambda pod: pod.ordinal)
        return HandOver(pod=last.name, why=self._why(last))

    def _why(self, pod: Pod) -> str:
        if pod.revision == self.state.update_revision:
            return "its volume is enlarged when its pod restarts"
        return "its pod runs an older template"

    def _blocked(self, wait: Wait) -> Wait | None:
        """The wait for a person: an older pod runs, and has not been ready for too long. Deleting it is their decision."""
        for pod in self.old:
            late = _seconds(pod.ready_changed or pod.created, self.now) > SERVES_WITHIN
            if (
                pod.running
                and not pod.ready
                and not pod.terminating
                and late
                and pod.name not in self.working
            ):
                return Wait(
                    reason="RollBlocked",
                    message=f"{wait.message}; {pod.name} runs the older template and has not been ready for more than "
                    f"{SERVES_WITHIN:.0f} s: kubectl logs and kubectl describe of the pod say why; correct that, or delete "
                    "the pod, and it is recreated with the new template",
                    after=wait.after,
                    stalled=True,
                )
        return None

    def recreate(self, pod: Pod, why: str) -> DeletePod:
        """Delete exactly the pod that was decided about, as it was seen."""
        return DeletePod(component=self.component, pod=pod.name, uid=pod.uid, version=pod.version, why=why)

    def end(self) -> Move | Wait | None:
        """Forget the roll-out once every pod runs the new template."""
        known, state = self.known, self.state
        if known is None or known.pod or not state.current:
            return None
        if not state.update_revision:
            text = f"the new template of the {self.component} pods has no revision yet"
            return Wait(reason="RollWaiting", message=text, after=0.2)
        whole = all(pod.running and not pod.trouble and not pod.terminating for pod in self.pods)
        if whole and self.pods and len(self.pods) >= state.replicas and not self.old:
            return self._forget(f"every {self.component} pod runs the new template")
        return None

    # --- when a pod does not come up ---------------------------------------------------------------------

    def _halted(self) -> Move | Wait | None:
        """A pod of the new template that does not come up halts the roll-out; that is recorded first."""
        state, known = self.state, self.known
        new = [pod for pod in self.pods if pod.revision == state.update_revision]
        found = next(((pod, failure) for pod in new if (failure := self._failure(pod)) is not None), None)
        if found is None:
            return None
        pod, failure = found
        if known is not None and not known.pod and known.inputs == state.inputs and known.revision:
            halted = replace(known, pod=pod.name, reason=failure.reason, message=failure.message)
            why = f"{pod.name}: {failure.reason}: {failure.message}"
            return RecordRolls(rolls={**self.rolls, self.component: halted}, why=why)
        return _halt(pod.name, failure.reason, failure.message) if self.old else None

    def _failure(self, pod: Pod) -> Failure | None:
        """Why a pod that was recreated will not serve, if that is certain."""
        if hopeless(pod, self.now):
            return Failure(reason=pod.trouble, message=pod.trouble_message)
        if pod.name in self.failures:
            return self.failures[pod.name]
        late = _seconds(pod.created, self.now) > COMES_UP_WITHIN and not pod.ready
        if late and pod.name not in self.working and self.silent.get(pod.name, 0.0) + 60 > COMES_UP_WITHIN:
            message = f"it does not serve after {COMES_UP_WITHIN:.0f} s; its log and events say why"
            return Failure(reason="NotInTime", message=message)
        return None

    @property
    def is_halted(self) -> bool:
        """A pod did not come up, as recorded."""
        return self.known is not None and bool(self.known.pod)

    def halt(self) -> Wait | None:
        """The wait for a person: what is declared was tried and does not work."""
        known = self.known
        if known is None or not known.pod or known.inputs != self.state.asked:
            return None
        return _halt(known.pod, known.reason, known.message)


def _halt(pod: str, reason: str, message: str) -> Wait:
    return Wait(
        reason="RollHalted",
        message=f"{pod} does not come up with the new template ({reason}: {message}); no other pod is touched until "
        "the spec is corrected",
        after=2.0,
        stalled=True,
    )


def _seconds(since: datetime | None, now: datetime) -> float:
    """Seconds from a moment to now; an unknown moment is long ago."""
    return max(0.0, (now - since).total_seconds()) if since else float("inf")
