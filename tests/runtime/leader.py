"""A program that leads or stands by and, while it leads, writes all the time; for test_handover.py.

One line of output per happening: the moment on the monotonic clock (shared by all processes of a machine)
and what happened: ``standing`` by, ``wrote``, ``fenced``, ``lost``. SIGTERM stops it in order; SIGUSR1 blocks its
event loop for twice the lease, as a careless reconcile would. A fourth argument is a number of shards.
"""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import time
from pathlib import Path

from mooring.kube import Client, Config, HttpTransport, TransportError
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import Election, FenceLost, LeaseLost, Manager, configure_logging

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 3.0, 2.0, 0.4


def say(what: str) -> None:
    sys.stdout.write(f"{time.monotonic():.6f} {what}\n")
    sys.stdout.flush()


class Log(io.StringIO):
    """Says that this one stands by: the elector alone knows since when it counts the other's time."""

    def write(self, text: str) -> int:
        if "standing by" in text:
            say("standing")
        return sys.stderr.write(text)


async def write(manager: Manager, namespace: str) -> None:
    """Write without a pause; a write that the fence holds back is tried again."""
    number = 0
    said = wrote = False
    while True:
        number += 1
        meta = ObjectMeta(name=f"written-by-{manager.name}", namespace=namespace)
        try:
            await manager.client.apply(ConfigMap(metadata=meta, data={"number": str(number)}))
        except FenceLost:
            if not said:
                say("fenced")
            said = True
        except TransportError:
            continue  # asked for before the loop was blocked: nobody awaits that answer any more
        else:
            if not wrote:
                say("wrote")
            wrote = True
        await asyncio.sleep(0.005)


async def main(kubeconfig: str, name: str, namespace: str, shards: str = "0") -> int:
    configure_logging(stream=Log())
    client = Client(HttpTransport(Config.load(Path(kubeconfig))))
    election = Election(
        "handover",
        namespace,
        identity=name,
        lease_duration=LEASE_SECONDS,
        renew_deadline=RENEW_SECONDS,
        retry_period=RETRY_SECONDS,
    )
    manager = Manager(client, name=name, election=election, shards=int(shards))
    manager.informers.of(ConfigMap, namespace=namespace)
    manager.serve("writer", lambda: write(manager, namespace))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, manager.stop)
    loop.add_signal_handler(signal.SIGUSR1, lambda: time.sleep(2 * LEASE_SECONDS))
    running = asyncio.create_task(manager.run())
    await manager.informers.wait_synced()
    say("warm")
    try:
        await running
    except LeaseLost:
        say("lost")
        return 3
    finally:
        await client.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
