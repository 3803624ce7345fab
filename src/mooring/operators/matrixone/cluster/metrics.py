"""The SQL user that reads the metrics: what it is made by, when it is due, and what is reported of it. Pure.

It is upstream's: the user `mo_operator` of the account `sys` with the role `metric_reader`, and its password in the Secret
NAME-metric. Every statement may be repeated. That the user is to be made is recorded before the Secret is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.actor.verdict import Move
from mooring.kube.objects import core, meta
from mooring.operators.matrixone.conditions import with_condition
from mooring.operators.matrixone.types import ClusterMetrics, MatrixOneCluster, MatrixOneClusterStatus

__all__ = [
    "AGAIN",
    "CONDITION",
    "USER",
    "MakeReader",
    "Reader",
    "is_wanted",
    "reported",
    "serving",
    "statements",
    "without_reader",
]

USER: Final = "mo_operator"
CONDITION: Final = "MetricReader"
"""Whether the user is there."""
AGAIN: Final = 30.0
"""Seconds after a failure until it is tried again."""
_ROLE: Final = "metric_reader"
_SAFE: Final = re.compile(r"[!#-&(-\[\]-~]+")
"""Printable ASCII without quotes and backslashes."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The user that has to be made; where there is none to make, there is no such thing."""

    pod: str = ""
    """A compute node that serves, "" where none does."""
    address: str = ""
    after: float = 0.0
    """Seconds until it is tried again; 0: now."""


@dataclass(frozen=True, kw_only=True)
class MakeReader(Move):
    """Make the user, or give it its password again."""

    pod: str
    address: str


def is_wanted(cluster: MatrixOneCluster) -> bool:
    """The declaration asks for the user."""
    return cluster.spec is not None and cluster.spec.metric_reader_enabled is True


def serving(pods: Iterable[core.Pod]) -> core.Pod | None:
    """The first pod of these that is ready."""
    ready = [one for one in pods if _is_ready(one) and one.metadata.deletion_timestamp is None]
    return min(ready, key=lambda one: one.metadata.name or "", default=None)


def _is_ready(pod: core.Pod) -> bool:
    status = pod.status or core.PodStatus()
    return bool(status.pod_ip) and any(
        one.type == "Ready" and one.status == "True" for one in status.conditions or ()
    )


def statements(password: str) -> Sequence[tuple[str, str]]:
    """What the user is made by, each with what stands for it in messages; raises `ValueError`."""
    if not _SAFE.fullmatch(password):
        raise ValueError(
            "has no password, or one with a quote, a backslash, a space or another sign than of ASCII"
        )
    return (
        (f"the role {_ROLE}", f"create role if not exists {_ROLE}"),
        (
            f"the user {USER}",
            f"create user if not exists {USER} identified by '{password}' default role {_ROLE}",
        ),
        (f"the password of {USER}", f"alter user {USER} identified by '{password}'"),
        (f"the right of {_ROLE} to connect", f"grant connect on account * to {_ROLE}"),
        (f"the right of {_ROLE} to read", f"grant select on table system_metrics.* to {_ROLE}"),
        (f"the role of {USER}", f"grant {_ROLE} to {USER}"),
    )


def reported(
    status: MatrixOneClusterStatus,
    *,
    secret: str,
    failure: tuple[str, str] | None,
    generation: int | None,
    now: datetime,
) -> MatrixOneClusterStatus:
    """The status once the user is made, or could not be: reason and message. ``secret``: the name of its Secret."""
    reason, text = failure or (
        "Made",
        f"the user {USER} reads system_metrics; the Secret {secret} has its password",
    )
    conditions = with_condition(
        status.conditions, CONDITION, failure is None, reason, text, generation=generation, now=now
    )
    known = ClusterMetrics(secret_ref=core.LocalObjectReference(name=secret), initialized=failure is None)
    return replace(status, conditions=conditions, cluster_metrics=known)


def without_reader(present: Sequence[meta.Condition] | None) -> list[meta.Condition]:
    """The conditions of a cluster that declares no such user."""
    return [one for one in present or () if one.type != CONDITION]
