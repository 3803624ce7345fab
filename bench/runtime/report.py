"""Makes the table and the plot of docs/benchmarks.md from the raw figures.

    python -m bench.runtime.report [--results FILE] [--print]

The page keeps its words; what stands between its two marker lines is replaced. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["main", "plot", "table"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results" / "full.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "benchmarks.svg"
BEGIN, END = "<!-- table: python -m bench.runtime.report -->", "<!-- end of table -->"

PEERS = ("mooring", "controller-runtime", "controller-runtime, consistent", "kopf")
TITLES = ("Mooring", "controller-runtime", "controller-runtime, consistent client", "kopf")

Cell = dict[str, Any]
Get = Callable[[Cell], Any]


class Figures:
    """The cells of a run, asked by scenario, peer and sizes."""

    def __init__(self, results: dict[str, Any]) -> None:
        self._cells: list[Cell] = [cell for cell in results["cells"] if "figures" in cell]

    def sizes(self, scenario: str, *names: str) -> list[dict[str, Any]]:
        """The different sizes a scenario ran with, in order."""
        found = [{name: cell[name] for name in names} for cell in self._cells if cell["scenario"] == scenario]
        return [size for index, size in enumerate(found) if size not in found[:index]]

    def median(self, scenario: str, peer: str, get: Get, **sizes: Any) -> float | None:
        """The median over the rounds; None when it was not measured."""
        values = [
            get(cell["figures"])
            for cell in self._cells
            if cell["scenario"] == scenario
            and cell["peer"] == peer
            and all(cell.get(name) == value for name, value in sizes.items())
        ]
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a figure, for every peer."""

    name: str
    values: Sequence[float | None]
    digits: int = 1


def _at(*path: str) -> Get:
    def get(figures: Cell) -> Any:
        value: Any = figures
        for name in path:
            value = value[name] if value is not None else None
        return value

    return get


def _row(figures: Figures, name: str, scenario: str, get: Get, *, digits: int = 1, **sizes: Any) -> Row:
    values = [figures.median(scenario, peer, get, **sizes) for peer in PEERS]
    return Row(name=name, values=values, digits=digits)


def _marginal(figures: Figures, size: dict[str, Any]) -> Row:
    """CPU per object beyond what a start with nothing costs."""
    values: list[float | None] = []
    for peer in PEERS:
        empty = figures.median("empty", peer, _at("cpu"))
        cold = figures.median("cold", peer, _at("cpu"), **size)
        known = empty is not None and cold is not None
        values.append(1000 * (cold - empty) / size["objects"] if known and cold and empty else None)
    name = "operator's CPU per object beyond an empty start, ms"
    return Row(name=name, values=values, digits=2)


def _collisions(cell: Cell) -> int:
    writes = cell["writes"]
    total: int = writes["already_exists"] + writes["conflicts"]
    return total


def _sections(figures: Figures) -> list[tuple[str, list[Row]]]:
    sections = [
        (
            "Nothing to do",
            [
                _row(figures, "CPU to start, s", "empty", _at("cpu"), digits=2),
                _row(figures, "resident memory, MiB", "empty", _at("rss_mib"), digits=0),
            ],
        )
    ]
    for size in figures.sizes("cold", "objects", "children"):
        children = "1 child" if size["children"] == 1 else f"{size['children']} children"
        sections.append(
            (f"Cold start, {size['objects']:,} objects with {children} each", _cold(figures, size))
        )
    for size in figures.sizes("edits", "rate", "objects"):
        title = f"{size['rate']} edits/s among {size['objects']:,} objects"
        sections.append((title, _edits(figures, size)))
    sections += [
        (f"{size['objects']:,} objects", _many(figures, size)) for size in figures.sizes("many", "objects")
    ]
    sections.append(("Leader struck, under 20 edits/s", _handovers(figures)))
    sections.append(("All connections cut every 10 s, under 50 edits/s", _cut(figures)))
    sections.append(("Unrelated objects of a watched kind change, beside 20 edits/s", _churned(figures)))
    return sections


