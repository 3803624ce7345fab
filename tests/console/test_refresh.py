"""Sessions of a provider go on as long as the provider says so, and end everywhere when their user signs out."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.console.provider import Provider, Signer
from tests.console.served import Browser, Cluster, new_key
from tests.console.test_oidc import Json, arrived, browser, provider, served, settings

from mooring.cache import SystemClock
from mooring.console import Sessions
from mooring.console.session import Session
from mooring.console.signin import SignIn

__all__ = ["browser", "provider", "served"]


def expired(claims: Json, signer: Signer) -> str:
    """A token that is taken, since clocks differ, and is over by the console's."""
    return signer.token({**claims, "exp": int(time.time()) - 2})


async def entered(browser: Browser, provider: Provider) -> Browser:
    """Signed in, with the word that changes need."""
    assert (await arrived(browser, provider)).headers["Location"] == "/"
    reply = await browser.send("GET", "session")
    browser.csrf = reply.json["csrf"]
    return browser


async def test_a_session_goes_on_with_a_new_token(browser: Browser, provider: Provider) -> None:
    provider.refreshes = []
    await entered(browser, provider)
    first = (await browser.send("GET", "session")).json
    assert first["renewable"] is True
    assert 200 < first["remaining"] <= 300
    old, [token] = dict(browser.cookies), provider.refreshes
    provider.claims["groups"] = ["dev"]
    renewed = await browser.send("POST", "session/refresh")
    assert renewed.status == 200
    assert renewed.json["csrf"] == first["csrf"], "what is open in other tabs goes on"
    assert browser.cookies != old
    assert token not in provider.refreshes, "a refresh token is used once"
    assert (await browser.send("GET", "session")).status == 200


async def test_tabs_that_renew_at_once_use_one_refresh_token(browser: Browser, provider: Provider) -> None:
    provider.refreshes = []
    await entered(browser, provider)
    old = dict(browser.cookies)
    tabs = [
        Browser(url=browser.url, http=browser.http, csrf=browser.csrf, cookies=dict(old)) for _ in range(4)
    ]
    replies = await asyncio.gather(*(tab.send("POST", "session/refresh") for tab in tabs))
    assert [reply.status for reply in replies] == [200] * 4
    assert provider.asked.count("refresh") == 1


async def test_a_session_whose_token_is_over_can_be_renewed_and_do_nothing_else(
    browser: Browser, provider: Provider
) -> None:
    provider.refreshes = []
    honest, provider.lie = provider.lie, expired
    await arrived(browser, provider)
    assert (await browser.send("GET", "session")).status == 401
    assert (await browser.send("GET", "instances")).status == 401
    assert (await browser.send("POST", "session/refresh")).status == 403, "without its word it is refused"
    provider.lie = honest
    await entered(browser, provider)
    provider.lie = expired
    await browser.send("POST", "session/refresh")
    assert (await browser.send("GET", "session")).status == 401
    provider.lie = honest
    assert (await browser.send("POST", "session/refresh")).status == 200
    assert (await browser.send("GET", "session")).status == 200


async def test_a_session_ends_when_the_provider_says_no(browser: Browser, provider: Provider) -> None:
    provider.refreshes = []
    await entered(browser, provider)
    provider.refreshes.clear()
    assert (await browser.send("POST", "session/refresh")).status == 401


async def test_a_provider_that_is_away_ends_no_session(browser: Browser, provider: Provider) -> None:
    provider.refreshes = []
    await entered(browser, provider)
    provider.away = True
    reply = await browser.send("POST", "session/refresh")
    assert (reply.status, reply.json["code"]) == (502, "ProviderAway")
    assert (await browser.send("GET", "session")).status == 200
    provider.away = False
    assert (await browser.send("POST", "session/refresh")).status == 200


