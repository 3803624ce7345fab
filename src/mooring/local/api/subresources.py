"""Subresources: status, scale, and those that do something to a pod, namespace or account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mooring.local.api import eviction, failures, fields, reads, scale, writes
from mooring.local.api.access import token_requests
from mooring.local.api.bodies import decode_body
from mooring.local.api.call import Call
from mooring.local.api.http import Answer
from mooring.local.api.objectmeta import is_deleting, rfc3339, with_metadata
from mooring.local.api.patching import patch_object
from mooring.local.api.streams import exec, logs, proxy

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
    verb = writes.replace if call.verb == "update" else patch_object
    status, obj = await verb(call)
    return _shown(call, status, obj)


# --- pods -----------------------------------------------------------------------------------------------


async def bind(call: Call) -> Answer:
    """Assign a pod to a node, once: `pods/NAME/binding`, or `bindings` with the pod's name in the body."""
    _, binding = await decode_body(call, kind="Binding", api_version="v1")
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
    _, body = await decode_body(call, kind="Eviction", api_version="policy/v1")
    await eviction.evict(call, body)
    return _shown(call, 201, _success(201))


async def _log(call: Call) -> Answer:
    return await logs.read(call)


async def _exec(call: Call) -> Answer:
    await _admit(call, "PodExecOptions")
    return exec.execute(call)


async def _ephemeral_containers(call: Call) -> Answer:
    if call.verb == "get":
        return await _object(call)
    raise failures.not_implemented(
        "ephemeral containers are not supported by the embedded node agent: use kubectl exec, "
        f"or kubectl debug {call.target.name} --copy-to=NAME"
    )


async def _attach(call: Call) -> Answer:
    await _admit(call, "PodAttachOptions")
    return exec.attach(call)


async def _port_forward(call: Call) -> Answer:
    await _admit(call, "PodPortForwardOptions")
    return exec.forward(call)


async def _admit(call: Call, kind: str) -> None:
    """Ask webhooks and policies about a connection; raises what they refuse it with."""
    query = call.request.query
    options: JsonObject = {"kind": kind, "apiVersion": "v1"}
    if kind == "PodPortForwardOptions":
        ports = [int(port) for port in query.all("ports") if port.isdecimal()]
        options |= {"ports": ports} if ports else {}
    else:
        options |= {name: True for name in ("stdin", "stdout", "stderr", "tty") if query.flag(name)}
        if container := query.text("container"):
            options["container"] = container
    if kind == "PodExecOptions":
        options["command"] = query.all("command")
    await call.cluster.admission.connect(call, options)


_HANDLERS: Mapping[tuple[str, str], Callable[[Call], Awaitable[Answer]]] = {
    ("", "status"): _object,
    ("", "scale"): scale.scale,
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
    ("pods", "proxy"): proxy.to_pod,
    ("services", "proxy"): proxy.to_service,
    ("serviceaccounts", "token"): token_requests.request_token,
}
