"""TLS of both Redis operators: from the first connection on, renewed and moved to another authority while clients write."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.embedded.conftest import QUICK_SENTINELS
from tests.embedded.test_redis_backup import Backups
from tests.operators.redis.cluster import stage as rec

from mooring.kube.objects.core import Secret, Service
from mooring.operators.redis.address import Address
from mooring.operators.redis.dial import Dial, DialError, Refused
from mooring.operators.redis.tls import TlsProgress, shown_leaf
from mooring.operators.workload.certificates import trust
from mooring.runtime.webhooks_certificates import Lifetimes, renewed
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.ledger import Ledger
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]


def pair() -> dict[str, str]:
    """A certificate of a new authority, as a Secret of cert-manager's holds it."""
    made = renewed(None, names=["localhost"], now=datetime.now(UTC), lifetimes=Lifetimes()).to_secret()
    return {name: made[name] for name in ("tls.crt", "tls.key", "ca.crt")}


def leaf(data: Mapping[str, str]) -> str:
    return shown_leaf(ssl.PEM_cert_to_DER_cert(base64.b64decode(data["tls.crt"]).decode()))


def both(*data: Mapping[str, str]) -> ssl.SSLContext:
    """The trust of a client that knows both authorities, as it must while one follows the other."""
    texts = b"".join(base64.b64decode(one["ca.crt"]) for one in data)
    return trust({"ca.crt": base64.b64encode(texts).decode()})


