"""How full the volumes of a cluster are, as ``df`` says in the servers' own containers.

A look takes seconds where a node does not answer, so it runs beside the passes: a pass asks for one and takes what the
last one found. What is kept here paces looks and is shown; which size is in force is in the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mooring.kube.errors import ApiError, KubeError
from mooring.kube.object import Key
from mooring.kube.quantity import parse_quantity
from mooring.operators.workload.command import output_of
from mooring.operators.workload.volumes import Volume
from mooring.runtime import Manager

__all__ = ["CLOSER", "PERIOD", "Fill", "Fills", "Levels", "fill_in", "script_for"]

PERIOD: Final = timedelta(seconds=60)
"""Between two looks at the volumes of one cluster, at least."""
NEARLY_FULL: Final = 0.9
"""A share from which on looks are closer together."""
CLOSER: Final = timedelta(seconds=10)
"""Between two looks at volumes of which one is nearly full."""
WITHIN: Final = 20.0
"""Seconds until an answer must be there; to add up a directory takes longer than to ask its file system."""
AT_ONCE: Final = 4
"""Clusters that are looked at at the same time."""
_WORTH: Final = 0.01
"""A change of this share of a volume brings the next pass forward."""
_KIB: Final = 1024
_ROOM: Final = 1.25
"""A file system that is larger than its claim by more than this is shared: then the directory is added up."""


@dataclass(frozen=True, kw_only=True)
class Fill:
    """One volume: bytes in use, and bytes it can hold."""

    claim: str
    used: int
    size: int
    capacity: int
    """What its claim had when it was measured."""
    own: bool = True
    """No other volume shares its file system, so that it is full when this says so; else a directory was added up."""

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.used / self.size if self.size > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Fills:
    """What the last look found."""

    found: tuple[Fill, ...] = ()
    problem: str = ""
    """Why nothing can be measured, with the remedy; "" while pods merely do not answer."""


def script_for(path: str, capacity: int) -> str:
    """A shell script that prints ``df USED FREE``, or ``du USED`` where the file system is shared; all in KiB.

    ``capacity`` is what the claim has, in bytes.
    """
    most = int(capacity * _ROOM) // _KIB
    return f"""
df -P -k {path} | {{
  read -r _ && read -r _ size used free _ || exit 1
  if [ "$size" -le {most} ]; then echo "df $used $free"; exit; fi
  du -s -k {path} 2>/dev/null | {{ read -r used _ && echo "du $used"; }}
}}
"""


def fill_in(text: str, *, claim: str, capacity: int) -> Fill | None:
    """What `script_for` printed; ``None`` where that cannot be read."""
    match text.split():
        case ["df", used, free] if used.isdigit() and free.isdigit():
            return Fill(
                claim=claim, used=int(used) * _KIB, size=(int(used) + int(free)) * _KIB, capacity=capacity
            )
        case ["du", used] if used.isdigit():
            return Fill(claim=claim, used=int(used) * _KIB, size=capacity, capacity=capacity, own=False)
    return None


Look = Callable[[str, Volume], Awaitable[Fill | None]]
"""Measures one volume in a namespace; raises `KubeError`, `OSError` or `TimeoutError`."""


@dataclass(kw_only=True)
class _Known:
    asked: datetime
    fills: Fills


class Levels:
    """Looks at the volumes of clusters, at most once in `PERIOD` for each; ``wake`` is called where a look found news."""

    def __init__(
        self,
        manager: Manager,
        *,
        container: str,
        path: str,
        wake: Callable[[Key], None],
        look: Look | None = None,
    ) -> None:
        self._manager, self._container, self._path, self._wake = manager, container, path, wake
        self._look = look or self._by_exec
        self._known: dict[Key, _Known] = {}
        self._asked: asyncio.Queue[tuple[Key, tuple[Volume, ...]]] = asyncio.Queue()

    def of(self, key: Key, volumes: Sequence[Volume]) -> Fills:
        """What the last look found; asks for another one where it is old."""
        bound = tuple(one for one in volumes if one.capacity)
        now, known = self._manager.clock.now(), self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(asked=now - PERIOD, fills=Fills())
        close = any(one.share >= NEARLY_FULL for one in known.fills.found)
        if bound and now >= known.asked + (CLOSER if close else PERIOD):
            known.asked = now
            self._asked.put_nowait((key, bound))
        return known.fills

    def forget(self, key: Key) -> None:
        """The cluster is gone, or its volumes do not grow by themselves."""
        self._known.pop(key, None)

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key, volumes = await self._asked.get()
            fills = await self._fills(key.namespace, volumes)
            known = self._known.get(key)
            if known is None or fills is None:
                continue
            news = _differ(known.fills, fills)
            known.fills = fills
            if news:
                self._wake(key)

    async def _fills(self, namespace: str, volumes: Sequence[Volume]) -> Fills | None:
        """``None``: no pod answered, and what was found before stays."""
        answers = await asyncio.gather(*(self._one(namespace, one) for one in volumes))
        found = tuple(one for one in answers if isinstance(one, Fill))
        if not found:
            problem = next((one for one in answers if isinstance(one, str)), "")
            return Fills(problem=problem) if problem else None
        return Fills(found=found)

    async def _one(self, namespace: str, volume: Volume) -> Fill | str | None:
        try:
            async with asyncio.timeout(WITHIN):
                return await self._look(namespace, volume)
        except ApiError as error:
            if error.status != 403:
                return None
            return (
                "how full the volumes are cannot be measured: the operator may not run df in the pods (pods/exec is "
                "forbidden); set rbac.volumes=true in the chart's values, or remove autogrow"
            )
        except (KubeError, TimeoutError, OSError):
            return None

    async def _by_exec(self, namespace: str, volume: Volume) -> Fill | None:
        sockets = self._manager.sockets
        if sockets is None:
            return None
        capacity = int(parse_quantity(volume.capacity))
        script = script_for(self._path, capacity)
        said = await output_of(sockets, namespace, volume.pod, container=self._container, script=script)
        return fill_in(said, claim=volume.claim, capacity=capacity)


def _differ(before: Fills, now: Fills) -> bool:
    """Whether a pass has something to decide or to show from it."""
    known = {one.claim: one for one in before.found}
    if before.problem != now.problem or known.keys() != {one.claim for one in now.found}:
        return True
    return any(
        abs(one.share - known[one.claim].share) >= _WORTH or one.size != known[one.claim].size
        for one in now.found
    )
