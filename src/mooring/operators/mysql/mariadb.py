"""MariaDB 10.11 and 11.x: statements and answers.

Facts of 10.11.19 that the forms rest on: the commands take the word REPLICA, columns and options are still called Master and
Slave; a semi-synchronous source waits for one acknowledgement, there is no variable for more; the position of an
ex-primary is in its binary log alone, and what would put it where replication begins (``MASTER_DEMOTE_TO_SLAVE``,
``gtid_current_pos``) counts only transactions of the present server_id. Every start has a new one, so the operator sets the
position itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mooring.operators.mysql import passwords
from mooring.operators.mysql.accounts import Account
from mooring.operators.mysql.dial import Row, quoted
from mooring.operators.mysql.dialect import Dialect, Source, number, text_of
from mooring.operators.mysql.gtid import Position, parse_mariadb
from mooring.operators.mysql.names import ADMIN_PORT, MOST_REPLICAS

__all__ = ["MariaDB"]


class MariaDB(Dialect):
    """See `dialect.Dialect`."""

    flavor = "mariadb"
    keeps_relay_log = False
    source_word = "Master"
    replica_word = "Slave"
    sizes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pool": ("innodb_buffer_pool_size",),
        "redo": ("innodb_log_file_size",),
        "log_buffer": ("innodb_log_buffer_size",),
        "tmp": ("tmp_table_size", "max_heap_table_size"),
        "thread_cache": ("thread_cache_size",),
        "table_cache": ("table_open_cache",),
        "appliers": ("slave_parallel_threads",),
    }
    live_sizes = frozenset({"pool", "redo", "tmp", "thread_cache", "table_cache"})
    pool_step = 16 << 20
    caches = ("aria_pagecache_buffer_size",)
    base = 64 << 20
    least_memory = "192Mi"
    upgrades_tables = True
    users = "mysql.global_priv"
    redo_counters = ("innodb_checkpoint_age", "innodb_checkpoint_max_age")
    committing = "Commit"
    coordinator_waits = frozenset(
        {"Waiting for room in worker thread event queue", "Waiting for worker threads to be idle"}
    )
    worker_idle = "Waiting for work from SQL thread"
    no_space = "Waiting for someone to free space"
    columns = "@@gtid_domain_id AS domain, @@GLOBAL.read_only AS read_only"
    positions = "@@GLOBAL.gtid_binlog_state AS binlog, @@GLOBAL.gtid_slave_pos AS slave"

    def position_of(self, row: Row) -> Position:
        return parse_mariadb(text_of(row, "binlog")) | parse_mariadb(text_of(row, "slave"))

    def _received(self, row: Row) -> Position:
        return parse_mariadb(text_of(row, "Gtid_IO_Pos"))

    def _redo(self, status: Mapping[str, str]) -> Mapping[str, int]:
        age, most = self.redo_counters
        return {"age": number(status, age), "max_age": number(status, most)}

    def role(self) -> str:
        return (
            "SELECT @@server_id AS server_id, @@version AS version, @@GLOBAL.read_only AS read_only, "
            "@@GLOBAL.rpl_semi_sync_master_enabled AS source, @@GLOBAL.rpl_semi_sync_slave_enabled AS replica"
        )

    def _by_gtid(self, row: Row) -> bool:
        return text_of(row, "Using_Gtid") == "Slave_Pos"

    def purged(self) -> Sequence[str]:
        return ("SHOW BINARY LOGS", "SHOW BINLOG EVENTS IN '{Log_name}' LIMIT 3")

    def purged_of(self, rows: Sequence[Row]) -> Position:
        for row in rows:
            if text_of(row, "Event_type") == "Gtid_list":
                return parse_mariadb(text_of(row, "Info").strip("[]"))
        return Position()

    def reserved(self) -> str:
        return "SELECT @@GLOBAL.extra_port AS port, @@GLOBAL.extra_max_connections AS most"

    def reserved_in(self, rows: Sequence[Row]) -> bool:
        return any(number(row, "port") == ADMIN_PORT and number(row, "most") > MOST_REPLICAS for row in rows)

    def follow(self, source: Source, here: Row) -> Sequence[str]:
        begin: list[str] = []
        executed = self.position_of(here)
        if not executed.is_empty:
            begin.append(f"SET GLOBAL gtid_slave_pos = {quoted(executed.newest())}")
            if not text_of(here, "binlog"):
                # A copy whose binary log is empty: replicas of its own could not find their position in it.
                begin.append(f"SET GLOBAL gtid_binlog_state = {quoted(executed.newest())}")
        change = (
            f"CHANGE MASTER TO MASTER_HOST={quoted(source.host)}, MASTER_PORT={source.port}, MASTER_USER={quoted(source.user)}, "
            f"MASTER_PASSWORD={quoted(source.password)}, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=0.5, "
            f"{self._tls(source)}, MASTER_USE_GTID=slave_pos"
        )
        return (*begin, change)

    def apply_from(self, file: str, position: int) -> Sequence[str]:
        return (
            # 10.11.19 crashes where several threads apply a relay log without GTIDs after a restart.
            "SET GLOBAL slave_parallel_threads = 0",
            f"CHANGE MASTER TO MASTER_USE_GTID=no, RELAY_LOG_FILE={quoted(file)}, RELAY_LOG_POS={position}",
        )

    def applied(self) -> Sequence[str]:
        return (
            "SET GLOBAL slave_parallel_threads = IF(@@GLOBAL.slave_parallel_threads = 0, 4, @@GLOBAL.slave_parallel_threads)",
        )

    def read_only(self, on: bool) -> str:
        return f"SET GLOBAL read_only = {'ON' if on else 'OFF'}"

    def acks(self, wanted: int) -> int:
        return 1

    def accounts(self) -> str:
        return "SELECT User AS user, Host AS host, Priv AS priv FROM mysql.global_priv"

    def account_of(self, row: Row, text: str) -> Account:
        try:
            priv = json.loads(text_of(row, "priv") or "{}")
        except ValueError:
            priv = {}
        there = passwords.ways(priv)
        found = [passwords.matches(plugin, stored, text) for plugin, stored in there]
        return Account(
            password=True if True in found else None if None in found else False,
            spare=len(there) > 1,
            tls=int(priv.get("ssl_type") or 0) > 0,
        )

    def password(self, user: str, host: str, text: str, *, keep: Sequence[str] = ()) -> Sequence[str]:
        ways = " OR ".join(
            f"mysql_native_password USING PASSWORD({quoted(one)})" for one in dict.fromkeys((text, *keep))
        )
        return (f"ALTER USER {quoted(user)}@{quoted(host)} IDENTIFIED VIA {ways}",)

    def add_password(self, row: Row, user: str, host: str, text: str) -> Sequence[str]:
        there = passwords.ways(json.loads(text_of(row, "priv") or "{}"))
        others = [one for one in there if one[1] and not passwords.matches(*one, text)]
        ways = [f"mysql_native_password USING PASSWORD({quoted(text)})"]
        ways += [f"{plugin} USING {quoted(stored)}" for plugin, stored in others[:1]]
        return (f"ALTER USER {quoted(user)}@{quoted(host)} IDENTIFIED VIA {' OR '.join(ways)}",)

    def only_password(self, user: str, host: str, text: str) -> Sequence[str]:
        return self.password(user, host, text)

    def reload_tls(self) -> str:
        return "FLUSH LOCAL SSL"  # without LOCAL it goes to the binary log: a transaction of a replica's own
