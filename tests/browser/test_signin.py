"""Sign-in by an OpenID provider in Chromium: the button, the way back to the page, the silent renewal, its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium.webdriver.common.by import By
from tests.browser.conftest import Page, Plane, free_port, narrow, running
from tests.console.provider import CLIENT, SECRET, Provider, Signer
from tests.console.provider import running as providing

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

#: Seconds that an ID token is good for: longer than a page takes to load on a busy machine.
SHORT = 12
#: Hides the page, or shows it again.
SHOWN = """
Object.defineProperty(document, "hidden", {value: arguments[0], configurable: true});
Object.defineProperty(document, "visibilityState", {value: arguments[0] ? "hidden" : "visible", configurable: true});
document.dispatchEvent(new Event("visibilitychange"));
"""


def short(claims: Any, signer: Signer) -> str:
    return signer.token({**claims, "exp": int(time.time()) + SHORT})


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider on a loop of its own."""
    made: list[Provider] = []
    loop, there = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        async with providing() as one:
            made.append(one)
            there.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert there.wait(10)
    made[0].refreshes = []
    yield made[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def served(plane: Plane, provider: Provider, page: Page, tmp_path: Path) -> Iterator[str]:
    """The address of a console that is served, with this provider."""
    (tmp_path / "secret").write_text(SECRET)
    port = free_port()
    oidc = {"issuer": provider.issuer, "clientId": CLIENT, "clientSecretFile": str(tmp_path / "secret")}
    address = f"http://localhost:{port}"
    told = {"url": address, "listen": f"127.0.0.1:{port}", "impersonate": True, "oidc": oidc}
    (tmp_path / "console.yaml").write_text(yaml.safe_dump(told))
    words = ("console", "--kubeconfig", str(plane.kubeconfig), "--config", str(tmp_path / "console.yaml"))
    with running(*words, log=tmp_path / "log", until="console: http"):
        yield address
        # A page whose console has gone would go on asking for it.
        page.driver.get("about:blank")
        page.complaints()


def test_a_user_of_a_provider_signs_in_and_is_renewed_until_the_provider_says_no(
    page: Page, served: str, provider: Provider, axe: str
) -> None:
    page.driver.get(f"{served}/#/operators")
    page.until(lambda: page.there("provider"))
    assert page.shows("Bearer token")
    assert page.axe(axe) == []
    assert narrow(page) <= 390
    page.press("中文")
    page.until(lambda: page.text("provider") == "使用组织账号登录")
    assert page.axe(axe) == []
    page.press("English")

    provider.lie = short
    page.find("provider").click()
    page.until(lambda: page.text("user") == "carol")
    assert page.driver.current_url == f"{served}/#/operators", "it leads back to the page"
    page.driver.execute_script("window.same = true; window.location.hash = '#/instances'")
    page.until(lambda: provider.asked.count("refresh") >= 2, 3 * SHORT)
    assert page.text("user") == "carol"
    assert page.driver.execute_script("return window.same"), "nothing was loaded again"
    assert not page.there("over")

    # A page that nobody sees lets its credential end, and renews it once it is seen again.
    page.driver.execute_script(SHOWN, True)
    asked = provider.asked.count("refresh")
    status = "return fetch('/api/v1/session').then((answer) => answer.status)"
    page.until(lambda: page.driver.execute_script(status) == 401, 3 * SHORT)
    assert provider.asked.count("refresh") <= asked + 1, "one may have been under way"
    page.driver.execute_script(SHOWN, False)
    page.until(lambda: page.driver.execute_script(status) == 200)
    assert not page.there("over")

    provider.refreshes = []
    page.until(lambda: page.there("over"), 4 * SHORT)
    provider.lie = lambda claims, signer: signer.token(claims)
    page.find("provider").click()
    page.until(lambda: page.text("user") == "carol" and not page.there("over"))
    page.press("Sign out")
    page.until(lambda: page.there("provider"))
    assert "revoke" in provider.asked


def test_a_sign_in_that_fails_is_said_to(page: Page, served: str, provider: Provider, axe: str) -> None:
    provider.lie = lambda claims, signer: signer.token({**claims, "aud": "another"})
    page.driver.get(served)
    page.find("provider").click()
    page.until(lambda: "The sign-in did not work" in page.text("refused"))
    assert page.axe(axe) == []
    assert page.driver.find_elements(By.ID, "token")
