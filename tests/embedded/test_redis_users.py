"""ACL users on running servers: set, rotated, kept and corrected while clients write, with the default user off."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.embedded.conftest import MakeCluster
from tests.embedded.test_redis_password import everything_said, incarnations, names

from mooring.kube import MergePatch, NotFound
from mooring.kube.objects.core import Pod, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.dial import Dial, DialError
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.redis import RedisStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(150)]

PATIENT = Dial(connect_timeout=10.0, reply_timeout=10.0)
APP, OPS = ("app", "first-one"), ("ops", "for-tests")


async def give(stage: RedisStage, key: str, text: str) -> None:
    """Put a password into the user's Secret."""
    name, data = f"given-{stage.name}", {key: base64.b64encode(text.encode()).decode()}
    try:
        await stage.bed.client.patch(Secret, name, MergePatch({"data": data}), namespace="default")
    except NotFound:
        made = Secret(metadata=ObjectMeta(name=name, namespace="default"), data=data)
        await stage.bed.client.create(made)


def user(stage: RedisStage, name: str, *rules: str, **more: Any) -> dict[str, Any]:
    secret = {"name": f"given-{stage.name}", "key": name}
    return {"name": name, "rules": list(rules), "passwordSecrets": [secret], **more}


async def comes_in(stage: RedisStage, pod: str, *words: str) -> bool:
    """Whether a new connection with exactly these words of AUTH is served; without words as the default user."""
    try:
        async with PATIENT.link(await stage.address(pod)) as link:
            if words:
                await link.call("AUTH", *words)
            return str(await link.call("PING")) == "PONG"
    except DialError:
        return False


async def all_let_in(stage: RedisStage, *words: str) -> list[bool]:
    return [await comes_in(stage, pod, *words) for pod in await names(stage)]


@dataclass
class Visitor:
    """Opens a new connection for everything it does."""

    comes_as: tuple[str, str]
    served: int = 0
    refused: list[str] = field(default_factory=list)


@asynccontextmanager
async def visiting(stage: RedisStage, first: tuple[str, str]) -> AsyncIterator[Visitor]:
    visitor, gone = Visitor(first), asyncio.Event()

    async def come() -> None:
        while not gone.is_set():
            for pod in await names(stage):
                used = visitor.comes_as
                if await comes_in(stage, pod, *used):
                    visitor.served += 1
                else:
                    visitor.refused.append(f"{pod} did not let in {used}")
            await asyncio.sleep(0.02)

    task = asyncio.create_task(come())
    try:
        yield visitor
    finally:
        gone.set()
        await task


async def wake(stage: RedisStage) -> str:
    """Bring the next pass forward; the version of the object from then on."""
    touch = MergePatch({"metadata": {"annotations": {"touched": str(time.monotonic_ns())}}})
    made = await stage.bed.client.patch(RedisCluster, stage.name, touch, namespace=stage.namespace)
    return made.metadata.resource_version or ""


async def line_of(stage: RedisStage, pod: str, name: str) -> str:
    lines = await stage.call(pod, "ACL", "LIST")
    return next((str(one) for one in lines if str(one).split()[1] == name), "")


