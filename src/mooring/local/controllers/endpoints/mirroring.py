"""Keeps EndpointSlices in step with Endpoints that somebody wrote by hand."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.kube.errors import ApiError, NotFound
from mooring.kube.object import Key
from mooring.kube.objects.core import Endpoints, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.local.controllers.context import Context
from mooring.local.controllers.endpoints.mirror import MIRROR, mirrored, mirrors_of
from mooring.local.controllers.endpoints.plan import MANAGED_BY, SERVICE_NAME
from mooring.local.controllers.endpoints.writing import write_slices
from mooring.local.controllers.refusals import namespace_is_going
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["EndpointsMirror"]


class EndpointsMirror:
    """Reconciles Endpoints of Services without a selector."""

    def __init__(self, context: Context) -> None:
        informers = context.informers
        self._client = context.client
        self._services = informers.of(Service)
        self._endpoints = informers.of(Endpoints)
        self._slices = informers.of(EndpointSlice)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("endpointslicemirroring", self.reconcile)
        made.watch(self._endpoints)
        made.watch(self._services)
        made.watch(self._slices, map=_mirror_to_endpoints)
        return made

    async def reconcile(self, key: Key) -> Result:
        """One pass over Endpoints."""
        endpoints = self._endpoints.get(key)
        if endpoints is not None and not mirrored(endpoints, self._services.get(key)):
            endpoints = None
        present = [
            each
            for each in self._slices.by_index(f"label:{SERVICE_NAME}", key.name)
            if each.metadata.namespace == key.namespace
            and (each.metadata.labels or {}).get(MANAGED_BY) == MIRROR
            and each.metadata.deletion_timestamp is None
        ]
        try:
            await write_slices(self._client, mirrors_of(endpoints, present))
        except NotFound:
            return Done()  # the collector was faster
        except ApiError as error:
            if not namespace_is_going(error):
                raise
        return Done()


def _mirror_to_endpoints(each: EndpointSlice) -> Iterable[Key]:
    labels = each.metadata.labels or {}
    if labels.get(MANAGED_BY) == MIRROR and SERVICE_NAME in labels:
        yield Key(each.metadata.namespace or "", labels[SERVICE_NAME])
