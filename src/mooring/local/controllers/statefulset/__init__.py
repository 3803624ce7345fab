"""StatefulSets: pods with names, places and volumes of their own, made and changed in order."""

from mooring.local.controllers.statefulset.controller import StatefulSetController

__all__ = ["StatefulSetController"]
