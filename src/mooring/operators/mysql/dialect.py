"""Statements, and how their answers are read; a subclass per flavour says what differs, and no step asks for the flavour.

What rules and configuration need of a flavour stands in tables beside them, since they may not reach a connection. The modules
that read the servers' own formats (`gtid`, `archive`) have a branch for each.

A `Dialect` is stateless; `mooring.operators.mysql.dialects.dialect_of` gives the one of a flavour.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final, Protocol

from mooring.operators.mysql.accounts import Account
from mooring.operators.mysql.dial import Row, quoted
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.names import BACKUP
from mooring.operators.mysql.topology import Flavor, Load, Replication, SemiSync, Server, Setting, Stall

__all__ = ["DAY", "Dialect", "Source", "listed", "named", "number", "on", "text_of"]

DAY: Final = 86400
"""Seconds that a commit waits for acknowledgements where it must not go on without them."""
PATIENT: Final = 10
"""Seconds that a commit may take before it counts as stalled."""
_SESSIONS: Final = (
    "p.ID <> CONNECTION_ID() AND p.USER NOT IN ('system user', 'event_scheduler', 'mooring', 'mooring_replication', "
    "'mooring_monitor', 'mooring_backup', 'unauthenticated user') AND p.COMMAND NOT LIKE 'Binlog Dump%' AND p.COMMAND <> 'Daemon'"
)
"""Of the list of sessions, those of clients. Whose a session is that logs in is not known yet."""
_COUNTERS: Final[Mapping[str, str]] = {
    "reads": "innodb_buffer_pool_read_requests",
    "misses": "innodb_buffer_pool_reads",
    "free": "innodb_buffer_pool_pages_free",
    "pages": "innodb_buffer_pool_pages_total",
    "tables": "created_tmp_tables",
    "disk_tables": "created_tmp_disk_tables",
    "log_waits": "innodb_log_waits",
    "threads": "threads_created",
    "connections": "connections",
    "cache_hits": "table_open_cache_hits",
    "cache_misses": "table_open_cache_misses",
    "peak": "max_used_connections",
}
"""What tuning reads of SHOW GLOBAL STATUS, by the names of `topology.Load`."""
_SESSION: Final = (
    *("sort_buffer_size", "join_buffer_size", "read_buffer_size", "read_rnd_buffer_size"),
    *("binlog_cache_size", "thread_stack"),
)
"""Variables with the bytes of one session."""


class Source(Protocol):
    """Where a replica connects to."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def user(self) -> str: ...
    @property
    def password(self) -> str: ...
    @property
    def tls(self) -> bool: ...
    @property
    def authority(self) -> str:
        """File on the replica with the authorities that the source's certificate is checked against, and its name; "" for no check."""
        ...


