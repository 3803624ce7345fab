"""Edits of a custom resource that its schema allows or forbids, and whether an operator follows each of them.

    report = await explore(WORKLOAD, document, edits_of(Website))
    assert not report.findings

As Acto (SOSP 2023) does, for every field: values at its bounds, beyond them, of another type, and none. Each edit is
made to a running object, and taken back. What has to hold:

- what the schema forbids the server refuses, and nothing changes;
- an object that is not refused and does not say what is wrong (`stalled`) ends as one created with that spec anew;
- where it says so, one pod at most went for it: the first of a roll-out that does not come up;
- once the edit is taken back everything is as before, but for what keeps the past: ControllerRevisions, a Deployment's
  older ReplicaSets and its revision annotations;
- whatever holds of every run: see `Trace.violations`.

What only somebody who knows the field can tell (images, names of other objects, keys of a configuration) is given as
``values``, by path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mooring.kube import ApiError, Client, MergePatch, Object
from mooring.runtime import render_crd
from mooring.testing import oracles
from mooring.testing.faults import Plan
from mooring.testing.timeline import START
from mooring.testing.workload import Step, Trace, Workload, run

__all__ = ["Edit", "Report", "edits_of", "explore", "sample", "stalled"]

JsonObject = dict[str, Any]
Path = tuple[str, ...]
#: Of a string without an enum and a longest length.
WORD = "mooring"
#: What tells of an object's past by being there.
HISTORY = frozenset({"controllerrevisions.apps"})
#: What a Deployment writes on itself and its ReplicaSets about its past, and about scaling them.
DEPLOYMENTS = "deployment.kubernetes.io/"
#: Differences that are told of one edit; more say nothing new.
MOST = 5


@dataclass(frozen=True)
class Edit:
    """One field of the spec set to a value; None removes it. ``valid``: whether the schema allows it."""

    path: Path
    value: Any
    valid: bool = True

    def __str__(self) -> str:
        shown = repr(self.value)
        return f"{'.'.join(self.path)} = {shown if len(shown) < 60 else shown[:57] + '...'}"

    def patch(self) -> JsonObject:
        """As a merge patch of the spec."""
        return _at(self.path, self.value)

    def undone(self, spec: JsonObject) -> JsonObject:
        """The merge patch that puts back what ``spec`` has there: an object is replaced, not merged."""
        before: Any = spec
        for number, name in enumerate(self.path):
            if not isinstance(before, dict) or name not in before:
                return _at(self.path[: number + 1], None)
            before = before[name]
        if isinstance(before, dict) and isinstance(self.value, dict):
            before = {**dict.fromkeys(self.value), **before}
        return _at(self.path, before)

    def applied(self, spec: JsonObject) -> JsonObject:
        """The spec with it."""
        whole: JsonObject = msgspec.json.decode(msgspec.json.encode(spec))  # no part of it twice
        _merge(whole, self.patch())
        return whole


def _at(path: Path, value: Any) -> JsonObject:
    for name in reversed(path):
        value = {name: value}
    made: JsonObject = value
    return made


def _merge(into: JsonObject, patch: JsonObject) -> None:
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict):
            into[name] = into[name] if isinstance(into.get(name), dict) else {}
            _merge(into[name], value)
        else:
            into[name] = value


# --- from the schema


def edits_of(
    kind: type[Object], *, values: Mapping[str, Sequence[Any]] | None = None, depth: int = 2
) -> list[Edit]:
    """Every edit that the schema of a kind's spec suggests, of fields at most ``depth`` names deep (2).

    ``values`` are valid ones by path (``sentinel.image``), in place of those made up; an empty sequence leaves the
    field's valid values out.
    """
    version = next(one for one in render_crd(kind)["spec"]["versions"] if one["storage"])
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return list(_fields(spec, (), values or {}, depth))


def sample(edits: Sequence[Edit], *, seed: int, most: int) -> list[Edit]:
    """So many of them, the same for a seed."""
    return random.Random(seed).sample(list(edits), min(most, len(edits)))


def _fields(
    schema: JsonObject, path: Path, values: Mapping[str, Sequence[Any]], depth: int
) -> Iterator[Edit]:
    for name, inner in schema.get("properties", {}).items():
        here = (*path, name)
        given = values.get(".".join(here))
        if given is not None:
            yield from (Edit(here, value) for value in given)
        elif inner.get("properties") and len(here) < depth:
            yield from _fields(inner, here, values, depth)
        else:
            yield from (Edit(here, value) for value in _allowed(inner))
        yield from (Edit(here, value, valid=False) for value in _forbidden(inner))


def _allowed(schema: JsonObject) -> list[Any]:
    """Values at the bounds of a field."""
    if "enum" in schema:
        return list(schema["enum"])
    match schema.get("type"):
        case "integer" | "number":
            return [schema[bound] for bound in ("minimum", "maximum") if bound in schema] or [0, 1]
        case "boolean":
            return [True, False]
        case "string" if "pattern" not in schema and "format" not in schema:
            longest = [WORD[0] * schema["maxLength"]] if "maxLength" in schema else []
            return [WORD[: schema.get("maxLength")], *longest]
        case "array":
            return [[]]
        case "object" if (schema.get("additionalProperties") or {}).get("type") == "string":
            return [{WORD: WORD}, {}]
        case "object":
            return [{}] if not schema.get("required") else []
    return []


def _forbidden(schema: JsonObject) -> list[Any]:
    """Values beyond the bounds, and of another type."""
    kind = schema.get("type")
    if kind is None:
        return []
    found: list[Any] = [["of", "another", "type"] if kind in ("string", "boolean") else "of another type"]
    found += ["not one of them"] if "enum" in schema else []
    found += [schema["minimum"] - 1] if "minimum" in schema else []
    found += [schema["maximum"] + 1] if "maximum" in schema else []
    found += [WORD[0] * (schema["maxLength"] + 1)] if "maxLength" in schema else []
    found += [""] if schema.get("minLength") else []
    return found


# --- on a running object


@dataclass
class Report:
    """What became of the edits."""

    edits: int = 0
    #: Refused by the server; answered by a condition; followed.
    refused: int = 0
    answered: int = 0
    followed: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Count another's too."""
        self.edits, self.refused = self.edits + other.edits, self.refused + other.refused
        self.answered, self.followed = self.answered + other.answered, self.followed + other.followed
        self.findings += other.findings


