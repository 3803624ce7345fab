"""Puts tables that benchmarks make between the marks they have on docs/benchmarks.md."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["PAGE", "RESULTS", "publishing", "put"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
"""Where raw figures are kept."""


def publishing(parser: argparse.ArgumentParser, results: str) -> None:
    """The options of a program whose figures are published: ``--out``, ``--from`` and ``--publish``."""
    parser.add_argument("--out", type=Path, help="write the figures there, as JSON")
    parser.add_argument("--from", dest="source", type=Path, help="publish these raw figures; measure nothing")
    parser.add_argument(
        "--publish", action="store_true", help=f"bench/results/{results} and docs/benchmarks.md"
    )


def put(command: str, text: str, *, page: Path = PAGE) -> None:
    """Replace what stands between the two marks of a command; raises LookupError when the page has none."""
    begin, end = f"<!-- table: {command} -->\n", f"<!-- end: {command} -->"
    old = page.read_text()
    head, found, rest = old.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise LookupError(f"{page} has no marks for {command}")
    page.write_text(f"{head}{begin}{text.rstrip()}\n{end}{tail}")
