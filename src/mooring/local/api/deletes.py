"""Delete and deletecollection: preconditions, finalizers, propagation policies, grace periods.

The order of checks and the marks left on an object are those of k8s.io/apiserver's generic registry
(rest.BeforeDelete, deletionFinalizersForGarbageCollection, updateForGracefulDeletionAndFinalizers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from mooring.kube.errors import NotFound
from mooring.local.api import codec, failures, protobuf
from mooring.local.api.apply import zero
from mooring.local.api.call import Call, as_read, view
from mooring.local.api.objectmeta import (
    bump_generation,
    finalizers,
    is_deleting,
    mark_deleting,
    rfc3339,
    with_metadata,
)
from mooring.local.api.options import DeleteOptions
from mooring.local.api.registry import Served
from mooring.local.api.selectors import Filter
from mooring.local.api.storage import Entry, StaleError
from mooring.local.api.strategies import CRD

__all__ = ["delete", "delete_collection", "delete_entry", "read_options"]

JsonObject = dict[str, Any]
Result = tuple[int, JsonObject]

_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_ATTEMPTS = 8

#: Built-in resources whose delete answers with the object instead of a Status.
_RETURNED = {
    "pods",
    "deviceclasses.resource.k8s.io",
    "persistentvolumeclaims",
    "persistentvolumes",
    "podtemplates",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
}
#: Kinds that have no dependants to orphan or to wait for.
_UNCOLLECTED = {"events"}
#: Kinds whose dependants are orphaned when nobody says otherwise.
_ORPHANING = {"replicationcontrollers", "jobs.batch"}
#: Namespaces that nobody may delete.
_IMMORTAL = frozenset(("default", "kube-system", "kube-public"))
_JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove"
    " them or set propagationPolicy=Orphan to suppress this warning"
)


async def read_options(call: Call) -> DeleteOptions:
    """Read the options of a deletion; raises 400, 415, 422."""
    body = await call.request.read_body()
    options: Mapping[str, Any] | None = None
    if body.strip():
        content_type = codec.media_type(call.request.header("content-type")) or "application/json"
        if content_type not in codec.OBJECT_TYPES:
            raise failures.unsupported_media_type(codec.OBJECT_TYPES)
        try:
            if content_type == protobuf.MEDIA_TYPE:
                options = protobuf.decode(body, call.cluster.registry.definition_name)
            else:
                options = codec.decode(body, content_type)
        except ValueError as error:
            raise failures.bad_request("couldn't get version/kind; json parse error: " + str(error)) from None
        if not isinstance(options, dict):
            raise failures.bad_request("the body of a deletion must be DeleteOptions")
        if options.get("kind") not in (None, "", "DeleteOptions"):
            raise failures.bad_request(
                f'no kind "{options.get("kind")}" is registered for version '
                f'"{options.get("apiVersion") or ""}" in scheme "pkg/runtime/scheme.go:111"'
            )
    return DeleteOptions.parse(call.request.query, options)


async def delete(call: Call) -> Result:
    """Delete an object, or begin to."""
    options = await read_options(call)
    if call.served.storage == "namespaces" and call.target.name in _IMMORTAL:
        raise failures.forbidden("", "namespaces", call.target.name, "this namespace may not be deleted")
    served = call.served
    if served.storage == "jobs.batch" and not options.policy and options.orphan is None:
        call.request.warnings.append(_JOB_WARNING)
    entry, gone = await _delete_named(call, call.target.name, options)
    status = 202 if not gone and options.orphan is False else 200
    if gone and served.storage not in _RETURNED:
        return status, _success(served, entry)
    entry = await call.cluster.conversions.shown(entry, served)
    return status, view(as_read(entry, served) if gone else entry, served)


def _success(served: Served, entry: Entry) -> JsonObject:
    details = {
        "name": entry.name,
        "group": served.group,
        "kind": served.plural,
        "uid": entry.obj["metadata"]["uid"],
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


async def _delete_named(call: Call, name: str, options: DeleteOptions) -> tuple[Entry, bool]:
    for _ in range(_ATTEMPTS):
        entry = call.collection.head((call.namespace, name))
        if entry is None:
            raise call.not_found(name)
        try:
            return await delete_entry(call, entry, options)
        except StaleError:
            continue
    raise call.conflict()


async def delete_entry(call: Call, entry: Entry, options: DeleteOptions) -> tuple[Entry, bool]:
    """Delete one object; return its last (or marked) version, and whether it is gone."""
    _check_preconditions(call, entry, options)
    old = view(await call.cluster.conversions.shown(entry, call.served), call.served)
    await call.cluster.admission.validate(call, None, old, "DELETE", None)
    if call.collection.head(entry.place) is not entry:
        raise StaleError
    if call.served.storage == "namespaces":
        return await _delete_namespace(call, entry, options)
    if call.served.storage == CRD and not is_deleting(entry.obj):
        return await _begin_definition(call, entry, options)
    return await _delete_generic(call, entry, options)


def _check_preconditions(call: Call, entry: Entry, options: DeleteOptions) -> None:
    meta, why = entry.obj["metadata"], ""
    if options.uid and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']})."
            " The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the"
            f" ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified"
        )
    if why:
        raise failures.conflict(call.served.group, call.served.kind, entry.name, why)


async def _delete_generic(call: Call, entry: Entry, options: DeleteOptions) -> tuple[Entry, bool]:
    obj = entry.obj
    grace = _grace(call.served, obj, options)
    if is_deleting(obj) and _still_graceful(obj):
        return await _shorten(call, entry, options)
    wanted = _wanted_finalizers(call, obj, options)
    changed = with_metadata(obj, finalizers=wanted or None)
    if grace is not None and not is_deleting(obj):
        at = rfc3339(call.cluster.now() + timedelta(seconds=grace))
        changed = mark_deleting(changed, at=at, grace=grace)
        marked = await _put(call, entry, changed, options)
        if wanted or grace > 0:
            return marked, False
        return await _remove(call, marked, options), True
    if wanted:
        changed = mark_deleting(changed, at=rfc3339(call.cluster.now()), grace=0)
        if changed["metadata"] == obj["metadata"] and not entry.untidy:
            await call.cluster.store.settled(call.collection, entry)
            return entry, False
        return await _put(call, entry, changed, options), False
    if finalizers(obj):
        _check_unwritten(call, entry, options)
        if options.dry_run:
            return entry.changed(zero(call.kind.schema, call.served.api_version, call.served.kind)), False
    return await _remove(call, entry, options), True


def _check_unwritten(call: Call, entry: Entry, options: DeleteOptions) -> None:
    """Refuse a version for a deletion that first takes finalizers off; raises 409.

    A real server means to take them off by a write and then asks for the version of that write. But it
    makes no such write when nothing is left to wait for, and compares with no version at all.
    """
    if options.resource_version and not options.dry_run:
        live = entry.obj["metadata"]["resourceVersion"]
        raise call.unmet(f"ResourceVersion in precondition: , ResourceVersion in object meta: {live}")


def _grace(served: Served, obj: JsonObject, options: DeleteOptions) -> int | None:
    """Return the seconds a Pod gets to stop; None for kinds that stop at once."""
    if served.storage != "pods":
        return None
    spec = obj.get("spec") or {}
    period = options.grace if options.grace is not None else spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    return 1 if period < 0 else int(period)


def _still_graceful(obj: JsonObject) -> bool:
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))


async def _shorten(call: Call, entry: Entry, options: DeleteOptions) -> tuple[Entry, bool]:
    """Let a deletion that is under way end sooner, never later."""
    meta = entry.obj["metadata"]
    current = meta["deletionGracePeriodSeconds"]
    if options.grace is None or options.grace >= current:
        await call.cluster.store.settled(call.collection, entry)
        return entry, False
    moment = datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(seconds=current - options.grace)
    wanted = _wanted_finalizers(call, entry.obj, options)
    changed = with_metadata(
        entry.obj,
        deletionTimestamp=rfc3339(moment),
        deletionGracePeriodSeconds=options.grace,
        finalizers=wanted or None,
    )
    marked = await _put(call, entry, changed, options)
    if options.grace > 0 or wanted:
        return marked, False
    return await _remove(call, marked, options), True


def _wanted_finalizers(call: Call, obj: JsonObject, options: DeleteOptions) -> list[str]:
    present = finalizers(obj)
    if call.served.storage in _UNCOLLECTED:
        return present
    orphan, foreground = _policy(present, options, orphans=call.served.storage in _ORPHANING)
    wanted = [name for name in present if name not in (_ORPHAN, _FOREGROUND)]
    if orphan:
        wanted.append(_ORPHAN)
    if foreground:
        wanted.append(_FOREGROUND)
    return present if set(wanted) == set(present) else wanted


def _policy(present: list[str], options: DeleteOptions, *, orphans: bool) -> tuple[bool, bool]:
    """Return whether dependants are orphaned, and whether they go first; the request decides, then the object."""
    if options.orphan is not None:
        return options.orphan, False
    if options.policy:
        return options.policy == "Orphan", options.policy == "Foreground"
    if _ORPHAN in present or _FOREGROUND in present:
        return _ORPHAN in present, _ORPHAN not in present
    return orphans, False


async def _put(call: Call, entry: Entry, obj: JsonObject, options: DeleteOptions) -> Entry:
    if options.dry_run:
        return entry.changed(obj)
    write = call.cluster.store.put(call.collection, entry.place, obj, base=entry)
    return await write.committed()


async def _remove(call: Call, entry: Entry, options: DeleteOptions) -> Entry:
    if options.dry_run:
        return entry
    return await call.cluster.store.delete(call.collection, entry).committed()


async def _delete_namespace(call: Call, entry: Entry, options: DeleteOptions) -> tuple[Entry, bool]:
    """Begin to delete a namespace; its controller empties it and takes the finalizer off."""
    obj = entry.obj
    if is_deleting(obj):
        if (obj.get("spec") or {}).get("finalizers") or finalizers(obj):
            await call.cluster.store.settled(call.collection, entry)
            return entry, False
        return await _remove(call, entry, options), True
    marked = with_metadata(obj, deletionTimestamp=rfc3339(call.cluster.now()))
    marked = bump_generation(marked)
    marked = {**marked, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}
    if wanted := _wanted_finalizers(call, obj, options):
        marked = with_metadata(marked, finalizers=wanted)
    return await _put(call, entry, marked, options), False


async def _begin_definition(call: Call, entry: Entry, options: DeleteOptions) -> tuple[Entry, bool]:
    """Begin to delete a CustomResourceDefinition: its objects go first."""
    obj = entry.obj
    now = rfc3339(call.cluster.now())
    wanted = _wanted_finalizers(call, obj, options)
    if _CRD_CLEANUP not in wanted:
        wanted = [*wanted, _CRD_CLEANUP]
    marked = mark_deleting(with_metadata(obj, finalizers=wanted), at=now, grace=0)
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    status = obj.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c["type"] != "Terminating"]
    marked = {**marked, "status": {**status, "conditions": [*conditions, condition]}}
    return await _put(call, entry, marked, options), False


async def delete_collection(call: Call) -> Result:
    """Delete every object a list with the same selectors shows."""
    options = await read_options(call)
    wanted = Filter.parse(call.request.query, call.served, namespace=call.namespace)
    items = []
    entries = call.collection.entries(call.namespace)
    for entry in await call.cluster.conversions.show(entries, call.served):
        if not wanted.matches(entry):
            continue
        place_call = replace(call, target=replace(call.target, namespace=entry.namespace, name=entry.name))
        try:
            await _delete_named(place_call, entry.name, options)
        except NotFound:
            continue
        items.append(view(as_read(entry, call.served), call.served))
    if call.served.custom is None:
        items = [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items]
    meta: JsonObject = {"resourceVersion": str(call.cluster.store.published)}
    if call.served.custom is not None:
        meta["continue"] = ""
    return 200, {
        "kind": call.served.list_kind,
        "apiVersion": call.served.api_version,
        "metadata": meta,
        "items": items,
    }
