"""What is reported: status, readiness and events. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from memcached_operator.plan import Configure
from memcached_operator.snapshot import Snapshot
from memcached_operator.types import Member
from mooring.actor import ConditionState, Move, Note, Report, Verdict, Wait
from mooring.kube import Client
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import RecordRolls


def report(snapshot: Snapshot, verdict: Verdict, selector: Mapping[str, str]) -> Report:
    pods, recorded = snapshot.rollout.pods, snapshot.inputs.status
    serving = sum(map(snapshot.serves, pods))
    again = isinstance(verdict, Configure) or (isinstance(verdict, Wait) and verdict.reason == "StepFailed")
    status = replace(
        recorded,
        replicas=len(pods),
        ready_replicas=serving,
        selector=",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        members=[_member(snapshot, pod) for pod in pods],
        failure=recorded.failure if again else None,
        rolls=dict(verdict.rolls) if isinstance(verdict, RecordRolls) else recorded.rolls,
    )
    text = f"{serving} of {snapshot.inputs.spec.replicas} servers serve"
    ready = ConditionState(bool(serving), "Serving" if serving else "NoServer", text)
    notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
    return Report(status=status, ready=ready, notes=notes, record=isinstance(verdict, RecordRolls))


def _member(snapshot: Snapshot, pod: Pod) -> Member:
    if snapshot.serves(pod):
        return Member(name=pod.name, state="Serving")
    answer = snapshot.answers.get(pod.name)
    message = answer if isinstance(answer, str) else pod.trouble_message
    return Member(name=pod.name, state=pod.trouble or "Starting", message=message)


async def explain(client: Client, raw: Mapping[str, Any]) -> Sequence[str]:
    """What ``why`` prints beside conditions and events: servers that do not serve, and a step that failed."""
    status = raw.get("status") or {}
    down = [one for one in status.get("members") or () if one["state"] != "Serving"]
    lines = [f"{one['name']}: {one['state']}: {one.get('message')}" for one in down]
    if failure := status.get("failure"):
        lines.append(f"{failure['why']} failed {failure.get('times', 1)} times: {failure['message']}")
    return lines
