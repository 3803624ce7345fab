"""The console's server, over the embedded API server in this process: sessions, access, secrets, streams."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web
from tests.console.bed import ADMIN, ANN, BOB, REDIS, SECRET, VALUES, Bed, Browser, Json

from mooring.cache import SystemClock
from mooring.catalog import MASKED, packaged
from mooring.console import Access, Console, ConsoleOptions, Sessions, SignedOut, Upstream, Watches
from mooring.console.session import IDLE, LONGEST, own_session
from mooring.console.stream import View
from mooring.kube import Config, TransportError, Unauthorized
from mooring.testing import VirtualClock


async def test_the_link_signs_in_once(bed: Bed, browsers: list[Browser]) -> None:
    first, second, _ = browsers
    link = bed.console.link
    async with first.http.get(link, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert (await first.ok("GET", "session"))["user"] == "root"
    async with second.http.get(link, allow_redirects=False) as answer:
        assert answer.headers["Location"] == "/#/signin?refused=link"
        assert "Set-Cookie" not in answer.headers
    assert (await second.send("GET", "session"))[0] == 401


async def test_a_wrong_or_replaced_link_signs_nobody_in(bed: Bed, browsers: list[Browser]) -> None:
    old = bed.console.link
    new = bed.console.link
    for url in (old, re.sub("token=.*", "token=", new), new + "x"):
        async with browsers[0].http.get(url, allow_redirects=False) as answer:
            assert "Set-Cookie" not in answer.headers
    async with browsers[0].http.get(new, allow_redirects=False) as answer:
        assert "Set-Cookie" in answer.headers


@pytest.mark.parametrize("token", ["", "wrong", "a b", "a\nb", "x" * 7000, None, ["a"]])
async def test_a_wrong_token_is_refused(browsers: list[Browser], token: Json) -> None:
    status, problem, _ = await browsers[0].send("POST", "session", {"token": token})
    assert status in (400, 401, 413)
    assert problem["status"] == status
    assert (await browsers[0].send("GET", "session"))[0] == 401


async def test_wrong_tokens_are_slowed_down(browsers: list[Browser]) -> None:
    answers = [(await browsers[0].send("POST", "session", {"token": f"wrong{n}"}))[0] for n in range(12)]
    assert answers[0] == 401
    assert answers[-1] == 429


async def test_every_route_but_sign_in_needs_a_session(bed: Bed, browsers: list[Browser]) -> None:
    one = "namespaces/default/instances/redis-sentinel/a"
    routes = [
        "session",
        "catalog",
        "catalog/redis-sentinel",
        "namespaces",
        "instances",
        "permissions",
        "stream",
    ]
    for path in (*routes, one, one + "/events", "nothing"):
        status, problem, _ = await browsers[0].send("GET", path)
        assert (status, problem["code"]) == (401, "SignedOut"), path
    assert (await browsers[0].send("POST", "namespaces/default/instances", {}))[0] == 401
    assert (await browsers[0].send("DELETE", one + "?uid=x"))[0] == 401
    assert (await browsers[0].send("DELETE", "session"))[0] == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X_Mooring_Csrf": "wrong"}, 403),
        ({"X_Mooring_Csrf": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost@evil.example"}, 421),
        ({"Content_Type": "text/plain"}, 415),
    ],
)
async def test_a_change_from_elsewhere_is_refused(
    bed: Bed, browsers: list[Browser], headers: dict[str, str], status: int
) -> None:
    browser = await browsers[0].signed_in(ADMIN)
    body = {"entry": "redis-sentinel", "name": "a", "values": VALUES}
    answer, problem, _ = await browser.send("POST", "namespaces/default/instances", body, **headers)
    assert answer == status, problem
    assert (await browser.ok("GET", "instances"))["rows"] == []
    assert (await browser.send("POST", "namespaces/default/instances", body))[0] == 201


async def test_every_answer_has_the_headers_that_keep_a_browser_safe(
    bed: Bed, browsers: list[Browser]
) -> None:
    browser = await browsers[0].signed_in(ADMIN)
    for path in ("/", "/api/v1/session", "/api/v1/nothing", "/api/v1/stream", "/nothing", "/?token=x"):
        async with browser.http.get(bed.url + path, allow_redirects=False) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_the_page_has_no_inline_script_or_style(bed: Bed, browsers: list[Browser]) -> None:
    async with browsers[0].http.get(bed.url) as answer:
        page = await answer.text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    [script] = re.findall(r'src="(/assets/[^"]+)"', page)
    async with browsers[0].http.get(bed.url + script) as answer:
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]
    async with browsers[0].http.get(bed.url + "/assets/%2e%2e/%2e%2e/server.py") as answer:
        assert answer.status in (403, 404)


async def test_a_session_that_was_ended_is_of_no_use_any_more(bed: Bed, browsers: list[Browser]) -> None:
    browser = await browsers[0].signed_in(ADMIN)
    [cookie] = [f"{c.key}={c.value}" for c in browser.http.cookie_jar]
    await browser.ok("DELETE", "session")
    assert (await browsers[1].send("GET", "session", Cookie=cookie))[1]["detail"] == "The session is over."


def test_a_cookie_that_was_touched_or_is_old_is_no_session() -> None:
    clock = VirtualClock()
    sessions = Sessions(clock, port=1)
    session = sessions.begin(user="ann", token="t")
    [sealed] = sessions.seal(session).values()
    assert sessions.read({sessions.cookie: sealed}) == session
    assert "ann" not in sealed
    other = "B" if sealed[0] == "A" else "A"
    for wrong in (sealed[:-8] + "AAAAAAAA", other + sealed[1:], "", "x", "ü", sealed[:20]):
        with pytest.raises(SignedOut):
            sessions.read({sessions.cookie: wrong})
    with pytest.raises(SignedOut):  # another process, another key
        Sessions(clock, port=1).read({sessions.cookie: sealed})
    for seen, born in ((IDLE + 1, 0.0), (0.0, LONGEST + 1)):
        now = clock.boottime()
        old = replace(session, seen=now - seen, born=now - max(born, seen))
        with pytest.raises(SignedOut, match="expired"):
            sessions.read(sessions.seal(old))
    with pytest.raises(ValueError, match="too long"):
        sessions.seal(replace(session, token="x" * 9000))
    with pytest.raises(ValueError, match="nobody"):
        sessions.begin(user="ann", token="")
    assert "'t'" not in repr(session)


async def test_a_user_sees_what_their_rights_are_and_nothing_else(bed: Bed, browsers: list[Browser]) -> None:
    await bed.redis("team-a", "mine", size=3)
    await bed.redis("team-b", "theirs", size=3)
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["get", "list", "watch"])
    ann, bob, root = browsers
    await ann.signed_in(ANN)
    await bob.signed_in(BOB)
    await root.signed_in(ADMIN)
    found = await ann.ok("GET", "instances")
    assert [row["name"] for row in found["rows"]] == ["mine"]
    assert {"matrixone", "mysql", "redis-cluster", "redis-backup"} <= set(found["denied"])
    assert "redis-sentinel" not in found["denied"]
    assert (await ann.ok("GET", "namespaces"))["namespaces"] == ["team-a"]
    assert (await ann.ok("GET", "instances?namespace=team-b"))["rows"] == []
    assert [row["name"] for row in (await root.ok("GET", "instances"))["rows"]] == ["mine", "theirs"]
    nothing = await bob.send("GET", "instances")
    assert nothing[1]["rows"] == []
    for browser in (ann, bob):
        for path in ("instances", "namespaces", "instances?namespace=team-b", "catalog"):
            text = (await browser.send("GET", path))[2]
            assert "theirs" not in text
            assert "team-b" not in text
    theirs = "namespaces/team-b/instances/redis-sentinel/theirs"
    assert (await ann.send("GET", theirs))[0] == 403
    focus = "instances?entry=redis-sentinel&namespace=team-b&name=theirs"
    assert (await ann.ok("GET", focus))["instance"] is None
    # A reader reads: what changes something is refused by the API server, whatever the page shows.
    mine = "namespaces/team-a/instances/redis-sentinel/mine"
    uid = (await ann.ok("GET", mine))["object"]["metadata"]["uid"]
    assert (await ann.send("DELETE", f"{mine}?uid={uid}"))[0] == 403
    body = {"entry": "redis-sentinel", "name": "new", "values": VALUES}
    assert (await ann.send("POST", "namespaces/team-a/instances", body))[0] == 403
    assert (await ann.ok("GET", "permissions?entry=redis-sentinel&namespace=team-a")) == {
        "create": "denied",
        "get": "allowed",
        "patch": "denied",
        "delete": "denied",
        "terminal": "denied",
    }
    assert (await ann.ok("GET", f"{focus.replace('team-b', 'team-a').replace('theirs', 'mine')}"))[
        "events"
    ] is None


async def test_an_instance_is_created_shown_and_deleted(bed: Bed, browsers: list[Browser]) -> None:
    browser = await browsers[0].signed_in(ADMIN)
    body = {"entry": "redis-sentinel", "name": "cache", "values": VALUES}
    tried = await browser.ok("POST", "namespaces/team-a/instances?dryRun=true", body)
    assert "kind: RedisCluster" in tried["yaml"]
    assert (await browser.ok("GET", "instances"))["rows"] == []
    await browser.ok("POST", "namespaces/team-a/instances", body)
    status, problem, _ = await browser.send("POST", "namespaces/team-a/instances", body)
    assert (status, problem["errors"][0]["field"]) == (409, "name")
    path = "namespaces/team-a/instances/redis-sentinel/cache"
    uid = (await browser.ok("GET", path))["object"]["metadata"]["uid"]
    assert (await browser.send("DELETE", path))[1]["code"] == "UidMissing"
    assert (await browser.send("DELETE", path + "?uid=another"))[0] == 409
    await browser.ok("DELETE", f"{path}?uid={uid}")
    assert (await browser.send("GET", path))[0] == 404


async def test_what_is_wrong_is_told_at_the_field(bed: Bed, browsers: list[Browser]) -> None:
    browser = await browsers[0].signed_in(ADMIN)
    body = {"entry": "redis-sentinel", "name": "A", "values": {**VALUES, "size": 99, "odd": 1}}
    status, problem, _ = await browser.send("POST", "namespaces/team-a/instances?dryRun=true", body)
    assert status == 422
    assert {error["field"] for error in problem["errors"]} == {"name", "size", "odd"}
    # What only the API server knows: the form of the basic entry leaves the rule to it.
    basic = {"entry": "crd-redisclusters.redis.kun", "name": "a", "values": {"sentinel.replicas": 2}}
    status, problem, _ = await browser.send("POST", "namespaces/team-a/instances?dryRun=true", basic)
    assert (status, [error["field"] for error in problem["errors"]]) == (422, ["sentinel.replicas"])
    assert "yaml" in problem


@pytest.mark.parametrize(
    "path",
    [
        "namespaces/team-a%2f..%2fteam-b/instances/redis-sentinel/a",
        "namespaces/team-a/instances/redis-sentinel/..",
        "namespaces/team-a/instances/crd-..%2fsecrets/a",
        "namespaces/team-a/instances/secrets/a",
        "instances?namespace=../kube-system",
    ],
)
async def test_names_stay_names(bed: Bed, browsers: list[Browser], path: str) -> None:
    browser = await browsers[0].signed_in(ADMIN)
    assert (await browser.send("GET", path))[0] in (400, 404)


async def test_no_secret_comes_out(bed: Bed, browsers: list[Browser]) -> None:
    browser = await browsers[0].signed_in(ADMIN)
    await bed.redis("team-a", "old", size=3, password=SECRET, config={"masterauth": SECRET})
    values = {"replicas": 6, "image": "redis:7.0", "password": SECRET}
    body = {"entry": "redis-cluster", "name": "shop", "values": values}
    texts = [(await browser.send("POST", "namespaces/team-a/instances?dryRun=true", body))[2]]
    texts.append((await browser.send("POST", "namespaces/team-a/instances", body))[2])
    assert MASKED in texts[-1]
    for path in (
        "instances",
        "instances?entry=redis-sentinel&namespace=team-a&name=old",
        "namespaces/team-a/instances/redis-sentinel/old",
        "namespaces/team-a/instances/redis-sentinel/old/events",
        "namespaces/team-a/instances/redis-cluster/shop",
    ):
        status, _, text = await browser.send("GET", path)
        assert status == 200
        texts.append(text)
    too_long = {**body, "name": "b", "values": {**values, "password": SECRET * 100}}
    texts.append((await browser.send("POST", "namespaces/team-a/instances", too_long))[2])
    for text in texts:
        assert SECRET not in text


async def next_message(answer: aiohttp.ClientResponse) -> tuple[str, Json]:
    kind = ""
    while True:
        line = (await answer.content.readline()).decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return kind, json.loads(line.removeprefix("data: "))
        assert not answer.content.at_eof()


async def test_changes_come_to_those_who_may_see_them(bed: Bed, browsers: list[Browser]) -> None:
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["get", "list", "watch"])
    ann, root, _ = browsers
    await ann.signed_in(ANN)
    await root.signed_in(ADMIN)
    async with asyncio.timeout(20):
        async with (
            ann.http.get(f"{bed.url}/api/v1/stream") as stream,
            root.http.get(f"{bed.url}/api/v1/stream") as all_,
        ):
            assert (await next_message(stream))[0] == "snapshot"
            assert (await next_message(all_))[1]["rows"] == []
            await bed.redis("team-b", "theirs", password=SECRET)
            kind, change = await next_message(all_)
            assert (kind, [row["name"] for row in change["rows"]]) == ("change", ["theirs"])
            assert SECRET not in json.dumps(change)
            await bed.redis("team-a", "mine")
            while True:
                kind, change = await next_message(stream)
                assert not [row for row in change["rows"] if row["namespace"] != "team-a"]
                if change["rows"]:
                    break
            assert [row["name"] for row in change["rows"]] == ["mine"]
            await bed.admin.request("DELETE", REDIS.format("team-a") + "/mine")
            while not change.get("gone"):
                kind, change = await next_message(stream)
            assert change["gone"] == [["redis-sentinel", "team-a", "mine"]]


async def test_one_stream_carries_what_several_tabs_look_at(bed: Bed, browsers: list[Browser]) -> None:
    root, ann, _ = browsers
    await root.signed_in(ADMIN)
    await ann.signed_in(ANN)
    for name in ("first", "second"):
        await bed.redis("team-a", name, size=3)
    focus = urlencode({"namespace": "team-a", "entry": "redis-sentinel", "name": "first"})
    query = urlencode([("topic", "all"), ("topic", focus), ("topic", urlencode({"namespace": "team-b"}))])
    async with asyncio.timeout(20), root.http.get(f"{bed.url}/api/v1/stream?{query}") as stream:
        seen: dict[int, Json] = {}
        while len(seen) < 3:
            kind, message = await next_message(stream)
            assert kind == "snapshot"
            seen[message["topic"]] = message
        assert [row["name"] for row in seen[0]["rows"]] == ["first", "second"]
        assert [row["name"] for row in seen[1]["rows"]] == ["first"], "one instance is in focus"
        assert seen[1]["instance"]["name"] == "first"
        assert "instance" not in seen[0]
        assert seen[2]["rows"] == []
        # What the focus does not hold is no news of it.
        await bed.admin.request("DELETE", REDIS.format("team-a") + "/second")
        kind, message = await next_message(stream)
        assert (kind, message["topic"], message["gone"][0][2]) == ("change", 0, "second")
        await bed.redis("team-b", "third")
        news = {(await next_message(stream))[1]["topic"] for _ in range(2)}
        assert news == {0, 2}
    async with asyncio.timeout(20), ann.http.get(f"{bed.url}/api/v1/stream?{query}") as stream:
        for _ in range(3):
            assert (await next_message(stream))[1]["rows"] == []
    many = urlencode([("topic", "all")] * 33)
    async with root.http.get(f"{bed.url}/api/v1/stream?{many}") as refused:
        assert refused.status == 400


async def test_what_changes_while_a_snapshot_is_sent_is_not_lost(bed: Bed) -> None:
    clock = SystemClock()
    sent: list[bytes] = []
    stop = asyncio.Event()
    upstream = Upstream(own=bed.admin.transport, bare=bed.admin.transport)
    access = Access(upstream, clock)
    own = own_session("root")
    watches = Watches(upstream, access, clock, own=own)
    entry = next(entry for entry in packaged() if entry.name == "redis-sentinel")
    view = View(session=own, access=access, watches=watches, entries=[entry])

    class Slow(web.StreamResponse):
        """A browser that reads the snapshot only when the next change is in the cache."""

        async def write(self, data: Any) -> None:
            sent.append(bytes(data))
            if len(sent) == 1:
                await bed.redis("team-a", "late")
                [informer] = await watches.instances(entry)
                while not informer.list():
                    await asyncio.sleep(0)
            elif b"late" in data:
                stop.set()

    await watches.start()
    try:
        async with asyncio.timeout(10):
            await view.send(Slow(), clock, check=lambda: None, stop=stop)
    finally:
        await watches.stop()
    assert b"late" not in sent[0]


async def test_the_console_listens_on_loopback_alone() -> None:
    console = Console(
        Upstream.of(Config(server="http://127.0.0.1:1")), ConsoleOptions(entries={}, clock=SystemClock())
    )
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))
        with pytest.raises(ValueError, match="loopback alone"):
            await console.start(sock)
    await console.stop()


async def test_a_topic_that_cannot_be_served_keeps_no_other_from_it(
    bed: Bed, browsers: list[Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, ann, _ = browsers
    await root.signed_in(ADMIN)
    await bed.redis("team-a", "first", size=3)
    lost = urlencode({"namespace": "team-a", "entry": "nothing", "name": "x"})
    query = urlencode([("topic", "all"), ("topic", lost), ("topic", "namespace=BAD_NAME")])
    async with asyncio.timeout(20), root.http.get(f"{bed.url}/api/v1/stream?{query}") as stream:
        seen: dict[int, Json] = {}
        while len(seen) < 3:
            message = (await next_message(stream))[1]
            seen[message["topic"]] = message
        assert [row["name"] for row in seen[0]["rows"]] == ["first"]
        assert seen[1] == {"topic": 1, "rows": [], "denied": [], "problem": "NoSuchEntry"}
        assert seen[2] == {"topic": 2, "rows": [], "denied": [], "problem": "NoNamespace"}
        await bed.redis("team-a", "second")
        kind, message = await next_message(stream)
        assert (kind, message["topic"], message["rows"][0]["name"]) == ("change", 0, "second")
    send, failed = View.send, False

    async def fails(view: View, *given: Json, topic: int | None = None, **more: Json) -> None:
        nonlocal failed
        if topic == 1 and not failed:
            failed = True
            raise TransportError("away")
        await send(view, *given, topic=topic, **more)

    monkeypatch.setattr(View, "send", fails)
    monkeypatch.setattr("mooring.console.api.RECHECK", 0.01)
    query = urlencode([("topic", "all"), ("topic", "namespace=team-a")])
    async with asyncio.timeout(20), root.http.get(f"{bed.url}/api/v1/stream?{query}") as stream:
        told: dict[int, list[Json]] = {0: [], 1: []}
        while len(told[1]) < 2 or not told[0]:
            message = (await next_message(stream))[1]
            told[message["topic"]].append(message)
        assert told[1][0]["problem"] == "NoAnswer"
        assert [row["name"] for row in told[1][1]["rows"]] == ["first", "second"], "it is tried again"
        assert [row["name"] for row in told[0][0]["rows"]] == ["first", "second"]
    await ann.signed_in(ANN)

    async def gone(self: View) -> bool:
        raise Unauthorized("gone", status=401)

    monkeypatch.setattr(View, "look", gone)
    async with ann.http.get(f"{bed.url}/api/v1/stream?{query}") as refused:
        assert refused.status == 401


async def test_a_stream_is_of_the_user_that_the_page_knows(bed: Bed, browsers: list[Browser]) -> None:
    ann = await browsers[0].signed_in(ANN)
    async with ann.http.get(f"{bed.url}/api/v1/stream?user=ann") as stream:
        assert stream.status == 200
    async with ann.http.get(f"{bed.url}/api/v1/stream?user=bob") as stream:
        assert (stream.status, (await stream.json())["code"]) == (409, "OtherUser")


async def test_topics_are_counted_by_user(
    bed: Bed, browsers: list[Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.console.api.USER_TOPICS", 3)
    ann, again, bob = browsers
    await ann.signed_in(ANN)
    await again.signed_in(ANN)
    await bob.signed_in(BOB)
    two = f"{bed.url}/api/v1/stream?topic=all&topic=namespace%3Dteam-a"
    async with asyncio.timeout(20), ann.http.get(two) as stream:
        await next_message(stream)
        async with again.http.get(two) as refused:
            assert (refused.status, (await refused.json())["code"]) == (429, "TooManyStreams")
        for browser in (again, bob):
            async with browser.http.get(f"{bed.url}/api/v1/stream?topic=all") as other:
                assert other.status == 200
    async with bob.http.get(f"{bed.url}/api/v1/stream?topic=all&topic=all") as twice:
        assert (twice.status, (await twice.json())["code"]) == (400, "TopicTwice")
