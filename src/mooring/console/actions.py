"""Actions of an instance, as its entry declares them: a dry run first, then one small patch with the user's rights."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from mooring.catalog import (
    Action,
    Change,
    Entry,
    check_edit,
    diff,
    editable,
    json_patch,
    pointer,
    values_of,
    with_values,
)
from mooring.console.document import unified
from mooring.console.edit import TRIES, Edited, change_rows
from mooring.console.problems import Problem
from mooring.kube import Client, Conflict, JsonPatch
from mooring.kube.transport import Response

__all__ = ["actions_of", "perform"]

Json = dict[str, Any]


def actions_of(entry: Entry, live: Json) -> list[Json]:
    """The actions of an instance; ``possible`` is whether they make sense now."""
    shown = []
    for action in entry.spec.actions:
        row = {
            "name": action.name,
            "title": msgspec.to_builtins(action.title),
            "description": msgspec.to_builtins(action.description),
            "effect": action.effect,
            "field": action.field,
            "possible": _possible(action, live),
        }
        shown.append(row)
    return shown


async def perform(
    client: Client,
    entry: Entry,
    *,
    namespace: str,
    name: str,
    action: str,
    uid: str,
    value: Any,
    now: datetime,
    manager: str,
    dry_run: bool,
) -> tuple[Edited, Response | None]:
    """Do an action, or ask what would come of it; ``value`` is that of its field. Raises `Problem`, `KubeError`."""
    found = next((one for one in entry.spec.actions if one.name == action), None)
    if found is None:
        raise Problem(404, "NoSuchAction", f"{entry.name} has no action {action[:80]!r}.")
    path = entry.spec.target.resource.path(namespace=namespace, name=name)
    query = {"fieldManager": manager, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    for attempt in range(TRIES):
        live = await _read(client, path)
        if live["metadata"].get("uid") != uid:
            raise Problem(409, "Replaced", "The instance was deleted and made again.")
        if not _possible(found, live):
            raise Problem(409, "NotNow", f"{found.title.en} is not possible now: it is done already.")
        where, before = path, live
        if found.target is not None:
            where, before = await _other(client, found, namespace, name, uid)
        changes = diff(before, _done(entry, found, before, value, now))
        if not changes:
            return Edited(changes=[], diff=""), None
        patch = JsonPatch(
            json_patch(changes, resource_version=str(before["metadata"].get("resourceVersion")))
        )
        try:
            made = await client.request(
                "PATCH", where, query=query, body=patch.encode(), content_type=patch.content_type
            )
        except Conflict:
            if attempt == TRIES - 1:
                raise
            continue
        shown = [
            Change(op=one.op, path=one.path, old=pointer.get(editable(before, entry.sensitive), one.path))
            for one in changes
        ]
        after = editable(msgspec.json.decode(made.body), entry.sensitive)
        return Edited(
            changes=change_rows(entry, shown, after), diff=unified(editable(before, entry.sensitive), after)
        ), made
    raise AssertionError("unreachable")


async def _read(client: Client, path: str) -> Json:
    found: Json = msgspec.json.decode((await client.request("GET", path)).body)
    return found


async def _other(client: Client, action: Action, namespace: str, name: str, uid: str) -> tuple[str, Json]:
    """The other object that an action changes; it must be the instance's own."""
    target = action.target
    if target is None:
        raise AssertionError("unreachable")
    base = f"/apis/{target.group}/{target.version}" if target.group else f"/api/{target.version}"
    path = f"{base}/namespaces/{namespace}/{target.plural}/{target.name.replace('{name}', name)}"
    found = await _read(client, path)
    if not any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or ()):
        raise Problem(409, "NotOwned", "The object that this action changes is not the instance's.")
    return path, found


def _possible(action: Action, live: Json) -> bool:
    off = (None, False, "false", "")
    return all(
        (found := pointer.get(live, place)) == value or (value is None and found in off)
        for place, value in action.when.items()
    )


def _done(entry: Entry, action: Action, obj: Json, value: Any, now: datetime) -> Any:
    """The object with the action done; raises `Problem` for a wrong value."""
    wanted: Mapping[str, Any] = {
        **action.set,
        **({action.stamp: now.isoformat(timespec="seconds")} if action.stamp else {}),
    }
    made: Any = obj
    try:
        for place, leaf in wanted.items():
            if leaf is not None:
                made = pointer.put(made, place, leaf)
            elif pointer.get(made, place) is not None:
                made = pointer.drop(made, place)
        if action.field:
            problems = check_edit(entry, {action.field: value}, values_of(entry, obj))
            if problems or value is None:
                errors = [msgspec.to_builtins(one) for one in problems]
                raise Problem(422, "WrongValues", "Some fields need attention.", errors=errors)
            made = with_values(entry, made, {action.field: value})
    except ValueError as error:
        raise Problem(409, "NotNow", f"The object has no place for this: {error}") from error
    return made
