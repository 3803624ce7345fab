"""The form built-in objects take when Go has decoded and encoded them.

A real server turns every built-in object into Go structs and back. That drops nulls, unknown fields
and empty optional values, adds structs that are never left out (`resources: {}`), and rewrites
quantities (`0.5` becomes `500m`) and times. managedFields, no-op detection and every client see that
form, so this module produces it, with the decoder's errors.
"""

from __future__ import annotations

import base64
import datetime
import re
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Final

from mooring.kube.quantity import split_quantity
from mooring.local.api.schema import Schema

__all__ = [
    "Decoded",
    "WireError",
    "canonical_quantity",
    "canonical_time",
    "decode",
    "json_type",
    "quantity_value",
]

Json = Any
JsonObject = dict[str, Any]


class WireError(ValueError):
    """A value that Go cannot decode; the text is Go's.

    `converted` is the text of a strategic merge patch, whose result is not decoded but converted. `at` is the path of
    a value whose type alone is wrong: Go reads on behind such a one, and tells of it when all else can be read.
    """

    def __init__(self, text: str, converted: str = "", *, at: str = "") -> None:
        super().__init__(text)
        self.converted = converted or text
        self.at = at


@dataclass(frozen=True, slots=True)
class Decoded:
    """A built-in object in its canonical form, and the paths of the fields that were dropped as unknown."""

    value: JsonObject
    unknown: tuple[str, ...]


@dataclass(slots=True)
class _Plan:
    """What a struct's fields ask for, by key: the schema, the Go type, and when it may be left out.

    `nullable` are the properties that keep empty lists or maps, or lead to such: found on first use.
    """

    fields: dict[str, tuple[Schema, str, bool]]
    always: tuple[tuple[str, Json], ...]
    nullable: tuple[tuple[str, Schema], ...] | None = None

    def nulled(self, key: str) -> bool:
        """Whether an empty list or map of this name is kept, as null."""
        return self.fields[key][0].kind in ("list", "map") and (key, None) in self.always


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: the struct's Go name and the path, both for error texts only."""

    struct: str
    path: str
    go: str


def decode(obj: JsonObject, schema: Schema) -> Decoded:
    """Return the canonical form of a built-in object; the value is `obj` itself when it already is.

    Raises WireError with Go's text for a value of a wrong type, for example
    `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.
    """
    unknown: list[str] = []
    if not isinstance(obj, dict):
        raise WireError(f"json: cannot unmarshal {json_type(obj)} into Go value of type v1.{schema.go}")
    try:
        return Decoded(_struct(obj, schema, "", unknown), tuple(unknown))
    except WireError as error:
        raise _told(obj, schema, error) from None


