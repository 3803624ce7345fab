"""HorizontalPodAutoscalers: as many replicas as what the pods use asks for."""

from mooring.local.controllers.autoscaler.controller import PERIOD, AutoscalerController

__all__ = ["PERIOD", "AutoscalerController"]
