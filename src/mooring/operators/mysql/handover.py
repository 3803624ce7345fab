"""``mooring switchover`` of MySQL and MariaDB: an annotation of the cluster names the next primary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.kube import Client, MergePatch
from mooring.operators.mysql.names import SWITCH_TO
from mooring.operators.mysql.types import MySQLCluster

__all__ = ["ask", "primary"]


async def ask(client: Client, raw: Mapping[str, Any], leader: str, to: str) -> None:
    """Annotate the cluster with the pod that is to lead; by default the first that may acknowledge writes.

    Raises `ValueError` where no pod can take over.
    """
    meta = raw["metadata"]
    heirs = [str(one) for one in (raw.get("status") or {}).get("ackSet") or () if one != leader]
    if to == leader:
        raise ValueError(f"--to: {to} leads already")
    others = [
        one["name"] for one in (raw.get("status") or {}).get("instances") or () if one["name"] != leader
    ]
    if to and to not in others:
        raise ValueError(f"--to: there is no replica {to}; give one of: {', '.join(others)}")
    if not to and not heirs:
        raise ValueError("no replica is in sync, so none can take over; see mooring why")
    patch = MergePatch({"metadata": {"annotations": {SWITCH_TO: to or heirs[0]}}})
    resource = MySQLCluster.resource
    group, _, version = str(raw["apiVersion"]).partition("/")
    path = f"/apis/{group}/{version}/namespaces/{meta['namespace']}/{resource.plural}/{meta['name']}"
    await client.request(
        "PATCH", path, body=msgspec.json.encode(patch.body), content_type=MergePatch.content_type
    )


def primary(raw: Mapping[str, Any]) -> list[str]:
    """The primary, by the cluster's status."""
    found = (raw.get("status") or {}).get("primary")
    return [str(found)] if found else []