def _told(obj: JsonObject, schema: Schema, first: WireError) -> WireError:
    """Return the error that Go tells of: of a type that decodes itself at once, else the first of them."""
    error: WireError | None = first
    passed: set[str] = set()
    while error is not None and error.at and error.at not in passed:
        passed.add(error.at)
        steps = [index or name for index, name in re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", error.at)]
        obj, error = _without(obj, steps), None
        try:
            _struct(obj, schema, "", [])
        except WireError as found:
            error = found
    return first if error is None or error.at else WireError(str(error), first.converted)


def _without(value: Json, path: list[str]) -> Json:
    """Return a value with null in the place of what stands at a path; of a path that cannot be followed, itself."""
    if not path:
        return None
    key, *rest = path
    if isinstance(value, dict):
        return {k: _without(v, rest) if k == key else v for k, v in value.items()}
    if isinstance(value, list):
        return [_without(v, rest) if str(i) == key else v for i, v in enumerate(value)]
    return value


# --- structs ------------------------------------------------------------------------------------------


def stored(obj: JsonObject, schema: Schema) -> JsonObject:
    """Return a decoded object as it is read back: an empty list or map that is kept is none, as in protobuf."""
    result: JsonObject | None = None
    for key, child in _nullable(schema):
        item = obj.get(key)
        if item is None:
            continue
        back = _read_back(item, child) if item else (None if _plan(schema).nulled(key) else item)
        if back is not item:
            result = dict(obj) if result is None else result
            result[key] = back
    return obj if result is None else result


def _read_back(value: Json, schema: Schema) -> Json:
    if schema.kind == "struct":
        return stored(value, schema)
    if schema.kind == "list" and schema.items is not None and schema.items.kind == "struct":
        items = [stored(item, schema.items) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _nullable(schema: Schema) -> tuple[tuple[str, Schema], ...]:
    """Return the properties that keep empty lists or maps, or lead to such."""
    plan = _plan(schema)
    if plan.nullable is None:
        plan.nullable = ()  # what refers to itself ends here
        found = [
            (key, child) for key, child in schema.properties.items() if plan.nulled(key) or _keeps(child)
        ]
        plan.nullable = tuple(found)
    return plan.nullable


def _keeps(schema: Schema) -> bool:
    inner = schema.items if schema.kind == "list" else schema
    return inner is not None and inner.kind == "struct" and bool(_nullable(inner))


def _plan(schema: Schema) -> _Plan:
    if schema.plan is None:
        fields = {}
        always = []
        for key, child in schema.properties.items():
            go, flags = schema.fields.get(key, ("", "pe"))
            fields[key] = (child, go, "e" in flags and "p" not in flags and child.kind in _EMPTY)
            if (kept := _kept(child, go, flags)) is not _LEFT_OUT:
                always.append((key, kept))
        schema.plan = _Plan(fields, tuple(always))
    plan: _Plan = schema.plan
    return plan


_LEFT_OUT: Final = object()
_EMPTY: Final = frozenset(("string", "integer", "number", "boolean", "list", "map", "any"))
_ZERO: Final[dict[str, Json]] = {
    "string": "", "integer": 0, "number": 0, "boolean": False, "quantity": "0", "int-or-string": 0,
}  # fmt: skip


def _kept(schema: Schema, go: str, flags: str) -> Json:
    """Return what Go prints for a field that is not set, _LEFT_OUT when it prints nothing."""
    if "z" in flags or (
        "e" in flags and ("p" in flags or schema.kind in _EMPTY or go.startswith(("[]", "map[")))
    ):
        return _LEFT_OUT
    if "p" in flags or schema.kind in ("list", "map", "any", "raw", "time", "microtime"):
        return None
    if schema.kind == "struct":
        return dict(_plan(schema).always)
    return _ZERO[schema.kind]


def _struct(value: JsonObject, schema: Schema, path: str, unknown: list[str]) -> JsonObject:
    plan = _plan(schema)
    prefix = f"{path}." if path else ""
    result: JsonObject | None = None
    for key, item in value.items():
        field = plan.fields.get(key)
        if field is None:
            unknown.append(prefix + key)
            result = dict(value) if result is None else result
            del result[key]
            continue
        child, go, omit = field
        kind = child.kind
        decoded: Json
        if item is None:
            decoded = None
        elif kind == "string" and type(item) is str and go != "[]uint8":
            decoded = item
        elif kind == "struct" and type(item) is dict:
            decoded = _struct(item, child, prefix + key, unknown)
        else:
            decoded = _value(item, child, _Place(schema.go, prefix + key, go), unknown)
        if decoded is None or (omit and not decoded):
            result = dict(value) if result is None else result
            del result[key]
        elif decoded is not item:
            result = dict(value) if result is None else result
            result[key] = decoded
    for key, kept in plan.always:
        if key not in (value if result is None else result):
            result = dict(value) if result is None else result
            result[key] = kept
    return value if result is None else result


# --- values -------------------------------------------------------------------------------------------


def json_type(value: Json) -> str:
    """Return how Go names the JSON type of a value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _wrong(value: Json, place: _Place, kind: str, described: str = "") -> WireError:
    field = re.sub(r"\[[^\]]*\]", "", place.path)
    text = described or json_type(value)
    converted = _conversion(value, place.go, kind)
    where = f"{place.struct}.{field} of type {place.go}"
    return WireError(f"json: cannot unmarshal {text} into Go struct field {where}", converted, at=place.path)


_RESTORED: Final = {"list": "slice from", "map": "map from", "struct": "struct from:"}


def _conversion(value: Json, go: str, kind: str) -> str:
    """Word why a value cannot be converted, as k8s.io/apimachinery/pkg/runtime does."""
    names = {bool: "bool", str: "string", int: "int64", float: "float64", list: "slice", dict: "map"}
    found = names[type(value)]
    if kind in _RESTORED:
        return f"cannot restore {_RESTORED[kind]} {found}"
    if go == "[]uint8" and found != "string":
        return f"cannot restore slice from {found}"
    number = kind in ("integer", "number")
    if (found == "int64" and kind == "string") or (found == "float64" and number):
        return f"cannot convert {found} to {go}"
    return f"unrecognized type: {go if go in _BASIC else 'string'}"


_BASIC: Final = frozenset(("bool", "string", "int32", "int64", "float64"))


def _element(place: _Place, index: object) -> _Place:
    go = place.go.removeprefix("[]") if place.go.startswith("[]") else place.go.removeprefix("map[string]")
    return _Place(place.struct, f"{place.path}[{index}]", go)


def _value(value: Json, schema: Schema, place: _Place, unknown: list[str]) -> Json:
    kind = schema.kind
    if kind == "struct":
        if isinstance(value, dict):
            return _struct(value, schema, place.path, unknown)
        raise _wrong(value, place, kind)
    if kind == "list":
        return _list(value, schema, place, unknown)
    if kind == "map":
        return _map(value, schema, place, unknown)
    return _SCALARS[kind](value, place)


def _list(value: Json, schema: Schema, place: _Place, unknown: list[str]) -> Json:
    if not isinstance(value, list):
        raise _wrong(value, place, "list")
    items = schema.items
    if items is None:
        return value
    result: list[Json] | None = None
    for index, item in enumerate(value):
        if item is None:
            decoded = _zero(items)
        elif items.kind == "string" and type(item) is str:
            continue
        elif items.kind == "struct" and type(item) is dict:
            decoded = _struct(item, items, f"{place.path}[{index}]", unknown)
        else:
            decoded = _value(item, items, _element(place, index), unknown)
        if decoded is not item:
            result = list(value) if result is None else result
            result[index] = decoded
    return value if result is None else result


def _map(value: Json, schema: Schema, place: _Place, unknown: list[str]) -> Json:
    if not isinstance(value, dict):
        raise _wrong(value, place, "map")
    values = schema.additional
    if values is None:
        return value
    result: JsonObject | None = None
    for key, item in value.items():
        if values.kind == "string" and type(item) is str and place.go != "map[string][]uint8":
            continue
        decoded = _zero(values) if item is None else _value(item, values, _element(place, key), unknown)
        if decoded is not item:
            result = dict(value) if result is None else result
            result[key] = decoded
    return value if result is None else result


def _zero(schema: Schema) -> Json:
    return dict(_plan(schema).always) if schema.kind == "struct" else _ZERO.get(schema.kind)


def _string(value: Json, place: _Place) -> Json:
    if not isinstance(value, str):
        raise _wrong(value, place, "string")
    if place.go == "[]uint8":
        _check_base64(value)
    return value


def _check_base64(text: str) -> None:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except ValueError:
        found = re.match(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text)
        at = found.end() if found else 0
        rest = re.match(r"[A-Za-z0-9+/]*", text[at:])
        offset = at + (rest.end() if rest else 0)
        if offset == len(text):
            offset = at
        raise WireError(f"illegal base64 data at input byte {offset}") from None


_RANGES: Final = {"int32": 2**31, "int64": 2**63, "int": 2**63, "uint32": 2**32}


def _integer(value: Json, place: _Place) -> Json:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(value, place, "integer")
    limit = _RANGES.get(place.go, 2**63)
    if isinstance(value, float) or not -limit <= value < limit:
        raise _wrong(value, place, "integer", f"number {value}")
    return value


def _number(value: Json, place: _Place) -> Json:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(value, place, "number")
    return value


def _boolean(value: Json, place: _Place) -> Json:
    if not isinstance(value, bool):
        raise _wrong(value, place, "boolean")
    return value


def _quantity(value: Json, place: _Place) -> Json:
    """Canonical quantity; amounts of resources are rounded up to thousandths."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise WireError(_QUANTITY_TEXT)
    canonical = canonical_quantity(str(value), milli=place.path.endswith("]"))
    return value if value == canonical else canonical


def _unfit(described: str, place: _Place, go: str) -> WireError:
    """Return the error of a type that decodes itself, which the decoder around it tells the field of."""
    field = re.sub(r"\[[^\]]*\]", "", place.path)
    return WireError(
        f"json: cannot unmarshal {described} into Go struct field {place.struct}.{field} of type {go}",
        f"json: cannot unmarshal {described} into Go value of type {go}",
    )


def _int_or_string(value: Json, place: _Place) -> Json:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        described = f"number {value}" if isinstance(value, float) else json_type(value)
        raise _unfit(described, place, "int32")
    if not -(2**31) <= value < 2**31:
        raise _unfit(f"number {value}", place, "int32")
    return value


def _time(value: Json, place: _Place) -> Json:
    if not isinstance(value, str):
        raise _unfit(json_type(value), place, "string")
    canonical = canonical_time(value)
    return value if value == canonical else canonical


def _microtime(value: Json, place: _Place) -> Json:
    if not isinstance(value, str):
        raise _unfit(json_type(value), place, "string")
    canonical = canonical_time(value, micro=True)
    return value if value == canonical else canonical


def _raw(value: Json, place: _Place) -> Json:
    return value


_SCALARS: Final = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "time": _time,
    "microtime": _microtime,
    "raw": _raw,
    "any": _raw,
}

# --- quantities and times -----------------------------------------------------------------------------

_QUANTITY_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_SUFFIX: Final = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}


