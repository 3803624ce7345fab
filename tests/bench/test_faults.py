"""The run of random faults: what it reckons is right, and it strikes evenly and the same for a seed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from bench.cluster_faults import ClusterLane
from bench.faults import SentinelLane
from bench.lanes import Lane, draw
from bench.matrixone_faults import MatrixOneLane
from bench.matrixone_faults import markdown as matrixone_page
from bench.mysql_faults import MySQLLane
from bench.tally import CLASSES, Outcome, percentile, report, table, trouble

from bench import mysql_faults

ROOT = Path(__file__).resolve().parents[2]
LANES: list[type[Lane]] = [SentinelLane, ClusterLane, MySQLLane, MatrixOneLane]
FINE = Outcome(number=1, lane=0, cause="master-killed", victim="redis-0", acknowledged=500, confirmed=250)


@pytest.mark.parametrize(
    ("values", "share", "answer"),
    [
        ([], 0.5, 0.0),
        ([3.0], 0.99, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),
        ([float(one) for one in range(1, 101)], 0.99, 99.0),
        ([float(one) for one in range(1, 102)], 0.99, 100.0),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_a_percentile_is_the_nearest_rank(values: list[float], share: float, answer: float) -> None:
    assert percentile(values, share) == answer


def test_lost_acknowledged_writes_alone_do_not_fail_a_run() -> None:
    assert trouble(replace(FINE, lost_acknowledged=7, lost_seconds=0.2)) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lost_confirmed": 1, "lost_acknowledged": 1}, "1 confirmed"),
        ({"flaw": "redis-0 answers nothing"}, "not whole again: redis-0"),
        ({"cause": "partition", "bound": 10.0, "lost_seconds": 11.1}, "the bound is 11.0 s"),
        ({"cause": "isolation", "bound": 2.0, "lost_seconds": 3.2}, "the bound is 3.0 s"),
    ],
)
def test_what_fails_a_run_is_named(change: dict[str, object], words: str) -> None:
    one = replace(FINE, **change)  # type: ignore[arg-type]

    assert words in trouble(one)
    assert len(report([FINE, one])["failures"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"cause": "partition", "bound": 10.0, "lost_seconds": 10.9},
        {"cause": "partition", "bound": 0.0, "lost_seconds": 60.0},  # it was switched off
        {"cause": "master-killed", "bound": 2.0, "lost_seconds": 5.0},  # not a partition
    ],
)
def test_a_partition_may_cost_the_lag_and_a_second(change: dict[str, object]) -> None:
    assert trouble(replace(FINE, **change)) == ""  # type: ignore[arg-type]


def test_a_confirmed_write_that_a_later_fault_lost_fails_the_run_too() -> None:
    figures = report([FINE], lost_later=3)

    assert figures["lost_later_confirmed"] == 3
    assert len(figures["failures"]) == 1
    assert "FAILED" in table(figures)


def test_losses_and_gaps_are_reckoned_by_cause() -> None:
    killed = [replace(FINE, number=n, gap=n / 10, lost_acknowledged=n) for n in (1, 2, 3)]
    hung = replace(FINE, number=4, cause="master-hung", gap=6.5, lost_seconds=1.5, lost_acknowledged=9)

    figures = report([*killed, hung])

    assert (figures["faults"], figures["acknowledged"], figures["confirmed"]) == (4, 2000, 1000)
    assert (figures["lost_acknowledged"], figures["lost_confirmed"]) == (15, 0)
    assert figures["failures"] == []
    row = figures["causes"]["master-killed"]
    assert (row["number"], row["lost_acknowledged"], row["gap"]["p50"], row["gap"]["max"]) == (3, 6, 0.2, 0.3)
    assert figures["causes"]["master-hung"]["lost_seconds_max"] == 1.5
    assert figures["gaps"]["crash"]["number"] == 3
    assert figures["gaps"]["hang"]["max"] == 6.5
    assert figures["gaps"]["planned"] == {"number": 0, "p50": 0.0, "p99": 0.0, "max": 0.0}
    assert table(figures).splitlines()[1].split()[:4] == ["master-hung", "1", "500", "9"]


def test_every_class_of_gaps_is_of_causes_there_are() -> None:
    there = {cause for lane in LANES for cause in lane.causes}
    assert {cause for causes in CLASSES.values() for cause in causes} <= there
    assert all(set(causes) & lane.causes.keys() for causes in CLASSES.values() for lane in LANES)


def test_lost_rows_of_matrixone_are_on_its_page() -> None:
    struck = replace(FINE, cause="compute-node-killed", lost_acknowledged=2, lost_confirmed=2, gap=1.5)
    figures = {
        "measured": "today",
        "machine": "two",
        "load": 1,
        "minutes": 1.0,
        "seed": 7,
        "operator_restarts": 3,
        **report([struck]),
    }
    text = matrixone_page(figures)
    assert "The operator lost its Lease and ended 3 times." in text
    assert "500 acknowledged rows, of which **2 lost**" in text
    assert "| compute-node-killed | 1 | 500 | 2 | 1.5 / 1.5 | 0 / 0 |" in text
    assert "FAILED: 1 (compute-node-killed): 2 confirmed writes lost" in text


@pytest.mark.parametrize("lane", LANES)
def test_every_cause_strikes_before_any_strikes_again(lane: type[Lane]) -> None:
    causes = list(lane.causes)
    first = list(islice(draw(causes, random.Random(7)), 2 * len(causes)))

    assert sorted(first[: len(causes)]) == sorted(first[len(causes) :]) == sorted(causes)
    assert first == list(islice(draw(causes, random.Random(7)), 2 * len(causes)))


@pytest.mark.embedded
@pytest.mark.nightly
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "words", [["bench/faults.py"], ["-m", "bench.cluster_faults"]], ids=["sentinel", "cluster"]
)
def test_faults_strike_real_servers_and_are_counted(words: list[str], tmp_path: Path) -> None:
    causes = ["master-emptied", "replica-deleted"]
    asked = [word for cause in causes for word in ("--cause", cause)]
    run = [*words, "--minutes", "0", "--faults", "2", "--lanes", "1", "--out", str(tmp_path / "o"), *asked]
    done = subprocess.run([sys.executable, *run], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    figures = json.loads((tmp_path / "o").read_text())
    assert sorted(figures["causes"]) == causes
    assert figures["acknowledged"] > 100
    assert figures["causes"]["master-emptied"]["gap"]["max"] > 0.1


@pytest.mark.parametrize(
    ("name", "figures", "image"),
    [
        ("mysql_faults.json", {}, "mysql_faults"),
        ("mariadb_faults.json", {}, "mariadb_faults"),
        ("raw.json", {"image": "mysql:9.7"}, "mysql:9.7"),
    ],
)
def test_figures_from_a_file_are_of_the_servers_it_names(
    tmp_path: Path, name: str, figures: dict[str, str], image: str
) -> None:
    source = tmp_path / name
    source.write_text(json.dumps(figures))
    assert mysql_faults.image_in(source) == image


def test_figures_that_name_no_servers_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "raw.json"
    source.write_text("{}")
    with pytest.raises(SystemExit, match="neither its figures nor its name say mysql or mariadb"):
        mysql_faults.image_in(source)
