"""Steps that change nothing: the same step with the same reason and on the same state, again and again.

A step is taken because of what was observed, and observed again afterwards. If the observation still asks for it after
`TIMES` within `WINDOW`, the step does not do what it is for: a defect of the operator. It is then held back, longer each
time, and the condition Progressing names it. Other steps of the same object go on. A step that returns ``False`` says
that it did not get through, or a part of the way only; it is not counted, since its operator reports that itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from mooring.actor.outcome import Act, Wait
from mooring.kube.object import Key
from mooring.runtime import Clock

__all__ = ["STEP_REPEATS", "Repeats"]

STEP_REPEATS: Final = "StepRepeats"
"""The reason in the condition Progressing."""
TIMES: Final = 20
"""The same step so often within `WINDOW` changes nothing."""
WINDOW: Final = 60.0
"""Seconds."""
FIRST: Final = 1.0
"""Seconds until a step that changes nothing is taken again; twice as long each time."""
MOST: Final = 30.0
"""Seconds it is held back at most."""


@dataclass(slots=True)
class _Step:
    taken: deque[float] = field(default_factory=lambda: deque(maxlen=TIMES))
    delay: float = 0.0
    until: float = 0.0


@dataclass(slots=True)
class _Steps:
    generation: int | None
    by_reason: dict[tuple[str, str, str], _Step] = field(default_factory=dict)


class Repeats:
    """The steps taken lately for each object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[Key, _Steps] = {}

    def held(self, key: Key, act: Act) -> Wait | None:
        """What to do instead of a step whose time has not come."""
        steps = self._objects.get(key)
        step = steps.by_reason.get((act.name, act.message, act.state)) if steps is not None else None
        left = step.until - self._clock.monotonic() if step is not None else 0.0
        if left <= 0:
            return None
        why = f" ({act.message})" if act.message else ""
        message = (
            f"{act.name}{why} ran {TIMES} times and changed nothing; it is repeated every {MOST:.0f} seconds at most. "
            "This is a defect of the operator: please report it with the operator's log"
        )
        return Wait(STEP_REPEATS, message, after=left)

    def taken(self, key: Key, act: Act, *, generation: int | None) -> bool:
        """Note a step; whether it repeats and is held back from now on. Another generation begins from nothing."""
        now = self._clock.monotonic()
        steps = self._objects.get(key)
        if steps is None or steps.generation != generation:
            steps = self._objects[key] = _Steps(generation)
        found = steps.by_reason
        for old in [one for one, step in found.items() if now - step.taken[-1] > WINDOW]:
            del found[old]
        step = found.setdefault((act.name, act.message, act.state), _Step())
        step.taken.append(now)
        if not step.delay and len(step.taken) < TIMES:
            return False
        if not step.delay and now - step.taken[0] > WINDOW:
            return False
        step.delay = min(MOST, 2 * step.delay or FIRST)
        step.until = now + step.delay
        return True

    def forget(self, key: Key) -> None:
        """The object is in sync, or gone."""
        self._objects.pop(key, None)
