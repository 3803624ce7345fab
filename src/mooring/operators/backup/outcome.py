"""What became of a run, from its Job and its pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from mooring.kube.objects import batch, core
from mooring.operators.backup.agent import Result
from mooring.operators.backup.manifest import facts_of
from mooring.operators.backup.run import DATA, PURPOSE, STORE
from mooring.operators.backup.shell import REFUSED
from mooring.operators.workload.trouble import hopeless, trouble_of

__all__ = ["Outcome", "outcome_of"]

LATE: Final = 30.0
"""Seconds that a pod's status may arrive after its Job's."""
SLOW: Final = 120.0
"""Seconds after which a pod that has not started is reported."""
_REMEDIES: Final = {
    "ImagePullBackOff": "correct the image, or the pull secrets of the cluster",
    "ErrImagePull": "correct the image, or the pull secrets of the cluster",
    "Unschedulable": "make room on a node, or lower the resources",
    "UnboundClaim": "provide a volume for the claim of the target",
    "CreateContainerConfigError": "create the Secret that the target names, with the keys it needs",
    "FailedMount": "create the Secret or claim that the target names",
}


_UNSTARTED: Final = frozenset({"StartError", "ContainerCannotRun"})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run: ``state`` is Starting, Running, Succeeded or Failed."""

    job: str
    purpose: str
    state: str
    began: datetime | None = None
    ended: datetime | None = None
    result: Result | None = None
    """What the store's container reported; of a run that succeeded always there."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the script found out, of a restore or a verification."""
    reason: str = ""
    """Why it failed, or what keeps it from starting."""
    message: str = ""
    again: bool = False
    """A failed one: another try may succeed."""

    @property
    def over(self) -> bool:
        """It succeeded or failed."""
        return self.state in ("Succeeded", "Failed")


def outcome_of(job: batch.Job, pods: Sequence[core.Pod], *, now: datetime) -> Outcome:
    """The outcome of a Job; ``pods`` are its own.

    It succeeded only if the Job is complete and the store's container reported so: a Job that nobody can ask any more
    failed.
    """
    status = job.status or batch.JobStatus()
    ends = {one.type: one for one in status.conditions or () if one.status == "True"}
    pod = max(pods, key=lambda one: one.metadata.creation_timestamp or "", default=None)
    run = Outcome(
        job=job.metadata.name or "",
        purpose=(job.metadata.labels or {}).get(PURPOSE, ""),
        state="Running",
        began=_time(status.start_time or job.metadata.creation_timestamp),
    )
    end = ends.get("Complete") or ends.get("Failed")
    if end is None:
        return _unfinished(run, pod, now)
    ended = _time(status.completion_time or end.last_transition_time) or now
    result, data = _result(pod), _ended(pod, DATA)
    lost = end.type == "Failed" and pod is None
    if result is None and not (lost or _over(pod)) and (now - ended).total_seconds() < LATE:
        return run  # the pod's status is on its way
    if end.type == "Complete" and result is not None and result.ok:
        facts = facts_of((data.message or "").splitlines()) if data is not None else {}
        return replace(run, state="Succeeded", ended=ended, result=result, facts=facts)
    reason, message, again = _why(end, result, pod)
    return replace(
        run, state="Failed", ended=ended, result=result, reason=reason, message=message, again=again
    )


def _over(pod: core.Pod | None) -> bool:
    """Every container has ended, or none will begin: nothing more is to come."""
    if _failed_before(pod) is not None:
        return True
    statuses = (pod.status.container_statuses if pod is not None and pod.status is not None else None) or ()
    return bool(statuses) and all(one.state is not None and one.state.terminated for one in statuses)


def _unfinished(run: Outcome, pod: core.Pod | None, now: datetime) -> Outcome:
    if pod is None or pod.status is None:
        return replace(run, state="Starting")
    containers = pod.status.container_statuses or ()
    if any(one.state is not None and one.state.running for one in pod.status.init_container_statuses or ()):
        return run
    # A container that could not be started is not started again, and the one beside it waits for it.
    if (data := _ended(pod, DATA)) is not None and data.reason in _UNSTARTED:
        text = f"the container data could not be started: {_last(data.message or data.reason)}; correct the image"
        return replace(run, state="Failed", ended=now, reason=data.reason, message=text)
    if containers and all(one.state and (one.state.running or one.state.terminated) for one in containers):
        return run
    waiting = next(
        (one.state for one in containers if one.state and one.state.waiting), core.ContainerState()
    )
    reason, message = trouble_of(pod.status, waiting, _REMEDIES)
    age = (now - run.began).total_seconds() if run.began else 0.0
    if not hopeless(reason, age=age):
        reason = message = ""
        if age > SLOW:
            reason = "PodNotStarting"
            message = (
                "the pod has not started for two minutes: a volume, a directory, a Secret or an image may be missing; see "
                f"kubectl describe pod {pod.metadata.name}"
            )
    return replace(run, state="Starting", reason=reason, message=message)


def _why(end: batch.JobCondition, result: Result | None, pod: core.Pod | None) -> tuple[str, str, bool]:
    """Reason, message with remedy, and whether another try may succeed."""
    if end.reason == "DeadlineExceeded":
        text = "it took longer than spec.timeoutSeconds; raise that, or the bandwidth"
        return "DeadlineExceeded", text, False
    if result is not None and not result.ok:
        text = f"{result.message}; {result.remedy}" if result.remedy else result.message
        return result.reason, text, result.again
    if (data := _ended(pod, DATA)) is not None and data.exit_code:
        said = (data.message or "").strip() or f"it ended with status {data.exit_code}"
        again = data.exit_code != REFUSED
        return data.reason if data.reason == "OOMKilled" else "DataFailed", _last(said), again
    if (store := _ended(pod, STORE)) is not None and store.exit_code:
        said = (store.message or "").strip() or f"it ended with status {store.exit_code}"
        return store.reason if store.reason == "OOMKilled" else "StoreFailed", _last(said), True
    if (before := _failed_before(pod)) is not None:
        said = (before.message or "").strip() or f"it ended with status {before.exit_code}"
        return before.reason if before.reason == "OOMKilled" else "PreparationFailed", _last(said), True
    if pod is not None and pod.status is not None and pod.status.reason:
        return pod.status.reason, pod.status.message or "the pod was ended from outside", True
    return "ResultLost", "the pod of the run is gone, and with it what it reported", True


def _last(text: str) -> str:
    return text[-1000:].strip()


def _result(pod: core.Pod | None) -> Result | None:
    state = _failed_before(pod) or _ended(pod, STORE)
    if state is None or not state.message:
        return None
    try:
        return msgspec.json.decode(state.message, type=Result)
    except msgspec.MsgspecError:
        return None


def _failed_before(pod: core.Pod | None) -> core.ContainerStateTerminated | None:
    """An init container that failed: the others never began."""
    statuses = (pod.status.init_container_statuses if pod and pod.status else None) or ()
    ended = (one.state.terminated for one in statuses if one.state is not None)
    return next((one for one in ended if one is not None and one.exit_code), None)


def _ended(pod: core.Pod | None, container: str) -> core.ContainerStateTerminated | None:
    statuses = (pod.status.container_statuses if pod is not None and pod.status is not None else None) or ()
    found = next((one for one in statuses if one.name == container), None)
    return found.state.terminated if found is not None and found.state is not None else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
