"""What the operators ask for, as the real API server's audit log has it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hack.kubernetes.controlplane import ControlPlane
from tests.charts.helm import NAMESPACE

__all__ = ["Right", "asked"]

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{{}}"
#: API group, resource with subresource, verb.
Right = tuple[str, str, str]


def asked(
    plane: ControlPlane, since: int, account: str = "mooring", *, namespace: str = ""
) -> Iterator[tuple[Right, int]]:
    """What the operator's account asked for since so many bytes of the log, and the status of the answer.

    With a namespace, what it asked for there.

    An apply that made its object needed the right to create as well.
    """
    for line in plane.audit_log.read_bytes()[since:].decode().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef")
        if event["user"]["username"] == ACCOUNT.format(account) and reference and "resource" in reference:
            if namespace not in ("", reference.get("namespace")):
                continue
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            right = (reference.get("apiGroup", ""), resource, event["verb"])
            status = event.get("responseStatus", {}).get("code", 0)
            yield right, status
            if right[2] == "patch" and status == 201:
                yield (*right[:2], "create"), status
