"""docs/write-an-operator.md: its programs are the ones in the tree, its commands work when pasted."""

from __future__ import annotations

import pytest
from tests.cli.program import needs_kubectl
from tests.examples.pages import ROOT, blocks, paste

PAGE = ROOT / "docs" / "write-an-operator.md"


@pytest.mark.parametrize(
    "block", list(blocks(PAGE, "python")), ids=lambda block: block.splitlines()[1].strip()[:40]
)
def test_what_the_page_shows_is_what_runs(block: str) -> None:
    name, _, code = block.partition("\n")
    assert code.rstrip() in (ROOT / name.removeprefix("# ")).read_text()


@pytest.mark.full
@needs_kubectl
@pytest.mark.embedded
@pytest.mark.timeout(500)
def test_every_command_works_when_pasted() -> None:
    paste(PAGE, "/tmp/mooring-guide")
