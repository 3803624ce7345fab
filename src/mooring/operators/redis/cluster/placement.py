"""Who becomes a master and whose replica, so that no machine and no zone holds too much.

Masters are spread over zones first and nodes second; a replica goes to the shard that has the fewest, and away
from its master's node and zone. Where there is one node only, everything is equally good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["Place", "best_master", "choose_masters", "matched"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one pod runs."""

    name: str
    ordinal: int
    node: str = ""
    zone: str = ""


def choose_masters(places: Sequence[Place], *, number: int, fixed: Iterable[str] = ()) -> list[str]:
    """Names of ``number`` masters, those in ``fixed`` among them, lowest ordinals where nothing else decides."""
    by_name = {one.name: one for one in places}
    chosen = [by_name[name] for name in fixed if name in by_name]
    free = [one for one in places if one not in chosen]
    while len(chosen) < number and free:
        zones, nodes = Counter(one.zone for one in chosen), Counter(one.node for one in chosen)
        best = min(free, key=lambda one: (zones[one.zone], nodes[one.node], one.ordinal))
        chosen.append(best)
        free.remove(best)
    return [one.name for one in sorted(chosen, key=lambda one: one.ordinal)]


def cost(master: Place, replica: Place) -> int:
    """How bad it is that they share a node, or at least a zone."""
    return 10 * (master.node == replica.node) + (master.zone == replica.zone)


def best_master(replica: Place, masters: Sequence[Place], *, replicas: Mapping[str, int]) -> Place:
    """The master a further replica does most good to; ``replicas`` has how many each one has."""
    return min(masters, key=lambda one: (replicas.get(one.name, 0), cost(one, replica), one.ordinal))


def matched(masters: Sequence[Place], replicas: Sequence[Place]) -> dict[str, str]:
    """Replica -> master, evenly, with as few as possible beside their master.

    Taken one by one first; then two replicas change places as long as that helps, since the last one otherwise
    has to take what is left.
    """
    by_name = {one.name: one for one in (*masters, *replicas)}
    have: Counter[str] = Counter()
    found: dict[str, str] = {}
    for replica in sorted(replicas, key=lambda one: one.ordinal):
        master = best_master(replica, masters, replicas=have)
        have[master.name] += 1
        found[replica.name] = master.name

    def total(left: str, right: str) -> int:
        return cost(by_name[found[left]], by_name[left]) + cost(by_name[found[right]], by_name[right])

    better = True
    while better:
        better = False
        for left, right in combinations(found, 2):
            before = total(left, right)
            found[left], found[right] = found[right], found[left]
            if total(left, right) < before:
                better = True
            else:
                found[left], found[right] = found[right], found[left]
    return found
