"""The playground of templates in Chromium."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from tests.browser.conftest import Page, narrow, stubbed

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_a_template_is_tried_and_mended_by_line(signed_in: Page, axe: str) -> None:
    page = signed_in
    page.open("templates")
    page.until(lambda: page.there("template-good"))
    assert "size: 3" in page.text("template-manifest")
    assert page.axe(axe) == []
    page.type("size", "4")
    page.until(lambda: "odd number" in page.driver.find_element(By.ID, "field-size-error").text)
    page.type("size", "5")
    page.until(lambda: "size: 5" in page.text("template-manifest"))
    text = page.field("template").get_attribute("value") or ""
    page.paste("template", text.replace("x-bind: /spec/size", "x-bind: /spec/sizes"))
    page.until(lambda: "the kind has no spec.sizes" in page.text("template-lint"))
    line = text.split("\n").index("        x-bind: /spec/size") + 1
    page.press(f"Line {line}")
    script = "const a = document.activeElement; return a.value.slice(a.selectionStart, a.selectionEnd)"
    assert page.driver.execute_script(script) == "        x-bind: /spec/sizes"
    assert page.axe(axe) == []
    page.paste("template", text.replace("  sections:", "\t sections:"))
    page.until(lambda: "token" in page.text("template-lint"))
    page.press("中文")
    page.until(lambda: page.shows("需要修正"))
    assert page.axe(axe) == []
    assert narrow(page) <= 390
    page.press("English")
    failed = {"code": "NoAnswer", "detail": "stopped for a test", "requestId": "r"}
    with stubbed(page, "/templates/try", failed, status=504):
        page.paste("template", text)
        page.until(lambda: page.shows("stopped for a test"))
        assert page.field("template").get_attribute("value") == text, "nothing that was typed is lost"
    page.paste("template", text + "\n")
    page.until(lambda: page.there("template-good"))
    assert page.complaints() == []
