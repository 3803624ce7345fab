"""Scopes: which objects a process manages, and when it takes over those of a namespaced operator that ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from mooring.cache import Informer
from mooring.kube.object import Key, Object, key_of
from mooring.kube.objects import coordination
from mooring.kube.objects.coordination import Lease
from mooring.runtime import Manager

__all__ = ["SCOPES", "SCOPE_ANNOTATION", "Scoped", "lease_name", "managed", "yields"]

SCOPES: Final = ("all", "cluster", "namespaced")
SCOPE_ANNOTATION: Final = "mooring.dev/scope"
"""``cluster-scoped`` marks an object for operators of scope ``cluster``; an operator of a kind taken over may have another."""
TAKE_UP_PERIOD: Final = 2.0
"""Seconds between two checks whether a namespaced operator has ended."""


class Scoped:
    """The scope of one operator; ``all`` leaves a namespace to a namespaced operator that runs there."""

    def __init__(
        self,
        manager: Manager,
        kind: type[Object],
        *,
        operator: str,
        scope: str,
        annotation: str = SCOPE_ANNOTATION,
    ) -> None:
        self._manager = manager
        self._kind = kind
        self._operator = operator
        self._scope = scope
        self._annotation = annotation
        self._lease = lease_name(operator, "namespaced")
        self._left: set[str] = set()
        self._some_left = asyncio.Event()
        self._leases: Informer[coordination.Lease] | None = None
        if scope == "all":
            self._leases = manager.informers.of(
                coordination.Lease, field_selector=f"metadata.name={self._lease}"
            )

    def manages(self, obj: Object) -> bool:
        """Whether this process manages the object."""
        return managed(obj, scope=self._scope, annotation=self._annotation, yielded=self._yielded)

    def _yielded(self, namespace: str) -> bool:
        """Whether a namespaced operator runs there."""
        if self._leases is None:
            return False
        lease = self._leases.get(Key(namespace, self._lease))
        if not yields(lease, self._manager.clock.now()):
            return False
        self._left.add(namespace)
        self._some_left.set()
        return True

    def serve(self) -> None:
        """Have the manager run `take_up` where the scope needs it; call this once the controller was added."""
        if self._scope != "all":
            return
        controller = next(one for one in self._manager.controllers if one.name == self._operator)
        self._manager.serve(f"{self._operator} scopes", lambda: self.take_up(controller.enqueue))

    async def take_up(self, wake: Callable[[Key], None]) -> None:
        """Reconcile what was left to namespaced operators once they ended: no watch reports that a Lease expired."""
        while True:
            await self._some_left.wait()
            for namespace in sorted(self._left):
                if not self._yielded(namespace):
                    self._left.discard(namespace)
                    for one in self._manager.client.list(self._kind, namespace=namespace):
                        wake(key_of(one))
            if not self._left:
                self._some_left.clear()
            await self._manager.clock.sleep(TAKE_UP_PERIOD)


def lease_name(operator: str, scope: str) -> str:
    """The name of the Lease of an operator and scope."""
    return f"mooring-{operator}-{scope}"


def managed(obj: Object, *, scope: str, annotation: str, yielded: Callable[[str], bool]) -> bool:
    """Whether a process of ``scope`` manages ``obj``; ``yielded`` says where a namespaced operator runs."""
    wide = (obj.metadata.annotations or {}).get(annotation) == "cluster-scoped"
    if scope == "cluster":
        return wide
    if scope == "namespaced":
        return not wide
    return wide or not yielded(obj.metadata.namespace or "")


def yields(lease: Lease | None, now: datetime) -> bool:
    """Whether a Lease is held and was renewed within its duration."""
    spec = lease.spec if lease else None
    if spec is None or not spec.holder_identity or not spec.renew_time:
        return False
    renewed = datetime.fromisoformat(spec.renew_time)
    return now - renewed < timedelta(seconds=spec.lease_duration_seconds or 15)
