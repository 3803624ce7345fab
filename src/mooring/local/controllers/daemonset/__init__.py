"""DaemonSets: one pod of a template on every node that fits."""

from mooring.local.controllers.daemonset.controller import DaemonSetController

__all__ = ["DaemonSetController"]
