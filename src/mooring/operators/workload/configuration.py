"""Configuration keys of a database: which change live, what became of each, and the file that a start reads.

An operator fills in `Keys` for its database. `Configuration.next` then compares the declared keys with what every
server holds, and returns one step at a time: record what is about to change, set a key, record the result, publish the
accepted values for the next start. A value that a server refused is never published and never tried twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from mooring.actor.verdict import Move
from mooring.kube.part import Part
from mooring.runtime.crd import F

__all__ = [
    "ConfigResult",
    "Configuration",
    "KeyClass",
    "Keys",
    "PublishConfig",
    "RecordResults",
    "SetKey",
    "as_line",
    "parse_keys",
    "render_keys",
    "result_of",
]

KeyClass = Literal["live", "restart", "forbidden"]
"""How a key may change: on a running server, by a restart only, or never by the user."""


class ConfigResult(Part, frozen=True, kw_only=True):
    """The result of one declared key."""

    wanted: Annotated[str, F("The value in the spec.")] = ""
    effective: Annotated[str, F("The value the server made of it.")] = ""
    state: Annotated[str, F("Applied, Clamped, NeedsRestart, Forbidden, Unknown, Rejected or Pending.")] = (
        "Pending"
    )
    message: Annotated[str, F("What is in the way, and the remedy.")] = ""
    restart: Annotated[bool, F("The server reads the key at start only.")] = False
    previous: Annotated[str, F("The value before; comes back when the key is dropped from the spec.")] = ""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """How one database spells, classifies and compares its configuration keys."""

    classify: Callable[[str], KeyClass]
    canonical: Callable[[str], str]
    """One spelling for all spellings of a key."""
    same: Callable[[str, str, str], bool]
    """Whether two values of a key mean the same: key, left, right."""
    sent: Callable[[str, str], str] = lambda key, value: value
    """The value that servers are given for a declared one."""
    secret: frozenset[str] = frozenset()
    """Keys, in their canonical spelling, whose values are never shown."""
    field: str = "spec.config"
    """The field of the declaration."""

    def find(self, key: str, held: Mapping[str, str]) -> str | None:
        """The value of a key among those that a server holds, whatever its spelling; ``None`` if it has no such key."""
        return self.by_name(held).get(self.canonical(key))

    def by_name(self, held: Mapping[str, str]) -> dict[str, str]:
        """What a server holds, by the canonical spelling; of a key with two spellings the first one counts."""
        found: dict[str, str] = {}
        for key, value in held.items():
            found.setdefault(self.canonical(key), value)
        return found


@dataclass(frozen=True, kw_only=True)
class RecordResults(Move):
    """Record in status what became of the declared keys."""

    results: Mapping[str, ConfigResult]


@dataclass(frozen=True, kw_only=True)
class SetKey(Move):
    """Set one key on the servers of these pods."""

    pods: tuple[str, ...]
    key: str
    value: str
    previous: str = ""


@dataclass(frozen=True, kw_only=True)
class PublishConfig(Move):
    """Write the accepted live keys where the next start reads them."""

    values: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The keys of one cluster: declared, held by its servers, recorded and published."""

    keys: Keys
    wanted: Mapping[str, str]
    """Keys to hold: the operator's defaults and the user's."""
    declared: frozenset[str]
    """Those of the user; each has a result in status."""
    results: Mapping[str, ConfigResult]
    """As recorded."""
    servers: Mapping[str, Mapping[str, str]]
    """What each server that answered holds, by pod."""
    published: Mapping[str, str] = field(default_factory=dict)
    """What a start would read now."""
    rolls: bool = False
    """Pods are rolled for keys that are read at start only."""

    def next(self) -> RecordResults | SetKey | PublishConfig | None:
        """The next step; ``None`` when every key is as declared or has its reason recorded.

        Results are recorded before the first key is set and after the last one: two status writes for any number of
        keys.
        """
        noted: dict[str, ConfigResult] = {}
        steps: list[SetKey] = []
        for key, value in sorted(self.wanted.items()):
            result, step = self._one(key, value)
            if result is not None and key in self.declared:
                noted[key] = result
            if step is not None:
                steps.append(step)
        pending = {key: result for key, result in noted.items() if result.state == "Pending"}
        if pending:
            return self._record(pending)
        if steps:
            return steps[0]
        if noted:
            return self._record(noted)
        for key, result in sorted(self.results.items()):
            if key not in self.declared:
                return self._give_back(key, result)
        accepted = self._accepted()
        if dict(self.published) != accepted:
            return PublishConfig(values=accepted, why="a restarting server must find the values in force")
        return None

    def _record(self, results: Mapping[str, ConfigResult]) -> RecordResults:
        states = ", ".join(f"{key}: {result.state}" for key, result in sorted(results.items()))
        return RecordResults(results={**self.results, **results}, why=states)

    def _one(self, key: str, value: str) -> tuple[ConfigResult | None, SetKey | None]:
        """What to record of a key, and the step to take."""
        keys, before = self.keys, self.results.get(key)
        same = before is not None and before.wanted == value
        if keys.classify(key) == "forbidden":
            shown = "" if keys.canonical(key) in keys.secret else value
            message = f"{key} is the operator's own; remove it from {keys.field}"
            return _unless(before, shown, "Forbidden", message), None
        if twin := self._twin(key, value):
            message = (
                f"it is the same key as {twin}, which has another value; remove one of them from {keys.field}"
            )
            return _unless(before, value, "Rejected", message), None
        seen = self._held(key)
        if not seen:
            if not any(self.servers.values()):
                return None, None
            message = f"this server version has no key {key}; correct or remove it in {keys.field}"
            return _unless(before, value, "Unknown", message), None
        first = next(iter(seen.values()))
        if keys.classify(key) == "restart" or (before is not None and before.restart):
            return self._at_start(before, key=key, value=value, shown=first), None
        if same and before is not None and before.state == "Rejected":
            return None, None
        asked = keys.sent(key, value)
        effective = before.effective if same and before is not None and before.effective else asked
        differing = {pod: now for pod, now in seen.items() if not keys.same(key, effective, now)}
        previous = before.previous if before is not None and before.previous else first
        if differing:
            pod, now = next(iter(differing.items()))
            step = SetKey(
                pods=tuple(differing),
                key=key,
                value=asked,
                previous=previous,
                why=f"{key} is to be {asked!r}, found {now!r} on {pod}",
            )
            note = None if same else ConfigResult(wanted=value, state="Pending", previous=previous)
            return note, step
        if same and before is not None and before.state in ("Applied", "Clamped"):
            return None, None
        return ConfigResult(wanted=value, effective=first, state="Applied", previous=previous), None

    def _twin(self, key: str, value: str) -> str:
        """An earlier key that is this one under another spelling and has another value, or "".

        Set in turn they would never come to rest.
        """
        for other in self._spellings[self.keys.canonical(key)]:
            if other == key:
                return ""
            if not self.keys.same(key, self.wanted[other], value):
                return other
        return ""

    @cached_property
    def _spellings(self) -> Mapping[str, list[str]]:
        """The wanted keys by their canonical spelling, sorted: a declaration may have thousands."""
        found: dict[str, list[str]] = {}
        for key in sorted(self.wanted):
            found.setdefault(self.keys.canonical(key), []).append(key)
        return found

    @cached_property
    def _by_name(self) -> Mapping[str, Mapping[str, str]]:
        """What each server holds, by the canonical spelling of the key."""
        return {pod: self.keys.by_name(held) for pod, held in self.servers.items()}

    def _held(self, key: str) -> dict[str, str]:
        """The values of a key on the servers that have it, by pod."""
        name = self.keys.canonical(key)
        return {pod: found for pod, held in self._by_name.items() if (found := held.get(name)) is not None}

    def _at_start(
        self, before: ConfigResult | None, *, key: str, value: str, shown: str
    ) -> ConfigResult | None:
        """The result of a key that is read at start only."""
        learnt = self.keys.classify(key) != "restart"
        if self.keys.same(key, value, shown):
            result = ConfigResult(wanted=value, effective=shown, state="Applied", restart=learnt)
        else:
            remedy = (
                "the pods are rolled for it; if it stays so once they were, the servers do not take this value: correct or remove it"
                if self.rolls
                else "it takes effect when the pods are rolled; spec.configPolicy: roll starts such a roll-out"
            )
            message = f"{key} is read at start only; {remedy}"
            result = ConfigResult(
                wanted=value, effective=shown, state="NeedsRestart", message=message, restart=learnt
            )
        return None if result == before else result

    def _give_back(self, key: str, result: ConfigResult) -> SetKey | RecordResults:
        """A key that the user dropped gets its earlier value back; then its result is forgotten."""
        changed = result.previous and result.state in ("Applied", "Clamped") and key not in self.wanted
        held = self._held(key).items() if changed else ()
        differing = [pod for pod, now in held if not self.keys.same(key, result.previous, now)]
        if differing:
            return SetKey(
                pods=tuple(differing),
                key=key,
                value=result.previous,
                previous=result.previous,
                why=f"{key} was dropped from the spec; its earlier value comes back",
            )
        rest = {name: one for name, one in self.results.items() if name != key}
        return RecordResults(results=rest, why=f"{key} has the server's own value again")

    def _accepted(self) -> dict[str, str]:
        """What the servers took, by key: this and nothing else may stand in a file that a start reads."""
        return {
            key: self.keys.sent(key, value) for key, value in self.wanted.items() if self._took(key, value)
        }

    def _took(self, key: str, value: str) -> bool:
        if self.keys.classify(key) != "live":
            return False
        result = self.results.get(key)
        if key in self.declared:
            return result is not None and result.wanted == value and result.state in ("Applied", "Clamped")
        return bool(self._held(key))


