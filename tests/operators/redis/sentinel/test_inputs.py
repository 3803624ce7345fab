"""What a declaration and the objects around it come to, before any server is asked."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from msgspec.structs import replace

from mooring.actor import Terminal, Wait
from mooring.kube.object import Object
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.backup.types import RestoreStatus
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.sentinel.inputs import Inputs, read_inputs, read_snapshot
from mooring.operators.redis.sentinel.lineage import Lineage, Standing
from mooring.operators.redis.sentinel.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    RedisStorage,
    SentinelSettings,
    SentinelTls,
)
from mooring.operators.redis.tls import TlsProgress
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.surroundings import Surroundings

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claim(name: str | None, uid: str = "") -> core.PersistentVolumeClaim:
    return core.PersistentVolumeClaim(metadata=ObjectMeta(name=name, uid=uid))


def gathered(declared: str | None, *, there: str) -> Inputs | Wait | Terminal:
    """The inputs of a cluster whose set is gone: what it declares now, and the claim with its data."""
    size = core.VolumeResourceRequirements(requests={"storage": "1Gi"})
    spec = core.PersistentVolumeClaimSpec(resources=size)
    storage = RedisStorage(persistent_volume_claim=replace(claim(declared), spec=spec)) if declared else None
    cluster = RedisCluster(
        metadata=ObjectMeta(name="demo", namespace="default"), spec=RedisClusterSpec(size=3, storage=storage)
    )
    master = Standing(pod="redis-cluster-demo-0", volume="the-data")
    status = RedisClusterStatus(lineage=Lineage(master=master, members=(master,)))
    return read_inputs(replace(cluster, status=status), Surroundings([claim(there, "the-data")]), now=NOW)


@pytest.mark.parametrize("declared", [None, "other"])
def test_a_set_is_not_made_anew_beside_the_claims_with_its_data(declared: str | None) -> None:
    refused = gathered(declared, there="data-redis-cluster-demo-0")

    assert isinstance(refused, Wait)
    assert refused.stalled
    assert refused.reason == "StorageChanged"
    assert (
        "spec.storage.persistentVolumeClaim: the data is on the claim data-redis-cluster-demo-0"
        in refused.message
    )
    assert "put it back as it was" in refused.message


def test_a_set_is_made_anew_on_the_claims_with_its_data() -> None:
    assert isinstance(gathered("data", there="data-redis-cluster-demo-0"), Inputs)


async def test_the_first_pod_of_a_restored_cluster_has_data_until_a_master_is_recorded() -> None:
    """Its claim is as new as the cluster, and nothing but the record tells that a Job has filled it."""
    size = core.VolumeResourceRequirements(requests={"storage": "1Gi"})
    spec = core.PersistentVolumeClaimSpec(resources=size)
    storage = RedisStorage(persistent_volume_claim=replace(claim("data"), spec=spec))
    born = "2026-01-01T00:00:00Z"
    made = [replace(claim(f"data-redis-cluster-demo-{at}", f"uid-{at}"), spec=spec) for at in range(3)]
    made = [replace(one, metadata=replace(one.metadata, creation_timestamp=born)) for one in made]

    async def old(status: RedisClusterStatus) -> frozenset[str]:
        cluster = RedisCluster(
            metadata=ObjectMeta(name="demo", namespace="default", creation_timestamp=born),
            spec=RedisClusterSpec(size=3, storage=storage),
            status=status,
        )
        inputs = read_inputs(cluster, Surroundings(made), now=NOW)
        assert isinstance(inputs, Inputs)
        return (await read_snapshot(inputs, Dial(), now=lambda: NOW)).observed.old_claims

    restored = RestoreStatus(phase="Succeeded")
    assert await old(RedisClusterStatus()) == frozenset()
    assert await old(RedisClusterStatus(restore=restored)) == {"redis-cluster-demo-0"}
    master = Standing(pod="redis-cluster-demo-0", volume="uid-0")
    lineage = Lineage(master=master, members=(master,))
    assert await old(RedisClusterStatus(restore=restored, lineage=lineage)) == frozenset()


# --- TLS of a cluster that exists ----------------------------------------------------------------------------


def sealed(*, secret_name: str | None = None, **tls: bool) -> RedisCluster:
    spec = RedisClusterSpec(
        image="redis:7.0",
        sentinel=SentinelSettings(image="redis:7.0"),
        tls=SentinelTls(**tls, secret_name=secret_name) if tls else None,
    )
    return RedisCluster(metadata=ObjectMeta(name="demo", namespace="default"), spec=spec)


def resolved(
    cluster: RedisCluster,
    *,
    around: Sequence[Object] = (),
    progress: TlsProgress | None = None,
    now: datetime = NOW,
) -> Inputs:
    """The inputs among the objects of an earlier declaration."""
    there = replace(cluster, status=RedisClusterStatus(tls=progress))
    inputs = read_inputs(there, Surroundings(around), now=now)
    assert isinstance(inputs, Inputs)
    return inputs


def test_tls_of_a_new_cluster_is_used_from_the_beginning() -> None:
    for plain, ports in ((False, "tls"), (True, "both")):
        found = resolved(sealed(enabled=True, plain_ports=plain)).found
        assert (found.ports, found.open, found.transport) == (ports, ports, "tls")


def test_tls_is_turned_on_over_both_ports_and_the_services_follow_the_pods() -> None:
    before = resolved(sealed()).specs.objects()
    declared = sealed(enabled=True)
    begun = resolved(declared, around=before)
    assert (begun.found.ports, begun.found.open, begun.found.transport) == ("both", "plain", "plain")
    assert begun.blocked is None
    opening = begun.ordered(Orders(templates=frozenset({"redis", "sentinel"}))).objects()
    during = resolved(declared, around=opening, progress=TlsProgress(transport="plain", phase="Opening"))
    assert (during.found.ports, during.found.open, during.found.transport) == ("both", "both", "plain")
    assert during.specs.current("redis")
    moving = resolved(declared, around=opening, progress=TlsProgress(transport="tls", phase="Moving"))
    assert (moving.found.ports, moving.found.transport) == ("both", "tls")
    moved = resolved(declared, around=opening, progress=TlsProgress(transport="tls", phase="Closing"))
    assert (moved.found.ports, moved.found.transport) == ("tls", "tls")
    assert not moved.specs.current("redis")


def test_tls_is_turned_off_with_the_certificates_there_are() -> None:
    before = resolved(sealed(enabled=True)).specs.objects()
    off = resolved(sealed(), around=before, progress=TlsProgress(transport="tls"))
    assert (off.found.ports, off.found.open, off.found.transport) == ("both", "tls", "tls")
    assert off.found.tls is not None
    assert off.found.tls.next is None
    secrets = {one.metadata.name: one.data for one in before if isinstance(one, core.Secret)}
    assert off.found.tls.data == secrets["redis-tls-demo"]
    assert resolved(sealed()).found.tls is None


def test_an_unusable_certificate_opens_no_port() -> None:
    before = resolved(sealed()).specs.objects()
    blocked = resolved(sealed(enabled=True, secret_name="missing"), around=before)
    assert isinstance(blocked.blocked, Wait)
    assert blocked.blocked.reason == "CertificateUnusable"
    assert (blocked.found.ports, blocked.found.transport, blocked.wanted.roll) == ("plain", "plain", False)


def test_certificates_that_ended_while_tls_was_off_are_not_shown_when_it_is_turned_on_again() -> None:
    early = NOW - timedelta(days=200)
    before = resolved(sealed(enabled=True), now=early).specs.objects()
    kept = [one for one in before if isinstance(one, core.Secret)]
    around = [*kept, *(one for one in resolved(sealed()).specs.objects() if not isinstance(one, core.Secret))]
    again = resolved(sealed(enabled=True), around=around)
    assert (again.found.ports, again.found.transport) == ("both", "plain")
    held = again.found.tls
    assert held is not None
    assert held.next is None
    leaf = x509.load_pem_x509_certificate(base64.b64decode(held.data["tls.crt"]))
    assert leaf.not_valid_after_utc > NOW
    first = resolved(sealed(enabled=True), around=kept, now=early).found.tls
    assert first is not None
    assert held.data["ca.crt"] == first.data["ca.crt"], "clients trust the same authority"
