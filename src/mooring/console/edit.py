"""Edits of an instance: only what was changed is sent, and only if nobody else changed the instance meanwhile.

An edit names the document it began from (the base, as `form` gave it, secrets masked). What the user changed is the
difference to that base. If the live object differs from the base as well, nothing is written: the answer has both
sides, and the user's changes made on top of the live object, to go on from. Status and the fields that the API server
sets do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.catalog import (
    MASKED,
    Change,
    Entry,
    MaskedSecret,
    apply_changes,
    check_edit,
    diff,
    editable,
    field_of,
    json_patch,
    overlaps,
    pointer,
    restored,
    values_of,
    with_values,
)
from mooring.console.document import read_yaml, to_yaml, unified
from mooring.console.problems import Problem
from mooring.kube import Client, Conflict, JsonPatch
from mooring.kube.transport import Response

__all__ = ["TRIES", "Edit", "Edited", "change_rows", "form"]

#: Tries of one edit: an operator that writes its status changes the version, and nothing that is edited.
TRIES: Final = 5
#: Characters of a value in a list of changes; changes in it.
VALUE_LIMIT, CHANGES_LIMIT = 1000, 500
_FIXED: Final = ("/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/status")
Json = dict[str, Any]


class Base(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an edit begins from."""

    uid: str
    document: Json


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit does, or would do: ``changes`` as the user made them, ``diff`` as the API server stores them."""

    changes: list[Json]
    diff: str


def form(entry: Entry, live: Json) -> Json:
    """What an edit of an instance begins with; ``kept`` are the sensitive fields that have a value."""
    document = editable(live, entry.sensitive)
    return {
        "base": {"uid": str((live.get("metadata") or {}).get("uid") or ""), "document": document},
        "yaml": to_yaml(document),
        "values": values_of(entry, document),
        "kept": [
            name for name, p in entry.parameters.items() if p.sensitive and pointer.get(document, p.bind)
        ],
    }


class Edit:
    """One edit: the base, and the values of the form, the text of the editor, or both."""

    def __init__(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Read the body of a request; raises `Problem`."""
        try:
            base = msgspec.convert(body.get("base"), Base)
            self._values = msgspec.convert(body.get("values", {}), dict[str, Any])
            text = msgspec.convert(body.get("yaml"), str | None)
        except msgspec.ValidationError as error:
            raise Problem(400, "BadEdit", f"The edit is not sound: {error}.") from error
        self._entry = entry
        self._base = base
        self.changes = self._both(text)
        edited, _ = apply_changes(base.document, self.changes)
        self._masked = editable(edited, entry.sensitive)
        #: What was typed and must not come back in a message.
        self.secrets = [
            secret
            for change in self.changes
            for secret in _secrets(change.new, pointer.get(self._masked, change.path))
        ]

    @property
    def uid(self) -> str:
        """The object that the edit began from."""
        return self._base.uid

    def _both(self, text: str | None) -> list[Change]:
        """The changes of the form and of the editor."""
        entry, document = self._entry, self._base.document
        written = diff(document, read_yaml(text)) if text is not None else []
        for change in written:
            if any(overlaps(change, Change(op="replace", path=fixed)) for fixed in _FIXED):
                raise _at("yaml", change.path, "This cannot be changed here.", "此处不能修改。")
        present = values_of(entry, document)
        typed = {
            name: value
            for name, value in self._values.items()
            if name not in entry.parameters
            or (entry.parameters[name].sensitive and value)
            or (not entry.parameters[name].sensitive and value != present.get(name))
        }
        _check(entry, typed, present)
        try:
            filled = diff(document, with_values(entry, document, typed))
        except ValueError as error:
            path, _, _ = str(error).partition(":")
            raise _at("yaml", path, "The form has no place for this value.", "表单的值无处可放。") from error
        for change in filled:
            if any(overlaps(change, other) and change != other for other in written):
                name = field_of(entry, pointer.shown(change.path))
                raise _at(
                    name, change.path, "The YAML changes this to something else.", "YAML 中对此有不同的修改。"
                )
        return [*filled, *(change for change in written if change not in filled)]

    async def send(
        self, client: Client, path: str, *, dry_run: bool, manager: str
    ) -> tuple[Edited, Response | None]:
        """Send the changes to the object at ``path``, or ask what would come of it; raises `Problem`, `KubeError`."""
        if not self.changes:
            return Edited(changes=[], diff=""), None
        for attempt in range(TRIES):
            live = msgspec.json.decode((await client.request("GET", path)).body)
            before = editable(live, self._entry.sensitive)
            self._compare(live, before)
            try:
                made = await client.request(
                    "PATCH",
                    path,
                    query={
                        "fieldManager": manager,
                        "fieldValidation": "Strict",
                        **({"dryRun": "All"} if dry_run else {}),
                    },
                    body=self._patch(live, before).encode(),
                    content_type=JsonPatch.content_type,
                )
            except Conflict:
                if attempt == TRIES - 1:
                    raise
                continue
            after = editable(msgspec.json.decode(made.body), self._entry.sensitive)
            return Edited(changes=self.shown, diff=unified(before, after)), made
        raise AssertionError("unreachable")

    def _patch(self, live: Json, shown: Json) -> JsonPatch:
        try:
            changes = restored(self.changes, shown, live)
        except MaskedSecret as error:
            raise _at(
                "yaml",
                error.path,
                "A masked secret stands in another place than before: write the secret itself.",
                "被隐藏的密文换了位置:请填写密文本身。",
            ) from error
        version = str(live["metadata"].get("resourceVersion") or "")
        return JsonPatch(json_patch(changes, resource_version=version))

    def _compare(self, live: Json, shown: Json) -> None:
        """Raise what is to be told if the live object is not the base any more."""
        uid = str(live["metadata"].get("uid") or "")
        theirs = diff(self._base.document, shown)
        if uid == self._base.uid and not theirs:
            return
        merged, left = apply_changes(shown, self.changes)
        both = [
            pointer.shown(change.path)
            for change in self.changes
            if any(overlaps(change, other) for other in theirs)
        ]
        replaced = uid != self._base.uid
        detail = (
            "The instance was deleted and made again while you edited."
            if replaced
            else "Somebody else changed the instance while you edited."
        )
        raise Problem(
            409,
            "Replaced" if replaced else "Changed",
            detail,
            more={
                "theirs": change_rows(self._entry, theirs, shown),
                "ours": self.shown,
                "both": both,
                "left": change_rows(self._entry, left, self._masked),
                "current": form(self._entry, live),
                # Secrets that were typed are masked in it: `ours` says which they are.
                "merged": to_yaml(editable(merged, self._entry.sensitive)),
            },
        )

    @property
    def shown(self) -> list[Json]:
        """The changes for people to read, without secrets."""
        return change_rows(self._entry, self.changes, self._masked)


