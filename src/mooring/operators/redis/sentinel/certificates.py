"""Certificates of running servers and sentinels: read again when they change, one step after another. Pure rules."""

from __future__ import annotations

from datetime import datetime, timedelta

from mooring.operators.redis.sentinel.moves import (
    ReadCertificates,
    RestartSentinel,
    TurnCertificates,
    Verdict,
    data_target,
    sentinel_target,
)
from mooring.operators.redis.sentinel.quorum import spare
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Sentinel, Server
from mooring.operators.redis.tls import TlsState

__all__ = ["keep"]

LEFT = timedelta(days=29)
"""What is left of a sentinel's certificate when it restarts for a new one; that was made a day before."""


def keep(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Every server shows and trusts what the Secret has; then the next certificates are written to it."""
    wanted = snapshot.observed.tls
    if not wanted.leaf or not snapshot.encrypts:
        return None
    late = [
        one
        for one, it in snapshot.answering
        if it.leaf != wanted.leaf
        or not it.config.get("tls-ca-cert-file", "").endswith(f"/{wanted.authority}")
    ]
    if late:
        return ReadCertificates(
            targets=tuple(data_target(one) for one in late),
            leaf=wanted.leaf,
            authority=wanted.authority,
            why=f"{', '.join(one.name for one in late)} must read the certificate again",
        )
    for one in snapshot.watchers:
        it = one.sentinel
        if it is None or not _late(it, wanted, snapshot.now):
            continue
        return spare(snapshot, member, one) or RestartSentinel(
            sentinel=sentinel_target(one), why=f"{one.name} must read the certificate again"
        )
    whole = (
        len(snapshot.answering) >= snapshot.wanted.size
        and len(snapshot.watchers) >= snapshot.wanted.sentinels
    )
    if wanted.turn and whole:
        return TurnCertificates(why=_WHY[wanted.turn])
    return None


def _late(sentinel: Sentinel, wanted: TlsState, now: datetime) -> bool:
    """A certificate that only names further addresses is left to the next start."""
    if sentinel.authority != wanted.authority or sentinel.issuer != wanted.issuer:
        return True
    if not wanted.made:
        return sentinel.leaf != wanted.leaf
    return sentinel.leaf != wanted.leaf and sentinel.ends is not None and sentinel.ends - now < LEFT


_WHY = {
    "trust": "a new authority is to be trusted beside the old one",
    "show": "every server trusts the authority of the new certificate",
    "drop": "every server shows the certificate of the new authority",
}
