"""Actions in Chromium: what would happen first, then one click."""

from __future__ import annotations

import pytest
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_an_instance_is_scaled_and_resumed_by_its_actions(signed_in: Page, plane: Plane, axe: str) -> None:
    page, path = signed_in, plane.redis("acted", size=3, image="redis:7.0")
    page.open("instances/default/redis-sentinel/acted")
    page.find("action-scale").click()
    page.until(lambda: page.shows("Nothing is changed."))
    assert not page.find("confirm-action").is_enabled()
    page.type("action-size", "99")
    page.until(lambda: page.shows("at most 10"))
    page.type("action-size", "5")
    page.until(lambda: page.find("confirm-action").is_enabled())
    assert "spec.size" in page.text("action-changes")
    assert page.axe(axe) == []
    assert plane.send("GET", path)["spec"]["size"] == 3
    page.find("confirm-action").click()
    page.until(lambda: not page.there("action-dialog"))
    assert plane.send("GET", path)["spec"]["size"] == 5
    assert not page.there("action-pause"), "it is paused already"
    page.find("action-resume").click()
    page.until(lambda: page.find("confirm-action").is_enabled())
    page.find("confirm-action").click()
    page.until(lambda: page.there("action-pause"))
    assert "mooring.dev/pause" not in (plane.send("GET", path)["metadata"].get("annotations") or {})
    plane.send("DELETE", path)
    assert page.complaints() == []