_EXACT: Final = Context(prec=200)
_NANO: Final = Decimal("1e-9")
_MILLI: Final = Decimal("1e-3")


def _parsed(text: str) -> tuple[Decimal, str]:
    try:
        return split_quantity(text.strip())
    except ValueError:
        raise WireError(_QUANTITY_TEXT) from None


def quantity_value(text: str) -> Decimal:
    """Return the number a quantity stands for; raises WireError."""
    return _parsed(text)[0]


@lru_cache(maxsize=8192)
def canonical_quantity(text: str, *, milli: bool = False) -> str:
    """Return a quantity as Kubernetes prints it: `0.5` is `500m`, `1024Mi` is `1Gi`; raises WireError.

    What is finer than a billionth (`milli`: a thousandth) is rounded up.
    """
    text = text.strip()
    number, suffix = _parsed(text)
    rounded = number.quantize(_MILLI if milli else _NANO, rounding=ROUND_UP, context=_EXACT)
    if _passes(text, suffix) and rounded == number:
        return text
    if not rounded:
        return "0"
    if suffix in _BINARY:
        if abs(rounded) > _MOST:
            return f"{'-' if rounded < 0 else ''}{_MOST}"
        if abs(rounded) >= 1024 and rounded == rounded.to_integral_value():
            return _binary(int(rounded))
    return _decimal(rounded, exponent_form=suffix not in _BINARY and suffix not in _DECIMAL)


