"""Every kind, verb, patch type, subresource and error path: the answers of a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.conformance.comparing import Step
from tests.conformance.corpus.kinds import registry, samples
from tests.conformance.corpus.operations import PATCHES, scenarios
from tests.conformance.servers import Difference, pair

from mooring.local.api.http import Query
from mooring.local.api.request import parse_path, segments

_SCENARIOS = scenarios()
#: Requests of the corpus, at least.
_LEAST = 2000


@cache
def _known() -> Mapping[str, frozenset[str]]:
    """Return the requests that are answered otherwise for a reason: scenario -> requests."""
    text = (Path(__file__).parent / "corpus" / "known.yaml").read_text()
    found: dict[str, set[str]] = {}
    for entry in yaml.safe_load(text):
        for scenario, requests in entry["requests"].items():
            found.setdefault(scenario, set()).update(requests)
    return {scenario: frozenset(requests) for scenario, requests in found.items()}


@pytest.fixture(scope="module")
def differences(request: pytest.FixtureRequest) -> dict[str, list[Difference]]:
    """What differs, by scenario: all that this session wants run at once, several beside each other."""
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    with pair() as servers:
        scenarios = {name: _SCENARIOS[name] for name in _SCENARIOS if name in wanted}
        return servers.compare_all(scenarios, known=_known())


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _SCENARIOS)
def test_answers_are_those_of_a_real_server(name: str, differences: dict[str, list[Difference]]) -> None:
    known = _known().get(name, frozenset())
    unexplained = [difference for difference in differences[name] if difference.request not in known]
    assert not unexplained, "\n".join(map(str, unexplained))


def test_the_corpus_is_large_and_covers_every_kind_verb_and_patch() -> None:
    sent = {touched for steps in _SCENARIOS.values() for step in steps for touched in _touched(step)}
    assert sum(map(len, _SCENARIOS.values())) >= _LEAST
    assert sorted(set(_served()) - sent) == []


def test_every_stored_kind_has_samples() -> None:
    stored = {f"{s.api_version}/{s.plural}" for s in registry() if {"create", "get", "patch"} <= set(s.verbs)}
    assert sorted(stored ^ set(samples())) == []


def test_what_is_known_to_differ_is_a_request_of_the_corpus() -> None:
    for scenario, requests in _known().items():
        named = {Difference(scenario, n, step, 0, 0).request for n, step in enumerate(_SCENARIOS[scenario])}
        assert requests <= named, scenario


def _served() -> Iterator[tuple[str, ...]]:
    """Everything that is served: resource, subresource, verb, and type for patches."""
    for served in registry():
        verbs = {"": served.verbs, **{sub.name: sub.verbs for sub in served.subresources.values()}}
        for sub, listed in verbs.items():
            typed = sub not in ("proxy", "attach")
            for verb in listed:
                kinds = PATCHES.values() if verb == "patch" and typed else ("",)
                yield from ((served.api_version, served.plural, sub, verb, kind) for kind in kinds)


def _touched(step: Step) -> Iterator[tuple[str, ...]]:
    path, _, query = step.path.partition("?")
    parts = segments(path.replace("{ns}", "ns"))
    target = parse_path(parts) if parts else None
    verb = target.verb(step.method, Query.parse(query)) if target else None
    if target is None or verb is None:
        return
    version = f"{target.group}/{target.version}" if target.group else target.version
    for kind in {"", PATCHES.get(step.type, "")} if verb == "patch" else {""}:
        yield version, target.plural, target.subresource, verb, kind
