"""Options of taken-over operators: they start with the arguments their manifests have."""

from __future__ import annotations

import argparse

import pytest

from mooring.cli.legacy import add_legacy_options, apply_legacy_options, seconds
from mooring.cli.run import add_parser, chosen


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
    assert options.no_leader_election is False
    assert options.leader_elect_lease_duration == 30.0


def test_election_is_on_unless_it_is_switched_off() -> None:
    assert parsed().no_leader_election is False
    assert parsed("--leader-elect=false").no_leader_election is True


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
