"""Everything one decision is made from: what is wanted, what was seen, what was recorded, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mooring.operators.mysql.topology import Flavor, Topology
from mooring.operators.mysql.types import MySQLClusterStatus
from mooring.operators.workload.rollout import SetState

__all__ = ["Observed", "Snapshot", "Wanted"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The declared cluster, validated and with every default filled in."""

    size: int = 3
    flavor: Flavor = "mariadb"
    image: str = ""
    domain: str = ""
    """What follows a pod's name in its host name: ``.demo.default.svc``."""
    mode: str = "Strict"
    max_lag: float = 30.0
    detect: float = 4.0
    """Seconds without an answer until a primary is replaced."""
    reclone: bool = True
    """A diverged server is seeded anew; else held."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Keys to hold: defaults, tuning and the user's."""
    user_keys: frozenset[str] = frozenset()
    rolls_config: bool = True
    paused: bool = False
    read_only: bool = False
    fenced: frozenset[str] = frozenset()
    switch_to: str = ""
    """The pod that a person wants as primary; "" for none."""
    on_delete: bool = False
    """Pods are left until somebody deletes them."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What Kubernetes says."""

    set: SetState = field(default_factory=SetState)
    old_claims: frozenset[str] = frozenset()
    """Pods whose claim is older than this cluster: it may hold data of an earlier one."""
    published: Mapping[str, str] = field(default_factory=dict)
    """Configuration that the next start reads."""
    cordoned: frozenset[str] = frozenset()
    """Pods on nodes that are about to be emptied."""
    primary_unreachable: float = 0.0
    """Seconds the recorded primary has not answered, as this process saw it."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One moment."""

    wanted: Wanted
    topology: Topology
    observed: Observed
    status: MySQLClusterStatus
    """As recorded."""
    now: datetime
