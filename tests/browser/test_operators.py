"""The operators page, and that each page can be used by everybody: axe, both languages, dark, narrow, by keyboard."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_the_operators_that_run_are_shown(signed_in: Page, plane: Plane) -> None:
    page = signed_in
    page.open("operators")
    page.until(lambda: page.text("operators").count("works") == 4)
    assert page.text("operators").count("shared") == 4
    assert not page.there("orphans")
    path = "/apis/redis.kun/v1beta1/namespaces/default/redisclusters"
    annotations = {"redis.kun/scope": "cluster-scoped"}
    body = {"apiVersion": "redis.kun/v1beta1", "kind": "RedisCluster", "spec": {}}
    plane.send(
        "POST",
        path,
        {**body, "metadata": {"name": "wide", "annotations": {**annotations, "mooring.dev/pause": "true"}}},
    )
    page.until(lambda: "1" in page.text("operators"))
    plane.send("DELETE", f"{path}/wide")


ROUTES = ["catalog", "create/redis-sentinel", "create/redis-cluster", "instances", "operators", "templates"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_page_has_no_serious_fault_for_anybody(signed_in: Page, axe: str, route: str, dark: bool) -> None:
    page = signed_in
    scheme = "dark" if dark else "light"
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    try:
        page.open(route)
        page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "main h1"))
        page.until(lambda: not page.driver.find_elements(By.CSS_SELECTOR, "[aria-busy=true]"))
        assert page.axe(axe) == []
        page.press("中文")
        page.until(lambda: page.shows("服务目录"))
        assert page.axe(axe) == []
    finally:
        if page.shows("服务目录"):
            page.press("English")
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_fits_on_a_telephone(signed_in: Page, plane: Plane, route: str) -> None:
    page = signed_in
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open(route)
        page.until(lambda: not page.driver.find_elements(By.CSS_SELECTOR, "[aria-busy=true]"))
        width = page.driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= 390
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_an_instance_is_created_by_the_keyboard_alone(signed_in: Page, plane: Plane) -> None:
    page = signed_in
    page.open("catalog")
    page.find("create-redis-sentinel")

    def tab_to(test: str) -> None:
        for _ in range(80):
            page.driver.switch_to.active_element.send_keys(Keys.TAB)
            if page.driver.execute_script(f"return document.activeElement?.matches({test!r}) ?? false"):
                return
        raise AssertionError(f"the keyboard does not reach {test}")

    tab_to("[data-testid=create-redis-sentinel]")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.until(lambda: page.shows("The cluster accepts this."))
    tab_to("#field-name")
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    page.driver.switch_to.active_element.send_keys("by-keys")
    page.until(lambda: "name: by-keys" in page.text("manifest") and page.shows("The cluster accepts this."))
    tab_to("[data-testid=submit]")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.until(lambda: "/instances/default/redis-sentinel/by-keys" in page.driver.current_url)
    plane.send("DELETE", "/apis/redis.kun/v1beta1/namespaces/default/redisclusters/by-keys")
    assert page.complaints() == []
