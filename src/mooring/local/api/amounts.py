"""Amounts of resources (`cpu: 500m`): adding them up and comparing them, in the spelling Kubernetes prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from mooring.local.api.wire import canonical_quantity, quantity_value

__all__ = ["Amounts", "minus", "plus", "pod_total", "rounded_up", "shown", "total"]

JsonObject = Mapping[str, Any]
#: Canonical quantities by the name of their resource.
Amounts = dict[str, str]


def plus(one: str, other: str) -> str:
    """Return a sum, spelled like the first amount that is not zero."""
    return _spelled(one, other, sign=1)


def minus(one: str, other: str) -> str:
    """Return a difference, spelled like the first amount that is not zero."""
    return _spelled(one, other, sign=-1)


def _spelled(one: str, other: str, *, sign: int) -> str:
    first = quantity_value(one)
    number = first + sign * quantity_value(other)
    binary = (one if first else other).endswith("i")
    return _text(number, binary=binary)


def _text(number: Decimal, *, binary: bool) -> str:
    # Go takes some texts with trailing zeros for canonical: it must not see any.
    shortest = (number / 1024 if binary else number).normalize()
    return canonical_quantity(f"{shortest:f}Ki" if binary else f"{shortest:f}")


def rounded_up(amount: str) -> str:
    """Return an amount as a whole number."""
    number = quantity_value(amount)
    whole = number.to_integral_value(ROUND_CEILING)
    return amount if whole == number else _text(whole, binary=False)


def total(many: Iterable[Amounts]) -> Amounts:
    """Return the sum of several amounts, resource by resource."""
    result: Amounts = {}
    for amounts in many:
        for name, amount in amounts.items():
            result[name] = plus(result[name], amount) if name in result else amount
    return result


def shown(amounts: Amounts) -> str:
    """Show amounts in one line, sorted."""
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))


_POD_LEVEL = ("cpu", "memory")


def pod_total(spec: JsonObject, part: str) -> Amounts:
    """Return what a pod asks for in all: `part` is `requests` or `limits`.

    The larger of what its containers need together and of what any moment of its start needs; sidecars
    (init containers that are always restarted) count for both.
    """
    running = total(_amounts(one, part) for one in spec.get("containers") or ())
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, part)
        needed = total((own, sidecars))
        if container.get("restartPolicy") == "Always":
            running, sidecars = total((running, own)), needed
        starting = _largest(starting, needed)
    of_pod = _amounts(spec, part)
    levels = {
        name: amount for name, amount in of_pod.items() if name in _POD_LEVEL or name.startswith("hugepages-")
    }
    return {**_largest(running, starting), **levels}


def _amounts(container: JsonObject, part: str) -> Amounts:
    return dict((container.get("resources") or {}).get(part) or {})


def _largest(one: Amounts, other: Amounts) -> Amounts:
    result = dict(one)
    for name, amount in other.items():
        if name not in result or quantity_value(amount) > quantity_value(result[name]):
            result[name] = amount
    return result
