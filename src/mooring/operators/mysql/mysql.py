"""MySQL 8.4 and 9.x: statements and answers. Proven on 9.7.4; 8.4 uses the same words and was not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from mooring.operators.mysql import passwords
from mooring.operators.mysql.accounts import Account
from mooring.operators.mysql.dial import Row, quoted
from mooring.operators.mysql.dialect import Dialect, Source, number, on, text_of
from mooring.operators.mysql.gtid import Position, parse_mysql
from mooring.operators.mysql.names import REPLICATION

__all__ = ["MySQL"]


class MySQL(Dialect):
    """See `dialect.Dialect`."""

    flavor = "mysql"
    keeps_relay_log = True
    source_word = "Source"
    replica_word = "Replica"
    sizes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pool": ("innodb_buffer_pool_size",),
        "redo": ("innodb_redo_log_capacity",),
        "log_buffer": ("innodb_log_buffer_size",),
        "tmp": ("tmp_table_size",),
        "thread_cache": ("thread_cache_size",),
        "table_cache": ("table_open_cache",),
        "appliers": ("replica_parallel_workers",),
    }
    live_sizes = frozenset({"pool", "redo", "log_buffer", "tmp", "thread_cache", "table_cache"})
    pool_step = 128 << 20
    caches = ()
    base = 384 << 20
    least_memory = "512Mi"
    upgrades_tables = False
    users = "mysql.user"
    redo_counters = (
        *("innodb_redo_log_current_lsn", "innodb_redo_log_checkpoint_lsn"),
        "innodb_redo_log_capacity_resized",
    )
    committing = "waiting for handler commit"
    coordinator_waits = frozenset({"Waiting for replica workers to process their queues"})
    worker_idle = "Waiting for an event from Coordinator"
    columns = (
        "@@server_uuid AS uuid, @@GLOBAL.super_read_only AS read_only, "
        "@@GLOBAL.rpl_semi_sync_source_wait_for_replica_count AS acks"
    )
    positions = "@@GLOBAL.gtid_executed AS executed, @@GLOBAL.gtid_purged AS purged"

    def position_of(self, row: Row) -> Position:
        return parse_mysql(text_of(row, "executed"))

    def _received(self, row: Row) -> Position:
        return parse_mysql(text_of(row, "Retrieved_Gtid_Set"))

    def _redo(self, status: Mapping[str, str]) -> Mapping[str, int]:
        current, checkpoint, capacity = (number(status, one) for one in self.redo_counters)
        return {"age": max(0, current - checkpoint), "max_age": capacity}

    def role(self) -> str:
        return (
            "SELECT @@server_id AS server_id, @@version AS version, @@GLOBAL.super_read_only AS read_only, "
            "@@GLOBAL.rpl_semi_sync_source_enabled AS source, @@GLOBAL.rpl_semi_sync_replica_enabled AS replica"
        )

    def _purged(self, row: Row) -> Position | None:
        return parse_mysql(text_of(row, "purged"))

    def _by_gtid(self, row: Row) -> bool:
        return on(row, "Auto_Position")

    def _wait_for(self, acks: int) -> Sequence[str]:
        return (f"SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = {max(1, acks)}",)

    def receiver_without_room(self, rows: Sequence[Row]) -> int:
        # Those that apply may wait for space as well; they have no host.
        found = [row for row in rows if text_of(row, "Host") == "connecting host"]
        waits = len(found) == 1 and text_of(found[0], "State") == "Waiting for disk space"
        return number(found[0], "Id") if waits else 0

    def purged(self) -> Sequence[str]:
        return ("SELECT @@GLOBAL.gtid_purged AS purged",)

    def purged_of(self, rows: Sequence[Row]) -> Position:
        return parse_mysql(text_of(rows[0], "purged")) if rows else Position()

    def reserved(self) -> str:
        return f"SELECT @@GLOBAL.admin_address AS address; SHOW GRANTS FOR {quoted(REPLICATION)}@'%'"

    def reserved_in(self, rows: Sequence[Row]) -> bool:
        texts = [str(text) for row in rows[1:] for text in row.values()]
        return bool(text_of(rows[0], "address")) and any("SERVICE_CONNECTION_ADMIN" in text for text in texts)

    def follow(self, source: Source, here: Row) -> Sequence[str]:
        key = 0 if source.tls else 1
        change = (
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST={quoted(source.host)}, SOURCE_PORT={source.port}, "
            f"SOURCE_USER={quoted(source.user)}, SOURCE_PASSWORD={quoted(source.password)}, SOURCE_CONNECT_RETRY=1, "
            f"SOURCE_RETRY_COUNT=86400, SOURCE_HEARTBEAT_PERIOD=0.5, {self._tls(source)}, "
            f"GET_SOURCE_PUBLIC_KEY={key}, SOURCE_AUTO_POSITION=1"
        )
        return (change,)

    def read_only(self, on: bool) -> str:
        # read_only comes and goes with super_read_only: ON sets both, and OFF of read_only clears both.
        return "SET GLOBAL super_read_only = ON" if on else "SET GLOBAL read_only = OFF"

    def accounts(self) -> str:
        return (
            "SELECT user AS user, host AS host, plugin AS plugin, authentication_string AS text, ssl_type AS demand, "
            "JSON_EXTRACT(User_attributes, '$.additional_password') AS spare FROM mysql.user"
        )

    def account_of(self, row: Row, text: str) -> Account:
        return Account(
            password=passwords.matches(text_of(row, "plugin"), text_of(row, "text"), text),
            spare=bool(text_of(row, "spare")),
            tls=bool(text_of(row, "demand")),
        )

    def password(self, user: str, host: str, text: str, *, keep: Sequence[str] = ()) -> Sequence[str]:
        account = f"{quoted(user)}@{quoted(host)}"
        retained = " RETAIN CURRENT PASSWORD" if keep else ""
        return (f"ALTER USER {account} IDENTIFIED BY {quoted(text)}{retained}",)

    def add_password(self, row: Row, user: str, host: str, text: str) -> Sequence[str]:
        return self.password(user, host, text, keep=("the present one",))

    def only_password(self, user: str, host: str, text: str) -> Sequence[str]:
        account = f"{quoted(user)}@{quoted(host)}"
        return (
            f"ALTER USER {account} IDENTIFIED BY {quoted(text)}",
            f"ALTER USER {account} DISCARD OLD PASSWORD",
        )

    def reload_tls(self) -> str:
        return "ALTER INSTANCE RELOAD TLS"
