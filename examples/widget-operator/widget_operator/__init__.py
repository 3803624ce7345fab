"""The Widget operator; ``OPERATOR`` says what it offers."""

from mooring.operators.operator import Operator

from widget_operator.actor import register
from widget_operator.types import Widget

__all__ = ["OPERATOR", "Widget", "register"]

OPERATOR = Operator("widget", (Widget,), register)
