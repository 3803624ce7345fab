"""Both operators' steps on a real server: the password in force is the only one that is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from mooring.actor import StepFailed
from mooring.operators.redis.cluster.moves import Target as ClusterTarget
from mooring.operators.redis.cluster.steps import Steps as ClusterSteps
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.redis.passwords.moves import ServerAuth, SetPassword, SwitchPassword
from mooring.operators.redis.passwords.seen import Auth
from mooring.operators.redis.sentinel.moves import Target
from mooring.operators.redis.sentinel.steps import Steps
from mooring.operators.workload.credentials import Kept

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]

OLD, NEW = "the-old-one", "the new one"
PATIENT = Dial(connect_timeout=10.0, reply_timeout=10.0)

Drop = Callable[[Address, Kept], Awaitable[object]]


@pytest.fixture
async def restarted(tmp_path: Path) -> AsyncIterator[Address]:
    """A server that restarted during a change: started with the new password, the old one was added since."""
    address = Address(f"127.{random.randint(10, 250)}.0.1", 6379)
    conf = tmp_path / "redis.conf"
    conf.write_text(
        f'bind {address.ip}\nport {address.port}\ndir {tmp_path}\nsave ""\ncluster-enabled yes\nrequirepass "{NEW}"\nmasterauth "{NEW}"\n'
    )
    process = await asyncio.create_subprocess_exec(
        "redis-server", str(conf), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        while not await serves(address, NEW):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        async with PATIENT.link(address, password=NEW) as link:
            await link.call("ACL", "SETUSER", "default", f">{OLD}")
        yield address
    finally:
        process.kill()
        await process.wait()


async def serves(address: Address, password: str) -> bool:
    """Whether a new connection with exactly this password (or none) is served."""
    try:
        async with PATIENT.link(address) as link:
            if password:
                await link.call("AUTH", password)
            return str(await link.call("PING")) == "PONG"
    except DialError:
        return False


async def by_sentinel(address: Address, kept: Kept) -> object:
    server = ServerAuth(target=Target(name="redis-0", address=address), auth=Auth(two=True))
    return await Steps(Dial(), kept=kept).run(SetPassword(targets=(server,)))


async def by_cluster(address: Address, kept: Kept) -> None:
    server = ServerAuth(target=ClusterTarget(name="demo-0", address=address), auth=Auth(two=True))
    await ClusterSteps(Dial(), kept=kept).run(SetPassword(targets=(server,)))


@pytest.mark.parametrize("drop", [by_sentinel, by_cluster])
@pytest.mark.parametrize("password", [NEW, ""], ids=["another", "none"])
async def test_the_old_password_is_dropped_though_requirepass_is_the_new_one_already(
    restarted: Address, drop: Drop, password: str
) -> None:
    assert await serves(restarted, OLD)
    # Also after a further change, to none, of which the server was not told yet.
    await drop(restarted, Kept(password=password, previous=OLD if password else NEW))
    assert await serves(restarted, password)
    assert await serves(restarted, "") is (password == "")
    assert not await serves(restarted, OLD)


async def test_another_node_at_the_address_of_one_that_was_seen_is_sent_no_password(
    restarted: Address,
) -> None:
    seen = ClusterTarget(name="demo-0", address=restarted, id="f" * 40)
    server = ServerAuth(target=seen, auth=Auth(two=True))
    kept = Kept(password="the-next-one", previous=OLD)
    for move in (SwitchPassword(targets=(server,)), SetPassword(targets=(server,))):
        with pytest.raises(StepFailed, match=r"is not ffff.* any more"):
            await ClusterSteps(Dial(), kept=kept).run(move)
    assert await serves(restarted, OLD)
    assert not await serves(restarted, "the-next-one")
