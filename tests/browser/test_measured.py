"""The pages of metrics, quotas and upgrades in Chromium."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from tests.browser.conftest import CORE, Page, Plane, narrow, stubbed

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

CHARTS = {
    "source": "prometheus",
    "charts": [
        {
            "title": {"en": "Memory of the data", "zh": "数据内存"},
            "unit": "bytes",
            "lines": [
                {"name": "redis-0", "points": [[1700000000, 1048576], [1700000060, 2097152]]},
                {"name": "redis-1", "points": [[1700000000, None], [1700000060, 3145728]]},
            ],
        },
        {"title": {"en": "Clients", "zh": "客户端"}, "unit": "", "lines": []},
    ],
    "usage": [],
    "figures": [],
}


def test_metrics_show_what_there_is_and_what_to_configure(signed_in: Page, plane: Plane, axe: str) -> None:
    page, path = signed_in, plane.redis("measured", size=3, image="redis:7.0")
    plane.pod("measured-0", owner=path)
    route = "instances/default/redis-sentinel/measured?tab=metrics"
    # The plane measures its pods by itself, as metrics-server does.
    page.open(route)
    page.until(lambda: "measured-0" in page.text("usage"), 60)
    assert "Redis servers" in page.text("figures")
    assert page.axe(axe) == []
    page.press("中文")
    page.until(lambda: page.shows("内存"))
    assert page.axe(axe) == []
    page.press("English")
    with stubbed(page, "/metrics", {**CHARTS, "source": "none", "charts": []}):
        page.reopen(route)
        page.until(lambda: "--prometheus URL" in page.text("metrics-none"))
        assert page.axe(axe) == []
    with stubbed(page, "/metrics", {**CHARTS, "source": "denied", "charts": []}):
        page.reopen(route)
        page.until(lambda: "metrics.k8s.io" in page.text("metrics-denied"))
    with stubbed(page, "/metrics", CHARTS):
        page.reopen(route)
        page.until(lambda: page.text("charts").count("MiB") >= 2)
        assert "redis-1: 3 MiB" in page.text("charts")
        assert "No data in this range." in page.text("charts")
        assert page.axe(axe) == []
        assert narrow(page) <= 390
    away = {
        "code": "PrometheusAway",
        "detail": "Prometheus does not answer: no connection.",
        "requestId": "r",
    }
    with stubbed(page, "/metrics", away, status=502):
        page.reopen(route)
        page.until(lambda: "no connection" in page.text("metrics-away"))
        assert page.axe(axe) == []
    plane.send("DELETE", path)


def test_the_summary_shows_what_the_quota_leaves(signed_in: Page, plane: Plane, axe: str) -> None:
    page = signed_in
    hard = {"pods": "500", "requests.storage": "100Gi"}
    quota = {"metadata": {"name": "team"}, "spec": {"hard": hard}}
    plane.send("POST", f"{CORE}/resourcequotas", quota)
    limits = [{"type": "Container", "max": {"memory": "1Gi"}}]
    plane.send("POST", f"{CORE}/limitranges", {"metadata": {"name": "bounds"}, "spec": {"limits": limits}})
    try:
        page.open("create/redis-sentinel")
        page.until(lambda: "3 GiB wanted" in page.text("quota"))
        assert "More than quota" not in page.text("quota")
        assert page.axe(axe) == []
        page.driver.find_element(By.XPATH, "//label[contains(., 'Large')]").click()
        page.until(lambda: "More than quota team allows, by 1" in page.text("quota"))
        assert "bounds allows at most 1Gi" in page.text("quota")
        assert page.axe(axe) == []
        assert narrow(page) <= 390
        page.press("中文")
        page.until(lambda: "超出配额" in page.text("quota"))
        page.press("English")
    finally:
        plane.send("DELETE", f"{CORE}/resourcequotas/team")
        plane.send("DELETE", f"{CORE}/limitranges/bounds")


def test_a_rule_of_the_entry_is_told_at_its_field(signed_in: Page) -> None:
    page = signed_in
    page.reopen("create/redis-sentinel")
    page.until(lambda: page.shows("The cluster accepts this."))
    page.type("maxmemory", "2gb")
    page.until(
        lambda: "less than the memory limit" in page.driver.find_element(By.ID, "field-maxmemory-error").text
    )


def test_the_upgrade_preview_is_asked_for(signed_in: Page, plane: Plane, axe: str) -> None:
    page, path = signed_in, plane.redis("upgraded", size=3, image="redis:7.0")
    page.open("operators")
    page.find("ask-upgrade").click()
    page.until(lambda: "instances brings something along" in page.text("upgrade-count"))
    row = {"entry": "redis-sentinel", "namespace": "default", "name": "upgraded"}
    planned = {
        **row,
        "component": "redis",
        "fields": ["spec.containers[0].args"],
        "waiting": True,
        "trouble": "",
    }
    found = {"version": "9.9.9", "rows": [planned], "instances": 1, "truncated": False}
    with stubbed(page, "/operators/upgrade", found):
        page.find("ask-upgrade").click()
        page.until(lambda: "spec.containers[0].args" in page.text("upgrades"))
        assert "9.9.9" in page.text("upgrade-count")
        assert page.axe(axe) == []
        assert narrow(page) <= 390
    denied = {"code": "Forbidden", "detail": "denied for a test", "requestId": "r"}
    with stubbed(page, "/operators/upgrade", denied, status=403):
        page.find("ask-upgrade").click()
        page.until(lambda: page.shows("denied for a test"))
    plane.send("DELETE", path)
