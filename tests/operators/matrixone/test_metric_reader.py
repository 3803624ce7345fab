"""The SQL user that reads the metrics: made once, made again with another password, and no harm to the cluster if it cannot be."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.operators.matrixone.builders import typed
from tests.operators.matrixone.living import CLUSTER, Life, living
from tests.operators.matrixone.test_cluster import cluster

from mooring.actor import Wait
from mooring.kube import MergePatch
from mooring.kube.object import to_dict
from mooring.kube.objects.core import Event, Secret
from mooring.operators.matrixone import sql
from mooring.operators.matrixone.cluster.metrics import CONDITION, USER, MakeReader, Reader, statements
from mooring.operators.matrixone.cluster.status import decide, report
from mooring.operators.matrixone.sql import Login, Sql, SqlFailed
from mooring.operators.matrixone.types import MatrixOneCluster
from mooring.operators.workload.credentials import secret_value

WITH_READER = {**CLUSTER, "cnGroups": [{"name": "main", "replicas": 1}], "metricReaderEnabled": True}


@dataclass
class Server:
    """What is asked of a compute node; it does not let anybody in while it is ``closed``."""

    asked: list[tuple[str, int, Login, list[str]]] = field(default_factory=list)
    closed: bool = False

    async def run(
        self, host: str, port: int, login: Login, given: Sequence[tuple[str, str]], *, where: str
    ) -> None:
        self.asked.append((host, port, login, [one for _, one in given]))
        if self.closed:
            raise SqlFailed("LoginRejected", f"{where} does not let the user {login.user} in (error 1045)")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(Sql, "run", lambda _, *given, **how: made.run(*given, **how))
    return made


async def condition(life: Life, kind: str) -> tuple[str, str, str]:
    """Status, reason and message."""
    found = await life.get(MatrixOneCluster, "mo")
    seen = (found.status.conditions if found.status is not None else None) or ()
    one = next((one for one in seen if one.type == kind), None)
    return (one.status or "", one.reason or "", one.message or "") if one is not None else ("", "", "")


async def is_made(life: Life) -> bool:
    return (await condition(life, CONDITION))[:2] == ("True", "Made")


async def password(life: Life, name: str) -> str:
    return secret_value(await life.get(Secret, name), "password")


async def test_the_user_is_made_once_and_again_where_its_secret_is_deleted(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    async with living() as life:
        await life.make(MatrixOneCluster, "mo", WITH_READER)
        await life.until(lambda: is_made(life), "the user that reads the metrics")
        await life.ready()
        first, words = await password(life, "mo-credential"), await password(life, "mo-metric")
        assert len(server.asked) == 1
        _, port, login, asked = server.asked[0]
        assert (port, login.user, login.password) == (6001, "dump", first)
        assert asked == [one for _, one in statements(words)]
        assert len(words) >= 20
        found = await life.get(MatrixOneCluster, "mo")
        assert to_dict(found)["status"]["clusterMetrics"] == {
            "secretRef": {"name": "mo-metric"},
            "initialized": True,
        }
        await life.plane.settle()
        version = (await life.get(MatrixOneCluster, "mo")).metadata.resource_version
        await asyncio.sleep(60.0)
        assert len(server.asked) == 1
        assert (await life.get(MatrixOneCluster, "mo")).metadata.resource_version == version

        await life.client.delete(Secret, "mo-metric", namespace="default")

        async def again() -> bool:
            return len(server.asked) == 2 and await is_made(life)

        await life.until(again, "the user has another password")
        another = await password(life, "mo-metric")
        assert another != words
        assert server.asked[1][3] == [one for _, one in statements(another)]
        said = capsys.readouterr()
        shown = [to_dict(one) for one in (await life.client.list(Event, namespace="default")).items]
        shown.append(to_dict(await life.get(MatrixOneCluster, "mo")))
        for secret in (first, words, another):
            assert secret not in f"{said.out}{said.err}{shown}"


async def test_a_user_that_cannot_be_made_is_reported_and_tried_again_while_the_cluster_is_ready(
    server: Server,
) -> None:
    async with living() as life:
        server.closed = True
        await life.make(MatrixOneCluster, "mo", WITH_READER)
        await life.ready()
        await life.until(lambda: _failed(life), "the failure is reported")
        assert (await condition(life, CONDITION))[2] == (
            "default/mo-main-cn-0 does not let the user dump in (error 1045); it is tried again every 30 s"
        )
        assert ((await condition(life, "Ready"))[0], (await condition(life, "Synced"))[0]) == ("True", "True")
        tries = len(server.asked)
        await asyncio.sleep(45.0)
        assert 1 <= len(server.asked) - tries <= 2
        server.closed = False
        assert await life.until(lambda: is_made(life), "the user that reads the metrics") <= 31.0

        body = MergePatch({"spec": {"metricReaderEnabled": None}})
        await life.client.patch(MatrixOneCluster, "mo", body, namespace="default")

        async def unsaid() -> bool:
            return await condition(life, CONDITION) == ("", "", "")

        await life.until(unsaid, "the condition is gone")
        assert await life.there(Secret, "mo-metric"), "who reads the metrics still may"


def test_a_cluster_is_as_declared_before_the_user_is_made() -> None:
    reader = Reader(pod="mo-tp-cn-0", address="10.0.0.1")
    seen = replace(
        cluster(), cluster=typed("MatrixOneCluster", spec__metricReaderEnabled=True), reader=reader
    )
    verdict = decide(seen)
    assert isinstance(verdict, MakeReader)
    conditions: Any = getattr(report(seen, verdict).status, "conditions", None)
    synced = [(one.status, one.reason) for one in conditions if one.type == "Synced"]
    assert synced == [("True", "AllSetsSynced")]
    assert isinstance(decide(replace(cluster(DNSet="Synced"), reader=reader)), Wait), "the sets come first"


async def _failed(life: Life) -> bool:
    return (await condition(life, CONDITION))[:2] == ("False", "LoginRejected")


@pytest.mark.parametrize("text", ["", "it's", "back\\slash", "two words", "schlüssel"])
def test_a_password_that_a_statement_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has no password, or one with"):
        statements(text)


# --- the connection


def packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


GREETING = (
    b"\x0a8.0.30\x00" + struct.pack("<I", 1) + b"12345678\x00" + struct.pack("<HBHH", 0xF7FF, 45, 2, 0xDF)
)
GREETING += b"\x15" + bytes(10) + b"123456789012\x00mysql_native_password\x00"
OK = b"\x00\x00\x00\x02\x00\x00\x00"


@asynccontextmanager
async def listening(*, greets: bool) -> AsyncIterator[int]:
    """A server that quotes every statement which it refuses, or one that never says anything."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if greets:
                writer.write(packet(0, GREETING))
                await _packet(reader)
                writer.write(packet(2, OK))
            while True:
                body = await _packet(reader)
                refused = b"\xff" + struct.pack("<H", 1064) + b"#42000near '" + body[1:] + b"'"
                writer.write(packet(1, OK if body[1:4].lower() == b"set" else refused))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    serving = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with serving:
        yield serving.sockets[0].getsockname()[1]


