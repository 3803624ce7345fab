"""How the engine's findings become API errors: the Status texts a Kubernetes API server sends."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.kube.errors import BadRequest, Invalid
from mooring.local.api.fields import FieldError

__all__ = ["cannot_be_handled", "invalid_object", "strict_decoding"]


def invalid_object(errors: Sequence[FieldError], *, group: str, kind: str, name: str) -> Invalid:
    """Return the 422 that names every violated rule of an object."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    details: dict[str, object] = {"name": name, "group": group, "kind": kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [error.cause() for error in errors]
    return Invalid(
        f'{qualified} "{name}" is invalid: {listed}', status=422, reason="Invalid", details=details
    )


def cannot_be_handled(kind: str, version: str, cause: str) -> BadRequest:
    """Return the 400 for a body of a built-in kind that cannot be decoded."""
    message = f'{kind} in version "{version}" cannot be handled as a {kind}: {cause}'
    return BadRequest(message, status=400, reason="BadRequest")


def strict_decoding(causes: Sequence[str]) -> str:
    """Word unknown and duplicate fields (`unknown field "spec.foo"`) as strict decoding does."""
    return "strict decoding error: " + ", ".join(causes)
