"""Snapshots of a real server: complete, or an error."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.operators.redis.cluster.servers import servers

from mooring.operators.redis.address import Address
from mooring.operators.redis.backup.rdb import head_of
from mooring.operators.redis.backup.reader import Candidate, NotRead, Source, read_all
from mooring.operators.redis.backup.sync import Snapshot, open_snapshot
from mooring.operators.redis.backup.wire import Cut, Denied
from mooring.operators.workload.certificates import trust
from mooring.runtime.webhooks_certificates import Lifetimes, renewed

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]

FILL = "for i = 1, 20000 do redis.call('SET', 'key:' .. i, string.rep(redis.sha1hex(i), 20)) end"


@pytest.mark.parametrize("diskless", ["yes", "no"])
async def test_a_snapshot_is_what_the_server_has_and_says_so(tmp_path: Path, diskless: str) -> None:
    async with servers(tmp_path, 0) as nodes:
        await nodes.start(0, clustered=False)
        await nodes.call(0, "CONFIG", "SET", "repl-diskless-sync", diskless)
        await nodes.call(0, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
        await nodes.call(0, "EVAL", FILL, 0)
        data = await read(nodes.address(0))
        head = head_of(data)
        assert head is not None
        assert head.first == (0, 20000)
        async with open_snapshot(nodes.address(0)) as snapshot:
            assert snapshot.replid == head.aux["repl-id"]
        (tmp_path / "whole.rdb").write_bytes(data)
        check = await asyncio.create_subprocess_exec(
            "redis-check-rdb", str(tmp_path / "whole.rdb"), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await check.communicate()
        assert check.returncode == 0
        assert b"20000 keys read" in said


async def drained(snapshot: Snapshot) -> bytes:
    return b"".join([piece async for piece in snapshot.data])


async def read(address: Address, tls: ssl.SSLContext | None = None) -> bytes:
    async with open_snapshot(address, tls=tls) as snapshot:
        return await drained(snapshot)


async def test_a_server_that_dies_meanwhile_gives_no_snapshot(tmp_path: Path) -> None:
    async with servers(tmp_path, 0) as nodes:
        await nodes.start(0, clustered=False)
        await nodes.call(0, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
        await nodes.call(0, "EVAL", FILL, 0)
        async with open_snapshot(nodes.address(0)) as snapshot:
            first = await anext(snapshot.data)
            assert first.startswith(b"REDIS")
            await nodes.kill(0)
            with pytest.raises(Cut):
                await drained(snapshot)


async def test_a_replica_without_its_master_and_a_wrong_password_are_told_apart(tmp_path: Path) -> None:
    async with servers(tmp_path, 0) as nodes:
        await nodes.start(0, clustered=False)
        await nodes.call(0, "REPLICAOF", "192.0.2.1", 6379)
        with pytest.raises(Denied, match="NOMASTERLINK"):
            await read(nodes.address(0))
        await nodes.call(0, "CONFIG", "SET", "requirepass", "right")
        with pytest.raises(Denied, match="does not accept the password") as refused:
            async with open_snapshot(nodes.address(0), password="wrong-one"):
                pass
        assert "wrong-one" not in str(refused.value)


async def test_a_server_with_a_certificate_of_another_authority_is_not_read(tmp_path: Path) -> None:
    made = [
        renewed(None, names=["localhost"], now=datetime.now(UTC), lifetimes=Lifetimes()) for _ in range(2)
    ]
    theirs, other = (one.to_secret() for one in made)
    for name, text in theirs.items():
        await asyncio.to_thread((tmp_path / name).write_bytes, base64.b64decode(text))
    async with servers(tmp_path, 0) as nodes:
        ip = nodes.address(0).ip
        process = await asyncio.create_subprocess_exec(
            *("redis-server", "--bind", ip, "--port", "0", "--tls-port", "6380", "--dir", str(tmp_path)),
            *("--tls-cert-file", str(tmp_path / "tls.crt"), "--tls-key-file", str(tmp_path / "tls.key")),
            *("--tls-ca-cert-file", str(tmp_path / "ca.crt"), "--tls-auth-clients", "no"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(20):
                while True:
                    try:
                        assert head_of(await read(Address(ip, 6380), tls=trust(theirs))) is not None
                        break
                    except Cut:
                        await asyncio.sleep(0.05)
            os.mkfifo(tmp_path / "data")
            source = Source(pods=[Candidate(pod="c-0", ip=ip, port=6380)], parts=["data"])
            with pytest.raises(NotRead, match="certificate verify failed"):
                await read_all(source, password="", run=tmp_path, tls=trust(other))
            with pytest.raises(Cut, match="certificate verify failed"):
                await read(Address(ip, 6380), tls=trust(other))
        finally:
            process.kill()
            await process.wait()


async def test_a_master_is_not_read_where_a_replica_is_meant(tmp_path: Path) -> None:
    async with servers(tmp_path, 0) as nodes:
        await nodes.start(0, clustered=False)
        os.mkfifo(tmp_path / "data")
        source = Source(pods=[Candidate(pod="c-0", ip=nodes.address(0).ip)], parts=["data"])
        with pytest.raises(NotRead, match="it is the master"):
            await read_all(source, password="", run=tmp_path)
