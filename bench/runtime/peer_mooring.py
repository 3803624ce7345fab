"""Mooring's peer of the benchmark: an Actor with all that an operator has (logs, metrics, probes, conditions).

The same logic as go/main.go and peer_kopf.py. Everything is at its default but the workers (16).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from bench.runtime.widget import Widget, WidgetStatus, children

from mooring.actor import Actor, Context, Outcome, run_actor
from mooring.kube import Client, Config, HttpTransport
from mooring.kube.objects.core import ConfigMap
from mooring.runtime import Election, Manager, configure_logging

__all__ = ["WidgetActor"]


class WidgetActor(Actor[Widget]):
    """Makes the children as declared, then says so in the status."""

    kind = Widget
    name = "bench"
    owns = (ConfigMap,)

    async def observe(self, ctx: Context[Widget]) -> Outcome:
        wanted = children(ctx.obj)
        if drift := ctx.children.diff(wanted):
            return ctx.act("ApplyChildren", ctx.children.apply, drift)
        value = ctx.obj.spec.value if ctx.obj.spec else None
        ctx.show(WidgetStatus(children=len(wanted), value=value))
        return ctx.in_sync()


async def _run(options: argparse.Namespace) -> None:
    client = Client(HttpTransport(Config.load(Path(os.environ["KUBECONFIG"]))))
    election = Election("bench", options.namespace) if options.elect else None
    manager = Manager(
        client, name="bench", election=election, metrics_port=options.metrics, probe_port=options.probes
    )
    run_actor(WidgetActor(), manager, namespaces=[options.namespace], workers=16)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.stop)
    try:
        await manager.run()
    finally:
        await client.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="peer_mooring.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--probes", type=int, required=True, help="port of /healthz")
    parser.add_argument("--metrics", type=int, required=True, help="port of /metrics")
    parser.add_argument("--elect", action="store_true", help="hold a Lease")
    return parser


if __name__ == "__main__":
    configure_logging()
    asyncio.run(_run(_parser().parse_args()))
