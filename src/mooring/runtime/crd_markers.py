"""Markers on types: what a user may write, said where the decoder does not look."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args, get_origin

import msgspec

__all__ = [
    "AGE",
    "Crd",
    "F",
    "PrinterColumn",
    "Rule",
    "Scale",
    "SchemaError",
    "at_least_one_of",
    "at_most_one_of",
    "crd",
    "crd_of",
    "exactly_one_of",
    "immutable",
    "never_removed",
    "rules",
    "rules_of",
    "unwrap",
]

S = TypeVar("S", bound=type)

_NO_DEFAULT: Final[Any] = object()


class SchemaError(Exception):
    """A type or marker cannot become a CRD; the message names the field and the remedy."""


Reason = Literal["", "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


@dataclass(frozen=True)
class Rule:
    """One CEL validation (``x-kubernetes-validations``); ``self`` is the value it stands on."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: Reason = ""
    field_path: str = ""
    optional_old_self: bool = False

    def render(self) -> dict[str, Any]:
        """The rule as the API server reads it."""
        pairs = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
            "fieldPath": self.field_path,
            "optionalOldSelf": self.optional_old_self,
        }
        return {name: value for name, value in pairs.items() if value}


def immutable(message: str = "the field cannot be changed after creation") -> Rule:
    """A value, once set, cannot be changed; setting it later, and removing it, are not changes.

    Put `never_removed` on the object around it to refuse the removal as well.
    """
    return Rule("self == oldSelf", message, reason="FieldValueForbidden")


def never_removed(*names: str, message: str = "") -> Rule:
    """The named fields (JSON names) of this object cannot be removed once they are set."""
    rule = " && ".join(f"(!has(oldSelf.{name}) || has(self.{name}))" for name in names)
    text = message or f"{', '.join(names)} cannot be removed once set"
    return Rule(rule, text, reason="FieldValueForbidden")


def at_least_one_of(*names: str, message: str = "") -> Rule:
    """At least one of the named fields (JSON names) of this object is set."""
    return Rule(_count(names) + " >= 1", message or f"at least one of {', '.join(names)} must be set")


def exactly_one_of(*names: str, message: str = "") -> Rule:
    """Exactly one of the named fields (JSON names) of this object is set."""
    return Rule(_count(names) + " == 1", message or f"exactly one of {', '.join(names)} must be set")


def at_most_one_of(*names: str, message: str = "") -> Rule:
    """At most one of the named fields (JSON names) of this object is set."""
    return Rule(_count(names) + " <= 1", message or f"at most one of {', '.join(names)} may be set")


def _count(names: Sequence[str]) -> str:
    return "[" + ", ".join(f"has(self.{name})" for name in names) + "].filter(x, x).size()"


