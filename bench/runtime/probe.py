"""Asks a process's /healthz all the time, on one connection, and prints how long it had to wait at most.

    python bench/runtime/probe.py PORT SECONDS

The same for every peer, so a pause is the time in which the process answered nobody. Prints JSON, milliseconds.
"""

from __future__ import annotations

import json
import socket
import sys
import time

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
EVERY = 0.005


def main(port: int, seconds: float) -> None:
    """Probe and print."""
    waits = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            connection.sendall(REQUEST)
            if not connection.recv(65536):
                raise SystemExit("the probed process closed the connection")
            waits.append(1000 * (time.monotonic() - began))
            time.sleep(EVERY)
    waits.sort()
    print(
        json.dumps(
            {
                "probes": len(waits),
                "p50": round(waits[len(waits) // 2], 2),
                "p99": round(waits[len(waits) * 99 // 100], 2),
                "longest": round(waits[-1], 2),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
