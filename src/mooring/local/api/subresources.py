"""Subresources: status, scale, and those that do something to a pod, namespace or account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mooring.local.api import (
    codec,
    eviction,
    exec,
    failures,
    fields,
    logs,
    patch,
    reads,
    token_requests,
    writes,
)
from mooring.local.api.call import Call, view
from mooring.local.api.errors import cannot_be_handled, invalid_object
from mooring.local.api.http import Answer
from mooring.local.api.objectmeta import is_deleting, rfc3339, with_metadata
from mooring.local.api.options import WriteOptions

__all__ = ["answer", "bind"]

JsonObject = dict[str, Any]


async def answer(call: Call) -> Answer:
    """Answer a request on a subresource; raises 404 and 405."""
    sub = call.served.subresources.get(call.target.subresource)
    if sub is None:
        raise failures.page_not_found()
    if call.verb not in sub.verbs:
        raise failures.method_not_allowed()
    handler = _HANDLERS.get((call.served.storage, sub.name)) or _HANDLERS.get(("", sub.name))
    if handler is None and call.collection.head((call.namespace, call.target.name)) is None:
        raise call.not_found()
    if handler is None:
        raise failures.not_implemented(
            f"{call.served.plural}/{sub.name} is not offered by the embedded server"
        )
    return await handler(call)


def _shown(call: Call, status: int, obj: JsonObject) -> Answer:
    return reads.answer_object(call, status, obj, call.form())


def _success(status: int) -> JsonObject:
    """Return the Status of an action that has no object to show."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": status}


async def _object(call: Call) -> Answer:
    """Status, finalize, approval, resize: a part of the object itself."""
    if call.verb == "get":
        return await reads.get(call)
    verb = writes.replace if call.verb == "update" else writes.patch_object
    status, obj = await verb(call)
    return _shown(call, status, obj)


# --- scale ----------------------------------------------------------------------------------------------


