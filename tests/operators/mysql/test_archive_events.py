"""Events as real servers sent them: MariaDB 10.11.19 and MySQL 9.7.4, with DDL, XA, tags, compression and two files."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mooring.operators.mysql.archive.events import (
    Kind,
    Malformed,
    header_of,
    moment,
    previous_gtids,
    stamp,
)
from mooring.operators.mysql.archive.stream import encoded
from mooring.operators.mysql.archive.transactions import History, Hole, Kept, Line
from mooring.operators.mysql.gtid import Position, parse, parse_mariadb, parse_mysql
from mooring.operators.mysql.topology import Flavor

HERE = Path(__file__).parent / "binlogs"
UUID = "1f47877a-e879-11f1-b25d-02fc00000001"
RECORDED: dict[Flavor, tuple[str, str]] = {
    "mariadb": ("mariadb-10.11.events", "0-91507029-20,7-91507029-1"),
    "mysql": ("mysql-9.7.events", f"{UUID}:1-19:audit:1-2"),
}
FLAVORS = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])


def recorded(flavor: Flavor) -> list[bytes]:
    return list(split((HERE / RECORDED[flavor][0]).read_bytes()))


def split(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[9:13], "little")
        yield data[:size]
        data = data[size:]


def unplaced() -> list[bytes]:
    """The same as MariaDB 11.7 and later write it: inside of a transaction no event but the last says where it ends."""
    events, within = [], False
    ends = [one.event for one in fed(line("mariadb"), recorded("mariadb")) if one.ends]
    for event in recorded("mariadb"):
        changed = event
        if header_of(event).kind == Kind.MARIADB_GTID:
            within = True
        elif event in ends:
            within = False
        elif within:
            body = event[:13] + bytes(4) + event[17:-4]
            changed = body + zlib.crc32(body).to_bytes(4, "little")
        events.append(changed)
    return events


def line(flavor: Flavor, position: Position | None = None) -> Line:
    return Line(history=History(flavor, position), executed=parse(flavor, RECORDED[flavor][1]))


def fed(line: Line, events: list[bytes]) -> list[Kept]:
    return [kept for event in events if (kept := line.feed(event)) is not None]


@FLAVORS
def test_every_transaction_is_found_from_its_first_event_to_its_last(flavor: Flavor) -> None:
    made = line(flavor)
    kept = fed(made, recorded(flavor))
    assert made.history.position == parse(flavor, RECORDED[flavor][1])
    assert not made.within
    begun = [one.begins.text for one in kept if one.begins]
    assert begun == [one.ends.text for one in kept if one.ends]
    assert len(begun) == 21
    within = 0
    for one in kept:
        within += 1 if one.begins else 0
        assert within == 1
        within -= 1 if one.ends else 0


def test_a_time_of_mysql_is_that_of_the_commit_and_one_of_mariadb_is_a_second() -> None:
    mysql = [one for one in fed(line("mysql"), recorded("mysql")) if one.ends]
    assert moment(mysql[0].committed) == "2026-11-25T02:37:14.865859Z"
    mariadb = [one for one in fed(line("mariadb"), recorded("mariadb")) if one.ends]
    assert moment(mariadb[0].committed) == "2026-11-25T02:37:09Z"


@FLAVORS
def test_known_transactions_are_passed_over(flavor: Flavor) -> None:
    events = recorded(flavor)
    ends = [one.ends.text for one in fed(line(flavor), events) if one.ends]
    half = History(flavor)
    seen = line(flavor)
    for event in events:
        if (kept := seen.feed(event)) is not None and kept.ends is not None:
            half.add(kept.ends)
            if kept.ends.text == ends[9]:
                break
    rest = fed(line(flavor, half.position), events)
    assert [one.ends.text for one in rest if one.ends] == ends[10:]


@FLAVORS
def test_whatever_event_is_left_out_is_noticed(flavor: Flavor) -> None:
    """Within a transaction by its bytes, a whole one by its number."""
    events = recorded(flavor)
    heads = [header_of(event) for event in events]
    dropped = 0
    for at, head in enumerate(heads[:-3]):
        if head.artificial or head.kind in NOT_KEPT:
            continue
        with pytest.raises((Hole, Malformed)):
            fed(line(flavor), events[:at] + events[at + 1 :])
        dropped += 1
    assert dropped > 50


def test_events_that_do_not_say_where_they_end_are_kept_and_a_missing_one_is_noticed() -> None:
    events = unplaced()
    inside = [at for at, event in enumerate(events) if header_of(event).unplaced and at > 2]
    assert len(inside) > 20
    made = line("mariadb")
    kept = fed(made, events)
    assert made.history.position == parse("mariadb", RECORDED["mariadb"][1])
    assert len(kept) == len(fed(line("mariadb"), recorded("mariadb")))
    for at in inside:
        with pytest.raises(Hole):
            fed(line("mariadb"), events[:at] + events[at + 1 :])


NOT_KEPT = {*(Kind.ROTATE, Kind.PREVIOUS_GTIDS, Kind.MARIADB_GTID_LIST, Kind.MARIADB_CHECKPOINT), Kind.FORMAT_DESCRIPTION,
            Kind.HEARTBEAT}  # fmt: skip


@FLAVORS
def test_a_whole_transaction_that_is_left_out_is_noticed(flavor: Flavor) -> None:
    events = recorded(flavor)
    kinds = {Kind.MARIADB_GTID, Kind.GTID}
    starts = [at for at, event in enumerate(events) if header_of(event).kind in kinds]
    for one, following in pairwise(starts[2:6]):
        with pytest.raises(Hole, match="are missing"):
            fed(line(flavor), events[:one] + events[following:])


@FLAVORS
def test_a_bit_that_changed_is_noticed(flavor: Flavor) -> None:
    events = recorded(flavor)
    changed = bytearray(events[9])
    changed[30] ^= 1
    with pytest.raises(Malformed, match="checksum"):
        fed(line(flavor), [*events[:9], bytes(changed)])


@FLAVORS
@pytest.mark.parametrize("size", [0, 1, 18, 19, 25])
def test_cut_events_are_refused(flavor: Flavor, size: int) -> None:
    events = recorded(flavor)
    with pytest.raises(Malformed):
        fed(line(flavor), [*events[:4], events[4][:size]])


def test_two_histories_are_told_apart_by_the_server_of_a_number() -> None:
    """The archive has 0-5-3, which the cluster gave up; another server's third transaction is no continuation."""
    events = recorded("mariadb")
    with pytest.raises(Hole, match="two histories"):
        fed(line("mariadb", parse_mariadb("0-5-3")), events)


