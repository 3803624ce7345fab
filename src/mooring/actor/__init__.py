"""Observe -> one Action -> observe again: how every operator here is written.

An operator subclasses :class:`Actor`, declares what it owns and watches, and returns values from
``observe``: in sync, act, wait, terminal. Guarantees: one pass per object at a time; no write while
observing; the status written at most once per pass and only when it differs; a failure stays with its object.
"""

from mooring.actor.actor import Actor, Related, run_actor
from mooring.actor.children import Children, Drift, Foreign
from mooring.actor.conditions import ConditionState
from mooring.actor.context import Context
from mooring.actor.dependencies import Dependency, not_ready
from mooring.actor.drift import APPLIED, differs, digest
from mooring.actor.guard import Effect, ObserveWrote, OnEffect, ReadOnlyWhileObserving
from mooring.actor.outcome import Act, InSync, Outcome, Terminal, Wait
from mooring.actor.planned import Note, Planned, Report, StepFailed
from mooring.actor.repeats import STEP_REPEATS
from mooring.actor.verdict import Move, Verdict

__all__ = [
    "APPLIED",
    "STEP_REPEATS",
    "Act",
    "Actor",
    "Children",
    "ConditionState",
    "Context",
    "Dependency",
    "Drift",
    "Effect",
    "Foreign",
    "InSync",
    "Move",
    "Note",
    "ObserveWrote",
    "OnEffect",
    "Outcome",
    "Planned",
    "ReadOnlyWhileObserving",
    "Related",
    "Report",
    "StepFailed",
    "Terminal",
    "Verdict",
    "Wait",
    "differs",
    "digest",
    "not_ready",
    "run_actor",
]
