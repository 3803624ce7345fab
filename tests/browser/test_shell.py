"""What is on every page: the palette and the theme."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_the_palette_leads_to_an_instance_by_keys_alone(signed_in: Page, plane: Plane, axe: str) -> None:
    page, path = signed_in, plane.redis("needle", size=3, image="redis:7.0")
    page.open("catalog")
    page.find("create-redis-sentinel")
    page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL, "k")
    page.find("palette")
    assert page.axe(axe) == []
    page.driver.switch_to.active_element.send_keys("need")
    page.until(lambda: "needle" in page.text("palette"))
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    page.until(lambda: page.driver.current_url.endswith("/instances/default/redis-sentinel/needle"))
    assert not page.there("palette")
    page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL, "k")
    page.find("palette")
    page.driver.switch_to.active_element.send_keys("no such thing")
    page.until(lambda: "Nothing of that name." in page.text("palette"))
    page.driver.switch_to.active_element.send_keys(Keys.ENTER, Keys.ESCAPE)
    page.until(lambda: not page.there("palette"))
    plane.send("DELETE", path)
    assert page.complaints() == []


def test_the_theme_is_chosen_and_kept(signed_in: Page, axe: str) -> None:
    page = signed_in

    def background() -> str:
        return str(
            page.driver.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
        )

    page.open("catalog")
    seen = {}
    for _ in range(3):
        page.find("theme").click()
        theme = page.find("theme").get_attribute("data-theme-now") or ""
        seen[theme] = background()
        assert page.axe(axe) == []
        page.driver.refresh()
        page.until(lambda: page.there("theme"))
        assert page.find("theme").get_attribute("data-theme-now") == theme
        assert background() == seen[theme]
    assert seen.keys() == {"auto", "light", "dark"}
    assert seen["light"] != seen["dark"]