async def _packet(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(head[:3], "little"))


async def asked_of(port: int, fence: Any = lambda: None) -> SqlFailed:
    """How making the user fails."""
    login = Login(user="dump", password="first-secret")
    with pytest.raises(SqlFailed) as failed:
        await Sql(fence).run("127.0.0.1", port, login, statements("second-secret")[1:], where="ns/cn")
    assert "secret" not in f"{failed.value!r} {login!r}"
    return failed.value


async def test_a_server_that_quotes_a_refused_statement_reveals_nothing() -> None:
    async with listening(greets=True) as port:
        error = await asked_of(port)
    assert (error.reason, str(error)) == (
        "StatementRefused",
        f"ns/cn refused the user {USER} with error 1064",
    )
    assert error.__cause__ is None


async def test_a_server_that_never_greets_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "CONNECT", 0.1)
    async with listening(greets=False) as port, asyncio.timeout(2.0):
        assert (await asked_of(port)).reason == "ServerUnreachable"
    assert (await asked_of(port)).reason == "ServerUnreachable", "nobody listens any more"


async def test_a_lost_lease_sends_no_statement() -> None:
    sent = 0

    def fence() -> None:
        nonlocal sent
        sent += 1
        if sent > 1:
            raise RuntimeError("the lease is lost")

    async with listening(greets=True) as port:
        login = Login(user="dump", password="first-secret")
        with pytest.raises((RuntimeError, SqlFailed)) as failed:
            await Sql(fence).run("127.0.0.1", port, login, statements("x"), where="ns/cn")
    assert str(failed.value) == "the lease is lost"
