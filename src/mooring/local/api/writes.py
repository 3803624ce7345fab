"""Create, update and the patches: from the bytes of a request to a committed object.

Between reading the newest version of an object and staging the next one nothing is awaited, unless a
webhook has a say; then the write is computed again when the object changed meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from mooring.kube.errors import BadRequest, Invalid
from mooring.local.api import (
    advice,
    codec,
    conversion,
    failures,
    fields,
    patch,
    protobuf,
    services,
    strategies,
    wire,
)
from mooring.local.api import apply as ssa
from mooring.local.api.access.escalation import check_grant
from mooring.local.api.access.rbac import Attributes
from mooring.local.api.call import Call, view
from mooring.local.api.constraints import same
from mooring.local.api.custom import Unconverted
from mooring.local.api.errors import cannot_be_handled, invalid_object, strict_decoding
from mooring.local.api.objectmeta import (
    finalizers,
    generate_name,
    is_deleting,
    on_create,
    on_update,
    rfc3339,
    with_metadata,
)
from mooring.local.api.options import WriteOptions
from mooring.local.api.storage import Entry, StaleError, Write
from mooring.local.api.wire import WireError, json_type

__all__ = [
    "PATCH_TYPES",
    "Result",
    "check_name",
    "configuration",
    "create",
    "decode_body",
    "decode_review",
    "patch_object",
    "replace",
    "store_new",
    "update",
    "writer_of",
]

JsonObject = dict[str, Any]
_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")
Result = tuple[int, JsonObject]

#: How often a write is computed again after the object changed meanwhile.
_ATTEMPTS = 8
_NAME_ATTEMPTS = 8
#: Bytes of a body that an error message shows.
_SUMMARY = 30

PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
CUSTOM_PATCH_TYPES = (*PATCH_TYPES[:2], PATCH_TYPES[3])


# --- bodies -------------------------------------------------------------------------------------------


async def decode_body(call: Call, *, kind: str, api_version: str) -> tuple[bytes, JsonObject]:
    """Return the body of a create or update as an object of the expected kind; raises 400 and 415."""
    content_type = codec.media_type(call.request.header("content-type")) or "application/json"
    if content_type not in (codec.JSON_TYPES if call.served.custom is not None else codec.OBJECT_TYPES):
        raise failures.unsupported_media_type(codec.OBJECT_TYPES)
    body = await call.request.read_body()
    obj: Any
    try:
        if content_type == protobuf.MEDIA_TYPE:
            obj = protobuf.decode(body, call.cluster.registry.definition_name)
        else:
            obj = codec.decode(body, content_type)
    except ValueError as error:
        raise _undecodable(kind, str(error), body, content_type) from None
    if obj is None:
        obj = {}
    if not isinstance(obj, dict):
        raise _undecodable(kind, _not_an_object(obj), body, content_type)
    return body, _expect(call, obj, body, kind=kind, api_version=api_version)


def _not_an_object(value: Any) -> str:
    shown = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")
    parts = 'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\""'
    return f"json: cannot unmarshal {shown} into Go value of type struct {{ {parts} }}"


def _undecodable(kind: str, why: str, body: bytes, content_type: str) -> BadRequest:
    if content_type == "application/json":
        why = f"couldn't get version/kind; json parse error: {why}"
    return failures.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(body)})"
    )


def _summary(body: bytes) -> str:
    """Show the beginning of a body: as text when it looks like JSON, else as hexadecimal digits."""
    if not body:
        return "<empty>"
    shown = body[:_SUMMARY].decode(errors="replace") if body[:1] == b"{" else body[:_SUMMARY].hex()
    return shown + (" ..." if len(body) > _SUMMARY else "")


def _expect(call: Call, obj: JsonObject, body: bytes, *, kind: str, api_version: str) -> JsonObject:
    for key in ("apiVersion", "kind"):
        if not isinstance(obj.get(key) or "", str):
            why = f"json: cannot unmarshal {json_type(obj[key])} into Go struct field .{key} of type string"
            raise _undecodable(kind, why, body, "application/json")
    found_kind, found_version = obj.get("kind") or kind, obj.get("apiVersion") or api_version
    if call.served.custom is not None and not (obj.get("kind") and obj.get("apiVersion")):
        missing = "Kind" if not obj.get("kind") else "apiVersion"
        why = f"Object '{missing}' is missing in '{body.decode(errors='replace')}'"
        raise failures.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(body)})"
        )
    if (found_version, found_kind) != (api_version, kind):
        if call.served.custom is not None and found_version == api_version:
            error = fields.invalid("kind", found_kind, f"must be {kind}")
            name = str((obj.get("metadata") or {}).get("name") or "")
            raise invalid_object([error], group=call.served.group, kind=found_kind, name=name)
        raise _wrong_kind(call, found_kind, kind, found_version, api_version)
    return {**obj, "kind": kind, "apiVersion": api_version}


def _wrong_kind(call: Call, found: str, kind: str, found_version: str, api_version: str) -> BadRequest:
    group, _, version = found_version.rpartition("/")
    if call.served.custom is not None and found_version != api_version:
        return failures.bad_request(
            f"the API version in the data ({found_version}) does not match the expected API version"
            f" ({api_version})"
        )
    if call.cluster.registry.schemas.get(group, version, found) is None:
        where = 'in scheme "pkg/runtime/scheme.go:111"'
        why = f'no kind "{found}" is registered for version "{found_version}" {where}'
    else:
        own = call.served.group.partition(".")[0] or "core"
        why = f"converting ({version}.{found}) to ({own}.{kind}): unknown conversion"
    return failures.bad_request(f'{found} in version "{version}" cannot be handled as a {kind}: {why}')


def _short(obj: JsonObject) -> str:
    return msgspec.json.encode(obj).decode()


def _canonical(call: Call, obj: JsonObject, options: WriteOptions, body: bytes) -> JsonObject:
    """Return the object in canonical form, with strict or warned-of unknown fields; raises 400."""
    try:
        obj, unknown = call.kind.canonical(obj)
    except WireError as error:
        raise cannot_be_handled(call.served.kind, call.served.version, str(error)) from None
    problems = _problems(unknown, _repeated(body, options))
    if call.served.custom is None and len(problems) > 1 and body[:1] == b"{":
        problems = _in_order(problems, body)
    if problems and options.field_validation == "Strict":
        causes = strict_decoding(problems)
        raise cannot_be_handled(call.served.kind, call.served.version, causes)
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    return obj


def _problems(unknown: Sequence[str], repeated: Sequence[str]) -> list[str]:
    return [f'duplicate field "{path}"' for path in repeated] + [
        f'unknown field "{path}"' for path in unknown
    ]


def _in_order(problems: Sequence[str], body: bytes) -> list[str]:
    """Return problems as a decoder comes upon them: a repeated field is one at its second place."""
    places: dict[str, int] = {}
    for index, path in enumerate(codec.occurrences(body)):
        places[f'duplicate field "{path}"'] = index
        places.setdefault(f'unknown field "{path}"', index)
    return sorted(problems, key=lambda problem: places.get(problem, len(places)))


def _repeated(body: bytes, options: WriteOptions) -> list[str]:
    if options.field_validation == "Ignore" or body[:4] == protobuf.MAGIC:
        return []
    return codec.duplicates(body)


def writer_of(call: Call, options: WriteOptions) -> ssa.Writer:
    """Return who writes, as managedFields name them."""
    return ssa.Writer(
        manager=options.manager,
        api_version=call.served.api_version,
        time=rfc3339(call.cluster.now()),
        subresource=call.target.subresource,
    )


# --- create ---------------------------------------------------------------------------------------------


async def create(call: Call) -> Result:
    """Create an object."""
    served = call.served
    options = WriteOptions.parse(call.request, "CreateOptions")
    body, obj = await decode_body(call, kind=served.kind, api_version=served.api_version)
    # Read as a whole first: what is wrong in a status that is not taken is told all the same.
    whole, taken = _canonical(call, obj, options, body), strategies.drop_status(obj, served)
    obj = whole if taken is obj else call.kind.canonical(taken)[0]
    _same_namespace(call, obj)
    return 201, await store_new(call, obj, options)


async def decode_review(
    call: Call,
    *,
    kind: str,
    api_version: str,
    complete: Callable[[JsonObject], JsonObject] = lambda obj: obj,
) -> JsonObject:
    """Return the body of a create that nothing stores, completed, with the managedFields it is given."""
    options = WriteOptions.parse(call.request, "CreateOptions")
    body, obj = await decode_body(call, kind=kind, api_version=api_version)
    registry, version = call.cluster.registry, api_version.rpartition("/")[2]
    name = registry.definition_name(api_version, kind) or ""
    schema = registry.schemas.named(name, group=call.served.group, version=call.served.version)
    try:
        decoded = wire.decode(obj, schema)
    except WireError as error:
        raise cannot_be_handled(kind, version, str(error)) from None
    problems = _problems(decoded.unknown, _repeated(body, options))
    if problems and options.field_validation == "Strict":
        raise cannot_be_handled(kind, version, strict_decoding(problems))
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    obj = complete({**decoded.value, "metadata": decoded.value.get("metadata") or {}})
    if call.namespace:
        _same_namespace(call, obj)
    writer = dataclasses.replace(writer_of(call, options), api_version=api_version)
    return ssa.track(None, obj, schema, writer)


def _same_namespace(call: Call, obj: JsonObject) -> None:
    if not call.served.namespaced:
        return
    sent = obj["metadata"].get("namespace") or ""
    if sent and sent != call.namespace:
        raise failures.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


async def store_new(
    call: Call, obj: JsonObject, options: WriteOptions, *, applied: bool = False
) -> JsonObject:
    """Complete, check and store a canonical new object; `applied` when managedFields are set already."""
    served, cluster = call.served, call.cluster
    if served.terminating:
        raise failures.method_not_allowed_because(
            "create not allowed while custom resource definition is terminating"
        )
    sent_version = obj["metadata"].get("resourceVersion")
    versioned = call.verb == "create" and bool(sent_version)
    generated = not obj["metadata"].get("name")
    obj = on_create(obj, now=cluster.now(), namespace=call.namespace)
    obj = call.kind.default(obj, applied=applied)
    _check_namespace(call, obj)
    # managedFields are those of what was sent; what admission and the server add has no manager.
    if not applied:
        obj = ssa.track(None, obj, call.kind.schema, writer_of(call, options), reset=_reset(call))
    before = obj
    obj = await cluster.admission.mutate(call, obj, None, "CREATE", options)
    check_grant(call, obj, None)
    if obj is not before:
        obj = call.kind.default(_canonical_after_admission(call, obj))
    if generated:
        obj = _without_generated_conflict(call, obj)
    obj = strategies.prepare_create(obj, served, cluster.world)
    errors = call.kind.validate_create(obj)
    name = obj["metadata"].get("name") or ""
    if errors:
        raise invalid_object(errors, group=served.stored_group, kind=served.kind, name=name)
    _advise(call, obj, None)
    if served.storage == strategies.CRD:
        obj = strategies.establish(obj, cluster.world)
    if call.verb != "create":
        cluster.authorizer.check(_creation(call))
    await cluster.admission.validate(call, obj, None, "CREATE", options)
    if versioned and not options.dry_run:
        raise failures.without_reason("resourceVersion should not be set on objects to be created")
    place = (call.namespace, name)
    if (there := call.collection.head(place)) is not None:
        deleting = is_deleting(there.obj)
        raise failures.already_exists(served.group, served.plural, name, deleting=deleting)
    obj, untidy = _tidied(call, call.kind.read_back(obj))
    if options.dry_run:
        shown = _as_read(call, obj)
        return (
            with_metadata(shown, resourceVersion=sent_version)
            if versioned or call.verb == "update"
            else shown
        )
    stored = await _stored(call, obj)
    try:
        write = cluster.store.put(call.collection, place, stored, base=None, version=served.stored_version)
    except StaleError:
        raise failures.already_exists(served.group, served.plural, name) from None
    write.entry.untidy = untidy
    return _as_read(call, await _written(call, write))


def _as_read(call: Call, obj: JsonObject) -> JsonObject:
    """Return a written object as a reader sees it."""
    plain_service = call.served.storage == "services" and not call.target.subresource
    return services.shown(obj) if plain_service else obj


async def _written(call: Call, write: Write) -> JsonObject:
    """Return a new version of an object as the request's version shows it, once it is durable."""
    served = call.served
    if served.custom is not None and served.version == served.stored_version:
        write.entry.forms = {served.custom: None}
    entry = await write.committed()
    return view(await call.cluster.conversions.shown(entry, served), served)


