"""``mooring why KIND/NAME``: what an operator does, what it waits for, and what would unblock it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from mooring.diagnosis import Diagnosis, OperatorHint, cause, diagnose, gather, step
from mooring.extras import MissingExtra
from mooring.kube import Client, Config, HttpTransport, Resource
from mooring.kube.object import Object, decode
from mooring.operators.registry import OPERATORS, operator_of
from mooring.runtime.crd import crd_of

__all__ = ["Warned", "add_parser", "diagnosed", "explained", "full_name", "kinds_of"]

#: How long before a condition changes a warning may come that belongs to it.
EARLIER = timedelta(seconds=60)
#: Warnings that are shown, of each sort.
MOST = 5


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "why", help="what an operator waits for, since when, and what would unblock it"
    )
    kind = next(iter(OPERATORS.values())).kinds[0].resource.kind.lower()
    parser.add_argument("object", metavar="KIND/NAME", help=f"for example {kind}/demo")
    parser.add_argument("--namespace", "-n", default="", help="default: the context's namespace")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--language", choices=["en", "zh"], default="en", help="of the cause and the next step (default: en)"
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="also ask the servers themselves and write down what is decided from, for mooring replay; run it where "
        "pods can be reached (mooring enter, or in a pod)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the answer; with ``--save`` write the decision's inputs too."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    kinds, name = kinds_of(options.object)
    config = Config.load(options.kubeconfig, options.context)
    namespace = options.namespace or config.namespace
    client = Client(HttpTransport(config))
    try:
        looked = [
            await gather(client, one.resource, namespace=namespace, name=name, hint=_hint(one.resource))
            for one in kinds
        ]
        kind, facts = next(
            (pair for pair in zip(kinds, looked, strict=True) if pair[1].obj is not None),
            (kinds[0], looked[0]),
        )
        found = diagnose(facts)
        if facts.obj is None:
            print("\n".join(diagnosed(found, options.language)))
            return 1
        raw = dict(facts.obj)
        warned = await _warnings(client, raw)
        operator = operator_of(kind)
        details = await operator.explain(client, raw) if operator.explain is not None else ()
        lines = list(explained(raw, warned, details, serves=operator.serves(kind), now=datetime.now(UTC)))
        said = "\n".join(lines[1:])
        print("\n".join([lines[0], *diagnosed(found, options.language, said), *lines[1:]]))
        if options.save:
            await _save(client, decode(raw, kind), options.save)
    finally:
        await client.close()
    return 0


def _hint(resource: Resource) -> OperatorHint | None:
    """How the operator of a kind shows that it works, as the catalog says."""
    try:
        from mooring.catalog import packaged
    except MissingExtra:  # the catalog comes with the extra `console`
        return None
    for entry in packaged():
        operator = entry.spec.operator
        if operator is not None and entry.spec.target.resource == resource:
            return operator.hint
    return None


def diagnosed(found: Diagnosis | None, language: Literal["en", "zh"], said: str = "") -> Iterator[str]:
    """The cause and the next step; the operator's own words follow anyway, so they are not repeated in English.

    ``said`` is the rest of the answer: what the cluster says itself is quoted only if it does not stand there.
    """
    if found is None or (language == "en" and found.code in ("Stalled", "Waits", "NotReady")):
        return
    words = {"en": ("Cause: ", "Next: ", "Said: "), "zh": ("原因：", "下一步：", "消息：")}[language]
    yield f"  {words[0]}{cause(found, language)}"
    yield f"  {words[1]}{step(found, language)}"
    if found.raw and found.raw not in said:
        yield f"  {words[2]}{found.raw}"


def kinds_of(
    text: str, *, among: Sequence[type[Object]] = (), bare: bool = False
) -> tuple[list[type[Object]], str]:
    """The kinds that ``KIND`` may mean, and the name, of ``KIND/NAME``.

    A kind is named as kubectl takes it: singular, plural or short, with or without its group. Two groups may have the same.
    ``among`` are the kinds that can be meant (default: all of all operators). With ``bare`` a name alone means any of them.
    Raises `ValueError`, with those kinds, for anything else.
    """
    word, slash, name = text.partition("/")
    known = among or list(dict.fromkeys(kind for operator in OPERATORS.values() for kind in operator.kinds))
    if bare and word and not slash:
        return list(known), word
    meant = [kind for kind in known if name and word.lower() in _words(kind)]
    if meant:
        return meant, name
    raise ValueError(f"{text!r}: give KIND/NAME; the kinds are {', '.join(map(full_name, known))}")


def full_name(kind: type[Object]) -> str:
    """A kind with its group, as kubectl takes it: ``mysqlclusters.mysql.mooring.dev``."""
    return f"{kind.resource.plural}.{kind.resource.group}"


def _words(kind: type[Object]) -> set[str]:
    plain = {kind.resource.kind.lower(), kind.resource.plural, *crd_of(kind).short_names}
    return plain | {f"{one}.{kind.resource.group}" for one in plain}


@dataclass(frozen=True, slots=True, order=True)
class Warned:
    """A Warning event about the object: when it was seen last, and what it says."""

    at: datetime
    reason: str
    note: str


async def _warnings(client: Client, raw: Mapping[str, Any]) -> list[Warned]:
    """The Warnings about the object that the server still has."""
    meta = raw["metadata"]
    path = f"/apis/events.k8s.io/v1/namespaces/{meta['namespace']}/events"
    listed = msgspec.json.decode((await client.request("GET", path)).body)
    ours = [
        one
        for one in listed.get("items") or ()
        if one.get("type") == "Warning" and (one.get("regarding") or {}).get("uid") == meta.get("uid")
    ]
    return [Warned(_seen(one), one.get("reason") or "", one.get("note") or "") for one in ours]


def _seen(event: Mapping[str, Any]) -> datetime:
    """When an event happened last."""
    series = (event.get("series") or {}).get("lastObservedTime")
    first = event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(series or event.get("deprecatedLastTimestamp") or first)


async def _save(client: Client, obj: Object, file: Path) -> None:
    operator = operator_of(type(obj))
    if operator.save is None:
        raise ValueError(f"--save: {operator.name} does not save its decisions")
    saved = await operator.save(client, obj)
    await asyncio.to_thread(file.write_bytes, saved.content)
    if saved.silent:
        print(f"No answer from here: {', '.join(saved.silent)}; that is how they are saved.", file=sys.stderr)
    print(f"Saved to {file}; mooring replay {file} decides from it again.")


# --- the answer ------------------------------------------------------------------------------------------


def explained(
    raw: Mapping[str, Any],
    warnings: Iterable[Warned] = (),
    details: Iterable[str] = (),
    *,
    serves: bool = True,
    now: datetime | None = None,
) -> Iterator[str]:
    """The answer, line by line, from the object as the API server gives it; ``details`` are its operator's lines.

    ``serves``: it has clients, unlike a backup. No sentence is there twice.
    """
    meta, status = raw["metadata"], raw.get("status") or {}
    yield f"{raw.get('kind')} {meta.get('namespace')}/{meta.get('name')}"
    # Kinds that were taken over may have conditions of another meaning; there the standard ones are beside them.
    listed = status.get("standardConditions") or status.get("conditions")
    conditions = {one.get("type"): one for one in listed or ()}
    if "Ready" not in conditions:
        yield "  No operator has looked at it yet: is one running, and does its --scope include this object?"
        return
    seen, there = status.get("observedGeneration"), meta.get("generation")
    if seen != there:
        yield f"  The present declaration (generation {there}) was not looked at yet; what follows is of {seen}."
    yield from _standing(conditions, ("Serves", "DOES NOT SERVE") if serves else ("Ready", "Not ready"))
    known = _messages(conditions)
    yield from (f"  {_without(line, known)}" for line in details)
    yield from _warned(conditions, warnings, now or datetime.now(UTC))


def _warned(
    conditions: Mapping[str, Mapping[str, Any]], warnings: Iterable[Warned], now: datetime
) -> Iterator[str]:
    """Each warning once, with its age: those of what is in the way now, then those of what is over."""
    said = _messages(conditions)
    since = _trouble_since(conditions)
    latest = {one.note: one for one in sorted(warnings)}
    shown = sorted(one for one in latest.values() if not _told(one.note, said))
    present = [one for one in shown if since is not None and one.at >= since - EARLIER]
    for one in present[-MOST:]:
        yield f"  Warning, {_age(now - one.at)} ago: {one.reason}: {one.note}"
    if past := [one for one in shown if one not in present]:
        yield "  Over, for your information:"
    for one in past[-MOST:]:
        yield f"    {one.at:%Y-%m-%dT%H:%M:%SZ}, {_age(now - one.at)} ago: {one.reason}: {one.note}"


def _trouble_since(conditions: Mapping[str, Mapping[str, Any]]) -> datetime | None:
    """Since when something is in the way; None where nothing is."""
    bad = {"Ready": "False", "Stalled": "True", "Progressing": "True"}
    times = [
        condition.get("lastTransitionTime")
        for kind, status in bad.items()
        if (condition := conditions.get(kind) or {}).get("status") == status
    ]
    return min((datetime.fromisoformat(time) for time in times if time), default=None)


def _age(passed: timedelta) -> str:
    seconds = max(0, int(passed.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _said(condition: Mapping[str, Any]) -> str:
    return (
        f"{condition.get('message')} ({condition.get('reason')}, since {condition.get('lastTransitionTime')})"
    )


def _standing(conditions: Mapping[str, Mapping[str, Any]], words: tuple[str, str]) -> Iterator[str]:
    """Whether it is ready, and what is in the way; in one line where both are of the same words."""
    ready, progressing = conditions["Ready"], conditions.get("Progressing") or {}
    stalled = conditions.get("Stalled") or {}
    head = words[0] if ready.get("status") == "True" else words[1]
    if stalled.get("status") == "True":
        held, why, text = "Needs you", stalled, _said(stalled)
    elif progressing.get("status") == "True":
        held, why, text = "Waits or works", progressing, _said(progressing)
    else:
        # A backup that failed is over: nothing holds it back, but nothing brings it forward either.
        held = "Nothing is in the way" if ready.get("status") == "True" else "Nothing more is done"
        why, text = progressing, str(progressing.get("message"))
    if ready.get("message") == why.get("message"):
        yield f"  {head}; {held[0].lower()}{held[1:]}: {_said(ready)}"
    else:
        yield f"  {head}: {_said(ready)}"
        yield f"  {held}: {text}"


def _messages(conditions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the conditions say that are shown."""
    kinds = ("Stalled", "Progressing", "Ready")
    return [text for kind in kinds if (text := (conditions.get(kind) or {}).get("message"))]


def _told(note: str, said: Iterable[str]) -> bool:
    """Whether a condition says what a warning says, which may begin with the pod that it is about."""
    rest = note.partition(": ")[2] or note
    return any(text in note or rest in text for text in said)


def _without(line: str, said: Iterable[str]) -> str:
    """A line without its end, where a condition says the same."""
    end = next((one for one in said if line.endswith(f": {one}")), "")
    return line.removesuffix(f": {end}") if end else line
