"""Positions: parsing, the algebra, and that both servers agree with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.operators.mysql.dial import Dial, quoted
from mooring.operators.mysql.gtid import Position, parse, parse_mariadb, parse_mysql
from mooring.operators.mysql.survey import login_of
from mooring.operators.mysql.topology import Server
from mooring.testing.mysql import CREDENTIALS, Servers

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "8a94f357-aab4-11df-86ab-c80aa9429562"


def my(text: str) -> Position:
    return parse_mysql(text)


def maria(text: str) -> Position:
    return parse_mariadb(text)


# --- MySQL -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("", ""),
        (f"{A}:1-5", f"{A}:1-5"),
        (f"{A.upper()}:1-3:4-5:9", f"{A}:1-5:9"),
        (f"{B}:7,\n{A}:1", f"{A}:1,{B}:7"),
        (f"{A}:1-3:tagged:1-4:9, {A}:5", f"{A}:1-3:5:tagged:1-4:9"),
        (f"{A}:5-4", ""),
    ],
)
def test_sets_are_read_as_servers_write_them(text: str, normal: str) -> None:
    assert my(text).text() == normal
    assert my(my(text).text()) == my(text)


@pytest.mark.parametrize("text", ["0-1-5", A, f"{A}:", f"{A}:1-", f"{A}:9tag:1", "nonsense:1"])
def test_what_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a GTID set"):
        my(text)


def test_tags_are_origins_of_their_own() -> None:
    assert not my(f"{A}:1-9").contains(my(f"{A}:load:1"))
    assert my(f"{A}:1-9:load:1-3").without(A).is_empty
    assert my(f"{A}:1-9:load:1-3").only(A) == my(f"{A}:1-9:load:1-3")


def test_diverged_servers_are_not_comparable() -> None:
    left, right = my(f"{A}:1-10,{B}:1"), my(f"{A}:1-11")
    assert not left.comparable(right)
    assert (left - right).text() == f"{B}:1"
    assert (right - left).text() == f"{A}:11"
    assert (left | right).text() == f"{A}:1-11,{B}:1"
    assert right.ahead_of(left) == 1


numbers = st.frozensets(st.integers(1, 30), max_size=12)
sets = st.dictionaries(st.sampled_from([A, B, f"{A}:t"]), numbers, max_size=3)


def _position(chosen: dict[str, frozenset[int]]) -> Position:
    """From the single transactions."""
    texts = []
    for origin, members in chosen.items():
        uuid, _, tag = origin.partition(":")
        texts += [f"{uuid}:{tag + ':' if tag else ''}{one}" for one in members]
    return my(",".join(texts))


def _members(position: Position) -> set[tuple[str, int]]:
    return {
        (origin, n)
        for origin, at in position.origins.items()
        for low, high in at
        for n in range(low, high + 1)
    }


@given(sets, sets)
def test_the_algebra_is_that_of_sets(
    left: dict[str, frozenset[int]], right: dict[str, frozenset[int]]
) -> None:
    a, b = _position(left), _position(right)
    assert _members(a | b) == _members(a) | _members(b)
    assert _members(a - b) == _members(a) - _members(b)
    assert a.contains(b) == (_members(b) <= _members(a))
    assert a.ahead_of(b) == len(_members(a) - _members(b))
    assert my((a | b).text()) == a | b


# --- MariaDB ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "0-1-100", "0-1-100,0-2-105", "0-2-3,0-1-7,5-1-2", "0-9-101..110"])
def test_positions_are_read_and_written(text: str) -> None:
    assert maria(text).text() == text


@pytest.mark.parametrize("text", [f"{A}:1", "0-1", "0-1-x", "-1-2-3"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a GTID position"):
        maria(text)


def test_the_newest_id_of_a_domain_orders_its_servers() -> None:
    position = maria("0-1-100,0-2-105") | maria("0-1-110")
    assert position.last == {"0": "0-1-110"}
    assert position.text() == "0-2-105,0-1-110"
    assert position.newest() == "0-1-110"


def test_an_old_primary_with_a_tail_is_ahead_in_its_own_ids() -> None:
    """The cluster went on under server 2 from number 101; server 1 has a 101 of its own."""
    cluster, old = maria("0-1-100,0-2-140"), maria("0-1-101")
    assert (old - cluster).text() == "0-1-101..101"
    assert not cluster.contains(old)
    assert cluster.contains(maria("0-1-100"))
    assert not old.comparable(cluster)


def test_received_ids_before_the_newest_one_count_although_they_are_not_told() -> None:
    """A replica applied up to 0-1-100 and received 0-2-105; others know that 0-1-103 came before that."""
    received = maria("0-1-100") | maria("0-2-105")
    full = maria("0-1-103,0-2-105")
    assert received.contains(full)
    assert full.contains(received)
    assert not received.contains(maria("0-1-106,0-2-105"))
    assert not maria("0-1-100").contains(full)


def test_a_server_that_began_with_a_copy_may_lead_others() -> None:
    """It knows the newest id of what was copied alone; a replica that is behind it has nothing of its own."""
    leader, replica = maria("0-3-200,0-9-205"), maria("0-1-100,0-2-140,0-3-200")
    assert leader.contains(replica)
    assert (replica - leader).is_empty
    assert not leader.contains(maria("0-1-100,0-2-140,0-3-200,0-8-201"))
    assert not leader.contains(maria("0-1-100,0-2-140,0-3-201"))


def test_a_tail_is_told_apart_from_what_a_copy_does_not_know() -> None:
    """The leader began with a copy and went on as server 9; the old primary has four of its own after what both have."""
    leader, old = maria("0-3-200,0-9-230"), maria("0-1-100,0-2-140,0-3-204")
    assert (old - leader).text() == "0-3-201..204"


def test_a_copy_reaches_what_came_before_it() -> None:
    """It knows the newest id alone; where it has nothing of its own, the numbers tell what it has."""
    copy, purged = maria("0-9-230"), maria("0-3-200")
    assert not copy.contains(purged)
    assert copy.reaches(purged)
    assert not maria("0-9-199").reaches(purged)
    assert not copy.reaches(maria("0-3-200,1-3-1"))
    assert my(f"{A}:1-9").reaches(my(f"{A}:2-4"))
    assert not my(f"{A}:1-9").reaches(my(f"{A}:2-10"))


def test_a_replica_that_is_behind_is_no_errant_one() -> None:
    primary = maria("0-1-100,0-2-140,0-3-200")
    for replica in ("0-1-50", "0-1-100,0-2-120", "0-1-100,0-2-140,0-3-199"):
        assert (maria(replica) - primary).is_empty
        assert primary.contains(maria(replica))


def test_how_far_behind_counts_the_numbers_of_a_domain_once() -> None:
    assert maria("0-1-100,0-2-140").ahead_of(maria("0-1-90")) == 50
    assert maria("0-1-100").ahead_of(Position()) == 100
    assert maria("0-1-100").ahead_of(maria("0-1-100")) == 0
    assert maria("0-1-90").ahead_of(maria("0-1-100,0-2-140")) == 0
    assert maria("0-1-7,1-1-5").ahead_of(maria("0-1-4")) == 8


def test_domains_are_compared_each_by_itself() -> None:
    assert not maria("0-1-100").contains(maria("1-1-1"))
    assert maria("0-1-100,1-1-5").contains(maria("1-1-1,0-1-3"))
    assert (maria("0-1-3,1-1-5") - maria("0-1-9")).text() == "1-1-5"


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_prefixes_of_one_history_compare_by_length(writers: list[int], left: int, right: int) -> None:
    """A history is the list of the servers that wrote number 1, 2, 3 ...; positions are prefixes of it."""

    def prefix(length: int) -> Position:
        state: dict[int, int] = {}
        for number, server in enumerate(writers[:length], start=1):
            state.pop(server, None)
            state[server] = number
        return maria(",".join(f"0-{server}-{number}" for server, number in state.items()))

    a, b = prefix(left), prefix(right)
    long, short = min(left, len(writers)), min(right, len(writers))
    assert a.contains(b) == (long >= short)
    assert a.ahead_of(b) == max(0, long - short)


@given(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=8), st.integers(0, 8), st.integers(1, 4))
def test_a_fork_is_always_found(writers: list[int], at: int, length: int) -> None:
    """Server 9 wrote where the others went on."""
    state = {server: number for number, server in enumerate(writers, start=1)}
    common = {server: number for number, server in enumerate(writers[:at], start=1)}
    cluster = maria(
        ",".join(f"0-{server}-{number}" for server, number in sorted(state.items(), key=lambda x: x[1]))
    )
    fork = maria(",".join([*(f"0-{s}-{n}" for s, n in common.items()), f"0-9-{at + length}"]))
    assert not cluster.contains(fork)
    assert not (fork - cluster).is_empty


# --- both ------------------------------------------------------------------------------------------------


def test_the_origin_of_a_server() -> None:
    assert Server(flavor="mysql", server_uuid=A.upper()).origin == A
    assert Server(flavor="mariadb", server_id=7, domain=2).origin == "2-7"
    assert parse("mysql", f"{A}:1-3,{B}:2").without(A) == my(f"{B}:2")
    assert parse("mariadb", "0-1-3,0-7-9").without("0-7") == maria("0-1-3")


@pytest.mark.embedded
@pytest.mark.full
async def test_mysql_subtracts_as_we_do() -> None:
    pairs = [
        (f"{A}:1-10:15,{B}:3", f"{A}:2-4:9-20"),
        (f"{A}:1-3:load:1-9,{B}:1", f"{A}:load:4-5,{B}:1-2"),
        (f"{A}:1", f"{A}:1-5"),
    ]
    async with Servers("mysql:9.7") as servers:
        (one,) = await servers.start(1)
        async with Dial().open(one.address, login_of(CREDENTIALS)) as link:
            for left, right in pairs:
                row = await link.one(
                    f"SELECT GTID_SUBTRACT({quoted(left)}, {quoted(right)}) AS rest, "
                    f"GTID_SUBSET({quoted(right)}, {quoted(left)}) AS within"
                )
                assert my(row["rest"]) == my(left) - my(right)
                assert bool(row["within"]) == my(left).contains(my(right))
