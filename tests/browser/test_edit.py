"""Edits in Chromium: the review, and that nothing typed is lost."""

from __future__ import annotations

from typing import Any

import pytest
from selenium.webdriver.common.by import By
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

SPEC: dict[str, Any] = {"size": 3, "image": "redis:7.0", "password": "s3cret-word"}


def size(plane: Plane, path: str) -> int:
    return int(plane.send("GET", path)["spec"]["size"])


def test_a_change_is_reviewed_and_applied(signed_in: Page, plane: Plane, axe: str) -> None:
    page, path = signed_in, plane.redis("reviewed", **SPEC)
    page.open("instances/default/redis-sentinel/reviewed")
    page.find("edit").click()
    page.until(lambda: page.field("size").get_attribute("value") == "3")
    assert not page.find("apply").is_enabled()
    assert not page.field("storageClass").is_enabled()
    assert "Cannot be changed any more." in page.driver.find_element(By.ID, "field-storageClass-hint").text
    page.type("size", "99")
    page.until(lambda: "at most 10" in page.driver.find_element(By.ID, "field-size-error").text)
    page.type("size", "5")
    page.until(lambda: page.find("apply").is_enabled())
    assert "spec.size" in page.text("changes")
    assert "+  size: 5" in page.text("diff")
    assert page.axe(axe) == []
    page.driver.find_element(By.ID, "tab-yaml").click()
    editor = page.field("yaml")
    text = editor.get_attribute("value") or ""
    assert "s3cret-word" not in text
    page.paste("yaml", text.replace("image: redis:7.0", "image: redis:7.2"))
    page.until(lambda: "spec.image" in page.text("changes") and page.find("apply").is_enabled())
    assert size(plane, path) == 3
    page.find("apply").click()
    page.until(lambda: page.driver.current_url.endswith("/reviewed"))
    spec = plane.send("GET", path)["spec"]
    assert (spec["size"], spec["image"], spec["password"]) == (5, "redis:7.2", "s3cret-word")
    assert page.complaints() == []


def test_a_conflict_shows_both_and_keeps_what_was_typed(signed_in: Page, plane: Plane) -> None:
    page, path = signed_in, plane.redis("contested", **SPEC)
    page.open("instances/default/redis-sentinel/contested/edit")
    page.until(lambda: page.field("size").get_attribute("value") == "3")
    plane.send("PATCH", path, {"spec": {"size": 7, "image": "redis:7.4"}})
    page.type("size", "5")
    page.until(lambda: page.there("conflict"))
    assert "spec.image" in page.text("theirs")
    assert "5" in page.text("ours")
    assert page.field("size").get_attribute("value") == "5"
    assert size(plane, path) == 7
    page.find("go-on").click()
    page.until(lambda: page.find("apply").is_enabled())
    assert page.field("image").get_attribute("value") == "redis:7.4"
    page.find("apply").click()
    page.until(lambda: page.driver.current_url.endswith("/contested"))
    spec = plane.send("GET", path)["spec"]
    assert (spec["size"], spec["image"]) == (5, "redis:7.4")


def test_the_end_of_a_session_loses_nothing_that_was_typed(signed_in: Page, plane: Plane) -> None:
    page = signed_in
    plane.redis("expired", **SPEC)
    page.open("instances/default/redis-sentinel/expired/edit")
    page.type("size", "5")
    page.until(lambda: page.find("apply").is_enabled())
    cookies = page.driver.get_cookies()
    page.driver.delete_all_cookies()
    page.find("apply").click()
    page.until(lambda: page.there("over"))
    assert not page.find("apply").is_displayed()
    for cookie in cookies:
        page.driver.add_cookie(cookie)
    page.press("I have signed in in another tab")
    page.until(lambda: not page.there("over"))
    assert page.field("size").get_attribute("value") == "5"
    page.type("size", "6")
    page.until(lambda: page.find("apply").is_enabled())
    page.find("apply").click()
    page.until(lambda: page.driver.current_url.endswith("/expired"))
    assert size(plane, "/apis/redis.kun/v1beta1/namespaces/default/redisclusters/expired") == 6


STUB = """
window.plainFetch ??= window.fetch;
window.fetch = (url, init) => init?.method !== 'PATCH' ? window.plainFetch(url, init) : Promise.resolve(
  new Response(JSON.stringify({code: arguments[0] === 429 ? 'TooManyRequests' : 'Stub', detail: 'refused for a test', requestId: 'r'}), {status: arguments[0]}));
"""


@pytest.mark.parametrize("status", [403, 409, 410, 429, 500, 502, 504, "offline"])
def test_no_error_loses_what_was_typed(signed_in: Page, plane: Plane, axe: str, status: int | str) -> None:
    page, name = signed_in, f"erring-{status}"
    path = plane.redis(name, **SPEC)
    page.open(f"instances/default/redis-sentinel/{name}/edit")
    page.until(lambda: page.field("size").get_attribute("value") == "3")
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    if status == "offline":
        page.driver.execute_cdp_cmd("Network.enable", {})
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    else:
        page.driver.execute_script(STUB, status)
    try:
        page.type("size", "5")
        said = "does not answer" if status == "offline" else "refused for a test"
        page.until(lambda: page.shows(said))
        assert not page.find("apply").is_enabled()
        assert page.field("size").get_attribute("value") == "5"
        if status == 403:
            assert page.axe(axe) == []
        if status == 429:
            assert page.shows("The cluster asks to slow down.")
            page.press("中文")
            page.until(lambda: page.shows("集群请求过多，请稍后重试。"))
            assert page.field("size").get_attribute("value") == "5"
            page.press("English")
    finally:
        page.driver.execute_script("if (window.plainFetch) window.fetch = window.plainFetch")
        if status == "offline":
            online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
            page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", online)
    assert all("net::ERR_INTERNET_DISCONNECTED" in text for text in page.complaints())
    page.press("Try again")
    page.until(lambda: page.find("apply").is_enabled())
    page.find("apply").click()
    page.until(lambda: page.driver.current_url.endswith(f"/{name}"))
    assert size(plane, path) == 5
    plane.send("DELETE", path)
