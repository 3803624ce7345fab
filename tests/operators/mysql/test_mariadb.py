"""MariaDB's answers, as 10.11.19 gives them."""

from __future__ import annotations

from typing import Any

from mooring.operators.mysql.config import forced
from mooring.operators.mysql.gtid import parse_mariadb
from mooring.operators.mysql.mariadb import MariaDB

DIALECT = MariaDB()


class Source:
    port = 3306
    host, user, password, tls = "demo-0.demo.default.svc", "mooring_replication", "it's\\", False

    def __init__(self, *, authority: str = "") -> None:
        self.authority, self.tls = authority, bool(authority)


def variables(**changes: Any) -> dict[str, Any]:
    return {
        "version": "10.11.19-MariaDB-0+deb12u1-log",
        "server_id": 91496016,
        "domain": 0,
        "binlog": "0-91496016-7",
        "slave": "",
        "read_only": 0,
        "source": 1,
        "replica": 0,
        "timeout": 86400000,
        "wait_point": "AFTER_SYNC",
    } | changes


def link(**changes: Any) -> dict[str, Any]:
    return {
        "Slave_IO_State": "Waiting for master to send event",
        "Master_Host": "demo-0.demo.default.svc",
        "Master_Port": 3306,
        "Master_Log_File": "binlog.000002",
        "Read_Master_Log_Pos": 1234,
        "Slave_IO_Running": "Yes",
        "Slave_SQL_Running": "Yes",
        "Seconds_Behind_Master": 0,
        "Last_IO_Errno": 0,
        "Last_IO_Error": "",
        "Last_SQL_Errno": 0,
        "Last_SQL_Error": "",
        "Using_Gtid": "Slave_Pos",
        "Gtid_IO_Pos": "0-91496016-9",
    } | changes


def status(**changes: str) -> list[dict[str, Any]]:
    values = {
        "Rpl_semi_sync_master_clients": "2",
        "Rpl_semi_sync_master_status": "ON",
        "Rpl_semi_sync_master_wait_sessions": "1",
        "Threads_connected": "5",
        "Uptime": "77",
    } | changes
    return [{"Variable_name": name, "Value": value} for name, value in values.items()]


def test_a_primary_is_read() -> None:
    server = DIALECT.server(
        [[variables()], [], status(), [{"Variable_name": "Max_Connections", "Value": "60"}]]
    )
    assert server.version == "10.11.19"
    assert server.server_id == 91496016
    assert not server.read_only
    assert server.executed == server.received == parse_mariadb("0-91496016-7")
    assert server.replication is None
    assert server.semi_sync.source
    assert server.semi_sync.active
    assert server.semi_sync.after_sync
    assert (server.semi_sync.timeout, server.semi_sync.clients, server.semi_sync.waiting) == (86400, 2, 1)
    assert server.held == {"max_connections": "60"}
    assert (server.connections, server.uptime) == (5, 77)


def test_a_replica_has_what_it_received_beside_what_it_executed() -> None:
    row = variables(binlog="0-91496016-7", slave="0-91496016-7", read_only=1, replica=1, source=0)
    server = DIALECT.server([[row], [link()], status()])
    assert server.read_only
    assert server.received.ahead_of(server.executed) == 2
    assert server.replication is not None
    assert server.replication.io_running
    assert server.replication.by_gtid
    assert server.replication.lag == 0


def test_the_states_of_a_receiver_are_told_apart() -> None:
    for said, running, connecting in (("Yes", True, False), ("Connecting", False, True), ("No", False, False),
                                      ("Preparing", False, True)):  # fmt: skip
        now = DIALECT.replication_of([link(Slave_IO_Running=said, Seconds_Behind_Master=None)])
        assert now is not None
        assert (now.io_running, now.connecting, now.lag) == (running, connecting, None)


def test_a_position_that_was_copied_stands_in_no_binary_log() -> None:
    assert DIALECT.position_of({"binlog": "", "slave": "0-5-9"}) == parse_mariadb("0-5-9")
    statements = DIALECT.follow(Source(), {"binlog": "", "slave": "0-5-9"})
    assert "SET GLOBAL gtid_binlog_state = '0-5-9'" in statements
    begun = DIALECT.follow(Source(), {"binlog": "0-5-9,0-6-12", "slave": "0-5-9"})
    assert begun[0] == "SET GLOBAL gtid_slave_pos = '0-6-12'"
    assert not any("binlog_state" in one for one in begun)
    assert len(DIALECT.follow(Source(), {"binlog": "", "slave": ""})) == 1


def test_secrets_are_quoted() -> None:
    assert r"MASTER_PASSWORD='it\'s\\'" in DIALECT.follow(Source(), {})[-1]


def test_what_the_first_binary_log_begins_with_was_purged_before() -> None:
    rows = [
        {"Event_type": "Format_desc", "Info": "Server ver: 10.11.19"},
        {"Event_type": "Gtid_list", "Info": "[0-5-100,\n0-7-120]"},
    ]
    assert DIALECT.purged_of(rows) == parse_mariadb("0-5-100,0-7-120")
    assert DIALECT.purged_of([{"Event_type": "Gtid_list", "Info": "[]"}]).is_empty


def test_only_one_acknowledgement_can_be_waited_for() -> None:
    assert DIALECT.acks(2) == 1
    assert DIALECT.source_semi_sync(on=True, acks=1)[-1].endswith("enabled = ON")
    assert not any("count" in one for one in DIALECT.source_semi_sync(on=True, acks=2))


def test_two_passwords_are_valid_at_once() -> None:
    (statement,) = DIALECT.password("app", "%", "new", keep=("old",))
    assert statement.count("USING PASSWORD") == 2
    (only,) = DIALECT.only_password("app", "%", "new")
    assert only.count("USING PASSWORD") == 1


def test_the_certificate_of_a_source_is_checked_where_it_bears_its_name() -> None:
    assert "MASTER_SSL_VERIFY_SERVER_CERT=0" in DIALECT.follow(Source(), {})[-1]
    checked = DIALECT.follow(Source(authority="/mooring/tls/ca.crt"), {})[-1]
    assert "MASTER_SSL=1, MASTER_SSL_CA='/mooring/tls/ca.crt', MASTER_SSL_VERIFY_SERVER_CERT=1" in checked
    found = DIALECT.replication_of([link(Master_SSL_Verify_Server_Cert="Yes")])
    assert found is not None
    assert found.verifies


def test_a_source_sends_several_heartbeats_before_its_receiver_gives_it_up() -> None:
    text = DIALECT.follow(Source(), {})[-1]
    period = float(text.partition("MASTER_HEARTBEAT_PERIOD=")[2].partition(",")[0])
    assert 4 * period <= float(forced("mariadb")["slave_net_timeout"])