def _advise(call: Call, obj: JsonObject, old: JsonObject | None) -> None:
    served = call.served
    if served.custom is None and call.target.subresource in ("", "scale"):
        call.request.warnings.extend(advice.warnings_of(obj, old, group=served.group, kind=served.kind))


def _creation(call: Call) -> Attributes:
    """Return what an update or apply that creates asks for besides: to create."""
    return Attributes(
        user=call.user,
        verb="create",
        group=call.served.group,
        resource=call.served.plural,
        name=call.target.name,
        namespace=call.namespace,
    )


async def _stored(call: Call, obj: JsonObject) -> JsonObject:
    if call.served.converts:
        return conversion.to_storage(obj, group=call.served.group, plural=call.served.plural)
    return await call.cluster.conversions.stored(obj, call.served)


def _without_generated_conflict(call: Call, obj: JsonObject) -> JsonObject:
    """Draw a generated name again while it is taken."""
    meta = obj["metadata"]
    base = meta.get("generateName")
    name = meta.get("name") or ""
    if not base or not name.startswith(base):
        return obj
    for _ in range(_NAME_ATTEMPTS):
        if call.collection.head((call.namespace, name)) is None:
            break
        name = generate_name(base)
    return obj if name == meta["name"] else with_metadata(obj, name=name)


