"""Collections of an instance, such as its backups: objects of other kinds that name it, listed and made as the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.catalog import (
    Collection,
    Entry,
    Target,
    check_form,
    check_name,
    check_value,
    pointer,
    render_form,
)
from mooring.console.problems import Problem
from mooring.diagnosis import safe
from mooring.kube import Client, Forbidden, NotFound

__all__ = [
    "belongs",
    "collection_of",
    "collections_of",
    "instance_of",
    "manifest_of",
    "origin_of",
    "restored",
    "restores_of",
]

#: Objects of a collection that are shown, objects of a namespace that are looked through.
MOST, LIMIT = 500, "2000"
TEXT: Final = 500
Json = dict[str, Any]


def collection_of(entry: Entry, name: str) -> Collection:
    """The collection of that name; raises `Problem`."""
    found = next((one for one in entry.spec.collections if one.name == name), None)
    if found is None:
        raise Problem(404, "NoSuchCollection", f"{entry.name} has no collection {name[:80]!r}.")
    return found


async def collections_of(
    client: Client, entry: Entry, *, namespace: str, name: str, pages: Mapping[Target, str] | None = None
) -> list[Json]:
    """The collections of an instance with their rows; ``state`` says why there are none to see.

    ``pages`` are the entries by the kinds whose objects have a page of their own.
    """
    pages = pages or {}
    shown = []
    for one in entry.spec.collections:
        items, state, truncated = await _items(client, one, namespace=namespace, name=name)
        told = msgspec.to_builtins(one)
        shown.append(
            {
                "name": one.name,
                "title": told["title"],
                "description": told["description"],
                "columns": told.get("columns", []),
                "create": told.get("create"),
                "values": _start(one, items),
                "entry": pages.get(one.target, ""),
                "restore": _texts(told.get("restore")),
                "state": state,
                "rows": [_row(one, item) for item in items],
                "truncated": truncated,
            }
        )
    return shown


def _texts(restore: Json | None) -> Json | None:
    if restore is None:
        return None
    return {"title": restore["title"], "description": restore["description"], "ask": restore.get("ask", [])}


def restores_of(entries: Iterable[Entry], item: Json, target: Target) -> list[Json]:
    """What can be made of an object whose page is shown: entries with a collection of its kind that restores."""
    found = []
    for entry in entries:
        for one in entry.spec.collections:
            if one.target == target and in_collection(one, item) and restorable(one, item):
                told = _texts(msgspec.to_builtins(one.restore)) or {}
                named = {"entry": entry.name, "collection": one.name, "instance": instance_of(one, item)}
                found.append({**told, **named})
    return found


async def _items(
    client: Client, one: Collection, *, namespace: str, name: str
) -> tuple[list[Json], str, bool]:
    """The objects of an instance, the newest first; the state; whether there are more."""
    path = one.target.resource.path(namespace=namespace)
    try:
        answer = msgspec.json.decode((await client.request("GET", path, query={"limit": LIMIT})).body)
    except Forbidden:
        return [], "denied", False
    except NotFound:
        return [], "unserved", False
    items = [item for item in answer.get("items") or () if belongs(one, item, namespace=namespace, name=name)]
    items.sort(key=lambda item: str(item["metadata"].get("creationTimestamp") or ""), reverse=True)
    more = bool((answer.get("metadata") or {}).get("continue"))
    return items[:MOST], "listed", more or len(items) > MOST


def belongs(one: Collection, item: Any, *, namespace: str, name: str) -> bool:
    """Whether an object is one of the collection of that instance."""
    return pointer.get(item, one.of) == _named(one, namespace, name) and in_collection(one, item)


def _named(one: Collection, namespace: str, name: str) -> str:
    """How an object names the instance."""
    return one.named.replace("{namespace}", namespace).replace("{name}", name)


def instance_of(one: Collection, item: Any) -> str:
    """The name of the instance that an object belongs to, the last part of what it says."""
    return str(pointer.get(item, one.of) or "").rpartition("/")[2]


def in_collection(one: Collection, item: Any) -> bool:
    """Whether an object is one of the collection of some instance."""
    return all(pointer.get(item, place) == value for place, value in one.where.items())


def _start(one: Collection, items: list[Json]) -> Json:
    """The values that the form for a new object begins with: its defaults, else those of the newest object."""
    if one.create is None:
        return {}
    values: Json = {}
    for field, parameter in one.create.parameters.properties.items():
        value = parameter.default
        if items and (live := pointer.get(items[0], parameter.bind)) is not None:
            value = live if check_value(parameter, live) is None else value
        if value is not None:
            values[field] = value
    return values


def _row(one: Collection, item: Any) -> Json:
    meta = item["metadata"]
    return {
        "name": str(meta.get("name")),
        "uid": str(meta.get("uid")),
        "created": str(meta.get("creationTimestamp") or ""),
        "cells": [_text(pointer.get(item, column.path)) for column in one.columns],
        "outcome": outcome_of(one, item),
        "restorable": restorable(one, item),
    }


def outcome_of(one: Collection, item: Any) -> str:
    """Whether an object is good, bad or pending, "" where its kind does not say."""
    if one.outcome is None:
        return ""
    word = pointer.get(item, one.outcome.path)
    return "good" if word in one.outcome.good else "bad" if word in one.outcome.bad else "pending"


def _text(value: Any) -> str:
    if value is None or isinstance(value, (dict, list)):
        return ""
    return safe(str(value).lower() if isinstance(value, bool) else str(value))[:TEXT]


def manifest_of(one: Collection, *, namespace: str, instance: str, body: Mapping[str, Any]) -> Json:
    """A new object of a collection from what a user gave; raises `Problem`."""
    if one.create is None:
        raise Problem(404, "NothingToMake", f"Nothing can be made in {one.name}.")
    name, values = body.get("name"), body.get("values")
    if not isinstance(values, dict):
        raise Problem(400, "ValuesMissing", "values must be an object.")
    problems = check_name(name) + check_form(one.create.parameters, one.create.rules, values)
    if problems:
        errors = [msgspec.to_builtins(problem) for problem in problems]
        raise Problem(422, "WrongValues", "Some fields need attention.", errors=errors)
    made = render_form(
        one.target,
        one.create.parameters.properties,
        one.create.render,
        name=str(name),
        namespace=namespace,
        values=values,
    )
    # Last, so that no field can say whose it is.
    for place, value in {**one.where, one.of: _named(one, namespace, instance)}.items():
        if value is not None:
            made = pointer.put(made, place, value)
    return made


async def origin_of(client: Client, entry: Entry, namespace: str, body: Any) -> tuple[Collection, Json]:
    """The collection and the object that a new instance is made of; raises `Problem`, `KubeError`."""
    if not isinstance(body, dict):
        raise Problem(400, "WrongOrigin", "from must be an object.")
    one = collection_of(entry, str(body.get("collection") or ""))
    name = body.get("name")
    if one.restore is None or check_name(name):
        raise Problem(400, "WrongOrigin", f"Nothing is restored from {one.name}.")
    path = one.target.resource.path(namespace=namespace, name=str(name))
    item: Json = msgspec.json.decode((await client.request("GET", path)).body)
    elsewhere = not one.target.namespaced and not belongs(
        one, item, namespace=namespace, name=instance_of(one, item)
    )
    if elsewhere or not in_collection(one, item):
        raise Problem(400, "WrongOrigin", f"{one.target.kind} {name} is not of an instance like this.")
    if not restorable(one, item):
        raise Problem(409, "NotRestorable", f"{one.target.kind} {name} is not complete.")
    return one, item


def restorable(one: Collection, item: Any) -> bool:
    """Whether an instance can be made of an object: it went well, and names what is restored."""
    if one.restore is None or outcome_of(one, item) not in ("good", ""):
        return False
    return not one.restore.object or isinstance(pointer.get(item, one.restore.object), str)


def restored(one: Collection, item: Json, manifest: Json) -> Json:
    """A new instance's manifest, led to the object that it is made of."""
    if one.restore is None:
        raise AssertionError("unreachable")
    words = {"{name}": str(item["metadata"]["name"]), "{instance}": instance_of(one, item)}
    if one.restore.object:
        words["{object}"] = str(pointer.get(item, one.restore.object) or "")
    for place in one.restore.drop:
        if pointer.get(manifest, place) is not None:
            manifest = pointer.drop(manifest, place)
    for place, leaf in one.restore.set.items():
        text = leaf
        if isinstance(leaf, str):
            for word, value in words.items():
                text = text.replace(word, value)
        manifest = pointer.put(manifest, place, text)
    return manifest
