"""The console in Chromium, on a control plane with real Redis servers."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

#: Seconds until a Redis is healthy.
HEALTHY = 90.0


def test_a_redis_is_created_watched_and_deleted(page: Page, plane: Plane, axe: str) -> None:
    link = plane.link
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
    page.until(lambda: not page.there("why"))
    assert page.axe(axe) == []
    page.press("Topology")
    page.until(lambda: page.text("pods-redis").count("ready · Online") == 3)
    assert page.text("pods-redis").count("Master") == 1
    assert page.text("nodes").count("Replica, ready") == 2
    assert page.axe(axe) == []
    page.press("Events")
    page.until(lambda: "Healthy" in page.text("events"))
    assert page.axe(axe) == []
    page.press("Logs")
    page.until(lambda: "Ready to accept connections" in page.text("log"))
    assert page.axe(axe) == []
    assert not page.there("log-ended"), "the log is followed"
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
