"""Validates custom resources against their schemas, worded as k8s.io/kube-openapi words it.

Values that did not change are not judged again (ratcheting): a CRD whose rules became stricter must
not make every write to an older object fail.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mooring.local.api import patterns
from mooring.local.api.fields import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    omitted,
    required,
    too_long,
    too_many,
    type_invalid,
)
from mooring.local.api.schema import META, MISSING, Schema

__all__ = ["NO_PATH", "same", "validate", "validate_lists"]

Json = Any
JsonObject = dict[str, Any]

NO_PATH: Final = "<nil>"
#: Errors after which a list or an object is not looked at further. Each may show a whole enumeration.
_MOST: Final = 100


def validate(obj: Json, schema: Schema, old: Json = MISSING) -> list[FieldError]:
    """Return what breaks the schema of a custom resource (`old` given: of a changed one)."""
    return _value(obj, schema, "", MISSING if old is None else old)


_ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode


def same(left: Json, right: Json) -> bool:
    """Tell whether two JSON values are equal; unlike Python's `==`, true is not 1.

    Objects are compared on every write, so the two quick answers come first: Python's own comparison
    says no, the encoded forms say yes. What is left (1 and 1.0, true and 1) is looked at in detail.
    """
    if left is right:
        return True
    if left != right:
        return False
    if not isinstance(left, (dict, list)):
        return isinstance(left, bool) == isinstance(right, bool)
    try:
        if _ENCODE(left) == _ENCODE(right):
            return True
    except (OverflowError, ValueError):
        pass
    return _same(left, right)


def _same(left: Json, right: Json) -> bool:
    if isinstance(left, dict):
        return all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return all(map(_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool)


def _json_type(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for python, name in ((str, "string"), (int, "integer"), (float, "number"), (dict, "object")):
        if isinstance(value, python):
            return name
    return "array"


def _value(value: Json, schema: Schema, path: str, old: Json) -> list[FieldError]:
    if old is not MISSING and path not in ("kind", "apiVersion") and same(value, old):
        return []
    return _check(value, schema, path, old)


def _check(value: Json, schema: Schema, path: str, old: Json) -> list[FieldError]:
    if value is None:
        return [*_type(None, schema, path), *_enum(None, schema, path)]
    errors = _type(value, schema, path)
    if schema.all_of or schema.any_of or schema.one_of or schema.not_ is not None:
        errors += _combined(value, schema, path)
    if isinstance(value, str):
        errors += _string(value, schema, path)
    elif isinstance(value, list):
        errors += _list(value, schema, path, old)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        errors += _number(value, schema, path)
    if schema.enum is not None:
        errors += _enum(value, schema, path)
    if isinstance(value, dict):
        errors += _object(value, schema, path, old)
    return errors


def _field(path: str) -> str:
    return path.removeprefix(".") if path and path != "." else NO_PATH


def _invalid(path: str, value: Json, rule: str) -> FieldError:
    return invalid(_field(path), value, f"{path} in body {rule}")


def _wrong_type(path: str, wanted: str, actual: str) -> list[FieldError]:
    return [type_invalid(_field(path), actual, f'{path} in body must be of type {wanted}: "{actual}"')]


_FORMATS_OF: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}


def _type(value: Json, schema: Schema, path: str) -> list[FieldError]:
    types = schema.types
    if not types:
        return []
    actual = _json_type(value)
    if value is None:
        return [] if schema.nullable else _wrong_type(path, ",".join(types), "null")
    if actual in types or (actual == "integer" and "number" in types):
        return []
    if actual == "number" and "integer" in types and value.is_integer():
        return []
    if actual not in ("string", "array") and schema.format in _FORMATS_OF.get(schema.type, ()):
        return _wrong_type(path, schema.format, "float64" if actual == "number" else "")
    return _wrong_type(path, ",".join(types), actual)


def _enum(value: Json, schema: Schema, path: str) -> list[FieldError]:
    if schema.enum is None or _frozen(value) in _allowed(schema):
        return []
    texts = [v if isinstance(v, str) else json.dumps(v, separators=(",", ":")) for v in schema.enum]
    return [not_supported(_field(path), value, texts)]


def _allowed(schema: Schema) -> frozenset[Hashable]:
    if schema.enum_values is None:
        schema.enum_values = frozenset(map(_frozen, schema.enum or ()))
    return schema.enum_values


def _frozen(value: Json) -> Hashable:
    """A value that can be looked up: equal for those that are the `same`, and only for them."""
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return (bool, value) if isinstance(value, bool) else value


def _string(value: str, schema: Schema, path: str) -> list[FieldError]:
    errors = []
    if schema.max_length is not None and len(value) > schema.max_length:
        errors.append(too_long(_field(path), schema.max_length))
    elif schema.min_length is not None and len(value) < schema.min_length:
        errors.append(_invalid(path, value, f"should be at least {schema.min_length} chars long"))
    elif schema.pattern:
        errors += _mismatch(value, schema.pattern, path)
    if schema.format and schema.type in ("", "string"):
        check = FORMATS.get(schema.format.replace("-", ""))
        if check is not None and not check(value):
            detail = f'{path} in body must be of type {schema.format}: "{value}"'
            errors.append(type_invalid(_field(path), value, detail))
    return errors


def _mismatch(value: str, pattern: str, path: str) -> list[FieldError]:
    try:
        if patterns.matches(pattern, value):
            return []
    except patterns.TooLong as error:
        return [invalid(_field(path), omitted, str(error))]
    return [_invalid(path, value, f"should match '{pattern}'")]


def _number(value: float, schema: Schema, path: str) -> list[FieldError]:
    errors = []
    bits = 32 if schema.format == "int32" else 64
    fits = float(value).is_integer() and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    if schema.types == ("integer",) and not fits:
        form = f"with format {schema.format}" if schema.format in ("int32", "int64") else "(default format)"
        errors.append(invalid(NO_PATH, "", f"Checked value must be of type integer {form} in {path}"))
    if schema.multiple_of and not float(value / schema.multiple_of).is_integer():
        errors.append(_invalid(path, value, f"should be a multiple of {_plain(schema.multiple_of)}"))
    if (low := schema.minimum) is not None and (value < low or (schema.exclusive_minimum and value == low)):
        word = "greater than" if schema.exclusive_minimum else "greater than or equal to"
        errors.append(_invalid(path, value, f"should be {word} {_plain(low)}"))
    if (high := schema.maximum) is not None and (
        value > high or (schema.exclusive_maximum and value == high)
    ):
        word = "less than" if schema.exclusive_maximum else "less than or equal to"
        errors.append(_invalid(path, value, f"should be {word} {_plain(high)}"))
    return errors


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and math.isfinite(number) else str(number)


def _list(value: list[Json], schema: Schema, path: str, old: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    if (items := schema.items) is not None:
        earlier = _by_key(old, schema) if isinstance(old, list) and schema.list_type == "map" else {}
        for index, item in enumerate(value):
            before = earlier.get(_key_of(item, schema), MISSING) if earlier else MISSING
            errors += _value(item, items, f"{path}[{index}]", before)
            if len(errors) >= _MOST:
                break
    if schema.min_items is not None and len(value) < schema.min_items:
        errors.append(_invalid(path, len(value), f"should have at least {schema.min_items} items"))
    if schema.max_items is not None and len(value) > schema.max_items:
        errors.append(too_many(_field(path), len(value), schema.max_items))
    if schema.unique and len(set(map(_frozen, value))) < len(value):
        errors.append(invalid(_field(path), "", f"{path} in body shouldn't contain duplicates"))
    return errors


def _key_of(item: Json, schema: Schema) -> str:
    if not isinstance(item, dict):
        return ""
    return json.dumps([item.get(key) for key in schema.list_keys], sort_keys=True)


def _by_key(items: list[Json], schema: Schema) -> dict[str, Json]:
    return {_key_of(item, schema): item for item in items}


def _object(value: JsonObject, schema: Schema, path: str, old: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    count = len(value)
    if schema.min_properties is not None and count < schema.min_properties:
        detail = f"{path} in body should have at least {schema.min_properties} properties"
        errors.append(invalid(_field(path), count, detail))
    if schema.max_properties is not None and count > schema.max_properties:
        errors.append(too_many(_field(path), count, schema.max_properties))
    before = old if isinstance(old, dict) else {}
    for key, item in value.items():
        if len(errors) >= _MOST:
            break
        child = schema.properties.get(key)
        if child is None:
            child = schema.additional
            if child is not None:
                errors += _value(item, child, f"{path}.{key}", before.get(key, MISSING))
            continue
        if child.name == META:
            if schema.meta_rules is None:
                continue
            child = schema.meta_rules
        errors += _value(item, child, f"{path}.{key}" if path else key, before.get(key, MISSING))
    errors += [required(_field(f"{path}.{key}")) for key in schema.required if key not in value]
    return errors


def _combined(value: Json, schema: Schema, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if schema.any_of:
        results = [_check(value, part, path, MISSING) for part in schema.any_of]
        if all(results):
            errors.append(invalid(NO_PATH, "", f'"{path}" must validate at least one schema (anyOf)'))
            errors += _shortest(results)
    if schema.one_of:
        results = [_check(value, part, path, MISSING) for part in schema.one_of]
        valid = sum(not result for result in results)
        if valid != 1:
            found = f"Found {valid} valid alternatives" if valid else "Found none valid"
            text = f'"{path}" must validate one and only one schema (oneOf). {found}'
            errors.append(invalid(NO_PATH, "", text))
            errors += _shortest(results) if not valid else []
    if schema.all_of:
        results = [_check(value, part, path, MISSING) for part in schema.all_of]
        errors += [error for result in results for error in result]
        if any(results):
            none = ". None validated" if all(results) else ""
            errors.append(invalid(NO_PATH, "", f'"{path}" must validate all the schemas (allOf){none}'))
    if schema.not_ is not None and not _check(value, schema.not_, path, MISSING):
        errors.append(invalid(NO_PATH, "", f'"{path}" must not validate the schema (not)'))
    return errors


def _shortest(results: list[list[FieldError]]) -> list[FieldError]:
    return min(results, key=lambda errors: len(errors))


# --- list types ---------------------------------------------------------------------------------------


def validate_lists(obj: Json, schema: Schema, path: str = "") -> list[FieldError]:
    """Return the duplicates in lists of type set and map, anywhere in a custom resource."""
    return list(_lists(obj, schema, path)) if schema.has_lists else []


def _lists(value: Json, schema: Schema, path: str) -> Iterator[FieldError]:
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.properties.get(key)
            if child is not None and child.has_lists:
                yield from _lists(item, child, f"{path}.{key}" if path else key)
            elif child is None and schema.additional is not None and schema.additional.has_lists:
                yield from _lists(item, schema.additional, f"{path}[{key}]")
    elif isinstance(value, list):
        if schema.list_type == "set":
            yield from (duplicate(f"{path}[{i}]", value[i]) for i in _repeated(value))
        elif schema.list_type == "map":
            yield from _map_list(value, schema, path)
        if schema.items is not None and schema.items.has_lists:
            for index, item in enumerate(value):
                yield from _lists(item, schema.items, f"{path}[{index}]")


def _map_list(value: list[Json], schema: Schema, path: str) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            yield invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            return
    keys = [{k: item[k] for k in schema.list_keys if k in item} if item else {} for item in value]
    yield from (duplicate(f"{path}[{i}]", keys[i]) for i in _repeated(keys))


def _repeated(values: Sequence[Json]) -> list[int]:
    """Return the index of each second appearance of a value."""
    seen: dict[str, int] = {}
    found = []
    for index, value in enumerate(values):
        key = json.dumps(value, sort_keys=True)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            found.append(index)
    return found


# --- formats ------------------------------------------------------------------------------------------


def _try(function: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            function(text)
        except ValueError:
            return False
        return True

    return check


def _regex(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.search(text) is not None


def _uri(text: str) -> bool:
    if any(c.isspace() or ord(c) < 32 for c in text):
        return False
    parts = urlsplit(text)
    return bool(parts.scheme) or text.startswith("/")


def _duration(text: str) -> bool:
    return (
        re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)\s*[a-zµμ]+(\s*(\d+(\.\d*)?|\.\d+)\s*[a-zµμ]+)*|0", text)
        is not None
    )


def _isbn(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if re.fullmatch(r"\d{9}[\dX]", digits):
        return sum((i + 1) * (10 if d == "X" else int(d)) for i, d in enumerate(digits)) % 11 == 0
    if re.fullmatch(r"\d{13}", digits):
        return sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(digits)) % 10 == 0
    return False


_UUID = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}$"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = r"^([a-zA-Z0-9\u00a0-\uffff]([-a-zA-Z0-9\u00a0-\uffff]{0,61}[a-zA-Z0-9\u00a0-\uffff])?\.?)+$"

# Formats the real server knows, hyphens left out ("date-time" is "datetime"); others are ignored.
FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "bsonobjectid": _regex(r"^[0-9a-fA-F]{24}$"),
    "uri": _uri,
    "email": _regex(r"^[^@\s<>]+@[^@\s<>]+$|^[^<>]*<[^@\s<>]+@[^@\s<>]+>$"),
    "hostname": lambda text: len(text) <= 255 and re.search(_HOST, text) is not None,
    "ipv4": lambda text: "." in text and _try(ipaddress.IPv4Address)(text),
    "ipv6": lambda text: ":" in text and _try(ipaddress.IPv6Address)(text),
    "cidr": lambda text: "/" in text and _try(lambda t: ipaddress.ip_network(t, strict=False))(text),
    "mac": _regex(r"^([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5,}|[0-9A-Fa-f]{4}(\.[0-9A-Fa-f]{4}){2,})$"),
    "uuid": _regex(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _regex(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _regex(_UUID % ("4", "[89ab]")),
    "uuid5": _regex(_UUID % ("5", "[89ab]")),
    "isbn": _isbn,
    "isbn10": lambda text: len(re.sub(r"[\s-]", "", text)) == 10 and _isbn(text),
    "isbn13": lambda text: len(re.sub(r"[\s-]", "", text)) == 13 and _isbn(text),
    "creditcard": lambda text: 13 <= len(re.sub(r"\D", "", text)) <= 19,
    "ssn": _regex(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
    "hexcolor": _regex(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    "rgbcolor": _regex(r"^rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)$"),
    "byte": _try(lambda text: base64.b64decode(text, validate=True)),
    "password": lambda _: True,
    "date": lambda text: len(text) == 10 and _try(datetime.date.fromisoformat)(text),
    "duration": _duration,
    "datetime": _regex(r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:?\d{2})?$"),
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_LABEL, text) is not None,
    "k8slongname": lambda text: (
        len(text) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text) is not None
    ),
}
