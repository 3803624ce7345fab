"""What a user with few rights sees: what they may, and of the rest that it is denied, never that it is empty."""

from __future__ import annotations

from functools import partial

import pytest
from selenium.webdriver.common.by import By
from tests.browser.conftest import CORE, Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_what_is_denied_is_said_to_be_denied(reader: Page, plane: Plane, axe: str) -> None:
    page, path = reader, plane.redis("seen", size=3, image="redis:7.0")
    page.open("instances/default/redis-sentinel/seen")
    page.until(lambda: page.there("phase"))
    page.until(lambda: "You may not read:" in page.text("why"))
    for name in ("Edit", "Delete", "Scale"):
        button = page.driver.find_element(By.XPATH, f"//button[normalize-space()='{name}']")
        assert not button.is_enabled(), name
    for tab, said in (
        ("topology", "You may not list pods"),
        ("logs", "You may not list pods"),
        ("events", "You may not list events"),
    ):
        page.open(f"instances/default/redis-sentinel/seen?tab={tab}")
        page.until(partial(page.shows, said))
        assert page.axe(axe) == []
    page.open("instances/default/redis-sentinel/seen/edit")
    page.type("size", "5")
    page.until(lambda: page.shows("You may not do this with your rights."))
    assert not page.find("apply").is_enabled()
    assert "spec.size" in page.text("changes")
    page.open("create/redis-sentinel")
    page.until(lambda: page.shows("the verb 'create' on redisclusters.redis.kun"))
    page.open("instances")
    page.until(lambda: page.there("row-seen"))
    page.until(lambda: "Redis Cluster" in page.text("denied"))
    assert "You may not list:" in page.text("denied")
    assert "Redis with Sentinel" not in page.text("denied")
    page.open("operators")
    page.until(lambda: page.text("operators").count("works") == 4)
    assert plane.send("GET", path)["spec"]["size"] == 3
    plane.send("DELETE", path)
    assert page.complaints() == []


def test_a_page_that_outlives_its_user_loads_again(reader: Page, plane: Plane) -> None:
    page, driver = reader, reader.driver
    page.open("templates")
    page.until(lambda: page.there("template-good"))
    page.paste("template", "only of the reader")
    page.until(
        lambda: "only of" in driver.execute_script("return sessionStorage.getItem('mooring.template')")
    )
    driver.execute_script("window.ofReader = true")
    seen = "Object.defineProperty(document, 'visibilityState', {value: arguments[0], configurable: true});"
    seen += "document.dispatchEvent(new Event('visibilitychange'))"
    driver.execute_script(seen, "hidden")
    driver.delete_all_cookies()
    plane.send("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": "next"}})
    made = plane.send("POST", f"{CORE}/serviceaccounts/next/token", {"spec": {}})
    # Another page of this browser signs in as somebody else, of which this one is not told.
    driver.switch_to.new_window("window")
    try:
        driver.get(page.address)
        page.until(lambda: driver.find_elements(By.ID, "token"))
        driver.find_element(By.ID, "token").send_keys(made["status"]["token"])
        page.press("Sign in")
        page.until(lambda: "next" in page.text("user"))
        driver.close()
        driver.switch_to.window(driver.window_handles[0])
        # It sees so by itself once it is seen again.
        driver.execute_script(seen, "visible")
        page.until(lambda: "next" in page.text("user"))
        assert driver.execute_script("return window.ofReader") is None
        assert "only of the reader" not in (page.field("template").get_attribute("value") or "")
    finally:
        driver.switch_to.window(driver.window_handles[0])
        plane.send("DELETE", f"{CORE}/serviceaccounts/next")


def test_what_one_topic_cannot_show_is_said_there(signed_in: Page, plane: Plane) -> None:
    page, path = signed_in, plane.redis("beside", size=3, image="redis:7.0")
    page.open("instances/default/nothing-of-this-name/x")
    page.until(lambda: "NoSuchEntry" in page.text("unserved"))
    page.open("instances")
    page.until(lambda: page.there("row-beside"))
    assert not page.there("unserved")
    plane.send("DELETE", path)
    page.complaints()  # what is not there was asked for


def test_signing_out_removes_the_draft_of_a_template(reader: Page) -> None:
    page, draft = reader, "return sessionStorage.getItem('mooring.template')"
    page.open("templates")
    page.until(lambda: page.there("template-good"))
    assert page.driver.execute_script(draft)
    page.press("Sign out")
    page.until(lambda: page.driver.find_elements(By.ID, "token"))
    assert page.driver.execute_script(draft) is None
