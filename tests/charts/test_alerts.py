"""Alerts and dashboards: each alert fires when it should and only then, and is explained."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hack.build import promtool
from hack.metrics import PAGE, families, page
from tests.charts.helm import CHART, ROOT
from tests.charts.prometheus import JOB, expressions, rendered_rules

TEMPLATE = (CHART / "templates" / "monitoring.yaml").read_text()
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
ALERTS = re.findall(r"- alert: (\w+)", TEMPLATE)
#: Metrics of the exporters of redis and mysqld that dashboards show.
EXPORTERS = {
    *("redis_up", "redis_memory_used_bytes", "redis_commands_processed_total", "redis_connected_clients"),
    *("mysql_up", "mysql_global_status_threads_connected", "mysql_global_status_queries"),
}
#: Words of PromQL that stand where a metric could.
WORDS = {"by", "and", "or", "unless", "offset"}


def _template_expressions() -> list[str]:
    found = re.findall(r"^ +expr: (.*)$", TEMPLATE, re.MULTILINE)
    return [re.sub(r"\{\{.*?\}\}", "", one) for one in found]


def _metrics_of(query: str) -> set[str]:
    """The metrics that a query names: words that are no function, no label and no number."""
    by_pattern = re.findall(r'__name__=~"(\w+)\((\w+)\|(\w+)\)(\w+)"', query)
    named = {f"{start}{middle}{end}" for start, *middles, end in by_pattern for middle in middles}
    plain = re.sub(r"\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)|\boffset \w+", "", query)
    words = re.findall(r"\b[a-z_][a-z0-9_]*\b(?!\s*\()", plain)
    return named | {re.sub(r"_(bucket|sum|count)$", "", word) for word in words if word not in WORDS}


def test_every_alert_has_severity_texts_and_a_runbook_and_every_runbook_an_alert() -> None:
    sections = re.split(r"^### ", RUNBOOKS, flags=re.MULTILINE)[1:]
    explained = {section.partition("\n")[0].strip(): section for section in sections}
    assert sorted(explained) == sorted(ALERTS)
    for name, section in explained.items():
        for part in ("**What it means.**", "**How to see it.**", "**What to do.**"):
            assert part in section, f"{name}: {part}"
    for block in re.split(r"^    - alert: ", TEMPLATE, flags=re.MULTILINE)[1:]:
        name = block.partition("\n")[0]
        for line in (
            r"labels: \{severity: (critical|warning)\}",
            r"summary: \S",
            r"description: \S",
            rf"runbook_url: .*\}}\}}#{name.lower()}$",
        ):
            assert re.search(line, block, re.MULTILINE), f"{name}: {line}"


def test_rules_and_dashboards_name_metrics_that_the_operators_or_the_exporters_have() -> None:
    queries = [*_template_expressions(), *(query for _, query in expressions())]
    named = {query: _metrics_of(query) for query in queries}
    assert len(ALERTS) < len(named)
    assert all(named.values()), [query for query, found in named.items() if not found]
    known = families().keys() | EXPORTERS
    assert set().union(*named.values()) - known == set()


def test_the_page_of_metrics_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run make generated"
    assert all(family.documentation for family, _ in families().values())


# --- what fires ------------------------------------------------------------------------------------------------

DEMO = {"exported_namespace": "default", "name": "demo"}
#: Limits that keep the series of the cases short.
SHORT = ("prometheusRule.backupAgeSeconds=3600", "prometheusRule.verifiedAgeSeconds=7200")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Series of one value a minute, when the alert fires with which labels, and when it does not."""

    series: Mapping[str, str]
    fires: Sequence[str] = ()
    quiet: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: DEMO)


def _series(metric: str, **labels: str) -> str:
    pairs = ",".join(f'{name}="{value}"' for name, value in {**JOB, **(labels or DEMO)}.items())
    return f"{metric}{{{pairs}}}"


def _gone(metric: str) -> list[Case]:
    """A gauge that is 0 for longer than two minutes; shorter does not count, and it ends by itself."""
    return [
        Case(series={_series(metric): "1x5 0x9 1x5"}, fires=["9m"], quiet=["5m", "7m", "16m"]),
        Case(series={_series(metric): "1x5 0x0 1x9"}, quiet=["6m", "8m"]),
    ]


def _aged(metric: str, minutes: int) -> list[Case]:
    """A moment that lies too far back for ten minutes; another moment ends it."""
    limit = f"{minutes}m"
    renewed = f"0x{minutes + 15} {(minutes + 16) * 60}x20"
    return [
        Case(series={_series(metric): renewed}, fires=[f"{minutes + 12}m"], quiet=[limit, f"{minutes + 20}m"])
    ]


def _counted(metric: str, **labels: str) -> list[Case]:
    """A counter that grew in the last 15 minutes."""
    return [
        Case(series={_series(metric, **labels): "0x5 1x30"}, fires=["7m"], quiet=["4m", "30m"], labels=labels)
    ]


