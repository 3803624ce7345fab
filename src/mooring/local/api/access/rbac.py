"""What the rules of roles allow: matching one request, and whether some rules cover others.

The same decisions as k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac, pure functions over the JSON of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mooring.local.api.http import User

__all__ = ["Attributes", "Rule", "allows", "described", "missing", "quoted", "quoted_list"]

Rule = Mapping[str, Any]

_ALL = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What somebody wants to do; with a `path` it is about no resource."""

    user: User = field(repr=False)
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str | None = None

    @property
    def full_resource(self) -> str:
        """`pods`, or `pods/log` with a subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def allows(rule: Rule, wanted: Attributes) -> bool:
    """Whether a rule allows a request."""
    if not _listed(wanted.verb, rule.get("verbs")):
        return False
    if wanted.path is not None:
        return any(_path_covers(url, wanted.path) for url in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _listed(wanted.group, rule.get("apiGroups"))
        and _resource_listed(wanted, rule.get("resources") or ())
        and (not names or wanted.name in names)
    )


def _listed(value: str, patterns: Sequence[str] | None) -> bool:
    return bool(patterns) and (value in patterns or _ALL in patterns)  # type: ignore[operator]


def _resource_listed(wanted: Attributes, patterns: Sequence[str]) -> bool:
    if wanted.full_resource in patterns or _ALL in patterns:
        return True
    return bool(wanted.subresource) and f"*/{wanted.subresource}" in patterns


def _path_covers(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith(_ALL) and path.startswith(pattern.rstrip(_ALL)))


def missing(owned: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return what `owned` rules do not cover of the `wanted` ones, verbs of one resource put together."""
    lacking = [rule for whole in wanted for rule in _parts(whole) if not any(_covers(o, rule) for o in owned)]
    joined: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for rule in lacking:
        key = tuple(str(rule.get(name)) for name in ("apiGroups", "resources", "resourceNames"))
        if "nonResourceURLs" in rule:
            key = (*key, str(len(joined)))
        known = joined.setdefault(key, {**rule, "verbs": []})
        known["verbs"] += rule["verbs"]
    return list(joined.values())


def _parts(rule: Rule) -> Iterator[dict[str, list[str]]]:
    """Break a rule into rules of one group, resource, verb and name."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                part = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                for name in rule.get("resourceNames") or (None,):
                    yield part if name is None else {**part, "resourceNames": [name]}
    for url in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield {"nonResourceURLs": [url], "verbs": [verb]}


def _covers(owned: Rule, part: Mapping[str, list[str]]) -> bool:
    if not _listed(part["verbs"][0], owned.get("verbs")):
        return False
    if "nonResourceURLs" in part:
        url = part["nonResourceURLs"][0]
        return any(_path_covers(pattern, url) for pattern in owned.get("nonResourceURLs") or ())
    resource, patterns = part["resources"][0], owned.get("resources") or ()
    _, slash, subresource = resource.partition("/")
    within = resource in patterns or _ALL in patterns or (bool(slash) and f"*/{subresource}" in patterns)
    names = owned.get("resourceNames")
    named = not names or (bool(part.get("resourceNames")) and part["resourceNames"][0] in names)
    return within and named and _listed(part["apiGroups"][0], owned.get("apiGroups"))


_SHOWN = (
    ("APIGroups", "apiGroups"),
    ("Resources", "resources"),
    ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"),
    ("Verbs", "verbs"),
)


def described(rule: Rule) -> str:
    """Show a rule in one line, as errors about escalation do."""
    parts = [f"{label}:{quoted_list(rule[name])}" for label, name in _SHOWN if rule.get(name)]
    return "{" + ", ".join(parts) + "}"


def quoted(text: str) -> str:
    """Show a text as Go's %q does."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quoted_list(texts: Iterable[str]) -> str:
    """Show texts as Go's %q shows a list."""
    return "[" + " ".join(map(quoted, texts)) + "]"
