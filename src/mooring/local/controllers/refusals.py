"""Refusals of the server that mean: there is nothing left to do here."""

from __future__ import annotations

from mooring.kube.errors import ApiError

__all__ = ["namespace_is_going"]


def namespace_is_going(error: BaseException) -> bool:
    """Whether a create was refused because its namespace is being deleted."""
    return isinstance(error, ApiError) and any(
        cause.get("reason") == "NamespaceTerminating" for cause in error.causes
    )