def _cold(figures: Figures, size: dict[str, Any]) -> list[Row]:
    return [
        _row(figures, "start of the process to all in sync, s", "cold", _at("seconds"), digits=1, **size),
        _marginal(figures, size),
        _row(figures, "writes per object", "cold", _at("writes_per_object"), digits=3, **size),
        _row(figures, "AlreadyExists and conflicts", "cold", _collisions, digits=0, **size),
        _row(figures, "API server's CPU, s", "cold", _at("apiserver_cpu"), digits=1, **size),
    ]


def _edits(figures: Figures, size: dict[str, Any]) -> list[Row]:
    return [
        _row(figures, "edit to status, median, ms", "edits", _at("p50_ms"), digits=1, **size),
        _row(figures, "edit to status, 99th percentile, ms", "edits", _at("p99_ms"), digits=1, **size),
        _row(figures, "operator's CPU per edit, ms", "edits", _at("cpu_ms_per_edit"), digits=2, **size),
        _row(figures, "writes per edit", "edits", _at("writes_per_edit"), digits=3, **size),
        _row(figures, "API server's CPU, s", "edits", _at("apiserver_cpu"), digits=1, **size),
    ]


def _many(figures: Figures, size: dict[str, Any]) -> list[Row]:
    again = "start_in_sync"
    return [
        _row(figures, "memory per object and its child, KiB", "many", _at("kib_per_object"), **size),
        _row(figures, "CPU at rest, % of a core", "many", _at("idle_cpu_percent"), digits=2, **size),
        _row(figures, "longest pause at rest, ms", "many", _at("idle_pause_ms", "longest"), **size),
        _row(figures, "longest pause under edits, ms", "many", _at("edits_pause_ms", "longest"), **size),
        _row(
            figures,
            "edit to status among them, 99th percentile, ms",
            "many",
            _at("edits", "p99_ms"),
            **size,
        ),
        _row(figures, "start when all is in sync: s until quiet", "many", _at(again, "seconds"), **size),
        _row(figures, "start when all is in sync: CPU, s", "many", _at(again, "cpu"), digits=2, **size),
        _row(
            figures,
            "start when all is in sync: writes",
            "many",
            lambda cell: cell[again]["writes"]["creates"] + cell[again]["writes"]["patches"],
            digits=0,
            **size,
        ),
    ]


def _handovers(figures: Figures) -> list[Row]:
    rows = [
        _row(figures, f"{fault}: no status for, s", "handover", _at("gap"), digits=2, fault=fault)
        for fault in ("SIGTERM", "SIGKILL", "SIGSTOP")
    ]
    woken = _row(
        figures, "writes of the woken old leader", "handover", _at("woken_writes"), digits=0, fault="SIGSTOP"
    )
    return [*rows, woken]


def _cut(figures: Figures) -> list[Row]:
    return [
        _row(figures, "edit to status, median, ms", "cut", _at("p50_ms")),
        _row(figures, "edit to status, 99th percentile, ms", "cut", _at("p99_ms"), digits=0),
        _row(figures, "edit to status, longest, ms", "cut", _at("max_ms"), digits=0),
        _row(figures, "not seen within 30 s", "cut", _at("missed"), digits=0),
    ]


def _churned(figures: Figures) -> list[Row]:
    return [
        _row(figures, "updates/s the machine gave", "churned", _at("updates_per_second"), digits=0),
        _row(
            figures,
            "operator's CPU per update, edits included, ms",
            "churned",
            _at("cpu_ms_per_update"),
            digits=3,
        ),
        _row(figures, "edit to status, 99th percentile, ms", "churned", _at("p99_ms")),
    ]


