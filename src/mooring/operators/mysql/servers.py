"""The databases of all clusters, as the actor sees them: looked at, and changed. A test puts a model in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from time import monotonic
from typing import Final, Protocol

from mooring.actor import StepFailed
from mooring.kube.object import Key
from mooring.operators.mysql.dial import Dial, Fence
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.holds import Holds
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.load import Reads
from mooring.operators.mysql.moves import DatabaseMove, Done
from mooring.operators.mysql.pulse import Pulse
from mooring.operators.mysql.sight import read_snapshot
from mooring.operators.mysql.snapshot import ALIVE, Snapshot
from mooring.operators.mysql.specs import AUTHORITY_FILE
from mooring.operators.mysql.steps import Steps
from mooring.operators.mysql.survey import login_of

__all__ = ["Databases", "Servers", "Silent"]

LOOK: Final = 10.0
"""Seconds that looking at all servers of a cluster may take."""
IMPATIENT: Final = 5.0
"""Seconds for which a server that did not answer in time is given less of it."""
STEP: Final = 60.0
"""Seconds that one move may take."""


class Databases(Protocol):
    """What the actor needs of the databases."""

    async def look(self, key: Key, inputs: Inputs, *, now: Callable[[], datetime]) -> Snapshot:
        """Inputs, and what every server of a cluster says. Reads only."""
        ...

    async def carry_out(self, inputs: Inputs, move: DatabaseMove) -> Done:
        """One move; raises `StepFailed`."""
        ...

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        ...

    async def serve(self) -> None:
        """Until cancelled; ends connections and tasks then."""
        ...


class Silent:
    """Servers that did not answer in time: for a while they are given less of it, so that a hung one holds up nothing.

    Then they are given all of it once more: one that is only slow would never get an answer through otherwise. Nothing
    is decided by it.
    """

    def __init__(self, *, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic = monotonic
        self._since: dict[Key, dict[str, float]] = {}
        """When each was given its whole time in vain."""

    def of(self, key: Key) -> frozenset[str]:
        """Those of a cluster that get less time now."""
        now, known = self._monotonic(), self._since.get(key, {})
        return frozenset(name for name, since in known.items() if now - since < IMPATIENT)

    def note(self, key: Key, names: Collection[str], *, hurried: Collection[str] = ()) -> None:
        """``names`` did not answer in the pass that ends; ``hurried`` got less time in it."""
        now, known = self._monotonic(), self._since.get(key, {})
        self._since[key] = {name: known.get(name, now) if name in hurried else now for name in names}

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._since.pop(key, None)


class Servers:
    """Real ones, over SQL.

    ``wake`` brings the next pass over a cluster forward: its primary did not answer.
    """

    def __init__(self, fence: Fence, wake: Callable[[Key], None]) -> None:
        self._dial = Dial(fence=fence)
        self._holds = Holds()
        self._pulse = Pulse(self._dial, wake)
        self._silent = Silent()
        self._reads = Reads()

    async def look(self, key: Key, inputs: Inputs, *, now: Callable[[], datetime]) -> Snapshot:
        """See `Databases`; from now on the primary's pulse is felt."""
        silent = self._silent.of(key)
        # Every question has its own limit; writes wait for this pass, so they have one together as well.
        async with asyncio.timeout(LOOK):
            snapshot = await read_snapshot(inputs, self._dial, now=now, silent=silent)
        members = snapshot.topology.members
        self._silent.note(key, [one.name for one in members if one.error == "Timeout"], hurried=silent)
        primary = snapshot.topology.member(snapshot.primary)
        self._pulse.follow(key, primary.pod.ip if primary else "", login_of(inputs.credentials))
        answers = primary is not None and (primary.server is not None or primary.error in ALIVE)
        away = self._pulse.seen(key, answers=answers)
        reads = self._reads.of(key, snapshot.wanted.scaling, snapshot.topology)
        observed = replace(snapshot.observed, primary_unreachable=away, reads=reads)
        return replace(snapshot, observed=observed)

    async def carry_out(self, inputs: Inputs, move: DatabaseMove) -> Done:
        """See `Databases`."""
        dialect = dialect_of(inputs.wanted.flavor)
        tls, authority = inputs.found.tls, AUTHORITY_FILE if inputs.found.named else ""
        steps = Steps(
            self._dial, dialect, inputs.credentials, holds=self._holds, tls=tls, authority=authority
        )
        try:
            async with asyncio.timeout(STEP):
                return await steps.run(move)
        except TimeoutError as error:
            raise StepFailed(f"{move.name} did not end within {STEP:.0f} s") from error

    def forget(self, key: Key) -> None:
        """See `Databases`."""
        self._pulse.forget(key)
        self._silent.forget(key)
        self._reads.forget(key)

    async def serve(self) -> None:
        """See `Databases`."""
        try:
            await asyncio.Event().wait()
        finally:
            self._pulse.close()
            self._holds.close()
            self._dial.close()
