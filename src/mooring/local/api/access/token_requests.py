"""Tokens of ServiceAccounts on request (`serviceaccounts/NAME/token`), bound to an object when asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.local.api import failures, fields, reads, writes
from mooring.local.api.access.tokens import ISSUER, Claims
from mooring.local.api.call import Call
from mooring.local.api.errors import invalid_object
from mooring.local.api.fields import FieldError
from mooring.local.api.http import Answer
from mooring.local.api.objectmeta import rfc3339

__all__ = ["request_token"]

JsonObject = dict[str, Any]

_GROUP, _KIND = "authentication.k8s.io", "TokenRequest"
_SECONDS = 3600
_SHORTEST = 600
_LONGEST = 1 << 32
#: Kinds a token can be bound to: where they are stored, and whether in the account's namespace.
_BINDABLE = {"Pod": ("pods", True), "Secret": ("secrets", True), "Node": ("nodes", False)}


async def request_token(call: Call) -> Answer:
    """Answer a TokenRequest."""
    body = await writes.decode_review(call, api_version=f"{_GROUP}/v1", kind=_KIND, complete=_with_seconds)
    meta = dict(body["metadata"])
    _check_name(call, meta)
    account = call.live()
    uid = account.obj["metadata"]["uid"]
    if meta.get("uid", uid) != uid:
        why = (
            f"the UID in the token request ({meta['uid']}) does not match"
            f" the UID of the service account ({uid})"
        )
        raise failures.conflict(_GROUP, _KIND, account.name, why)
    spec = body["spec"]
    seconds = spec["expirationSeconds"]
    if errors := _seconds_errors(seconds):
        raise invalid_object(errors, group=_GROUP, kind=_KIND, name="")
    now = call.cluster.now()
    audiences = tuple(spec.get("audiences") or ()) or (ISSUER,)
    claims = Claims(
        namespace=call.namespace,
        name=account.name,
        uid=uid,
        audiences=audiences,
        expires=now.timestamp() + seconds,
        bound=_bound(call, spec.get("boundObjectRef") or {}),
    )
    expiration = rfc3339(now.fromtimestamp(claims.expires, tz=now.tzinfo))
    shown = {"name": account.name, "namespace": call.namespace, "uid": uid, "creationTimestamp": rfc3339(now)}
    answer = {
        "kind": _KIND,
        "apiVersion": f"{_GROUP}/v1",
        "metadata": {**shown, "managedFields": meta["managedFields"]},
        "spec": {
            "audiences": list(audiences),
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": {
            "token": call.cluster.tokens.sign(claims, now=now),
            "expirationTimestamp": expiration,
        },
    }
    return reads.answer_object(call, 201, answer, call.form())


def _with_seconds(obj: JsonObject) -> JsonObject:
    spec = obj.get("spec") or {}
    return {**obj, "spec": {**spec, "expirationSeconds": spec.get("expirationSeconds") or _SECONDS}}


def _check_name(call: Call, meta: Mapping[str, Any]) -> None:
    if meta.get("name", call.target.name) != call.target.name:
        why = "must match the service account name if specified"
        error = fields.invalid("metadata.name", meta["name"], why)
        raise invalid_object([error], group=_GROUP, kind=_KIND, name=call.target.name)


def _seconds_errors(seconds: int) -> list[FieldError]:
    path = "spec.expirationSeconds"
    if seconds < _SHORTEST:
        return [fields.invalid(path, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _LONGEST:
        return [fields.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _bound(call: Call, reference: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the claims that bind a token to an object; raises 400, 404 and 409."""
    if not reference:
        return {}
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    group, _, version = (reference.get("apiVersion") or "").rpartition("/")
    if group or kind not in _BINDABLE:
        shown = f"{group}/{version}, Kind={kind}"
        raise failures.bad_request(f"cannot bind token to object of type {shown}")
    found = _object(call, kind, name)
    uid = found["metadata"]["uid"]
    bound = {kind.lower(): (name, uid)}
    if kind == "Pod":
        bound |= _node_of(call, found)
    if reference.get("uid") not in (None, "", uid):
        why = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record."
            " The object might have been deleted and then recreated"
        )
        raise failures.conflict("", kind, name, why)
    return bound


def _object(call: Call, kind: str, name: str) -> JsonObject:
    plural, namespaced = _BINDABLE[kind]
    entry = call.cluster.store.collection(plural).get((call.namespace if namespaced else "", name))
    if entry is None:
        raise failures.not_found("", plural, name)
    return entry.obj


def _node_of(call: Call, pod: JsonObject) -> dict[str, tuple[str, str]]:
    """Return the claim of a pod's node; raises 400 when the pod runs as another account."""
    if pod["spec"].get("serviceAccountName") != call.target.name:
        name = f'"{call.target.name}"'
        raise failures.bad_request(
            f"cannot bind token for serviceaccount {name} to pod running with different serviceaccount name."
        )
    name = pod["spec"].get("nodeName")
    if not name:
        return {}
    node = call.cluster.store.collection("nodes").get(("", name))
    return {"node": (name, node.obj["metadata"]["uid"] if node is not None else "")}
