"""The operator's own accounts on data servers, each with the rights that its work needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = [
    "BACKUP",
    "CLUSTER",
    "DEFAULT",
    "EXPORTER",
    "OPERATOR",
    "REPLICA",
    "RULES",
    "SENTINEL",
    "WATCHER",
    "owned",
]

DEFAULT: Final = "default"
OPERATOR: Final = "mooring-operator"
"""Also of the probes and of the script that runs before a pod stops."""
REPLICA: Final = "mooring-replica"
"""What replicas show their master."""
WATCHER: Final = "mooring-sentinel"
EXPORTER: Final = "mooring-exporter"
BACKUP: Final = "mooring-backup"

SENTINEL: Final = (OPERATOR, REPLICA, WATCHER, EXPORTER, BACKUP)
"""Accounts of a cluster with sentinels."""
CLUSTER: Final = (OPERATOR, REPLICA, EXPORTER, BACKUP)
"""Accounts of a Redis Cluster."""

RULES: Final[Mapping[str, tuple[str, ...]]] = {
    # It may change every user, so it could give itself any right; what it never needs is taken away all the same. Keys it
    # touches only when slots move.
    OPERATOR: (
        *("~*", "-@all", "+@admin", "+@connection", "+info", "+role", "+cluster", "+asking", "+memory"),
        # For spec.keyReport of a Redis Cluster: names of keys, and how often one is used.
        *("+scan", "+object"),
        # MIGRATE asks its target for SELECT first, which is no command of @connection in every version.
        *("+migrate", "+select", "+restore", "+restore-asking", "+del", "-debug", "-module", "-monitor"),
    ),
    REPLICA: ("-@all", "+psync", "+replconf", "+ping"),
    WATCHER: (
        *("&*", "-@all", "+multi", "+exec", "+ping", "+info", "+role", "+slaveof", "+publish", "+subscribe"),
        *("+config|rewrite", "+client|setname", "+client|kill", "+script|kill"),
    ),
    EXPORTER: (
        *("-@all", "+ping", "+info", "+config|get", "+client|setname", "+slowlog", "+latency"),
        *("+cluster|info",),
    ),
    BACKUP: ("-@all", "+psync", "+sync", "+replconf", "+ping", "+info", "+cluster|nodes"),
}
_OWNED: Final = re.compile(r"default|mooring(-.*)?", re.IGNORECASE)


def owned(name: str) -> bool:
    """A name that no declared user may have."""
    return _OWNED.fullmatch(name) is not None
