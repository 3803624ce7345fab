"""The documentation as a site."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hack.site import PARTS, ROOT


def test_every_page_has_its_place() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs) for path in docs.rglob("*.md")}
    assert {str(page.with_suffix("")) for page in pages} == {page for part in PARTS.values() for page in part}


def test_every_page_has_one_title() -> None:
    # The navigation lists every heading of the first level as a page of its own.
    for page in (ROOT / "docs").rglob("*.md"):
        outside = "".join(page.read_text().split("```")[::2])
        assert len(re.findall(r"^# ", outside, re.MULTILINE)) == 1, page


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_it_is_built_with_a_page_per_kind_and_finds_chinese_words(tmp_path: Path) -> None:
    out = tmp_path / "site"
    command = [str(ROOT / "mooring"), "exec", "python", "hack/site.py", "--output", str(out)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MOORING_LOCK": "site"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    made = {path.stem for path in (out / "reference").glob("*.html")}
    assert made == {path.stem for path in (ROOT / "crds").glob("*.yaml")} | {"command-line"}
    assert re.search(r"\\u54e8\\u5175", (out / "searchindex.js").read_text()), "sentinel in Chinese"
    assert (out / "_downloads").is_dir(), "files of the tree that pages link to"
