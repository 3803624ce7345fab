"""What is wrong with declared requests and limits, before the API server refuses a whole StatefulSet for it."""

from __future__ import annotations

from decimal import Decimal

from mooring.kube.objects import core
from mooring.kube.quantity import parse_quantity

__all__ = ["claim_size_faults", "resource_faults"]


def resource_faults(where: str, resources: core.ResourceRequirements | None) -> list[tuple[str, str]]:
    """Field and message of each fault; ``where`` is the path of the resources."""
    if resources is None:
        return []
    found: list[tuple[str, str]] = []
    read: dict[str, dict[str, Decimal]] = {}
    for part, given in (("limits", resources.limits), ("requests", resources.requests)):
        read[part] = {}
        for name, text in (given or {}).items():
            try:
                value = parse_quantity(text)
            except ValueError as why:
                found.append((f"{where}.{part}.{name}", f"{why}; correct it"))
                continue
            if value < 0:
                found.append((f"{where}.{part}.{name}", f"{text} is negative; give 0 or more"))
            read[part][name] = value
    for name, value in read["requests"].items():
        limit = read["limits"].get(name)
        if limit is not None and 0 <= limit < value:
            request, most = (resources.requests or {})[name], (resources.limits or {})[name]
            found.append(
                (
                    f"{where}.requests.{name}",
                    f"{request} is more than limits.{name} ({most}); lower it, or raise the limit",
                )
            )
    return found


def claim_size_faults(where: str, claim: core.PersistentVolumeClaim) -> list[tuple[str, str]]:
    """Field and message where a claim template asks for no size, or for one that no volume has; ``where`` is its path."""
    field = f"{where}.spec.resources.requests.storage"
    resources = claim.spec.resources if claim.spec is not None else None
    text = (resources.requests or {}).get("storage") if resources is not None else None
    if text is None:
        return [(field, "is missing; say how much is needed, as 10Gi")]
    try:
        size = parse_quantity(text)
    except ValueError as why:
        return [(field, f"{why}; correct it")]
    return [] if size > 0 else [(field, f"{text} is no size of a volume; say how much is needed, as 10Gi")]