async def test_users_come_live_and_stay_through_rotation_fail_over_and_new_pods(
    cluster: MakeCluster,
) -> None:
    stage = await cluster(password="of-all", passwordGraceSeconds=2)
    before = await incarnations(stage)
    for name, text in (APP, OPS):
        await give(stage, name, text)
    users = [
        user(stage, "app", "~ledger:* +@read +@write", "+wait", "+ping", "+role"),
        user(stage, "ops", "~*", "&*", "+@all"),
    ]

    # Live, under a client that is the default user, and then under one that is not.
    async with stage.writing() as former:
        await stage.patch({"users": users})
        await stage.exact()
        await stage.writes(former, 50)
    report = await former.check()
    assert (report.lost_acknowledged, report.errors) == (0, {}), report.text()
    assert await all_let_in(stage, *APP) == await all_let_in(stage, "of-all") == [True] * 3
    stage.login(OPS)
    new = ("app", "second-one")
    async with stage.writing(password=[new, APP]) as ledger, visiting(stage, APP) as visitor:
        await stage.patch({"defaultUser": {"mode": "Off"}})
        await stage.exact()
        await stage.writes(ledger, 50)
        assert await all_let_in(stage, "of-all") == await all_let_in(stage) == [False] * 3
        assert await incarnations(stage) == before

        # Both passwords while the old one is in its grace, then the new one alone.
        await give(stage, "app", "second-one")

        async def both() -> bool:
            return all(await all_let_in(stage, *new))

        await stage.bed.until(both, "every server takes the new password")
        visitor.comes_as = new

        async def one() -> bool:
            return not any(await all_let_in(stage, *APP))

        await stage.bed.until(one, "no server takes the old password")
        await stage.exact()
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert (report.lost_acknowledged, report.errors) == (0, {}), report.text()
    assert visitor.served > 20
    assert not visitor.refused
    assert await incarnations(stage) == before
    said = await everything_said(stage)
    for secret in (*(text for _, text in (APP, OPS)), "second-one"):
        assert secret not in said
        assert hashlib.sha256(secret.encode()).hexdigest() not in said

    # A fail-over by the sentinels' own account, and a pod that is a new one.
    master = await stage.master()
    await stage.restarted({master: stage.kill(master)})
    await stage.exact()
    leads = await stage.master()
    assert leads != master
    struck = next(one for one in await names(stage) if one != leads)
    await stage.bed.client.delete(Pod, struck, namespace=stage.namespace)
    await stage.exact()
    assert await all_let_in(stage, *new) == [True] * 3
    assert await all_let_in(stage, "of-all") == await all_let_in(stage) == [False] * 3
    assert await stage.config(struck, "masteruser") == "mooring-replica"


async def test_what_is_changed_by_hand_goes_back_and_what_servers_refuse_is_reported(
    cluster: MakeCluster,
) -> None:
    stage = await cluster(exact=False)
    for name, text in (APP, OPS):
        await give(stage, name, text)
    ops = user(stage, "ops", "~*", "&*", "+@all")
    await stage.patch(
        {
            "users": [user(stage, "app", "~a:*", "+get"), ops],
            "defaultUser": {"mode": "Restricted", "rules": ["+ping"]},
        }
    )
    stage.login(OPS)
    await stage.exact()
    assert await all_let_in(stage) == [True] * 3
    with pytest.raises(DialError, match="NOPERM"):
        async with PATIENT.link(await stage.address(await stage.master())) as link:
            await link.call("GET", "a:1")

    pods = await names(stage)
    right = await line_of(stage, pods[1], "app")
    for words in (
        ("app", "+@all", ">by-hand"),
        ("mooring-backup", "+@all", "nopass"),
        ("default", "+@all", "~*"),
        ("stranger", "on", ">x", "~*", "+@all"),
    ):
        await stage.call(pods[1], "ACL", "SETUSER", *words)
    await stage.call(pods[2], "ACL", "DELUSER", "app")
    kept = [await line_of(stage, pods[0], name) for name in ("app", "mooring-backup", "default")]

    async def corrected() -> bool:
        for pod in pods:
            for name, line in zip(("app", "mooring-backup", "default"), kept, strict=True):
                if sorted((await line_of(stage, pod, name)).split()) != sorted(line.split()):
                    return False
        return True

    await wake(stage)
    await stage.bed.until(corrected, "every server has the declared users")
    await stage.exact()
    assert (await stage.status()).other_users == ["stranger"]
    assert await line_of(stage, pods[1], "stranger")

    # A rule that no server knows: the words of the server, the field, and the user as it was.
    await stage.patch({"users": [user(stage, "app", "~a:*", "+@nosuch"), ops]})

    async def reported() -> bool:
        condition = await stage.condition("Stalled")
        return condition[1] == "NotAsDeclared"

    await stage.bed.until(reported, "the refusal is reported")
    cluster_ = await stage.get()
    text = msgspec.json.encode(cluster_.status).decode()
    assert "spec.users[0].rules" in text
    assert "Unknown command or category name" in text
    assert sorted((await line_of(stage, pods[1], "app")).split()) == sorted(right.split())
    at_rest = await wake(stage)
    await asyncio.sleep(1.0)
    assert (await stage.get()).metadata.resource_version == at_rest

    # No longer declared: it goes, and the stranger stays.
    await stage.patch({"users": [ops], "defaultUser": None})
    await stage.exact()
    assert [await line_of(stage, pod, "app") for pod in pods] == [""] * 3
    assert await line_of(stage, pods[1], "stranger")
    assert "+@all" in await line_of(stage, pods[1], "default")
