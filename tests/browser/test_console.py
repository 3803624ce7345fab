"""The console in Chromium, on a control plane with real Redis servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
#: Seconds until the page shows what was clicked, until the plane is ready, until a Redis is healthy.
SOON, READY, HEALTHY = 10.0, 60.0, 90.0


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The link of the console of a running `mooring up`."""
    place = tmp_path_factory.mktemp("up")
    log = place / "log"
    command = [
        sys.executable,
        "-m",
        "mooring",
        "up",
        "--data-dir",
        str(place / "data"),
        "--listen",
        "127.0.0.1:0",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
    try:
        deadline = time.monotonic() + READY
        while "mooring: ready." not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield re.findall(r"^console: (http://\S+)$", log.read_text(), re.MULTILINE)[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser that speaks English."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    profile = tmp_path_factory.mktemp("profile")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    quiet = ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
    for word in ("--headless=new", "--lang=en", f"--user-data-dir={profile}", *quiet, *sandbox):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver is given, so that nothing is looked for, or downloaded.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        yield Page(driver)
    finally:
        driver.quit()


class Page:
    """What a user does and sees."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def until(self, condition: Callable[[], object], seconds: float = SOON) -> None:
        WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(
            lambda _: condition(), message=f"not in time at {self.driver.current_url.partition('?')[0]}"
        )

    def find(self, test_id: str) -> WebElement:
        found: list[WebElement] = []

        def look() -> bool:
            found[:] = self.driver.find_elements(By.CSS_SELECTOR, f'[data-testid="{test_id}"]')
            return bool(found)

        self.until(look)
        return found[0]

    def there(self, test_id: str) -> bool:
        return bool(self.driver.find_elements(By.CSS_SELECTOR, f'[data-testid="{test_id}"]'))

    def shows(self, text: str) -> bool:
        return text in str(self.driver.execute_script("return document.body.innerText"))

    def phase(self) -> str:
        script = "return document.querySelector('[data-testid=phase]')?.dataset.phase ?? ''"
        return str(self.driver.execute_script(script))

    def press(self, text: str) -> None:
        self.driver.find_element(By.XPATH, f"//button[normalize-space()={text!r}]").click()

    def complaints(self) -> list[str]:
        """What the browser's console says, such as what the content security policy blocked.

        That the server refused something, as it should here, is not among it.
        """
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [
            entry["message"] for entry in entries if "responded with a status of 4" not in entry["message"]
        ]


def test_a_redis_is_created_watched_and_deleted(page: Page, link: str) -> None:
    address = link.partition("?")[0]
    page.driver.get(address)
    page.until(lambda: page.shows("Sign in"))
    page.driver.find_element(By.ID, "token").send_keys("not-a-token")
    page.press("Sign in")
    page.until(lambda: page.shows("does not accept this token"))
    page.driver.get(f"{address}?token=wrong")
    page.until(lambda: page.shows("used already, or is not valid"))

    page.driver.get(link)
    page.find("create-redis-sentinel")
    assert "token" not in page.driver.current_url
    page.find("create-redis-sentinel").click()
    page.until(lambda: page.shows("The cluster accepts this."))
    assert "kind: RedisCluster" in page.find("manifest").text
    size = page.driver.find_element(By.ID, "field-size")
    size.clear()
    size.send_keys("99")
    page.until(lambda: "at most 10" in page.driver.find_element(By.ID, "field-size-error").text)
    size.clear()
    size.send_keys("3")
    page.until(lambda: page.shows("The cluster accepts this."))
    name = page.driver.find_element(By.ID, "field-name").get_attribute("value") or ""
    page.find("submit").click()

    page.until(lambda: f"/instances/default/redis-sentinel/{name}" in page.driver.current_url)
    page.until(lambda: page.phase() == "Running", HEALTHY)
    page.until(lambda: page.shows("Healthy"))
    page.until(lambda: page.there("events"))
    page.press("YAML")
    page.until(lambda: "kind: RedisCluster" in page.find("yaml").text)

    page.press("中文")
    page.until(lambda: page.shows("运行中"))
    page.press("English")
    page.find("delete").click()
    assert page.shows("What stays")
    assert not page.find("confirm-delete").is_enabled()
    page.driver.find_element(By.ID, "confirm").send_keys(name)
    page.find("confirm-delete").click()
    page.until(lambda: page.there("gone"))
    page.driver.get(f"{address}#/instances")
    page.until(lambda: page.shows("Nothing runs here yet."))
    page.press("Sign out")
    page.until(lambda: page.shows("Bearer token"))
    assert page.complaints() == []
