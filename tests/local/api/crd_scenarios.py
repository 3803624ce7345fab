"""CustomResourceDefinitions to be refused, and CEL rules with values, as data."""

from __future__ import annotations

from typing import Any

__all__ = ["DEFINITIONS", "RULES", "definition"]

JsonObject = dict[str, Any]


def definition(spec: JsonObject | None = None, *, name: str = "", **changes: Any) -> JsonObject:
    """Return a CRD whose version v1 has `spec` as the schema of .spec; changes are dotted paths of its spec."""
    version: JsonObject = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec or {"type": "object"}}}},
    }
    crd: JsonObject = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name or "things.rules.mooring.dev"},
        "spec": {
            "group": "rules.mooring.dev",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }
    for path, value in changes.items():
        node: Any = crd["spec"]
        keys: list[Any] = [int(key) if key.isdigit() else key for key in path.split("__")]
        for key in keys[:-1]:
            node = node[key]
        if value is None:
            node.pop(keys[-1])
        else:
            node[keys[-1]] = value
    return crd


def _field(schema: JsonObject) -> JsonObject:
    return definition({"type": "object", "properties": {"f": schema}})


def _root(**schema: Any) -> JsonObject:
    return definition(versions__0__schema__openAPIV3Schema={"type": "object", **schema})


_KEYED: JsonObject = {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}
_MAP: JsonObject = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]}
_VERSION: JsonObject = {
    "name": "v2",
    "served": True,
    "storage": False,
    "schema": {"openAPIV3Schema": {"type": "object"}},
}

