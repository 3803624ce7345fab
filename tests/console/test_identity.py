"""The user of a request to the console (token, proxy, sealed session) is the user that the API server sees."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.console.bed import ADMIN, ANN, VALUES
from tests.console.certificates import Authority
from tests.console.served import HOST, ORIGIN, Cluster, cluster, new_key

from mooring.cache import SystemClock
from mooring.console import Sessions, Settings, SettingsError, SignedOut, load_settings
from mooring.console.keys import LOOK_AGAIN, Keys
from mooring.console.settings import Proxy, Tls
from mooring.testing import VirtualClock

SECRET = "between-proxy-and-console"
READ = ["get", "list", "watch"]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as made:
        yield made


@pytest.fixture
def secret(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    return str(file)


# --- sessions


async def test_a_replica_opens_what_another_sealed(served: Cluster, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(new_key())
    first, second = [await served.console(session_keys=str(keys)) for _ in range(2)]
    alone = await served.console()
    ann = await served.browser(first).signed_in(ANN)
    reply = await ann.at(second).send("GET", "session")
    assert reply.status == 200, reply.text
    assert reply.json["user"] == "ann"
    assert (await ann.at(second).send("DELETE", "session")).status == 200
    ann = await served.browser(first).signed_in(ANN)
    assert (await ann.at(alone).send("GET", "session")).status == 401


async def test_cookies_are_for_https_and_this_host_alone(served: Cluster) -> None:
    ann = served.browser(await served.console())
    reply = await ann.send("POST", "session", {"token": ANN})
    [cookie] = reply.headers.getall("Set-Cookie")
    assert cookie.startswith("__Host-mooring-console=")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Domain" not in cookie


async def test_keys_are_changed_without_ending_sessions(tmp_path: Path) -> None:
    clock, file = VirtualClock(), tmp_path / "keys"
    old, new = new_key(), new_key()
    file.write_text(old)
    sessions = Sessions(clock, port=1, keys=Keys(clock, file), served=True)
    cookies = sessions.seal(sessions.begin(user="ann", token="t"))

    async def turn(*lines: str) -> None:
        file.write_text("\n".join(lines))
        await clock.advance(LOOK_AGAIN + 1)

    await turn(new, old)
    assert sessions.read(cookies).user == "ann"
    renewed = sessions.seal(sessions.read(cookies))
    await turn("not a key")  # half-way through: what was known counts
    assert sessions.read(cookies).user == "ann"
    await turn(new)
    assert sessions.read(renewed).user == "ann"
    with pytest.raises(SignedOut, match="invalid"):
        sessions.read(cookies)


@pytest.mark.parametrize(
    "text",
    ["", "short", f"{'A' * 43}=\nwrong", "\n".join([f"{'A' * 43}="] * 9)],
    ids=["none", "short", "second", "too many"],
)
def test_keys_that_are_none_are_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ValueError, match="key") as error:
        Keys(SystemClock(), file)
    assert not text or text.split()[-1] not in str(error.value)


def test_a_long_session_is_in_several_cookies_and_a_missing_one_ends_it() -> None:
    sessions = Sessions(VirtualClock(), port=1)
    session = sessions.begin(user="ann", groups=tuple(f"group-{n:03}" for n in range(400)))
    cookies = sessions.seal(session)
    assert len(cookies) == 2
    assert all(len(value) < 3900 for value in cookies.values())
    assert sessions.read(cookies) == session
    del cookies[sessions.names[1]]
    with pytest.raises(SignedOut, match="invalid"):
        sessions.read(cookies)


async def test_a_session_ends_with_its_credential() -> None:
    clock = VirtualClock()
    sessions = Sessions(clock, port=1, served=True)
    cookies = sessions.seal(sessions.begin(user="ann", token="t", ends=sessions.now() + 60))
    await clock.advance(59)
    assert sessions.read(cookies).user == "ann"
    await clock.advance(1)
    with pytest.raises(SignedOut, match="expired"):
        sessions.read(cookies)


def test_a_served_console_lends_its_credential_to_nobody() -> None:
    clock = VirtualClock()
    keys = Keys(clock)
    served = Sessions(clock, port=1, keys=keys, served=True)
    with pytest.raises(ValueError, match="lends"):
        served.begin(user="root", via="link")
    local = Sessions(clock, port=1, keys=keys)
    local.cookie = served.cookie
    with pytest.raises(SignedOut, match="invalid"):
        served.read(local.seal(local.begin(user="root", via="link")))


async def test_a_link_signs_nobody_in_where_the_console_is_served(served: Cluster) -> None:
    url = await served.console()
    browser = served.browser(url)
    reply = await browser.send("GET", "/?token=anything")
    assert (reply.status, browser.cookies) == (200, {})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Origin": "http://console.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "console.example.evil.example"}, 421),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"X_Mooring_Csrf": "wrong"}, 403),
        ({"X_Forwarded_Host": "evil.example"}, 201),
    ],
)
async def test_changes_come_from_the_served_page_alone(
    served: Cluster, headers: dict[str, str], status: int
) -> None:
    root = await served.browser(await served.console()).signed_in(ADMIN)
    body = {"entry": "redis-sentinel", "name": "a", "values": VALUES}
    assert (await root.send("POST", "namespaces/team-a/instances", body, **headers)).status == status


async def test_the_kubelet_is_answered_by_address_and_told_nothing(served: Cluster) -> None:
    browser = served.browser(await served.console())
    for path in ("/healthz", "/readyz"):
        reply = await browser.send("GET", path, Host="10.1.2.3:8443")
        assert (reply.status, reply.text) == (200, "")
    assert (await browser.send("GET", "/", Host="10.1.2.3:8443")).status == 421


# --- a proxy


async def test_the_proxys_user_acts_by_impersonation_with_every_group(served: Cluster, secret: str) -> None:
    await served.redis("team-a", "mine", size=3)
    await served.redis("team-b", "ours", size=3)
    await served.redis("team-c", "theirs", size=3)
    await served.grant("team-a", READ, user="carol")
    await served.grant("team-b", READ, group="ops, dev")
    url = await served.console(impersonate=True, proxy=Proxy(secret_file=secret, groups_header="X-Groups"))
    carol = served.browser(url, X_Forwarded_User="carol", X_Mooring_Proxy_Secret=SECRET)
    # A group that is called as both of hers together is not hers.
    await served.grant("team-c", READ, group="dev")
    carol.always["X-Groups"] = "ops, dev"
    await carol.signed_in()
    session = (await carol.send("GET", "session")).json
    assert (session["user"], session["via"], session["own"]) == ("carol", "proxy", False)
    rows = (await carol.send("GET", "instances")).json["rows"]
    assert [row["name"] for row in rows] == ["mine", "theirs"]
    asked = [one for one in await served.audited() if "impersonatedUser" in one]
    groups = {tuple(one["impersonatedUser"]["groups"]) for one in asked}
    assert groups == {("dev", "ops", "system:authenticated")}
    assert {one["user"]["username"] for one in asked} == {"console"}


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        ("system:admin", "dev"),
        ("system:node:a", ""),
        ("carol", "dev,system:masters"),
        ("carol", "system:nodes"),
    ],
)
async def test_names_that_kubernetes_keeps_are_refused(
    served: Cluster, secret: str, user: str, groups: str
) -> None:
    url = await served.console(impersonate=True, proxy=Proxy(secret_file=secret))
    browser = served.browser(
        url, X_Forwarded_User=user, X_Forwarded_Groups=groups, X_Mooring_Proxy_Secret=SECRET
    )
    reply = await browser.send("GET", "session")
    assert (reply.status, reply.json.get("code")) == (403, "ReservedName")
    assert not any("impersonatedUser" in one for one in await served.audited())


@pytest.mark.parametrize(
    ("proxy", "headers"),
    [
        ({"secret": True}, {}),
        ({"secret": True}, {"X_Mooring_Proxy_Secret": "wrong"}),
        ({"secret": True}, {"X_Mooring_Proxy_Secret": SECRET + "x"}),
        ({"sources": ("10.0.0.0/8",)}, {}),
        ({"sources": ("10.0.0.0/8",)}, {"X_Forwarded_For": "10.0.0.1", "Forwarded": "for=10.0.0.1"}),
        # All that is configured must be proven, not any of it.
        ({"sources": ("10.0.0.0/8",), "secret": True}, {"X_Mooring_Proxy_Secret": SECRET}),
        ({"sources": ("127.0.0.0/8",), "secret": True}, {}),
    ],
)
async def test_headers_of_somebody_else_are_ignored(
    served: Cluster, secret: str, proxy: dict[str, Any], headers: dict[str, str]
) -> None:
    given = {name: value for name, value in proxy.items() if name != "secret"}
    told = Proxy(secret_file=secret if "secret" in proxy else "", **given)
    url = await served.console(impersonate=True, proxy=told)
    browser = served.browser(url, X_Forwarded_User="carol", **headers)
    assert (await browser.send("GET", "session")).status == 401
    assert browser.cookies == {}


async def test_a_proxy_is_known_by_its_address(served: Cluster) -> None:
    url = await served.console(impersonate=True, proxy=Proxy(sources=("127.0.0.0/8",)))
    carol = await served.browser(url, X_Forwarded_User="carol").signed_in()
    # The session is the proxy's: without its word, or with another's, it is nobody's.
    carol.always["X-Forwarded-User"] = "dave"
    assert (await carol.send("DELETE", "session")).status == 401
    assert (await carol.send("GET", "session")).json["user"] == "dave"
    del carol.always["X-Forwarded-User"]
    assert (await carol.send("GET", "session")).status == 401


async def test_a_proxy_is_known_by_its_certificate(served: Cluster, tmp_path: Path) -> None:
    authority, other = Authority(), Authority()
    files = {name: tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt")}
    certificate, key = authority.issue(HOST)
    for name, content in zip(files, (certificate, key, authority.pem.encode()), strict=True):
        files[name].write_bytes(content)
    tls = Tls(certificate=str(files["tls.crt"]), key=str(files["tls.key"]), client_ca=str(files["ca.crt"]))
    url = await served.console(impersonate=True, tls=tls, proxy=Proxy(names=("proxy",)))

    async def asked(name: str, by: Authority | None) -> int:
        context = ssl.create_default_context(cadata=authority.pem)
        if by is not None:
            for file, content in zip(("c.crt", "c.key"), by.issue(name), strict=True):
                (tmp_path / file).write_bytes(content)
            context.load_cert_chain(tmp_path / "c.crt", tmp_path / "c.key")
        headers = {"Host": HOST, "X-Forwarded-User": "carol"}
        where = url.replace("http:", "https:") + "/api/v1/session"
        async with (
            aiohttp.ClientSession() as http,
            http.get(where, headers=headers, ssl=context, server_hostname=HOST) as answer,
        ):
            return answer.status

    assert await asked("proxy", authority) == 200
    assert await asked("another", authority) == 401
    assert await asked("", None) == 401
    with pytest.raises(aiohttp.ClientError):
        await asked("proxy", other)


async def test_nobody_chooses_whom_they_act_as(served: Cluster, secret: str) -> None:
    await served.redis("team-b", "theirs", size=3)
    url = await served.console(impersonate=True, proxy=Proxy(secret_file=secret))
    chosen = {
        "Impersonate_User": "root",
        "Impersonate_Group": "system:masters",
        "Impersonate_Extra_Scopes": "all",
        "X_Remote_User": "root",
        "Authorization": f"Bearer {ADMIN}",
    }
    for browser in (
        await served.browser(url).signed_in(ANN),
        await served.browser(url, X_Forwarded_User="carol", X_Mooring_Proxy_Secret=SECRET).signed_in(),
    ):
        assert (await browser.send("GET", "instances", **chosen)).json["rows"] == []
        one = "namespaces/team-b/instances/redis-sentinel/theirs"
        assert (await browser.send("GET", one, **chosen)).status == 403
    ours = [one for one in await served.audited() if one["user"]["username"] in ("console", "ann", "root")]
    who = [one.get("impersonatedUser", one["user"]) for one in ours]
    assert {one["username"] for one in who} == {"console", "ann", "carol"}
    assert not any("system:masters" in one.get("groups", []) for one in who)


async def test_tokens_can_be_switched_off(served: Cluster, secret: str) -> None:
    url = await served.console(tokens=False, impersonate=True, proxy=Proxy(secret_file=secret))
    browser = served.browser(url)
    reply = await browser.send("POST", "session", {"token": ANN})
    assert (reply.status, reply.json["code"]) == (403, "NoTokens")
    assert (await browser.send("GET", "signin")).json == {"tokens": False, "oidc": None, "proxy": True}


# --- the configuration


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url: http://console.example", "needs https"),
        ("url: console.example", "not https://HOST"),
        ("url: https://console.example/path", "not https://HOST"),
        ("{url: 'https://a', listen: nowhere}", "ADDRESS:PORT"),
        ("{url: 'https://a', tokens: false}", "no way to sign in"),
        ("{url: 'https://a', proxy: {sources: [10.0.0.0/8]}}", "needs impersonate"),
        ("{url: 'https://a', impersonate: true, proxy: {}}", "known by"),
        ("{url: 'https://a', impersonate: true, proxy: {sources: [10.0.0.1/8]}}", "host bits"),
        ("{url: 'https://a', impersonate: true, proxy: {names: [a]}}", "clientCa"),
        ("{url: 'https://a', oidc: {issuer: 'http://idp', clientId: a}}", "https"),
        ("{url: 'https://a', oidc: {issuer: 'https://idp', clientId: a, scopes: [email]}}", "openid"),
        ("{url: 'https://a', oidc: {issuer: 'https://idp', clientId: a, clientSecret: x}}", "clientSecret"),
        ("[", "expected"),
    ],
)
def test_a_wrong_configuration_is_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "console.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=said):
        load_settings(file)


def test_an_origin_is_as_browsers_write_it() -> None:
    assert Settings(url="https://Console.Example:443/").origin == ORIGIN
    assert Settings(url="https://a:8443").origin == "https://a:8443"
