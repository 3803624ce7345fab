"""What is said at once to whoever writes a RedisCluster: warnings, and no refusals.

The group was taken over: what its operator accepted is accepted, and a condition says what is not carried out. A field
that does not exist, such as one at the wrong depth, is kept by the server and seen only here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mooring.cache import Clock
from mooring.kube import Client, DecodeError
from mooring.kube.object import decode
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterSpec
from mooring.operators.redis.cluster.validate import validate, warnings
from mooring.runtime import unknown_fields
from mooring.runtime.webhooks import Allow, Review, Verdict, Webhook

__all__ = ["review", "webhooks"]

NAMED = 6
"""Unknown fields that are named; the rest is counted."""


async def review(asked: Review[RedisCluster]) -> Verdict:
    """Warnings about what is new in the spec."""
    new = asked.object
    if new is None or _spec(new) == _spec(asked.old or {}):
        return Allow()
    found = unknown_fields(RedisClusterSpec, _spec(new), path="spec")
    said = [f"{one}; it has no effect" for one in found[:NAMED]]
    if len(found) > NAMED:
        said.append(f"and {len(found) - NAMED} more unknown fields")
    try:
        cluster = decode(dict(new), RedisCluster)
    except DecodeError:
        return Allow(*said)  # the server's own words say more
    return Allow(*said, *map(str, validate(cluster)), *warnings(cluster))


def _spec(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = raw.get("spec")
    return found if isinstance(found, Mapping) else {}


def webhooks(
    client: Client, *, clock: Clock, scope: str = "all", namespaces: Sequence[str] = ()
) -> list[Webhook[RedisCluster]]:
    """The webhooks of the operator; none in namespaced mode."""
    if scope == "namespaced":
        return []
    return [Webhook(RedisCluster, review, operations=("CREATE", "UPDATE"), failure_policy="Ignore")]