def test_numbers_that_the_source_never_gave_are_no_hole() -> None:
    events = recorded("mysql")
    starts = [at for at, event in enumerate(events) if header_of(event).kind == Kind.GTID]
    without = events[: starts[3]] + events[starts[4] :]
    never = parse_mysql(f"{UUID}:1-3:5-19:audit:1-2")
    made = Line(history=History("mysql"), executed=never)
    fed(made, without)
    assert made.history.position == never


@pytest.mark.parametrize(
    "text",
    ["", f"{UUID}:1-5", f"{UUID}:1-5:7,2f47877a-e879-11f1-b25d-02fc00000001:3", f"{UUID}:1-19:audit:1-2"],
)
def test_a_position_is_what_a_log_file_says_came_before_it(text: str) -> None:
    """The second file of the recording says so itself; a position that was made says the same."""
    position = parse_mysql(text)
    made = line("mysql")
    fed(made, recorded("mysql")[:2])
    assert made.description is not None
    event = previous_gtids(encoded(position), made.description, at=127)
    head = header_of(event)
    assert (head.kind, head.size, head.end) == (Kind.PREVIOUS_GTIDS, len(event), 127 + len(event))


def test_what_came_before_the_second_file_is_encoded_as_the_server_does() -> None:
    (_, second) = [one for one in recorded("mysql") if header_of(one).kind == Kind.PREVIOUS_GTIDS]
    made = line("mysql")
    fed(made, recorded("mysql")[:2])
    assert made.description is not None
    assert made.description.body(second) == encoded(parse_mysql(f"{UUID}:1-13"))


def test_descriptions_of_two_files_are_equal() -> None:
    for flavor in RECORDED:
        made, seen = line(flavor), []
        for event in recorded(flavor):
            made.feed(event)
            if header_of(event).kind == Kind.FORMAT_DESCRIPTION:
                seen.append(made.description)
        assert len(seen) == 2
        assert seen[0] == seen[1]


def test_moments_are_read_as_they_are_written() -> None:
    for text in ("2026-11-25T02:37:09Z", "2026-11-25T02:37:14.865859Z"):
        assert moment(stamp(text)) == text
    assert stamp("2026-11-25T03:37:09+01:00") == stamp("2026-11-25T02:37:09Z")
    with pytest.raises(ValueError, match="time zone"):
        stamp("2026-11-25T02:37:09")