class Dialect(ABC):
    """Statements of one flavour. All of them are idempotent where SQL allows it."""

    flavor: ClassVar[Flavor]
    keeps_relay_log: ClassVar[bool]
    """Starting the applier alone goes on in the relay log, whatever happened before."""
    source_word: ClassVar[str]
    """How variables and columns call a source."""
    replica_word: ClassVar[str]
    """How they call a replica."""
    sizes: ClassVar[Mapping[str, tuple[str, ...]]]
    """Variables behind the settings of `topology.Load`."""
    live_sizes: ClassVar[frozenset[str]]
    """Those of them that a running server changes."""
    pool_step: ClassVar[int]
    """Bytes by which the buffer pool grows."""
    caches: ClassVar[tuple[str, ...]]
    """Variables with further memory of the whole server."""
    base: ClassVar[int]
    """Bytes of a server without data."""
    least_memory: ClassVar[str]
    """A limit below which a server may be killed for its memory."""
    upgrades_tables: ClassVar[bool]
    """A newer version has to bring the system tables up to date by a program of its own."""
    redo_counters: ClassVar[tuple[str, ...]]
    """Of SHOW GLOBAL STATUS, what `_redo` reads."""
    users: ClassVar[str]
    """Table of accounts."""
    committing: ClassVar[str]
    """The state of a session whose commit has not ended, but for one that waits for a replica."""
    no_space: ClassVar[str] = ""
    """The state of a session that waits for free space on the volume; "" where the server does not say so."""
    coordinator_waits: ClassVar[frozenset[str]]
    """States of the thread that hands out what is to be applied, while it waits for the threads that apply."""
    worker_idle: ClassVar[str]
    """The state of a thread that applies and has no work."""
    columns: ClassVar[str]
    """What `survey` asks for beyond what both flavours have, the columns of `position` included."""
    positions: ClassVar[str]
    """The columns of `position`."""

    # --- reading

    def position(self) -> str:
        """Query of everything that was committed here: one row, read by `position_of`."""
        return f"SELECT {self.positions}"

    @abstractmethod
    def position_of(self, row: Row) -> Position:
        """Reads `position`."""

    @abstractmethod
    def role(self) -> str:
        """Query that any account may make: server_id, version, read_only, ``source`` (it waits for acknowledgements) and ``replica`` (it gives them)."""

    def survey(self, held: Collection[str], *, load: bool = False) -> str:
        """Everything that `server` needs, in one sending; ``held``: global variables to bring as well.

        ``load``: what tuning reads as well.
        """
        source, replica = f"rpl_semi_sync_{self._source}", f"rpl_semi_sync_{self._replica}"
        counted = f", {listed([*_COUNTERS.values(), *self.redo_counters])}" if load else ""
        if load:
            held = {*held, *self._tuned, *_SESSION, "max_connections", *self.caches}
        wanted = f"; SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed(held)})" if held else ""
        return (
            f"SELECT @@version AS version, @@server_id AS server_id, @@GLOBAL.max_connections AS max_connections, {self.columns}, {self.positions}, "
            f"@@GLOBAL.{source}_enabled AS source, @@GLOBAL.{replica}_enabled AS replica, "
            f"@@GLOBAL.{source}_timeout AS timeout, @@GLOBAL.{source}_wait_point AS wait_point; {self.replication()}; "
            f"SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Threads_connected', 'Com_select', 'Ssl_server_not_after', "
            f"'{source}_clients', '{source}_status', '{source}_wait_sessions'{counted}){wanted}"
        )

    def backup_account(self) -> str:
        """Query for ``found``: whether there is the account of backups. It reads a table, which a client may have locked."""
        return f"SELECT COUNT(*) AS found FROM {self.users} WHERE User = {quoted(BACKUP)}"  # noqa: S608 - constants

    def server(self, results: Sequence[Sequence[Row]]) -> Server:
        """Reads what `survey` brought."""
        row, status, replica = results[0][0], named(results[2]), self._channel(results[1])
        executed, source = self.position_of(row), f"rpl_semi_sync_{self._source}"
        held = named(results[3]) if len(results) > 3 else {}
        return Server(
            flavor=self.flavor,
            version=text_of(row, "version").partition("-")[0],
            server_id=number(row, "server_id"),
            server_uuid=text_of(row, "uuid").lower(),
            domain=number(row, "domain"),
            uptime=float(status.get("uptime") or 0),
            read_only=on(row, "read_only"),
            executed=executed,
            received=executed | self._received(replica) if replica is not None else executed,
            purged=self._purged(row),
            replication=self.replication_of(results[1]),
            semi_sync=SemiSync(
                source=on(row, "source"),
                replica=on(row, "replica"),
                acks=number(row, "acks") or 1,
                timeout=number(row, "timeout") / 1000,
                after_sync=text_of(row, "wait_point") == "AFTER_SYNC",
                clients=int(status.get(f"{source}_clients") or 0),
                waiting=int(status.get(f"{source}_wait_sessions") or 0),
                active=status.get(f"{source}_status") == "ON",
            ),
            certificate=status.get("ssl_server_not_after") or "",
            held=held,
            load=self._load(status, held) if _COUNTERS["reads"] in status else None,
            connections=int(status.get("threads_connected") or 0),
            max_connections=number(row, "max_connections"),
            selects=int(status.get("com_select") or 0),
        )

    def _load(self, status: Mapping[str, str], held: Mapping[str, str]) -> Load:
        counters = {name: number(status, key) for name, key in _COUNTERS.items() if key in status}
        return Load(
            counters={**counters, **self._redo(status)},
            settings={
                name: Setting(
                    variables=variables,
                    value=min(number(held, one) for one in variables),
                    live=name in self.live_sizes,
                    step=self.pool_step if name == "pool" else 1,
                )
                for name, variables in self.sizes.items()
                if all(one in held for one in variables)
            },
            per_connection=sum(number(held, one) for one in _SESSION),
            max_connections=number(held, "max_connections"),
            fixed=self.base + sum(number(held, one) for one in self.caches),
        )

    @abstractmethod
    def _redo(self, status: Mapping[str, str]) -> Mapping[str, int]:
        """``age``: bytes of the redo log since its last checkpoint; ``max_age``: from which on writes wait for one."""

    @property
    def _tuned(self) -> list[str]:
        return [one for variables in self.sizes.values() for one in variables]

    @abstractmethod
    def _received(self, row: Row) -> Position:
        """What the receiver got, by a row of `replication`."""

    def _purged(self, row: Row) -> Position | None:
        """What the binary logs no longer hold, where `survey` says it."""
        return None

    @abstractmethod
    def purged(self) -> Sequence[str]:
        """Queries that `purged_of` needs, the second one made with `str.format` from the first row of the first."""

    @abstractmethod
    def purged_of(self, rows: Sequence[Row]) -> Position:
        """Reads the rows of the last of `purged`: what the binary logs no longer hold."""

    def replication(self) -> str:
        """Query of where a server replicates from."""
        return "SHOW REPLICA STATUS"

    def replication_of(self, rows: Sequence[Row]) -> Replication | None:
        """Reads `replication`; ``None``: it replicates from no server."""
        row, source, replica = self._channel(rows), self.source_word, self.replica_word
        if row is None:
            return None
        running, lag = text_of(row, f"{replica}_IO_Running"), text_of(row, f"Seconds_Behind_{source}")
        return Replication(
            host=text_of(row, f"{source}_Host"),
            port=number(row, f"{source}_Port"),
            io_running=running == "Yes",
            connecting=running not in ("Yes", "No"),
            sql_running=on(row, f"{replica}_SQL_Running"),
            io_errno=number(row, "Last_IO_Errno"),
            io_error=text_of(row, "Last_IO_Error"),
            sql_errno=number(row, "Last_SQL_Errno"),
            sql_error=text_of(row, "Last_SQL_Error"),
            lag=float(lag) if re.fullmatch(r"\d+", lag) else None,
            source_file=text_of(row, f"{source}_Log_File"),
            source_position=number(row, f"Read_{source}_Log_Pos"),
            by_gtid=self._by_gtid(row),
            verifies=on(row, f"{source}_SSL_Verify_Server_Cert"),
            idle=text_of(row, f"{replica}_SQL_Running_State").startswith(f"{replica} has read all relay log"),
        )

    def _channel(self, rows: Sequence[Row]) -> Row | None:
        """The default channel; others are a user's own."""
        return next((row for row in rows if not text_of(row, "Channel_Name")), None)

    @abstractmethod
    def _by_gtid(self, row: Row) -> bool:
        """A replica goes on after what it has, not after a place in a file."""

    # --- replication

    def _tls(self, source: Source) -> str:
        """The part of `follow` about encryption: with an authority, the source must be the one it is taken for."""
        word = self.source_word.upper()
        return (
            f"{word}_SSL={int(source.tls)}, {word}_SSL_CA={quoted(source.authority)}, "
            f"{word}_SSL_VERIFY_SERVER_CERT={int(bool(source.authority))}"
        )

    @abstractmethod
    def reserved(self) -> str:
        """Queries for `reserved_in`, in one sending."""

    @abstractmethod
    def reserved_in(self, rows: Sequence[Row]) -> bool:
        """Reads the rows of `reserved`: replicas get in by the operator's port, so that clients cannot keep them out."""

    @abstractmethod
    def follow(self, source: Source, here: Row) -> Sequence[str]:
        """Point a server whose replication is stopped at a source; ``here`` is the answer to `position`: it goes on after that."""

    def start(self) -> str:
        """Start both threads."""
        return "START REPLICA"

    def start_applier(self) -> str:
        """Start the thread that applies."""
        return "START REPLICA SQL_THREAD"

    def start_receiver(self) -> str:
        """Start the thread that receives."""
        return "START REPLICA IO_THREAD"

    def stop(self) -> str:
        """Stop both threads."""
        return "STOP REPLICA"

    def stop_receiver(self) -> str:
        """Stop the thread that receives; what it received is still applied."""
        return "STOP REPLICA IO_THREAD"

    def forget_source(self) -> str:
        """It replicates from no server any more. Its own history stays."""
        return "RESET REPLICA ALL"

    def apply_from(self, file: str, position: int) -> Sequence[str]:
        """Make a stopped applier begin at a byte of a relay log, with no regard to GTIDs: `follow` ends that."""
        return ()

    def applied(self) -> Sequence[str]:
        """What `apply_from` changed otherwise is put back, once the source is forgotten."""
        return ()

    # --- roles

    @abstractmethod
    def read_only(self, on: bool) -> str:
        """No ordinary account writes (MySQL: nor one with all rights)."""

    def acks(self, wanted: int) -> int:
        """How many acknowledgements a source can wait for, if ``wanted`` are asked for."""
        return max(1, wanted)

    def source_semi_sync(self, *, on: bool, acks: int) -> Sequence[str]:
        """Commits wait for acknowledgements for a day, after the binary log and before the engine."""
        prefix = f"SET GLOBAL rpl_semi_sync_{self._source}"
        if not on:
            return (f"{prefix}_enabled = OFF",)
        return (
            f"{prefix}_timeout = {DAY * 1000}",
            f"{prefix}_wait_no_{self._replica} = ON",
            f"{prefix}_wait_point = AFTER_SYNC",
            *self._wait_for(acks),
            f"{prefix}_enabled = ON",
        )

    def _wait_for(self, acks: int) -> Sequence[str]:
        """How many acknowledgements a commit waits for, where that can be chosen."""
        return ()

    def replica_semi_sync(self, *, on: bool) -> str:
        """Acknowledge what is received; counts from the next start of the receiver."""
        return f"SET GLOBAL rpl_semi_sync_{self._replica}_enabled = {'ON' if on else 'OFF'}"

    # --- sessions

    def sessions(self) -> str:
        """Query of all sessions, without a table in memory or on a disk; read by `stall_of`."""
        return "SHOW PROCESSLIST"

    def stall_of(self, rows: Sequence[Row]) -> Stall:
        """Reads `sessions` of a server on which no commit waits for a replica."""
        if self.no_space and any(text_of(row, "State") == self.no_space for row in rows):
            return "full"
        long = (row for row in rows if text_of(row, "Command") != "Sleep" and number(row, "Time") >= PATIENT)
        return "wait" if any(text_of(row, "State") == self.committing for row in long) else ""

    def deadlocked_in(self, rows: Sequence[Row], now: Replication) -> bool:
        """Reads `sessions` of a replica: its applier waits for its own threads, none of which has work.

        The threads of replication are its receiver, if there is one, the one that hands out, and those that apply. One more
        of any other kind (a user's own channel) and nothing is said.
        """
        states = [text_of(row, "State") for row in rows if text_of(row, "User") == "system user"]
        idle = states.count(self.worker_idle)
        waiting = sum(1 for state in states if state in self.coordinator_waits)
        others = len(states) - idle - waiting
        return waiting == 1 and idle > 0 and others == int(now.io_running or now.connecting)

    def receiver_without_room(self, rows: Sequence[Row]) -> int:
        """Reads `sessions` of a replica: the id of a receiver that waits for space, and does not stop meanwhile; 0 for none."""
        return 0

    def writers(self) -> str:
        """Sessions of clients that write or hold locks: id, seconds, state; the longest first."""
        return (
            "SELECT p.ID AS id, GREATEST(p.TIME, COALESCE(TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), 0)) AS seconds, "  # noqa: S608
            "COALESCE(p.STATE, '') AS state FROM information_schema.PROCESSLIST p "
            "LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID "
            f"WHERE (p.COMMAND <> 'Sleep' OR t.trx_id IS NOT NULL) AND {_SESSIONS} ORDER BY 2 DESC"
        )

    def clients(self) -> str:
        """Sessions of clients: id, user, state."""
        return (
            "SELECT p.ID AS id, p.USER AS user, COALESCE(p.STATE, '') AS state "  # noqa: S608
            f"FROM information_schema.PROCESSLIST p WHERE {_SESSIONS}"
        )

    def logging_in(self) -> str:
        """How many sessions log in at present: n."""
        return "SELECT COUNT(*) AS n FROM information_schema.PROCESSLIST WHERE USER = 'unauthenticated user'"

    def waits_for_ack(self, state: str) -> bool:
        """Whether a session in this state waits for an acknowledgement (killing it would commit without)."""
        return "waiting for semi-sync ack" in state.lower()

    def kill(self, session: int) -> str:
        """End a session."""
        return f"KILL CONNECTION {session}"

    # --- accounts

    @abstractmethod
    def accounts(self) -> str:
        """Query of all accounts: ``user`` and ``host``, and what `account_of` reads."""

    @abstractmethod
    def account_of(self, row: Row, text: str) -> Account:
        """Reads a row of `accounts`: whether this text is a password of it, and whether there is another."""

    @abstractmethod
    def password(self, user: str, host: str, text: str, *, keep: Sequence[str] = ()) -> Sequence[str]:
        """Set the password of an account; ``keep``: further ones that stay valid."""

    @abstractmethod
    def add_password(self, row: Row, user: str, host: str, text: str) -> Sequence[str]:
        """Set the password of an account; what it takes now, by its row of `accounts`, stays valid beside it."""

    @abstractmethod
    def only_password(self, user: str, host: str, text: str) -> Sequence[str]:
        """Set the password, all others stop to count."""

    @abstractmethod
    def reload_tls(self) -> str:
        """Read the certificate's files again."""

    @property
    def _source(self) -> str:
        return self.source_word.lower()

    @property
    def _replica(self) -> str:
        return self.replica_word.lower()


# --- reading values


def text_of(row: Mapping[str, object], key: str) -> str:
    """A column as text; "" for NULL and for a column that is not there."""
    value = row.get(key)
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def number(row: Mapping[str, object], key: str) -> int:
    """A column as a number, 0 where it is none."""
    text = text_of(row, key)
    return int(text) if text.lstrip("-").isdigit() else 0


def on(row: Mapping[str, object], key: str) -> bool:
    """A variable or column that is on."""
    return text_of(row, key).upper() in ("1", "ON", "YES", "TRUE")


def named(rows: Sequence[Row]) -> dict[str, str]:
    """Rows of SHOW VARIABLES or SHOW STATUS, by small-letter name."""
    return {text_of(row, "Variable_name").lower(): text_of(row, "Value") for row in rows}


def listed(names: Collection[str]) -> str:
    """Names as a list of literals; one that matches nothing where there are none."""
    return ", ".join(quoted(name) for name in sorted(names)) or "''"
