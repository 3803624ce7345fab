"""Lets metrics.k8s.io be read by those who may read the pods."""

from __future__ import annotations

from mooring.kube import Client
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.objects.rbac import ClusterRole, PolicyRule
from mooring.local.api.metrics import GROUP

__all__ = ["publish_reader"]


async def publish_reader(client: Client) -> None:
    """Write the role that metrics-server brings, which `admin`, `edit` and `view` gather."""
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{kind}": "true" for kind in ("admin", "edit", "view")}
    rule = PolicyRule(api_groups=[GROUP], resources=["pods", "nodes"], verbs=["get", "list", "watch"])
    meta = ObjectMeta(name="system:aggregated-metrics-reader", labels=labels)
    await client.apply(ClusterRole(metadata=meta, rules=[rule]))
