"""Resources that are only asked, never stored: reviews of tokens and of rights, bindings, component states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mooring.local.api import codec, reads, subresources, writes
from mooring.local.api.call import Call
from mooring.local.api.http import Answer
from mooring.local.api.objectmeta import rfc3339
from mooring.local.api.tokens import ISSUER

__all__ = ["VIRTUAL"]

JsonObject = dict[str, Any]

_ALLOW_ALL = "every authenticated user may do everything on the embedded server"


async def _body(call: Call) -> JsonObject:
    _, obj = await writes.decode_body(call, kind=call.served.kind, api_version=call.served.api_version)
    return obj


def _answered(call: Call, review: JsonObject, status: JsonObject) -> Answer:
    meta = {"creationTimestamp": None, **(review.get("metadata") or {})}
    answer = {**review, "metadata": meta, "status": status}
    return reads.answer_object(call, 201, answer, call.form())


async def _access(call: Call) -> Answer:
    """Answer what somebody may do: everything, unless they are nobody."""
    review = await _body(call)
    spec = review.get("spec") or {}
    nobody = spec.get("user") == "system:anonymous"
    status: JsonObject = {"allowed": not nobody}
    if not nobody:
        status["reason"] = _ALLOW_ALL
    return _answered(call, review, status)


async def _rules(call: Call) -> Answer:
    review = await _body(call)
    everything = ["*"]
    status = {
        "resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
        "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
        "incomplete": False,
    }
    return _answered(call, review, status)


async def _self(call: Call) -> Answer:
    review = await _body(call)
    return _answered(
        call,
        {**review, "metadata": {"creationTimestamp": rfc3339(call.cluster.now())}},
        {"userInfo": call.user.to_json()},
    )


async def _token(call: Call) -> Answer:
    review = await _body(call)
    spec = review.get("spec") or {}
    audiences = tuple(spec.get("audiences") or (ISSUER,))
    user = call.cluster.identify(spec.get("token") or "", audiences)
    if user is None:
        status: JsonObject = {"authenticated": False, "user": {}, "error": "the token is not valid"}
    else:
        status = {"authenticated": True, "user": user.to_json(), "audiences": list(audiences)}
    # The token itself is not sent back.
    return _answered(call, {**review, "spec": {**spec, "token": ""}}, status)


async def _components(call: Call) -> Answer:
    if call.verb == "get":
        raise call.not_found()
    empty = {"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": []}
    return reads.answer_object(call, 200, empty, codec.Format())


#: By stored collection: the answer to every verb of the resource.
VIRTUAL: Mapping[str, Callable[[Call], Awaitable[Answer]]] = {
    "bindings": subresources.bind,
    "componentstatuses": _components,
    "tokenreviews.authentication.k8s.io": _token,
    "selfsubjectreviews.authentication.k8s.io": _self,
    "selfsubjectaccessreviews.authorization.k8s.io": _access,
    "subjectaccessreviews.authorization.k8s.io": _access,
    "localsubjectaccessreviews.authorization.k8s.io": _access,
    "selfsubjectrulesreviews.authorization.k8s.io": _rules,
}
