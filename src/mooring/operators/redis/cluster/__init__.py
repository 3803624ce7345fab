"""HarmonyCloud's RedisCluster: Redis Cluster with slots that are moved safely, and a scale-in that drains first.

Read `plan` first, then `scale` and `roll`: they hold every rule. `topology` says what is seen, `steps` and `mover` what is
done, `specs` what is declared, `actor` puts them together.
"""

from mooring.kube.object import Object
from mooring.operators.redis.cluster.actor import register
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.redis.cluster.webhook import webhooks

__all__ = ["KINDS", "RedisCluster", "register", "webhooks"]

KINDS: tuple[type[Object], ...] = (RedisCluster,)
