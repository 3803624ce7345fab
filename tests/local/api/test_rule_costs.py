"""Definitions whose rules may cost too much are refused; what exactly a rule costs is compared with a real
server in tests/conformance/test_rule_costs.py."""

from __future__ import annotations

from typing import Any

import pytest
from tests.local.api.conftest import Client, definition

Json = Any

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def with_rule(rule: str, fields: Json) -> Json:
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]}
    return definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})


def listed(**limits: int) -> Json:
    return {"names": {"type": "array", "items": {"type": "string"}, **limits}}


async def test_a_rule_over_a_list_without_a_limit_is_refused_with_the_remedy(api: Client) -> None:
    unique = "self.names.all(a, self.names.exists_one(b, a == b))"

    status = await api.refused(422, "POST", CRDS, with_rule(unique, listed()))

    assert status["details"]["causes"][0] == {
        "reason": "FieldValueForbidden",
        "field": "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule",
        "message": (
            "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the "
            "rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
        ),
    }
    limited = listed(maxItems=20)
    limited["names"]["items"]["maxLength"] = 63
    await api.create(CRDS, with_rule(unique, limited))


async def test_rules_that_are_cheap_alone_may_be_too_dear_together(api: Client) -> None:
    text = {"type": "string", "maxLength": 250_000}
    node = {**text, "x-kubernetes-validations": [{"rule": "self.matches('^[a-z]{3}$')"}] * 40}
    crd = definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": {
        "type": "object", "properties": {f"f{i}": node for i in range(20)}}}}})  # fmt: skip

    status = await api.refused(422, "POST", CRDS, crd)

    fields = [cause["field"] for cause in status["details"]["causes"]]
    assert fields[-1] == "spec.validation.openAPIV3Schema"
    assert status["details"]["causes"][-1]["message"].startswith(
        "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds"
    )


@pytest.mark.parametrize("rule", ["cel.bind(x, self.names, size(x) < 3)"])
async def test_what_no_cluster_knows_is_refused(api: Client, rule: str) -> None:
    status = await api.refused(422, "POST", CRDS, with_rule(rule, listed(maxItems=3)))

    assert "undeclared reference to 'cel'" in status["message"]