def _text(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def heading(results: dict[str, Any]) -> str:
    """What ran where, and what else the machine had to do."""
    machine, versions = results["machine"], results["versions"]
    loads = [cell["load_before"] for cell in results["cells"]]
    return (
        f"Measured on {results['started'][:10]}: {machine['cpus']} cores ({machine['arch']}, Linux {machine['kernel']}), "
        f"kopf {versions['kopf']}, controller-runtime {versions['controller-runtime']}, "
        f"Python {versions['python']}. One-minute load before a measurement: median "
        f"{statistics.median(loads):.1f}, at most {max(loads):.1f}."
    )


def table(results: dict[str, Any]) -> str:
    """The Markdown table under its heading."""
    titles = "| | " + " | ".join(TITLES) + " |"
    lines = [heading(results), "", titles, "|---|" + "---:|" * len(TITLES)]
    for title, rows in _sections(Figures(results)):
        known = [row for row in rows if any(value is not None for value in row.values)]
        if known:
            lines.append(f"| **{title}** |" + " |" * len(TITLES))
        lines += [
            f"| {row.name} | " + " | ".join(_text(value, row.digits) for value in row.values) + " |"
            for row in known
        ]
    return "\n".join(lines)


# --- the plot

COLOURS = ("#1f6feb", "#57606a", "#8c959f", "#d9822b")
WIDTH, PANEL_WIDTH, PANEL_HEIGHT, BAR, LEFT = 960, 310, 150, 22, 6


def plot(results: dict[str, Any]) -> str:
    """Bars, less is better in every panel."""
    figures = Figures(results)
    large = figures.sizes("cold", "objects", "children")
    one = max((size for size in large if size["children"] == 1), key=lambda size: size["objects"], default={})
    fast = max(figures.sizes("edits", "rate"), key=lambda size: size["rate"], default={})
    two = min(figures.sizes("many", "objects"), key=lambda size: size["objects"], default={})
    panels = [
        _row(figures, f"{one.get('objects', 0):,} objects from cold, s", "cold", _at("seconds"), **one),
        Row(name="CPU per object, ms", values=_marginal(figures, one).values if one else [], digits=2),
        _row(figures, "Writes per object", "cold", _at("writes_per_object"), digits=2, **one),
        _row(
            figures,
            f"Edit to status at {fast.get('rate')}/s, p99, ms",
            "edits",
            _at("p99_ms"),
            digits=0,
            **fast,
        ),
        _row(figures, "Memory per object, KiB", "many", _at("kib_per_object"), **two),
        _row(
            figures,
            "Leader ends (SIGTERM): no status for, s",
            "handover",
            _at("gap"),
            digits=2,
            fault="SIGTERM",
        ),
    ]
    body = "".join(_panel(panel, index) for index, panel in enumerate(panels))
    legend = "".join(
        f'<rect x="{20 + 235 * i}" y="14" width="12" height="12" fill="{colour}"/>'
        f'<text x="{38 + 235 * i}" y="24">{escape(title)}</text>'
        for i, (colour, title) in enumerate(zip(COLOURS, TITLES, strict=True))
    )
    height = 50 + 2 * PANEL_HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12" fill="#1f2328"><rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f"{legend}{body}</svg>\n"
    )


def _panel(row: Row, index: int) -> str:
    x, y = 20 + (index % 3) * PANEL_WIDTH, 50 + (index // 3) * PANEL_HEIGHT
    most = max((value for value in row.values if value is not None), default=0.0) or 1.0
    parts = [f'<text x="{x}" y="{y + 12}" font-weight="bold">{escape(row.name)}</text>']
    line = 0
    for value, colour in zip(row.values, COLOURS, strict=False):
        if value is None:
            continue
        top, width = y + 22 + line * (BAR + 4), max(1.0, (PANEL_WIDTH - 90) * value / most)
        line += 1
        parts.append(f'<rect x="{x}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>')
        label = escape(_text(value, row.digits))
        parts.append(f'<text x="{x + width + LEFT:.1f}" y="{top + 16}">{label}</text>')
    return "".join(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.runtime.report", description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="raw figures (results/full.json)")
    parser.add_argument("--print", action="store_true", help="print the table and write nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    results = json.loads(options.results.read_text())
    if options.print:
        print(table(results))
        return 0
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")
    PLOT.write_text(plot(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