@pytest.mark.parametrize("claims", [{"sub": "mallory"}, {"sub": "carol", "aud": "another"}])
async def test_a_token_of_somebody_else_renews_nothing(
    browser: Browser, provider: Provider, claims: Json
) -> None:
    provider.refreshes = []
    await entered(browser, provider)
    provider.claims = claims
    renewed = await browser.send("POST", "session/refresh")
    assert renewed.status in (401, 502)
    after = await browser.send("GET", "session")
    assert after.status == 401 if renewed.status == 401 else after.json["user"] == "carol"


async def test_an_address_that_another_user_has_now_renews_nothing(
    served: Cluster, provider: Provider, tmp_path: Path
) -> None:
    provider.refreshes = []
    provider.claims = {"sub": "carol", "email": "c@example.org", "email_verified": True}
    told = settings(provider, tmp_path, username_claim="email")
    carol = await entered(served.browser(await served.console(impersonate=True, oidc=told)), provider)
    provider.claims["sub"] = "mallory"
    assert (await carol.send("POST", "session/refresh")).status == 401


async def test_without_a_refresh_token_there_is_nothing_to_renew(
    browser: Browser, provider: Provider
) -> None:
    await entered(browser, provider)
    assert (await browser.send("GET", "session")).json["renewable"] is False
    assert (await browser.send("POST", "session/refresh")).json["code"] == "NothingToRefresh"


async def test_who_signs_out_is_signed_out_at_every_replica(
    served: Cluster, provider: Provider, tmp_path: Path
) -> None:
    provider.refreshes = []
    (tmp_path / "keys").write_text(new_key())
    told: Json = {
        "impersonate": True,
        "session_keys": str(tmp_path / "keys"),
        "oidc": settings(provider, tmp_path),
    }
    here, there = await served.console(**told), await served.console(**told)
    carol = await entered(served.browser(here), provider)
    copy = Browser(url=there, http=carol.http, csrf=carol.csrf, cookies=dict(carol.cookies))
    assert (await copy.send("GET", "session")).status == 200
    assert (await carol.send("DELETE", "session")).status == 200
    assert provider.refreshes == []
    # Until its token ends, a few minutes later, the other replica knows no better; then nothing renews it.
    kept = dict(copy.cookies)
    assert (await copy.send("POST", "session/refresh")).status == 401
    copy.cookies = kept
    remaining = (await copy.send("GET", "session")).json["remaining"]
    assert 0 < remaining <= 300


async def test_a_session_that_ends_while_the_provider_is_asked_stays_ended(
    browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.refreshes = []
    await entered(browser, provider)
    refresh = SignIn.refresh

    async def late(self: SignIn, session: Session) -> Session:
        new = await refresh(self, session)
        self._sessions.end(session)
        return new

    monkeypatch.setattr(SignIn, "refresh", late)
    assert (await browser.send("POST", "session/refresh")).status == 401
    assert provider.refreshes == [], "the provider takes the new token back"
    assert not any(browser.cookies.values())


async def test_a_refresh_that_is_refused_takes_the_cookie_away(browser: Browser, provider: Provider) -> None:
    provider.refreshes = []
    await entered(browser, provider)
    provider.refreshes.clear()
    assert (await browser.send("POST", "session/refresh")).status == 401
    assert not any(browser.cookies.values())


def test_a_session_too_long_for_its_refresh_token_goes_on_without_it() -> None:
    sessions = Sessions(SystemClock(), port=1, served=True)
    session = sessions.begin(
        user="u", token="t" * 6500, via="oidc", ends=2e10, refresh="r" * 2000, subject="s"
    )
    with pytest.raises(ValueError, match="too long"):
        sessions.seal(session)
    fitting = sessions.fitting(session)
    assert (fitting.refresh, fitting.token) == ("", session.token)
    assert sessions.read(sessions.seal(fitting)).user == "u"
    short = sessions.begin(user="u", token="t", via="oidc", refresh="r")
    assert sessions.fitting(short) is short