async def put(bed: Bed | KubernetesBed, name: str, data: Mapping[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}
    await bed.apply({**body, "data": dict(data)})


async def shown(stage: RedisStage, component: str) -> set[str]:
    """Digests of the certificates that the pods of a component show."""
    found = set()
    for pod in await stage.pods(component):
        async with Dial(connect_timeout=10, reply_timeout=10, tls=stage.tls).link(
            await stage.address(pod.metadata.name or "")
        ) as link:
            found.add(shown_leaf(link.certificate))
    return found


async def plain(address: Address) -> bool:
    """Whether a server answers without TLS, if only that it wants a password."""
    try:
        async with Dial(connect_timeout=5, reply_timeout=5).link(address) as link:
            await link.call("PING")
    except Refused:
        return True
    except DialError:
        return False
    return True


async def backed_up(bed: Bed | KubernetesBed, cluster: str, group: str) -> None:
    """A backup reads servers that take TLS alone."""
    backups = Backups(bed, cluster, group)
    await backups.make(f"{cluster}-once", await backups.claim())
    await backups.over(f"{cluster}-once")


@pytest.mark.nightly
async def test_a_cluster_moves_to_another_authority_while_clients_write(
    shared_bed: Bed | KubernetesBed,
) -> None:
    bed, old, new = shared_bed, pair(), pair()
    await put(bed, "moved-tls", old)
    stage = RedisStage(bed, "moved", password="s3cret", tls=both(old, new))
    spec: dict[str, Any] = {"password": "s3cret", "tls": {"enabled": True, "secretName": "moved-tls"}}
    try:
        await bed.apply(manifest("moved", sentinel_settings=QUICK_SENTINELS, **spec))
        await stage.exact(within=120)
        assert await shown(stage, "redis") == await shown(stage, "sentinel") == {leaf(old)}
        for pod in await stage.pods():
            statuses = (pod.status.container_statuses if pod.status else None) or ()
            assert [one.restart_count for one in statuses] == [0]
        await backed_up(bed, "moved", "redis.kun")
        master = await stage.address(await stage.master())
        assert not await plain(Address(master.ip, 6379))
        before = {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()}
        pids = {pod.metadata.name: stage.pid(pod.metadata.name or "") for pod in await stage.pods("redis")}

        async with stage.writing() as ledger:
            await put(bed, "moved-tls", new)

            async def moved() -> bool:
                secret = await bed.get(Secret, stage.names.tls, "default")
                return (secret.data or {})["ca.crt"] == new["ca.crt"] and not await stage.flaw()

            await bed.until(moved, "the old authority is trusted no more", within=240)
            await stage.writes(ledger, 50)
        assert await shown(stage, "redis") == await shown(stage, "sentinel") == {leaf(new)}
        report = await ledger.check()
        assert (report.lost_acknowledged, report.errors) == (0, {}), report.text()
        # No pod and no server was replaced; the sentinels' containers restarted in place.
        assert {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()} == before
        now = {pod.metadata.name: stage.pid(pod.metadata.name or "") for pod in await stage.pods("redis")}
        assert now == pids

        # What cannot be used is reported, and changes nothing.
        await put(bed, "moved-tls", {**new, "tls.key": old["tls.key"]})

        async def reported() -> bool:
            status, reason, message = await stage.condition("Stalled")
            return (status, reason) == ("True", "CertificateUnusable") and "do not belong together" in message

        await bed.until(reported, "the pair is refused", within=90)
        assert await shown(stage, "redis") == {leaf(new)}
        await put(bed, "moved-tls", new)
        await stage.exact(within=90)

        # Failover works as without TLS.
        leader = await stage.master()
        await stage.restarted({leader: stage.kill(leader)})
        await stage.exact(within=90)
        assert await stage.master() != leader
    finally:
        await stage.delete(claims=True)


@asynccontextmanager
async def writing(stage: RedisStage, *, tls: ssl.SSLContext | None) -> AsyncIterator[Ledger]:
    """A client of the master's Service, by TLS or not; nothing it was acknowledged is missing at the end."""
    service = await stage.bed.get(Service, stage.names.master, stage.namespace)
    address = Address(
        (service.spec.cluster_ip if service.spec else None) or "", 6379 if tls is None else 6380
    )
    ledger = Ledger(address=address, password=stage.password, tls=tls)
    task = asyncio.create_task(ledger.write())
    try:
        await stage.writes(ledger, 50)
        yield ledger
        await stage.writes(ledger, 50)
    finally:
        ledger.stop()
        await task
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()


async def turned(stage: RedisStage, transport: str, **tls: bool) -> None:
    """Declare TLS so, and wait until everything is."""
    await stage.patch({"tls": tls})

    async def done() -> bool:
        return (await stage.status()).tls == TlsProgress(transport=transport) and not await stage.flaw()

    await stage.bed.until(done, f"{tls} holds", within=240)


@pytest.mark.full
async def test_tls_is_turned_on_and_off_while_clients_write(shared_bed: Bed | KubernetesBed) -> None:
    bed, stage = shared_bed, RedisStage(shared_bed, "turned", password="s3cret")
    try:
        await bed.apply(manifest("turned", sentinel_settings=QUICK_SENTINELS, password="s3cret"))
        await stage.exact(within=120)
        await stage.fill(500)
        async with writing(stage, tls=None):
            await stage.patch({"tls": {"enabled": True, "plainPorts": True}})

            async def certified() -> bool:
                found = await bed.client.list(Secret, namespace="default")
                return any(one.metadata.name == stage.names.tls for one in found.items)

            await bed.until(certified, "there are certificates", within=60)
            made = (await bed.get(Secret, stage.names.tls, "default")).data or {}
            sealed = RedisStage(bed, "turned", password="s3cret", tls=both(made))
            await turned(sealed, "tls", enabled=True, plainPorts=True)
            replicas = (await sealed.status()).replicas or []
            assert [await sealed.config(one, "tls-replication") for one in replicas] == ["yes", "yes"]
            async with writing(sealed, tls=sealed.tls):
                pass
            await turned(stage, "plain", enabled=False)
        master = await stage.master()
        assert await stage.config(master, "tls-port") == "0"
        assert await stage.kept(master, 500) == 500
    finally:
        await stage.delete(claims=True)


@pytest.mark.full
@pytest.mark.nightly
async def test_the_plain_ports_are_opened_and_closed_again_while_clients_write(
    shared_bed: Bed | KubernetesBed,
) -> None:
    bed, data = shared_bed, pair()
    await put(bed, "ports-tls", data)
    stage = RedisStage(bed, "ports", password="s3cret", tls=both(data))
    tls: dict[str, Any] = {"enabled": True, "secretName": "ports-tls"}
    try:
        await bed.apply(manifest("ports", sentinel_settings=QUICK_SENTINELS, password="s3cret", tls=tls))
        await stage.exact(within=120)
        async with writing(stage, tls=stage.tls):
            await turned(stage, "tls", enabled=True, plainPorts=True)
            address = await stage.address(await stage.master())
            assert await plain(Address(address.ip, 6379))
            await turned(stage, "tls", enabled=True, plainPorts=False)
            address = await stage.address(await stage.master())
            assert not await plain(Address(address.ip, 6379))
    finally:
        await stage.delete(claims=True)


async def test_a_redis_cluster_serves_by_tls_alone_and_fails_over(shared_bed: Bed | KubernetesBed) -> None:
    bed = shared_bed
    body = rec.manifest("sealed", password="s3cret")
    body["spec"]["tls"] = {"enabled": True}
    await bed.apply(body)
    stage = rec.Stage(bed, "sealed", password="s3cret")
    try:

        async def certified() -> bool:
            found = await bed.client.list(Secret, namespace="default")
            return any(one.metadata.name == "sealed-tls" for one in found.items)

        await bed.until(certified, "there are certificates")
        made = (await bed.get(Secret, "sealed-tls", "default")).data or {}
        assert not any(name.endswith("ca.key") for name in made)
        stage = rec.Stage(bed, "sealed", password="s3cret", tls=both(made))
        await stage.exact(6, within=180)
        addresses = await stage.addresses()
        assert not [name for name, one in addresses.items() if await plain(Address(one.ip, 6379))]

        # Clients that verify a node's address find it in the certificate, as soon as the files are there.
        strict = both(made)
        strict.check_hostname = True

        async def verified() -> bool:
            try:
                for one in (await stage.addresses()).values():
                    async with Dial(connect_timeout=10, reply_timeout=10, tls=strict).link(one):
                        pass
            except DialError:
                return False
            return True

        await bed.until(verified, "every node's address is in its certificate", within=180)
        await backed_up(bed, "sealed", "redis.middleware.hc.cn")
        master = next(iter(await stage.owned()))
        async with stage.writing() as report:
            bed.kill("default", master, "redis")

            async def again() -> bool:
                return await rec.restarted(stage, master)

            await bed.until(again, "the master restarted", within=60)
            await stage.exact(6, within=180)
        assert report.acknowledged
    finally:
        await stage.delete()
