"""What is thrown at the console: values that want to be more than values, sizes, cookies, patterns, dead tokens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.catalog.test_catalog import SMALL
from tests.console.bed import ADMIN, ANN, VALUES
from tests.console.provider import running
from tests.console.served import AUTHENTICATED, Cluster, cluster
from tests.console.test_oidc import settings

from mooring.catalog import CatalogError, StoredTemplate, check_values, entry_of, lint, parse_entry
from mooring.catalog.values import TEXT_LIMIT
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api import User

Json = Any
CREATE = "namespaces/team-a/instances"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    "text",
    [
        "redis:7.0\n  hostPID: true",
        "redis:7.0\n---\nkind: Secret",
        '"}], "hostPID": true, "x": [{"y": "',
        "!!python/object/apply:os.system [id]",
        "&a [*a]",
        "{{ 7*7 }}",
        "${{ params.size }}",
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        "$(id) `id` ; id",
        "%s %n {0.__class__}",
        "no",
        "0x10",
        "2026-11-24",
        "\u202egnp.exe",
    ],
)
async def test_a_value_stays_the_value_that_it_is(served: Cluster, text: str) -> None:
    root = await served.browser(await served.console()).signed_in(ADMIN)
    body = {"entry": "redis-sentinel", "name": "a", "values": {**VALUES, "image": text}}
    reply = await root.send("POST", CREATE + "?dryRun=true", body)
    assert reply.status == 200, reply.text
    assert reply.headers["Content-Type"].startswith("application/json")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    manifest = reply.json["manifest"]
    assert manifest["spec"]["image"] == text
    assert yaml.safe_load(reply.json["yaml"]) == manifest
    plain = await root.send("POST", CREATE + "?dryRun=true", {**body, "values": {**VALUES, "image": "plain"}})
    assert _shape(manifest) == _shape(plain.json["manifest"])


def _shape(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _shape(below) for key, below in value.items()}
    return [_shape(below) for below in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("key", ["__proto__", "constructor", "metadata", "spec/size", "a~1b", "../x", "<b>"])
async def test_a_name_within_a_map_stays_in_the_map(served: Cluster, key: str) -> None:
    root = await served.browser(await served.console()).signed_in(ADMIN)
    body = {"entry": "redis-sentinel", "name": "a", "values": {**VALUES, key: "x"}}
    reply = await root.send("POST", CREATE, body)
    assert reply.status == 422
    assert [error["field"] for error in reply.json["errors"]] == [key]


async def test_what_is_too_long_never_reaches_the_api_server(served: Cluster) -> None:
    root = await served.browser(await served.console()).signed_in(ADMIN)
    body: Json = {"entry": "redis-sentinel", "name": "a", "values": {**VALUES, "image": "x" * 64 * 1024}}
    reply = await root.send("POST", CREATE, body)
    assert (reply.status, [error["field"] for error in reply.json["errors"]]) == (422, ["image"])
    assert len(reply.text) < 2000
    body["values"]["image"] = "x" * 300 * 1024
    reply = await root.send("POST", CREATE, body)
    assert (reply.status, reply.headers["Content-Type"]) == (413, "application/problem+json")
    assert not [
        one
        for one in await served.audited()
        if one["objectRef"]["resource"] == "redisclusters" and one["verb"] == "create"
    ]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '"x"', "{", '{"a":' * 5000, "[" * 100_000, '{"entry": 1, "values": []}', "\x00"],
)
async def test_a_body_that_is_none_is_a_problem(served: Cluster, text: str) -> None:
    root = await served.browser(await served.console()).signed_in(ADMIN)
    sent = {"Host": "console.example", "Origin": "https://console.example", "X-Mooring-Csrf": root.csrf}
    sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in root.cookies.items())
    sent["Content-Type"] = "application/json"
    async with root.http.post(f"{root.url}/api/v1/{CREATE}", data=text, headers=sent) as answer:
        assert answer.status in (400, 404)
        assert answer.content_type == "application/problem+json"
        assert (await answer.json(content_type=None))["requestId"] == answer.headers["X-Request-Id"]


# --- cookies and tokens


async def test_one_cookie_is_not_taken_for_another(served: Cluster, tmp_path: Path) -> None:
    async with running() as provider:
        url = await served.console(impersonate=True, oidc=settings(provider, tmp_path))
        browser = served.browser(url)
        await browser.send("GET", "/signin/oidc")
        [sealed] = browser.cookies.values()
        # Sealed by the same key, as something else.
        browser.cookies = {"__Host-mooring-console": sealed}
        assert (await browser.send("GET", "session")).status == 401
        ann = await served.browser(url).signed_in(ANN)
        ann.cookies["__Host-mooring-signin"] = ann.cookies["__Host-mooring-console"]
        reply = await ann.send("GET", "/signin/oidc/callback?code=a&state=b")
        assert reply.headers["Location"] == "/#/signin?refused=oidc"


@pytest.mark.parametrize("cookie", ["A" * 3800, "e30", "....", "%00", "a; b=c", '"quoted"'])
async def test_a_forged_cookie_is_no_session(served: Cluster, cookie: str) -> None:
    browser = served.browser(await served.console())
    browser.cookies = {"__Host-mooring-console": cookie}
    reply = await browser.send("GET", "instances")
    assert (reply.status, reply.json["code"]) == (401, "SignedOut")


async def test_a_token_that_has_expired_ends_what_it_was_for(served: Cluster) -> None:
    await served.redis("team-a", "mine", size=3)
    served.know("short-lived", User("eve", groups=AUTHENTICATED))
    await served.grant("team-a", ["get", "list", "watch"], user="eve")
    url = await served.console()
    eve = await served.browser(url).signed_in("short-lived")
    one = "namespaces/team-a/instances/redis-sentinel/mine"
    assert (await eve.send("GET", one)).status == 200
    served.forget("short-lived")
    reply = await eve.send("GET", one)
    assert (reply.status, reply.json["code"]) == (401, "Unauthorized")
    # The console's own credential was never asked to stand in.
    asked = [one for one in await served.audited() if one["objectRef"].get("name") == "mine"]
    assert {one["user"]["username"] for one in asked if one["verb"] == "get"} <= {
        "eve",
        "system:anonymous",
        "",
    }
    again = await served.browser(url).send("POST", "session", {"token": "short-lived"})
    assert (again.status, again.json["code"]) == (401, "TokenWrong")


# --- entries that others wrote


def stored(text: str) -> StoredTemplate:
    document = yaml.safe_load(text)
    return StoredTemplate(metadata=ObjectMeta(name="a", namespace="team-a"), spec=document["spec"])


def test_a_pattern_that_would_loop_is_answered_at_once() -> None:
    entry = parse_entry(SMALL)
    assert lint(entry) == []
    document = yaml.safe_load(SMALL)
    document["spec"]["parameters"]["properties"]["note"]["pattern"] = "^(a+)+$"
    for plan in document["spec"].get("plans", ()):
        plan["values"].pop("note", None)
    made = parse_entry(yaml.safe_dump(document))
    began = time.process_time()
    problems = check_values(made, {"note": "a" * (TEXT_LIMIT - 1) + "!"})
    assert time.process_time() - began < 1.0
    assert "note" in {problem.field for problem in problems}


@pytest.mark.parametrize(
    "field",
    ["x-rules", "rules", "x-cel", "x-if", "x-for", "script"],
)
def test_an_entry_has_no_place_for_expressions(field: str) -> None:
    """What cannot be written cannot loop."""
    document = yaml.safe_load(SMALL)
    rule = [{"cel": "[1,2,3].all(a, [1,2,3].all(b, [1,2,3].all(c, true)))"}]
    document["spec"]["parameters"]["properties"]["note"][field] = rule
    with pytest.raises(CatalogError, match="unknown field"):
        entry_of(stored(yaml.safe_dump(document)))


def test_an_entry_that_is_nested_without_end_is_refused() -> None:
    document = yaml.safe_load(SMALL)
    deep: Json = {}
    for _ in range(3000):
        deep = {"a": deep}
    document["spec"]["render"] = {"spec": deep}
    made = StoredTemplate(metadata=ObjectMeta(name="a", namespace="team-a"), spec=document["spec"])
    with pytest.raises(CatalogError, match="deep"):
        entry_of(made)


def test_an_entry_that_is_too_large_is_refused() -> None:
    document = yaml.safe_load(SMALL)
    document["spec"]["render"] = {"spec": {"a": "x" * 300_000}}
    made = StoredTemplate(metadata=ObjectMeta(name="a", namespace="team-a"), spec=document["spec"])
    with pytest.raises(CatalogError, match="longer"):
        entry_of(made)
    fields = document["spec"]["parameters"]["properties"]
    document["spec"]["render"] = {}
    for number in range(201):
        fields[f"f{number}"] = {**fields["note"], "x-bind": f"/spec/f{number}"}
    made = StoredTemplate(metadata=ObjectMeta(name="a", namespace="team-a"), spec=document["spec"])
    with pytest.raises(CatalogError, match="more than 200"):
        entry_of(made)


async def test_the_console_lives_on(served: Cluster) -> None:
    """After all that was sent at once."""
    root = await served.browser(await served.console()).signed_in(ADMIN)
    bodies = [{"entry": "redis-sentinel", "name": "a" * n, "values": {"size": n}} for n in range(40)]
    replies = await asyncio.gather(*(root.send("POST", CREATE + "?dryRun=true", body) for body in bodies))
    assert all(reply.status in (200, 422) for reply in replies)
    assert json.loads((await root.send("GET", "session")).text)["user"] == "root"
