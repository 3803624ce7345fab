"""What can go wrong when talking to an API server.

KubeError
├── ApiError(status, reason, message, details)   the server answered with a Status
│   ├── BadRequest            400
│   ├── Unauthorized          401
│   ├── Forbidden             403
│   ├── NotFound              404
│   ├── Conflict              409  the object changed, or a precondition or field owner is in the way
│   ├── AlreadyExists         409  reason AlreadyExists
│   ├── Gone                  410  the resource version is too old
│   ├── Invalid               422
│   ├── TooManyRequests       429  retry_after says when
│   └── ServerError           5xx
├── TransportError            no answer: connection, TLS, time-out; a write may have happened
├── DecodeError               the answer is not what its kind promises
└── ConfigError               no usable kubeconfig
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "ConfigError",
    "Conflict",
    "DecodeError",
    "Forbidden",
    "Gone",
    "Invalid",
    "KubeError",
    "NotFound",
    "ServerError",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "api_error",
]


class KubeError(Exception):
    """Base of everything raised by :mod:`mooring.kube`."""


class ConfigError(KubeError):
    """No usable configuration; the message names the file and the field."""


class TransportError(KubeError):
    """The request got no complete answer; whether it was carried out is unknown."""


class DecodeError(KubeError):
    """An answer could not be read as its kind."""


class ApiError(KubeError):
    """The server refused a request with a Status.

    ``retry_after`` is in seconds, ``None`` when the server did not say. ``details`` is the Status'
    ``details`` as JSON (``kind``, ``name``, ``causes`` ...).
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after

    @property
    def causes(self) -> list[Mapping[str, Any]]:
        """The single faults behind an Invalid or a Conflict: ``reason``, ``message``, ``field``."""
        return list(self.details.get("causes") or ())


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: no valid credentials."""


class Forbidden(ApiError):
    """403: not allowed, by RBAC, quota or admission."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: the object changed since it was read, or another manager owns the field."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists."""


class Gone(ApiError):
    """410: the resource version is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks its schema or a rule."""


class TooManyRequests(ApiError):
    """429: slow down; or an eviction that a PodDisruptionBudget forbids."""


class ServerError(ApiError):
    """5xx: the server failed; a write may have happened."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def api_error(
    status: int, body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> ApiError:
    """The exception for an answer with an error status; ``body`` need not be a Status."""
    fields: Mapping[str, Any] = {}
    if isinstance(body, Mapping):
        fields = body
    else:
        try:
            decoded = msgspec.json.decode(body)
            fields = decoded if isinstance(decoded, dict) else {}
        except msgspec.MsgspecError:
            fields = {}
    reason = str(fields.get("reason") or "")
    message = fields.get("message")
    if not message:
        text = body if isinstance(body, bytes) else b""
        message = text[:500].decode(errors="replace").strip() or f"the server answered {status}"
    details = fields.get("details") or {}
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else ApiError
    return kind(
        str(message),
        status=status,
        reason=reason,
        details=details if isinstance(details, Mapping) else {},
        retry_after=_retry_after(headers or {}, details),
    )


def _retry_after(headers: Mapping[str, str], details: object) -> float | None:
    for name, value in headers.items():
        if name.lower() == "retry-after" and value.isdigit():
            return float(value)
    if isinstance(details, Mapping) and isinstance(seconds := details.get("retryAfterSeconds"), int):
        return float(seconds)
    return None
