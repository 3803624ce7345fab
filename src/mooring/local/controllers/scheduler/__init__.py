"""The scheduler: filters and scores nodes, binds pods, says why one has to wait."""

from mooring.local.controllers.scheduler.controller import Scheduler

__all__ = ["Scheduler"]
