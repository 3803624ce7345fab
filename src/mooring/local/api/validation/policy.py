"""The rules of policy: disruption budgets."""

from __future__ import annotations

from typing import Final

from mooring.local.api.fields import (
    invalid,
    not_supported,
)
from mooring.local.api.validation.metadata import selector_errors
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
    dump,
    int_or_percent,
    spec_of,
)

__all__ = ["RULES"]


def _disruption_budget(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = dump(
            spec,
            minAvailable="MinAvailable",
            selector="Selector",
            maxUnavailable="MaxUnavailable",
            unhealthyPodEvictionPolicy="UnhealthyPodEvictionPolicy",
        )
        yield invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for key in ("minAvailable", "maxUnavailable"):
        if spec.get(key) is not None:
            yield from int_or_percent(spec[key], f"spec.{key}")
    yield from selector_errors(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        place = "spec.unhealthyPodEvictionPolicy"
        yield not_supported(place, policy, ("AlwaysAllow", "IfHealthyBudget"))


RULES: Final[Table] = {
    ("policy", "PodDisruptionBudget"): also(_disruption_budget),
}
