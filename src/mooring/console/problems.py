"""Errors as the console answers them: problem details (RFC 9457), never a traceback, never a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from mooring.catalog import MASKED, Entry, field_of
from mooring.kube import ApiError, KubeError, TransportError, Unauthorized

__all__ = ["Problem", "problem_of", "refusal", "scrubbed"]


class Problem(Exception):
    """An answer that says what is wrong: ``code`` is for programs, ``errors`` name fields of a form."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        more: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.more = dict(more or {})
        self.retry_after = retry_after

    def response(self, request_id: str) -> web.Response:
        """The answer."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": web.Response(status=self.status).reason,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "requestId": request_id,
            **self.more,
        }
        if self.errors:
            body["errors"] = self.errors
        headers = {"Retry-After": f"{self.retry_after:.0f}"} if self.retry_after is not None else {}
        return web.Response(
            status=self.status,
            body=msgspec.json.encode(body),
            content_type="application/problem+json",
            headers=headers,
        )


def problem_of(error: KubeError) -> Problem:
    """What to answer when the API server refused, or did not answer."""
    if isinstance(error, Unauthorized):
        return Problem(
            401, "Unauthorized", "The API server does not accept the credential any more. Sign in again."
        )
    if isinstance(error, ApiError):
        status = error.status if error.status in (400, 403, 404, 409, 410, 413, 422, 429) else 502
        code = error.reason or "ApiError"
        return Problem(status, code, error.message, retry_after=error.retry_after)
    if isinstance(error, TransportError):
        return Problem(504, "NoAnswer", "The API server does not answer. Try again in a moment.")
    return Problem(502, "BadAnswer", "The API server's answer could not be read.")


def refusal(entry: Entry, error: ApiError, secrets: list[str]) -> Problem:
    """What the API server said against an object, at the fields it is about."""
    if isinstance(error, Unauthorized):
        return problem_of(error)
    problem = problem_of(error)
    problem.detail = scrubbed(problem.detail, secrets)
    errors: list[Mapping[str, Any]] = []
    for cause in error.causes:
        path = str(cause.get("field") or "")
        text = scrubbed(str(cause.get("message") or ""), secrets)
        errors.append({"field": field_of(entry, path), "path": path, "message": {"en": text, "zh": text}})
    if error.reason == "AlreadyExists":
        taken = {"en": "There is one of this name already.", "zh": "已有同名实例。"}
        errors = [{"field": "name", "path": "metadata.name", "message": taken}]
    problem.errors = errors
    return problem


def scrubbed(text: str, secrets: list[str]) -> str:
    """A message of the API server without the secrets that were sent to it: it quotes what it refuses."""
    for secret in secrets:
        for form in (secret, msgspec.json.encode(secret).decode()[1:-1]):
            text = text.replace(form, MASKED)
    return text
