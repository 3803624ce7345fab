"""The console in Chromium with many instances: first load, the list, changes until they are seen, topology, memory.

    python -m bench.console [--instances 2000] [--rate 50] [--seconds 60] [--tabs 8] [--pods 200] [--runs 5] [--write]

`mooring up` and a `mooring console` of its own process, as a user would start them. The instances are Clusters of
CloudNativePG's CustomResourceDefinition, which no operator here touches: whatever changes, this program has changed.
A change is timed from before its request is sent until the frame after the page has drawn it, in every tab; a change
that a later one overtook counts as seen when the later one is. Times of pages are compared with an empty page of the
same server in the same browser.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml
from bench.page import RESULTS, put
from bench.plane import resident
from bench.tally import percentile
from hack.chromium import browser, running, until
from selenium import webdriver

from mooring.kube import Client, Config, HttpTransport

__all__ = ["TARGETS", "Writer", "main", "table"]

ROOT: Final = Path(__file__).resolve().parents[1]
COMMAND: Final = "python -m bench.console --write"
DEFINITION: Final = ROOT / "tests" / "catalog" / "definitions" / "cnpg-postgres.yaml"
CLUSTERS: Final = "/apis/postgresql.cnpg.io/v1/namespaces/default/clusters"
PODS: Final = "/api/v1/namespaces/default/pods"
MARKED: Final = "pg-0000"
#: What the console promises: the largest figure that is still good.
TARGETS: Final = {
    "first_load_kib": 200.0,
    "list_usable_ms": 2000.0,
    "change_p95_ms": 500.0,
    "first_row_ms": 1000.0,
    "console_mib": 300.0,
    "tab_heap_mib": 300.0,
}

#: Before any script of a page: when the list was usable, and when each change was drawn.
WATCH: Final = """
window.bench = {usable: 0, filtered: 0, seen: [], pods: 0, step: 0, clicked: 0};
const drawn = (then) => requestAnimationFrame(() => { const c = new MessageChannel(); c.port1.onmessage = then; c.port2.postMessage(0); });
new MutationObserver(() => {
  const b = window.bench;
  const count = document.querySelector('[data-testid=count]')?.textContent ?? '';
  if (!b.usable && parseInt(count) >= WANTED && document.querySelector('tr[data-row]'))
    { b.usable = -1; drawn(() => { b.usable = performance.now(); }); }
  if (b.asked && !b.filtered && count.startsWith('1 '))
    { b.filtered = -1; drawn(() => { b.filtered = performance.now() - b.asked; }); }
  const text = document.querySelector('[data-testid=row-pg-0000]')?.textContent ?? '';
  const found = /change (\\d+)\\./.exec(text);
  if (found && found[1] !== b.last) { b.last = found[1]; const n = Number(found[1]); drawn(() => b.seen.push([n, Date.now()])); }
  if (!b.pods && document.querySelectorAll('[data-testid=pods-instance] tbody tr').length >= PODS)
    { b.pods = -1; drawn(() => { b.pods = performance.now() - (b.turned ?? 0); }); }
  if (b.clicked && !b.step && document.querySelector('[data-testid=timeline] li'))
    { b.step = -1; drawn(() => { b.step = performance.now() - b.clicked; }); }
}).observe(document, {subtree: true, childList: true, characterData: true, attributes: false});
"""


def watching(profile: Path, *, wanted: int, pods: int) -> webdriver.Chrome:
    """A Chromium that notes what is measured."""
    driver = browser(profile, "--enable-precise-memory-info")
    watch_page(driver, wanted=wanted, pods=pods)
    return driver


def watch_page(driver: webdriver.Chrome, *, wanted: int, pods: int) -> None:
    """Install the observer in the current tab."""
    source = WATCH.replace("WANTED", str(wanted)).replace("PODS", str(pods))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})


def noted(driver: webdriver.Chrome, name: str) -> float:
    """A time that the page noted, in milliseconds."""
    found = until(
        driver,
        lambda: (driver.execute_script(f"return window.bench?.{name}") or 0) > 0,
        f"no {name} was noted",
    )
    assert found
    return float(driver.execute_script(f"return window.bench.{name}"))


def cluster(name: str) -> dict[str, Any]:
    """An instance."""
    return {
        "apiVersion": "postgresql.cnpg.io/v1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"instances": 3, "storage": {"size": "5Gi"}},
    }


def condition(message: str) -> dict[str, Any]:
    """A status with one condition."""
    ready = {"type": "Ready", "status": "False", "reason": "Measured", "message": message}
    return {**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}


class Writer:
    """Writes to the plane, from a loop of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._config = Config.from_kubeconfig(kubeconfig)

    async def fill(self, count: int, pods: int) -> None:
        """Define the kind, make the instances, and the pods of the marked one, which no node takes."""
        client = Client(HttpTransport(self._config))
        try:
            definition = yaml.safe_load(DEFINITION.read_text())
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await client.request("POST", path, body=json.dumps(definition).encode())
            await self._served(client)
            slots = asyncio.Semaphore(16)

            async def send(path: str, body: dict[str, Any]) -> dict[str, Any]:
                async with slots:
                    made = await client.request("POST", path, body=json.dumps(body).encode())
                    return dict(json.loads(made.body))

            made = await asyncio.gather(*(send(CLUSTERS, cluster(f"pg-{n:04}")) for n in range(count)))
            owner = {
                "apiVersion": "postgresql.cnpg.io/v1",
                "kind": "Cluster",
                "name": MARKED,
                "uid": made[0]["metadata"]["uid"],
                "controller": True,
            }
            await asyncio.gather(
                *(
                    send(
                        PODS,
                        {
                            "metadata": {
                                "name": f"{MARKED}-{n}",
                                "labels": {"cnpg.io/podRole": "instance", "cnpg.io/instanceRole": "replica"},
                                "ownerReferences": [owner],
                            },
                            "spec": {
                                "schedulerName": "nobody",
                                "containers": [{"name": "postgres", "image": "postgres:17"}],
                            },
                        },
                    )
                    for n in range(pods)
                )
            )
        finally:
            await client.close()

    async def _served(self, client: Client) -> None:
        for _ in range(200):
            with contextlib.suppress(Exception):
                await client.request("GET", CLUSTERS)
                return
            await asyncio.sleep(0.05)
        raise RuntimeError("the kind is not served")

    async def change(self, *, count: int, rate: float, seconds: float) -> dict[int, float]:
        """Change statuses at a rate, every tenth that of the marked instance: when each of those was sent."""
        client = Client(HttpTransport(self._config))
        sent: dict[int, float] = {}
        tasks: set[asyncio.Task[Any]] = set()
        began = time.monotonic()

        async def once(number: int) -> None:
            name, message = f"pg-{1 + number % (count - 1):04}", "busy"
            if number % 10 == 0:
                name, message = MARKED, f"change {number}."
                sent[number] = time.time() * 1000
            body = {"status": {"conditions": [condition(f"{message} {number}")]}}
            kind = "application/merge-patch+json"
            path = f"{CLUSTERS}/{name}/status"
            await client.request("PATCH", path, body=json.dumps(body).encode(), content_type=kind)

        try:
            for number in range(10, 10 + int(rate * seconds)):
                await asyncio.sleep(max(0.0, began + (number - 10) / rate - time.monotonic()))
                task = asyncio.create_task(once(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)
            self.rate = rate * seconds / (time.monotonic() - began)
        finally:
            await client.close()
        return sent


def delays(sent: dict[int, float], seen: list[list[float]]) -> list[float]:
    """Milliseconds from each change to the first frame that shows it or a later one."""
    found = []
    order = sorted(seen)
    for number, when in sent.items():
        shown = [at for other, at in order if other >= number]
        if shown:
            found.append(max(0.0, min(shown) - when))
    return found


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_load() -> float:
    """KiB of all files of the page that a browser loads first, compressed."""
    static = ROOT / "src" / "mooring" / "console" / "static"
    page = (static / "index.html").read_text()
    named = [
        static / "index.html",
        *(static / name for name in re.findall(r'(?:src|href)="/(assets/[^"]+)"', page)),
    ]
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in named) / 1024


