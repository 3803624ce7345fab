"""Clusters of upstream's operator are left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.operators.matrixone.test_buckets import declare, eventually, operating, runs, stalled

from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import Pod
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.operators.matrixone.takeover import LEASE, left_alone

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def lease(renewed: datetime) -> Lease:
    spec = LeaseSpec(
        holder_identity="upstream-0",
        renew_time=renewed.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        lease_duration_seconds=15,
    )
    return Lease(metadata=ObjectMeta(name=LEASE, namespace="default"), spec=spec)


def pod(api_version: str, kind: str) -> Pod:
    owner = OwnerReference(api_version=api_version, kind=kind, name="mo-log", uid="u", controller=True)
    return Pod(metadata=ObjectMeta(name="mo-log-0", namespace="default", owner_references=[owner]))


def test_a_live_lease_of_upstreams_operator_stops_everything_and_an_old_one_nothing() -> None:
    held = left_alone([lease(NOW - timedelta(seconds=5))], [], now=NOW)
    assert held is not None
    assert (held.reason, held.stalled) == ("LegacyOperatorRunning", True)
    assert left_alone([lease(NOW - timedelta(seconds=60))], [], now=NOW) is None


def test_pods_of_openkruise_are_not_touched() -> None:
    held = left_alone([], [pod("apps.kruise.io/v1beta1", "StatefulSet")], now=NOW)
    assert held is not None
    assert held.reason == "NotAdopted"
    assert left_alone([], [pod("apps/v1", "StatefulSet")], now=NOW) is None


async def test_nothing_is_made_while_upstreams_operator_runs() -> None:
    async with operating() as client:
        await client.create(lease(datetime.now(UTC)))
        await declare(client, "mo")
        assert "upstream's operator runs" in await eventually(lambda: stalled(client, "mo", "default"))
        assert not await runs(client, "mo")
