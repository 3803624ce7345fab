"""What the operators ask for, as the real API server's audit log has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import yaml
from hack.released import NAMESPACE

from mooring.kube.objects.rbac import PolicyRule

__all__ = ["Logged", "Right", "asked", "granted", "granted_in"]

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{{}}"
#: API group, resource with subresource, verb.
Right = tuple[str, str, str]


class Logged(Protocol):
    """What has an audit log."""

    @property
    def audit_log(self) -> Path:
        """One JSON Event a line."""
        ...


def asked(
    plane: Logged, since: int, account: str = "mooring", *, namespace: str = ""
) -> Iterator[tuple[Right, int]]:
    """What the operator's account asked for since so many bytes of the log, and the status of the answer.

    With a namespace, what it asked for there.

    An apply that made its object needed the right to create as well.
    """
    for line in plane.audit_log.read_bytes()[since:].decode().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef")
        # A request that was not authenticated has no user name.
        user = event["user"].get("username")
        if user == ACCOUNT.format(account) and reference and "resource" in reference:
            if namespace not in ("", reference.get("namespace")):
                continue
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            right = (reference.get("apiGroup", ""), resource, event["verb"])
            status = event.get("responseStatus", {}).get("code", 0)
            yield right, status
            if right[2] == "patch" and status == 201:
                yield (*right[:2], "create"), status


def granted(*rules: list[PolicyRule] | None) -> set[Right]:
    """What rules grant."""
    return {
        (group, resource, verb)
        for rule in (one for some in rules for one in some or ())
        for group in rule.api_groups or ()
        for resource in rule.resources or ()
        for verb in rule.verbs or ()
    }


def granted_in(manifest: str, name: str) -> set[Right]:
    """What the roles of a name in a manifest of the chart's grant, whatever stands before the name."""
    roles: list[dict[str, Any]] = [
        one
        for one in yaml.safe_load_all(manifest)
        if one and one["kind"] in ("Role", "ClusterRole") and one["metadata"]["name"].endswith(name)
    ]
    assert roles, f"no role {name} in the manifest"
    return granted(
        *(
            [
                PolicyRule(api_groups=r["apiGroups"], resources=r["resources"], verbs=r["verbs"])
                for r in one["rules"]
            ]
            for one in roles
        )
    )
