"""Memcached servers: a small operator, written from `mooring.actor.Planned` and `mooring.operators.workload` alone."""

from memcached_operator.actor import register
from memcached_operator.status import explain
from memcached_operator.types import Memcached
from mooring.operators.operator import Operator

__all__ = ["OPERATOR", "Memcached", "register"]

OPERATOR = Operator("memcached", (Memcached,), register, explain=explain)