def _check_namespace(call: Call, obj: JsonObject) -> None:
    """Refuse what is created in a namespace that does not exist or is going away."""
    if not call.served.namespaced:
        return
    namespaces = call.cluster.store.collection("namespaces")
    entry = namespaces.head(("", call.namespace))
    if entry is None:
        raise failures.not_found("", "namespaces", call.namespace)
    if is_deleting(entry.obj):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {call.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise failures.forbidden(
            call.served.group,
            call.served.plural,
            obj["metadata"].get("name") or "",
            f"unable to create new content in namespace {call.namespace} because it is being terminated",
            [cause],
        )


def _canonical_after_admission(call: Call, obj: JsonObject) -> JsonObject:
    try:
        return call.kind.canonical(obj)[0]
    except WireError as error:
        raise failures.internal(str(error)) from None


# --- update ---------------------------------------------------------------------------------------------


async def replace(call: Call) -> Result:
    """Update an object (PUT), or its status."""
    served, target = call.served, call.target
    options = WriteOptions.parse(call.request, "UpdateOptions")
    body, obj = await decode_body(call, kind=served.kind, api_version=served.api_version)
    obj = _canonical(call, obj, options, body)
    _same_namespace(call, obj)
    check_name(call, obj)
    if call.collection.head((call.namespace, target.name)) is None:
        if strategies.upserts(served) and not target.subresource:
            return 201, await store_new(call, obj, options)
        raise call.not_found()
    return 200, await update(call, lambda old: obj, options)


def check_name(call: Call, obj: JsonObject) -> str:
    """Return the name of the object of an update; raises 400 when it is not that of the path."""
    name, wanted = (obj.get("metadata") or {}).get("name") or "", call.target.name
    if not name:
        raise _nameless(call)
    if name != wanted:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({wanted})"
        )
    return str(name)


