"""Resources that are only asked, never stored: reviews of tokens and of rights, bindings, component states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mooring.local.api import codec, failures, fields, reads, subresources, writes
from mooring.local.api.access.rbac import Attributes
from mooring.local.api.access.tokens import ISSUER, TokenError
from mooring.local.api.call import Call
from mooring.local.api.errors import invalid_object
from mooring.local.api.fields import FieldError, GoStruct
from mooring.local.api.http import Answer, User
from mooring.local.api.objectmeta import rfc3339

__all__ = ["VIRTUAL"]

JsonObject = dict[str, Any]

_AUTHORIZATION = "authorization.k8s.io"


async def _body(call: Call) -> JsonObject:
    return await writes.decode_review(call, kind=call.served.kind, api_version=call.served.api_version)


def _answered(call: Call, review: JsonObject, status: JsonObject) -> Answer:
    return reads.answer_object(call, 201, {**review, "status": status}, call.form(tables=False))


# --- rights ---------------------------------------------------------------------------------------------


async def _own_access(call: Call) -> Answer:
    review = await _body(call)
    spec = review.get("spec") or {}
    _refuse(_attribute_errors(spec) + _meta_errors(review))
    return _decided(call, review, spec, call.user)


async def _access(call: Call) -> Answer:
    review = await _body(call)
    spec = review.get("spec") or {}
    _refuse(_attribute_errors(spec) + _subject_errors(spec) + _meta_errors(review))
    return _decided(call, review, spec, _subject(spec))


async def _local_access(call: Call) -> Answer:
    review = await _body(call)
    spec, meta = review.get("spec") or {}, review["metadata"]
    meta.setdefault("namespace", call.namespace)
    _refuse(
        _attribute_errors(spec)
        + _subject_errors(spec)
        + _meta_errors(review, but="namespace")
        + _local_errors(spec, meta["namespace"])
    )
    if meta["namespace"] != call.namespace:
        why = f"spec.resourceAttributes.namespace must match namespace: {call.namespace}"
        raise failures.bad_request(why)
    return _decided(call, review, spec, _subject(spec))


def _decided(call: Call, review: JsonObject, spec: JsonObject, user: User) -> Answer:
    decision = call.cluster.authorizer.decide(_attributes(spec, user))
    reason = {"reason": decision.reason} if decision.reason else {}
    return _answered(call, review, {"allowed": decision.allowed, **reason})


def _subject(spec: JsonObject) -> User:
    return User(spec.get("user") or "", spec.get("uid") or "", tuple(spec.get("groups") or ()))


def _attributes(spec: JsonObject, user: User) -> Attributes:
    asked = spec.get("resourceAttributes")
    if asked is None:
        path = spec["nonResourceAttributes"]
        return Attributes(user=user, verb=path.get("verb") or "", path=path.get("path") or "")
    names = ("verb", "group", "resource", "subresource", "name", "namespace")
    return Attributes(user=user, **{name: asked.get(name) or "" for name in names})


def _refuse(errors: list[FieldError]) -> None:
    if errors:
        raise invalid_object(errors, group=_AUTHORIZATION, kind="", name="")


def _attribute_errors(spec: JsonObject) -> list[FieldError]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        shown = GoStruct({"Path": path.get("path") or "", "Verb": path.get("verb") or ""})
        why = "cannot be specified in combination with resourceAttributes"
        return [fields.invalid("spec.nonResourceAttributes", shown, why)]
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [fields.invalid("spec.resourceAttributes", None, why)]
    return []


def _subject_errors(spec: JsonObject) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [fields.invalid("spec.user", "", "at least one of user or group must be specified")]


def _meta_errors(review: JsonObject, *, but: str = "") -> list[FieldError]:
    meta = review["metadata"]
    if not meta.keys() - {"managedFields", but}:
        return []
    why = f"must be empty except for {but}" if but else "must be empty"
    return [fields.invalid("metadata", GoStruct(meta), why)]


def _local_errors(spec: JsonObject, namespace: str) -> list[FieldError]:
    errors = []
    asked = spec.get("resourceAttributes")
    if asked is not None and (found := asked.get("namespace") or "") != namespace:
        path = "spec.resourceAttributes.namespace"
        errors.append(fields.invalid(path, found, "must match metadata.namespace"))
    if (other := spec.get("nonResourceAttributes")) is not None:
        shown = GoStruct({"Path": other.get("path") or "", "Verb": other.get("verb") or ""})
        why = "disallowed on this kind of request"
        errors.append(fields.invalid("spec.nonResourceAttributes", shown, why))
    return errors


async def _rules(call: Call) -> Answer:
    review = await _body(call)
    namespace = (review.get("spec") or {}).get("namespace")
    if not namespace:
        raise failures.bad_request("no namespace on request")
    rules, errors = call.cluster.authorizer.rules_for(call.user, namespace)
    shown = ("verbs", "apiGroups", "resources", "resourceNames")
    status: JsonObject = {
        "resourceRules": [
            {name: rule[name] for name in shown if rule.get(name)} for rule in rules if rule.get("resources")
        ],
        "nonResourceRules": [
            {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
            for rule in rules
            if rule.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
    if errors:
        status["evaluationError"] = errors
    return _answered(call, {**review, "metadata": {}, "spec": {}}, status)


# --- identities -----------------------------------------------------------------------------------------


async def _self(call: Call) -> Answer:
    review = await _body(call)
    shown = {**review, "metadata": {"creationTimestamp": rfc3339(call.cluster.now())}}
    return _answered(call, shown, {"userInfo": call.user.to_json()})


async def _token(call: Call) -> Answer:
    review = await _body(call)
    spec = review.get("spec") or {}
    if not spec.get("token"):
        raise failures.bad_request("token is required for TokenReview in authentication")
    audiences = tuple(spec.get("audiences") or (ISSUER,))
    try:
        user, shared = call.cluster.identify(spec["token"], audiences)
    except TokenError as error:
        why = f"[invalid bearer token, {error}]" if str(error) else "invalid bearer token"
        return _answered(call, review, {"user": {}, "error": why})
    status = {"authenticated": True, "user": user.to_json(), "audiences": list(shared)}
    return _answered(call, review, status)


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
    "selfsubjectaccessreviews.authorization.k8s.io": _own_access,
    "subjectaccessreviews.authorization.k8s.io": _access,
    "localsubjectaccessreviews.authorization.k8s.io": _local_access,
    "selfsubjectrulesreviews.authorization.k8s.io": _rules,
}
