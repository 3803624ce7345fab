"""The tutorial's MySQLCluster, ``example.com/v1``: `size` and `image` alone, served by the same operator.

It has every field of the operator's own kind, so that a cluster that began with two of them can be given more. The short
name ``mc`` is that of the operator's own kind alone: kubectl would take the first group of two.
"""

from __future__ import annotations

from typing import ClassVar

from mooring.kube.object import Resource
from mooring.operators.mysql import types
from mooring.operators.mysql.types import COLUMNS, NAME_RULES, SCALE
from mooring.runtime.crd import crd

__all__ = ["MySQLCluster"]


@crd(columns=COLUMNS, scale=SCALE, rules=NAME_RULES)
class MySQLCluster(types.MySQLCluster, frozen=True, kw_only=True):
    """MySQL or MariaDB servers, one of which leads."""

    resource: ClassVar[Resource] = Resource("example.com", "v1", "MySQLCluster", "mysqlclusters", True)
