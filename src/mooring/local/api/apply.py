"""Server-side apply and the managedFields of every other write, as a real API server keeps them.

A manager is who wrote (`manager`), how (`operation`: Apply or Update) and through which subresource.
Each owns a set of fields. An apply owns exactly what its configuration gives, takes away what it gave
before and nobody else owns, and conflicts with others over values it would change. An update owns what
it changed. A set is about the version its manager wrote: what a write changes is compared in the
version of each manager (`Versions`); built-in kinds have one structure in all of theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Protocol

from mooring.kube.errors import BadRequest, Conflict, ServerError
from mooring.local.api.constraints import same
from mooring.local.api.fieldset import (
    FieldSet,
    difference,
    field_set,
    has,
    intersection,
    is_field_set,
    paths,
    render,
    union,
    without,
)
from mooring.local.api.merge import TypedError, check, compare, field_set_of, merge, named, remove
from mooring.local.api.schema import Schema
from mooring.local.api.wire import decode

__all__ = [
    "ScaleOwners",
    "Versions",
    "Writer",
    "apply",
    "doubled",
    "reset_fields",
    "restore_times",
    "track",
    "zero",
]

JsonObject = dict[str, Any]

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_UPDATERS: Final = 10
_STRIPPED: Final = field_set(
    "apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.creationTimestamp",
    "metadata.selfLink", "metadata.uid", "metadata.clusterName", "metadata.generation",
    "metadata.managedFields", "metadata.resourceVersion",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: field manager, API version of the request, time (RFC 3339), subresource or ""."""

    manager: str
    api_version: str
    time: str
    subresource: str = ""


