"""What containers and nodes use of cpu and memory, as metrics.k8s.io shows it.

One look at ``/proc`` tells of all processes, and the pid namespace of each says whose it is: no control group
is needed, so it works for a plain user too. The time of a process that ended is in its parent's figures, at
last in those of the container's first process, so the sum over the living grows as the container's use does.

Memory is that of the container's control group where it has one (without file pages that could be dropped), as
the kubelet reckons it; else the sum of the processes' resident sets, which counts shared pages for each of them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from mooring.local.node.cgroups import Cgroup

__all__ = ["Amount", "Meter", "Running", "Usage"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds a container has to run before a rate can be told from ticks of ten milliseconds.
_SHORTEST = 0.5


@dataclass(frozen=True, slots=True)
class Amount:
    """``cpu`` in cores, ``memory`` in bytes."""

    cpu: float
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The use by a pod's containers, or by a node (one entry, named ``""``), over ``window`` seconds."""

    time: datetime
    window: float
    parts: Mapping[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A container that runs."""

    node: str
    namespace: str
    pod: str
    container: str
    id: str
    pid_namespace: int
    since: float
    """When it started, in seconds of the monotonic clock."""
    cgroup: Cgroup | None = None


@dataclass(slots=True)
class _Sum:
    ticks: int = 0
    memory: int = 0


@dataclass(slots=True)
class Meter:
    """Remembers the last look, so that the next tells a rate; :meth:`look` blocks and belongs in a thread."""

    proc: Path = Path("/proc")
    pods: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    """By namespace and name; pods that have just started are not there yet."""
    nodes: Mapping[str, Usage] = field(default_factory=dict)
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    _machine: tuple[float, int] | None = None

    def look(self, running: Iterable[Running], nodes: Iterable[str], *, now: float, time: datetime) -> None:
        """Measure; ``now`` is the monotonic clock's."""
        sums, pods, seen = self._sums(), defaultdict[tuple[str, str], dict[str, Amount]](dict), {}
        windows: dict[tuple[str, str], float] = {}
        places: dict[tuple[str, str], str] = {}
        fresh: set[tuple[str, str]] = set()
        for each in running:
            key = (each.namespace, each.pod)
            places[key] = each.node
            used = sums.get(each.pid_namespace, _Sum())
            before, ticks = self._seen.get(each.id, (each.since, 0))
            window = now - before
            if window < _SHORTEST:
                fresh.add(key)
                seen[each.id] = (before, ticks)
                continue
            seen[each.id] = (now, used.ticks)
            memory = each.cgroup.memory() if each.cgroup is not None else None
            cpu = max(0, used.ticks - ticks) / _TICKS / window
            pods[key][each.container] = Amount(cpu, used.memory if memory is None else memory)
            windows[key] = window
        self._seen = seen
        self.pods = {
            key: Usage(time=time, window=windows[key], parts=parts)
            for key, parts in pods.items()
            if key not in fresh
        }
        self._look_at_nodes(list(nodes), places, now=now, time=time)

    def _look_at_nodes(
        self, names: list[str], places: Mapping[tuple[str, str], str], *, now: float, time: datetime
    ) -> None:
        """One node is the machine; several that share it use what their pods use."""
        before, (busy, memory) = self._machine, self._whole_machine()
        self._machine = (now, busy)
        if before is None or now - before[0] < _SHORTEST:
            return
        window = now - before[0]
        whole = Amount(max(0, busy - before[1]) / _TICKS / window, memory)
        amounts = dict.fromkeys(names, whole)
        if len(names) > 1:
            amounts = {name: self._of_pods(name, places) for name in names}
        self.nodes = {
            name: Usage(time=time, window=window, parts={"": amount}) for name, amount in amounts.items()
        }

    def _of_pods(self, node: str, places: Mapping[tuple[str, str], str]) -> Amount:
        parts = [
            part for key, pod in self.pods.items() if places.get(key) == node for part in pod.parts.values()
        ]
        return Amount(sum(part.cpu for part in parts), sum(part.memory for part in parts))

    def _sums(self) -> dict[int, _Sum]:
        """What the processes of each pid namespace used so far, by the namespace's inode."""
        sums: dict[int, _Sum] = defaultdict(_Sum)
        for entry in self.proc.iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError, IndexError, ValueError):
                space = (entry / "ns/pid").stat().st_ino
                # What follows the name, which may hold spaces and brackets: state is field 3 of proc(5).
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                of = sums[space]
                of.ticks += sum(map(int, fields[11:15]))
                of.memory += int(fields[21]) * _PAGE
        return sums

    def _whole_machine(self) -> tuple[int, int]:
        """Busy ticks since boot, and bytes that are not available."""
        cpu = [int(word) for word in (self.proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        memory = {
            name: int(rest.split()[0]) << 10
            for name, _, rest in (
                line.partition(":") for line in (self.proc / "meminfo").read_text().splitlines()
            )
        }
        busy = sum(cpu) - cpu[3] - cpu[4]  # not idle, not waiting for a disk
        return busy, memory["MemTotal"] - memory["MemAvailable"]
