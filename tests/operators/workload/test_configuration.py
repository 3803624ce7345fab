"""Live configuration of a database that is not Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mooring.operators.workload.configuration import (
    ConfigResult,
    Configuration,
    KeyClass,
    Keys,
    PublishConfig,
    RecordResults,
    SetKey,
    as_line,
    parse_keys,
    render_keys,
    result_of,
)

CLASSES: dict[str, KeyClass] = {"log_bin": "restart", "datadir": "forbidden", "password": "forbidden"}


def canonical(key: str) -> str:
    return key.lower().replace("-", "_")


KEYS = Keys(
    classify=lambda key: CLASSES.get(canonical(key), "live"),
    canonical=canonical,
    same=lambda key, left, right: left.lower() == right.lower(),
    secret=frozenset({"password"}),
    field="spec.settings",
)
HELD = {"max_connections": "100", "log_bin": "ON", "sort_buffer": "1"}


def configuration(wanted: dict[str, str], **changes: Any) -> Configuration:
    base = Configuration(
        keys=KEYS,
        wanted=wanted,
        declared=frozenset(wanted),
        results={},
        servers={"db-0": HELD, "db-1": HELD},
    )
    return replace(base, **changes)


def settle(one: Configuration) -> tuple[Configuration, list[SetKey]]:
    """Carry out every step as servers that take everything do; what was set on the way."""
    done: list[SetKey] = []
    while (step := one.next()) is not None:
        if isinstance(step, RecordResults):
            one = replace(one, results=step.results)
        elif isinstance(step, PublishConfig):
            one = replace(one, published=step.values)
        else:
            done.append(step)
            servers = {
                pod: {**held, canonical(step.key): step.value} if pod in step.pods else held
                for pod, held in one.servers.items()
            }
            one = replace(one, servers=servers)
    return one, done


def result(one: Configuration, key: str) -> ConfigResult:
    step = one.next()
    assert isinstance(step, RecordResults)
    return step.results[key]


def test_a_key_is_noted_set_on_all_servers_noted_again_and_published() -> None:
    one, done = settle(configuration({"max-connections": "500"}))
    assert [(step.pods, step.key, step.value) for step in done] == [
        (("db-0", "db-1"), "max-connections", "500")
    ]
    applied = one.results["max-connections"]
    assert (applied.state, applied.effective, applied.previous) == ("Applied", "500", "100")
    assert one.published == {"max-connections": "500"}


def test_keys_of_each_class_have_their_result_and_secrets_are_not_repeated() -> None:
    wanted = {"log_bin": "OFF", "datadir": "/x", "password": "hush", "no_such": "1"}
    results = {key: result(configuration(wanted), key) for key in wanted}
    states = {key: one.state for key, one in results.items()}
    assert states == {
        "log_bin": "NeedsRestart",
        "datadir": "Forbidden",
        "password": "Forbidden",
        "no_such": "Unknown",
    }
    assert "hush" not in str(results["password"])
    assert all("spec.settings" in results[key].message for key in ("datadir", "no_such"))
    one, done = settle(configuration(wanted))
    assert (done, one.published) == ([], {})


def test_two_spellings_of_a_key_with_two_values_are_refused() -> None:
    one, done = settle(configuration({"max-connections": "1", "max_connections": "2"}))
    assert one.results["max_connections"].state == "Rejected"
    assert [step.value for step in done] == ["1"]


def test_the_work_for_a_key_does_not_grow_with_the_number_of_keys() -> None:
    asked = 0

    def counted(key: str) -> str:
        nonlocal asked
        asked += 1
        return canonical(key)

    keys = {f"key_{number}": "1" for number in range(2000)}
    one = configuration(keys, keys=replace(KEYS, canonical=counted), servers={"db-0": HELD, "db-1": HELD})
    assert isinstance(one.next(), RecordResults)
    assert asked < 10 * len(keys)


def test_what_a_server_refused_is_neither_tried_again_nor_published() -> None:
    refused = {"sort_buffer": ConfigResult(wanted="-1", state="Rejected", message="no")}
    assert configuration({"sort_buffer": "-1"}, results=refused).next() is None


def test_a_clamped_value_counts_as_the_server_made_it() -> None:
    clamped = result_of(KEYS, "sort_buffer", wanted="0", shown="1", previous="1")
    assert (clamped.state, clamped.effective) == ("Clamped", "1")
    one, done = settle(configuration({"sort_buffer": "0"}, results={"sort_buffer": clamped}))
    assert (done, one.published) == ([], {"sort_buffer": "0"})


def test_a_dropped_key_gets_its_earlier_value_back_and_is_forgotten() -> None:
    before = {"max_connections": ConfigResult(wanted="500", state="Applied", effective="500", previous="100")}
    held = {"db-0": {**HELD, "max_connections": "500"}, "db-1": HELD}
    one, done = settle(configuration({}, results=before, servers=held))
    assert [(step.pods, step.value) for step in done] == [(("db-0",), "100")]
    assert one.results == {}


def test_keys_survive_being_written_and_read() -> None:
    values = {"sql_mode": 'A "B"\\C', "init": "one\ntwo", "list": "a b"}
    assert parse_keys(render_keys(values)) == values
    assert "".join(as_line("key", "value")) == 'key "value"'