class Versions(Protocol):
    """What objects look like in other versions of their kind."""

    def view(self, obj: JsonObject, api_version: str) -> tuple[JsonObject, Schema]:
        """Return an object in a version with that version's schema; raises LookupError for an unknown one."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of managedFields."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str | None
    fields: FieldSet

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Appliers keep their entry from version to version, updaters have one per version."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.operation, self.manager, version, self.subresource)

    def encode(self) -> JsonObject:
        entry = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        entry |= {"time": self.time} if self.time else {}
        encoded: JsonObject = {**entry, "fieldsType": "FieldsV1", "fieldsV1": self.fields}
        if self.subresource:
            encoded["subresource"] = self.subresource
        return encoded


_Managers = dict[tuple[str, str, str, str], _Entry]


# --- managedFields, read and written ------------------------------------------------------------------


def _decode(entries: Any) -> _Managers | None:
    """Read managedFields; None when they are invalid."""
    managers: _Managers = {}
    for entry in entries or ():
        fields = entry.get("fieldsV1") or {}
        valid = entry.get("operation") in ("Apply", "Update") and entry.get("apiVersion")
        if not valid or entry.get("fieldsType") != "FieldsV1" or not is_field_set(fields):
            return None
        read = _Entry(
            manager=entry.get("manager", ""),
            operation=entry["operation"],
            api_version=entry["apiVersion"],
            subresource=entry.get("subresource", ""),
            time=entry.get("time"),
            fields=fields,
        )
        managers[read.identity] = read
    return managers


def _encode(managers: Iterable[_Entry]) -> list[JsonObject]:
    entries = sorted(
        managers, key=lambda e: (e.operation, e.time or "", e.manager, e.api_version, e.subresource)
    )
    return [entry.encode() for entry in entries]


def _with_managers(obj: JsonObject, managers: _Managers) -> JsonObject:
    metadata = dict(obj.get("metadata") or {})
    metadata.pop("managedFields", None)
    if managers:
        metadata["managedFields"] = _encode(managers.values())
    return {**obj, "metadata": metadata}


def _bare(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    rest = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**obj, "metadata": rest}


def _live_or_new(live: JsonObject, new: JsonObject, subresource: str) -> _Managers:
    """Read the managers a write starts from: those the client sent, when they are valid."""
    stored = (live.get("metadata") or {}).get("managedFields")
    sent = (new.get("metadata") or {}).get("managedFields")
    if subresource or sent is stored:
        return _decode(stored) or {}
    if sent == [] or (isinstance(sent, list) and len(sent) == 1 and not any(sent[0].values())):
        return {}
    return _decode(sent) or _decode(stored) or {}


# --- the size, seen through scale ---------------------------------------------------------------------

_SIZE: Final = field_set("spec.replicas")


@dataclass(frozen=True, slots=True)
class ScaleOwners:
    """Translates managedFields between an object and its Scale.

    `place` tells where an API version has its size: a path, "" for nowhere, None for an unknown version.
    """

    api_version: str
    place: Callable[[str], str | None]

    def of_scale(self, entries: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the managers of the Scale: those of the object that own its size."""
        size = "autoscaling/v1"
        owners = (entry for entry in (_decode(entries) or {}).values() if self._owns(entry))
        return _encode([replace(entry, api_version=size, fields=_SIZE) for entry in owners])

    def of_parent(self, entries: Sequence[JsonObject], scaled: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the managers of the object after a change of its Scale, whose managers are now `scaled`."""
        before, after = _decode(entries) or {}, _decode(scaled) or {}
        kept: list[_Entry] = []
        for identity, entry in before.items():
            place = self.place(entry.api_version)
            if place is None:
                continue
            if not self._owns(entry):
                kept.append(entry)
            elif identity in after:
                kept.append(entry)
                del after[identity]
            elif rest := difference(entry.fields, field_set(place.strip("."))):
                kept.append(replace(entry, fields=rest))
        place = (self.place(self.api_version) or "").strip(".")
        for identity, entry in after.items():
            if intersection(entry.fields, _SIZE):
                known = before.get(identity)
                made = replace(entry, api_version=self.api_version, fields=field_set(place))
                kept.append(replace(made, time=known.time if known is not None else None))
        return _encode(kept)

    def _owns(self, entry: _Entry) -> bool:
        place = self.place(entry.api_version)
        return bool(place) and bool(intersection(entry.fields, field_set(str(place).strip("."))))


def doubled(obj: JsonObject) -> bool:
    """Whether a manager stands twice in an object, as a change of its size can leave it; the next write mends that."""
    entries = (obj.get("metadata") or {}).get("managedFields") or ()
    return len(_decode(entries) or entries) < len(entries)


# --- the fields a request cannot change ---------------------------------------------------------------

_NO_STATUS: Final = frozenset(
    ("CertificateSigningRequest", "CronJob", "CustomResourceDefinition", "DaemonSet", "Deployment",
     "FlowSchema", "HorizontalPodAutoscaler", "Ingress", "Job", "Namespace", "Node", "PersistentVolume",
     "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PriorityLevelConfiguration", "ReplicaSet",
     "ReplicationController", "ResourceClaim", "ResourceQuota", "Service", "ServiceCIDR", "StatefulSet",
     "ValidatingAdmissionPolicy", "VolumeAttachment", "APIService")
)  # fmt: skip
_STATUS_ONLY: Final = frozenset(
    ("FlowSchema", "PriorityLevelConfiguration", "ResourceClaim", "ServiceCIDR",
     "ValidatingAdmissionPolicy", "VolumeAttachment")
)  # fmt: skip


#: A signing request's spec is fixed; its approval and its certificate come by two subresources.
_SIGNING_REQUEST: Final = {
    "approval": ("spec", "status.certificate"),
    "status": ("spec", "status.conditions"),
}


def reset_fields(
    kind: str, subresource: str = "", *, custom: bool = False, status: bool = True
) -> tuple[str, ...]:
    """Return the fields a request to a resource resets, so that no manager comes to own them.

    `custom`: a custom resource; `status`: it has the status subresource.
    """
    if kind == "CertificateSigningRequest" and not custom:
        return _SIGNING_REQUEST.get(subresource, ("spec", "status"))
    if subresource == "status":
        if custom or kind in _STATUS_ONLY:
            return ("metadata", "spec")
        if kind == "Pod":
            return ("spec", "metadata.deletionTimestamp", "metadata.ownerReferences")
        return ("spec", "metadata.labels") if kind == "Deployment" else ("spec",)
    if subresource == "finalize":
        return ("status",)
    return ("status",) if (status if custom else kind in _NO_STATUS) else ()


@lru_cache(maxsize=64)
def _reset_set(reset: tuple[str, ...]) -> FieldSet:
    return field_set(*reset)


# --- create, update, patch ----------------------------------------------------------------------------


def zero(schema: Schema, api_version: str, kind: str) -> JsonObject:
    """Return the object that is compared with when there is none: an empty Go struct, printed."""
    base = {"apiVersion": api_version, "kind": kind}
    return decode(base, schema).value if schema.fields else base


def track(
    live: JsonObject | None,
    new: JsonObject,
    schema: Schema,
    writer: Writer,
    *,
    reset: Sequence[str] = (),
    versions: Versions | None = None,
) -> JsonObject:
    """Return `new` with managedFields as after a create (live None), update or patch by the writer.

    `new` is defaulted. The result's managedFields derive from the live object's, or from those the
    client sent when they are valid (an empty list resets them). `versions` None: all look alike.
    """
    old = live if live is not None else zero(schema, writer.api_version, new.get("kind", ""))
    managers = _live_or_new(old, new, writer.subresource)
    if not managers and live is not None:
        return _with_managers(new, {})
    try:
        state = _State(schema=schema, writer=writer, reset=tuple(reset), versions=versions)
        managers = _update(_bare(old), _bare(new), managers, state)
    except (TypedError, LookupError):
        return _with_managers(new, {})
    return _with_managers(new, _capped(managers))


@dataclass(frozen=True, slots=True)
class _State:
    """What is the same for all steps of one write."""

    schema: Schema
    writer: Writer
    reset: tuple[str, ...]
    versions: Versions | None = None


class _Changes:
    """What a write changes, in every version that a manager speaks of."""

    def __init__(self, old: JsonObject, new: JsonObject, state: _State) -> None:
        self._old, self._new, self._state = old, new, state
        self._found: dict[str, tuple[FieldSet, FieldSet]] = {}

    def in_version(self, api_version: str) -> tuple[FieldSet, FieldSet]:
        """Return the fields that get another value, and those besides that go; raises LookupError."""
        state = self._state
        if state.versions is None:
            api_version = state.writer.api_version
        found = self._found.get(api_version)
        if found is None:
            own = api_version == state.writer.api_version
            (old, schema), (new, _) = (_seen(obj, api_version, state) for obj in (self._old, self._new))
            change = compare(old, new, schema)
            ignored = _reset_set(state.reset if own else ())
            taken = without(union(change.modified, change.added), ignored)
            found = self._found[api_version] = (taken, without(change.removed, ignored))
        return found

    def less(self, managers: _Managers, *, but: object = None) -> _Managers:
        """Return the managers without the changed fields (but one), those that keep none left out."""
        result: _Managers = {}
        for identity, entry in managers.items():
            fields = entry.fields
            if identity != but:
                taken, removed = self.in_version(entry.api_version)
                fields = difference(fields, union(taken, removed))
            if fields:
                result[identity] = entry if fields is entry.fields else replace(entry, fields=fields)
        return result


def _seen(obj: JsonObject, api_version: str, state: _State) -> tuple[JsonObject, Schema]:
    """Return an object of the writer's version in another one, with its schema."""
    if state.versions is None or api_version == state.writer.api_version:
        return obj, state.schema
    return state.versions.view(obj, api_version)


def _update(old: JsonObject, new: JsonObject, managers: _Managers, state: _State) -> _Managers:
    changes, writer = _Changes(old, new, state), state.writer
    result = changes.less(managers)
    gained = difference(changes.in_version(writer.api_version)[0], _STRIPPED)
    if gained:
        entry = _Entry(
            writer.manager or "unknown", "Update", writer.api_version, writer.subresource, writer.time, gained
        )
        previous = result.get(entry.identity)
        fields = union(gained, previous.fields) if previous else gained
        result[entry.identity] = replace(entry, fields=fields)
    return result


def _capped(managers: _Managers) -> _Managers:
    """Merge the oldest update entries of a version when there are more than ten."""
    updaters = sorted(
        (entry for entry in managers.values() if entry.operation == "Update"),
        key=lambda e: (e.time or "", e.identity),
    )
    count = len(updaters)
    if count <= _MAX_UPDATERS:
        return managers
    result = dict(managers)
    first: dict[str, _Entry] = {}
    for entry in updaters:
        if count <= _MAX_UPDATERS:
            break
        if entry.api_version not in first:
            first[entry.api_version] = entry
            continue
        bucket = _Entry("ancient-changes", "Update", entry.api_version, "", entry.time, {})
        known = result.get(bucket.identity) or result.pop(first[entry.api_version].identity)
        del result[entry.identity]
        result[bucket.identity] = replace(bucket, fields=union(entry.fields, known.fields))
        count -= 1
    return result


# --- apply --------------------------------------------------------------------------------------------


def apply(
    live: JsonObject | None,
    config: JsonObject,
    schema: Schema,
    writer: Writer,
    *,
    force: bool = False,
    reset: Sequence[str] = (),
    versions: Versions | None = None,
) -> JsonObject:
    """Return the live object (None: it does not exist) with an applied configuration merged in.

    managedFields are updated; `reset` names paths the request cannot change ("status", "spec",
    "metadata.ownerReferences"), which no manager comes to own. The very `live` comes back when nothing
    changed. `versions` None: all versions look alike. Raises Conflict (409, causes FieldManagerConflict) unless `force`, BadRequest for a bad config.
    The caller then decodes (built-in), defaults, validates and stores; see `restore_times`.
    """
    if "managedFields" in (config.get("metadata") or {}):
        raise BadRequest("metadata.managedFields must be nil", status=400, reason="BadRequest")
    try:
        check(config, schema)
    except TypedError as error:
        raise _server_error(f"failed to create typed patch object ({_described(config)}): {error}") from None
    kind = config.get("kind", "")
    old = live if live is not None else zero(schema, writer.api_version, kind)
    managers = _decode((old.get("metadata") or {}).get("managedFields")) or {}
    state = _State(schema=schema, writer=writer, reset=tuple(reset), versions=versions)
    bare = _bare(old)
    if not managers and live is not None:
        before = replace(state, writer=replace(writer, manager="before-first-apply"))
        managers = _update(zero(schema, writer.api_version, kind), bare, {}, before)
    try:
        return _apply(live, bare, config, managers, state=state, force=force)
    except LookupError as error:
        raise _server_error(f"failed to convert old object: {error.args[0]}") from None
    except TypedError as error:
        raise _server_error(str(error)) from None


def _apply(
    live: JsonObject | None,
    old: JsonObject,
    config: JsonObject,
    managers: _Managers,
    *,
    state: _State,
    force: bool,
) -> JsonObject:
    schema, writer = state.schema, state.writer
    ignored = _reset_set(state.reset)
    merged = merge(old, config, schema)
    entry = _Entry(writer.manager, "Apply", writer.api_version, writer.subresource, None, {})
    last = managers.get(entry.identity)
    owned = without(field_set_of(config, schema), ignored)
    kept = difference(owned, _STRIPPED)
    if last is not None and last.fields != kept:
        merged = _pruned(merged, last, replace(entry, fields=owned), managers, state=state)
    changes = _Changes(old, merged, state)
    conflicts = _conflicts(managers, changes, but=entry)
    if conflicts and not force:
        conflicts = _not_last_applied(conflicts, old, state)
        if conflicts:
            raise _conflict(conflicts)
    result = changes.less(managers, but=entry.identity)
    changed = merged is not old and not same(merged, old)
    result.pop(entry.identity, None)
    if kept:
        time = writer.time if changed else last.time if last is not None else None
        result[entry.identity] = replace(entry, fields=kept, time=time)
    if writer.manager == "kubectl" and _last_applied(merged):
        merged = _with_last_applied(merged, config)
        changed = True
    return _result(live, merged if changed else old, result)


def _result(live: JsonObject | None, merged: JsonObject, managers: _Managers) -> JsonObject:
    result = _with_managers(merged, managers)
    if live is not None and same(result, live):
        return live
    return result


def _pruned(
    merged: JsonObject, last: _Entry, now: _Entry, managers: _Managers, *, state: _State
) -> JsonObject:
    """Take away what this manager applied before, does not apply now, and nobody else owns.

    It is done in the version it applied before, then what others own is brought back in theirs.
    """
    seen, schema = _seen(merged, last.api_version, state)
    same_version = last.api_version == now.api_version
    if same_version and not difference(named(last.fields, schema), named(now.fields, schema)):
        return merged
    pruned = remove(seen, named(last.fields, schema), schema)
    managed: dict[str, FieldSet] = {}
    for entry in [now, *(e for e in managers.values() if e.identity != now.identity)]:
        version = entry.api_version if state.versions is not None else last.api_version
        managed[version] = union(managed.get(version, {}), entry.fields)
    # In the version of the pruned object first: what is missing there may not be convertible.
    own = managed.pop(last.api_version, None)
    if own is not None:
        pruned = _brought_back(seen, pruned, own, schema)
    for version, fields in managed.items():
        (whole, other), (rest, _) = _moved(merged, version, state), _moved(pruned, version, state)
        pruned = _brought_back(whole, rest, fields, other)
    pruned, _ = _moved(pruned, last.api_version, state)
    whole_set = named(field_set_of(seen, schema), schema)
    pruned_set = named(field_set_of(pruned, schema), schema)
    dangling = intersection(difference(whole_set, pruned_set), named(last.fields, schema))
    result: JsonObject = remove(seen, dangling, schema)
    return _moved(result, now.api_version, state)[0]


def _moved(obj: JsonObject, api_version: str, state: _State) -> tuple[JsonObject, Schema]:
    """Return an object of any version in another one, with its schema."""
    return (obj, state.schema) if state.versions is None else state.versions.view(obj, api_version)


def _brought_back(whole: JsonObject, pruned: JsonObject, managed: FieldSet, schema: Schema) -> JsonObject:
    """Return an object without what a pruned form of it lacks, but with all that is managed."""
    whole_set = named(field_set_of(whole, schema), schema)
    pruned_set = named(field_set_of(pruned, schema), schema)
    result: JsonObject = remove(
        whole, difference(whole_set, union(pruned_set, named(managed, schema))), schema
    )
    return result


# --- conflicts ----------------------------------------------------------------------------------------

_Conflicts = list[tuple[_Entry, FieldSet]]


def _conflicts(managers: _Managers, changes: _Changes, *, but: _Entry) -> _Conflicts:
    found = []
    for identity, entry in managers.items():
        if identity == but.identity:
            continue
        if common := intersection(entry.fields, changes.in_version(entry.api_version)[0]):
            found.append((entry, common))
    return found


def _name(entry: _Entry) -> str:
    text = json.dumps(entry.manager, ensure_ascii=False)
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    return f"{text} using {entry.api_version}" if entry.operation == "Update" else text


def _identifier(entry: _Entry) -> str:
    """Return what a real server sorts managers by: the entry as Go writes it, without fields and time."""
    version = "" if entry.operation == "Apply" else entry.api_version
    parts = {
        "manager": entry.manager,
        "operation": entry.operation,
        "apiVersion": version,
        "subresource": entry.subresource,
    }
    kept = {key: value for key, value in parts.items() if value}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def _conflict(conflicts: _Conflicts) -> Conflict:
    """Word the conflicts; `using v1` says that the other manager did not apply, it updated."""
    listed = [(entry, [render(path) for path in paths(fields)]) for entry, fields in conflicts]
    listed.sort(key=lambda pair: _identifier(pair[0]))
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_name(entry)}", "field": path}
        for entry, found in listed
        for path in found
    ]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        groups = [
            "\n".join([f"conflicts with {_name(e)}:", *(f"- {path}" for path in found)])
            for e, found in listed
        ]
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(groups)
    return Conflict(text, status=409, reason="Conflict", details={"causes": causes})