def _unless(before: ConfigResult | None, value: str, state: str, message: str) -> ConfigResult | None:
    if before is not None and before.wanted == value and before.state == state:
        return None
    return ConfigResult(wanted=value, state=state, message=message)


def result_of(keys: Keys, key: str, *, wanted: str, shown: str, previous: str = "") -> ConfigResult:
    """The result of a key that a server took: applied, or clamped to what it shows now."""
    same = keys.same(key, wanted, shown)
    return ConfigResult(
        wanted=wanted,
        effective=shown,
        state="Applied" if same else "Clamped",
        message="" if same else f"the server made {shown!r} of it",
        previous=previous,
    )


# --- the file that a start reads -------------------------------------------------------------------------


def as_line(key: str, value: str) -> Iterable[str]:
    """``key "value"`` in one line."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return (f'{key} "{escaped}"',)


def render_keys(values: Mapping[str, str], *, lines: Callable[[str, str], Iterable[str]] = as_line) -> str:
    """The live keys as text, sorted by key; ``lines`` gives those of one key."""
    return "\n".join(line for key, value in sorted(values.items()) for line in lines(key, value)) + "\n"


def parse_keys(text: str, *, separator: str = " ") -> dict[str, str]:
    """The values that `render_keys` wrote; those of a key that stands in several lines are joined by a space."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(separator)
        if not key:
            continue
        value = _unquoted(rest)
        found[key] = f"{found[key]} {value}" if key in found else value
    return found


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    return text[1:-1].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
