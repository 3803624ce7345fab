"""The operators there are, by the name they have everywhere: ``--operators``, Leases, metrics, events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from mooring.kube.object import Object
from mooring.operators.redis import cluster, sentinel
from mooring.runtime.webhooks import Webhook

__all__ = ["ALIASES", "OPERATORS", "Operator", "choose"]


def _no_webhooks(*_: object, **__: object) -> Sequence[Webhook[Any]]:
    return ()


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: the kinds it serves, and how it is put onto a manager.

    ``register(manager, scope=..., namespaces=..., workers=...)`` adds its controllers; see
    :mod:`mooring.operators.workload.scope` for what a scope means. ``webhooks(client, clock=..., scope=...,
    namespaces=...)`` gives its admission webhooks for that scope.
    """

    name: str
    kinds: tuple[type[Object], ...]
    register: Callable[..., None] = field(repr=False)
    webhooks: Callable[..., Sequence[Webhook[Any]]] = field(repr=False, default=_no_webhooks)


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator("redis-sentinel", sentinel.KINDS, sentinel.register, webhooks=sentinel.webhooks),
        Operator("redis-cluster", cluster.KINDS, cluster.register, webhooks=cluster.webhooks),
    )
}


ALIASES: Final = {"redisCluster": "redis-cluster"}
"""Names that HarmonyCloud's operator-manager had."""


def choose(names: str, *, options: Mapping[str, Mapping[str, Any]] | None = None) -> list[Operator]:
    """The operators of a ``--operators`` value: ``none``, or names joined by commas.

    ``*`` among them stands for all, ``-NAME`` takes one out; of several words on one operator the first counts.
    ``options`` has further words for the ``register`` of an operator, by its name.
    Raises :class:`ValueError` naming the one that does not exist.
    """
    if names == "none":
        return []
    said: dict[str, bool] = {}
    everything = False
    for word in (part.strip() for part in names.split(",")):
        name = word.removeprefix("-")
        name = name if name in OPERATORS else ALIASES.get(name, name)
        if word in ("*", "all", ""):
            everything = True
        elif name in OPERATORS:
            said.setdefault(name, not word.startswith("-"))
        else:
            known = f"{', '.join(OPERATORS)}, * and none"
            raise ValueError(f"--operators: there is no {word!r}; known are {known}")
    chosen = [one for name, one in OPERATORS.items() if said.get(name, everything)]
    more = options or {}
    return [replace(one, register=partial(one.register, **more.get(one.name, {}))) for one in chosen]
