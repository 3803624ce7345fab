"""Who may connect, and how: certificates that servers show, accounts and databases that were declared. Pure rules."""

from __future__ import annotations

from mooring.operators.mysql.moves import ReloadCertificates, Verdict, target_of
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server

__all__ = ["certificates"]


def certificates(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Have servers read a certificate that was renewed; those that show none start with one when they are rolled."""
    wanted = snapshot.wanted.certificate
    late = [
        one
        for one, it in snapshot.topology.answering
        if wanted and it.certificate and it.certificate != wanted and not one.pod.terminating
    ]
    if not late:
        return None
    names = ", ".join(one.name for one in late)
    return ReloadCertificates(
        targets=tuple(target_of(one) for one in late),
        certificate=wanted,
        why=f"{names}: the certificate was renewed",
    )
