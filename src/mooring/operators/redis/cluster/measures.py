"""What load, balance and the report of keys are decided from: measured in passes of this process, forgotten with it."""

from __future__ import annotations

from dataclasses import replace

from mooring.kube.client import Client
from mooring.kube.object import Key, key_of
from mooring.operators.redis.cluster.bigkeys import PUBLISH, KeySurvey
from mooring.operators.redis.cluster.inputs import Inputs
from mooring.operators.redis.cluster.sizes import SlotSizes
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.dial import Dial
from mooring.operators.workload.autoscale import METRICS_PERIOD, period_of
from mooring.operators.workload.ownership import SizeOwners
from mooring.operators.workload.rates import Rates

__all__ = ["PUBLISH", "Measures"]


class Measures:
    """The measurements of every cluster that asks for them; others cost nothing.

    ``look_again`` and ``publish`` are seconds: between two passes at rest, and between two reports of keys.
    """

    def __init__(self, client: Client, *, look_again: float, publish: float = PUBLISH) -> None:
        period = min(METRICS_PERIOD, look_again)
        self._rates, self._owners = Rates(), SizeOwners(client, "replicas")
        self._sizes, self._survey = SlotSizes(period=period), KeySurvey(period=period, publish=publish)

    async def added(self, inputs: Inputs, found: Snapshot, dial: Dial) -> Snapshot:
        """The snapshot with what is measured in this pass."""
        key, password = key_of(inputs.cluster), inputs.found.kept.password
        if (scaling := found.wanted.scaling) is None:
            self._rates.forget(key)
        else:
            loads = {one.name: one.server.load for one in found.owners}
            counters = {name: (load.process, load.commands) for name, load in loads.items() if load}
            rates = self._rates.of(key, counters, period=period_of(scaling.policy))
            found = replace(found, rates=rates, size_owner=await self._owners.of(inputs.cluster))
        sizes = await self._sizes.look(key, found, dial, password=password)
        asked, before = inputs.spec.key_report, inputs.status.keys
        keys = await self._survey.look(key, found, asked, before, dial=dial, password=password)
        return replace(found, sizes=sizes, keys=keys)

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        for one in (self._rates, self._owners, self._sizes, self._survey):
            one.forget(key)