def _paths(call: Call) -> Mapping[str, str]:
    if call.served.custom is not None and call.served.custom.scale is not None:
        return call.served.custom.scale
    return {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def _at(obj: Any, path: str) -> Any:
    for step in _steps(path):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _with(obj: JsonObject, steps: list[str], value: Any) -> JsonObject:
    if len(steps) == 1:
        return {**obj, steps[0]: value}
    return {**obj, steps[0]: _with(obj.get(steps[0]) or {}, steps[1:], value)}


def _scale_of(call: Call, obj: JsonObject) -> JsonObject:
    paths = _paths(call)
    meta = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: JsonObject = {"replicas": _at(obj, paths["statusReplicasPath"]) or 0}
    if selector := _selector(call, obj, paths):
        status["selector"] = selector
    replicas = _at(obj, paths["specReplicasPath"])
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector(call: Call, obj: JsonObject, paths: Mapping[str, str]) -> str:
    if call.served.custom is not None:
        path = paths.get("labelSelectorPath")
        return str(_at(obj, path) or "") if path else ""
    selector = _at(obj, ".spec.selector") or {}
    if call.served.storage == "replicationcontrollers":
        selector = {"matchLabels": selector}
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        values = ",".join(sorted(expression.get("values") or ()))
        shown = {
            "In": f"{expression['key']} in ({values})",
            "NotIn": f"{expression['key']} notin ({values})",
            "Exists": expression["key"],
            "DoesNotExist": f"!{expression['key']}",
        }
        parts.append(shown[expression["operator"]])
    return ",".join(parts)


async def _scale(call: Call) -> Answer:
    if call.verb == "get":
        entry = call.collection.get((call.namespace, call.target.name))
        if entry is None:
            raise call.not_found()
        entry = await call.cluster.conversions.shown(entry, call.served)
        return _shown(call, 200, _scale_of(call, view(entry, call.served)))
    if call.verb == "update":
        options = WriteOptions.parse(call.request, "UpdateOptions")
        _, sent = await writes.decode_body(call, kind="Scale", api_version="autoscaling/v1")
        writes.check_name(call, sent)
        return await _rescale(call, lambda scale: sent, options)
    content_type = codec.media_type(call.request.header("content-type"))
    if content_type not in writes.PATCH_TYPES:
        custom = call.served.custom is not None
        raise failures.unsupported_media_type(writes.PATCH_TYPES) if custom else failures.unroutable_body()
    options = WriteOptions.parse(call.request, "PatchOptions", apply=content_type == writes.PATCH_TYPES[3])
    body = await call.request.read_body()
    try:
        change = codec.decode(
            body, "application/yaml" if content_type.endswith("yaml") else "application/json"
        )
    except ValueError as error:
        raise failures.bad_request(str(error)) from None
    return await _rescale(call, lambda scale: _patched(call, scale, change, content_type), options)


def _patched(call: Call, scale: JsonObject, change: Any, content_type: str) -> JsonObject:
    # A Scale holds no list, so every patch but JSON's own merges.
    json_patch = content_type == writes.PATCH_TYPES[0]
    result: JsonObject = patch.json_patch(scale, change) if json_patch else patch.merge_patch(scale, change)
    return result


async def _rescale(call: Call, change: Callable[[JsonObject], JsonObject], options: WriteOptions) -> Answer:
    path = _steps(_paths(call)["specReplicasPath"])

    def compute(old: JsonObject) -> JsonObject:
        scale = change(_scale_of(call, old))
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if (why := _wrong_type(replicas)) and call.verb == "patch":
            error = fields.invalid("patch", scale, why)
            raise invalid_object([error], group="", kind="", name="")
        if why:
            raise cannot_be_handled("Scale", "v1", why)
        _check_replicas(call, replicas)
        meta = scale.get("metadata") or {}
        changed = _with(old, path, replicas)
        if version := meta.get("resourceVersion"):
            changed = with_metadata(changed, resourceVersion=version)
        if uid := meta.get("uid"):
            changed = with_metadata(changed, uid=uid)
        return changed

    obj = await writes.update(call, compute, options)
    return _shown(call, 200, _scale_of(call, obj))


def _wrong_type(replicas: Any) -> str:
    if isinstance(replicas, int) and not isinstance(replicas, bool):
        return ""
    found = "string" if isinstance(replicas, str) else "number"
    return f"json: cannot unmarshal {found} into Go struct field ScaleSpec.spec.replicas of type int32"


def _check_replicas(call: Call, replicas: int) -> None:
    if replicas < 0:
        error = fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_object([error], group="autoscaling", kind="Scale", name=call.target.name)


# --- pods -----------------------------------------------------------------------------------------------


async def bind(call: Call) -> Answer:
    """Assign a pod to a node, once: `pods/NAME/binding`, or `bindings` with the pod's name in the body."""
    _, binding = await writes.decode_body(call, kind="Binding", api_version="v1")
    meta = binding.get("metadata") or {}
    name = call.target.name or meta.get("name") or ""
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise failures.without_reason(str(fields.required("target.name")))
    store, pods = call.cluster.store, call.cluster.store.collection("pods")
    entry = pods.head((call.namespace, name))
    if entry is None:
        raise failures.not_found("", "pods", name)
    why = _cannot_bind(entry.obj, meta.get("uid"), name)
    if why:
        raise failures.conflict("", "pods/binding", name, why)
    pod = _bound(entry.obj, node, meta.get("annotations") or {}, rfc3339(call.cluster.now()))
    if "dryRun" not in call.request.query:
        await store.put(pods, entry.place, pod, base=entry).committed()
    return _shown(call, 201, _success(201))


def _cannot_bind(pod: JsonObject, uid: str | None, name: str) -> str:
    if uid and uid != pod["metadata"]["uid"]:
        return (
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        )
    if is_deleting(pod):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _bound(pod: JsonObject, node: str, annotations: Mapping[str, str], now: str) -> JsonObject:
    # Bound, it needs no promise any more.
    status = {key: value for key, value in (pod.get("status") or {}).items() if key != "nominatedNodeName"}
    conditions = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    bound = {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*conditions, condition]},
    }
    if annotations:
        merged = {**(pod["metadata"].get("annotations") or {}), **annotations}
        bound = with_metadata(bound, annotations=merged)
    return bound


async def _evict(call: Call) -> Answer:
    _, body = await writes.decode_body(call, kind="Eviction", api_version="policy/v1")
    await eviction.evict(call, body)
    return _shown(call, 201, _success(201))


async def _log(call: Call) -> Answer:
    return await logs.read(call)


async def _exec(call: Call) -> Answer:
    return exec.execute(call)


async def _ephemeral_containers(call: Call) -> Answer:
    if call.verb == "get":
        return await _object(call)
    raise failures.not_implemented(
        "ephemeral containers are not supported by the embedded node agent: use kubectl exec, "
        f"or kubectl debug {call.target.name} --copy-to=NAME"
    )


async def _attach(call: Call) -> Answer:
    return exec.attach(call)


async def _port_forward(call: Call) -> Answer:
    return exec.forward(call)


_HANDLERS: Mapping[tuple[str, str], Callable[[Call], Awaitable[Answer]]] = {
    ("", "status"): _object,
    ("", "scale"): _scale,
    ("namespaces", "finalize"): _object,
    ("certificatesigningrequests.certificates.k8s.io", "approval"): _object,
    ("pods", "resize"): _object,
    ("pods", "binding"): bind,
    ("pods", "ephemeralcontainers"): _ephemeral_containers,
    ("pods", "eviction"): _evict,
    ("pods", "log"): _log,
    ("pods", "exec"): _exec,
    ("pods", "attach"): _attach,
    ("pods", "portforward"): _port_forward,
    ("serviceaccounts", "token"): token_requests.request_token,
}