def change_rows(entry: Entry, changes: Sequence[Change], masked: Json) -> list[Json]:
    """Changes for people to read; the new values are those of the masked object."""
    rows = []
    for change in changes[:CHANGES_LIMIT]:
        path = pointer.shown(change.path)
        new = _text(pointer.get(masked, change.path)) if change.op != "remove" else ""
        rows.append(
            {
                "op": change.op,
                "path": path,
                "field": field_of(entry, path),
                "old": _text(change.old) if change.op != "add" else "",
                "new": new,
                "secret": MASKED in new,
            }
        )
    return rows


def _secrets(value: Any, masked: Any) -> Iterator[str]:
    """The texts of a value that its masked form hides."""
    if isinstance(value, str) and value != masked:
        yield value
    elif isinstance(value, dict) and isinstance(masked, dict):
        for key, below in value.items():
            yield from _secrets(below, masked.get(key))
    elif isinstance(value, list) and isinstance(masked, list):
        for below, shown in zip(value, masked, strict=False):
            yield from _secrets(below, shown)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else to_yaml(value).removesuffix("...\n").strip()
    return text[:VALUE_LIMIT]


def _check(entry: Entry, typed: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Raise what is wrong with the values that were changed."""
    problems = [msgspec.to_builtins(problem) for problem in check_edit(entry, typed, present)]
    message = {"en": "This cannot be changed any more.", "zh": "创建后不能修改。"}
    problems += [
        {"field": name, "message": message}
        for name in typed
        if name in entry.parameters and entry.parameters[name].immutable
    ]
    if problems:
        raise Problem(422, "WrongValues", "Some fields need attention.", errors=problems)


def _at(field: str, path: str, en: str, zh: str) -> Problem:
    shown = pointer.shown(path) if path.startswith("/") else path
    error = {"field": field, "path": shown, "message": {"en": f"{shown}: {en}", "zh": f"{shown}：{zh}"}}
    return Problem(422, "WrongValues", f"{shown}: {en}", errors=[error])