def _nameless(call: Call) -> BadRequest:
    return failures.bad_request(
        f"the name of the object ({call.target.name} based on URL) was undeterminable: name must be provided"
    )


async def update(
    call: Call,
    compute: Callable[[JsonObject], JsonObject],
    options: WriteOptions,
    *,
    applied: bool = False,
    tracked: bool = False,
) -> JsonObject:
    """Store what `compute` makes of the live object; raises 404, 409, 422.

    `compute` gets the live object in the request's version and returns a canonical one. It is called
    again when the object changed while a webhook was asked. `applied` when that was a server-side apply,
    `tracked` when its managedFields are set already.
    """
    attempts = 0
    while attempts < _ATTEMPTS:
        try:
            return _as_read(
                call, await _update_once(call, compute, options, applied=applied, tracked=tracked)
            )
        except Unconverted as unknown:
            assert call.versions is not None
            await call.versions.learn(unknown)
        except StaleError:
            attempts += 1
    raise call.conflict()


async def _update_once(
    call: Call,
    compute: Callable[[JsonObject], JsonObject],
    options: WriteOptions,
    *,
    applied: bool,
    tracked: bool,
) -> JsonObject:
    cluster, served, subresource = call.cluster, call.served, call.target.subresource
    base = call.live()
    old = view(await cluster.conversions.shown(base, served), served)
    new = compute(old)
    if new is old and not (base.untidy or ssa.doubled(old)):
        _advise(call, old, old)
        await cluster.store.settled(call.collection, base)
        return old
    _check_preconditions(call, new, old)
    unsaid = {} if is_deleting(new) else {key: old["metadata"].get(key) for key in _DELETION}
    new = on_update(new, old)
    new = call.kind.default(new, applied=applied)
    if not applied and not tracked:
        writer, versions = writer_of(call, options), call.versions
        # That a deletion is under way stays, but whoever owned the marks of it does not when they are left out.
        new = with_metadata(new, **dict.fromkeys(unsaid)) if any(unsaid.values()) else new
        new = ssa.track(old, new, call.kind.schema, writer, reset=_reset(call), versions=versions)
        new = with_metadata(new, **unsaid) if any(unsaid.values()) else new
    before = new
    new = await cluster.admission.mutate(call, new, old, "UPDATE", options)
    if new is not before:
        new = call.kind.default(_canonical_after_admission(call, new))
    if call.collection.head(base.place) is not base:
        raise StaleError
    check_grant(call, new, old)
    new = _prepared(call, new, old)
    new = ssa.restore_times(new, old)
    errors = call.kind.validate_update(new, old, subresource=subresource)
    if errors:
        raise invalid_object(errors, group=served.stored_group, kind=served.kind, name=base.name)
    _advise(call, new, old)
    if served.storage == strategies.CRD and not subresource and not is_deleting(old):
        new = strategies.establish(new, cluster.world)
    await cluster.admission.validate(call, new, old, "UPDATE", options)
    return await _store_changed(call, new, old, base, options)


