"""UCloud's RedisCluster: a master, replicas and sentinels, and an operator that does not lose its data.

Read `plan` first: it holds every rule. `topology` says what is seen, `steps` what is done, `specs` what is
declared, `actor` puts them together.
"""

from mooring.kube.object import Object
from mooring.operators.redis.sentinel.actor import register
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.redis.sentinel.webhook import webhooks

__all__ = ["KINDS", "RedisCluster", "register", "webhooks"]

KINDS: tuple[type[Object], ...] = (RedisCluster,)
