"""A shell in a container: with the user's rights, opened by the console's own page alone, and ended in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from tests.console.bed import ANN, BOB
from tests.console.served import HOST, ORIGIN, Browser, Cluster, cluster

from mooring.console import Upstream, terminal
from mooring.console.session import Session
from mooring.console.terminal import Ending
from mooring.kube import MergePatch, Unauthorized
from mooring.kube.objects.core import Pod

ONE = "/api/v1/namespaces/team-a/instances/redis-sentinel/cache/pods/cache-0/terminal?container=redis"
TYPED = "echo s3cret-word"


class Node:
    """Stands for the node agent: its shell says back what it is sent, and ends at `exit`."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []

    async def exec(
        self, namespace: str, pod: str, container: str, command: Sequence[str], **streams: Any
    ) -> int:
        self.commands.append([namespace, pod, container, *command])
        async for typed in streams["stdin"]:
            if b"exit" in typed:
                break
            await streams["stdout"](b"said: " + typed)
        return 0


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[Cluster, Node]]:
    """A cluster with a running pod, in whose namespace Ann may open a shell, and Bob may only look at it."""
    async with cluster(tmp_path) as made:
        node = Node()
        made.server.cluster.gateway = node  # type: ignore[assignment]
        pods = "/api/v1/namespaces/team-a/pods"
        container = {"name": "redis", "image": "redis:7.0"}
        spec = {"nodeName": "node", "containers": [container]}
        await made.post(pods, {"metadata": {"name": "cache-0"}, "spec": spec})
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        running = {**container, "imageID": "redis", "ready": True, "restartCount": 0, "state": state}
        patch = MergePatch({"status": {"phase": "Running", "containerStatuses": [running]}})
        await made.admin.patch(Pod, "cache-0", patch, namespace="team-a", subresource="status")
        await made.grant("team-a", ["create", "get"], user="ann", resource="pods/exec")
        await made.grant("team-a", ["get"], user="bob", resource="pods/exec")
        yield made, node


