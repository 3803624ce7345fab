"""The embedded API server: Kubernetes' API over SQLite, in this process.

`ApiServer` is all that others need: `in_memory()` or `open(path)`, `start()`, then `transport()` for
clients of the same process and `serve(sock, context)` for everyone else.
"""

from __future__ import annotations

from mooring.local.api.http import User
from mooring.local.api.server import ApiServer, LocalTransport
from mooring.local.api.streams.gateway import NodeGateway

__all__ = ["ApiServer", "LocalTransport", "NodeGateway", "User"]
