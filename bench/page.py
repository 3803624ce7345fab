"""Puts tables that benchmarks make between the marks they have on docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PAGE", "RESULTS", "put"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
"""Where raw figures are kept."""


def put(command: str, text: str, *, page: Path = PAGE) -> None:
    """Replace what stands between the two marks of a command; raises LookupError when the page has none."""
    begin, end = f"<!-- table: {command} -->\n", f"<!-- end: {command} -->"
    old = page.read_text()
    head, found, rest = old.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise LookupError(f"{page} has no marks for {command}")
    page.write_text(f"{head}{begin}{text.rstrip()}\n{end}{tail}")
