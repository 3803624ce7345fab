"""The operators there are, by the name they have everywhere: ``--operators``, Leases, metrics, events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mooring.kube.object import Object
from mooring.operators.redis import cluster, sentinel
from mooring.runtime.webhooks import Webhook

__all__ = ["OPERATORS", "Operator", "choose"]


def _no_webhooks(*_: object, **__: object) -> Sequence[Webhook[Any]]:
    return ()


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: the kinds it serves, and how it is put onto a manager.

    ``register(manager, scope=..., namespaces=..., workers=...)`` adds its controllers; see
    :mod:`mooring.operators.scope` for what a scope means. ``webhooks(client, clock=..., scope=...,
    namespaces=...)`` gives its admission webhooks for that scope. One that is not ``default`` runs only where it
    is named.
    """

    name: str
    kinds: tuple[type[Object], ...]
    register: Callable[..., None] = field(repr=False)
    webhooks: Callable[..., Sequence[Webhook[Any]]] = field(repr=False, default=_no_webhooks)
    default: bool = True


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator("redis-sentinel", sentinel.KINDS, sentinel.register, webhooks=sentinel.webhooks),
        Operator("redis-cluster", cluster.KINDS, cluster.register, webhooks=cluster.webhooks, default=False),
    )
}


def choose(names: str) -> list[Operator]:
    """The operators of a ``--operators`` value: ``*`` (those that run by default), ``none``, or names joined by commas.

    Raises :class:`ValueError` naming the one that does not exist.
    """
    if names in ("*", "all", ""):
        return [operator for operator in OPERATORS.values() if operator.default]
    if names == "none":
        return []
    chosen = []
    for name in (part.strip() for part in names.split(",")):
        if name not in OPERATORS:
            raise ValueError(
                f"--operators: there is no {name!r}; known are {', '.join(OPERATORS)}, * and none"
            )
        chosen.append(OPERATORS[name])
    return chosen
