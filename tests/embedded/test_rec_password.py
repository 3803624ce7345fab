"""The password of a Redis Cluster changes on its running servers; no client that has the old or the new is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from tests.operators.redis.cluster.stage import OPERATOR, Stage, manifest

from mooring.kube import MergePatch
from mooring.kube.objects.core import Secret
from mooring.operators.redis.dial import Dial, DialError
from mooring.operators.registry import Operator
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def operator() -> Operator:
    """One that exchanges passwords within seconds."""
    return replace(OPERATOR, register=partial(OPERATOR.register, grace=3.0, look_again=1.0))


async def takes(stage: Stage, password: str) -> list[bool]:
    """Which servers serve a new connection with exactly this password, or none."""

    async def one(pod: str) -> bool:
        try:
            async with Dial().link((await stage.addresses())[pod]) as link:
                if password:
                    await link.call("AUTH", password)
                return str(await link.call("PING")) == "PONG"
        except DialError:
            return False

    return [await one(pod) for pod in sorted(await stage.addresses())]


async def everywhere(stage: Stage, password: str, *, but: str) -> None:
    async def only() -> bool:
        return all(await takes(stage, password)) and not any(await takes(stage, but))

    await stage.bed.until(only, f"every server takes {password!r} alone", within=60)


@pytest.mark.full
async def test_it_changes_and_goes_and_comes_while_clients_write(plane: Bed) -> None:
    stage = Stage(plane, "keyed", password="first")
    try:
        await plane.apply(manifest("keyed", password="first"))
        await stage.exact(6)
        before = {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()}

        async with stage.writing() as report:
            pod = {
                "middlewareImage": "redis:7.0",
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }
            await stage.patch({"pod": [{**pod, "requirepass": "se cond"}]})

            async def both() -> bool:
                return all(await takes(stage, "se cond"))

            await plane.until(both, "every server takes the new one", within=60)
            stage.password = "se cond"
            await everywhere(stage, "se cond", but="first")
            await asyncio.sleep(0.2)
        assert report.acknowledged
        assert report.errors == {}
        assert await stage.lost(report) == []
        await stage.exact(6)
        assert {one.metadata.name: one.metadata.uid for one in await stage.pods()} == before

        # A server that starts anew reads the new one, and its master takes it.
        await stage.bed.client.delete(type((await stage.pods())[5]), "keyed-5", namespace="default")
        await stage.exact(6)

        # To none: whoever has none is let in.
        await stage.patch({"pod": [pod]})
        stage.password = ""
        await everywhere(stage, "", but="se cond")
        await stage.exact(6)
    finally:
        await stage.delete()


async def processes(stage: Stage) -> set[str | None]:
    """The containers' ids: another one for every start."""
    statuses = [pod.status for pod in await stage.pods()]
    return {one.container_id for status in statuses if status for one in status.container_statuses or ()}


async def test_servers_whose_secret_was_lost_take_another_password_and_are_not_restarted(plane: Bed) -> None:
    stage = Stage(plane, "lost", password="first")
    pod = {"middlewareImage": "redis:7.0", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    name = "lost-password"
    try:
        await plane.apply(manifest("lost", password="first"))
        await stage.exact(6)
        await stage.fill(500)
        before = await processes(stage)

        # Nothing but the operator knows any more what the servers take.
        await plane.client.patch(Secret, name, MergePatch({"data": None}), namespace="default")
        await stage.patch({"pod": [{**pod, "requirepass": "second"}]})
        stage.password = "second"
        await everywhere(stage, "second", but="first")

        # And now nobody knows it.
        await plane.stop_operators()
        await plane.client.delete(Secret, name, namespace="default")
        await stage.patch({"pod": [{**pod, "requirepass": "third"}]})
        await plane.start_operators()

        async def said() -> bool:
            conditions = (await stage.status()).standard_conditions or ()
            stalled = next((one for one in conditions if one.type == "Stalled"), None)
            return stalled is not None and stalled.reason == "PasswordRefused"

        await plane.until(said, "it is said that no password is taken")
        body = MergePatch({"stringData": {"password": "second"}})
        await plane.client.patch(Secret, name, body, namespace="default")
        stage.password = "third"
        await everywhere(stage, "third", but="second")
        await stage.exact(6)
        assert await processes(stage) == before
    finally:
        await stage.delete()
