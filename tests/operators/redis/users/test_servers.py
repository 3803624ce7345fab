"""Steps with users on a real server, what a start makes of what was kept, and what the accounts may do."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.operators.redis.users.scene import ACCOUNTS, NOW, OFF, Scene, declared

from mooring.operators.redis.backup.reader import Candidate, Source, read_all
from mooring.operators.redis.dial import Address, Dial, DialError, Link, Refused
from mooring.operators.redis.info import parse_info
from mooring.operators.redis.users import seen
from mooring.operators.redis.users.accounts import BACKUP, OPERATOR, REPLICA
from mooring.operators.redis.users.held import Access, after, start_lines
from mooring.operators.redis.users.moves import SetUsers, UsersMove
from mooring.operators.redis.users.plan import ServerUsers, next_users, state_of
from mooring.operators.redis.users.steps import change_users
from mooring.operators.redis.users.types import DefaultUserSpec
from mooring.operators.workload.credentials import Kept

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]

PATIENT = Dial(connect_timeout=10.0, reply_timeout=10.0)
KEPT = Kept(password="of-all", accounts=ACCOUNTS)
LOGIN = (OPERATOR, ACCOUNTS[OPERATOR])


@asynccontextmanager
async def server(directory: Path, *lines: str) -> AsyncIterator[Address]:
    """A server with the cluster's password, and these lines after it."""
    os.mkdir(directory)
    address = Address(f"127.{random.randint(10, 250)}.{random.randint(1, 250)}.1", 6379)
    text = [f"bind {address.ip}", "port 6379", f"dir {directory}", 'save ""', 'requirepass "of-all"', *lines]
    await asyncio.to_thread((directory / "redis.conf").write_text, "\n".join(text) + "\n")
    process = await asyncio.create_subprocess_exec(
        "redis-server", str(directory / "redis.conf"), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        while not await answers(address):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        yield address
    finally:
        process.kill()
        await process.wait()


async def answers(address: Address) -> bool:
    try:
        async with PATIENT.link(address) as link:
            await link.pipeline([("PING",)])
            return True
    except DialError:
        return False


async def lets_in(address: Address, *words: str) -> bool:
    try:
        async with PATIENT.link(address) as link:
            if words:
                await link.call("AUTH", *words)
            return str(await link.call("PING")) == "PONG"
    except DialError:
        return False


def operators(address: Address) -> AbstractAsyncContextManager[Link]:
    """A link as the operator opens one."""
    return PATIENT.link(address, password=[LOGIN, "of-all"])


async def decide(link: Link, access: Access) -> UsersMove | None:
    version = parse_info(await link.call("INFO", "server"))["redis_version"]
    found = seen.read_users(access, version, ACCOUNTS[REPLICA], await link.pipeline(seen.ASKED))
    return next_users(
        state_of(access, ready=True, grace=60.0),
        [ServerUsers(name="a", version=version, users=found)],
        now=NOW,
        refused={},
        sentinels=False,
        calm=True,
    )


async def given(address: Address, access: Access) -> Access:
    """Carry out everything there is to do, as the operator does: each step by a connection of its own."""
    for _ in range(8):
        async with operators(address) as link:
            if (move := await decide(link, access)) is None:
                return access
            done = await change_users(link, move, access=access, kept=KEPT)
        assert done.refused == {}
        access = replace(access, held=after(access, move, done, now=NOW))
    raise AssertionError("it does not come to rest")


@pytest.mark.parametrize(
    "default",
    [OFF, DefaultUserSpec(mode="Restricted", rules=["~open:*", "+get", "-config"])],
    ids=["off", "restricted"],
)
async def test_a_start_from_what_was_kept_needs_no_correction_and_lets_nobody_else_in(
    tmp_path: Path, default: DefaultUserSpec
) -> None:
    users = [
        declared("app", "~a:*", "&news", "+@read", "+@write", "-@dangerous", "+config|get", "+ping"),
        declared("split", "~a", "+get", "(~b +set)"),
        declared("gone", "+ping", enabled=False),
    ]
    async with server(tmp_path / "a") as first:
        access = await given(first, Scene(users=users, default=default).access)
    async with server(tmp_path / "b", start_lines(access, KEPT)) as again:
        async with operators(again) as link:
            assert link.login == LOGIN
            assert await decide(link, access) is None
        assert await lets_in(again, "app", "first")
        assert not await lets_in(again, "gone", "first")
        assert not await lets_in(again)
        assert await lets_in(again, "of-all") is False  # off, or without PING
        async with PATIENT.link(again) as link:
            if default is OFF:
                with pytest.raises(Refused, match="invalid username-password"):
                    await link.call("AUTH", "of-all")
            else:
                await link.call("AUTH", "of-all")
                assert await link.call("GET", "open:1") is None
                with pytest.raises(Refused, match="NOPERM"):
                    await link.call("GET", "a:1")


async def test_a_user_that_is_turned_off_and_the_default_user_are_disconnected(tmp_path: Path) -> None:
    async with server(tmp_path / "a") as address:
        scene = Scene(users=[declared("app", "~*", "+@all")])
        access = await given(address, scene.access)
        scene.held = access.held
        async with (
            PATIENT.link(address, password=[("app", "first")]) as one,
            PATIENT.link(address, password="of-all") as other,
        ):
            assert await one.call("SET", "a", 1) == await other.call("SET", "b", 1) == "OK"
            scene.users, scene.default = [declared("app", "~*", "+@all", enabled=False)], OFF
            await given(address, scene.access)
            for cut in (one, other):
                with pytest.raises(DialError):
                    await cut.call("PING")


async def test_replicas_that_came_in_as_the_default_user_come_again_before_it_is_closed(
    tmp_path: Path,
) -> None:
    async with (
        server(tmp_path / "a", f"logfile {tmp_path}/log") as address,
        server(
            tmp_path / "b",
            f"replicaof {address.ip} 6379",
            'masterauth "of-all"',
            "repl-diskless-sync-delay 0",
        ) as replica,
    ):
        async with operators(address) as link:
            await link.call("CONFIG", "SET", "repl-diskless-sync-delay", 0)
            while "state=online" not in await link.call("INFO", "replication"):
                await asyncio.sleep(0.05)
        for one in (replica, address):
            await given(one, Scene(users=[], default=OFF).access)
        async with operators(address) as link:
            while f"user={REPLICA}" not in await link.call("CLIENT", "LIST", "TYPE", "replica"):
                await asyncio.sleep(0.05)
            assert "sync_full:1\r" in await link.call("INFO", "stats")
    assert "generated a reply" not in await asyncio.to_thread((tmp_path / "log").read_text)


async def test_a_replica_without_an_account_is_cut_when_the_default_user_is_closed(tmp_path: Path) -> None:
    async with (
        server(tmp_path / "a", f"logfile {tmp_path}/log", "repl-diskless-sync-delay 0") as address,
        server(tmp_path / "b", f"replicaof {address.ip} 6379", 'masterauth "of-all"'),
    ):
        async with operators(address) as link:
            while "state=online" not in await link.call("INFO", "replication"):
                await asyncio.sleep(0.05)
        await given(address, Scene(users=[], default=OFF).access)
        async with operators(address) as link:
            assert "connected_slaves:0" in await link.call("INFO", "replication")
    assert "generated a reply" not in await asyncio.to_thread((tmp_path / "log").read_text)


async def test_a_server_never_misses_both_replicas_while_they_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str]] = []
    call = Link.call

    async def noted(link: Link, *words: Any) -> Any:
        answer = await call(link, *words)
        said.append((" ".join(map(str, words)), str(answer)))
        return answer

    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(server(tmp_path / "a", "repl-diskless-sync-delay 0"))
        lines = (f"replicaof {address.ip} 6379", 'masterauth "of-all"')
        replicas = [await stack.enter_async_context(server(tmp_path / one, *lines)) for one in ("b", "c")]
        async with operators(address) as link:
            while str(await link.call("INFO", "replication")).count("state=online") < 2:
                await asyncio.sleep(0.05)
        for one in replicas:
            await given(one, Scene(users=[], default=OFF).access)
        monkeypatch.setattr(Link, "call", noted)
        await given(address, Scene(users=[], default=OFF).access)
    first, second = (at for at, (words, _) in enumerate(said) if words.startswith("CLIENT KILL ID"))
    online = [answer.count("state=online") for words, answer in said[:second] if words == "INFO replication"]
    assert second > first
    assert online[-2:] == [2, 2], "the second goes when the first is back"


