"""What a user with few rights sees: what they may, and of the rest that it is denied, never that it is empty."""

from __future__ import annotations

from functools import partial

import pytest
from selenium.webdriver.common.by import By
from tests.browser.conftest import Page, Plane

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
    page.until(lambda: page.text("operators").count("works") == 2)
    assert plane.send("GET", path)["spec"]["size"] == 3
    plane.send("DELETE", path)
    assert page.complaints() == []