def stalled(obj: JsonObject) -> bool:
    """Whether an object says that its declaration cannot be met: a condition Stalled is true."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Stalled" and one.get("status") == "True" for one in conditions)


async def explore(
    workload: Workload,
    document: JsonObject,
    edits: Sequence[Edit],
    *,
    answers: Callable[[JsonObject], bool] = stalled,
) -> Report:
    """Make each edit to an object that runs as ``document`` declares, and take it back; see the module's text.

    Of the workload the operator, the model, the monitors and what is compared are used; its steps are not.
    """
    one = _Run(workload, workload.kinds[0], document)
    for edit in edits:
        one.edit(edit.patch())
        one.edit(edit.undone(document["spec"]))
    await one.play()
    again = _Run(workload, workload.kinds[0], document)
    await again.play(start=START + timedelta(days=366, seconds=7))
    first, second = one.leaves(1), again.leaves(1)
    one.masked = {
        (key[0], path)
        for key in first.keys() & second.keys()
        for path in oracles._unequal(first[key], second[key])
    }
    report = Report(edits=len(edits), findings=[f"somewhere: {said}" for said in one.trace.violations])
    for number, edit in enumerate(edits):
        if 2 * number + 3 >= len(one.marks):
            report.findings.append(f"{edit}: it was not come to")
            break
        said = await _judge(one, 2 * number + 1, edit, report, answers)
        report.findings += [f"{edit}: {text}" for text in said[:MOST]]
    return report


class _Run:
    """One life of an object, and what was there before each step."""

    def __init__(self, workload: Workload, kind: type[Object], document: JsonObject) -> None:
        self.workload, self._kind, self._document = workload, kind, document
        self.trace = Trace(Plan(workload=workload.name))
        self.marks: list[int] = []
        self.refusals: dict[int, ApiError] = {}
        #: Fields, by resource, in which two objects created alike differ: UIDs, and hashes over them.
        self.masked: set[tuple[str, Path]] = set()
        path, body = (
            kind.resource.path(namespace=document["metadata"]["namespace"]),
            msgspec.json.encode(document),
        )
        self._steps: list[Step] = [lambda client: client.request("POST", path, body=body)]

    def anew(self, edit: Edit) -> _Run:
        """One that begins with the edited object."""
        return _Run(
            self.workload, self._kind, {**self._document, "spec": edit.applied(self._document["spec"])}
        )

    def edit(self, patch: JsonObject) -> None:
        """Go on with an edit of its spec."""
        meta = self._document["metadata"]
        body = MergePatch({"spec": patch})
        self._steps.append(lambda c: c.patch(self._kind, meta["name"], body, namespace=meta["namespace"]))

    async def play(self, *, start: datetime = START) -> None:
        """From the beginning to the end; by another wall clock chance falls differently."""
        steps = [*map(self._marked, self._steps), self._marked(_nothing)]
        await run(replace(self.workload, given=(), steps=steps), self.trace, elect=False, start=start)

    def _marked(self, step: Step) -> Step:
        async def marked(client: Client) -> None:
            self.marks.append(len(self.trace.changes))
            try:
                await step(client)
            except ApiError as error:
                self.refusals[len(self.marks) - 1] = error

        return marked

    def state(self, step: int) -> dict[tuple[str, str, str], JsonObject]:
        """What was there right before a step, but for what each cluster has."""
        found: dict[tuple[str, str, str], JsonObject] = {}
        for change in self.trace.changes[: self.marks[step]]:
            found[change.key] = change.object
            if change.type == "DELETED":
                del found[change.key]
        return found

    def leaves(self, step: int) -> dict[oracles.Key, oracles.Leaves]:
        """The same, made comparable."""
        compared = self.workload.compared
        state = {
            key: compared(key[0], _without_revisions(obj))
            for key, obj in self.state(step).items()
            if key[0] not in HISTORY and not _former(key[0], obj)
        }
        return oracles._leaves_of(Trace(self.trace.plan, changes=self.trace.changes, state=state))

    def unlike(self, want: Mapping[oracles.Key, oracles.Leaves], step: int, why: str) -> list[str]:
        """Where the state before a step differs from what it should be."""
        have = self.leaves(step)
        said = [f"{oracles._named(key)} is missing {why}" for key in sorted(want.keys() - have.keys())]
        said += [f"{oracles._named(key)} is too many {why}" for key in sorted(have.keys() - want.keys())]
        for key in sorted(want.keys() & have.keys()):
            for path in oracles._unequal(want[key], have[key]):
                if (key[0], path) not in self.masked:
                    found, due = have[key].get(path, "nothing"), want[key].get(path, "nothing")
                    said.append(f"{oracles._named(key)}: {'.'.join(path)} is {found!r}, not {due!r} {why}")
        return said

    def itself(self, step: int) -> JsonObject:
        """The object."""
        resource, meta = self._kind.resource, self._document["metadata"]
        return self.state(step)[(f"{resource.plural}.{resource.group}", meta["namespace"], meta["name"])]


def _former(resource: str, obj: JsonObject) -> bool:
    """Whether it is a ReplicaSet that a Deployment keeps of an older template."""
    owners = obj["metadata"].get("ownerReferences") or ()
    ours = any(one.get("controller") and one.get("kind") == "Deployment" for one in owners)
    return resource == "replicasets.apps" and ours and obj["spec"].get("replicas") == 0


def _without_revisions(obj: JsonObject) -> JsonObject:
    """An object without the annotations that count a Deployment's templates."""
    meta = obj["metadata"]
    kept = {
        name: text
        for name, text in (meta.get("annotations") or {}).items()
        if not name.startswith(DEPLOYMENTS)
    }
    return {**obj, "metadata": {**meta, "annotations": kept}} if "annotations" in meta else obj


async def _nothing(client: Client) -> None:
    """For the mark alone."""


async def _judge(
    one: _Run, step: int, edit: Edit, report: Report, answers: Callable[[JsonObject], bool]
) -> list[str]:
    """What is wrong with the edit made in this step, and with its undoing in the next."""
    if step in one.refusals:
        report.refused += 1
        return one.unlike(one.leaves(step), step + 1, "though it was refused")
    said = [] if edit.valid else ["the server accepted it"]
    if answers(one.itself(step + 1)):
        report.answered += 1
        if len(gone := _pods(one, step) - _pods(one, step + 1)) > 1:
            said.append(f"{len(gone)} pods went for what cannot be met")
    else:
        report.followed += 1
        fresh = one.anew(edit)
        await fresh.play()
        said += [f"created so: {text}" for text in fresh.trace.violations]
        said += one.unlike(fresh.leaves(1), step + 1, "as one created so")
    return [*said, *one.unlike(one.leaves(step), step + 2, "once it is taken back")]


def _pods(one: _Run, step: int) -> set[str]:
    return {obj["metadata"]["uid"] for key, obj in one.state(step).items() if key[0] == "pods"}
