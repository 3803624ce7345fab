"""The pure engine answers as a real kube-apiserver answered when `record_golden` was run."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.local.api.crd_scenarios import DEFINITIONS, RULES
from tests.local.api.engine_harness import Engine, comparable, judged, rules_definition, rules_object
from tests.local.api.engine_scenarios import SCENARIOS, WIDGETS_CRD
from tests.local.api.record_golden import GOLDEN

from mooring.local.api import crd

Json = Any
NAMESPACE = "engine-golden"
WIDGETS = crd.compile_version(crd.default_crd(WIDGETS_CRD), "v1")


@pytest.fixture(scope="module")
def golden() -> Json:
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_requests_are_answered_as_recorded(name: str, golden: Json) -> None:
    engine = Engine(WIDGETS)
    for number, template in enumerate(SCENARIOS[name]):
        request = template.within(NAMESPACE)
        found = comparable(engine.answer(request), request, NAMESPACE)
        assert found == golden["scenarios"][name][number], f"request {number}: {request.verb} {request.path}"


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_definitions_are_refused_as_recorded(name: str, golden: Json) -> None:
    assert sorted(judged(DEFINITIONS[name])) == [tuple(error) for error in golden["definitions"][name]]


def test_what_was_found_sound_once_is_judged_by_its_own_words_again() -> None:
    sound = copy.deepcopy(WIDGETS_CRD)
    (version,) = sound["spec"]["versions"]
    assert judged(sound) == set()
    later = copy.deepcopy({**version, "name": "v2", "storage": False})
    later["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": "self.nowhere == 1"}]
    sound["spec"]["versions"].append(later)

    for _ in range(2):
        fields = {field for field, _ in judged(sound)}
        assert fields == {"spec.versions[1].schema.openAPIV3Schema.x-kubernetes-validations[0].rule"}
    del later["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    assert judged(sound) == set()


@pytest.mark.parametrize("name", sorted(RULES))
def test_rules_judge_as_recorded(name: str, golden: Json) -> None:
    definition = rules_definition(name, "rgolden")
    compiled = crd.compile_version(crd.default_crd(definition), "v1")
    old = None
    for value, expected in zip(RULES[name][2], golden["rules"][name], strict=True):
        obj = rules_object(definition, value)
        errors = compiled.validate(obj, old)
        assert sorted([e.reason, e.field, e.message] for e in errors) == expected, value
        old = obj if not errors else old
