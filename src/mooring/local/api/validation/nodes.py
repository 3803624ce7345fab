"""The rules of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mooring.local.api import names
from mooring.local.api.fields import duplicate, forbidden, invalid, not_supported, required
from mooring.local.api.validation.addresses import cidr_errors, parsed_network
from mooring.local.api.validation.limits import amount_errors
from mooring.local.api.validation.rules import Errors, JsonObject, Table, also, spec_of

__all__ = ["RULES"]

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _node(node: JsonObject) -> Errors:
    spec = spec_of(node)
    yield from _taints(spec.get("taints") or ())
    yield from _amounts(node)
    ranges = _ranges(spec)
    for index, text in enumerate(ranges):
        yield from cidr_errors(text, f"spec.podCIDRs[{index}]")
    families = [network.version for text in ranges if (network := parsed_network(text)) is not None]
    if len(ranges) > 1 and (len(ranges) > 2 or len(set(families)) < 2):
        yield invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family")


def _ranges(spec: JsonObject) -> list[str]:
    """Return the ranges of a node's pods; the one it has alone counts where both differ."""
    one, ranges = spec.get("podCIDR"), spec.get("podCIDRs") or []
    return [one] if one and one != (ranges or [None])[0] else ranges


def _taints(taints: Sequence[JsonObject]) -> Errors:
    known: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        place = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(part) or "" for part in ("key", "value", "effect"))
        for text in names.qualified_name(key):
            yield invalid(f"{place}.key", key, text)
        if texts := names.label_value(value):
            yield invalid(f"{place}.value", value, ";".join(texts))
        if not effect:
            yield required(f"{place}.effect")
        elif effect not in _EFFECTS:
            yield not_supported(f"{place}.effect", effect, _EFFECTS)
        if (key, effect) in known:
            yield replace(duplicate(place, taint), detail="taints must be unique by key and effect pair")
        known.add((key, effect))


def _amounts(node: JsonObject) -> Errors:
    for part in ("capacity", "allocatable"):
        for name, amount in ((node.get("status") or {}).get(part) or {}).items():
            yield from amount_errors(name, amount, f"status.{part}.{name}")


def _node_update(node: JsonObject, old: JsonObject) -> Errors:
    yield from _amounts(node)
    addresses = (node.get("status") or {}).get("addresses") or []
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            yield duplicate(f"status.addresses[{index}]", address)
    spec, before = spec_of(node), spec_of(old)
    ranges, earlier = _ranges(spec), _ranges(before)
    changed = len(earlier) if len(ranges) == len(earlier) else 1 if earlier else 0
    for new, was in zip(ranges, earlier, strict=False):
        changed -= len(ranges) == len(earlier) and new == was
    for _ in range(changed):
        yield forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        yield forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
    yield from _taints(spec.get("taints") or ())
    if (spec.get("externalID") or "") != (before.get("externalID") or ""):
        yield forbidden("spec.externalID", "may not be updated")


RULES: Final[Table] = {("", "Node"): also(_node, _node_update, status=_node_update)}
