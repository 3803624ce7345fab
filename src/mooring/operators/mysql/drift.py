"""Variables that replication and durability rest on, corrected where somebody changed them on a running server. Pure rules.

Whether a server takes writes is not among them: `replication.demote_others` and `roles.hold_writes` decide that.
"""

from __future__ import annotations

from mooring.operators.mysql.config import forced, same_value
from mooring.operators.mysql.moves import Configure, Verdict, target_of
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server

__all__ = ["variables"]


def variables(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The first variable that differs, on every server on which it does."""
    for key, value in sorted(forced(snapshot.wanted.flavor).items()):
        wrong = [
            (one, it.held[key])
            for one, it in snapshot.topology.answering
            if key in it.held and not same_value(key, value, it.held[key])
        ]
        if wrong:
            names = ", ".join(one.name for one, _ in wrong)
            why = f"{key} is {wrong[0][1]} on {names}, it must be {value}"
            targets = tuple(target_of(one) for one, _ in wrong)
            return Configure(targets=targets, key=key, value=value, previous=value, why=why)
    return None
