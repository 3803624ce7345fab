"""The chart's monitoring as Prometheus gets it: rendered rules, dashboards, and a real server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from hack.build import helm, prometheus
from tests.charts.helm import CHART

__all__ = ["JOB", "Prometheus", "expressions", "free_port", "rendered_rules", "served", "until"]

JOB = {"job": "mooring-metrics", "namespace": "mooring-system"}
"""Labels that the chart's ServiceMonitor gives to the operator's metrics."""


def rendered_rules(home: Path, *values: str) -> dict[str, Any]:
    """The spec of the chart's PrometheusRule: a rule file of Prometheus."""
    switches = ("prometheusRule.enabled=true", *values)
    done = subprocess.run(
        [
            *(str(helm(3)), "template", "mooring", str(CHART), "--namespace", JOB["namespace"]),
            *("--kube-version", "1.33.0", "--show-only", "templates/monitoring.yaml"),
            *(word for value in switches for word in ("--set", value)),
        ],
        env={"HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    (found,) = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "PrometheusRule"]
    return dict(found["spec"])


def expressions() -> Iterator[tuple[str, str]]:
    """The queries of all dashboards, each with the file and the panel's title."""
    for path in sorted(CHART.glob("dashboards/*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(check: Any, what: str, *, within: float = 60.0) -> Any:
    """Wait until ``check`` gives something true, and return it."""
    ends = time.monotonic() + within
    while not (found := await check()):
        assert time.monotonic() < ends, f"not in time: {what}"
        await asyncio.sleep(0.2)
    return found


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """A running server."""

    url: str
    http: aiohttp.ClientSession

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """An answer of its API: status, data, error."""
        async with self.http.get(f"{self.url}/api/v1/{path}", params=query) as answer:
            return dict(await answer.json())

    async def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The samples of a query now."""
        found = await self.get("query", query=query)
        assert found["status"] == "success", found
        return [(one["metric"], float(one["value"][1])) for one in found["data"]["result"]]

    async def alerts(self) -> dict[str, str]:
        """Alerts that are pending or firing: state by name."""
        found = (await self.get("alerts"))["data"]["alerts"]
        return {one["labels"]["alertname"]: one["state"] for one in found}


@asynccontextmanager
async def served(
    directory: Path, scrapes: Sequence[dict[str, Any]], rules: dict[str, Any] | None = None
) -> AsyncIterator[Prometheus]:
    """A server that scrapes and evaluates every second, in a new directory; ends with the block."""
    await asyncio.to_thread(_configure, directory, scrapes, rules)
    port, log = free_port(), directory / "log"
    program = await asyncio.to_thread(prometheus)
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            program,
            "--config.file=prometheus.yml",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            cwd=directory,
            env={"PATH": os.environ["PATH"]},
            stdout=output,
            stderr=output,
        )
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
            made = Prometheus(url=f"http://127.0.0.1:{port}", http=http)

            async def ready() -> bool:
                assert process.returncode is None, log.read_text()
                try:
                    async with http.get(f"{made.url}/-/ready") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await until(ready, "Prometheus is ready")
            yield made
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)  # its data is of no use to anybody
        await process.wait()


def _configure(directory: Path, scrapes: Sequence[dict[str, Any]], rules: dict[str, Any] | None) -> None:
    directory.mkdir()
    settings: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": list(scrapes),
    }
    if rules is not None:
        (directory / "rules.yml").write_text(yaml.safe_dump(rules))
        settings["rule_files"] = ["rules.yml"]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(settings))
