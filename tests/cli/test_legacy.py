"""Options of taken-over operators: they start with the arguments their manifests have."""

from __future__ import annotations

import argparse

import pytest

from mooring.cli.legacy import add_legacy_options, apply_legacy_options
from mooring.cli.run import add_parser, chosen
from mooring.operators.operator import seconds


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    options = parser.parse_args(["run", *arguments])
    apply_legacy_options(options)
    return options


def test_the_arguments_of_harmonyclouds_manifest_are_accepted_and_put_where_they_belong() -> None:
    options = parsed(
        *("--operators", "redisCluster", "--master", "https://api:6443", "--resync-period", "60"),
        *(
            "--clusterTimeOut",
            "6",
            "--port",
            "10880",
            "--address",
            "127.0.0.1",
            "--operator-start-interval=0",
        ),
        *("--leader-elect=true", "--leader-elect-lease-duration", "30s", "--leader-elect-retry-period=2s"),
        *("--leader-elect-renew-deadline", "20s", "--leader-elect-resource-lock", "endpoints"),
        *("--kube-api-qps=20", "--kube-api-burst=30", "--profiling", "--revisionHistoryLimit=2"),
    )
    operators, _ = chosen(options)
    assert [one.name for one in operators] == ["redis-cluster"]
    assert operators[0].register.keywords == {"timeout": 360.0, "look_again": 60.0}  # type: ignore[attr-defined]
    assert (options.metrics_port, options.bind, options.master) == (10880, "127.0.0.1", "https://api:6443")
    assert options.probe_port == 10880, "their manifests ask /healthz on the same port"
    assert options.no_leader_election is False
    assert options.leader_elect_lease_duration == 30.0


def test_the_arguments_of_its_later_manifests_are_accepted_too() -> None:
    options = parsed(
        *("--metrics-bind-address=127.0.0.1:8090", "--health-probe-bind-address", ":8091", "--leader-elect"),
        *(
            "--cluster.local=a.b",
            "--feature-gates=",
            "--skip_headers",
            "--log_file=/dev/null",
            "--one_output=true",
        ),
    )
    assert (options.bind, options.metrics_port, options.probe_port) == ("127.0.0.1", 8090, 8091)
    with pytest.raises(SystemExit):
        parsed("--metrics-bind-address=metrics")


def test_a_port_for_probes_that_is_named_stays() -> None:
    options = parsed("--port=10880", "--probe-port=8082")
    assert (options.metrics_port, options.probe_port) == (10880, 8082)
    assert (parsed().metrics_port, parsed().probe_port) == (8080, 8081)


@pytest.mark.parametrize(
    ("given", "off"),
    [
        ([], False),
        (["--leader-elect"], False),
        (["--leader-elect=True"], False),
        (["--leader_elect=1"], False),
        (["--leader-elect=false"], True),
        (["--leader-elect=0"], True),
        (["--leader-elect=F"], True),
    ],
)
def test_election_is_on_unless_it_is_switched_off(given: list[str], off: bool) -> None:
    assert parsed(*given).no_leader_election is off


def test_the_times_and_locks_of_their_election_are_accepted() -> None:
    for lock in ("endpoints", "configmaps", "leases"):
        options = parsed(
            *("--leader-elect", f"--leader-elect-resource-lock={lock}", "--leader-elect-lease-duration=15s"),
            *("--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=2s"),
        )
        times = (
            options.leader_elect_lease_duration,
            options.leader_elect_renew_deadline,
            options.leader_elect_retry_period,
        )
        assert times == (15.0, 10.0, 2.0)


def test_every_option_may_be_written_with_underscores_as_theirs() -> None:
    options = parsed("--resync_period=20s", "--leader_elect_retry_period", "3s", "--kube_api_qps=20")
    assert (options.resync_period, options.leader_elect_retry_period) == (20.0, 3.0)
    assert parsed().resync_period == 15.0


@pytest.mark.parametrize(("given", "level"), [("-v=2", "info"), ("--v=4", "debug"), ("-v=5", "debug")])
def test_the_options_of_their_log_are_accepted(given: str, level: str) -> None:
    options = parsed(
        given, "--logtostderr=true", "--alsologtostderr", "--stderrthreshold=2", "--log-dir=/tmp"
    )
    assert options.log_level == level


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("mooring ")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("*", ["redis-sentinel", "redis-cluster", "matrixone"]),
        ("redisCluster", ["redis-cluster"]),
        ("*,redisCluster", ["redis-sentinel", "redis-cluster", "matrixone"]),
        ("*,-redis-sentinel,redisCluster", ["redis-cluster", "matrixone"]),
    ],
)
def test_operators_are_chosen_as_theirs_were(value: str, names: list[str]) -> None:
    assert [one.name for one in chosen(parsed("--operators", value))[0]] == names


@pytest.mark.parametrize(("text", "number"), [("15s", 15.0), ("1m30s", 90.0), ("60", 60.0), ("500ms", 0.5)])
def test_durations_are_read_as_go_writes_them(text: str, number: float) -> None:
    assert seconds(text) == number


def test_what_is_no_duration_is_said() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="15s or 1m30s"):
        seconds("soon")


def test_none_of_them_is_in_the_help() -> None:
    parser = argparse.ArgumentParser()
    add_legacy_options(parser)
    assert "leader-elect" not in parser.format_help()
