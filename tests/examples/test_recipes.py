"""The shorter examples of docs/write-an-operator.md: plain controllers, and what the client can do for them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from mooring.kube import AlreadyExists, Client, Conflict, Key, MergePatch, metadata_of, owner_reference
from mooring.kube.objects.core import (
    ConfigMap,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Secret,
    VolumeResourceRequirements,
)
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.runtime import CachedClient, Controller, Done, Election, Manager, Result, span
from mooring.testing.clock import VirtualClock
from mooring.testing.rig import Rig


async def password_of(client: CachedClient, owner: ConfigMap) -> Secret:
    """The owner's password: made up once, so that no later pass, nor a second process, makes up another."""
    meta = ObjectMeta(
        name=f"{owner.metadata.name}-password",
        namespace=owner.metadata.namespace,
        owner_references=[owner_reference(owner)],
    )
    return await client.ensure(Secret(metadata=meta, string_data={"password": secrets.token_urlsafe(24)}))


async def delete_data(client: CachedClient, claim: PersistentVolumeClaim) -> None:
    """Delete the claim that was looked at, as it was looked at, and none that took its place meanwhile."""
    now = (await client.confirm(claim)).metadata
    await client.delete(
        PersistentVolumeClaim,
        now.name or "",
        namespace=now.namespace or "",
        uid=now.uid,
        resource_version=now.resource_version,
    )


async def ask_database(seconds: float, clock: VirtualClock) -> None:
    """Stands for a long query."""
    with span("count the rows of orders"):
        await clock.sleep(seconds)


SecretMetadata = metadata_of(Secret)


def watch_certificates(controller: Controller, manager: Manager) -> None:
    """Look at an object again when the Secret it names in a label comes, goes or is renewed."""
    informer = manager.informers.of(SecretMetadata, label_selector="example.com/certificate-of")
    controller.watch(informer, map=user_of)


def user_of(secret: SecretMetadata) -> list[Key]:  # type: ignore[valid-type]
    meta = secret.metadata  # type: ignore[attr-defined]
    return [Key(meta.namespace, meta.labels["example.com/certificate-of"])]


def replica(client: Client, identity: str) -> Manager:
    """One of several processes at work at once; every object belongs to one of them."""
    election = Election("websites", "default", identity=identity, retry_period=0.2)
    return Manager(client, name="websites", election=election, shards=6)


