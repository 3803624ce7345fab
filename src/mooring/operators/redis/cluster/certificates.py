"""Certificates of running nodes: read again when they change, one step after another. Pure rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mooring.actor.verdict import Move, Verdict
from mooring.operators.redis.cluster.moves import Target
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of

__all__ = ["ReadCertificates", "TurnCertificates", "change_certificates"]


@dataclass(frozen=True, kw_only=True)
class ReadCertificates(Move):
    """Make nodes read their certificate and the authorities again."""

    targets: tuple[Target, ...]
    leaf: str
    authority: str


@dataclass(frozen=True, kw_only=True)
class TurnCertificates(Move):
    """Write the next certificates into the cluster's Secrets."""


def change_certificates(snapshot: Snapshot, verdict: Verdict) -> Verdict:
    """The next step with the certificates in place of a verdict that can wait for it."""
    wanted = snapshot.tls
    if not wanted.leaf or not snapshot.recorded.formed or isinstance(verdict, Move):
        return verdict
    answering = [one for one in snapshot.seen.nodes if one.server is not None]
    late = [one for one in answering if (one.leaf, one.authority) != (wanted.leaf, wanted.authority)]
    if late:
        return ReadCertificates(
            targets=tuple(target_of(one) for one in late),
            leaf=wanted.leaf,
            authority=wanted.authority,
            why=f"{', '.join(one.name for one in late)} must read the certificate again",
        )
    if wanted.turn and len(answering) >= snapshot.wanted.nodes:
        return TurnCertificates(why=_WHY[wanted.turn])
    return verdict


_WHY: Final = {
    "trust": "a new authority is to be trusted beside the old one",
    "show": "every node trusts the authority of the new certificate",
    "drop": "every node shows the certificate of the new authority",
}
