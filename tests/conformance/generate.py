"""Sends random sequences of requests to the embedded server and a real one, and prints what differs.

    python -m tests.conformance.generate [--requests 50000] [--seed 1] [--length 40]

Each difference is shrunk to the requests it needs. Exit status 1 when there are any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.conformance.comparing import Step
from tests.conformance.generating import GROUP, definition, sequence
from tests.conformance.servers import Difference, Pair, pair

__all__ = ["Shrunk", "generated", "main", "prepare"]

_NOTHING = Step("GET", "/version", quiet=True)
_WORKERS = 6


@dataclass(frozen=True)
class Shrunk:
    """The first difference of a sequence, and the requests that it needs."""

    seed: str
    difference: Difference
    steps: Sequence[Step]

    def __str__(self) -> str:
        needed = [f"    {s.method} {s.path} {s.type} {s.body}" for s in self.steps if s is not _NOTHING]
        return "\n".join([str(self.difference), "  needs:", *needed])


def prepare(servers: Pair) -> None:
    """Define the custom resource on both servers and wait until it is served."""
    for server in (servers.embedded, servers.real):
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert server.send(Step("POST", ""), definitions, definition()).status in (201, 409)
        deadline = time.monotonic() + 20
        while server.send(Step("GET", ""), f"/apis/{GROUP}/v1/gadgets", None).status != 200:
            assert time.monotonic() < deadline, "the definition is not served"
            time.sleep(0.05)


def generated(servers: Pair, seeds: Iterable[str], length: int) -> Iterator[Shrunk]:
    """Yield the shrunk first difference of each sequence that has one."""

    def one(seed: str) -> Shrunk | None:
        steps = sequence(seed, length)
        found = servers.lasting(seed, steps)
        return _shrunk(servers, seed, steps, found[0]) if found else None

    with ThreadPoolExecutor(_WORKERS) as pool:
        yield from filter(None, pool.map(one, seeds))


def _shrunk(servers: Pair, seed: str, steps: Sequence[Step], first: Difference) -> Shrunk:
    """Leave out, one after another, the requests before a difference that it does not need."""
    kept, shown = list(steps[: first.number + 1]), first
    for number in reversed(range(first.number)):
        tried = [*kept[:number], _NOTHING, *kept[number + 1 :]]
        again = servers.compare(seed, tried)
        if again and again[-1].number == first.number:
            kept, shown = tried, again[-1]
    return Shrunk(seed, shown, kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="generate", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--length", type=int, default=40, help="requests of a sequence")
    options = parser.parse_args(arguments)
    count = -(-options.requests // options.length)
    began, differences = time.monotonic(), 0
    with pair() as servers:
        prepare(servers)
        for found in generated(servers, (f"{options.seed}-{n}" for n in range(count)), options.length):
            differences += 1
            print(found, flush=True)  # noqa: T201
    seconds = time.monotonic() - began
    sent = count * options.length
    print(f"{sent} requests, seed {options.seed}, {differences} differences, {seconds:.0f} s")  # noqa: T201
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
