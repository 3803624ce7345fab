"""The garbage collector: objects go when the last of their owners has gone."""

from mooring.local.controllers.collector.controller import GarbageCollector

__all__ = ["GarbageCollector"]