def _last_applied(obj: Mapping[str, Any]) -> str:
    text: str = ((obj.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED) or ""
    return text


def _with_last_applied(merged: JsonObject, config: JsonObject) -> JsonObject:
    """Keep the annotation of client-side apply in step, so that a user may go back to it."""
    applied = _without_annotation(config)
    text = json.dumps(applied, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"
    metadata = merged["metadata"]
    annotations = {**metadata["annotations"], _LAST_APPLIED: text}
    return {**merged, "metadata": {**metadata, "annotations": annotations}}


def _without_annotation(config: JsonObject) -> JsonObject:
    metadata = config.get("metadata") or {}
    if _LAST_APPLIED not in (metadata.get("annotations") or {}):
        return config
    rest = {key: value for key, value in metadata["annotations"].items() if key != _LAST_APPLIED}
    return {**config, "metadata": {**metadata, "annotations": rest}}


def _not_last_applied(conflicts: _Conflicts, old: JsonObject, state: _State) -> _Conflicts:
    """Drop the conflicts over fields that kubectl itself set by client-side apply before."""
    text = _last_applied(old)
    if state.writer.manager != "kubectl" or not text:
        return conflicts
    try:
        applied = json.loads(text)
        if applied.get("apiVersion") != state.writer.api_version:
            return conflicts
        fields = field_set_of(applied, state.schema)
        change = compare(applied, old, state.schema)
    except (ValueError, AttributeError):
        return conflicts
    mine = difference(difference(difference(fields, change.modified), change.added), change.removed)
    rest = []
    for entry, common in conflicts:
        left: FieldSet = {}
        for path in paths(common):
            if not has(mine, path):
                node: FieldSet = {}
                for key in reversed(path):
                    node = {key: node}
                left = union(left, node)
        if left:
            rest.append((entry, left))
    return rest


# --- the rest -----------------------------------------------------------------------------------------


def _described(config: JsonObject) -> str:
    metadata = config.get("metadata") or {}
    group, _, version = str(config.get("apiVersion", "")).rpartition("/")
    place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return f"{place}; {group}/{version}, Kind={config.get('kind', '')}"


def _server_error(text: str) -> ServerError:
    return ServerError(text, status=500, reason="")


def restore_times(new: JsonObject, live: JsonObject) -> JsonObject:
    """Return `live` itself when `new` differs from it in nothing but times of managedFields, else `new`."""
    if new is live:
        return live
    mine = (new.get("metadata") or {}).get("managedFields") or []
    theirs = (live.get("metadata") or {}).get("managedFields") or []
    if len(mine) != len(theirs):
        return new
    if not all(same(_timeless(a), _timeless(b)) for a, b in zip(mine, theirs, strict=True)):
        return new
    return live if same(_bare(new), _bare(live)) else new


def _timeless(entry: JsonObject) -> JsonObject:
    return {key: value for key, value in entry.items() if key != "time"}
