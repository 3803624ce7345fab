"""When claims grow by themselves, by how much, and what the status keeps of it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace as amended
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from mooring.kube.quantity import parse_quantity
from mooring.operators.workload.autogrow import (
    AT_MAXIMUM,
    AutogrowSpec,
    AutogrowStatus,
    Filling,
    FillSample,
    autogrow_faults,
    decide,
    in_force,
)
from mooring.operators.workload.fill import Fill, Fills, fill_in, script_for
from mooring.operators.workload.volumes import Volume

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1024**3
SPEC = AutogrowSpec(max_size="100Gi")


def volume(pod: int = 0, *, size: str = "10Gi", requested: str = "", capacity: str = "") -> Volume:
    return Volume(
        claim=f"data-x-{pod}",
        pod=f"x-{pod}",
        wanted=size,
        requested=requested or size,
        capacity=capacity or size,
    )


def fills(*percent: float, size: str = "10Gi") -> Fills:
    capacity = int(parse_quantity(size))
    return Fills(
        found=tuple(
            Fill(claim=f"data-x-{at}", used=int(capacity * one / 100), size=capacity, capacity=capacity)
            for at, one in enumerate(percent)
        )
    )


def decided(
    found: Fills,
    *,
    spec: AutogrowSpec = SPEC,
    status: AutogrowStatus | None = None,
    volumes: tuple[Volume, ...] = (volume(),),
    hours: float = 0,
) -> Filling:
    now = NOW + timedelta(hours=hours)
    return decide(spec, status, where="spec.storage.autogrow", volumes=volumes, fills=found, now=now)


def test_claims_grow_when_the_fullest_reaches_the_threshold_and_all_to_one_size() -> None:
    assert not decided(fills(79, 10)).due
    made = decided(fills(10, 80), volumes=(volume(0), volume(1)))
    assert made.due
    assert made.status is not None
    assert (made.status.size, made.status.grown_at) == ("12Gi", NOW)
    assert (
        made.news
        == "data-x-1 is 80 % full (8.00 of 10.00 GiB); the claims grow from 10Gi to 12Gi, maxSize is 100Gi"
    )


@pytest.mark.parametrize(
    ("spec", "size", "to"),
    [
        (SPEC, "1Gi", "2Gi"),  # a fifth of it would be less than 1Gi
        (SPEC, "64Mi", "2Gi"),  # whole Gi
        (AutogrowSpec(max_size="100Gi", grow_percent=50), "10Gi", "15Gi"),
        (AutogrowSpec(max_size="10.5Gi"), "10Gi", "10.5Gi"),
    ],
)
def test_claims_grow_by_a_share_and_by_1gi_at_least_within_the_maximum(
    spec: AutogrowSpec, size: str, to: str
) -> None:
    made = decided(fills(90, size=size), spec=spec, volumes=(volume(size=size),))
    assert made.status is not None
    assert made.status.size == to


def test_claims_grow_again_only_after_the_cooldown() -> None:
    grown = AutogrowStatus(size="12Gi", grown_at=NOW)
    volumes = (volume(size="12Gi"),)
    early = decided(fills(85, size="12Gi"), status=grown, volumes=volumes, hours=5.9)
    assert early.status is not None
    assert (early.status.size, early.status.reason) == ("12Gi", "Cooldown")
    assert "2026-01-01T06:00Z" in (early.status.message or "")
    assert early.unmet() == []
    later = decided(fills(85, size="12Gi"), status=early.status, volumes=volumes, hours=6)
    assert later.status is not None
    assert (later.status.size, later.status.reason) == ("15Gi", None)


def test_nothing_more_is_asked_for_while_a_claim_is_still_growing() -> None:
    for one in (volume(size="12Gi", capacity="10Gi"), volume(size="12Gi", requested="10Gi", capacity="10Gi")):
        grown = AutogrowStatus(size="12Gi")
        made = decided(fills(95), status=grown, volumes=(one, volume(1, size="12Gi")))
        assert made.status is not None
        assert made.status.size == "12Gi"


def test_a_volume_that_grew_since_it_was_measured_does_not_grow_again_for_that() -> None:
    spec, grown = (
        AutogrowSpec(max_size="100Gi", cooldown_seconds=0),
        AutogrowStatus(size="12Gi", grown_at=NOW),
    )
    volumes = (volume(size="12Gi"),)
    assert decided(fills(85), spec=spec, status=grown, volumes=volumes, hours=1).status == grown
    assert decided(fills(85, size="12Gi"), spec=spec, status=grown, volumes=volumes, hours=1).due


def test_a_volume_about_its_threshold_does_not_come_and_go_in_the_cooldown() -> None:
    status, volumes, reasons = AutogrowStatus(size="12Gi", grown_at=NOW), (volume(size="12Gi"),), []
    for percent in (81, 79, 81, 79, 70):
        made = decided(fills(percent, size="12Gi"), status=status, volumes=volumes, hours=1)
        assert made.status is not None
        status = made.status
        reasons.append((status.reason, made.due))
    held = ("Cooldown", False)
    assert reasons == [("Cooldown", True), held, held, held, (None, True)]


def test_a_volume_that_would_be_full_before_it_may_grow_twice_grows_early_and_far_enough() -> None:
    before = AutogrowStatus(samples=[FillSample(at=NOW, used=2 * GIB)])
    slow = decided(fills(30), status=before, hours=1)  # 1 GiB an hour: full in seven
    assert not slow.due
    assert (slow.status and slow.status.full_in_hours) == 8
    fast = decided(fills(60), status=before, hours=1)  # 4 GiB an hour: full in one
    assert fast.due
    # 6 GiB and six hours of 4 GiB are 80 % of it.
    assert (fast.status and fast.status.size) == "38Gi"
    assert "full in about 1 h" in fast.news


def test_data_that_is_loaded_for_some_minutes_is_no_trend() -> None:
    before = AutogrowStatus(samples=[FillSample(at=NOW, used=0)])
    made = decided(fills(50), status=before, hours=0.4)
    assert not made.due
    assert made.hours is None


def test_a_volume_that_no_longer_grows_is_forecast_later_and_later_and_then_not_at_all() -> None:
    status = AutogrowStatus(samples=[FillSample(at=NOW, used=2 * GIB)], used_percent=30)
    shown = []
    for hours in (1, 2, 4, 100, 1000, 10000):
        made = decided(fills(30), status=status, hours=hours)
        assert made.status is not None
        status = made.status
        shown.append(status.full_in_hours)
    assert shown == [8, 8, 32, 1024, None, None]


def test_the_status_changes_by_steps_alone() -> None:
    status, writes = AutogrowStatus(), 0
    for minute in range(600):
        made = decided(fills(40 + (minute % 7) / 2), status=status, hours=minute / 60)
        assert made.status is not None
        writes += made.status != status
        status = made.status
    assert writes == 1
    assert status.used_percent == 40
    assert len(status.samples or ()) == 1


def test_samples_are_few_and_begin_again_after_data_was_deleted() -> None:
    status = AutogrowStatus()
    for hour, percent in enumerate((1, 10, 20, 30, 40, 50)):
        made = decided(fills(percent), status=status, hours=hour * 24)
        assert made.status is not None
        status = made.status
    assert [one.used for one in status.samples or ()] == [
        int(10 * GIB * one / 100) for one in (20, 30, 40, 50)
    ]
    made = decided(fills(5), status=status, hours=200)
    assert made.status is not None
    assert len(made.status.samples or ()) == 1
    assert made.hours is None


def test_claims_at_the_maximum_are_reported_once_with_the_remedy_until_clearly_below() -> None:
    spec = AutogrowSpec(max_size="10Gi")
    made = decided(fills(85), spec=spec)
    assert made.due
    assert made.warns
    text = "data-x-0 is 85 % full (8.50 of 10.00 GiB), and the claims have maxSize 10Gi; raise maxSize, or delete data"
    assert made.news == text
    assert made.unmet() == [f"spec.storage.autogrow: {text}"]
    again = decided(fills(86), spec=spec, status=made.status)
    assert not again.due
    assert again.status == made.status
    near = decided(fills(78), spec=spec, status=made.status)
    assert (near.status and near.status.reason) == AT_MAXIMUM
    over = decided(fills(70), spec=spec, status=made.status)
    assert over.due
    assert over.unmet() == []


def test_a_size_that_claims_ask_for_already_is_taken_over_after_the_status_was_lost() -> None:
    volumes = (volume(0), volume(1, size="10Gi", requested="20Gi", capacity="20Gi"))
    made = decided(Fills(), volumes=volumes)
    assert made.due
    assert (made.status and made.status.size) == "20Gi"
    beyond = decided(Fills(), spec=AutogrowSpec(max_size="15Gi"), volumes=volumes)
    assert not beyond.due


def test_the_declared_size_is_the_least_and_the_maximum_the_most() -> None:
    grown = AutogrowStatus(size="12Gi")
    assert in_force(SPEC, grown, "10Gi") == "12Gi"
    assert in_force(SPEC, grown, "20Gi") == "20Gi"
    assert in_force(AutogrowSpec(max_size="11Gi"), grown, "10Gi") == "11Gi"
    assert in_force(None, grown, "10Gi") == "10Gi"
    assert in_force(SPEC, None, "10Gi") == "10Gi"
    assert in_force(SPEC, grown, "nonsense") == "nonsense"


def test_how_full_volumes_are_is_told_of_those_with_a_file_system_of_their_own() -> None:
    whole = fills(97, 50)
    shared = Fills(found=(whole.found[0], amended(whole.found[1], own=False)))
    volumes = (volume(0), volume(1))
    assert decided(whole, volumes=volumes).shares == pytest.approx({"data-x-0": 0.97, "data-x-1": 0.5})
    assert decided(shared, volumes=volumes).shares == pytest.approx({"data-x-0": 0.97})
    grown = (volume(0, capacity="20Gi"), volume(1))
    assert decided(whole, volumes=grown).shares == {"data-x-1": 0.5}  # measured before it grew


def test_what_is_recorded_stays_while_nothing_answers() -> None:
    status = AutogrowStatus(size="12Gi", used_percent=85)
    assert decided(Fills(), status=status).status == status
    assert decided(fills(99), status=status, volumes=()).status == status
    assert decided(fills(99), spec=AutogrowSpec(max_size="much"), status=status).status == status
    refused = decided(Fills(problem="pods/exec is forbidden"), status=status)
    assert refused.unmet() == ["spec.storage.autogrow: pods/exec is forbidden"]


def test_declarations_that_cannot_be_carried_out_name_field_and_remedy() -> None:
    def found(spec: AutogrowSpec, *, claimed: bool = True) -> dict[str, str]:
        return dict(autogrow_faults(spec, declared="10Gi", claimed=claimed))

    assert found(SPEC) == {}
    assert found(replace(SPEC, max_size="5Gi")) == {
        ".maxSize": "5Gi is less than the declared size 10Gi; raise it"
    }
    assert "write it as 100Gi" in found(replace(SPEC, max_size="much"))[".maxSize"]
    assert "on none; remove it" in found(SPEC, claimed=False)[""]


@pytest.mark.parametrize(
    ("text", "used", "size"),
    [("df 1024 3072\n", 1 << 20, 4 << 20), ("du 2048\n", 2 << 20, 99 << 20)],
)
def test_what_pods_print_is_read(text: str, used: int, size: int) -> None:
    made = fill_in(text, claim="data-x-0", capacity=99 << 20)
    own = text.startswith("df")
    assert made == Fill(claim="data-x-0", used=used, size=size, capacity=99 << 20, own=own)


@pytest.mark.parametrize("text", ["", "df 1", "df - -", "sh: df: not found", "du x"])
def test_what_is_no_answer_is_none(text: str) -> None:
    assert fill_in(text, claim="data-x-0", capacity=1) is None


def test_the_script_asks_the_file_system_or_adds_up_a_directory_of_a_shared_one(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(3 << 20))
    total = shutil.disk_usage(tmp_path).total
    shared = said(script_for(str(tmp_path), 100 << 20), claim_of=100 << 20)
    assert shared.size == 100 << 20
    assert 3 << 20 <= shared.used < 4 << 20
    own = said(script_for(str(tmp_path), total), claim_of=total)
    assert own.used > 3 << 20
    assert own.size <= total


def said(script: str, *, claim_of: int) -> Fill:
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    made = fill_in(done.stdout, claim="data-x-0", capacity=claim_of)
    assert made is not None
    return made
