"""The rules of coordination: leases."""

from __future__ import annotations

from typing import Final

from mooring.local.api.fields import (
    invalid,
)
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
    nonnegative,
    spec_of,
)

__all__ = ["RULES"]


def _lease(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    yield from nonnegative(spec.get("leaseTransitions"), "spec.leaseTransitions")


RULES: Final[Table] = {
    ("coordination.k8s.io", "Lease"): also(_lease),
}
