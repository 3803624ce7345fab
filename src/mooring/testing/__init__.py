"""Tools for testing operators, Mooring's and yours; docs/testing.md shows them at work.

`ControlPlane` is a control plane inside a test, in memory and in virtual time. `Faults` carries a `Plan` of faults
out between an operator and it. `run_campaign` derives every plan for a `Workload` and runs them all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mooring.testing.campaign import Failure, Result, plans, replay, run_campaign
    from mooring.testing.changes import Change
    from mooring.testing.clock import VirtualClock
    from mooring.testing.edits import Edit, Report, edits_of, explore
    from mooring.testing.errors import NotInTime
    from mooring.testing.faults import Fault, Faults, Plan
    from mooring.testing.monitors import kept, owned
    from mooring.testing.oracles import Reference, learn
    from mooring.testing.plane import ControlPlane
    from mooring.testing.pods import AlwaysReady, PodModel, SimulatedPods
    from mooring.testing.rig import Rig
    from mooring.testing.timeline import Timeline
    from mooring.testing.workload import Trace, Workload, play

__all__ = [
    "AlwaysReady",
    "Change",
    "ControlPlane",
    "Edit",
    "Failure",
    "Fault",
    "Faults",
    "NotInTime",
    "Plan",
    "PodModel",
    "Reference",
    "Report",
    "Result",
    "Rig",
    "SimulatedPods",
    "Timeline",
    "Trace",
    "VirtualClock",
    "Workload",
    "edits_of",
    "explore",
    "kept",
    "learn",
    "owned",
    "plans",
    "play",
    "replay",
    "run_campaign",
]

#: Where each name is. They are imported when first used: `mooring ledger` needs no API server.
_HOMES = {
    "campaign": ("Failure", "Result", "plans", "replay", "run_campaign"),
    "changes": ("Change",),
    "clock": ("VirtualClock",),
    "edits": ("Edit", "Report", "edits_of", "explore"),
    "errors": ("NotInTime",),
    "faults": ("Fault", "Faults", "Plan"),
    "monitors": ("kept", "owned"),
    "oracles": ("Reference", "learn"),
    "plane": ("ControlPlane",),
    "pods": ("AlwaysReady", "PodModel", "SimulatedPods"),
    "rig": ("Rig",),
    "timeline": ("Timeline",),
    "workload": ("Trace", "Workload", "play"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