DEFINITIONS: dict[str, JsonObject] = {
    "a good one": definition(),
    "another name": definition(name="others.rules.mooring.dev"),
    "no group": definition(group="", name="things."),
    "a group without a dot": definition(group="rules", name="things.rules"),
    "a scope unknown": definition(scope="Sideways"),
    "no storage version": definition(versions__0__storage=False),
    "two storage versions": definition(versions=[
        {**_VERSION, "name": "v1", "storage": True}, {**_VERSION, "storage": True},
    ]),
    "a version twice": definition(versions=[{**_VERSION, "storage": True}, _VERSION]),
    "a bad version name": definition(versions__0__name="V1"),
    "bad names": definition(names={"plural": "things", "kind": "a b", "singular": "A", "shortNames": ["X"], "listKind": "a b"}),
    "kind is listKind": definition(names={"plural": "things", "kind": "Thing", "listKind": "Thing"}),
    "no kind": definition(names={"plural": "things", "kind": ""}),
    "no schema": definition(versions__0__schema=None),
    "a kubernetes group": definition(group="x.k8s.io", name="things.x.k8s.io"),
    "preserving all": definition(preserveUnknownFields=True),
    "a bad column": definition(versions__0__additionalPrinterColumns=[{"name": "", "type": "text", "jsonPath": "spec"}]),
    "a bad scale": definition(versions__0__subresources={"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ""}}),
    "a deprecation warning without deprecation": definition(versions__0__deprecationWarning="x"),
    "webhook conversion without webhook": definition(conversion={"strategy": "Webhook"}),
    "an unknown conversion": definition(conversion={"strategy": "Sideways"}),
    "a bad selectable field": definition(
        {"type": "object", "properties": {"a": {"type": "object"}}},
        versions__0__selectableFields=[{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.b"}, {"jsonPath": ".metadata.name"}],
    ),
    # structure
    "no type": _field({}),
    "no type of items": _field({"type": "array", "items": {}}),
    "no items": _field({"type": "array"}),
    "an unknown type": _field({"type": "text"}),
    "type null": _field({"type": "null"}),
    "no type at the root": definition(versions__0__schema__openAPIV3Schema={"properties": {"spec": {"type": "object"}}}),
    "a string at the root": definition(versions__0__schema__openAPIV3Schema={"type": "string"}),
    "additional properties at the root": _root(additionalProperties={"type": "string"}),
    "both kinds of properties": _field({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
    "metadata restricted": _root(properties={"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}),
    "metadata's name restricted": _root(properties={"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}),
    "a type below anyOf": _field({"type": "string", "anyOf": [{"type": "string"}]}),
    "int-or-string by anyOf": _field({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
    "more than values below allOf": _field({
        "type": "object", "properties": {"a": {"type": "string"}},
        "allOf": [{"properties": {"a": {"default": "x", "nullable": True, "description": "d"}}, "additionalProperties": {}}],
    }),
    "anyOf at the root names what is not there": _root(properties={}, anyOf=[{"required": ["spec"], "properties": {"zz": {"minLength": 1}}}]),
    "a bad pattern": _field({"type": "string", "pattern": "("}),
    "unique items": _field({"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
    "an id and a ref": _field({"type": "object", "id": "x", "$ref": "y", "patternProperties": {"a": {"type": "string"}}}),
    "nullable at the root": _root(nullable=True),
    "preserving false": _field({"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
    "int-or-string with a type": _field({"type": "string", "x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}),
    "embedded without properties": _field({"type": "object", "x-kubernetes-embedded-resource": True}),
    "embedded string": _field({"type": "string", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}),
    # defaults
    "a default of another type": _field({"type": "integer", "default": "x"}),
    "a default with unknown fields": _field({"type": "object", "default": {"b": 1}, "properties": {"a": {"type": "string"}}}),
    "a default out of range": _field({"type": "integer", "default": 9, "maximum": 5}),
    "a default in metadata": _root(properties={"metadata": {"type": "object", "default": {}}}),
    # lists and maps
    "an unknown list type": _field({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
    "a list type on an object": _field({"type": "object", "x-kubernetes-list-type": "atomic"}),
    "a set of objects": _field({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
    "a map without keys": _field({"type": "array", "x-kubernetes-list-type": "map", "items": _KEYED}),
    "a map of strings": _field({**_MAP, "items": {"type": "string"}}),
    "keys that are not there": _field({**_MAP, "items": {"type": "object"}}),
    "keys twice": _field({**_MAP, "x-kubernetes-list-map-keys": ["n", "n"], "items": _KEYED}),
    "a key that may miss": _field({**_MAP, "items": {**_KEYED, "required": []}}),
    "a key that is an object": _field({**_MAP, "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "object"}}}}),
    "nullable items": _field({**_MAP, "items": {**_KEYED, "nullable": True}}),
    "keys without a map": _field({"type": "array", "x-kubernetes-list-map-keys": ["n"], "items": _KEYED}),
    "an unknown map type": _field({"type": "object", "x-kubernetes-map-type": "bag"}),
    # rules
    "an empty rule": _field({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}),
    "a rule with an unknown reason": _field({"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": "Because"}]}),
    "a message of two lines": _field({"type": "string", "x-kubernetes-validations": [{"rule": "true", "message": "a\nb"}]}),
    "a rule of two lines": _field({"type": "string", "x-kubernetes-validations": [{"rule": "true ||\nfalse"}]}),
    "a field path to nowhere": _field({"type": "object", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".a"}]}),
    "a rule that is no CEL": _field({"type": "string", "x-kubernetes-validations": [{"rule": "self ==", "message": "m"}]}),
    "a rule with an unknown name": _field({"type": "string", "x-kubernetes-validations": [{"rule": "other == 1"}]}),
    "a rule that is no bool": _field({"type": "string", "x-kubernetes-validations": [{"rule": "'a'"}]}),
    "a message expression that is no text": _field({"type": "string", "x-kubernetes-validations": [{"rule": "true", "messageExpression": "1"}]}),
    "a rule with a field that is not there": _field({
        "type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}},
        "x-kubernetes-validations": [{"rule": "self.a.c == 'x'"}, {"rule": "has(self.d)"}, {"rule": "has(self.a.b)"}],
    }),
    "a rule with an item's field that is not there": _field({
        "type": "array", "maxItems": 3, "items": {"type": "object", "properties": {"b": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": "self.all(x, has(x.c))"}, {"rule": "self.all(x, has(x.b))"}],
    }),
    "a rule about metadata": _root(**{
        "properties": {"spec": {"type": "object"}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name == 'x'"}, {"rule": "has(self.metadata.labels)"}],
    }),
    "oldSelf in an atomic list": _field({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}, "maxItems": 5}),
    "optionalOldSelf without oldSelf": _field({"type": "string", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": True}]}),
}  # fmt: skip

_TEXT: JsonObject = {"type": "string", "maxLength": 20}
_INT: JsonObject = {"type": "integer"}
_TEXTS: JsonObject = {"type": "array", "maxItems": 5, "items": _TEXT}


def _object(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties}


#: Schema of .spec with rules, and the values: [first, second ...]; a second one is an update of the first.
RULES: dict[str, tuple[JsonObject, list[str | JsonObject], list[Any]]] = {
    "comparing fields": (_object(a=_INT, b=_INT), ["self.a <= self.b"], [{"a": 1, "b": 2}, {"a": 3, "b": 2}]),
    "a missing field": (_object(a=_INT), ["self.a > 0"], [{}]),
    "has": (_object(a=_INT, b=_TEXT), ["!has(self.b) || has(self.a)"], [{"b": "x"}, {"a": 1, "b": "x"}, {}]),
    "a message": (_object(a=_INT), [{"rule": "self.a > 5", "message": "a must be above 5"}], [{"a": 1}]),
    "a message expression": (
        _object(s=_TEXT),
        [{"rule": "self.s == 'good'", "messageExpression": "'not ' + self.s"}],
        [{"s": "bad"}],
    ),
    "reasons and field paths": (
        _object(a=_INT),
        [{"rule": "self.a > 5", "reason": reason, "fieldPath": ".a", "message": "m"}
         for reason in ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")],
        [{"a": 1}],
    ),
    "a transition": (_object(a=_INT), ["self.a >= oldSelf.a"], [{"a": 2}, {"a": 1}, {"a": 3}]),
    "an optional transition": (
        _object(a=_INT),
        [{"rule": "oldSelf.hasValue() ? self.a >= oldSelf.value().a : self.a == 1", "optionalOldSelf": True}],
        [{"a": 2}, {"a": 1}, {"a": 0}],
    ),
    "a transition of a scalar": (
        _object(a={"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}),
        ["true"], [{"a": "x"}, {"a": "y"}, {}],
    ),
    "a transition in a keyed list": (
        _object(
            l={
                "type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {
                    "type": "object", "required": ["n"],
                    "properties": {"n": _TEXT, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}},
                },
            }
        ),
        ["true"],
        [{"l": [{"n": "a", "v": 1}, {"n": "b", "v": 2}]}, {"l": [{"n": "b", "v": 1}, {"n": "a", "v": 5}]}],
    ),
    "sets compare without order": (
        _object(l={**_TEXTS, "x-kubernetes-list-type": "set"}),
        ["self.l == oldSelf.l"], [{"l": ["a", "b"]}, {"l": ["b", "a"]}, {"l": ["a"]}],
    ),
    "macros": (
        _object(l=_TEXTS, n={"type": "array", "maxItems": 5, "items": _INT}),
        ["self.l.all(x, x.startsWith('a'))", "self.l.exists(x, x == 'ab')", "self.l.exists_one(x, x == 'ab')",
         "self.n.map(x, x * 2) == [2, 4]", "self.n.filter(x, x > 1).size() == 1"],
        [{"l": ["ab", "ac"], "n": [1, 2]}, {"l": ["b", "b"], "n": [3]}],
    ),
    "texts": (
        _object(s=_TEXT),
        ["self.s.matches('^[a-c]+$')", "self.s.contains('b')", "self.s.upperAscii() == 'ABC'", "self.s.replace('a', 'x') == 'xbc'",
         "self.s.split('b')[0] == 'a'", "self.s.substring(1) == 'bc'", "self.s.indexOf('c') == 2", "size(self.s) == 3",
         "self.s.find('[b-c]+') == 'bc'", "self.s.findAll('[a-b]') == ['a', 'b']"],
        [{"s": "abc"}, {"s": "xyz"}],
    ),
    "numbers": (
        _object(d={"type": "number"}, i=_INT),
        ["self.d > 1.0", "self.d + 0.5 == 2.5", "double(self.i) == self.d", "self.i % 2 == 0", "self.i / self.i == 1"],
        [{"d": 2, "i": 2}, {"d": 1.5, "i": 0}],
    ),
    "maps": (
        {"type": "object", "maxProperties": 5, "additionalProperties": _TEXT},
        ["self.all(k, self[k] != '')", "'a' in self", "size(self) < 3", "self.exists(k, k == 'b')"],
        [{"a": "1", "b": "2"}, {"c": ""}],
    ),
    "reserved and odd names": (
        _object(**{"namespace": _TEXT, "a-b": _TEXT, "c.d": _TEXT, "e__f": _TEXT, "class": _TEXT}),
        ["self.__namespace__ == 'x'", "self.a__dash__b == 'x'", "self.c__dot__d == 'x'", "self.e__underscores__f == 'x'",
         "self.class == 'x'"],
        [{"namespace": "x", "a-b": "x", "c.d": "x", "e__f": "x", "class": "x"},
         {"namespace": "y", "a-b": "y", "c.d": "y", "e__f": "y", "class": "y"}],
    ),
    "int or string": (
        _object(p={"x-kubernetes-int-or-string": True}),
        ["type(self.p) == int ? self.p > 0 : self.p.endsWith('%')"], [{"p": 1}, {"p": "5%"}, {"p": 0}, {"p": "5"}],
    ),
    "quantities": (
        _object(q=_TEXT),
        ["isQuantity(self.q)", "quantity(self.q).isGreaterThan(quantity('500Mi'))", "quantity(self.q).compareTo(quantity('1Gi')) <= 0",
         "quantity(self.q).add(quantity('1Gi')) == quantity('2Gi')", "quantity(self.q).isInteger()"],
        [{"q": "1Gi"}, {"q": "1Mi"}],
    ),
    "not a quantity": (_object(q=_TEXT), ["quantity(self.q).isInteger()"], [{"q": "much"}]),
    "urls and addresses": (
        _object(u=_TEXT, i=_TEXT, c=_TEXT),
        ["isURL(self.u) && url(self.u).getHostname() == 'a.b'", "url(self.u).getPort() == '80'", "isIP(self.i) && ip(self.i).family() == 4",
         "isCIDR(self.c) && cidr(self.c).containsIP(self.i)", "cidr(self.c).prefixLength() == 8"],
        [{"u": "http://a.b:80/c", "i": "10.0.0.1", "c": "10.0.0.0/8"}, {"u": "http://c", "i": "1.1.1.1", "c": "10.0.0.0/16"}],
    ),
    "lists": (
        _object(n={"type": "array", "maxItems": 5, "items": _INT}),
        ["self.n.isSorted()", "self.n.sum() == 3", "self.n.max() == 2", "self.n.min() == 1", "self.n.indexOf(2) == 1",
         "self.n.lastIndexOf(9) == -1", "self.n[0] == 1"],
        [{"n": [1, 2]}, {"n": [5, 1]}],
    ),
    "out of bounds": (_object(n={"type": "array", "maxItems": 5, "items": _INT}), ["self.n[3] == 1"], [{"n": [1]}]),
    "sets": (
        _object(l=_TEXTS, m=_TEXTS),
        ["sets.contains(self.l, self.m)", "sets.intersects(self.l, self.m)", "sets.equivalent(self.l, self.m)"],
        [{"l": ["a", "b"], "m": ["b", "a"]}, {"l": ["a"], "m": ["b"]}],
    ),
    "optional values": (
        _object(a=_object(b=_INT)), ["self.?a.?b.orValue(1) == 1"], [{}, {"a": {}}, {"a": {"b": 2}}],
    ),
    "time in texts": (
        _object(t={"type": "string", "maxLength": 40}, d=_TEXT),
        ["timestamp(self.t) > timestamp('2024-01-01T00:00:00Z')", "duration(self.d) >= duration('1m')"],
        [{"t": "2024-02-01T00:00:00Z", "d": "90s"}, {"t": "2023-02-01T00:00:00Z", "d": "5s"}],
    ),
    "ratcheting": (_object(a=_INT, b=_INT), ["self.a > 5"], [{"a": 9}, {"a": 9, "b": 1}]),
    "nullable": (_object(a={"type": "string", "maxLength": 5, "nullable": True}), ["!has(self.a) || self.a == 'x'"], [{"a": "x"}, {}]),
    "nested rules": (
        _object(o={**_object(a=_INT), "x-kubernetes-validations": [{"rule": "self.a == 1"}]}), ["self.o.a == 1"], [{"o": {"a": 2}}],
    ),
}  # fmt: skip
