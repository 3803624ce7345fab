"""ReplicaSets, and ReplicationControllers, which are the same to everyone but their clients."""

from mooring.local.controllers.replicaset.controller import ReplicaSetController
from mooring.local.controllers.replicaset.family import REPLICATION, SETS, Family

__all__ = ["REPLICATION", "SETS", "Family", "ReplicaSetController"]
