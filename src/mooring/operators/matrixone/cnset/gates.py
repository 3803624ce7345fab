"""The readiness gate of a compute node: Services send clients to it while it is open. Pure."""

from __future__ import annotations

from mooring.operators.matrixone.cnset.moves import SetGate
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.rpc.messages import WorkState

__all__ = ["gate"]


def gate(snapshot: Snapshot, member: Member) -> SetGate | None:
    """The step where the gate is not as it has to be: open while the store serves; what is unknown stays as it is."""
    serves = snapshot.serves(member)
    if snapshot.view is None or member.gate is serves or (member.gate is None and not serves):
        return None
    pod, store = member.pod, member.store
    state = store.state.name.capitalize() if store is not None else "not registered"
    if store is not None and store.state is WorkState.WORKING and not serves:
        state = "not heard"
    return SetGate(
        pod=pod.name,
        uid=pod.uid,
        uuid=member.uuid,
        open=serves,
        why=f"{pod.name} is {state}",
        state=member.tenure,
    )
