"""Which operators a value of ``--operators`` stands for."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from mooring.operators.operator import Demo, minutes, seconds
from mooring.operators.redis.backup.types import RedisBackup, RedisBackupSchedule
from mooring.operators.registry import OPERATORS, choose, operator_of
from mooring.testing.show import Show

ALL = list(OPERATORS)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("*", ALL),
        ("", ALL),
        ("none", []),
        ("redis-cluster", ["redis-cluster"]),
        ("redisCluster", ["redis-cluster"]),
        ("redis-cluster, redis-sentinel", ["redis-sentinel", "redis-cluster"]),
        ("*,-redis-sentinel", [name for name in ALL if name != "redis-sentinel"]),
        ("*,redis-cluster", ALL),
        ("-redis-cluster,redis-cluster", []),
    ],
)
def test_names_star_and_minus_choose_operators_and_the_first_word_on_one_counts(
    value: str, names: list[str]
) -> None:
    assert [one.name for one in choose(value)] == names


def test_one_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="there is no '-redis9'"):
        choose("*,-redis9")


@pytest.mark.parametrize("name", ALL)
def test_every_function_that_an_operator_offers_is_there(name: str) -> None:
    operator = OPERATORS[name]
    parts = ("register", "webhooks", "explain", "save", "replay", "plan_upgrade")
    for offered in filter(None, (getattr(operator, part) for part in parts)):
        module, _, function = offered.__name__.rpartition(".")
        assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("name", ALL)
def test_the_options_of_an_operator_are_parameters_of_its_register(name: str) -> None:
    module, _, function = OPERATORS[name].register.__name__.rpartition(".")
    taken = signature(getattr(import_module(module), function)).parameters
    passed_on = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    for option in OPERATORS[name].options:
        assert passed_on or option.keyword in taken
        option.parse(option.default)


def test_no_two_operators_share_a_flag_an_alias_or_a_kind() -> None:
    flags = [flag for one in OPERATORS.values() for option in one.options for flag in option.flags]
    names = [name for one in OPERATORS.values() for name in (one.name, *one.aliases)]
    for listed in (flags, names):
        assert len(listed) == len(set(listed))
    kinds = Counter(kind for one in OPERATORS.values() for kind in one.kinds)
    # Each Redis operator acts on the backups of its own kind of cluster.
    assert {kind for kind, number in kinds.items() if number > 1} == {RedisBackup, RedisBackupSchedule}
    for one in OPERATORS.values():
        assert all(operator_of(kind) is one for kind in one.kinds if kinds[kind] == 1)


@pytest.mark.parametrize(
    "module", ["crds", "main", "plan_upgrade", "remove_clusters", "replay", "run", "up", "why"]
)
def test_the_command_line_imports_no_operator(module: str) -> None:
    found = import_module(f"mooring.cli.{module}").__file__
    assert found is not None
    assert "mooring.operators.redis" not in Path(found).read_text()


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [(seconds, "15", 15.0), (seconds, "1m30s", 90.0), (minutes, "20", 1200.0), (minutes, "0.5", 30.0)],
)
def test_durations_are_seconds(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"), [(seconds, "0"), (seconds, "15x"), (minutes, "0"), (minutes, "soon"), (minutes, "-1")]
)
def test_a_duration_that_is_none_or_not_positive_is_refused(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse(text)


def test_backups_and_what_carries_out_one_task_serve_no_clients() -> None:
    without = {kind.__name__ for one in OPERATORS.values() for kind in one.kinds if not one.serves(kind)}
    assert {"MySQLBackup", "RedisBackupSchedule", "BackupJob", "RestoreJob", "BucketClaim"} <= without
    assert not {"RedisCluster", "MySQLCluster", "MatrixOneCluster", "CNSet"} & without


@pytest.mark.parametrize(
    "demo", [one.demo for one in OPERATORS.values() if one.demo], ids=lambda one: one.name
)
def test_the_story_of_a_demo_is_there(demo: Demo) -> None:
    module, _, name = demo.story.partition(":")
    assert issubclass(getattr(import_module(module), name), Show)


def test_each_flag_of_the_ledger_opens_a_writer_of_its_own() -> None:
    ledgers = [ledger for one in OPERATORS.values() for ledger in one.ledgers]
    assert [one.flag for one in ledgers] == ["--redis", "--sentinel", "--cluster", "--mysql"]
    how = {"user": "", "password": "", "tls": None, "rate": 1.0, "wait_every": 1, "writers": 2, "table": ""}
    for one in ledgers:
        opened = one.open(["127.0.0.1:1"], **how, master_name="mymaster", follow=False)
        assert issubclass(opened.unanswered[0], Exception)
        assert callable(opened.write)
        assert callable(opened.check)
