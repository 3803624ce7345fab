"""What a browser loads first is small, and is all there is."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import mooring.console

STATIC = Path(mooring.console.__file__).parent / "static"
#: KiB of the first load, compressed.
MOST = 200


def test_the_first_load_is_small() -> None:
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    assert 10 * 1024 < size <= MOST * 1024, f"{size / 1024:.0f} KiB"


def test_the_page_loads_what_is_committed_and_nothing_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text()
    named = set(re.findall(r'(?:src|href)="/(assets/[^"]+)"', page))
    assert named == {str(path.relative_to(STATIC)) for path in (STATIC / "assets").iterdir()}
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