def config_map(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default", labels=labels or None))


class Passes:
    """A controller of ConfigMaps whose pass a test may choose."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.act: Callable[[CachedClient, ConfigMap], Awaitable[object]] | None = None
        self.more: Callable[[Controller, Manager], object] = lambda controller, manager: None

    def put_on(self, manager: Manager) -> None:
        async def reconcile(key: Key) -> Result:
            self.seen[key.name] += 1
            obj = manager.client.find(ConfigMap, key.name, namespace=key.namespace)
            if obj is not None and self.act is not None:
                await self.act(manager.client, obj)
            return Done()

        controller = Controller("config", reconcile).watch(manager.informers.of(ConfigMap))
        self.more(controller, manager)
        manager.add(controller)


@asynccontextmanager
async def operated(passes: Passes, clock: VirtualClock | None = None) -> AsyncIterator[Rig]:
    async with Rig(operator=lambda rig: passes.put_on(rig.manager), clock=clock) as rig:
        yield rig


async def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)


async def test_a_password_is_made_up_once_whoever_asks() -> None:
    passes, made = Passes(), []

    async def act(client: CachedClient, obj: ConfigMap) -> None:
        made.append((await password_of(client, obj)).metadata.uid)

    passes.act = act
    async with operated(passes) as rig:
        await rig.client.create(config_map("shop"))
        await rig.settle()
        before = await rig.client.get(Secret, "shop-password", namespace="default")
        await rig.stop()
        await rig.start()
        await rig.settle()
        after = await rig.client.get(Secret, "shop-password", namespace="default")
    assert after.data == before.data
    assert made == [before.metadata.uid] * 2


async def test_a_name_that_belongs_to_somebody_else_is_not_taken() -> None:
    passes, refused = Passes(), []

    async def act(client: CachedClient, obj: ConfigMap) -> None:
        if obj.metadata.name == "shop":
            with pytest.raises(AlreadyExists) as error:
                await password_of(client, obj)
            refused.append(str(error.value))

    passes.act = act
    async with operated(passes) as rig:
        other = await rig.client.create(config_map("other"))
        meta = ObjectMeta(
            name="shop-password", namespace="default", owner_references=[owner_reference(other)]
        )
        await rig.client.create(Secret(metadata=meta))
        await rig.client.create(config_map("shop"))
        await rig.settle()
    assert "belongs to ConfigMap other" in refused[0]


async def test_data_that_changed_since_it_was_looked_at_is_kept() -> None:
    async with operated(Passes()) as rig:
        claim = await rig.client.create(
            PersistentVolumeClaim(
                metadata=ObjectMeta(name="data", namespace="default"),
                spec=PersistentVolumeClaimSpec(
                    access_modes=["ReadWriteOnce"],
                    resources=VolumeResourceRequirements(requests={"storage": "1Gi"}),
                ),
            )
        )
        await rig.client.delete(PersistentVolumeClaim, "data", namespace="default", uid=claim.metadata.uid)
        unprotected = MergePatch({"metadata": {"finalizers": None}})
        await rig.client.patch(PersistentVolumeClaim, "data", unprotected, namespace="default")
        again = await rig.client.create(
            PersistentVolumeClaim(metadata=ObjectMeta(name="data", namespace="default"), spec=claim.spec)
        )
        with pytest.raises(Conflict, match="look again"):
            await delete_data(rig.manager.client, claim)
        assert await rig.client.get(PersistentVolumeClaim, "data", namespace="default")
        await delete_data(rig.manager.client, again)
        left = (await rig.client.list(PersistentVolumeClaim, namespace="default")).items
    assert all(one.metadata.deletion_timestamp for one in left)


async def test_a_slow_pass_names_its_parts() -> None:
    clock, passes = VirtualClock(), Passes()

    async def act(client: CachedClient, obj: ConfigMap) -> None:
        if obj.metadata.name == "shop":
            await ask_database(11.0, clock)

    passes.act = act
    with capture_logs() as lines:
        async with operated(passes, clock) as rig:
            await rig.client.create(config_map("shop"))
            await until(lambda: passes.seen["shop"] > 0)
            await clock.advance(12)
            await rig.settle()
    slow = [line for line in lines if line["event"] == "slow reconcile"]
    assert slow
    assert "count the rows of orders at 0.000 s: 11.000 s" in slow[0]["spans"]


async def test_a_secret_wakes_its_user_and_its_content_stays_on_the_server() -> None:
    passes = Passes()
    passes.more = watch_certificates
    async with operated(passes) as rig:
        await rig.client.create(config_map("shop"))
        await rig.settle()
        before = passes.seen["shop"]
        meta = ObjectMeta(name="cert", namespace="default", labels={"example.com/certificate-of": "shop"})
        await rig.client.create(Secret(metadata=meta, string_data={"tls.key": "private"}))
        await until(lambda: passes.seen["shop"] > before)
        cached = next(iter(rig.manager.informers.every(Secret))).list()
    assert [one.metadata.name for one in cached] == ["cert"]
    assert not any(hasattr(one, "data") for one in cached)


async def test_replicas_share_the_objects() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        both = {identity: Passes() for identity in ("one", "two")}
        managers = [replica(Client(server.transport()), identity) for identity in both]
        for passes, manager in zip(both.values(), managers, strict=True):
            passes.put_on(manager)
        tasks = [asyncio.create_task(manager.run()) for manager in managers]
        try:
            await until(lambda: all(len(manager.shards) == 3 for manager in managers))
            for passes in both.values():
                passes.seen.clear()
            for number in range(24):
                await client.create(config_map(f"site-{number}"))
            await until(lambda: sum(len(passes.seen) for passes in both.values()) == 24)
            one, two = (set(passes.seen) for passes in both.values())
            assert one
            assert two
            assert not one & two
            for manager in managers:
                manager.stop()
            await asyncio.wait_for(asyncio.gather(*tasks), 20)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
