"""Many instances and many windows: a list that is drawn in part, and one stream for all windows of a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

COUNT = 120
COUNT_STREAMS = """
window.streams = 0;
const Plain = window.EventSource;
window.EventSource = class extends Plain { constructor(url) { super(url); window.streams += 1; } };
"""


@pytest.fixture
def many(plane: Plane) -> Iterator[list[str]]:
    """Instances that their operator leaves alone."""
    names = [f"many-{number:03}" for number in range(COUNT)]
    paths = plane.redis_many(names)
    yield names
    plane.send_all("DELETE", paths)


def rows(page: Page) -> list[str]:
    script = "return [...document.querySelectorAll('tr[data-row]')].map(row => row.dataset.row)"
    return list(page.driver.execute_script(script))


def test_a_long_list_draws_what_is_in_sight_and_finds_the_rest(
    signed_in: Page, many: list[str], axe: str
) -> None:
    page = signed_in
    page.open("instances")
    page.until(lambda: "many-000" in rows(page))
    assert len(rows(page)) < COUNT, "rows out of sight are not drawn"
    assert many[-1] not in rows(page)
    page.driver.execute_script("window.scrollTo(0, document.body.scrollHeight)")
    page.until(lambda: many[-1] in rows(page))
    assert page.axe(axe) == []
    page.driver.execute_script("window.scrollTo(0, 0)")
    page.find("find").send_keys("many-077")
    page.until(lambda: rows(page) == ["many-077"])
    assert page.driver.current_url.endswith("?q=many-077"), "a filter is a part of the address"
    page.driver.refresh()
    page.until(lambda: rows(page) == ["many-077"])
    page.find("find").send_keys("-nothing")
    page.until(lambda: page.text("count").startswith("0 of"))


def test_windows_share_one_stream_and_the_next_takes_over(signed_in: Page, plane: Plane) -> None:
    page, driver = signed_in, signed_in.driver
    path = plane.redis("shared", size=3, image="redis:7.0")
    first = driver.current_window_handle
    page.open("instances")
    driver.refresh()
    page.until(lambda: "shared" in rows(page))
    assert driver.execute_script("return navigator.locks.query().then(all => all.held.length)") == 1
    driver.switch_to.new_window("window")
    second = driver.current_window_handle
    try:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": COUNT_STREAMS})
        page.open("instances/default/redis-sentinel/shared")
        page.until(lambda: page.there("timeline"))
        assert driver.execute_script("return window.streams") == 0
        held = "return navigator.locks.query().then(all => [all.held.length, all.pending.length])"
        assert driver.execute_script(held) == [1, 1], "one leads, the other waits to"
        driver.switch_to.window(first)
        driver.close()
        driver.switch_to.window(second)
        page.until(lambda: driver.execute_script(held) == [1, 0])
        page.until(lambda: driver.execute_script("return window.streams") == 1)
        plane.send("DELETE", path)
        page.until(lambda: page.there("gone"))
    finally:
        driver.switch_to.window(driver.window_handles[0])
