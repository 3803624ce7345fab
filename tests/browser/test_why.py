"""Why an instance waits, told on its page while it waits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.browser.conftest import Page, Plane

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

#: Seconds until pods were made and something is known of them.
KNOWN = 60.0
SPEC: dict[str, Any] = {"size": 3, "image": "redis:7.0", "sentinel": {"replicas": 3, "image": "redis:7.0"}}


def code(page: Page) -> str:
    script = "return document.querySelector('[data-testid=why]')?.dataset.code ?? ''"
    return str(page.driver.execute_script(script))


@pytest.mark.parametrize(
    ("name", "spec", "wanted", "english", "chinese"),
    [
        (
            "pictureless",
            {"image": "registry.example/nothing:1"},
            ("ImageNotHere",),
            "registry.example/nothing:1",
            "镜像",
        ),
        (
            "huge",
            {"resources": {"requests": {"cpu": "900"}, "limits": {"cpu": "900"}}},
            ("NoRoom",),
            "asks for 900",
            "需要 900",
        ),
    ],
)
def test_the_cause_and_the_next_step_are_shown(
    signed_in: Page,
    plane: Plane,
    axe: str,
    name: str,
    spec: dict[str, Any],
    wanted: tuple[str, ...],
    english: str,
    chinese: str,
) -> None:
    page, path = signed_in, plane.redis(name, paused=False, **{**SPEC, **spec})
    try:
        page.open(f"instances/default/redis-sentinel/{name}")
        page.until(lambda: code(page) in wanted, KNOWN)
        assert english in page.text("why")
        assert "Next step:" in page.text("why")
        assert page.axe(axe) == []
        page.press("中文")
        page.until(lambda: chinese in page.text("why"))
        page.press("English")
    finally:
        plane.send("DELETE", path)
