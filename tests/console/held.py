"""Every answer that a test sees is held to the contract that the OpenAPI document is made of."""

from __future__ import annotations

import re

import msgspec

from mooring.console.contract import BY_PATH, Operation, ProblemDetails

__all__ = ["held", "operation_of"]


def operation_of(method: str, path: str) -> Operation | None:
    """The operation that a path belongs to."""
    plain = path.partition("?")[0]
    for (known, pattern), one in BY_PATH.items():
        if known == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), plain):
            return one
    return None


def held(method: str, path: str, status: int, media: str, text: str) -> None:
    """Fail for an answer that is not what the contract says."""
    if not path.startswith("/api/"):
        return
    if status >= 400:
        assert media == "application/problem+json", f"{method} {path}: {status} is {media}"
        problem = msgspec.json.decode(text, type=ProblemDetails)
        assert problem.status == status
        return
    one = operation_of(method, path)
    assert one is not None, f"{method} {path} is in no contract"
    assert media == one.media
    assert status in {one.status, 200 if "dryRun" in one.query else one.status}
    if one.answer is None:
        return
    try:
        msgspec.json.decode(text, type=one.answer)
    except msgspec.ValidationError as error:
        raise AssertionError(f"{method} {path}: {error}") from error
