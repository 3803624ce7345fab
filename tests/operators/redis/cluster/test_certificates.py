"""When running nodes read their certificates again."""

from __future__ import annotations

from dataclasses import replace

from tests.operators.redis.cluster.builders import snapshot, whole

from mooring.operators.redis.cluster.certificates import ReadCertificates, TurnCertificates
from mooring.operators.redis.cluster.moves import InSync
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.topology import Seen
from mooring.operators.redis.tls import TlsState


def certified(wanted: TlsState) -> Snapshot:
    """A whole cluster whose nodes show one certificate and trust one authority."""
    seen = snapshot(whole())
    nodes = tuple(replace(one, leaf="leaf", authority="ca-1.crt") for one in seen.seen.nodes)
    return replace(seen, seen=Seen(nodes=nodes), tls=wanted)


def test_nodes_read_another_certificate_or_authority_at_once() -> None:
    right = TlsState(leaf="leaf", authority="ca-1.crt")
    assert isinstance(next_step(certified(right)), InSync)
    for wanted in (replace(right, leaf="newer"), replace(right, authority="ca-2.crt", turn="show")):
        move = next_step(certified(wanted))
        assert isinstance(move, ReadCertificates)
        assert len(move.targets) == 6


def test_the_next_certificates_wait_for_every_node() -> None:
    turning = certified(TlsState(leaf="leaf", authority="ca-1.crt", turn="show"))
    assert isinstance(next_step(turning), TurnCertificates)
    first, *others = turning.seen.nodes
    silent = replace(turning, seen=Seen(nodes=(replace(first, server=None, error="no answer"), *others)))
    assert not isinstance(next_step(silent), TurnCertificates)