async def opened(browser: Browser, **headers: str | None) -> aiohttp.ClientWebSocketResponse:
    """What the page does to open a terminal; raises for a refusal before it is one."""
    sent: dict[str, str | None] = {"Host": HOST, "Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
    sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    word = sent.pop("word", f"csrf.{browser.csrf}")
    return await browser.http.ws_connect(
        browser.url + ONE,
        protocols=[terminal.PROTOCOL, *([word] if word else [])],
        headers={name: value for name, value in sent.items() if value is not None},
    )


async def ended(socket: aiohttp.ClientWebSocketResponse) -> int | None:
    async for _ in socket:
        pass
    return socket.close_code


async def test_a_shell_has_the_users_rights_and_leaves_a_record(place: tuple[Cluster, Node]) -> None:
    made, node = place
    ann = await made.browser(await made.console(terminal=True)).signed_in(ANN)
    assert (await ann.send("GET", "session")).json["terminal"] is True
    where = "permissions?namespace=team-a&entry=redis-sentinel"
    assert (await ann.send("GET", where)).json["terminal"] == "allowed"
    with structlog.testing.capture_logs() as logs:
        socket = await opened(ann)
        await socket.send_str(TYPED)
        assert await socket.receive_str() == f"said: {TYPED}"
        await socket.send_str("exit")
        assert await ended(socket) == Ending.ENDED
    assert node.commands == [["team-a", "cache-0", "redis", *terminal.COMMAND]]
    told = [one for one in logs if one["event"] == "action"]
    assert [(one["action"], one["user"], one["pod"]) for one in told] == [
        ("terminal", "ann", "cache-0"),
        ("terminal ended", "ann", "cache-0"),
    ]
    assert "s3cret" not in repr(logs)
    audited = [one for one in await made.audited() if one["objectRef"].get("subresource") == "exec"]
    assert {one["user"]["username"] for one in audited} == {"ann"}, (
        "the API server saw the user, not the console"
    )


async def test_who_may_not_create_exec_gets_no_shell(place: tuple[Cluster, Node]) -> None:
    made, node = place
    bob = await made.browser(await made.console(terminal=True)).signed_in(BOB)
    where = "permissions?namespace=team-a&entry=redis-sentinel"
    assert (await bob.send("GET", where)).json["terminal"] == "denied"
    with structlog.testing.capture_logs() as logs:
        assert await ended(await opened(bob)) == Ending.DENIED
    assert node.commands == []
    assert [(one["action"], one["result"]) for one in logs if one["event"] == "action"] == [
        ("terminal", "Forbidden")
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": None},
        {"Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"word": ""},
        {"word": "csrf.guessed"},
        {"Cookie": "__Host-mooring-console=x"},
    ],
    ids=lambda each: "-".join(each),
)
async def test_no_other_page_opens_a_shell(
    place: tuple[Cluster, Node], headers: dict[str, str | None]
) -> None:
    made, node = place
    ann = await made.browser(await made.console(terminal=True)).signed_in(ANN)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await opened(ann, **headers)
    assert refused.value.status in (401, 403)
    assert node.commands == []
    await (await opened(ann)).close()


async def test_a_console_that_is_not_told_to_opens_no_shell(place: tuple[Cluster, Node]) -> None:
    made, node = place
    ann = await made.browser(await made.console()).signed_in(ANN)
    assert (await ann.send("GET", "session")).json["terminal"] is False
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await opened(ann)
    assert node.commands == []


async def test_a_shell_without_input_is_closed(
    place: tuple[Cluster, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "LOOK", 0.01)
    monkeypatch.setattr(terminal, "IDLE", 0.05)
    made, _ = place
    ann = await made.browser(await made.console(terminal=True)).signed_in(ANN)
    assert await ended(await opened(ann)) == Ending.IDLE


async def test_signing_out_and_losing_the_right_end_a_shell(
    place: tuple[Cluster, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "LOOK", 0.01)
    monkeypatch.setattr(terminal, "RECHECK", 0.01)
    monkeypatch.setattr("mooring.console.access.FRESH", 0.0)
    made, _ = place
    ann = await made.browser(await made.console(terminal=True)).signed_in(ANN)
    socket = await opened(ann)
    await ann.send("DELETE", "session")
    assert await ended(socket) == Ending.SIGNED_OUT
    socket = await opened(await ann.signed_in(ANN))
    await socket.send_str("there?")
    assert await socket.receive_str() == "said: there?"
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings/ann-pods-exec"
    await made.admin.request("DELETE", path)
    assert await ended(socket) == Ending.DENIED


async def test_a_container_that_is_not_there_is_said_to_be_missing(place: tuple[Cluster, Node]) -> None:
    made, _ = place
    ann = await made.browser(await made.console(terminal=True)).signed_in(ANN)
    await made.admin.request("DELETE", "/api/v1/namespaces/team-a/pods/cache-0?gracePeriodSeconds=0")
    assert await ended(await opened(ann)) == Ending.MISSING


async def test_a_terminal_that_does_not_open_in_time_makes_room(
    place: tuple[Cluster, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def hangs(*given: Any, **more: Any) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    made, _ = place
    ann = await made.browser(await made.console(terminal=True)).signed_in(ANN)
    with monkeypatch.context() as stuck:
        stuck.setattr(terminal, "CONNECT_SECONDS", 0.01)
        stuck.setattr(terminal, "USER_TERMINALS", 1)
        stuck.setattr(Upstream, "websocket", hangs)
        async with asyncio.timeout(20):
            assert await ended(await opened(ann)) == Ending.FAILED
            assert await ended(await opened(ann)) == Ending.FAILED, "its place is free"


@pytest.mark.parametrize(
    ("error", "ending"),
    [(Unauthorized("gone", status=401), Ending.SIGNED_OUT), (RuntimeError("a defect"), Ending.FAILED)],
    ids=["unauthorized", "defect"],
)
async def test_what_fails_before_the_shell_is_said_in_the_close(
    place: tuple[Cluster, Node], monkeypatch: pytest.MonkeyPatch, error: Exception, ending: Ending
) -> None:
    async def fails(*given: Any) -> str:
        raise error

    monkeypatch.setattr(terminal, "may_open", fails)
    made, _ = place
    ann = await made.browser(await made.console(terminal=True)).signed_in(ANN)
    assert await ended(await opened(ann)) == ending


async def test_terminals_are_counted_by_user(
    place: tuple[Cluster, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "USER_TERMINALS", 1)
    made, _ = place
    # Another credential of the same user is no other user.
    monkeypatch.setattr(Session, "identity", property(lambda session: session.id))
    url = await made.console(terminal=True)
    ann, again = await made.browser(url).signed_in(ANN), await made.browser(url).signed_in(ANN)
    socket = await opened(ann)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await opened(again)
    assert refused.value.status == 429
    await socket.close()
