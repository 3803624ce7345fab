"""The page of activity in Chromium: who did what, filters that are part of the address, what is denied, failed or empty."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from tests.browser.conftest import REDIS, Page, Plane, narrow, stubbed

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_what_users_and_programs_did_is_found_and_linked(signed_in: Page, plane: Plane, axe: str) -> None:
    page = signed_in
    other = plane.redis("elsewhere", size=3, image="redis:7.0")
    page.open("create/redis-sentinel")
    page.type("name", "done")
    page.until(lambda: "name: done" in page.text("manifest") and page.shows("The cluster accepts this."))
    page.find("submit").click()
    page.until(lambda: page.driver.current_url.endswith("/redis-sentinel/done"))
    page.open("instances/default/redis-sentinel/done?tab=events")
    page.until(lambda: page.driver.find_elements(By.LINK_TEXT, "All that was done with it"))
    page.driver.find_element(By.LINK_TEXT, "All that was done with it").send_keys(Keys.ENTER)
    page.until(lambda: "activity?" in page.driver.current_url and "name=done" in page.driver.current_url)
    page.until(lambda: "admin" in page.text("activity") and "Created." in page.text("activity"), 20)
    assert "elsewhere" not in page.text("activity")
    assert page.shows("Only of done.")
    assert page.axe(axe) == []
    assert narrow(page) <= 390

    page.driver.find_element(By.LINK_TEXT, "Show all").click()
    page.until(lambda: "elsewhere" in page.text("activity"))
    Select(page.find("by-source")).select_by_value("user")
    page.until(lambda: "source=user" in page.driver.current_url)
    page.until(lambda: "elsewhere" not in page.text("activity") and "done" in page.text("activity"))
    page.find("find").send_keys("nothing of this name")
    page.until(lambda: page.shows("Nothing was done here lately."))
    # The address alone leads to the same page.
    page.open("nowhere")
    page.until(lambda: page.there("create-redis-sentinel"))
    page.open("activity?source=change&q=elsewhere")
    page.until(lambda: "elsewhere" in page.text("activity") and "done" not in page.text("activity"))
    assert Select(page.find("by-source")).first_selected_option.text == "Programs, from the metadata"
    page.press("中文")
    page.until(lambda: "操作者" in page.text("activity") and "已创建" in page.text("activity"))
    assert page.axe(axe) == []
    page.press("English")
    page.driver.find_element(By.LINK_TEXT, "elsewhere").click()
    page.until(lambda: page.driver.current_url.endswith("/redis-sentinel/elsewhere"))

    nothing = {"rows": [], "truncated": False, "denied": [], "eventsDenied": False}
    with stubbed(page, "/activity", nothing):
        page.reopen("activity")
        page.until(lambda: page.shows("Nothing was done here lately."))
        assert page.axe(axe) == []
    with stubbed(page, "/activity", {"code": "NoAnswer", "detail": "stopped for a test"}, status=504):
        page.reopen("activity")
        page.until(lambda: page.shows("stopped for a test"))
        assert page.axe(axe) == []
    for path in (other, f"{REDIS.format('default')}/done"):
        plane.delete(path)
    assert page.complaints() == []


def test_what_may_not_be_seen_is_said_to_be_denied(reader: Page, plane: Plane, axe: str) -> None:
    page, path = reader, plane.redis("seen", size=3, image="redis:7.0")
    page.open("activity")
    page.until(lambda: "seen" in page.text("activity"))
    assert "You may not list events" in page.text("events-denied")
    assert "Redis Cluster" in page.text("denied")
    assert page.axe(axe) == []
    plane.delete(path)
    assert page.complaints() == []
