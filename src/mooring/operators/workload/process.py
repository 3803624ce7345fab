"""Whether the process of a server does nothing at all, as its own node tells: by a command in its container.

A server that does not answer either works on something that takes long, or stands still. From outside they look alike.
The kernel tells them apart: a process that runs, or waits for a processor, is in the state R or is switched to now and
then; one that was stopped, or that waits for a disk or a lock, is never switched to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from mooring.kube import KubeError
from mooring.kube.transport import HttpTransport
from mooring.operators.workload.command import output_of
from mooring.runtime import Manager

__all__ = ["APART", "SAMPLES", "reads_still", "standing_still"]

APART: Final = 0.5
"""Seconds between the two looks: an idle Redis is switched to ten times a second."""
WITHIN: Final = 3.0
"""Seconds until the answer must be there; a node that is down or overloaded gives none."""
SAMPLES: Final = f"""
for at in 1 2; do
  for one in /proc/[0-9]*; do
    read -r name 2>/dev/null <"$one/comm" || continue
    case $name in redis-server | valkey-server) ;; *) continue ;; esac
    main=$one/task/${{one##*/}}/status
    echo "$at ${{one##*/}}" $(sed -n -e 's/^State:[^A-Za-z]*\\([A-Za-z]\\).*/\\1/p' \\
      -e 's/^[a-z]*voluntary_ctxt_switches:[^0-9]*//p' "$main")
  done
  [ "$at" = 2 ] || sleep {APART} || exit
done
"""
"""For each look and each server a line: which look, the process, the state of its main thread, and how often that
gave up its processor by itself and was taken off it. Where ``sleep`` knows no parts of a second, only one look is printed:
two without a pause between them would be alike for any server that waits."""


def reads_still(text: str) -> bool:
    """What `SAMPLES` printed says that the server stood still; the one with the lowest number, the others are its forks."""
    looks: dict[str, dict[int, tuple[str, ...]]] = {"1": {}, "2": {}}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[0] in looks and words[1].isdigit():
            looks[words[0]][int(words[1])] = tuple(words[2:])
    first, second = looks["1"], looks["2"]
    if not first or not second or min(first) != min(second):
        return False
    before, after = first[min(first)], second[min(second)]
    return before == after and before[0] != "R"


async def standing_still(
    manager: Manager, namespace: str, pods: Iterable[str], *, container: str
) -> frozenset[str]:
    """Those of these pods whose servers do nothing, as far as their own nodes tell."""
    if manager.sockets is None or not (names := list(pods)):
        return frozenset()
    manager.fence.check()
    looks = (_stands_still(manager.sockets, namespace, one, container=container) for one in names)
    still = await asyncio.gather(*looks)
    return frozenset(name for name, stands in zip(names, still, strict=True) if stands)


async def _stands_still(transport: HttpTransport, namespace: str, pod: str, *, container: str) -> bool:
    """Look twice at the server in this container; False also where there is no answer, or no right to ask."""
    try:
        async with asyncio.timeout(WITHIN):
            said = await output_of(transport, namespace, pod, container=container, script=SAMPLES)
            return reads_still(said)
    except (KubeError, TimeoutError, OSError):
        return False
