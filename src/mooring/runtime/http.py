"""Servers for metrics (8080) and probes (8081), and the health they tell of.

``/healthz`` fails when the event loop is stuck or was blocked for too long lately: restarting helps then.
``/readyz`` fails while caches are not synced or hear nothing from the server: restarting would not help.
``/debug/tasks`` (on the metrics port) shows every task with its stack, and the passes that are running.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from mooring.cache.clock import Clock
from mooring.runtime.metrics import Metrics

if TYPE_CHECKING:
    from mooring.runtime.controller import Controller

__all__ = ["Health", "ProbeServer"]

log = structlog.get_logger("mooring.runtime")

#: Seconds between two looks at the loop, and how late it may be before liveness fails.
LAG_PERIOD: Final = 1.0
LAG_LIMIT: Final = 10.0

Check = Callable[[], str]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Health:
    """Named checks, each giving a reason for trouble or ``""``; and the loop's own lag."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._live: dict[str, Check] = {"event loop": self._loop_trouble}
        self._ready: dict[str, Check] = {}
        self._task: asyncio.Task[None] | None = None
        self._controllers: dict[str, Callable[[], Iterable[Controller]]] = {}
        self._last_tick = clock.monotonic()

    def live(self, name: str, check: Check) -> None:
        """Add a check to ``/healthz``: trouble that a restart would cure."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Add a check to ``/readyz``."""
        self._ready[name] = check

    def passes_of(self, name: str, controllers: Callable[[], Iterable[Controller]]) -> None:
        """Show the passes of an operator's controllers in ``/debug/tasks``."""
        self._controllers[name] = controllers

    def start(self) -> None:
        """Begin to watch the loop, unless the clock waits for it; a second call does nothing."""
        if self._task is None and not self._clock.waits_for_work:
            self._last_tick = self._clock.monotonic()
            self._task = asyncio.create_task(self._watch_loop(), name="loop lag")

    async def stop(self) -> None:
        """Stop watching the loop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _watch_loop(self) -> None:
        metrics = self._metrics
        while True:
            started, worked = self._clock.monotonic(), time.thread_time()
            await self._clock.sleep(LAG_PERIOD)
            self._last_tick = self._clock.monotonic()
            lag = max(0.0, self._last_tick - started - LAG_PERIOD)
            metrics.loop_lag = lag
            metrics.loop_lag_max = max(metrics.loop_lag_max, lag)
            if lag > 1.0:
                # Much less processor time than that: it waited for a processor or a disk, and did not compute.
                used = round(time.thread_time() - worked, 2)
                log.warning("the event loop was blocked", seconds=round(lag, 2), processor_seconds=used)

    def _loop_trouble(self) -> str:
        late = self._clock.monotonic() - self._last_tick - LAG_PERIOD
        worst = max(self._metrics.loop_lag, late)
        return f"the event loop is {worst:.1f} s late" if worst > LAG_LIMIT else ""

    def trouble(self, *, live: bool) -> dict[str, str]:
        """The reasons of the checks that fail."""
        checks = self._live if live else {**self._live, **self._ready}
        found = {name: _run(check) for name, check in checks.items()}
        return {name: reason for name, reason in found.items() if reason}

    def tasks(self) -> str:
        """Every task with its stack, and the passes that are running."""
        out = io.StringIO()
        for controller in (one for controllers in self._controllers.values() for one in controllers()):
            for current in controller.passes:
                out.write(f"pass {current.id} {controller.name} {current.key}, {current.age:.3f} s\n")
                out.writelines(f"    {part}\n" for part in current.spans)
        for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
            out.write(f"\n--- {task.get_name()}\n")
            task.print_stack(limit=12, file=out)
        return out.getvalue()


def _run(check: Check) -> str:
    try:
        return check()
    except Exception as error:
        return f"check failed: {error!r}"


class ProbeServer:
    """The HTTP servers of a process; a port of ``None`` opens none, 0 any free one, and one port for both is one server."""

    def __init__(
        self, metrics: Metrics, health: Health, *, host: str, metrics_port: int | None, probe_port: int | None
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._host = host
        self._runners: list[web.AppRunner] = []
        self.metrics_port = metrics_port
        self.probe_port = probe_port

    async def start(self) -> None:
        """Open the servers; raises OSError, naming the port, when one is taken."""
        routes = {"/metrics": self._serve_metrics, "/debug/tasks": self._serve_tasks}
        probes = {"/healthz": self._serve_live, "/livez": self._serve_live, "/readyz": self._serve_ready}
        if self.metrics_port and self.metrics_port == self.probe_port:
            await self._open(self.metrics_port, {**routes, **probes})
            return
        if self.metrics_port is not None:
            self.metrics_port = await self._open(self.metrics_port, routes)
        if self.probe_port is not None:
            self.probe_port = await self._open(self.probe_port, probes)

    async def _open(self, port: int, routes: Mapping[str, Answer]) -> int:
        app = web.Application()
        app.add_routes([web.get(path, handler) for path, handler in routes.items()])
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self._host, port).start()
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the servers."""
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=self._metrics.text(), headers={"Content-Type": content_type})

    async def _serve_tasks(self, request: web.Request) -> web.Response:
        # It names objects and shows what the process does: for those in the pod, not for all who reach its port.
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        if not peer or not ip_address(peer[0].removeprefix("::ffff:")).is_loopback:
            why = "answered on loopback alone: kubectl port-forward POD 8080, then http://127.0.0.1:8080/debug/tasks\n"
            return web.Response(status=403, text=why)
        return web.Response(text=self._health.tasks())

    async def _serve_live(self, _: web.Request) -> web.Response:
        return _answer(self._health.trouble(live=True))

    async def _serve_ready(self, _: web.Request) -> web.Response:
        return _answer(self._health.trouble(live=False))


def _answer(trouble: dict[str, str]) -> web.Response:
    if not trouble:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="".join(f"{name}: {why}\n" for name, why in trouble.items()))
