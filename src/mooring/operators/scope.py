"""Which objects an operator process manages, as UCloud's operators decide it.

``cluster``: those annotated ``redis.kun/scope: cluster-scoped``. ``namespaced``: those without, in its own
namespaces. ``all``: both, but it yields in a namespace that a live namespaced operator has its Lease in.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from mooring.kube.object import Object
from mooring.kube.objects.coordination import Lease

__all__ = ["SCOPES", "lease_name", "managed", "yields"]

SCOPES = ("all", "cluster", "namespaced")


def lease_name(operator: str, scope: str) -> str:
    """The Lease of an operator and scope."""
    return f"mooring-{operator}-{scope}"


def managed(obj: Object, *, scope: str, annotation: str, yielded: Callable[[str], bool]) -> bool:
    """Whether a process of ``scope`` manages ``obj``; ``yielded`` tells of live namespaced operators."""
    wide = (obj.metadata.annotations or {}).get(annotation) == "cluster-scoped"
    if scope == "cluster":
        return wide
    if scope == "namespaced":
        return not wide
    return wide or not yielded(obj.metadata.namespace or "")


def yields(lease: Lease | None, now: datetime) -> bool:
    """Whether a Lease is held and was renewed within its duration."""
    spec = lease.spec if lease else None
    if spec is None or not spec.holder_identity or not spec.renew_time:
        return False
    renewed = datetime.fromisoformat(spec.renew_time)
    return now - renewed < timedelta(seconds=spec.lease_duration_seconds or 15)
