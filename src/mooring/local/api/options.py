"""The options of writes and lists, from the query or a DeleteOptions body, checked as the real server does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mooring.kube.errors import Invalid
from mooring.local.api import failures, fields
from mooring.local.api.errors import invalid_object
from mooring.local.api.fields import FieldError
from mooring.local.api.http import Query, Request
from mooring.local.api.wire import json_type

__all__ = ["DeleteOptions", "WriteOptions"]

FieldValidation = Literal["Strict", "Warn", "Ignore"]
_MANAGER_LENGTH = 128


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of create, update and patch."""

    manager: str
    dry_run: bool = False
    field_validation: FieldValidation = "Warn"
    force: bool = False

    @classmethod
    def parse(cls, request: Request, kind: str, *, apply: bool = False) -> WriteOptions:
        """Read the query; `kind` (CreateOptions ...) names the options in errors. Raises 422."""
        query = request.query
        manager = query.text("fieldManager")
        errors = _dry_run_errors(query.all("dryRun")) + _manager_errors(manager)
        validation = query.text("fieldValidation")
        if validation not in ("", "Strict", "Warn", "Ignore"):
            supported = ("", "Ignore", "Strict", "Warn")
            errors.append(fields.not_supported("fieldValidation", validation, supported))
        force = query.flag("force")
        if apply and not manager:
            errors.append(fields.required("fieldManager", "is required for apply patch"))
        if not apply and kind == "PatchOptions" and "force" in query:
            errors.append(fields.forbidden("force", "may not be specified for non-apply patch"))
        if errors:
            raise _invalid(kind, errors)
        return cls(
            manager=manager or _agent(request),
            dry_run=bool(query.all("dryRun")),
            field_validation=validation or "Warn",  # type: ignore[arg-type]
            force=force,
        )


def _agent(request: Request) -> str:
    name = request.header("user-agent").partition("/")[0]
    return "".join(c for c in name if c.isprintable())[:_MANAGER_LENGTH] or "unknown"


def _manager_errors(manager: str) -> list[FieldError]:
    if len(manager) > _MANAGER_LENGTH:
        return [fields.too_long("fieldManager", _MANAGER_LENGTH)]
    for index, letter in enumerate(manager):
        if not letter.isprintable():
            return [
                fields.invalid(
                    "fieldManager", manager, f"invalid character {ord(letter):#U} (at position {index})"
                )
            ]
    return []


def _dry_run_errors(values: list[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [FieldError("FieldValueNotSupported", "dryRun", values, 'supported values: "All"')]


def _invalid(kind: str, errors: list[FieldError]) -> Invalid:
    return invalid_object(errors, group="meta.k8s.io", kind=kind, name="")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of delete and deletecollection."""

    grace: int | None = None
    policy: str = ""
    orphan: bool | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    @classmethod
    def parse(cls, query: Query, body: Mapping[str, Any] | None) -> DeleteOptions:
        """Read the body, else the query. Raises 400 and 422."""
        if body:
            _check_types(body)
            preconditions = body.get("preconditions") or {}
            grace = body.get("gracePeriodSeconds")
            policy = body.get("propagationPolicy") or ""
            orphan = body.get("orphanDependents")
            dry_run = list(body.get("dryRun") or ())
        else:
            preconditions = {}
            grace = query.number("gracePeriodSeconds")
            policy = query.text("propagationPolicy")
            orphan = query.flag("orphanDependents") if "orphanDependents" in query else None
            dry_run = query.all("dryRun")
        errors = _policy_errors(policy, orphan) + _dry_run_errors(dry_run)
        if errors:
            raise _invalid("DeleteOptions", errors)
        if grace is not None and not isinstance(grace, int):
            raise failures.bad_request("gracePeriodSeconds must be a number")
        if grace is not None and grace < 0:
            grace = 1
        return cls(
            grace=grace,
            policy=policy,
            orphan=orphan,
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            dry_run=bool(dry_run),
        )


def _check_types(body: Mapping[str, Any]) -> None:
    """Raise 400 for a field of DeleteOptions that Go could not decode."""
    preconditions = body.get("preconditions")
    inner = preconditions if isinstance(preconditions, Mapping) else {}
    for name, value, kind, go in (
        ("preconditions", preconditions, Mapping, "v1.Preconditions"),
        ("preconditions.uid", inner.get("uid"), str, "types.UID"),
        ("preconditions.resourceVersion", inner.get("resourceVersion"), str, "string"),
        ("propagationPolicy", body.get("propagationPolicy"), str, "v1.DeletionPropagation"),
        ("orphanDependents", body.get("orphanDependents"), bool, "bool"),
        ("dryRun", body.get("dryRun"), list, "[]string"),
    ):
        if value is not None and not isinstance(value, kind):
            field = f"Go struct field DeleteOptions.{name} of type {go}"
            why = f"json: cannot unmarshal {json_type(value)} into {field}"
            raise failures.bad_request(
                f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {why}'
            )


def _policy_errors(policy: str, orphan: bool | None) -> list[FieldError]:
    if policy and orphan is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        return [fields.invalid("propagationPolicy", policy, text)]
    if policy not in ("", "Foreground", "Background", "Orphan"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        return [fields.not_supported("propagationPolicy", policy, supported)]
    return []
