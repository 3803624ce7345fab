"""Endpoints and EndpointSlices of Services with a selector."""

from mooring.local.controllers.endpoints.controller import EndpointsController

__all__ = ["EndpointsController"]
