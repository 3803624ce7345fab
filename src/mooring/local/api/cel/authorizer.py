"""The variable `authorizer` of policies and match conditions: may the sender of a request do something else?

`authorizer.group('apps').resource('deployments').namespace('x').check('create').allowed()` builds a
question step by step. Its steps are maps with one marked key; only `check` asks, and only while an
expression is evaluated for a request (see `asking`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from cel_expr_python import cel

from mooring.local.api.access.authorization import Decision
from mooring.local.api.access.rbac import Attributes
from mooring.local.api.http import User

__all__ = ["asking", "authorizer_functions", "authorizer_of"]

Value = dict[str, Any]
Decide = Callable[[Attributes], Decision]

_ANY, _TEXT, _BOOL = cel.Type.DYN, cel.Type.STRING, cel.Type.BOOL
_ASK, _DECISION = "$authorizer", "$decision"
_decide: ContextVar[Decide] = ContextVar("authorizer")


@contextmanager
def asking(decide: Decide) -> Iterator[None]:
    """Let `check` ask somebody while an expression is evaluated."""
    token = _decide.set(decide)
    try:
        yield
    finally:
        _decide.reset(token)


def authorizer_of(user: User, about: Attributes) -> Value:
    """Return the variable for a request's sender; `requestResource` is what the request itself is about."""
    who = {"user": user.name, "groups": list(user.groups)}
    resource = {
        "group": about.group,
        "resource": about.resource,
        "subresource": about.subresource,
        "namespace": about.namespace,
        "name": about.name,
    }
    return {_ASK: who, "requestResource": {_ASK: {**who, **resource}}}


def _step(part: str) -> Callable[[Value, str], Value]:
    return lambda value, text: {_ASK: {**value[_ASK], part: text}}


def _path(value: Value, text: str) -> Value:
    if not text:
        raise ValueError("path must not be empty")
    return {_ASK: {**value[_ASK], "path": text}}


def _service_account(value: Value, namespace: str, name: str) -> Value:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {_ASK: {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}}


def _check(value: Value, verb: str) -> Value:
    asked = value[_ASK]
    parts = {
        key: asked[key] for key in ("group", "resource", "subresource", "namespace", "name") if key in asked
    }
    user = User(asked["user"], groups=tuple(asked["groups"]))
    decision = _decide.get()(Attributes(user=user, verb=verb, path=asked.get("path"), **parts))
    return {_DECISION: {"allowed": decision.allowed, "reason": decision.reason}}


def _told(part: str) -> Callable[[Value], Any]:
    return lambda value: value[_DECISION][part]


def _declare(name: str, result: Any, parameters: list[Any], function: Callable[..., Any]) -> Any:
    overload = cel.Overload(f"authorizer_{name}", result, [_ANY, *parameters], True, function)
    return cel.FunctionDecl(name, [overload])


_FUNCTIONS: Final = (
    *(
        _declare(name, _ANY, [_TEXT], _step(name))
        for name in ("group", "resource", "subresource", "namespace", "name")
    ),
    _declare("path", _ANY, [_TEXT], _path),
    _declare("serviceAccount", _ANY, [_TEXT, _TEXT], _service_account),
    # Roles do not look at selectors; they are part of the question all the same.
    _declare("fieldSelector", _ANY, [_TEXT], lambda value, text: value),
    _declare("labelSelector", _ANY, [_TEXT], lambda value, text: value),
    _declare("check", _ANY, [_TEXT], _check),
    _declare("allowed", _BOOL, [], _told("allowed")),
    _declare("reason", _TEXT, [], _told("reason")),
    _declare("errored", _BOOL, [], lambda value: False),
    _declare("error", _TEXT, [], lambda value: ""),
)


def authorizer_functions() -> Any:
    """Return the library, to be given to a CEL environment."""
    return cel.CelExtension("authorizer", list(_FUNCTIONS))
