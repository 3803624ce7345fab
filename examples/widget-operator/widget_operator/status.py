"""What is reported: status, readiness and events. Pure."""

from collections.abc import Mapping

from mooring.actor import ConditionState, Move, Note, Report, Verdict
from mooring.operators.workload.rollout import RecordRolls
from msgspec.structs import replace

from widget_operator.snapshot import Snapshot


def report(snapshot: Snapshot, verdict: Verdict, selector: Mapping[str, str]) -> Report:
    pods, recorded = snapshot.rollout.pods, snapshot.inputs.status
    serving, wanted = sum(map(snapshot.serves, pods)), snapshot.inputs.spec.replicas
    status = replace(
        recorded,
        replicas=len(pods),
        ready_replicas=serving,
        selector=",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        rolls=dict(verdict.rolls) if isinstance(verdict, RecordRolls) else recorded.rolls,
    )
    serves = bool(serving) or not wanted
    ready = ConditionState(
        serves, "Serving" if serves else "NoServer", f"{serving} of {wanted} servers serve"
    )
    notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
    return Report(status=status, ready=ready, notes=notes, record=isinstance(verdict, RecordRolls))
