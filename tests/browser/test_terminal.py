"""A shell in a container, in Chromium, with a real process behind it."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.browser.conftest import Page, Plane, narrow

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

PODS = "/api/v1/namespaces/default/pods"


def test_a_shell_runs_commands_and_says_why_it_ended(signed_in: Page, plane: Plane, axe: str) -> None:
    page, path = signed_in, plane.redis("shelled", size=3, image="redis:7.0")
    page.open("instances/default/redis-sentinel/shelled?tab=terminal")
    page.until(lambda: page.shows("There are no pods"))
    assert page.axe(axe) == []
    plane.pod("shelled-0", owner=path)
    try:
        page.until(lambda: "shelled-0/redis" in page.text("terminal-container"))
        page.until(lambda: plane.send("GET", f"{PODS}/shelled-0")["status"].get("phase") == "Running", 30)
        assert page.axe(axe) == []
        page.find("terminal-open").click()
        page.until(lambda: page.find("terminal-line").is_enabled())
        line = page.find("terminal-line")
        line.send_keys("echo a$((40+2))b", Keys.ENTER)
        page.until(lambda: "a42b" in page.text("terminal"))
        assert page.axe(axe) == []
        # A carriage return goes back to the begin of its line; colours are left out.
        line.send_keys(r"printf 'first\rlast!\033[31mred\033[0m\n'", Keys.ENTER)
        page.until(lambda: "last!red" in page.text("terminal"))
        line.send_keys("sleep 600", Keys.ENTER)
        page.until(lambda: "sleep 600" in page.text("terminal"))
        page.find("terminal-interrupt").click()
        line.send_keys("echo still$((1))here", Keys.ENTER)
        page.until(lambda: "still1here" in page.text("terminal"))
        line.send_keys(Keys.ARROW_UP)
        assert line.get_attribute("value") == "echo still$((1))here"
        line.clear()
        line.send_keys("exit", Keys.ENTER)
        page.until(lambda: page.text("terminal-ended") == "The shell has ended.")
        page.press("中文")
        page.until(lambda: page.text("terminal-ended") == "shell 已结束。")
        page.press("English")
        assert narrow(page) <= 390
    finally:
        plane.send("DELETE", path)
    assert page.complaints() == []


def test_without_the_right_there_is_no_shell_to_open(reader: Page, plane: Plane, axe: str) -> None:
    page, path = reader, plane.redis("unshelled", size=3, image="redis:7.0")
    page.open("instances/default/redis-sentinel/unshelled?tab=terminal")
    page.until(lambda: page.there("terminal-denied"))
    assert "pods/exec" in page.text("terminal-denied")
    assert not page.driver.find_elements(By.CSS_SELECTOR, "[data-testid=terminal-open]")
    assert page.axe(axe) == []
    plane.send("DELETE", path)