CASES: dict[str, list[Case]] = {
    "MooringRedisClusterUnhealthy": _gone("redis_operator_controller_cluster_healthy"),
    "MooringRedisDataLost": [
        Case(
            series={_series("redis_operator_controller_data_lost"): "_x5 1x70 2x70"},
            fires=["7m", "60m", "77m"],
            quiet=["3m", "70m", "140m"],
        )
    ],
    "MooringRedisShardsNotReady": _gone("mooring_redis_cluster_ready"),
    "MooringRedisBackupTooOld": [
        *_aged("mooring_redis_sentinel_backup_last_success_timestamp_seconds", 60),
        *_aged("mooring_redis_cluster_backup_last_success_timestamp_seconds", 60),
    ],
    "MooringRedisBackupNotVerified": [
        *_aged("mooring_redis_sentinel_backup_last_verified_timestamp_seconds", 120),
        *_aged("mooring_redis_cluster_backup_last_verified_timestamp_seconds", 120),
    ],
    "MooringMySQLClusterTakesNoWrites": _gone("mooring_mysql_ready"),
    "MooringMySQLDurabilityWeakened": [
        Case(series={_series("mooring_mysql_strict"): "1x5 0x30 1x9"}, fires=["20m"], quiet=["12m", "38m"]),
        Case(series={_series("mooring_mysql_strict"): "0x60"}, quiet=["30m", "60m"]),
    ],
    "MooringMySQLBackupTooOld": _aged("mooring_mysql_backup_last_success_timestamp_seconds", 60),
    "MooringMySQLBackupNotVerified": _aged("mooring_mysql_backup_last_verified_timestamp_seconds", 120),
    "MooringMySQLArchiveBehind": _aged("mooring_mysql_archive_complete_timestamp_seconds", 15),
    "MooringMatrixOneClusterNotReady": _gone("mooring_matrixone_cluster_ready"),
    "MooringMatrixOneBackupTooOld": _aged("mooring_matrixone_backup_last_success_timestamp_seconds", 60),
    "MooringMatrixOneBackupNotVerified": _aged(
        "mooring_matrixone_backup_last_verified_timestamp_seconds", 120
    ),
    "MooringVolumesAtMaximum": [
        Case(
            series={_series("mooring_volumes_at_maximum"): "0x5 1x20 0x9"}, fires=["14m"], quiet=["9m", "28m"]
        ),
        Case(series={_series("mooring_volumes_at_maximum"): "0x5 1x2 0x9"}, quiet=["7m", "12m"]),
    ],
    "MooringOperatorAbsent": [
        Case(series={}, fires=["3m"], quiet=["1m"], labels=JOB),
        Case(series={_series("leader_election_master_status", name="mooring"): "0x9"}, quiet=["5m"]),
    ],
    "MooringNobodyLeads": [
        Case(
            series={
                _series("leader_election_master_status", name="mooring", pod="a"): "1x5 0x20",
                _series("leader_election_master_status", name="mooring", pod="b"): "0x12 1x20",
            },
            fires=["9m"],
            quiet=["5m", "7m", "14m"],
            labels={"name": "mooring"},
        )
    ],
    "MooringPanics": _counted("controller_runtime_reconcile_panics_total", controller="mysql"),
    "MooringReconcileErrors": [
        Case(
            series={_series("controller_runtime_reconcile_errors_total", controller="mysql"): "0+12x40"},
            fires=["30m"],
            quiet=["10m"],
            labels={"controller": "mysql"},
        ),
        Case(
            series={_series("controller_runtime_reconcile_errors_total", controller="mysql"): "0+3x40"},
            quiet=["30m"],
        ),
    ],
    "MooringStepRepeats": _counted("mooring_actor_repeated_steps_total", controller="mysql"),
    "MooringObjectsNotDecoded": _counted("informer_decode_errors_total", kind="MySQLCluster"),
    "MooringLoopLags": [
        Case(
            series={_series("loop_lag_seconds", pod="a"): "2x9 0.1x9"},
            fires=["7m"],
            quiet=["4m", "12m"],
            labels={},
        )
    ],
    "MooringWebhookCertificateEnds": [
        Case(
            series={_series("webhook_certificate_expiry_timestamp_seconds", pod="a"): "600000x90 9000000x9"},
            fires=["70m"],
            quiet=["59m", "95m"],
            labels={},
        )
    ],
}


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert sorted(CASES) == sorted(ALERTS)
    for name, cases in CASES.items():
        assert any(case.fires for case in cases), name
        assert any(case.quiet for case in cases), name


def _expected(rule: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """A firing alert as promtool compares it: all labels, and texts with the labels in place."""

    def put(text: str) -> str:
        return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)

    return {
        "exp_labels": {**labels, **rule["labels"]},
        "exp_annotations": {name: put(text) for name, text in rule["annotations"].items()},
    }


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    rules = rendered_rules(tmp_path, *SHORT)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    by_name = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in case.series.items()],
            "alert_rule_test": [
                {"eval_time": at, "alertname": name, "exp_alerts": expected}
                for times, expected in (
                    (case.fires, [_expected(by_name[name], case.labels)] if case.fires else []),
                    (case.quiet, []),
                )
                for at in times
            ],
        }
        for name, cases in CASES.items()
        for case in cases
    ]
    (tmp_path / "tests.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    for words in (("check", "rules", "--lint-fatal", "rules.yml"), ("test", "rules", "tests.yml")):
        done = subprocess.run([promtool(), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
