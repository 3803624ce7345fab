"""What tells that a run went wrong: it is compared with runs in which nothing failed.

Two such runs, a year apart by the wall clock, show what differs by itself (names, addresses, times); that is
masked. Everything else of the end state has to be equal, field by field, and every object made and deleted as
often as in the reference. Besides, whatever happened: see `Trace.violations`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from mooring.testing.faults import Plan
from mooring.testing.timeline import START
from mooring.testing.workload import Trace, Workload, play

__all__ = ["Reference", "learn"]

Key = tuple[str, str, str]
Leaves = dict[tuple[str, ...], Any]

_UID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ADDRESS = r"(?<![\d.])[1-9]\d{0,2}(?:\.\d{1,3}){3}(?![\d.])"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"
#: What the server counts, and what says who wrote what when. A generation tells how often somebody changed his
#: mind on the way; that the last one was observed is compared.
_NEVER = ("resourceVersion", "managedFields", "uid", "creationTimestamp", "generation")


@dataclass(frozen=True)
class Reference:
    """What a workload comes to when nothing fails."""

    trace: Trace
    leaves: Mapping[Key, Leaves]
    counts: Mapping[tuple[str, Key], int]
    masked: frozenset[tuple[Key, tuple[str, ...]]] = field(default_factory=frozenset)
    #: Beginnings of names whose end is another one in each run: a hash of what differs, or a number that is chosen.
    unstable: frozenset[Key] = frozenset()
    #: Those of them that are chosen: see `Workload.alike`.
    alike: frozenset[Key] = frozenset()

    def judge(self, trace: Trace) -> list[str]:
        """What is wrong with a run; nothing, it is hoped."""
        # The plane was set up alike in both runs: what neither has changed since is alike, and it is most of all.
        alike = frozenset(key for key in trace.untouched & self.trace.untouched if key in self.leaves)
        found = _leaves_of(trace, self.unstable, but=alike)
        said = [*dict.fromkeys(trace.violations), *self._differences(found, but=alike)]
        # What is refused for good may wait for the next edit: then what lay between was never made.
        if any(fault.kind == "invalid" for fault in trace.plan.faults):
            return said
        return [*said, *self._miscounted(_counts(trace, self.unstable, self.alike))]

    def _differences(self, found: Mapping[Key, Leaves], *, but: frozenset[Key]) -> Iterator[str]:
        for key in sorted(self.leaves.keys() - found.keys() - but):
            yield f"is not there at the end: {_named(key)}"
        for key in sorted(found.keys() - self.leaves.keys()):
            yield f"should not be there at the end: {_named(key)}"
        for key in sorted(found.keys() & self.leaves.keys()):
            for path in _unequal(self.leaves[key], found[key]):
                if (key, path) not in self.masked:
                    want, have = self.leaves[key].get(path, "nothing"), found[key].get(path, "nothing")
                    yield f"{_named(key)}: {'.'.join(path)} is {have!r}, not {want!r}"

    def _miscounted(self, found: Mapping[tuple[str, Key], int]) -> Iterator[str]:
        for what in sorted(self.counts.keys() | found.keys()):
            want, have = self.counts.get(what, 0), found.get(what, 0)
            if want != have:
                verb = "made" if what[0] == "ADDED" else "deleted"
                yield f"{_named(what[1])} was {verb} {have} times, not {want}"


async def learn(workload: Workload) -> Reference:
    """Run a workload twice without faults; raises ValueError when it fails by itself, or its runs differ in more."""
    first = await play(workload, Plan(workload=workload.name))
    second = await play(workload, Plan(workload=workload.name), start=START + timedelta(days=366, seconds=7))
    for trace in (first, second):
        if trace.violations or trace.errors:
            raise ValueError(
                f"{workload.name} fails without any fault: {(trace.violations + trace.errors)[:3]}"
            )
    alike = frozenset(workload.alike)
    odd = _leaves_of(first, alike).keys() ^ _leaves_of(second, alike).keys()
    unstable = alike | {_beginning(key) for key in odd}
    leaves, others = _leaves_of(first, unstable), _leaves_of(second, unstable)
    if odd := leaves.keys() ^ others.keys():
        raise ValueError(
            f"{workload.name}: two runs without faults differ in {', '.join(map(_named, sorted(odd)))}"
        )
    if (counts := _counts(first, unstable, alike)) != _counts(second, unstable, alike):
        raise ValueError(f"{workload.name}: two runs without faults made or deleted objects unequally often")
    masked = {(key, path) for key in leaves for path in _unequal(leaves[key], others[key])}
    return Reference(first, leaves, counts, frozenset(masked), unstable, alike)


def _beginning(key: Key) -> Key:
    """A key whose name ends before its last part; the one that the server made up is not counted."""
    return key[0], key[1], key[2].removesuffix("-*").rpartition("-")[0]


def _named(key: Key) -> str:
    resource, namespace, name = key
    return f"{resource} {namespace}/{name}" if namespace else f"{resource} {name}"


def _unequal(one: Leaves, other: Leaves) -> list[tuple[str, ...]]:
    if one == other:
        return []
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


# --- making runs comparable


def _counts(trace: Trace, unstable: frozenset[Key], but: frozenset[Key]) -> Counter[tuple[str, Key]]:
    """How often each object was made and deleted, ``but`` those of these beginnings; made-up names count as one."""
    names = _Names(trace, unstable)
    return Counter(
        (one.type, names.key(one.key))
        for one in trace.changes
        if one.type in ("ADDED", "DELETED") and _beginning(one.key) not in but
    )


def _leaves_of(
    trace: Trace, unstable: frozenset[Key] = frozenset(), *, but: frozenset[Key] = frozenset()
) -> dict[Key, Leaves]:
    """The end state as paths and values, objects of made-up names numbered in the order of what they say."""
    names = _Names(trace, unstable)
    alike: dict[Key, list[Leaves]] = {}
    for key, obj in trace.state.items():
        if key in but:
            continue
        leaves = _leaves(names.normal(obj))
        for path in leaves:
            if path[-1] == "observedGeneration":
                leaves[path] -= obj["metadata"].get("generation", 0)
        alike.setdefault(names.key(key), []).append(leaves)
    found: dict[Key, Leaves] = {}
    for plain, several in alike.items():
        if len(several) > 1:
            several.sort(key=lambda leaves: sorted((path, str(value)) for path, value in leaves.items()))
        for number, leaves in enumerate(several, 1):
            found[(*plain[:2], f"{plain[2]}#{number}") if number > 1 else plain] = leaves
    return found


class _Names:
    """The names that the server made up in one run, and what stands for them."""

    def __init__(self, trace: Trace, unstable: frozenset[Key]) -> None:
        self._unstable = unstable
        made: dict[str, str] = {}
        for change in trace.changes:
            meta = change.object["metadata"]
            if change.made_up:
                made[meta["name"]] = f"{meta['generateName']}*"
        self._made = made
        longest_first = map(re.escape, sorted(made, key=len, reverse=True))
        others = (f"(?P<uid>{_UID})", f"(?P<time>{_TIME})", f"(?P<address>{_ADDRESS})")
        self._pattern = re.compile("|".join([*longest_first, *others]))
        self._texts: dict[str, str] = {}

    def key(self, key: Key) -> Key:
        """A key without what was made up."""
        plain = key[0], key[1], self.text(key[2])
        start = _beginning(plain)
        return (*start[:2], f"{start[2]}-*") if start in self._unstable else plain

    def text(self, text: str) -> str:
        """A text without what differs from run to run."""
        if (plain := self._texts.get(text)) is None:
            plain = self._texts[text] = self._pattern.sub(self._plain, text)
        return plain

    def _plain(self, found: re.Match[str]) -> str:
        return f"<{found.lastgroup}>" if found.lastgroup else self._made[found[0]]

    def normal(self, value: Any) -> Any:
        """A value without it; lists of objects are in an order of their own."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(k): self.normal(v) for k, v in value.items() if k not in _NEVER}
            case list():
                items = [self.normal(one) for one in value]
                if len(items) > 1 and any(isinstance(one, dict) for one in items):
                    items.sort(key=msgspec.json.encode)
                return items
        return value


def _leaves(value: Any) -> Leaves:
    """A value's parts that have none themselves, by path."""
    found: Leaves = {}
    left: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while left:
        path, one = left.pop()
        if one and isinstance(one, dict):
            left += [((*path, name), inner) for name, inner in one.items()]
        elif one and isinstance(one, list):
            left += [((*path, str(number)), inner) for number, inner in enumerate(one)]
        else:
            found[path] = one
    return found
