"""Sign-in by an OpenID provider, which a small one of these tests is: what counts, and every lie that does not."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.console.provider import CLIENT, SECRET, Provider, Signer, b64, running
from tests.console.served import AUTHENTICATED, Browser, Cluster, Reply, cluster

from mooring.cache import SystemClock
from mooring.console.oidc import KEYS_AGAIN
from mooring.console.settings import Oidc
from mooring.local.api import User

REFUSED = "/#/signin?refused=oidc"
Json = Any


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with running() as made:
        yield made


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as made:
        yield made


def settings(provider: Provider, tmp_path: Path, **more: Any) -> Oidc:
    file = tmp_path / "client-secret"
    file.write_text(SECRET + "\n")
    return Oidc(issuer=provider.issuer, client_id=CLIENT, client_secret_file=str(file), **more)


@pytest.fixture
async def browser(served: Cluster, provider: Provider, tmp_path: Path) -> Browser:
    url = await served.console(impersonate=True, oidc=settings(provider, tmp_path))
    return served.browser(url)


async def arrived(browser: Browser, provider: Provider, to: str = "", **changed: str) -> Reply:
    """Go to the provider and come back; ``changed`` is what somebody did to the way back."""
    left = await browser.send(
        "GET", f"/signin/oidc?{urlencode({'to': to})}", Origin="", Sec_Fetch_Site="none"
    )
    assert left.status == 303, left.text
    query = provider.authorize(left.headers["Location"]) | changed
    # The way back is a navigation that begins on the provider's site.
    return await browser.send(
        "GET", f"/signin/oidc/callback?{urlencode(query)}", Sec_Fetch_Site="cross-site", Origin=""
    )


async def test_a_user_signs_in_and_acts_by_impersonation(
    served: Cluster, browser: Browser, provider: Provider
) -> None:
    await served.redis("team-a", "mine", size=3)
    await served.redis("team-b", "theirs", size=3)
    await served.grant("team-a", ["get", "list", "watch"], group="ops")
    reply = await arrived(browser, provider, to="/#/instances?namespace=team-a")
    assert (reply.status, reply.headers["Location"]) == (303, "/#/instances?namespace=team-a")
    session = (await browser.send("GET", "session")).json
    assert (session["user"], session["via"]) == ("carol", "oidc")
    rows = (await browser.send("GET", "instances")).json["rows"]
    assert [row["name"] for row in rows] == ["mine"]
    assert list(browser.cookies) == ["__Host-mooring-console"]
    named = {
        one["impersonatedUser"]["username"] for one in await served.audited() if "impersonatedUser" in one
    }
    assert named == {"carol"}


async def test_prefixes_keep_the_directorys_names_apart(
    served: Cluster, provider: Provider, tmp_path: Path
) -> None:
    provider.claims = {
        "sub": "x",
        "email": "c@example.org",
        "email_verified": True,
        "roles": "system:masters",
    }
    told = settings(
        provider,
        tmp_path,
        username_claim="email",
        groups_claim="roles",
        username_prefix="idp:",
        groups_prefix="idp:",
    )
    browser = served.browser(await served.console(impersonate=True, oidc=told))
    assert (await arrived(browser, provider)).headers["Location"] == "/"
    assert (await browser.send("GET", "session")).json["user"] == "idp:c@example.org"
    [groups] = {
        tuple(one["impersonatedUser"]["groups"])
        for one in await served.audited()
        if "impersonatedUser" in one
    }
    assert groups == ("idp:system:masters", "system:authenticated")


async def test_the_token_itself_is_passed_on_where_the_api_server_knows_the_provider(
    served: Cluster, provider: Provider, tmp_path: Path
) -> None:
    issued: list[str] = []

    def known(claims: Json, signer: Signer) -> str:
        issued.append(signer.token(claims))
        served.know(issued[-1], User("carol@idp", groups=AUTHENTICATED))
        return issued[-1]

    provider.lie = known
    browser = served.browser(await served.console(oidc=settings(provider, tmp_path)))
    await arrived(browser, provider)
    assert (await browser.send("GET", "session")).json["user"] == "carol@idp"
    assert issued[0] not in "".join([*browser.seen, *browser.cookies.values()])
    assert not any("impersonatedUser" in one for one in await served.audited())


async def test_without_impersonation_an_unknown_providers_user_is_nobody(
    served: Cluster, provider: Provider, tmp_path: Path
) -> None:
    browser = served.browser(await served.console(oidc=settings(provider, tmp_path)))
    assert (await arrived(browser, provider)).headers["Location"] == REFUSED
    assert browser.cookies == {}


def changed(**claims: Json) -> Callable[[Json, Signer], str]:
    """A token with other claims; None takes one away."""

    def lie(said: Json, signer: Signer) -> str:
        told = {**said, **claims}
        return signer.token({name: value for name, value in told.items() if value is not None})

    return lie


def unsigned(claims: Json, signer: Signer) -> str:
    head, body, _ = signer.token(claims, alg="none").split(".")
    return f"{head}.{body}."


def by_the_public_key(claims: Json, signer: Signer) -> str:
    """HMAC with what everybody knows: the trap of libraries that let the token choose how it is checked."""
    head, body, _ = signer.token(claims, alg="HS256").split(".")
    key = json.dumps(signer.public).encode()
    return f"{head}.{body}.{b64(hmac.digest(key, f'{head}.{body}'.encode(), hashlib.sha256))}"


def of_another(claims: Json, signer: Signer) -> str:
    return Signer(signer.kid).token(claims)


def altered(claims: Json, signer: Signer) -> str:
    head, _, signature = signer.token(claims).split(".")
    return f"{head}.{b64(json.dumps({**claims, 'sub': 'root'}).encode())}.{signature}"


@pytest.mark.parametrize(
    "lie",
    [
        changed(iss="https://evil.example"),
        changed(aud="another"),
        changed(aud=["another", "third"]),
        changed(aud=[CLIENT, "another"]),
        changed(azp="another"),
        changed(nonce="another"),
        changed(nonce=None),
        changed(exp=time.time() - 120),
        changed(exp=None),
        changed(exp="9999999999"),
        changed(iat=time.time() + 3600),
        changed(nbf=time.time() + 3600),
        changed(sub=None),
        changed(sub=["carol"]),
        changed(sub="system:admin"),
        changed(groups=["dev", "system:masters"]),
        changed(groups=["dev", 1]),
        changed(groups=[f"g{number}" for number in range(300)]),
        unsigned,
        by_the_public_key,
        of_another,
        altered,
        lambda claims, signer: signer.token(claims, crit=["exp"]),
        lambda claims, signer: signer.token(claims)[:-8],
        lambda claims, signer: "no token",
        lambda claims, signer: "a.b.c",
        lambda claims, signer: "",
        lambda claims, signer: "x" * 100_000,
    ],
)
async def test_a_token_that_proves_nothing_signs_nobody_in(
    browser: Browser, provider: Provider, lie: Callable[[Json, Signer], str]
) -> None:
    provider.lie = lie
    assert (await arrived(browser, provider)).headers["Location"] == REFUSED
    assert browser.cookies == {}
    assert (await browser.send("GET", "session")).status == 401


class Ahead(SystemClock):
    """A clock whose seconds can be moved."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def test_keys_are_read_again_when_an_unknown_one_signs_but_not_each_time(
    served: Cluster, provider: Provider, tmp_path: Path
) -> None:
    clock = Ahead()
    url = await served.console(clock, impersonate=True, oidc=settings(provider, tmp_path))
    browser = served.browser(url)
    await arrived(browser, provider)
    provider.keys = [Signer("next")]
    # Who forges ids must not make the console ask the provider each time.
    assert (await arrived(browser, provider)).headers["Location"] == REFUSED
    assert provider.asked.count("keys") == 1
    clock.ahead = KEYS_AGAIN
    assert (await arrived(browser, provider)).headers["Location"] == "/"
    assert provider.asked.count("keys") == 2


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
async def test_a_signature_of_every_kind_counts(browser: Browser, provider: Provider, algorithm: str) -> None:
    provider.keys = [Signer("other"), Signer("one", algorithm)]
    provider.keys.reverse()
    assert (await arrived(browser, provider)).headers["Location"] == "/"
    assert provider.asked == ["description", "keys"]
    # Description and keys are remembered.
    await arrived(browser, provider)
    assert provider.asked == ["description", "keys"]


