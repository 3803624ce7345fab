"""MySQL's answers, as 9.7.4 gives them."""

from __future__ import annotations

from typing import Any

from mooring.operators.mysql.gtid import parse_mysql
from mooring.operators.mysql.mysql import MySQL

DIALECT = MySQL()
A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "8a94f357-aab4-11df-86ab-c80aa9429562"


class Source:
    port = 3306
    host, user, password = "demo-0.demo.default.svc", "mooring_replication", "it's\\"

    def __init__(self, *, tls: bool = False) -> None:
        self.tls, self.authority = tls, ""


def variables(**changes: Any) -> dict[str, Any]:
    return {
        "version": "9.7.4-2",
        "server_id": 7,
        "uuid": A.upper(),
        "executed": f"{A}:1-7,\n{B}:1-3",
        "purged": f"{A}:1-2",
        "read_only": 1,
        "source": 0,
        "replica": 1,
        "timeout": 10000,
        "wait_point": "AFTER_SYNC",
        "acks": 1,
    } | changes


def link(**changes: Any) -> dict[str, Any]:
    return {
        "Source_Host": "demo-0.demo.default.svc",
        "Source_Port": 3306,
        "Source_Log_File": "binlog.000002",
        "Read_Source_Log_Pos": 4321,
        "Replica_IO_Running": "Yes",
        "Replica_SQL_Running": "Yes",
        "Seconds_Behind_Source": 3,
        "Last_IO_Errno": 0,
        "Last_SQL_Errno": 0,
        "Retrieved_Gtid_Set": f"{B}:2-5",
        "Auto_Position": 1,
        "Channel_Name": "",
    } | changes


def test_a_replica_is_read() -> None:
    server = DIALECT.server([[variables()], [link()], []])
    assert server.version == "9.7.4"
    assert server.server_uuid == A
    assert server.read_only
    assert server.executed == parse_mysql(f"{A}:1-7,{B}:1-3")
    assert server.received == parse_mysql(f"{A}:1-7,{B}:1-5")
    assert server.purged == parse_mysql(f"{A}:1-2")
    assert server.semi_sync.replica
    assert not server.semi_sync.source
    assert server.replication is not None
    assert (server.replication.source_file, server.replication.source_position) == ("binlog.000002", 4321)
    assert server.replication.lag == 3


def test_a_users_own_channel_is_none_of_ours() -> None:
    own = link(Channel_Name="theirs", Source_Host="elsewhere")
    assert DIALECT.replication_of([own]) is None
    now = DIALECT.replication_of([own, link()])
    assert now is not None
    assert now.host == "demo-0.demo.default.svc"


def test_a_receiver_that_connects_does_not_run() -> None:
    now = DIALECT.replication_of([link(Replica_IO_Running="Connecting", Seconds_Behind_Source=None)])
    assert now is not None
    assert (now.io_running, now.connecting, now.lag) == (False, True, None)


def test_no_word_of_before_8_4_is_used() -> None:
    statements = [
        *DIALECT.follow(Source(), {}), DIALECT.start(), DIALECT.stop(), DIALECT.stop_receiver(), DIALECT.replication(),
        DIALECT.forget_source(), *DIALECT.source_semi_sync(on=True, acks=2), DIALECT.replica_semi_sync(on=True),
    ]  # fmt: skip
    assert not any(word in one.upper() for one in statements for word in ("MASTER", "SLAVE"))


def test_the_public_key_is_asked_for_only_without_encryption() -> None:
    assert "GET_SOURCE_PUBLIC_KEY=1" in DIALECT.follow(Source(), {})[0]
    assert "GET_SOURCE_PUBLIC_KEY=0" in DIALECT.follow(Source(tls=True), {})[0]
    assert r"SOURCE_PASSWORD='it\'s\\'" in DIALECT.follow(Source(), {})[0]


def test_as_many_acknowledgements_as_asked_for() -> None:
    assert DIALECT.acks(2) == 2
    assert "SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = 2" in DIALECT.source_semi_sync(
        on=True, acks=2
    )
    assert DIALECT.source_semi_sync(on=False, acks=2) == ("SET GLOBAL rpl_semi_sync_source_enabled = OFF",)


def test_even_an_account_with_all_rights_cannot_write_to_a_replica() -> None:
    assert "super_read_only" in DIALECT.read_only(True)


def test_two_passwords_are_valid_at_once() -> None:
    assert DIALECT.password("app", "%", "new", keep=("old",))[0].endswith("RETAIN CURRENT PASSWORD")
    assert DIALECT.only_password("app", "%", "new")[-1].endswith("DISCARD OLD PASSWORD")


def test_a_receiver_that_waits_for_space_is_told_from_those_that_apply() -> None:
    receiver = {"Id": 10, "User": "system user", "Host": "connecting host", "State": "Waiting for disk space"}
    applies = {"Id": 12, "User": "system user", "Host": "", "State": "Waiting for disk space"}
    well = receiver | {"State": "Waiting for source to send event"}
    assert DIALECT.receiver_without_room([applies, receiver]) == 10
    assert DIALECT.receiver_without_room([applies, well]) == 0
    # A user's own channel cannot be told from the cluster's.
    assert DIALECT.receiver_without_room([receiver, well | {"Id": 20}]) == 0
