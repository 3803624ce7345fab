"""Write docs/metrics.md: every metric of a process that runs all operators, from its own registry.

    python -m hack.metrics [--check]

`--check` only compares (status 1 when they differ).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from prometheus_client.metrics_core import Metric

from mooring.kube import Client
from mooring.operators.registry import OPERATORS
from mooring.runtime import Manager, Metrics
from mooring.runtime.webhooks import WebhookMetrics

__all__ = ["PAGE", "families", "main", "page"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
_HEAD = """# Metrics

Generated from the code by `make generated`. One process exports them on `/metrics` (port 8080 in the chart).
[operations.md](operations.md#metrics-and-alerts) shows how to read them, [runbooks.md](runbooks.md) the alerts.

A scrape by the chart's ServiceMonitor adds the labels `job`, `namespace` and `pod` of the operator. The `namespace` of a
database is then `exported_namespace`.

| metric | type | unit | labels | meaning |
|---|---|---|---|---|
"""
#: Ends of names, and the unit that they stand for.
_UNITS = {
    "_timestamp_seconds": "Unix time, seconds",
    "_start_time_seconds": "Unix time, seconds",
    "_seconds": "seconds",
    "_bytes": "bytes",
}


class _NoServer:
    """A transport that is never used: operators are registered, not run."""

    async def request(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("nothing is asked here")

    def stream(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("nothing is asked here")


def families() -> dict[str, tuple[Metric, Sequence[str]]]:
    """Every metric of a process that runs all operators with webhooks, and its labels, by name."""
    metrics = Metrics()
    WebhookMetrics().register(metrics.registry)
    transport: Any = _NoServer()
    for operator in OPERATORS.values():
        manager = Manager(Client(transport), name=operator.name, metrics=metrics)
        operator.register(manager)
    collectors = metrics.registry._names_to_collectors  # no other way to the labels of what has no sample
    found: dict[str, tuple[Metric, Sequence[str]]] = {}
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = getattr(family, "_labelnames", None) or getattr(collectors.get(name), "_labelnames", ())
        found[name] = (family, labels or ())
    return dict(sorted(found.items()))


def page() -> str:
    """The text of docs/metrics.md."""
    return _HEAD + "".join(_rows())


def _rows() -> Iterator[str]:
    for name, (family, labels) in families().items():
        unit = next((unit for end, unit in _UNITS.items() if name.removesuffix("_total").endswith(end)), "")
        yield f"| `{name}` | {family.type} | {unit} | {', '.join(labels)} | {family.documentation} |\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(prog="metrics.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args(arguments)
    if not options.check:
        PAGE.write_text(page())
        return 0
    if PAGE.is_file() and PAGE.read_text() == page():
        return 0
    print("docs/metrics.md does not list the metrics of the code: run `make generated`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
