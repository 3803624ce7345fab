"""The operators there are. A new one is one more entry of `OPERATORS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mooring.kube.object import Object
from mooring.operators.mysql import OPERATOR as MYSQL
from mooring.operators.operator import Operator
from mooring.operators.redis.cluster import OPERATOR as REDIS_CLUSTER
from mooring.operators.redis.sentinel import OPERATOR as REDIS_SENTINEL

__all__ = ["OPERATORS", "Operator", "choose", "operator_of"]

OPERATORS: Final[dict[str, Operator]] = {
    operator.name: operator
    for operator in (
        REDIS_SENTINEL,
        REDIS_CLUSTER,
        MYSQL,
    )
}
"""By name; the order is that of the help and of messages."""


def operator_of(kind: type[Object]) -> Operator:
    """The operator of a kind; raises `StopIteration` for a kind of none."""
    return next(one for one in OPERATORS.values() if kind in one.kinds)


def choose(names: str, *, options: Mapping[str, Mapping[str, Any]] | None = None) -> list[Operator]:
    """The operators of a ``--operators`` value: ``none``, or names joined by commas.

    ``*`` among them stands for all, ``-NAME`` takes one out; of several words on one operator the first counts.
    ``options`` has further arguments of `Operator.register`, by the operator's name.
    Raises :class:`ValueError` naming the one that does not exist.
    """
    if names == "none":
        return []
    aliases = {alias: one.name for one in OPERATORS.values() for alias in one.aliases}
    wanted: dict[str, bool] = {}
    everything = False
    for word in (part.strip() for part in names.split(",")):
        name = word.removeprefix("-")
        name = name if name in OPERATORS else aliases.get(name, name)
        if word in ("*", "all", ""):
            everything = True
        elif name in OPERATORS:
            wanted.setdefault(name, not word.startswith("-"))
        else:
            known = f"{', '.join(OPERATORS)}, * and none"
            raise ValueError(f"--operators: there is no {word!r}; known are {known}")
    chosen = [one for name, one in OPERATORS.items() if wanted.get(name, everything)]
    more = options or {}
    return [replace(one, register=partial(one.register, **more.get(one.name, {}))) for one in chosen]
