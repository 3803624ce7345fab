"""Keeps the EndpointSlices and Endpoints of every Service in step with its pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mooring.cache.store import Transition
from mooring.kube.errors import AlreadyExists, ApiError, NotFound
from mooring.kube.object import Key
from mooring.kube.objects.core import Endpoints, Node, Pod, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.kube.patches import MergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.endpoints.plan import (
    LEGACY_MANAGED_BY,
    MANAGED_BY,
    MANAGER,
    SERVICE_NAME,
    endpoints_of,
    selects,
    slices_of,
    wanted,
)
from mooring.local.controllers.endpoints.writing import labels_patch, write_slices
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.pods import condition_of
from mooring.local.controllers.refusals import namespace_is_going
from mooring.local.controllers.selection import filed_labels, selected_by, selecting
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["EndpointsController"]

ZONE = "topology.kubernetes.io/zone"


class EndpointsController:
    """Reconciles Services."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("endpoint-slice-controller")
        informers = context.informers
        self._services = informers.of(Service)
        self._pods = informers.of(Pod)
        self._slices = informers.of(EndpointSlice)
        self._endpoints = informers.of(Endpoints)
        self._nodes = informers.of(Node)
        context.index(self._services, "selects", _filed)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("endpoints", self.reconcile)
        made.watch(self._services)
        made.watch(self._pods, map=self._pod_to_services, predicate=_reaches_differently)
        made.watch(self._slices, map=_slice_to_service)
        made.watch(self._endpoints, map=self._endpoints_to_service)
        made.watch(self._nodes, map=self._node_to_services, predicate=_zone_changed)
        return made

    def _pod_to_services(self, pod: Pod) -> Iterable[Key]:
        namespace = pod.metadata.namespace or ""
        for service in selecting(self._services, namespace, pod.metadata.labels):
            if selects(service, pod.metadata.labels):
                yield Key(namespace, service.metadata.name or "")

    def _endpoints_to_service(self, endpoints: Endpoints) -> Iterable[Key]:
        if LEGACY_MANAGED_BY in (endpoints.metadata.labels or {}):
            yield Key(endpoints.metadata.namespace or "", endpoints.metadata.name or "")

    def _node_to_services(self, node: Node) -> Iterable[Key]:
        for service in self._services.list():
            if wanted(service):
                yield Key(service.metadata.namespace or "", service.metadata.name or "")

    def _zone(self, node: str) -> str | None:
        found = self._nodes.peek(Key("", node))
        return None if found is None else (found.metadata.labels or {}).get(ZONE, "")

    async def reconcile(self, key: Key) -> Result:
        """One pass over a Service."""
        service = self._services.get(key)
        if service is None:
            await self._drop_endpoints(key)
            return Done()
        if service.metadata.deletion_timestamp or not wanted(service):
            return Done()
        found = selected_by(self._pods, key.namespace, service.spec.selector if service.spec else None)
        pods = [pod for pod in found if selects(service, pod.metadata.labels)]
        try:
            await self._write_slices(service, pods)
            await self._write_endpoints(service, pods)
        except ApiError as error:
            if not namespace_is_going(error):
                self._tell(service, error)
                raise
        return Done()

    def _tell(self, service: Service, error: ApiError) -> None:
        name = f"{service.metadata.namespace}/{service.metadata.name}"
        message = f"Error updating Endpoint Slices for Service {name}: {error}"
        self._events.warning(service, "FailedToUpdateEndpointSlices", message)

    async def _write_slices(self, service: Service, pods: list[Pod]) -> None:
        name = service.metadata.name or ""
        present = [
            each
            for each in self._slices.by_index(f"label:{SERVICE_NAME}", name)
            if each.metadata.namespace == service.metadata.namespace
            and (each.metadata.labels or {}).get(MANAGED_BY) == MANAGER
            and each.metadata.deletion_timestamp is None
        ]
        plan = slices_of(service, pods, present, zones=self._zone)
        await write_slices(self._client, plan)

    async def _write_endpoints(self, service: Service, pods: list[Pod]) -> None:
        new = endpoints_of(service, pods)
        key = Key(service.metadata.namespace or "", service.metadata.name or "")
        old = self._endpoints.get(key)
        if old is None:
            try:
                await self._client.create(new)
            except AlreadyExists:
                await self._client.refresh(Endpoints, key.name, namespace=key.namespace)
            return
        if (old.subsets or []) == (new.subsets or []) and old.metadata.labels == new.metadata.labels:
            return
        body = labels_patch(old.metadata.labels, new.metadata.labels, metadata_patch(old).body)
        body["subsets"] = [msgspec.to_builtins(subset) for subset in new.subsets or ()] or None
        if new.metadata.annotations:
            body["metadata"]["annotations"] = new.metadata.annotations
        await self._patch(Endpoints, key.name, key.namespace, body)

    async def _patch(
        self, kind: type[Any], name: str | None, namespace: str | None, body: dict[str, Any]
    ) -> None:
        await self._client.patch(kind, name or "", MergePatch(body), namespace=namespace or "")

    async def _drop_endpoints(self, key: Key) -> None:
        """Endpoints have no owner: they go here. The slices are the garbage collector's."""
        old = self._endpoints.get(key)
        if old is not None and LEGACY_MANAGED_BY in (old.metadata.labels or {}):
            try:
                await self._client.delete(Endpoints, key.name, namespace=key.namespace, uid=old.metadata.uid)
            except NotFound:
                return


def _filed(service: Service) -> Iterable[str]:
    return (
        filed_labels(service.metadata.namespace, service.spec.selector)
        if wanted(service) and service.spec
        else ()
    )


def _slice_to_service(each: EndpointSlice) -> Iterable[Key]:
    labels = each.metadata.labels or {}
    if labels.get(MANAGED_BY) == MANAGER and SERVICE_NAME in labels:
        yield Key(each.metadata.namespace or "", labels[SERVICE_NAME])


def _reaches_differently(change: Transition[Pod]) -> bool:
    """Something changed that an endpoint shows."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return _face(old) != _face(new)


def _face(pod: Pod) -> tuple[object, ...]:
    status, spec, meta = pod.status, pod.spec, pod.metadata
    ready = condition_of(pod, "Ready")
    return (
        meta.uid,
        meta.labels,
        meta.deletion_timestamp,
        (status.phase, status.pod_ip, status.pod_ips) if status else None,
        ready.status if ready else None,
        (spec.node_name, spec.hostname, spec.subdomain) if spec else None,
    )


def _zone_changed(change: Transition[Node]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (old.metadata.labels or {}).get(ZONE) != (new.metadata.labels or {}).get(ZONE)
