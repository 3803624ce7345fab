"""What a user with few rights sees: what they may, and of the rest that it is denied, never that it is empty."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from selenium.webdriver.common.by import By
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

CORE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


@pytest.fixture
def reader(signed_in: Page, plane: Plane) -> Iterator[Page]:
    """The browser signed in by the token of an account that may read RedisClusters of one namespace."""
    page = signed_in
    plane.send("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": "reader"}})
    rules = [{"apiGroups": ["redis.kun"], "resources": ["redisclusters"], "verbs": ["get", "list", "watch"]}]
    plane.send("POST", f"{RBAC}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    plane.send("POST", f"{RBAC}/rolebindings", binding)
    made = plane.send("POST", f"{CORE}/serviceaccounts/reader/token", {"spec": {}})
    cookies = page.driver.get_cookies()
    page.driver.delete_all_cookies()
    page.driver.get(page.address)
    page.until(lambda: page.driver.find_elements(By.ID, "token"))
    page.driver.find_element(By.ID, "token").send_keys(made["status"]["token"])
    page.press("Sign in")
    page.until(lambda: "reader" in page.text("user"))
    try:
        yield page
    finally:
        page.driver.delete_all_cookies()
        for cookie in cookies:
            page.driver.add_cookie(cookie)
        page.driver.get(page.address)
        page.until(lambda: "admin" in page.text("user"))
        for path in (f"{RBAC}/rolebindings", f"{RBAC}/roles", f"{CORE}/serviceaccounts"):
            plane.send("DELETE", f"{path}/reader")


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
    assert page.shows("You may not list: Redis Cluster")
    page.open("operators")
    page.until(lambda: page.text("operators").count("works") == 2)
    assert plane.send("GET", path)["spec"]["size"] == 3
    plane.send("DELETE", path)
    assert page.complaints() == []
