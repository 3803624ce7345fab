"""What the API server does for particular kinds beyond the generic path.

A strategy returns changed objects and never writes. What it derives from other objects (which Service
addresses are taken) it reads from the store at that moment, so nothing can drift or leak.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from mooring.local.api import crd as crds
from mooring.local.api import services
from mooring.local.api.constraints import same
from mooring.local.api.objectmeta import bump_generation, differs, rfc3339, with_metadata
from mooring.local.api.registry import Served
from mooring.local.api.world import World

__all__ = [
    "CRD",
    "drop_status",
    "establish",
    "no_unconditional_update",
    "prepare_create",
    "prepare_subresource",
    "prepare_update",
    "upserts",
]

JsonObject = dict[str, Any]

CRD = "customresourcedefinitions.apiextensions.k8s.io"


# --- generation -----------------------------------------------------------------------------------

#: Built-in kinds whose generation counts changes, with the parts that do not count.
_GENERATION: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "pods",
            "replicationcontrollers",
            "daemonsets.apps",
            "deployments.apps",
            "replicasets.apps",
            "statefulsets.apps",
            "cronjobs.batch",
            "jobs.batch",
            "ingresses.networking.k8s.io",
            "ingressclasses.networking.k8s.io",
            "networkpolicies.networking.k8s.io",
            "poddisruptionbudgets.policy",
            "deviceclasses.resource.k8s.io",
            "resourceslices.resource.k8s.io",
            CRD,
            "flowschemas.flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
            "podtemplates",
            "endpointslices.discovery.k8s.io",
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "validatingadmissionpolicybindings.admissionregistration.k8s.io",
            "mutatingadmissionpolicies.admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        ),
        ("apiVersion", "kind", "metadata", "status"),
    ),
}


#: CSIDrivers have no generation until their first change.
_COUNTED_FROM_NOTHING = "csidrivers.storage.k8s.io"


def _first_generation(obj: JsonObject, served: Served) -> JsonObject:
    # The generation of a PriorityClass is 1 for ever.
    once = served.storage == "priorityclasses.scheduling.k8s.io"
    counted = served.custom is not None or once or served.storage in _GENERATION
    return with_metadata(obj, generation=1) if counted else obj


def _next_generation(new: JsonObject, old: JsonObject, served: Served) -> JsonObject:
    if served.custom is not None:
        ignored: tuple[str, ...] = ("apiVersion", "kind", "metadata")
        ignored = (*ignored, "status") if "status" in served.subresources else ignored
    elif served.storage in _GENERATION:
        ignored = _GENERATION[served.storage]
    elif served.storage == _COUNTED_FROM_NOTHING and not same(new.get("spec"), old.get("spec")):
        return with_metadata(new, generation=old["metadata"].get("generation", 0) + 1)
    else:
        return new
    changed = differs(new, old, without=ignored)
    if served.storage == "endpointslices.discovery.k8s.io":
        changed = changed or not same(old["metadata"].get("labels"), new["metadata"].get("labels"))
    if served.storage == "deployments.apps":
        before, after = old["metadata"].get("annotations"), new["metadata"].get("annotations")
        changed = changed or not same(before, after)
    return bump_generation(new) if changed else new


# --- the generic path -------------------------------------------------------------------------------


def drop_status(obj: JsonObject, served: Served) -> JsonObject:
    """Return what a client may set on create: no status, where that is a subresource (but a Node's)."""
    if "status" in obj and "status" in served.subresources and served.storage != "nodes":
        return {key: value for key, value in obj.items() if key != "status"}
    return obj


def prepare_create(obj: JsonObject, served: Served, world: World) -> JsonObject:
    """Return a defaulted new object with everything the server sets on create."""
    obj = _first_generation(obj, served)
    prepare = _CREATE.get(served.storage)
    return prepare(obj, world) if prepare and served.custom is None else obj


def prepare_update(new: JsonObject, old: JsonObject, served: Served, world: World) -> JsonObject:
    """Return a changed object with the parts a plain update cannot change taken from the live one."""
    if "status" in served.subresources:
        new = _with_part(new, old, "status")
    prepare = _UPDATE.get(served.storage)
    if prepare and served.custom is None:
        new = prepare(new, old, world)
    return _next_generation(new, old, served)


#: Metadata that a status update of custom resources and of some built-in kinds leaves as it is.
_STATUS_METADATA = (
    "deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences",
)  # fmt: skip
_METADATA_KEPT: Mapping[str, tuple[str, ...]] = {
    "pods": ("ownerReferences",),
    "deployments.apps": ("labels",),
    **dict.fromkeys(
        (
            "servicecidrs.networking.k8s.io",
            "volumeattachments.storage.k8s.io",
            "resourceclaims.resource.k8s.io",
            "flowschemas.flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "apiservices.apiregistration.k8s.io",
        ),
        _STATUS_METADATA,
    ),
}


def prepare_subresource(
    new: JsonObject, old: JsonObject, served: Served, subresource: str, world: World
) -> JsonObject:
    """Return a changed object of which a subresource takes only its part, and the metadata it may carry."""
    if subresource == "scale":
        return prepare_update(new, old, served, world)
    if subresource == "finalize":
        return _with_part(new, old, "status")
    if subresource == "resize":
        return _resized(new, old)
    if subresource == "approval":
        conditions = (new.get("status") or {}).get("conditions")
        status = {k: v for k, v in (old.get("status") or {}).items() if k != "conditions"}
        new = {**new, "status": {**status, "conditions": conditions} if conditions else status}
        return _timed(_with_part(new, old, "spec"), old, world)
    kept = _STATUS_METADATA if served.custom is not None else _METADATA_KEPT.get(served.storage, ())
    if served.custom is not None:
        new = _with_part({**old, "metadata": new["metadata"]}, new, "status")
    result = _with_metadata_of(_with_part(new, old, "spec"), old, kept)
    prepare = _STATUS.get(served.storage)
    return prepare(result, old, world) if prepare and served.custom is None else result


def _update_signing_request(new: JsonObject, old: JsonObject, world: World) -> JsonObject:
    return _with_part(new, old, "spec")


def _timed(new: JsonObject, old: JsonObject, world: World) -> JsonObject:
    """Return a signing request whose conditions say when they were set, and when they became so."""
    status, now = new.get("status") or {}, rfc3339(world.now())
    if not status.get("conditions"):
        return new
    before = {
        (c.get("type"), c.get("status")): c.get("lastTransitionTime")
        for c in (old.get("status") or {}).get("conditions") or ()
    }
    timed = [
        {
            **condition,
            "lastUpdateTime": condition.get("lastUpdateTime") or now,
            "lastTransitionTime": condition.get("lastTransitionTime")
            or before.get((condition.get("type"), condition.get("status")))
            or now,
        }
        for condition in status["conditions"]
    ]
    return {**new, "status": {**status, "conditions": timed}}


def _with_metadata_of(new: JsonObject, old: JsonObject, names: tuple[str, ...]) -> JsonObject:
    """Return an object with some metadata as another has it."""
    return with_metadata(new, **{name: old["metadata"].get(name) for name in names}) if names else new


def _resized(new: JsonObject, old: JsonObject) -> JsonObject:
    """Return the live pod with the containers' resources of a changed one; another list is refused later."""
    spec = dict(old["spec"])
    for key in ("containers", "initContainers"):
        sent, had = new["spec"].get(key) or [], spec.get(key) or []
        if [c["name"] for c in sent] != [c["name"] for c in had]:
            return new
        if had:
            spec[key] = [_with_resources(o, n) for o, n in zip(had, sent, strict=True)]
    if "resources" in new["spec"]:
        spec["resources"] = new["spec"]["resources"]
    resized = _with_part(_with_metadata_of({**new, "spec": spec}, old, _STATUS_METADATA), old, "status")
    return resized if same(spec, old["spec"]) else bump_generation(resized)


def _with_resources(container: JsonObject, sent: JsonObject) -> JsonObject:
    parts = ("resources", "resizePolicy")
    kept = {key: value for key, value in container.items() if key not in parts}
    return {**kept, **{key: sent[key] for key in parts if key in sent}}


def _with_part(new: JsonObject, old: JsonObject, part: str) -> JsonObject:
    if part in old:
        return new if new.get(part) is old[part] else {**new, part: old[part]}
    return {key: value for key, value in new.items() if key != part}


#: Built-in kinds whose update must name a resource version.
_CONDITIONAL_GROUPS = {
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "policy",
    "storage.k8s.io",
}
#: Kinds of those groups that need none.
_UNCONDITIONAL = ("storageclasses.storage.k8s.io", "volumeattributesclasses.storage.k8s.io")


def no_unconditional_update(served: Served) -> bool:
    """Whether an update must carry a resource version."""
    if served.storage in _UNCONDITIONAL:
        return False
    return served.custom is not None or served.group in _CONDITIONAL_GROUPS


_UPSERTED = {
    "endpoints",
    "events",
    "limitranges",
    "leases.coordination.k8s.io",
    "services",
}


def upserts(served: Served) -> bool:
    """Whether an update creates an object that does not exist."""
    return served.custom is None and (
        served.storage in _UPSERTED or served.group in ("rbac.authorization.k8s.io", "node.k8s.io")
    )


# --- namespaces -------------------------------------------------------------------------------------


def _create_namespace(obj: JsonObject, world: World) -> JsonObject:
    spec = dict(obj.get("spec") or {})
    finalizers = list(spec.get("finalizers") or ())
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    obj = {**obj, "spec": {**spec, "finalizers": finalizers}, "status": {"phase": "Active"}}
    return _named_label(obj)


def _named_label(obj: JsonObject) -> JsonObject:
    name = obj["metadata"].get("name", "")
    labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
    return with_metadata(obj, labels=labels)


def _update_namespace(new: JsonObject, old: JsonObject, world: World) -> JsonObject:
    return _named_label(_with_part(new, old, "spec"))


def _create_limit_range(obj: JsonObject, world: World) -> JsonObject:
    """Return a limit range with a name: nobody has to give it one."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "name" or value}
    return {**obj, "metadata": {"name": str(uuid.uuid4()), **metadata}}


# --- pods -------------------------------------------------------------------------------------------


def _create_pod(obj: JsonObject, world: World) -> JsonObject:
    return {**obj, "status": {"phase": "Pending", "qosClass": _qos_class(obj["spec"])}}


def _pod_status(new: JsonObject, old: JsonObject, world: World) -> JsonObject:
    status, before = new.get("status") or {}, old.get("status") or {}
    if status.get("qosClass") or not before.get("qosClass"):
        return new
    return {**new, "status": {**status, "qosClass": before["qosClass"]}}


def _qos_class(spec: JsonObject) -> str:
    """Return Guaranteed, Burstable or BestEffort, from cpu and memory of all containers."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [c.get("resources") or {} for c in containers]
    relevant = ("cpu", "memory")
    used = any(
        r.get(kind, {}).get(name) for r in resources for kind in ("requests", "limits") for name in relevant
    )
    if not used:
        return "BestEffort"
    for part in resources:
        limits, requests = part.get("limits") or {}, part.get("requests") or {}
        for name in relevant:
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                return "Burstable"
    return "Guaranteed"


# --- volumes ----------------------------------------------------------------------------------------


def _create_claim(obj: JsonObject, world: World) -> JsonObject:
    spec = _with_sources(obj.get("spec") or {})
    obj = {**obj, "spec": spec}
    if "storageClassName" not in spec and not spec.get("volumeName") and (name := _default_class(world)):
        obj = {**obj, "spec": {**spec, "storageClassName": name}}
    return {**obj, "status": {"phase": "Pending"}}


def _with_sources(spec: JsonObject) -> JsonObject:
    """Let the two fields that name a claim's data source speak for each other."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        return {**spec, "dataSourceRef": source}
    if reference and not source and not reference.get("namespace"):
        return {**spec, "dataSource": reference}
    return spec


def _default_class(world: World) -> str:
    marks = (
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    )
    chosen = [
        entry
        for entry in world.store.collection("storageclasses.storage.k8s.io")
        if any((entry.obj["metadata"].get("annotations") or {}).get(mark) == "true" for mark in marks)
    ]
    newest = max(chosen, key=lambda e: (e.obj["metadata"]["creationTimestamp"], e.name), default=None)
    return newest.name if newest else ""


def _create_volume(obj: JsonObject, world: World) -> JsonObject:
    return {**obj, "status": {"phase": "Pending", "lastPhaseTransitionTime": rfc3339(world.now())}}


def _volume_status(new: JsonObject, old: JsonObject, world: World) -> JsonObject:
    """Record when the phase changed."""
    status, before = new.get("status") or {}, old.get("status") or {}
    at, was = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
    if status.get("phase") == before.get("phase"):
        at = at or was
    elif at in (None, was):
        at = rfc3339(world.now())
    return {**new, "status": {**status, "lastPhaseTransitionTime": at} if at else status}


# --- jobs -------------------------------------------------------------------------------------------


def _create_job(obj: JsonObject, world: World) -> JsonObject:
    """Select the job's pods by its UID, unless the user brings a selector."""
    spec = dict(obj.get("spec") or {})
    if spec.get("manualSelector"):
        return obj
    uid, name = obj["metadata"]["uid"], obj["metadata"].get("name", "")
    template = dict(spec.get("template") or {})
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {
        **(meta.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template["metadata"] = meta
    spec["template"] = template
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    if not obj["metadata"].get("labels"):
        obj = with_metadata(obj, labels=meta["labels"])
    return {**obj, "spec": spec}


# --- custom resource definitions ----------------------------------------------------------------------


def establish(obj: JsonObject, world: World) -> JsonObject:
    """Return a definition with its names accepted (or refused) and its versions established."""
    name = obj["metadata"]["name"]
    others = [entry.obj for entry in world.store.collection(CRD).newest() if entry.name != name]
    return crds.established(obj, others, now=rfc3339(world.now()))


def _update_definition(obj: JsonObject, old: JsonObject, world: World) -> JsonObject:
    """Remember a new storage version: from now on objects are stored in it."""
    status = obj.get("status") or {}
    stored = status.get("storedVersions") or []
    new = [v.get("name") for v in obj["spec"].get("versions") or () if v.get("storage")]
    new = [name for name in new if name not in stored]
    return {**obj, "status": {**status, "storedVersions": [*stored, *new]}} if new else obj


_CREATE: Mapping[str, Callable[[JsonObject, World], JsonObject]] = {
    "limitranges": _create_limit_range,
    "namespaces": _create_namespace,
    "pods": _create_pod,
    "persistentvolumeclaims": _create_claim,
    "persistentvolumes": _create_volume,
    "services": services.prepare_create,
    "jobs.batch": _create_job,
}
_STATUS: Mapping[str, Callable[[JsonObject, JsonObject, World], JsonObject]] = {
    "pods": _pod_status,
    "persistentvolumes": _volume_status,
    "certificatesigningrequests.certificates.k8s.io": _timed,
}
_UPDATE: Mapping[str, Callable[[JsonObject, JsonObject, World], JsonObject]] = {
    CRD: _update_definition,
    "namespaces": _update_namespace,
    "services": services.prepare_update,
    "certificatesigningrequests.certificates.k8s.io": _update_signing_request,
}
