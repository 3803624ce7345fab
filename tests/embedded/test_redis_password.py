"""The life of a password: set, changed and removed on running servers; nobody is shut out unannounced."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from tests.embedded.conftest import MakeCluster
from tests.standstill import Standstill

from mooring.kube import MergePatch
from mooring.kube.objects.apps import ControllerRevision, StatefulSet
from mooring.kube.objects.core import ConfigMap, Pod, Secret
from mooring.kube.objects.events import Event
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.dial import Dial, DialError, Refused
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]


#: What is refused counts here, not what a busy machine is slow to answer.
PATIENT = Dial(connect_timeout=10.0, reply_timeout=10.0)


async def incarnations(stage: RedisStage) -> dict[str, tuple[str | None, int]]:
    names = [(pod.metadata.name or "", pod.metadata.uid) for pod in await stage.pods()]
    return {name: (uid, stage.pid(name)) for name, uid in names}


async def takes(stage: RedisStage, pod: str, password: str) -> bool:
    """Whether a new connection with exactly this password (or none) is served."""
    try:
        async with PATIENT.link(await stage.address(pod)) as link:
            if password:
                await link.call("AUTH", password)
            return str(await link.call("PING")) == "PONG"
    except DialError:
        return False


async def all_take(stage: RedisStage, password: str) -> list[bool]:
    return [await takes(stage, pod.metadata.name or "", password) for pod in await stage.pods("redis")]


async def in_force(stage: RedisStage) -> str:
    """What a restarting server would read."""
    secret = await stage.bed.get(Secret, stage.names.password, stage.namespace)
    return base64.b64decode((secret.data or {})["password"]).decode()


async def names(stage: RedisStage) -> list[str]:
    return [pod.metadata.name or "" for pod in await stage.pods("redis")]


@dataclass
class Visitors:
    """A client that opens a new connection for everything it does."""

    password: str
    served: int = 0
    gone: bool = False
    refused: list[str] = field(default_factory=list)


@asynccontextmanager
async def visiting(stage: RedisStage, visitors: Visitors) -> AsyncIterator[Visitors]:
    async def come() -> None:
        pods = [pod.metadata.name or "" for pod in await stage.pods("redis")]
        while not visitors.gone:
            for pod in pods:
                used = visitors.password
                if await takes(stage, pod, used):
                    visitors.served += 1
                else:
                    visitors.refused.append(f"{pod} did not take {used!r}")
            await asyncio.sleep(0.02)

    task = asyncio.create_task(come())
    try:
        yield visitors
    finally:
        visitors.gone = True
        await task


async def everything_said(stage: RedisStage) -> str:
    """All that is stored but the Secrets and the declaration itself."""
    texts = []
    for kind in (StatefulSet, ControllerRevision, ConfigMap, Pod, Event):
        texts += [msgspec.json.encode(one).decode() for one in (await stage.bed.client.list(kind)).items]
    cluster: RedisCluster = await stage.get()
    return "\n".join([*texts, msgspec.json.encode(cluster.status).decode()])


async def test_a_changed_password_shuts_nobody_out_and_restarts_nothing(
    cluster: MakeCluster, stood: Standstill
) -> None:
    old, new = "the-first-one", '2nd-"quoted" \\ word'
    stage = await cluster(password=old, passwordGraceSeconds=5)
    before = await incarnations(stage)
    visitors = Visitors(old)
    async with stage.writing(password=(old, new)) as ledger, visiting(stage, visitors):
        await stage.patch({"password": new})

        async def published() -> bool:
            return await in_force(stage) == new

        await stage.bed.until(published, "the new password is published")
        assert await all_take(stage, old) == await all_take(stage, new) == [True] * 3
        visitors.password = new
        stage.password = new
        await stage.exact()
        await stage.writes(ledger, 50)

    assert not visitors.refused
    assert visitors.served > 20
    assert await all_take(stage, old) == [False] * 3
    assert await incarnations(stage) == before
    assert (await stage.status()).password is None
    report = await ledger.check()
    gap = report.longest_gap - stood.within(report.longest_gap)
    assert (report.lost_acknowledged, gap < 1) == (0, True), report.text()
    said = await everything_said(stage)
    for secret in (old, "2nd-", hashlib.sha256(old.encode()).hexdigest()):
        assert secret not in said

    # The sentinels know it too, and a server that restarts.
    master = await stage.master()
    await stage.restarted({master: stage.kill(master)})
    await stage.exact()
    assert await stage.master() != master


@pytest.mark.parametrize("whose", [pytest.param("a replica", marks=pytest.mark.nightly), "the master"])
async def test_the_old_password_goes_also_where_a_server_restarted_while_both_were_valid(
    cluster: MakeCluster, whose: str
) -> None:
    stage = await cluster(password="before", passwordGraceSeconds=12)
    master = await stage.master()
    struck = master if whose == "the master" else next(one for one in await names(stage) if one != master)
    await stage.patch({"password": "after"})

    async def published() -> bool:
        return await in_force(stage) == "after"

    await stage.bed.until(published, "the new password is published")
    old = await stage.bed.get(Pod, struck, stage.namespace)
    await stage.bed.client.delete(Pod, struck, namespace=stage.namespace)

    async def takes_both() -> bool:
        found = [one for one in await stage.pods("redis") if one.metadata.name == struck]
        if not found or found[0].metadata.uid == old.metadata.uid:
            return False
        return await takes(stage, struck, "before") and await takes(stage, struck, "after")

    await stage.bed.until(takes_both, f"the new pod {struck} takes both", within=20)
    stage.password = "after"
    await stage.exact()
    assert await all_take(stage, "after") == [True] * 3
    assert await all_take(stage, "before") == [False] * 3


async def test_a_change_is_carried_on_by_the_next_operator_wherever_the_last_one_stopped(
    cluster: MakeCluster,
) -> None:
    stage = await cluster(password="before", passwordGraceSeconds=1)

    async def staged() -> bool:
        secret = await stage.bed.get(Secret, stage.names.password, stage.namespace)
        return "next" in (secret.data or {}) or await in_force(stage) == "after"

    async def published() -> bool:
        return await in_force(stage) == "after"

    await stage.patch({"password": "after"})
    for reached in (staged, published):
        await stage.bed.until(reached, f"the change is {reached.__name__}")
        async with stage.operators_away():
            assert any(await all_take(stage, "before"))
    stage.password = "after"
    await stage.exact()
    assert await all_take(stage, "after") == [True] * 3
    assert await all_take(stage, "before") == [False] * 3


@pytest.mark.full
async def test_a_password_is_set_and_removed_by_an_announced_switch(
    shared_bed: Bed, cluster: MakeCluster
) -> None:
    stage = await cluster()
    before = await incarnations(stage)
    given = Secret(
        metadata=ObjectMeta(name=f"given-{stage.name}", namespace="default"),
        data={"password": base64.b64encode(b"from-now-on").decode()},
    )
    await shared_bed.client.create(given)

    async def announced() -> bool:
        return (await stage.condition("Progressing"))[1] == "PasswordSwitch"

    await stage.patch({"passwordSecret": {"name": f"given-{stage.name}"}})
    await shared_bed.until(announced, "the switch is announced")
    assert await all_take(stage, "") == [True] * 3
    stage.password = "from-now-on"
    await stage.exact()
    assert await all_take(stage, "") == [False] * 3
    assert await all_take(stage, "from-now-on") == [True] * 3

    await stage.patch({"passwordSecret": None})
    await shared_bed.until(announced, "the switch is announced")
    stage.password = ""
    await stage.exact()
    assert await all_take(stage, "") == [True] * 3
    assert await incarnations(stage) == before


async def test_who_has_no_password_asks_the_sentinels_and_changes_nothing_of_them(
    cluster: MakeCluster,
) -> None:
    stage = await cluster(password="hush")
    master = await stage.address(await stage.master())
    stranger = "127.0.0.1"
    greeting = f"{stranger},26379,{'f' * 40},99,mymaster,{stranger},6379,99"
    for pod in await stage.pods("sentinel"):
        async with PATIENT.link(await stage.address(pod.metadata.name or "")) as link:
            for words in (
                ("PUBLISH", "__sentinel__:hello", greeting),
                ("SENTINEL", "MONITOR", "another", stranger, 6379, 2),
                ("SENTINEL", "SET", "mymaster", "quorum", 1),
                ("SENTINEL", "REMOVE", "mymaster"),
                ("SENTINEL", "RESET", "*"),
                ("SENTINEL", "CONFIG", "GET", "*"),
                ("SENTINEL", "IS-MASTER-DOWN-BY-ADDR", master.ip, 6379, 99, "f" * 40),
                ("ACL", "LIST"),
            ):
                with pytest.raises(Refused, match="NOPERM"):
                    await link.call(*words)
            asked = await link.call("SENTINEL", "get-master-addr-by-name", "mymaster")
            assert asked == [master.ip, "6379"]
            assert len(await link.call("SENTINEL", "replicas", "mymaster")) == 2
            await link.subscribe(("+switch-master",))

    # They still greet one another and vote.
    await stage.restarted({(dead := await stage.master()): stage.kill(dead)})
    await stage.exact()
    assert await stage.master() != dead


async def lose(stage: RedisStage, how: str) -> None:
    """Delete the Secret with the passwords, or what is in it."""
    client, namespace = stage.bed.client, stage.namespace
    if how == "deleted":
        await client.delete(Secret, stage.names.password, namespace=namespace)
    else:
        await client.patch(Secret, stage.names.password, MergePatch({"data": None}), namespace=namespace)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
async def test_a_lost_secret_comes_back_as_it_was_and_nothing_restarts(
    cluster: MakeCluster, how: str
) -> None:
    stage = await cluster(password="first", passwordGraceSeconds=1)
    await stage.fill(1000)
    before = await incarnations(stage)
    secret = await stage.bed.get(Secret, stage.names.password, stage.namespace)
    await lose(stage, how)

    async def whole() -> bool:
        found = await stage.bed.client.list(Secret, namespace=stage.namespace)
        return any(one.data == secret.data for one in found.items)

    await stage.bed.until(whole, "the Secret is as it was")
    # Nothing but the operator knows any more what the servers take.
    await lose(stage, how)
    await stage.patch({"password": "second"})
    stage.password = "second"
    await stage.exact(60)
    assert await all_take(stage, "second") == [True] * 3
    assert await incarnations(stage) == before
    assert await stage.kept(await stage.master(), 1000) == 1000


async def test_servers_that_take_no_known_password_are_left_alone_until_somebody_names_it(
    cluster: MakeCluster,
) -> None:
    stage = await cluster(password="first", passwordGraceSeconds=1)
    await stage.fill(1000)
    before = {name: it for name, it in (await incarnations(stage)).items() if "-sentinel-" not in name}
    await stage.bed.stop_operators()
    await lose(stage, "emptied")
    await stage.patch({"password": "second"})
    await stage.bed.start_operators()

    async def said() -> bool:
        stalled = [one for one in (await stage.status()).conditions or () if one.type == "Stalled"]
        return any(one.reason == "PasswordRefused" for one in stalled)

    await stage.bed.until(said, "it is said that no password is taken")
    stalled = next(one for one in (await stage.status()).conditions or () if one.type == "Stalled")
    assert f"kubectl patch secret {stage.names.password} -p" in (stalled.message or "")
    body = MergePatch({"stringData": {"password": "first"}})
    await stage.bed.client.patch(Secret, stage.names.password, body, namespace=stage.namespace)
    stage.password = "second"
    await stage.exact(60)
    assert await all_take(stage, "first") == [False] * 3
    after = await incarnations(stage)
    assert {name: after[name] for name in before} == before
    assert await stage.kept(await stage.master(), 1000) == 1000


async def test_sentinels_take_a_new_key_when_the_secret_is_lost(cluster: MakeCluster) -> None:
    stage = await cluster(password="hush")
    before = {pod.metadata.uid for pod in await stage.pods("sentinel")}
    await stage.bed.stop_operators()
    await lose(stage, "deleted")
    await stage.bed.start_operators()

    async def renewed() -> bool:
        return before.isdisjoint({pod.metadata.uid for pod in await stage.pods("sentinel")})

    await stage.bed.until(renewed, "every sentinel is made again", within=60)
    await stage.exact(60)
    assert await all_take(stage, "hush") == [True] * 3