def _reset(call: Call) -> tuple[str, ...]:
    """Return the parts a request cannot change, which its manager does not come to own."""
    served = call.served
    return ssa.reset_fields(
        served.kind,
        call.target.subresource,
        custom=served.custom is not None,
        status="status" in served.subresources,
    )


def _prepared(call: Call, new: JsonObject, old: JsonObject) -> JsonObject:
    if call.target.subresource not in ("", "scale"):
        return strategies.prepare_subresource(
            new, old, call.served, call.target.subresource, call.cluster.world
        )
    return strategies.prepare_update(new, old, call.served, call.cluster.world)


def _check_preconditions(call: Call, new: JsonObject, old: JsonObject) -> None:
    meta, live = new["metadata"], old["metadata"]
    if call.verb == "update" and meta.get("uid") and meta["uid"] != live["uid"]:
        raise call.unmet(f"UID in precondition: {meta['uid']}, UID in object meta: {live['uid']}")
    version = meta.get("resourceVersion") or "0"
    if (
        version == "0"
        and strategies.no_unconditional_update(call.served)
        and call.target.subresource != "scale"
    ):
        error = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid_object([error], group=call.served.group, kind=call.served.plural, name=call.target.name)
    if version not in ("0", live["resourceVersion"]):
        if not version.isdigit():
            raise failures.without_reason(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        raise call.conflict()


async def _store_changed(
    call: Call, new: JsonObject, old: JsonObject, base: Entry, options: WriteOptions
) -> JsonObject:
    cluster, served = call.cluster, call.served
    new = with_metadata(new, resourceVersion=old["metadata"]["resourceVersion"])
    gone = is_deleting(old) and not finalizers(new) and _may_go(call, new, old)
    untidy = False
    if not gone:
        new, untidy = _tidied(call, call.kind.read_back(new))
    if options.dry_run:
        return new
    if gone:
        # The last finalizer is gone: the object goes with it, and its change is never stored.
        await cluster.store.delete(call.collection, base).committed()
        return new
    migrates = served.custom is not None and base.version not in ("", served.stored_version)
    if same(new, old) and not (migrates or untidy or base.untidy):
        await cluster.store.settled(call.collection, base)
        return old
    stored, version = await _stored(call, new), served.stored_version
    write = cluster.store.put(call.collection, base.place, stored, base=base, version=version)
    write.entry.untidy = untidy
    return await _written(call, write)


def _may_go(call: Call, new: JsonObject, old: JsonObject) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    if call.served.storage == "namespaces":
        return not (new.get("spec") or {}).get("finalizers")
    grace = old["metadata"].get("deletionGracePeriodSeconds")
    return not grace and bool(finalizers(old) or call.served.storage != "pods")


# --- patch ----------------------------------------------------------------------------------------------

PatchKind = Literal["json", "merge", "strategic", "apply"]


async def patch_object(call: Call) -> Result:
    """Patch an object or its status; apply creates what does not exist."""
    content_type = codec.media_type(call.request.header("content-type"))
    custom = call.served.custom is not None
    accepted = CUSTOM_PATCH_TYPES if custom else PATCH_TYPES
    if content_type not in accepted:
        raise failures.unsupported_media_type(accepted) if custom else failures.unroutable_body()
    body = await call.request.read_body()
    if content_type == "application/apply-patch+yaml":
        return await _apply(call, body)
    options = WriteOptions.parse(call.request, "PatchOptions")
    call.live()
    try:
        change = codec.decode(body, "application/json")
    except ValueError as error:
        raise _not_decodable(str(error), content_type) from None

    def compute(old: JsonObject) -> JsonObject:
        patched = _patched(call, old, change, content_type)
        strategic = content_type == PATCH_TYPES[2]
        shown = _go_map(change) if strategic else _short(patched)
        try:
            return _canonical_patched(call, patched, shown, body, options)
        except WireError:
            raise _invalid_patch(shown, first_wrong(patched)) from None

    def first_wrong(patched: JsonObject) -> str:
        """What is told first: a strategic patch is converted in the order of the fields, others by their names."""
        if content_type == PATCH_TYPES[2]:
            name = call.cluster.registry.definition_name(call.served.api_version, call.served.kind) or ""
            ordered = protobuf.in_declared_order(patched, name)
        elif content_type == PATCH_TYPES[1]:
            ordered = patch.by_name(patched)
        else:
            paths = [str(step.get(key, "")).split("/")[1:] for step in change for key in ("path", "from")]
            ordered = patch.by_name(patched, paths)
        try:
            call.kind.canonical(ordered)
        except WireError as error:
            return error.converted if content_type == PATCH_TYPES[2] else str(error)
        raise AssertionError("it was wrong before")

    return 200, await update(call, compute, options)


def _patched(call: Call, old: JsonObject, change: Any, content_type: str) -> JsonObject:
    result: JsonObject
    if content_type == "application/json-patch+json":
        if not isinstance(change, list):
            raise _not_of_type(change, "[]handlers.jsonPatchOp", content_type)
        result = patch.json_patch(old, change)
    elif not isinstance(change, dict):
        raise _not_of_type(change, "map[string]interface {}", content_type)
    elif content_type == "application/merge-patch+json":
        result = patch.merge_patch(old, change)
    else:
        result = patch.strategic_merge_patch(old, change, call.kind.schema)
    if not isinstance(result, dict):
        raise failures.bad_request("the patch does not leave an object")
    return result


def _not_of_type(change: Any, wanted: str, content_type: str) -> BadRequest:
    why = f"json: cannot unmarshal {_go_type(change)} into Go value of type {wanted}"
    return _not_decodable(why, content_type)


def _not_decodable(why: str, content_type: str) -> BadRequest:
    strategic = content_type == PATCH_TYPES[2]
    return failures.bad_request(why if strategic else f"error decoding patch: {why}")


def _go_type(value: Any) -> str:
    names = {list: "array", str: "string", bool: "bool", dict: "object"}
    return names.get(type(value), "number")


def _go_map(value: Any) -> str:
    """Show a patch as Go prints the map it was decoded into."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_map, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _canonical_patched(
    call: Call, patched: JsonObject, shown: str, body: bytes, options: WriteOptions
) -> JsonObject:
    served = call.served
    if patched.get("kind") != served.kind or patched.get("apiVersion") != served.api_version:
        _, _, version = str(patched.get("apiVersion")).rpartition("/")
        own = served.group.partition(".")[0] or "core"
        why = f"converting ({version}.{patched.get('kind')}) to ({own}.{served.kind}): unknown conversion"
        raise _invalid_patch(shown, why)
    canonical, unknown = call.kind.canonical(patched)
    problems = _problems(unknown, _repeated(body, options))
    if problems and options.field_validation == "Strict":
        raise _invalid_patch(shown, strict_decoding(problems))
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    name = canonical["metadata"].get("name") or ""
    if name != call.target.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )
    _same_namespace(call, canonical)
    return canonical


def _invalid_patch(shown: str, why: str) -> Invalid:
    error = fields.invalid("patch", shown, why)
    return invalid_object([error], group="", kind="", name="")


# --- server-side apply ----------------------------------------------------------------------------------


async def _apply(call: Call, body: bytes) -> Result:
    options = WriteOptions.parse(call.request, "PatchOptions", apply=True)
    config = configuration(call, body, kind=call.served.kind, api_version=call.served.api_version)
    _check_repeated_lines(call, body, options)
    live = call.collection.head((call.namespace, call.target.name))
    writer = writer_of(call, options)
    reset = _reset(call)
    if live is not None:

        def compute(old: JsonObject) -> JsonObject:
            merged = ssa.apply(
                old,
                config,
                call.kind.schema,
                writer,
                force=options.force,
                reset=reset,
                versions=call.versions,
            )
            return merged if merged is old else _merged(call, merged, config)

        return 200, await update(call, compute, options, applied=True)
    if call.target.subresource:
        raise call.not_found()
    if uid := config["metadata"].get("uid"):
        raise call.conflict(
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        )
    config = strategies.drop_status(with_metadata(config, resourceVersion=None), call.served)
    named = bool(config["metadata"].get("name"))
    merged = ssa.apply(None, config, call.kind.schema, writer, force=options.force, reset=reset)
    new = _merged(call, with_metadata(merged, name=call.target.name), config)
    if not named:
        raise _nameless(call)
    return 201, await store_new(call, new, options, applied=True)


def _check_repeated_lines(call: Call, body: bytes, options: WriteOptions) -> None:
    """Refuse, or warn of, keys that an applied configuration holds twice in one mapping."""
    if options.field_validation == "Ignore" or (body[:1] == b"{" and not codec.duplicates(body)):
        return
    complaints = codec.repeated_lines(body)
    if not complaints:
        return
    lines = "\n".join(f"  {complaint}" for complaint in complaints)
    why = f"error converting YAML to JSON: yaml: unmarshal errors:\n{lines}"
    if options.field_validation == "Strict":
        raise failures.bad_request(f"error strict decoding YAML: {why}")
    call.request.warnings.append(why)


def configuration(call: Call, body: bytes, *, kind: str, api_version: str) -> JsonObject:
    """Return the applied configuration, in the fields the user wrote; raises 400."""
    try:
        config = codec.decode(body, "application/yaml")
    except ValueError as error:
        raise failures.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if not isinstance(config, dict):
        raise failures.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
            f"cannot unmarshal {_go_type(config)} into Go value of type map[string]interface {{}}"
        )
    group_version, found = config.get("apiVersion") or "/", config.get("kind") or ""
    if (group_version, found) != (api_version, kind):
        if "/" not in group_version:
            group_version = "/" + group_version
        raise failures.bad_request(f"invalid object type: {group_version}, Kind={found}")
    meta = config.get("metadata")
    if meta is None:
        config = {**config, "metadata": {}}
    elif not isinstance(meta, dict):
        raise failures.bad_request("metadata must be an object")
    return _addressed(call, config)


def _addressed(call: Call, config: JsonObject) -> JsonObject:
    name = config["metadata"].get("name") or ""
    if name and name != call.target.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )
    _same_namespace(call, config)
    return config


def _merged(call: Call, merged: JsonObject, config: JsonObject) -> JsonObject:
    """Return what an applied configuration makes of an object in canonical form; raises 400 and 500."""
    served, meta = call.served, config["metadata"]
    try:
        canonical = call.kind.canonical(merged)[0]
    except WireError as error:
        if served.custom is not None:
            raise cannot_be_handled(served.kind, served.version, str(error)) from None
        kind = f"{served.group}/{served.version}, Kind={served.kind}"
        what = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}; {kind}"
        raise failures.without_reason(
            f"failed to convert new object ({what}) to proper version: unable to convert unstructured object to"
            f" {kind}: {error.converted}"
        ) from None
    if call.served.custom is None:
        return canonical
    empty = {key: merged["metadata"][key] for key in _CONTAINERS if merged["metadata"].get(key) in ({}, [])}
    return {**canonical, "metadata": {**canonical["metadata"], **empty}} if empty else canonical


#: Metadata that an apply can leave empty in a custom resource.
_CONTAINERS = ("labels", "annotations", "finalizers", "ownerReferences")


def _tidied(call: Call, obj: JsonObject) -> tuple[JsonObject, bool]:
    """Return an object as it is read back, and whether a real server stores it otherwise.

    It stores what is applied to a custom resource with the empty maps and lists of its metadata, which nobody
    sees; but the next write, even one that changes nothing, finds other bytes than its own and is one.
    """
    if call.served.custom is None or not any(obj["metadata"].get(key) in ({}, []) for key in _CONTAINERS):
        return obj, False
    return with_metadata(obj, **{key: obj["metadata"].get(key) or None for key in _CONTAINERS}), True
