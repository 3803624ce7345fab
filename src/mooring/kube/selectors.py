"""Label and field selectors: parsed once, matched often."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mooring.kube.objects.meta import LabelSelector

__all__ = [
    "EVERYTHING",
    "FieldRequirement",
    "Requirement",
    "Selector",
    "parse_field_selector",
    "parse_selector",
    "selector_of",
]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label: ``op`` is one of In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    op: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a label set fulfils the condition (NotIn also when the label is absent)."""
        value = labels.get(self.key)
        match self.op:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        try:
            number, bound = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.op == "Gt" else number < bound

    def __str__(self) -> str:
        joined = ",".join(self.values)
        match self.op:
            case "In":
                return f"{self.key}={joined}" if len(self.values) == 1 else f"{self.key} in ({joined})"
            case "NotIn":
                return f"{self.key}!={joined}" if len(self.values) == 1 else f"{self.key} notin ({joined})"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
        return f"{self.key}{'>' if self.op == 'Gt' else '<'}{joined}"


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; none means everything."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether a label set is selected."""
        if self.nothing:
            return False
        present = labels or {}
        return all(requirement.matches(present) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = Selector()

_PART = re.compile(
    r"""\s*(?:
      (?P<absent>!)\s*(?P<akey>[^\s=!,()<>]+)
    | (?P<key>[^\s=!,()<>]+)\s*
      (?:(?P<op>==|=|!=|>|<)\s*(?P<value>[^\s,()=!<>]*)
       |\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_OPS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt", "in": "In", "notin": "NotIn"}


def _complaint(rest: str) -> str:
    """Say what was found in the place of what, as apimachinery's parser does."""
    words = re.findall(r"[^\s=!,()<>]+|==|!=|[=!,()<>]", rest)
    if len(words) > 1 and re.match(r"[^\s=!,()<>]", words[0]) and words[1] not in _OPS:
        return f"found '{words[1]}', expected: in, notin, =, ==, !=, gt, lt"
    return f"found {rest!r}"


def parse_selector(text: str) -> Selector:
    """Read ``a=b,c!=d,e in (f,g),!h``; raises :class:`ValueError` quoting what cannot be read."""
    requirements = []
    position = 0
    while position < len(text.rstrip()):
        found = _PART.match(text, position)
        if not found or found.end() == position:
            raise ValueError(f"unable to parse requirement: {_complaint(text[position:])}")
        position = found.end()
        if found["absent"]:
            requirements.append(Requirement(found["akey"], "DoesNotExist"))
        elif found["set"]:
            values = tuple(sorted(v.strip() for v in found["values"].split(",")))
            requirements.append(Requirement(found["key"], _OPS[found["set"]], values))
        elif found["op"]:
            if found["op"] in "<>" and not re.fullmatch(r"-?\d+", found["value"]):
                raise ValueError(
                    f"for 'Gt', 'Lt' operators, the value must be an integer: {found['value']!r}"
                )
            requirements.append(Requirement(found["key"], _OPS[found["op"]], (found["value"],)))
        else:
            requirements.append(Requirement(found["key"], "Exists"))
    return Selector(tuple(requirements))


def selector_of(selector: LabelSelector | None) -> Selector:
    """The selector of a LabelSelector: ``None`` selects nothing, an empty one everything."""
    if selector is None:
        return Selector(nothing=True)
    exact: Iterable[tuple[str, str]] = sorted((selector.match_labels or {}).items())
    requirements = [Requirement(key, "In", (value,)) for key, value in exact]
    for expression in selector.match_expressions or ():
        values = tuple(sorted(expression.values or ()))
        requirements.append(Requirement(expression.key or "", expression.operator or "", values))
    return Selector(tuple(requirements))


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """``path`` equals (or, with ``negated``, does not equal) ``value``."""

    path: str
    value: str
    negated: bool = False


def parse_field_selector(text: str) -> list[FieldRequirement]:
    """Read ``metadata.name=a,status.phase!=Running``; raises :class:`ValueError`."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"([^=!]+)(==|=|!=)([^=]*)", part)
        if not match:
            raise ValueError(f"invalid selector: {part!r}; can't understand {part!r}")
        found.append(FieldRequirement(match[1].strip(), match[3].strip(), match[2] == "!="))
    return found
