"""What CEL rules cost by the estimate: the same refusals as a real server's, to the last digit.

Every rule stands below a list of a million items, so that the factor by which it exceeds its budget tells
its cost. Nothing is stored: the definitions are dry runs.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.comparing import Server, run
from tests.conformance.scenarios import CRDS, post
from tests.conformance.test_requests import embedded, namespace, real

__all__ = ["embedded", "namespace", "real"]

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly]

Json = Any

TEXT = {"type": "string", "maxLength": 20}
NUMBER = {"type": "integer"}
ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": TEXT, "value": NUMBER, "flag": {"type": "boolean"}},
}
FIELDS = {
    "text": TEXT,
    "other": {"type": "string", "maxLength": 7},
    "choice": {"type": "string", "enum": ["one", "three"]},
    "number": NUMBER,
    "share": {"type": "number"},
    "flag": {"type": "boolean"},
    "long": {"type": "string", "maxLength": 100},
    "free": {"type": "string"},
    "when": {"type": "string", "format": "date-time"},
    "size": {"x-kubernetes-int-or-string": True, "maxLength": 8},
    "texts": {"type": "array", "maxItems": 5, "items": TEXT},
    "numbers": {"type": "array", "maxItems": 6, "items": NUMBER},
    "items": {"type": "array", "maxItems": 4, "items": ITEM},
    "free_items": {"type": "array", "items": ITEM},
    "labels": {"type": "object", "maxProperties": 3, "additionalProperties": TEXT},
    "free_labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "inner": {"type": "object", "properties": {"text": TEXT, "deep": ITEM}},
    "nested": {
        "type": "array",
        "maxItems": 3,
        "items": {"type": "array", "maxItems": 2, "items": TEXT},
    },
}
RULES = (
    "self.number > 3",
    "self.number == 3 && self.flag",
    "self.number + 1 < self.number * 2 || self.share > 0.5",
    "self.text == 'abc'",
    "self.text == self.other",
    "self.text != self.long",
    "self.long < 'abc'",
    "self.choice == 'one' ? self.flag : self.number > 1",
    "self.text.startsWith('abc')",
    "self.text.startsWith(self.other)",
    "self.long.contains(self.text)",
    "self.long.matches('^[a-z]+$')",
    "self.text.size() > 3",
    "size(self.texts) > 3",
    "has(self.inner.text)",
    "!has(self.text) || self.text != ''",
    "self.texts.all(t, t.size() > 1)",
    "self.texts.exists(t, t == self.text)",
    "self.texts.exists_one(t, t == 'a')",
    "self.texts.map(t, t + 'x').all(u, u != '')",
    "self.texts.filter(t, t != 'a').size() < 3",
    "self.texts.all(t, self.texts.all(u, t != u))",
    "self.items.all(i, i.value > 3)",
    "self.items.all(i, i.name != 'abc' && i.flag)",
    "self.items.all(i, self.items.exists_one(j, j.name == i.name))",
    "self.free_items.all(i, i.value > 3)",
    "self.labels.all(k, k != 'abc')",
    "self.labels.all(k, self.labels[k] != 'abc')",
    "self.free_labels.all(k, k == 'a')",
    "self.inner.deep.name == 'x'",
    "'a' in self.texts",
    "self.text in ['a', 'b', 'c']",
    "'a' in self.labels",
    "self.texts == ['a', 'b']",
    "self.texts + ['c'] == ['a']",
    "self.nested.all(l, l.all(t, t != ''))",
    "self.numbers.sum() < 10",
    "self.texts.isSorted()",
    "self.numbers.max() > 1",
    "self.text.split(',').size() < 3",
    "self.texts.join(',') != ''",
    "self.text.lowerAscii() == self.text",
    "self.text.replace('a', 'bb') != self.text",
    "self.text.trim().size() > 0",
    "self.long.find('[0-9]+') == '1'",
    "quantity(self.text).isGreaterThan(quantity('1Gi'))",
    "isQuantity(self.text)",
    "url(self.long).getHost() == 'a'",
    "type(self.size) == int ? self.size > 3 : self.size == '5%'",
    "string(self.number) == '5'",
    "int(self.text) > 3",
    "self.texts[0] == 'a'",
    "self.items[0].name == self.text",
    "[self.number, 3].all(n, n > 1)",
    "{'a': self.number}['a'] > 1",
    "cel.bind(t, self.text, t != '' && t != 'b')",
    "self == oldSelf",
    "self.text == oldSelf.text",
    "self.number == oldSelf.number || self.flag",
    "self.texts.all(t, t in oldSelf.texts)",
    "self.?text.orValue('a') == 'a'",
    "self.free == 'abc'",
    "self.free.contains('abc')",
    "self.free.matches('^a$')",
    "self.number > 1 ? self.texts.all(t, t == 'a') : self.items.all(i, i.name == 'b')",
    "dyn(self.number) == 3",
    "self.texts.exists(t, t.startsWith('a') && t.endsWith('b'))",
)


def definition(rule: str, *, most: int | None = 1_000_000, message: str = "") -> Json:
    validation = {"rule": rule, **({"messageExpression": message} if message else {})}
    # Transition rules need items that can be told apart.
    items = {
        "type": "object",
        "required": ["key"],
        "properties": {**FIELDS, "key": TEXT},
        "x-kubernetes-validations": [validation],
    }
    spec: Json = {
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key"],
    }
    if most is not None:
        spec["maxItems"] = most
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.{ns}.example.com"},
        "spec": {
            "group": "{ns}.example.com",
            "scope": "Namespaced",
            "names": {"plural": "rules", "singular": "rule", "kind": "Rule", "listKind": "RuleList"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


def test_rules_cost_what_a_real_server_reckons(embedded: Server, real: Server, namespace: str) -> None:
    path = CRDS + "?dryRun=All"
    steps = [
        *(post(path, definition(rule)) for rule in RULES),
        *(post(path, definition(rule, most=None)) for rule in RULES[:8]),
        post(path, definition("self.flag", message="self.free + self.free + self.free + self.free")),
        post(path, definition("self.flag", message="self.texts.map(t, t + self.long).join(',')")),
    ]
    ours, theirs = run(embedded, steps, namespace), run(real, steps, namespace)

    wrong = [
        f"{step.body['spec']['versions'][0]['schema']['openAPIV3Schema']['properties']['spec']['items']['x-kubernetes-validations']}"
        f"\n  ours   {_said(our)}\n  theirs {_said(their)}"
        for step, our, their in zip(steps, ours, theirs, strict=True)
        if _said(our) != _said(their)
    ]
    assert not wrong, f"{len(wrong)} of {len(steps)} differ\n" + "\n".join(wrong)


def _said(answer: Json) -> Json:
    body = answer["body"]
    if "compilation failed" in str(body):  # the compilers are not the same
        return answer["status"]
    return answer["status"], body.get("message", ""), (body.get("details") or {}).get("causes")
