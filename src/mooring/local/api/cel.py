"""x-kubernetes-validations: rules in CEL, compiled when a CRD is accepted, evaluated on every write."""

from __future__ import annotations

from typing import Any

from mooring.local.api.fields import FieldError
from mooring.local.api.schema import Schema

__all__ = ["Rules", "compile_rules"]

Json = Any


class Rules:
    """The compiled rules of one schema; falsy when it has none."""

    def __bool__(self) -> bool:
        raise NotImplementedError

    def evaluate(self, obj: Json, old: Json = None) -> list[FieldError]:
        """Return the violated rules; transition rules (oldSelf) run only where there is an old value."""
        raise NotImplementedError


def compile_rules(schema: Schema, *, path: str = "") -> tuple[Rules, list[FieldError]]:
    """Compile every rule of a schema; the errors name those that cannot be compiled, and refuse the CRD."""
    raise NotImplementedError
