"""Objects that another one cannot work without: watched, waited for, and named in the condition.

The dependant waits and looks at the other's status; the other knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import structlog

from mooring.actor.outcome import Wait
from mooring.cache import BadObject
from mooring.kube.object import Key, Object
from mooring.runtime import CachedClient

__all__ = ["Dependency", "not_ready", "unmet"]

R = TypeVar("R", bound=Object)

log = structlog.get_logger("mooring.actor")

#: Seconds until the next look; a change of the dependency comes at once.
AGAIN: Final = 300.0


def not_ready(obj: Object) -> str:
    """Why an object cannot be relied on yet, by its ``Ready`` condition; empty when it is ready.

    The reason is that of ``Stalled`` where it is true: what needs a person, and not what follows from it. A kind without a status is ready as soon as it is there.
    """
    if obj.metadata.deletion_timestamp:
        return "is being deleted"
    if not hasattr(obj, "status"):
        return ""
    conditions: Sequence[Any] = getattr(obj.status, "conditions", None) or ()
    ready = next((one for one in conditions if one.type == "Ready"), None)
    if ready is None:
        return "has no Ready condition yet"
    observed = getattr(ready, "observed_generation", None)
    if observed is not None and observed != obj.metadata.generation:
        return "was changed and not reconciled since"
    if ready.status != "True":
        stalled = next((one for one in conditions if (one.type, one.status) == ("Stalled", "True")), ready)
        told = ": ".join(filter(None, (stalled.reason, stalled.message)))
        return f"is not ready ({told})" if told else "is not ready"
    return ""


@dataclass(frozen=True, slots=True)
class Dependency(Generic[R]):
    """A kind that objects refer to: ``refers`` gives the keys an object refers to.

    ``trouble`` says why one is of no use yet, empty when it is (default: its ``Ready`` condition).
    """

    kind: type[R]
    refers: Callable[[Any], Iterable[Key]]
    trouble: Callable[[R], str] = not_ready

    def index(self, obj: Object) -> list[str]:
        """What an object refers to, for the index that leads back from a dependency to its dependants."""
        try:
            return [str(key) for key in self.refers(obj)]
        except Exception:
            # The index serves all objects of the kind; one bad declaration must not take it away.
            log.exception(
                "cannot tell what an object depends on", kind=obj.resource.kind, name=obj.metadata.name
            )
            return []


def unmet(obj: Object, dependencies: Iterable[Dependency[Any]], client: CachedClient) -> Wait | None:
    """What to wait for, naming every object that is missing or not ready; ``None`` when there is none."""
    found = [
        f"{one.kind.resource.kind} {key} {trouble}"
        for one in dependencies
        for key in one.refers(obj)
        if (trouble := _trouble(one, key, client))
    ]
    return Wait("DependenciesNotReady", "; ".join(found), AGAIN) if found else None


def _trouble(one: Dependency[Any], key: Key, client: CachedClient) -> str:
    try:
        found = client.find(one.kind, key.name, namespace=key.namespace)
    except BadObject:
        return "cannot be read; see its own conditions"
    return "does not exist; create it" if found is None else one.trouble(found)
