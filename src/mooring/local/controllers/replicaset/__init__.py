"""ReplicaSets: so many pods of a template, any of them as good as another."""

from mooring.local.controllers.replicaset.controller import ReplicaSetController

__all__ = ["ReplicaSetController"]
