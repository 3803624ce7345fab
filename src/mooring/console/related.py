"""Collections of an instance, such as its backups: objects of other kinds that name it, listed and made as the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mooring.catalog import Collection, Entry, check_fields, check_name, pointer, render_form
from mooring.console.problems import Problem
from mooring.diagnosis import safe
from mooring.kube import Client, Forbidden, NotFound

__all__ = ["collection_of", "collections_of", "manifest_of", "origin_of", "restored"]

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


async def collections_of(client: Client, entry: Entry, *, namespace: str, name: str) -> list[Json]:
    """The collections of an instance with their rows; ``state`` says why there are none to see."""
    shown = []
    for one in entry.spec.collections:
        rows, state, truncated = await _rows(client, one, namespace=namespace, name=name)
        told = msgspec.to_builtins(one)
        shown.append(
            {
                "name": one.name,
                "title": told["title"],
                "description": told["description"],
                "columns": told.get("columns", []),
                "create": told.get("create"),
                "restore": _texts(told.get("restore")),
                "state": state,
                "rows": rows,
                "truncated": truncated,
            }
        )
    return shown


def _texts(restore: Json | None) -> Json | None:
    return None if restore is None else {"title": restore["title"], "description": restore["description"]}


async def _rows(
    client: Client, one: Collection, *, namespace: str, name: str
) -> tuple[list[Json], str, bool]:
    path = one.target.resource.path(namespace=namespace)
    try:
        answer = msgspec.json.decode((await client.request("GET", path, query={"limit": LIMIT})).body)
    except Forbidden:
        return [], "denied", False
    except NotFound:
        return [], "unserved", False
    rows = [_row(one, item) for item in answer.get("items") or () if pointer.get(item, one.of) == name]
    rows.sort(key=lambda row: str(row["created"]), reverse=True)
    more = bool((answer.get("metadata") or {}).get("continue"))
    return rows[:MOST], "listed", more or len(rows) > MOST


def _row(one: Collection, item: Any) -> Json:
    meta = item["metadata"]
    return {
        "name": str(meta.get("name")),
        "uid": str(meta.get("uid")),
        "created": str(meta.get("creationTimestamp") or ""),
        "cells": [_text(pointer.get(item, column.path)) for column in one.columns],
        "outcome": outcome_of(one, item),
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
    problems = check_name(name) + check_fields(one.create.parameters, values)
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
    owned: Json = pointer.put(made, one.of, instance)
    return owned


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
    if outcome_of(one, item) not in ("good", ""):
        raise Problem(409, "NotRestorable", f"{one.target.kind} {name} is not complete.")
    return one, item


def restored(one: Collection, item: Json, manifest: Json) -> Json:
    """A new instance's manifest, led to the object that it is made of."""
    if one.restore is None:
        raise AssertionError("unreachable")
    words = {"{name}": str(item["metadata"]["name"]), "{instance}": str(pointer.get(item, one.of) or "")}
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
