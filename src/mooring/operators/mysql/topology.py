"""What the servers of a cluster say of themselves, at one moment. Reading is in `dial`; nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mooring.operators.mysql.accounts import Accounts
from mooring.operators.mysql.flavors import Flavor
from mooring.operators.mysql.gtid import Position
from mooring.operators.workload.pods import Pod

__all__ = [
    "Flavor",
    "Load",
    "Member",
    "Replication",
    "SemiSync",
    "Server",
    "Setting",
    "Stall",
    "Topology",
]

Stall = Literal["", "full", "wait"]


@dataclass(frozen=True, kw_only=True)
class Replication:
    """What a server says of the source that it replicates from."""

    host: str = ""
    port: int = 3306
    io_running: bool = False
    """The receiver is connected and receives; "Connecting" is not running."""
    connecting: bool = False
    sql_running: bool = False
    io_errno: int = 0
    io_error: str = ""
    sql_errno: int = 0
    sql_error: str = ""
    lag: float | None = None
    """Seconds behind as the server says; ``None`` while it does not know."""
    source_file: str = ""
    """Source's binlog file and byte up to which events were received (MySQL tail cut)."""
    source_position: int = 0
    by_gtid: bool = True
    verifies: bool = False
    """It checks that the certificate of its source is the cluster's, and names it."""
    idle: bool = False
    """The applier has nothing left to apply."""
    deadlocked: bool = False
    """It has something to apply, and waits for its own threads, none of which has work: so at two looks, without progress."""


@dataclass(frozen=True, kw_only=True)
class SemiSync:
    """Semi-synchronous replication of one server."""

    source: bool = False
    """Enabled as a source."""
    replica: bool = False
    """Enabled as a replica: it acknowledges."""
    acks: int = 1
    """Acknowledgements that a commit waits for; MariaDB always 1."""
    timeout: float = 0.0
    """Seconds until a commit goes on without."""
    after_sync: bool = True
    clients: int = 0
    """Acknowledging replicas connected; MySQL's value is late, trust it upwards only."""
    waiting: int = 0
    """Sessions that wait for an acknowledgement now."""
    active: bool = False
    """The server waits for acknowledgements at present (status ON)."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A size that tuning may change, under a name that both flavours share."""

    variables: tuple[str, ...]
    """The server's variables; they change together."""
    value: int = 0
    """The smallest of their values."""
    live: bool = True
    """A running server takes another value."""
    step: int = 1
    """Values are multiples of it."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a server counts, and the sizes that it works with."""

    counters: Mapping[str, int] = field(default_factory=dict)
    """Since its start, but for the gauges ``free``, ``pages``, ``age``, ``max_age`` and ``peak``; names as in `tuning`."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    per_connection: int = 0
    """Bytes that a session may take while it works, without temporary tables."""
    max_connections: int = 0
    fixed: int = 0
    """Bytes that the server takes beside what `settings` and sessions do."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server that answered."""

    flavor: Flavor = "mariadb"
    version: str = ""
    server_id: int = 0
    server_uuid: str = ""
    """"" on MariaDB."""
    domain: int = 0
    """Domain of what it writes (MariaDB's gtid_domain_id)."""
    uptime: float = 0.0
    """Seconds since the process started."""
    read_only: bool = True
    """No ordinary account can write (MySQL: super_read_only)."""
    executed: Position = field(default_factory=Position)
    """Everything committed here (binlog state; MySQL gtid_executed)."""
    received: Position = field(default_factory=Position)
    """``executed`` and what was received but not applied yet."""
    purged: Position | None = None
    """What its binary logs no longer hold; ``None``: it was not asked, or did not say."""
    replication: Replication | None = None
    """``None``: it replicates from no server."""
    semi_sync: SemiSync = field(default_factory=SemiSync)
    held: Mapping[str, str] = field(default_factory=dict)
    """Global variables that the declaration or the operator is interested in, by name."""
    load: Load | None = None
    """``None``: it was not asked."""
    seeding: str = ""
    """Progress of a copy under way (MySQL clone)."""
    stalled: Stall = ""
    """Why commits do not end here, and no replica is the reason: the volume is ``full``, or nothing but that they ``wait``."""
    connections: int = 0
    backup_account: bool = True
    """There is the account of backups; a cluster that an earlier operator made has none."""
    max_connections: int = 0
    selects: int = 0
    """SELECTs since the process started."""
    certificate: str = ""
    """When the certificate that it shows ends, as ``Jan  2 15:04:05 2026 GMT``; "" for none."""
    accepted: Mapping[str, str] = field(default_factory=dict, repr=True)
    """Labels of the operator's passwords that let it in (``operator-password`` -> ``password``/``next``/``previous``); labels only."""

    @property
    def origin(self) -> str:
        """The origin of what it writes itself; see `gtid`."""
        return self.server_uuid.lower() if self.flavor == "mysql" else f"{self.domain}-{self.server_id}"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One pod and what its server said; ``server`` is ``None`` when it did not answer."""

    pod: Pod
    server: Server | None = None
    error: str = ""
    """Why it did not answer: Refused (nothing listens: the process is gone, or waits at its gate), Timeout, AccessDenied ..."""
    order: str = ""
    """The order that its annotation holds."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod.name

    @property
    def start(self) -> int:
        """Number of the present start of its container, from 1."""
        return int(self.pod.incarnation.rpartition("/")[2] or 0) + 1


@dataclass(frozen=True, kw_only=True)
class Topology:
    """All members, by ordinal."""

    members: Sequence[Member] = ()
    accounts: Accounts | None = None
    """Of the primary; ``None`` where they were not asked."""
    before: Position | None = None
    """What the recorded primary had executed before the others were asked: a replica that received that has caught up.

    ``Server.executed`` of the primary is read after the others, so that no replica looks errant under load.
    """

    def member(self, name: str) -> Member | None:
        """The member of that name."""
        return next((one for one in self.members if one.name == name), None)

    @property
    def answering(self) -> list[tuple[Member, Server]]:
        """Those that answered."""
        return [(one, one.server) for one in self.members if one.server is not None]
