"""ACL users of a Redis Cluster: set, rotated and kept while clients write, with the default user off."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.embedded.conftest import Make
from tests.operators.redis.cluster.stage import OPERATOR, Stage

from mooring.kube.objects.core import Pod, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.dial import Dial, DialError, Login
from mooring.operators.registry import Operator

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

OLD, NEW = ("app", "first-one"), ("app", "second-one")


@pytest.fixture(scope="module")
def operator() -> Operator:
    """One that lets old passwords end within seconds."""
    return replace(OPERATOR, register=partial(OPERATOR.register, grace=2.0, look_again=1.0))


def user(name: str, *rules: str, keys: tuple[str, ...], secret: str) -> dict[str, Any]:
    return {
        "name": name,
        "rules": list(rules),
        "passwordSecrets": [{"name": secret, "key": key} for key in keys],
    }


async def let_in(stage: Stage, *words: str) -> list[bool]:
    """Which servers serve a new connection with exactly these words of AUTH; without words as the default user."""

    async def one(pod: str) -> bool:
        try:
            async with Dial(connect_timeout=10.0, reply_timeout=10.0).link(
                (await stage.addresses())[pod]
            ) as link:
                if words:
                    await link.call("AUTH", *words)
                return str(await link.call("PING")) == "PONG"
        except DialError:
            return False

    return [await one(pod) for pod in sorted(await stage.addresses())]


async def rights(stage: Stage, pod: str) -> set[str]:
    """What a server shows of the account of replicas; a default is shown only where it was set once."""
    lines = [str(line).split() for line in await stage.call(pod, "ACL", "LIST")]
    return set(next(words for words in lines if words[1] == "mooring-replica")) - {"sanitize-payload"}


def comes_as(stage: Stage, *logins: Login) -> None:
    stage.dial = Dial(connect_timeout=5.0, reply_timeout=10.0, keys=logins)


@pytest.mark.full
async def test_users_stay_through_rotation_moving_slots_and_new_pods_with_the_default_user_off(
    make: Make,
) -> None:
    stage = await make(password="of-all")
    client, secret = stage.bed.client, f"given-{stage.name}"
    texts = {"old": OLD[1], "new": NEW[1]}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    await client.create(Secret(metadata=ObjectMeta(name=secret, namespace="default"), data=data))
    before = {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()}

    def declared(*keys: str) -> list[dict[str, Any]]:
        return [user("app", "~*", "&*", "+@all", keys=keys, secret=secret)]

    async with stage.writing() as former:
        await stage.patch({"users": declared("old")})
        await stage.exact(6)

        async def there() -> bool:
            return all(await let_in(stage, *OLD))

        await stage.bed.until(there, "every server has the user", within=60)
    assert former.acknowledged
    assert (former.errors, await stage.lost(former)) == ({}, [])
    comes_as(stage, NEW, OLD)
    async with stage.writing() as report:
        await stage.patch({"defaultUser": {"mode": "Off"}})

        async def closed() -> bool:
            return not any([*await let_in(stage, "of-all"), *await let_in(stage)])

        await stage.bed.until(closed, "no server lets the default user in", within=60)
        await stage.exact(6)
        await stage.patch({"users": declared("old", "new")})

        async def both() -> bool:
            return all([*await let_in(stage, *OLD), *await let_in(stage, *NEW)])

        await stage.bed.until(both, "every server takes both passwords", within=60)
        await stage.patch({"users": declared("new")})

        async def one() -> bool:
            return all(await let_in(stage, *NEW)) and not any(await let_in(stage, *OLD))

        await stage.bed.until(one, "every server takes the new password alone", within=60)
        await stage.exact(6)
        assert {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()} == before

        # Slots move by the operator's own account, to new pods that begin with the users.
        await stage.patch({"replicas": 8})
        await stage.exact(8)
    assert (report.errors, await stage.lost(report)) == ({}, [])

    # A server that restarts, and one that is another pod: neither is open for a moment that a client could see.
    struck = next(pod for pod, slots in (await stage.owned()).items() if slots)
    await client.delete(Pod, struck, namespace="default")
    await stage.exact(8)
    assert await let_in(stage, *NEW) == [True] * 8
    assert await let_in(stage, "of-all") == await let_in(stage) == [False] * 8
    right = await rights(stage, f"{stage.name}-0")
    await stage.call(f"{stage.name}-0", "ACL", "SETUSER", "mooring-replica", "+@all", "nopass")

    async def corrected() -> bool:
        return await rights(stage, f"{stage.name}-0") == right

    await stage.bed.until(corrected, "the operator's account is as it was", within=30)
    status = await stage.status()
    assert {name: one.state for name, one in (status.users or {}).items()} == {
        "app": "Applied",
        "default": "Applied",
    }
