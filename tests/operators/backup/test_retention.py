"""Which backups a retention lets go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from mooring.operators.backup.retention import Kept, Policy, outdated

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def good(day: int, **more: Any) -> Kept:
    return Kept(name=f"b{day}", at=NOW - timedelta(days=day), good=True, **more)


def bad(day: int) -> Kept:
    return Kept(name=f"f{day}", at=NOW - timedelta(days=day), good=False, failed=True)


def test_the_newest_good_ones_stay() -> None:
    assert outdated([good(1), good(2), good(3)], Policy(last=2), now=NOW) == ["b3"]


def test_the_newest_good_one_stays_however_old_it_is() -> None:
    assert outdated([good(400), bad(1), bad(2)], Policy(last=0, days=1), now=NOW) == []


def test_failed_ones_do_not_push_out_good_ones() -> None:
    assert outdated([bad(1), bad(2), bad(3), good(4), good(5)], Policy(last=2), now=NOW) == []


def test_the_newest_verified_one_stays() -> None:
    assert outdated([good(1), good(2), good(3, verified=True)], Policy(last=1), now=NOW) == ["b2"]


def test_count_and_age_both_keep() -> None:
    assert outdated([good(1), good(2), good(9), good(10)], Policy(last=3, days=5), now=NOW) == ["b10"]


def test_what_is_under_way_or_needed_stays() -> None:
    running = Kept(name="r", at=NOW - timedelta(days=90), good=False)
    assert outdated([good(1), good(2, held=True), good(3), running], Policy(last=1), now=NOW) == ["b3"]


def test_without_a_policy_every_good_one_stays() -> None:
    assert outdated([good(1), good(999)], Policy(), now=NOW) == []