_MOST: Final = 2**63 - 1


def _passes(text: str, suffix: str) -> bool:
    """Tell whether Go takes a text as canonical without a closer look; so `+2` and `5.` stay as they are."""
    whole, _, fraction = text.removesuffix(suffix).lstrip("+-").partition(".")
    whole = whole.lstrip("0") or "0"
    digits = whole + fraction
    if suffix in _BINARY:
        bits = 10 * _BINARY[suffix]
        return not fraction and 14 - len(whole) - bits * 3 // 10 >= 0 and int(whole) % 8 != 0
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    scale = exponent - len(fraction)
    if len(digits) > 18 or scale < -9:
        return False
    return scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _binary(number: int) -> str:
    power = 0
    while number % 1024 == 0 and power < 6:
        number //= 1024
        power += 1
    return f"{number}{_BINARY_SUFFIX[power]}"


def _decimal(number: Decimal, *, exponent_form: bool) -> str:
    sign, digits, exponent = number.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    mantissa = int("".join(map(str, digits))) * 10 ** (exponent % 3)
    exponent -= exponent % 3
    suffix = (
        (f"e{exponent}" if exponent else "")
        if exponent_form
        else _DECIMAL_SUFFIX.get(exponent, f"e{exponent}")
    )
    return f"{'-' if sign else ''}{mantissa}{suffix}"


_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


@lru_cache(maxsize=2048)
def canonical_time(text: str, *, micro: bool = False) -> str:
    """Return an RFC 3339 time in UTC with whole seconds (or microseconds); raises WireError."""
    found = _TIME.fullmatch(text)
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    if found is None:
        raise WireError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    if micro and len(found[2] or "") != 7:
        rest = (found[2] or "") + found[3]
        raise WireError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"')
    fraction = (found[2] or "")[:7]
    try:
        moment = datetime.datetime.fromisoformat(found[1] + fraction + found[3])
    except ValueError:
        raise WireError(f'parsing time "{text}": day out of range') from None
    utc = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds" if micro else "seconds") + "Z"