def measure(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """All figures."""
    up = ("up", "--data-dir", str(place / "data"), "--listen", "127.0.0.1:0", "--console-port", "-1")
    with running(*up, log=place / "up.log", until="mooring: ready.") as (_, said):
        kubeconfig = Path(re.findall(r"export KUBECONFIG=(\S+)", said)[0])
        writer = Writer(kubeconfig)
        asyncio.run(writer.fill(options.instances, options.pods))
        words = ("console", "--kubeconfig", str(kubeconfig))
        with running(*words, log=place / "console.log", until="Ctrl-C ends") as (pid, text):
            link = re.findall(r"^console: (http://\S+)$", text, re.MULTILINE)[0]
            driver = watching(place / "profile", wanted=options.instances, pods=options.pods)
            try:
                return figures(options, driver, writer, link, pid)
            finally:
                driver.quit()


def figures(
    options: argparse.Namespace, driver: webdriver.Chrome, writer: Writer, link: str, pid: int
) -> dict[str, Any]:
    """All figures, in a browser that is there."""
    address = link.partition("/?")[0]
    found: dict[str, Any] = {"first_load_kib": first_load(), "console_empty_mib": resident(pid) / 2**20}
    driver.get(link)
    until(driver, lambda: "token" not in driver.current_url, "not signed in")
    empty, usable, filtered, transferred = [], [], [], []
    for _ in range(options.runs):
        driver.get(f"{address}/healthz")
        empty.append(
            float(driver.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
        )
        driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        driver.get(f"{address}/#/instances")
        usable.append(noted(driver, "usable"))
        transferred.append(
            driver.execute_script(
                "return performance.getEntriesByType('resource').filter(e => e.name.includes('/assets/'))"
                ".reduce((sum, e) => sum + e.encodedBodySize, 0) / 1024"
            )
        )
        driver.execute_script(
            "const i = document.querySelector('[data-testid=find]'); window.bench.asked = performance.now();"
            "Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(i, 'pg-0777');"
            "i.dispatchEvent(new Event('input', {bubbles: true}));"
        )
        filtered.append(noted(driver, "filtered"))
    found |= {
        "empty_page_ms": statistics.median(empty),
        "list_usable_ms": statistics.median(usable),
        "list_usable_worst_ms": max(usable),
        "filter_ms": statistics.median(filtered),
        "assets_transferred_kib": statistics.median(transferred),
    }
    found["first_row_ms"], found["first_row_worst_ms"] = submit(options, driver, address)
    topology = []
    for _ in range(options.runs):
        driver.get("about:blank")
        driver.get(f"{address}/#/instances/default/cnpg-postgres/{MARKED}?tab=topology")
        topology.append(noted(driver, "pods"))
    found |= {"topology_ms": statistics.median(topology), "topology_worst_ms": max(topology)}
    found |= follow(options, driver, writer, address, pid)
    return found


def submit(options: argparse.Namespace, driver: webdriver.Chrome, address: str) -> tuple[float, float]:
    """Milliseconds from the click on Create to the first row of the timeline: median and worst."""
    times = []
    for _ in range(options.runs):
        driver.get("about:blank")
        driver.get(f"{address}/#/create/cnpg-postgres")
        until(driver, lambda: "The cluster accepts this." in driver.page_source, "no preview")
        driver.execute_script(
            "window.bench.clicked = performance.now(); document.querySelector('[data-testid=submit]').click()"
        )
        times.append(noted(driver, "step"))
    return statistics.median(times), max(times)


def follow(
    options: argparse.Namespace, driver: webdriver.Chrome, writer: Writer, address: str, pid: int
) -> dict[str, Any]:
    """Changes at a rate, with as many windows that show the list."""
    handles = []
    for number in range(options.tabs):
        if number:
            driver.switch_to.new_window("window")
            watch_page(driver, wanted=options.instances, pods=options.pods)
        driver.get("about:blank")
        driver.get(f"{address}/#/instances")
        noted(driver, "usable")
        handles.append(driver.current_window_handle)
    visible = []
    for handle in handles:
        driver.switch_to.window(handle)
        visible.append(driver.execute_script("return document.visibilityState") == "visible")
    before, began = cpu(pid), time.monotonic()
    sent = asyncio.run(writer.change(count=options.instances, rate=options.rate, seconds=options.seconds))
    time.sleep(1.0)
    used = (cpu(pid) - before) / (time.monotonic() - began) * 100
    every: list[float] = []
    missed, heaps, worst_tab = 0, [], 0.0
    for handle, shown in zip(handles, visible, strict=True):
        driver.switch_to.window(handle)
        heaps.append(driver.execute_script("return performance.memory.usedJSHeapSize") / 2**20)
        if not shown:
            continue
        found = delays(sent, driver.execute_script("return window.bench.seen"))
        missed += len(sent) - len(found)
        every += found
        worst_tab = max(worst_tab, percentile(found, 0.95))
    return {
        "windows": len(handles),
        "windows_visible": sum(visible),
        "rate": writer.rate,
        "changes_timed": len(every),
        "changes_missed": missed,
        "change_p50_ms": percentile(every, 0.50),
        "change_p95_ms": percentile(every, 0.95),
        "change_p95_worst_tab_ms": worst_tab,
        "change_max_ms": max(every),
        "console_mib": resident(pid) / 2**20,
        "console_cpu_percent": used,
        "tab_heap_mib": max(heaps),
    }


def table(found: dict[str, Any]) -> str:
    """The figures for the page of benchmarks."""
    options = found["options"]
    rows = [
        ("first load, compressed, KiB", "first_load_kib", "first_load_kib"),
        (
            f"list of {options['instances']:,} instances usable after a cold load, median, ms",
            "list_usable_ms",
            "list_usable_ms",
        ),
        ("the same, worst run, ms", "list_usable_worst_ms", "list_usable_ms"),
        ("an empty page of the same server, ms", "empty_page_ms", ""),
        ("typing a name until only its row is drawn, ms", "filter_ms", ""),
        ("click on Create to the first row of the timeline, median, ms", "first_row_ms", "first_row_ms"),
        ("the same, worst run, ms", "first_row_worst_ms", "first_row_ms"),
        (f"topology of {options['pods']} pods after a cold load, ms", "topology_ms", ""),
        (
            f"change of a status until it is drawn, {found['windows']} windows open, median, ms",
            "change_p50_ms",
            "",
        ),
        ("the same, 95th percentile, ms", "change_p95_ms", "change_p95_ms"),
        ("the same, 95th percentile of the worst window, ms", "change_p95_worst_tab_ms", "change_p95_ms"),
        ("changes that no window showed", "changes_missed", ""),
        ("resident memory of the console, MiB", "console_mib", "console_mib"),
        ("CPU of the console, % of one core", "console_cpu_percent", ""),
        ("JavaScript heap of the largest window, MiB", "tab_heap_mib", "tab_heap_mib"),
    ]
    lines = ["| | measured | at most |", "|---|---:|---:|"]
    for title, name, target in rows:
        most = f"{TARGETS[target]:,.0f}" if target else ""
        lines.append(f"| {title} | {_number(found[name])} | {most} |")
    ratio = found["list_usable_ms"] / max(found["empty_page_ms"], 1.0)
    said = (
        f"Measured on {found['date']}: {found['rate']:.0f} changes a second for {options['seconds']:.0f} s, "
        f"{found['changes_timed']:,} of them timed in {found['windows_visible']} visible windows. One-minute load before: "
        f"{found['load_before']:.1f}. The list takes {ratio:.0f} times as long as an empty page."
    )
    return f"{said}\n\n" + "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def misses(found: dict[str, Any]) -> list[str]:
    """The figures that are worse than promised."""
    return [
        f"{name}: {found[name]:.0f}, at most {most:.0f}"
        for name, most in TARGETS.items()
        if found[name] > most
    ]


def main() -> int:
    """Measure; print the table, or put it on the page. Fails when a figure is worse than promised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tabs", type=int, default=8)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table on docs/benchmarks.md")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as top:
        found = measure(options, Path(top))
    kept = {name: value for name, value in vars(options).items() if name != "write"}
    found |= {"date": time.strftime("%Y-%m-%d"), "load_before": load, "options": kept}
    print(table(found))
    if options.write:
        (RESULTS / "console.json").write_text(json.dumps(found, indent=2) + "\n")
        put(COMMAND, table(found))
    wrong = misses(found)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