@dataclass(frozen=True)
class F:
    """Marker on a field (or on a list item, or a map value): documentation and constraints for the CRD.

    Put it in ``Annotated``: ``size: Annotated[int | None, F("Number of pods.", minimum=3)] = None``. The
    decoder ignores it. ``default`` is the JSON value the server fills in (the Python default stays ``None``,
    so that a falsy value can still be applied). ``required`` makes the server refuse the object without it.
    ``int_or_string``, ``preserve_unknown`` and ``embedded`` set the ``x-kubernetes-*`` extension of the same
    name (an embedded resource must then carry apiVersion and kind); ``schema`` replaces the derived schema altogether (for types this walker cannot know).
    """

    doc: str = ""
    _: KW_ONLY
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    enum: Sequence[Any] | None = None
    default: Any = _NO_DEFAULT
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    list_type: Literal["atomic", "set", "map"] | None = None
    list_map_keys: Sequence[str] = ()
    map_type: Literal["atomic", "granular"] | None = None
    required: bool = False
    nullable: bool = False
    int_or_string: bool = False
    preserve_unknown: bool = False
    embedded: bool = False
    rules: Sequence[Rule] = ()
    example: Any = None
    schema: Mapping[str, Any] | None = None

    @property
    def has_default(self) -> bool:
        """Whether a default was given (it may be falsy)."""
        return self.default is not _NO_DEFAULT

    def apply_to(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The derived schema with this marker's constraints laid over it."""
        out: dict[str, Any] = dict(self.schema) if self.schema is not None else dict(schema)
        if self.int_or_string:
            out = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        for name, key in _PLAIN_KEYS:
            value = getattr(self, name)
            if value is not None and value is not False and value != "":
                out[key] = value
        if self.enum is not None:
            out["enum"] = list(self.enum)
        if self.has_default:
            out["default"] = self.default
        list_type = self.list_type or ("map" if self.list_map_keys else None)
        if list_type:
            out["x-kubernetes-list-type"] = list_type
        if self.list_map_keys:
            out["x-kubernetes-list-map-keys"] = list(self.list_map_keys)
        if self.embedded:
            out.setdefault("type", "object")
        if self.rules:
            out["x-kubernetes-validations"] = [
                *out.get("x-kubernetes-validations", ()),
                *(rule.render() for rule in self.rules),
            ]
        return out


_PLAIN_KEYS: Final = (
    ("doc", "description"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("exclusive_minimum", "exclusiveMinimum"),
    ("exclusive_maximum", "exclusiveMaximum"),
    ("multiple_of", "multipleOf"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("pattern", "pattern"),
    ("format", "format"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("min_properties", "minProperties"),
    ("max_properties", "maxProperties"),
    ("map_type", "x-kubernetes-map-type"),
    ("nullable", "nullable"),
    ("preserve_unknown", "x-kubernetes-preserve-unknown-fields"),
    ("embedded", "x-kubernetes-embedded-resource"),
    ("example", "example"),
)


@dataclass(frozen=True)
class PrinterColumn:
    """A column of ``kubectl get``; ``priority`` 0 is always shown, 1 only with ``-o wide``."""

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    format: str = ""
    priority: int = 0

    def render(self) -> dict[str, Any]:
        """The column as the API server reads it."""
        out: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.json_path}
        if self.description:
            out["description"] = self.description
        if self.format:
            out["format"] = self.format
        if self.priority:
            out["priority"] = self.priority
        return out


AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", type="date")


@dataclass(frozen=True)
class Scale:
    """The scale subresource: JSON paths of the wanted and the observed number, and of the label selector."""

    spec_path: str = ".spec.replicas"
    status_path: str = ".status.replicas"
    selector_path: str = ""

    def render(self) -> dict[str, Any]:
        """The subresource as the API server reads it."""
        out = {"specReplicasPath": self.spec_path, "statusReplicasPath": self.status_path}
        if self.selector_path:
            out["labelSelectorPath"] = self.selector_path
        return out


@dataclass(frozen=True)
class Crd:
    """What `crd` recorded about one version of a kind."""

    singular: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    columns: tuple[PrinterColumn, ...]
    status: bool
    scale: Scale | None
    served: bool
    storage: bool
    deprecated: bool | str
    selectable_fields: tuple[str, ...]
    preserve_unknown: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def crd(
    *,
    singular: str = "",
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    columns: Sequence[PrinterColumn] = (AGE,),
    status: bool = True,
    scale: Scale | None = None,
    rules: Sequence[Rule] = (),
    served: bool = True,
    storage: bool = True,
    deprecated: bool | str = False,
    selectable_fields: Sequence[str] = (),
    preserve_unknown: bool = False,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Callable[[S], S]:
    """Declare a kind (class decorator); group, version, plural and scope come from its ``resource``.

    ``singular`` defaults to the lower-cased kind. ``rules`` are CEL rules on the whole object (they may name
    ``self.metadata.name``). ``preserve_unknown`` is for taken-over groups: existing YAML with fields we do
    not know is kept on spec and on every typed object in it instead of being pruned. ``deprecated`` may be
    the warning that users of this version get. Of several versions exactly one has ``storage``.
    """

    def declare(kind: S) -> S:
        definition = Crd(
            singular=singular or cast(Any, kind).resource.kind.lower(),
            short_names=tuple(short_names),
            categories=tuple(categories),
            columns=tuple(columns),
            status=status,
            scale=scale,
            served=served,
            storage=storage,
            deprecated=deprecated,
            selectable_fields=tuple(selectable_fields),
            preserve_unknown=preserve_unknown,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
        )
        cast(Any, kind).__mooring_crd__ = definition
        return _with_rules(kind, rules)

    return declare


def rules(*cel: Rule) -> Callable[[S], S]:
    """CEL rules on every value of this Struct type (class decorator)."""
    return lambda kind: _with_rules(kind, cel)


def _with_rules(kind: S, cel: Sequence[Rule]) -> S:
    cast(Any, kind).__mooring_rules__ = (*rules_of(kind), *cel)
    return kind


def rules_of(kind: type) -> tuple[Rule, ...]:
    """The CEL rules declared on this very class."""
    return cast("tuple[Rule, ...]", kind.__dict__.get("__mooring_rules__", ()))


def crd_of(kind: type) -> Crd:
    """The declaration of a kind; `SchemaError` when the class has no ``@crd``."""
    definition = kind.__dict__.get("__mooring_crd__")
    if not isinstance(definition, Crd):
        raise SchemaError(
            f"{kind.__name__}: not declared as a custom resource; decorate the class with @crd(...)"
        )
    return definition


def unwrap(annotation: Any) -> tuple[Any, list[F]]:
    """The type without ``Annotated`` and ``None``, and the markers found on the way, inner first."""
    markers: list[F] = []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            base, *extra = get_args(annotation)
            markers = [*(item for item in extra if isinstance(item, F)), *markers]
            annotation = base
        elif origin in (typing.Union, types.UnionType):
            members = [m for m in get_args(annotation) if m not in (type(None), msgspec.UnsetType)]
            if len(members) == len(get_args(annotation)):
                return annotation, markers
            annotation = members[0] if len(members) == 1 else typing.Union[tuple(members)]  # noqa: UP007
        else:
            return annotation, markers
