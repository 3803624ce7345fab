"""When the password of a running cluster changes: see `mooring.operators.redis.passwords`. Pure rules."""

from __future__ import annotations

from typing import Final

from mooring.actor.verdict import InSync, Move, Verdict
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.passwords.moves import ServerAuth
from mooring.operators.redis.passwords.plan import next_password

__all__ = ["GRACE", "change_password"]

GRACE: Final = 120.0
"""Seconds both stay valid after the new one was published: a kubelet renews mounted Secrets within two minutes."""


def change_password(snapshot: Snapshot, verdict: Verdict) -> Verdict:
    """The next step of a change in place of a verdict that can wait for it.

    A change begins at rest, and goes on whenever there is no other move to make.
    """
    state = snapshot.password
    if not snapshot.recorded.formed or isinstance(verdict, Move):
        return verdict
    if not state.changing and not isinstance(verdict, InSync):
        return verdict
    servers = [
        ServerAuth(target=target_of(one), auth=one.auth, version=one.server.version)
        for one in snapshot.seen.nodes
        if one.auth is not None and one.server is not None
    ]
    return next_password(state, servers, now=snapshot.now) or verdict
