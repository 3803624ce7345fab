"""The Status answers of the API server, word for word as kube-apiserver gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mooring.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)

__all__ = [
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "internal",
    "invalid",
    "method_not_allowed",
    "method_not_allowed_because",
    "method_not_supported",
    "not_acceptable",
    "not_found",
    "not_implemented",
    "not_representable",
    "page_not_found",
    "payload_too_large",
    "plain_not_found",
    "status_of",
    "timeout",
    "too_large_version",
    "too_many_requests",
    "unauthorized",
    "unavailable",
    "unroutable_body",
    "unsupported_encoding",
    "unsupported_media_type",
    "without_reason",
]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


#: How the messages of the router begin.
ROUTED = ("the server does not allow", "406: ", "415: ")
#: How the messages begin whose answers carry details, empty or not: the router's, and refusals of paths.
_DETAILED = ("the server ", "406: ", "415: ", "forbidden: ")


def status_of(error: ApiError) -> dict[str, Any]:
    """Return the Status object of an error."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason
    details = dict(error.details)
    if error.retry_after is not None:
        details["retryAfterSeconds"] = int(error.retry_after)
    if details or error.message.startswith(_DETAILED):
        status["details"] = details
    status["code"] = error.status
    return status


def _about(group: str, plural: str, name: str = "") -> dict[str, Any]:
    about = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in about.items() if value}


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> BadRequest:
    """400 with a plain message."""
    return BadRequest(message, status=400, reason="BadRequest")


def unauthorized() -> Unauthorized:
    """401: no, or no valid, token."""
    return Unauthorized("Unauthorized", status=401, reason="Unauthorized")


def forbidden(
    group: str, plural: str, name: str, why: str, causes: Sequence[Mapping[str, Any]] = ()
) -> Forbidden:
    """403 from authorization, admission or a subresource; about no resource without `group` and `plural`."""
    details = _about(group, plural, name)
    if causes:
        details["causes"] = list(causes)
    subject = f'{_qualified(group, plural)} "{name}"' if name else _qualified(group, plural)
    message = f"{subject} is forbidden: {why}" if subject else f"forbidden: {why}"
    return Forbidden(message, status=403, reason="Forbidden", details=details)


def not_found(group: str, plural: str, name: str) -> NotFound:
    """404: no such object."""
    return NotFound(
        f'{_qualified(group, plural)} "{name}" not found',
        status=404,
        reason="NotFound",
        details=_about(group, plural, name),
    )


def plain_not_found(message: str) -> NotFound:
    """404 with its own message."""
    return NotFound(message, status=404, reason="NotFound")


def page_not_found() -> NotFound:
    """404: no such resource in a group version that is served."""
    return NotFound("the server could not find the requested resource", status=404, reason="NotFound")


def already_exists(group: str, plural: str, name: str, *, deleting: bool = False) -> AlreadyExists:
    """409: the name is taken, by an object that may be on its way out (`deleting`)."""
    said = "object is being deleted: " if deleting else ""
    return AlreadyExists(
        f'{said}{_qualified(group, plural)} "{name}" already exists',
        status=409,
        reason="AlreadyExists",
        details=_about(group, plural, name),
    )


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> Conflict:
    """409: a precondition failed."""
    return Conflict(
        f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}',
        status=409,
        reason="Conflict",
        details=_about(group, plural, name),
    )


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> Gone:
    """410: the version asked for is no longer known."""
    return Gone(message, status=410, reason="Expired")


def method_not_allowed() -> ApiError:
    """405: the path exists, the method does not."""
    return ApiError(
        "the server does not allow this method on the requested resource",
        status=405,
        reason="MethodNotAllowed",
    )


def method_not_allowed_because(message: str) -> ApiError:
    """405 with its own message."""
    return ApiError(message, status=405, reason="MethodNotAllowed")


def method_not_supported(group: str, plural: str, verb: str) -> ApiError:
    """405: the resource exists, the verb does not."""
    return ApiError(
        f'{verb} is not supported on resources of kind "{_qualified(group, plural)}"',
        status=405,
        reason="MethodNotAllowed",
        details=_about(group, plural),
    )


def not_representable(types: Sequence[str]) -> ApiError:
    """406 of the router: no route of the path offers what the client accepts."""
    return ApiError(
        "406: Not Acceptable\n\nAvailable representations: " + ", ".join(types),
        status=406,
        reason="NotAcceptable",
    )


def unroutable_body() -> ApiError:
    """415 of the router: no route of the path takes such a body."""
    return ApiError("415: Unsupported Media Type", status=415, reason="UnsupportedMediaType")


def without_reason(message: str) -> ServerError:
    """500 with a plain message, where the real server has no better answer."""
    return ServerError(message, status=500)


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """406: none of the types the client accepts is offered."""
    return ApiError(
        "only the following media types are accepted: " + ", ".join(accepted),
        status=406,
        reason="NotAcceptable",
    )


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415: the body is of a type that is not read."""
    return ApiError(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
        status=415,
        reason="UnsupportedMediaType",
    )


def unsupported_encoding(encoding: str) -> ApiError:
    """415: the body is packed. A real server does not unpack bodies either, and finds no object in them."""
    return ApiError(
        f"Content-Encoding {encoding} is not supported: send the body as it is",
        status=415,
        reason="UnsupportedMediaType",
    )


def payload_too_large(limit: int) -> ApiError:
    """413: the body is too long."""
    return ApiError(f"Request entity too large: limit is {limit}", status=413, reason="RequestEntityTooLarge")


def not_implemented(message: str) -> ServerError:
    """501: a part of the API that this server does not have."""
    return ServerError(message, status=501, reason="NotImplemented")


def too_many_requests(message: str, *, retry_after: float = 1, details: Any = None) -> TooManyRequests:
    """429: later."""
    return TooManyRequests(
        message, status=429, reason="TooManyRequests", retry_after=retry_after, details=details
    )


def timeout(message: str) -> ServerError:
    """504: not in time."""
    return ServerError(message, status=504, reason="Timeout")


def unavailable(message: str) -> ServerError:
    """503: what would answer cannot be reached."""
    return ServerError(message, status=503, reason="ServiceUnavailable")


def too_large_version(asked: int, current: int) -> ServerError:
    """504: the version asked for is in the future."""
    return ServerError(
        f"Timeout: Too large resource version: {asked}, current: {current}",
        status=504,
        reason="Timeout",
        retry_after=1,
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
    )


def internal(message: str) -> ServerError:
    """500: our own fault, or a webhook's."""
    return ServerError(
        f"Internal error occurred: {message}",
        status=500,
        reason="InternalError",
        details={"causes": [{"message": message}]},
    )


def invalid(
    group: str, kind: str, name: str, message: str, causes: Sequence[Mapping[str, Any]] = ()
) -> Invalid:
    """422 whose wording is not a list of field errors."""
    details = _about(group, kind, name)
    if causes:
        details["causes"] = list(causes)
    return Invalid(message, status=422, reason="Invalid", details=details)
