"""Endpoints and EndpointSlices: those of Services with a selector, and slices of what is written by hand."""

from mooring.local.controllers.endpoints.controller import EndpointsController
from mooring.local.controllers.endpoints.mirroring import EndpointsMirror

__all__ = ["EndpointsController", "EndpointsMirror"]
