"""Whether servers can move keys between them at all, asked before any pod is made."""

from __future__ import annotations

from mooring.operators.redis.cluster.topology import Seen
from mooring.operators.redis.cluster.types import masters_of
from mooring.operators.redis.versions import capabilities

__all__ = ["immovable"]


def immovable(seen: Seen, *, nodes: int, password: str) -> str:
    """Why no slots can be moved at all when so many nodes are wanted and that takes a move; "" when they can."""
    old = next((one for one in seen.live if not capabilities(one.server.version).migrate_auth), None)
    if not password or old is None or masters_of(nodes) == len(seen.owners):
        return ""
    return (
        f"spec.replicas: another number of masters needs slots to move, and Redis {old.server.version} of {old.name} moves "
        "no keys between servers with a password; put spec.replicas back and update to 4.0.7 or later first"
    )
