"""Presence Leases: a namespaced operator announces itself in every namespace it works in.

It elects its leader by one Lease, in the first of its namespaces. An operator of all namespaces leaves objects alone in a
namespace with such a Lease, so the leader keeps a presence Lease in each of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from mooring.cache import Clock
from mooring.kube import Client, KubeError
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import FenceLost, rfc3339

__all__ = ["Presence"]

log = structlog.get_logger("mooring.operators")

RENEW_SECONDS: Final = 5.0
LEASE_SECONDS: Final = 15
#: Seconds at the end for giving the Leases back; without that they expire.
END_SECONDS: Final = 2.0


class Presence:
    """Presence Leases, one per namespace. They announce this process; they elect no leader."""

    def __init__(
        self, client: Client, name: str, namespaces: Sequence[str], *, identity: str, clock: Clock
    ) -> None:
        self._client = client
        self._name = name
        self._namespaces = tuple(namespaces)
        self._identity = identity
        self._clock = clock
        self._trouble: dict[str, str] = {}

    async def run(self) -> None:
        """Renew them until cancelled, then give them back."""
        try:
            while True:
                await self._show(self._identity)
                await self._clock.sleep(RENEW_SECONDS)
        finally:
            async with self._clock.deadline(END_SECONDS):
                await self._show("")

    async def _show(self, holder: str) -> None:
        for namespace in self._namespaces:
            try:
                await self._client.apply(self._lease(namespace, holder))
            except (KubeError, FenceLost) as error:
                self._report(namespace, str(error))
            else:
                self._trouble.pop(namespace, None)

    def _lease(self, namespace: str, holder: str) -> Lease:
        now = rfc3339(self._clock.now(), micro=True)
        return Lease(
            metadata=ObjectMeta(name=self._name, namespace=namespace),
            spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=LEASE_SECONDS, renew_time=now),
        )

    def _report(self, namespace: str, trouble: str) -> None:
        if self._trouble.get(namespace) != trouble:
            self._trouble[namespace] = trouble
            log.warning("cannot show that this operator works here", namespace=namespace, error=trouble)