async def test_what_a_server_refuses_is_told_in_its_words_and_changes_nothing(tmp_path: Path) -> None:
    async with server(tmp_path / "a") as address, PATIENT.link(address, password="of-all") as link:
        access = Scene(users=[declared("app", "~*", "+@nosuch"), declared("other")]).access
        move = await decide(link, access)
        assert isinstance(move, SetUsers)
        done = await change_users(link, move, access=access, kept=KEPT)
        assert set(done.refused) == {"app"}
        assert "'+@nosuch': Unknown command or category name" in done.refused["app"]
        names = {str(line).split()[1] for line in await link.call("ACL", "LIST")}
        assert "other" in names
        assert "app" not in names
        assert "app" not in after(access, move, done, now=NOW).users


async def test_the_accounts_may_do_their_work_and_no_more(tmp_path: Path) -> None:
    async with server(tmp_path / "a") as address:
        await given(address, Scene(users=[], default=OFF).access)
        refused = {
            OPERATOR: ("MONITOR",),
            REPLICA: ("GET", "a"),
            BACKUP: ("CONFIG", "GET", "masterauth"),
            "mooring-sentinel": ("CONFIG", "GET", "masterauth"),
            "mooring-exporter": ("KEYS", "*"),
        }
        for name, words in refused.items():
            async with PATIENT.link(address, password=[(name, ACCOUNTS[name])]) as one:
                assert one.login == (name, ACCOUNTS[name])
                with pytest.raises(Refused, match="NOPERM"):
                    await one.call(*words)

        os.mkfifo(tmp_path / "data")
        reading = asyncio.create_task(asyncio.to_thread((tmp_path / "data").read_bytes))
        async with server(tmp_path / "b", f"replicaof {address.ip} 6379") as replica:
            async with PATIENT.link(replica, password="of-all") as behind:
                await behind.call("CONFIG", "SET", "masteruser", REPLICA)
                await behind.call("CONFIG", "SET", "masterauth", ACCOUNTS[REPLICA])
            await given(replica, Scene(users=[], default=OFF).access)
            async with operators(replica) as behind:
                while "master_link_status:up" not in await behind.call("INFO", "replication"):
                    await asyncio.sleep(0.05)
            source = Source(pods=[Candidate(pod="c-0", ip=replica.ip)], parts=["data"])
            facts = await read_all(source, password="of-all", account=ACCOUNTS[BACKUP], run=tmp_path)
        assert facts["source"] == "c-0"
        assert (await reading).startswith(b"REDIS")
