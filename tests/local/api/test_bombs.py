"""Patterns and rules that are meant to take for ever: each is answered in little time of the processor, or refused.

The times are those of the processor, since a busy machine may hold up the test as long as it likes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from tests.local.api.conftest import CRDS, WIDGETS, Client, definition

from mooring.local.api import patterns
from mooring.local.api.cel.rules import CompileError, compiled

Json = Any

MiB = 1 << 20
SECONDS = 3.0
"""Far above what any of them takes (0.4 s at most), and far below what they take where nothing bounds them."""


@contextmanager
def soon(seconds: float = SECONDS) -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds


def text_field(**schema: Json) -> Json:
    spec = {"type": "object", "properties": {"text": {"type": "string", **schema}}}
    return definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})


def widget(text: str) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": {"text": text},
    }


#: Patterns that an engine which goes back tries in exponentially many ways, each with a text that it matches.
BACKTRACKING = {
    "^(a+)+$": "aaa",
    "^(a|a)*$": "aaa",
    "^(a|aa)+$": "aaa",
    "^([a-z]+)*$": "abc",
    "^(.*a){30}$": "a" * 30,
    "^(([a-z])+.)+[A-Z]([a-z])+$": "ab.Ab",
    "^(a?){200}a{200}$": "a" * 300,
    "(.*)(.*)(.*)(.*)(.*)(.*)[bc]$": "aab",
    "^(?:(?:(?:a*)*)*)*$": "aaa",
    "^(a*)*b": "aab",
}
#: Groups in groups, each repeated: cheap, unless somebody asks what each has matched.
GROUPS = "(" * 500 + "a" + ")*" * 500


@pytest.mark.parametrize(
    ("pattern", "text"), [*BACKTRACKING.items(), (GROUPS, "aaa")], ids=lambda one: one[:24]
)
async def test_a_pattern_that_could_be_tried_in_many_ways_takes_the_time_of_the_text(
    api: Client, pattern: str, text: str
) -> None:
    await api.create(CRDS, text_field(pattern=pattern))
    with soon():
        await api.send("POST", WIDGETS, widget("a" * 2 * MiB + "!"))
    await api.send("DELETE", WIDGETS + "/a")
    await api.create(WIDGETS, widget(text))


@pytest.mark.parametrize(
    "pattern",
    ["(a{1000}){1000}", "((a{100}){100}){100}", "a{1001}", "\\pL{1000}"],
)
async def test_a_pattern_too_large_is_refused_with_the_definition(
    api: Client, pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with soon():
        status = await api.refused(422, "POST", CRDS, text_field(pattern=pattern))
    assert "must be a valid regular expression, but isn't" in status["message"]
    assert "re2" not in capfd.readouterr().err  # nothing of it goes past the log


async def test_a_text_too_long_for_a_pattern_of_many_steps_is_refused_with_the_remedy(api: Client) -> None:
    """The automaton of such a pattern has 2^1000 states, and is run step by step."""
    await api.create(CRDS, text_field(pattern="[ab]*a[ab]{1000}c"))
    with soon():
        status = await api.refused(422, "POST", WIDGETS, widget("ab" * MiB))
    assert status["details"]["causes"][0]["field"] == "spec.text"
    assert "is too long (2097152 characters) to be searched for a pattern of 1007 steps" in status["message"]
    assert f"shorten it to {patterns.STEPS // 1007} characters, or simplify the pattern" in status["message"]
    assert len(status["message"]) < 400
    await api.create(WIDGETS, widget("ab" * 1000 + "bc"))


def test_groups_in_groups_are_not_captured() -> None:
    """Each character would copy what every group has matched so far, in each of the pattern's places."""
    with soon(0.3):
        assert patterns.matches(GROUPS, "a" * 5000 + "!")


def test_what_can_be_written_into_a_pattern_of_kubernetes_is_searched_in_the_longest_text() -> None:
    quantity = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    for pattern in (quantity, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "^[A-Za-z0-9+/]*={0,2}$"):
        patterns.matches(pattern, "1" * 3 * MiB)


# --- rules ----------------------------------------------------------------------------------------------


def run(expression: str, value: Json) -> str:
    """What a rule gives, or why it gives nothing."""
    try:
        return str(compiled(expression, "self").eval(data={"self": value}).value())
    except (CompileError, RuntimeError) as error:
        return str(error)


