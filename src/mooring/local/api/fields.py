"""Field errors: what is wrong with which field, worded as a Kubernetes API server words it.

Clients, tests and people match on these texts, so they follow
k8s.io/apimachinery/pkg/util/validation/field to the letter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "FieldError",
    "GoStruct",
    "duplicate",
    "forbidden",
    "internal",
    "invalid",
    "not_found",
    "not_supported",
    "omitted",
    "render",
    "required",
    "too_long",
    "too_many",
    "type_invalid",
]

Json = Any


class GoStruct(dict[str, Any]):
    """A value shown as Go dumps its internal structs: names and order are Go's."""


class _Omitted:
    """Stands for a value that a message does not show."""


omitted: Final = _Omitted()

_TEXTS = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueTooFew": "Too few",
    "InternalError": "Internal error",
}
_WITHOUT_VALUE = {
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueTooLong",
    "InternalError",
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violated rule: `reason` is the cause's type, `field` the path (`spec.ports[0].name`)."""

    reason: str
    field: str
    value: Json
    detail: str

    @property
    def message(self) -> str:
        """The text without the field, as in `details.causes[].message`."""
        text = _TEXTS[self.reason]
        if self.reason not in _WITHOUT_VALUE and self.value is not omitted:
            text += f": {render(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def cause(self) -> dict[str, str]:
        """The entry of `details.causes` of a Status."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def render(value: Json) -> str:
    """Show a value as Go's field errors do: strings quoted, null, objects and lists as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float)):
        return str(value)
    ordered = not isinstance(value, GoStruct)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=ordered)


def required(field: str, detail: str = "") -> FieldError:
    """A value is missing."""
    return FieldError("FieldValueRequired", field, "", detail)


def invalid(field: str, value: Json, detail: str) -> FieldError:
    """A value breaks a rule."""
    return FieldError("FieldValueInvalid", field, value, detail)


def type_invalid(field: str, value: Json, detail: str) -> FieldError:
    """A value is of another type; Kubernetes shows the type's name as the value."""
    return FieldError("FieldValueTypeInvalid", field, value, detail)


def not_supported(field: str, value: Json, supported: Sequence[str]) -> FieldError:
    """A value is none of an enumeration; the texts are quoted, sorted by the caller."""
    listed = ", ".join(json.dumps(s, ensure_ascii=False) for s in supported)
    return FieldError(
        "FieldValueNotSupported", field, value, f"supported values: {listed}" if supported else ""
    )


def duplicate(field: str, value: Json) -> FieldError:
    """A value that must be unique occurs twice."""
    return FieldError("FieldValueDuplicate", field, value, "")


def not_found(field: str, value: Json) -> FieldError:
    """A value names something that does not exist."""
    return FieldError("FieldValueNotFound", field, value, "")


def forbidden(field: str, detail: str) -> FieldError:
    """A field must not be set or changed."""
    return FieldError("FieldValueForbidden", field, "", detail)


def too_long(field: str, limit: int) -> FieldError:
    """A text is longer than `limit` bytes."""
    unit = "byte" if limit == 1 else "bytes"
    return FieldError("FieldValueTooLong", field, "", f"may not be more than {limit} {unit}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    """A list holds `actual` items where `limit` are allowed."""
    unit = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooMany", field, actual, f"must have at most {limit} {unit}")


def internal(field: str, detail: str) -> FieldError:
    """The rule itself could not be evaluated."""
    return FieldError("InternalError", field, "", detail)
