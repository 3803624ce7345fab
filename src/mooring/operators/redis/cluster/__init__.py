"""HarmonyCloud's RedisCluster: Redis Cluster with slots that are moved safely, and a scale-in that drains first.

Read `plan` first, then `scale` and `roll`: they hold every rule. `topology` says what is seen, `steps` and `mover` what is
done, `specs` what is declared, `actor` puts them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mooring.kube.object import Object
from mooring.operators.redis.cluster.types import RedisCluster

if TYPE_CHECKING:
    from mooring.kube.client import Client
    from mooring.runtime import Clock, Manager
    from mooring.runtime.webhooks import Webhook

__all__ = ["KINDS", "RedisCluster", "register", "webhooks"]

KINDS: tuple[type[Object], ...] = (RedisCluster,)


# What serves it is loaded where it runs, and costs other starts nothing.


def register(
    manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = (), workers: int = 8, **how: float
) -> None:
    """Put the operator onto a manager; see `actor`, for further words too."""
    from mooring.operators.redis.cluster import actor

    actor.register(manager, scope=scope, namespaces=namespaces, workers=workers, **how)


def webhooks(
    client: Client, *, clock: Clock, scope: str = "all", namespaces: Sequence[str] = ()
) -> list[Webhook[RedisCluster]]:
    """The webhooks of the operator; see `webhook`."""
    from mooring.operators.redis.cluster import webhook

    return webhook.webhooks(client, clock=clock, scope=scope, namespaces=namespaces)
