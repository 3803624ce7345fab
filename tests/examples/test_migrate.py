"""docs/migrate: the commands that move data work when pasted, from a real old server into a real new cluster."""

from __future__ import annotations

import pytest
from tests.cli.program import needs_kubectl
from tests.examples.pages import ROOT, commands, paste

PLACE = "/tmp/mooring-migrate"
PAGES = ROOT / "docs" / "migrate"


@needs_kubectl
@pytest.mark.full
@pytest.mark.timeout(500)
@pytest.mark.parametrize("page", ["redis", pytest.param("mysql", marks=pytest.mark.nightly)])
def test_every_command_works_when_pasted(page: str) -> None:
    paste(PAGES / f"{page}.md", PLACE)


def test_the_data_is_compared_on_every_page_that_moves_some() -> None:
    shown = [one.shows for one in commands(PAGES / "redis.md") if one.shows]
    assert any(shown.count(one) > 1 for one in shown), "the old and the new show the same"
    assert ["the same in both: 1 tables"] in [one.shows for one in commands(PAGES / "mysql.md")]