async def test_a_short_key_counts_for_nothing(browser: Browser, provider: Provider) -> None:
    provider.keys = [Signer("one", bits=1024)]
    assert (await arrived(browser, provider)).headers["Location"] == REFUSED


@pytest.mark.parametrize(
    "changed_on_the_way",
    [
        {"state": "another"},
        {"state": ""},
        {"code": "stolen"},
        {"iss": "https://evil.example"},
        {"error": "no"},
    ],
)
async def test_an_answer_that_was_tampered_with_is_refused(
    browser: Browser, provider: Provider, changed_on_the_way: dict[str, str]
) -> None:
    assert (await arrived(browser, provider, **changed_on_the_way)).headers["Location"] == REFUSED
    assert browser.cookies == {}


async def test_an_answer_counts_in_the_browser_that_asked_and_once(
    served: Cluster, browser: Browser, provider: Provider
) -> None:
    left = await browser.send("GET", "/signin/oidc")
    back = f"/signin/oidc/callback?{urlencode(provider.authorize(left.headers['Location']))}"
    # Somebody is led to another's answer, to act as them unawares.
    victim = served.browser(browser.url)
    assert (await victim.send("GET", back)).headers["Location"] == REFUSED
    cookie = dict(browser.cookies)
    assert (await browser.send("GET", back)).headers["Location"] == "/"
    browser.cookies = cookie
    assert (await browser.send("GET", back)).headers["Location"] == REFUSED


@pytest.mark.parametrize(
    "to",
    ["https://evil.example", "//evil.example", "/\\evil.example", "/#/a\r\nSet-Cookie: x=y", "/signin/oidc"],
)
async def test_a_sign_in_leads_to_a_page_of_the_console(
    browser: Browser, provider: Provider, to: str
) -> None:
    assert (await arrived(browser, provider, to=to)).headers["Location"] == "/"


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://another.example"},
        {"authorization_endpoint": "http://idp.example/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ],
)
async def test_a_provider_that_describes_itself_strangely_is_not_used(
    browser: Browser, provider: Provider, described: Json
) -> None:
    provider.described = described
    reply = await browser.send("GET", "/signin/oidc")
    assert reply.headers["Location"] == REFUSED


async def test_a_provider_that_is_away_is_a_refusal_and_no_error(
    served: Cluster, provider: Provider, tmp_path: Path
) -> None:
    provider.issuer = "http://127.0.0.1:1"
    browser = served.browser(await served.console(oidc=settings(provider, tmp_path)))
    assert (await browser.send("GET", "/signin/oidc")).headers["Location"] == REFUSED


async def test_a_console_without_a_provider_has_no_such_page(served: Cluster) -> None:
    browser = served.browser(await served.console())
    assert (await browser.send("GET", "/signin/oidc")).status == 404