@pytest.mark.parametrize("pattern", [*BACKTRACKING, GROUPS], ids=lambda one: one[:24])
@pytest.mark.parametrize("function", ["matches", "find", "findAll"])
def test_a_rules_pattern_takes_the_time_of_the_text(pattern: str, function: str) -> None:
    with soon():
        found = run(
            f"self.{function}('{pattern}') {'==' if function != 'matches' else '|| self =='} self",
            "a" * MiB + "!",
        )
    assert found in ("True", "False") or "is too long" in found


@pytest.mark.parametrize("function", ["find", "findAll"])
def test_a_rule_searches_no_text_that_is_too_long_for_its_pattern(function: str) -> None:
    with soon():
        found = run(f"size(self.{function}('[ab]*a[ab]{{1000}}c')) == 0", "ab" * MiB)
    assert "is too long" in found
    assert run(f"size(self.{function}('[ab]*a[ab]{{1000}}c')) == 0", "ab" * 100) == "True"


COMPREHENSIONS = {
    "all in all": "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))",
    "map in map": "size(self.map(a, self.map(b, self.map(c, self.map(d, a + b))))) > 0",
    "filter in exists": "self.exists(a, self.filter(b, self.filter(c, self.exists(d, d < 0)) != []) != [])",
}


@pytest.mark.parametrize("expression", COMPREHENSIONS.values(), ids=COMPREHENSIONS)
def test_loops_in_loops_end_with_the_budget_of_their_steps(expression: str) -> None:
    with soon():
        assert "Iteration budget exceeded" in run(expression, list(range(1000)))


DEEP = {
    "parentheses": "(" * 5000 + "true" + ")" * 5000,
    "lists": "[" * 5000 + "]" * 5000 + ".size() == 1",
    "calls": "size(" * 5000 + "self" + ")" * 5000 + " == 1",
    "fields": "self" + ".a" * 5000 + " == 1",
    "sums": "+".join(["1"] * 5000) + " == 5000",
    "loops": "self.all(a, " * 1000 + "true" + ")" * 1000,
    "minus": "- " * 5000 + "1 == 1",
}


@pytest.mark.parametrize("expression", DEEP.values(), ids=DEEP)
def test_an_expression_that_nests_without_end_is_refused_or_answered_at_once(expression: str) -> None:
    with soon():
        found = run(expression, {})
    assert "recursion" in found or found == "True"


def test_an_expression_longer_than_a_server_takes_is_refused() -> None:
    with soon():
        assert "exceeds codepoint limit" in run("'" + "a" * 3 * MiB + "' == self", "a")
        assert "exceeds codepoint limit" in run(" || ".join(["self == 'x'"] * 10_000), "a")


def test_an_expression_of_many_parts_is_answered_soon() -> None:
    with soon():
        assert run("||".join(["self=='x'"] * 3000), "x") == "True"
        assert run("size([" + ",".join(["1"] * 10_000) + "]) == 10000", "x") == "True"


@pytest.mark.parametrize(
    "rule",
    [
        "self.text" + ".replace('', 'xxxxxxxx')" * 8 + " == ''",
        "self.text" + ".replace('a', 'aaaaaaaaaa')" * 12 + " == ''",
        "self.text.split('').all(a, self.text.split('').all(b, self.text.split('').all(c, a + b + c != '')))",
        "self.text.matches('" + "(a|b|c)*" * 50 + "')",
    ],
)
async def test_a_rule_that_lets_a_text_grow_is_refused_with_the_definition(api: Client, rule: str) -> None:
    fields = {"text": {"type": "string"}}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]}
    crd = definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    with soon():
        status = await api.refused(422, "POST", CRDS, crd)
    assert "estimated rule cost exceeds budget" in status["message"]


async def test_a_definition_of_very_many_rules_is_answered_soon(api: Client) -> None:
    rules = [
        {"rule": f"self.text != 'v{number}' && self.text.matches('^(a+)+{number}$')"} for number in range(500)
    ]
    spec = {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 20}},
        "x-kubernetes-validations": rules,
    }
    crd = definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    with soon():
        answer = await api.send("POST", CRDS, crd)
    assert answer.status in (201, 422), msgspec.json.decode(answer.body)
