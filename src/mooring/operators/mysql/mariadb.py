"""MariaDB 10.11 and 11.x: statements and answers.

Facts of 10.11.19 that the forms rest on: the commands take the word REPLICA, columns and options are still called Master and
Slave; a semi-synchronous source waits for one acknowledgement, there is no variable for more; the position of an
ex-primary is in its binary log alone, and what would put it where replication begins (``MASTER_DEMOTE_TO_SLAVE``,
``gtid_current_pos``) counts only what bears the present server_id, which every start has anew: it is set by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Final

from mooring.operators.mysql import passwords
from mooring.operators.mysql.accounts import Account
from mooring.operators.mysql.dial import Row, quoted
from mooring.operators.mysql.dialect import DAY, Source, listed, named, number, on, text_of
from mooring.operators.mysql.gtid import Position, parse_mariadb
from mooring.operators.mysql.topology import Flavor, Replication, SemiSync, Server

__all__ = ["MariaDB"]

_STATUS: Final = (
    *("Uptime", "Threads_connected", "Rpl_semi_sync_master_clients", "Rpl_semi_sync_master_status"),
    *("Rpl_semi_sync_master_wait_sessions", "Ssl_server_not_after"),
)
_POSITION: Final = "@@GLOBAL.gtid_binlog_state AS binlog, @@GLOBAL.gtid_slave_pos AS slave"
_SURVEY: Final = (
    f"SELECT @@version AS version, @@server_id AS server_id, @@gtid_domain_id AS domain, {_POSITION}, "
    "@@GLOBAL.read_only AS read_only, @@GLOBAL.rpl_semi_sync_master_enabled AS source, "
    "@@GLOBAL.rpl_semi_sync_slave_enabled AS replica, @@GLOBAL.rpl_semi_sync_master_timeout AS timeout, "
    "@@GLOBAL.rpl_semi_sync_master_wait_point AS wait_point"
)
_WAITING: Final = "waiting for semi-sync ack"
_SESSIONS: Final = (
    "FROM information_schema.PROCESSLIST p WHERE p.ID <> CONNECTION_ID() AND p.USER NOT IN ('system user', "
    "'event_scheduler', 'mooring', 'mooring_replication', 'mooring_monitor') AND p.COMMAND NOT LIKE 'Binlog Dump%' "
    "AND p.COMMAND <> 'Daemon'"
)


class MariaDB:
    """See `dialect.Dialect`."""

    flavor: Flavor = "mariadb"
    keeps_relay_log = False

    def position(self) -> str:
        return f"SELECT {_POSITION}"

    def position_of(self, row: Row) -> Position:
        return parse_mariadb(text_of(row, "binlog")) | parse_mariadb(text_of(row, "slave"))

    def role(self) -> str:
        return (
            "SELECT @@server_id AS server_id, @@version AS version, @@GLOBAL.read_only AS read_only, "
            "@@GLOBAL.rpl_semi_sync_master_enabled AS source, @@GLOBAL.rpl_semi_sync_slave_enabled AS replica"
        )

    def survey(self, held: Collection[str]) -> str:
        wanted = f"; SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed(held)})" if held else ""
        return f"{_SURVEY}; {self.replication()}; SHOW GLOBAL STATUS WHERE Variable_name IN ({listed(_STATUS)}){wanted}"

    def server(self, results: Sequence[Sequence[Row]]) -> Server:
        row, status = results[0][0], named(results[2])
        executed = self.position_of(row)
        replication = self.replication_of(results[1])
        received = executed
        if results[1]:
            received = executed | parse_mariadb(text_of(results[1][0], "Gtid_IO_Pos"))
        return Server(
            flavor=self.flavor,
            version=text_of(row, "version").partition("-")[0],
            server_id=number(row, "server_id"),
            domain=number(row, "domain"),
            uptime=float(status.get("uptime") or 0),
            read_only=on(row, "read_only"),
            executed=executed,
            received=received,
            replication=replication,
            semi_sync=SemiSync(
                source=on(row, "source"),
                replica=on(row, "replica"),
                timeout=number(row, "timeout") / 1000,
                after_sync=text_of(row, "wait_point") == "AFTER_SYNC",
                clients=int(status.get("rpl_semi_sync_master_clients") or 0),
                waiting=int(status.get("rpl_semi_sync_master_wait_sessions") or 0),
                active=status.get("rpl_semi_sync_master_status") == "ON",
            ),
            certificate=status.get("ssl_server_not_after") or "",
            held=named(results[3]) if len(results) > 3 else {},
            connections=int(status.get("threads_connected") or 0),
        )

    def purged(self) -> Sequence[str]:
        return ("SHOW BINARY LOGS", "SHOW BINLOG EVENTS IN '{Log_name}' LIMIT 3")

    def purged_of(self, rows: Sequence[Row]) -> Position:
        for row in rows:
            if text_of(row, "Event_type") == "Gtid_list":
                return parse_mariadb(text_of(row, "Info").strip("[]"))
        return Position()

    def replication(self) -> str:
        return "SHOW REPLICA STATUS"

    def replication_of(self, rows: Sequence[Row]) -> Replication | None:
        if not rows:
            return None
        row = rows[0]
        running = text_of(row, "Slave_IO_Running")
        lag = text_of(row, "Seconds_Behind_Master")
        return Replication(
            host=text_of(row, "Master_Host"),
            port=number(row, "Master_Port"),
            io_running=running == "Yes",
            connecting=running not in ("Yes", "No"),
            sql_running=on(row, "Slave_SQL_Running"),
            io_errno=number(row, "Last_IO_Errno"),
            io_error=text_of(row, "Last_IO_Error"),
            sql_errno=number(row, "Last_SQL_Errno"),
            sql_error=text_of(row, "Last_SQL_Error"),
            lag=float(lag) if re.fullmatch(r"\d+", lag) else None,
            source_file=text_of(row, "Master_Log_File"),
            source_position=number(row, "Read_Master_Log_Pos"),
            by_gtid=text_of(row, "Using_Gtid") == "Slave_Pos",
            idle=text_of(row, "Slave_SQL_Running_State").startswith("Slave has read all relay log"),
        )

    def follow(self, source: Source, here: Row) -> Sequence[str]:
        begin: list[str] = []
        executed = self.position_of(here)
        if not executed.is_empty:
            begin.append(f"SET GLOBAL gtid_slave_pos = {quoted(executed.newest())}")
            if not text_of(here, "binlog"):
                # A copy whose binary log is empty: replicas of its own could not find their position in it.
                begin.append(f"SET GLOBAL gtid_binlog_state = {quoted(executed.newest())}")
        change = (
            f"CHANGE MASTER TO MASTER_HOST={quoted(source.host)}, MASTER_PORT=3306, MASTER_USER={quoted(source.user)}, "
            f"MASTER_PASSWORD={quoted(source.password)}, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=1, "
            f"MASTER_SSL={int(source.tls)}, MASTER_SSL_VERIFY_SERVER_CERT=0, MASTER_USE_GTID=slave_pos"
        )
        return (*begin, change)

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

    def source_semi_sync(self, *, on: bool, acks: int) -> Sequence[str]:
        if not on:
            return ("SET GLOBAL rpl_semi_sync_master_enabled = OFF",)
        return (
            f"SET GLOBAL rpl_semi_sync_master_timeout = {DAY * 1000}",
            "SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON",
            "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
            "SET GLOBAL rpl_semi_sync_master_enabled = ON",
        )

    def replica_semi_sync(self, *, on: bool) -> str:
        return f"SET GLOBAL rpl_semi_sync_slave_enabled = {'ON' if on else 'OFF'}"

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
