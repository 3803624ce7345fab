"""MySQL 8.4 and 9.x: statements and answers. Proven on 9.7.4; 8.4 uses the same words and was not run."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from mooring.operators.mysql import passwords
from mooring.operators.mysql.accounts import Account
from mooring.operators.mysql.dial import Row, quoted
from mooring.operators.mysql.dialect import DAY, Source, listed, named, number, on, text_of
from mooring.operators.mysql.gtid import Position, parse_mysql
from mooring.operators.mysql.topology import Flavor, Replication, SemiSync, Server

__all__ = ["MySQL"]

_STATUS: Final = (
    *("Uptime", "Threads_connected", "Rpl_semi_sync_source_clients", "Rpl_semi_sync_source_status"),
    *("Rpl_semi_sync_source_wait_sessions", "Ssl_server_not_after"),
)
_POSITION: Final = "@@GLOBAL.gtid_executed AS executed, @@GLOBAL.gtid_purged AS purged"
_SURVEY: Final = (
    f"SELECT @@version AS version, @@server_id AS server_id, @@server_uuid AS uuid, {_POSITION}, "
    "@@GLOBAL.super_read_only AS read_only, @@GLOBAL.rpl_semi_sync_source_enabled AS source, "
    "@@GLOBAL.rpl_semi_sync_replica_enabled AS replica, @@GLOBAL.rpl_semi_sync_source_timeout AS timeout, "
    "@@GLOBAL.rpl_semi_sync_source_wait_point AS wait_point, "
    "@@GLOBAL.rpl_semi_sync_source_wait_for_replica_count AS acks"
)
_WAITING: Final = "waiting for semi-sync ack"
_SESSIONS: Final = (
    "FROM information_schema.PROCESSLIST p WHERE p.ID <> CONNECTION_ID() AND p.USER NOT IN ('system user', "
    "'event_scheduler', 'mooring', 'mooring_replication', 'mooring_monitor') AND p.COMMAND NOT LIKE 'Binlog Dump%' "
    "AND p.COMMAND <> 'Daemon'"
)


class MySQL:
    """See `dialect.Dialect`."""

    flavor: Flavor = "mysql"
    keeps_relay_log = True

    def position(self) -> str:
        return f"SELECT {_POSITION}"

    def position_of(self, row: Row) -> Position:
        return parse_mysql(text_of(row, "executed"))

    def role(self) -> str:
        return (
            "SELECT @@server_id AS server_id, @@version AS version, @@GLOBAL.super_read_only AS read_only, "
            "@@GLOBAL.rpl_semi_sync_source_enabled AS source, @@GLOBAL.rpl_semi_sync_replica_enabled AS replica"
        )

    def survey(self, held: Collection[str]) -> str:
        wanted = f"; SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed(held)})" if held else ""
        return f"{_SURVEY}; {self.replication()}; SHOW GLOBAL STATUS WHERE Variable_name IN ({listed(_STATUS)}){wanted}"

    def server(self, results: Sequence[Sequence[Row]]) -> Server:
        row, status = results[0][0], named(results[2])
        executed = self.position_of(row)
        received = executed
        for one in _own_channel(results[1]):
            received = executed | parse_mysql(text_of(one, "Retrieved_Gtid_Set"))
        return Server(
            flavor=self.flavor,
            version=text_of(row, "version").partition("-")[0],
            server_id=number(row, "server_id"),
            server_uuid=text_of(row, "uuid").lower(),
            uptime=float(status.get("uptime") or 0),
            read_only=on(row, "read_only"),
            executed=executed,
            received=received,
            purged=parse_mysql(text_of(row, "purged")),
            replication=self.replication_of(results[1]),
            semi_sync=SemiSync(
                source=on(row, "source"),
                replica=on(row, "replica"),
                acks=number(row, "acks"),
                timeout=number(row, "timeout") / 1000,
                after_sync=text_of(row, "wait_point") == "AFTER_SYNC",
                clients=int(status.get("rpl_semi_sync_source_clients") or 0),
                waiting=int(status.get("rpl_semi_sync_source_wait_sessions") or 0),
                active=status.get("rpl_semi_sync_source_status") == "ON",
            ),
            certificate=status.get("ssl_server_not_after") or "",
            held=named(results[3]) if len(results) > 3 else {},
            connections=int(status.get("threads_connected") or 0),
        )

    def purged(self) -> Sequence[str]:
        return ("SELECT @@GLOBAL.gtid_purged AS purged",)

    def purged_of(self, rows: Sequence[Row]) -> Position:
        return parse_mysql(text_of(rows[0], "purged")) if rows else Position()

    def replication(self) -> str:
        return "SHOW REPLICA STATUS"

    def replication_of(self, rows: Sequence[Row]) -> Replication | None:
        for row in _own_channel(rows):
            running = text_of(row, "Replica_IO_Running")
            lag = text_of(row, "Seconds_Behind_Source")
            return Replication(
                host=text_of(row, "Source_Host"),
                port=number(row, "Source_Port"),
                io_running=running == "Yes",
                connecting=running == "Connecting",
                sql_running=on(row, "Replica_SQL_Running"),
                io_errno=number(row, "Last_IO_Errno"),
                io_error=text_of(row, "Last_IO_Error"),
                sql_errno=number(row, "Last_SQL_Errno"),
                sql_error=text_of(row, "Last_SQL_Error"),
                lag=float(lag) if re.fullmatch(r"\d+", lag) else None,
                source_file=text_of(row, "Source_Log_File"),
                source_position=number(row, "Read_Source_Log_Pos"),
                by_gtid=on(row, "Auto_Position"),
                idle=text_of(row, "Replica_SQL_Running_State").startswith("Replica has read all relay log"),
            )
        return None

    def follow(self, source: Source, here: Row) -> Sequence[str]:
        key = 0 if source.tls else 1
        change = (
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST={quoted(source.host)}, SOURCE_PORT=3306, "
            f"SOURCE_USER={quoted(source.user)}, SOURCE_PASSWORD={quoted(source.password)}, SOURCE_CONNECT_RETRY=1, "
            f"SOURCE_RETRY_COUNT=86400, SOURCE_HEARTBEAT_PERIOD=1, SOURCE_SSL={int(source.tls)}, "
            f"GET_SOURCE_PUBLIC_KEY={key}, SOURCE_AUTO_POSITION=1"
        )
        return (change,)

    def start(self) -> str:
        return "START REPLICA"

    def start_applier(self) -> str:
        return "START REPLICA SQL_THREAD"

    def start_receiver(self) -> str:
        return "START REPLICA IO_THREAD"

    def stop(self) -> str:
        return "STOP REPLICA"

    def stop_receiver(self) -> str:
        return "STOP REPLICA IO_THREAD"

    def forget_source(self) -> str:
        return "RESET REPLICA ALL"

    def apply_from(self, file: str, position: int) -> Sequence[str]:
        return ()  # never needed: see `keeps_relay_log`

    def applied(self) -> Sequence[str]:
        return ()

    def read_only(self, on: bool) -> str:
        # read_only comes and goes with super_read_only: ON sets both, and OFF of read_only clears both.
        return "SET GLOBAL super_read_only = ON" if on else "SET GLOBAL read_only = OFF"

    def acks(self, wanted: int) -> int:
        return max(1, wanted)

    def source_semi_sync(self, *, on: bool, acks: int) -> Sequence[str]:
        if not on:
            return ("SET GLOBAL rpl_semi_sync_source_enabled = OFF",)
        return (
            f"SET GLOBAL rpl_semi_sync_source_timeout = {DAY * 1000}",
            "SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON",
            "SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
            f"SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = {max(1, acks)}",
            "SET GLOBAL rpl_semi_sync_source_enabled = ON",
        )

    def replica_semi_sync(self, *, on: bool) -> str:
        return f"SET GLOBAL rpl_semi_sync_replica_enabled = {'ON' if on else 'OFF'}"

    def writers(self) -> str:
        return (
            "SELECT p.ID AS id, GREATEST(p.TIME, COALESCE(TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), 0)) AS seconds, "  # noqa: S608
            "COALESCE(p.STATE, '') AS state FROM information_schema.PROCESSLIST p "
            "LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID "
            f"WHERE (p.COMMAND <> 'Sleep' OR t.trx_id IS NOT NULL) AND {_SESSIONS.partition(' WHERE ')[2]} "
            "ORDER BY 2 DESC"
        )

    def clients(self) -> str:
        return f"SELECT p.ID AS id, p.USER AS user, COALESCE(p.STATE, '') AS state {_SESSIONS}"

    def waits_for_ack(self, state: str) -> bool:
        return _WAITING in state.lower()

    def kill(self, session: int) -> str:
        return f"KILL CONNECTION {session}"

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


def _own_channel(rows: Sequence[Row]) -> Sequence[Row]:
    """The default channel; others are a user's own."""
    return [row for row in rows if not text_of(row, "Channel_Name")][:1]
