"""Create and update: from the bytes of a request to a committed object.

Between reading the newest version of an object and staging the next one nothing is awaited, unless a
webhook has a say; then the write is computed again when the object changed meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from mooring.kube.errors import BadRequest
from mooring.local.api import (
    advice,
    conversion,
    failures,
    fields,
    services,
    strategies,
    wire,
)
from mooring.local.api import apply as ssa
from mooring.local.api.access.escalation import check_grant
from mooring.local.api.access.rbac import Attributes
from mooring.local.api.bodies import canonical, check_same_namespace, decode_body, problems_of, repeated
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
from mooring.local.api.wire import WireError

__all__ = [
    "CONTAINERS",
    "Result",
    "check_name",
    "create",
    "decode_review",
    "nameless",
    "replace",
    "reset_fields",
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
    whole, taken = canonical(call, obj, options, body), strategies.drop_status(obj, served)
    obj = whole if taken is obj else call.kind.canonical(taken)[0]
    check_same_namespace(call, obj)
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
    problems = problems_of(decoded.unknown, repeated(body, options))
    if problems and options.field_validation == "Strict":
        raise cannot_be_handled(kind, version, strict_decoding(problems))
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    obj = complete({**decoded.value, "metadata": decoded.value.get("metadata") or {}})
    if call.namespace:
        check_same_namespace(call, obj)
    writer = dataclasses.replace(writer_of(call, options), api_version=api_version)
    return ssa.track(None, obj, schema, writer)


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
        obj = ssa.track(None, obj, call.kind.schema, writer_of(call, options), reset=reset_fields(call))
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
    obj = canonical(call, obj, options, body)
    check_same_namespace(call, obj)
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
        raise nameless(call)
    if name != wanted:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({wanted})"
        )
    return str(name)


def nameless(call: Call) -> BadRequest:
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
        new = ssa.track(old, new, call.kind.schema, writer, reset=reset_fields(call), versions=versions)
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


def reset_fields(call: Call) -> tuple[str, ...]:
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


#: Metadata that an apply can leave empty in a custom resource.
CONTAINERS = ("labels", "annotations", "finalizers", "ownerReferences")


def _tidied(call: Call, obj: JsonObject) -> tuple[JsonObject, bool]:
    """Return an object as it is read back, and whether a real server stores it otherwise.

    It stores what is applied to a custom resource with the empty maps and lists of its metadata, which nobody
    sees; but the next write, even one that changes nothing, finds other bytes than its own and is one.
    """
    if call.served.custom is None or not any(obj["metadata"].get(key) in ({}, []) for key in CONTAINERS):
        return obj, False
    return with_metadata(obj, **{key: obj["metadata"].get(key) or None for key in CONTAINERS}), True
