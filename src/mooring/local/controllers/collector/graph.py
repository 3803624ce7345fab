"""Who owns whom, from metadata alone. Pure.

The graph says whom a change makes suspect; `judge` says what is to be done with one object, once it is known
of each of its owners whether it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mooring.kube.object import Key, Object, Resource, key_of
from mooring.kube.objects.meta import OwnerReference

__all__ = ["Delete", "Graph", "Item", "Keep", "OwnerState", "Release", "Verdict", "judge"]

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

#: ``waiting``: the owner is being deleted in the foreground; ``invalid``: it cannot own this object.
OwnerState = Literal["solid", "absent", "waiting", "invalid"]


@dataclass(frozen=True, slots=True)
class Item:
    """What the collector knows of an object."""

    resource: Resource
    key: Key
    uid: str
    owners: tuple[OwnerReference, ...]
    deleting: bool
    finalizers: tuple[str, ...]

    @classmethod
    def of(cls, obj: Object) -> Item:
        """The item of an object."""
        meta = obj.metadata
        return cls(
            type(obj).resource,
            key_of(obj),
            meta.uid or "",
            tuple(meta.owner_references or ()),
            meta.deletion_timestamp is not None,
            tuple(f for f in meta.finalizers or () if f in (FOREGROUND, ORPHAN)),
        )

    @property
    def waits_for_dependents(self) -> bool:
        """It is being deleted and goes after the objects it owns."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphans(self) -> bool:
        """It is being deleted and leaves the objects it owns behind."""
        return self.deleting and ORPHAN in self.finalizers

    def blocks(self, owner: str) -> bool:
        """The owner's foreground deletion has to wait for this object."""
        return any(o.uid == owner and o.block_owner_deletion for o in self.owners)

    def named_by(self, reference: OwnerReference, namespace: str) -> bool:
        """Whether a reference in that namespace means this very object, by more than its UID."""
        group = (reference.api_version or "").rpartition("/")[0]
        return (
            self.resource.group == group
            and self.resource.kind == reference.kind
            and self.key.name == reference.name
            and (not self.resource.namespaced or self.key.namespace == namespace)
        )


@dataclass
class Graph:
    """All objects by UID, and who depends on whom."""

    items: dict[str, Item] = field(default_factory=dict)
    _dependents: dict[str, dict[str, None]] = field(default_factory=dict)

    def dependents(self, uid: str) -> list[Item]:
        """The objects that name an owner."""
        return [self.items[d] for d in self._dependents.get(uid, ())]

    def blocking(self, uid: str) -> list[Item]:
        """The objects that an owner's foreground deletion waits for."""
        return [item for item in self.dependents(uid) if item.blocks(uid)]

    def put(self, item: Item) -> set[str]:
        """An object appeared or changed; returns the UIDs that must be looked at."""
        old = self.items.get(item.uid)
        if old == item:
            return set()
        self.items[item.uid] = item
        before = {o.uid or "" for o in old.owners} if old else set()
        after = {o.uid or "" for o in item.owners}
        for uid in before - after:
            self._unlink(uid, item.uid)
        for uid in after - before:
            self._dependents.setdefault(uid, {})[item.uid] = None
        suspects = self._waiting_owners(before | after)
        if self._questionable(item):
            suspects.add(item.uid)
        if item.waits_for_dependents and not (old and old.waits_for_dependents):
            suspects |= {item.uid, *self._dependents.get(item.uid, ())}
        if item.orphans:
            suspects.add(item.uid)
        return suspects

    def drop(self, uid: str) -> set[str]:
        """An object is gone; returns the UIDs that must be looked at."""
        item = self.items.pop(uid, None)
        if item is None:
            return set()
        owners = {o.uid or "" for o in item.owners}
        for owner in owners:
            self._unlink(owner, uid)
        return self._waiting_owners(owners) | set(self._dependents.get(uid, ()))

    def suspects(self) -> set[str]:
        """Everything that must be looked at after the graph was filled for the first time."""
        return {
            item.uid
            for item in self.items.values()
            if item.waits_for_dependents or item.orphans or self._questionable(item)
        }

    def _questionable(self, item: Item) -> bool:
        """An owner is not there, is going, or is not what the reference says."""
        for reference in item.owners:
            owner = self.items.get(reference.uid or "")
            if owner is None or owner.waits_for_dependents:
                return True
            if not owner.named_by(reference, item.key.namespace):
                return True
        return False

    def _waiting_owners(self, uids: Iterable[str]) -> set[str]:
        return {uid for uid in uids if uid in self.items and self.items[uid].waits_for_dependents}

    def _unlink(self, owner: str, dependent: str) -> None:
        known = self._dependents.get(owner)
        if known is not None:
            known.pop(dependent, None)
            if not known:
                del self._dependents[owner]


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """Take these owners away: they are gone or going, and others remain."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Delete:
    """No owner is left. ``unblock``: owners must not wait for it any longer (they wait for each other)."""

    propagation: str
    unblock: bool = False


Verdict = Keep | Release | Delete


def judge(item: Item, owners: Mapping[str, OwnerState], dependents: Iterable[Item]) -> Verdict:
    """What becomes of an object; ``owners`` gives the state of each owner by UID."""
    states = {reference.uid or "": owners[reference.uid or ""] for reference in item.owners}
    if not states or "invalid" in states.values():
        return Keep()
    if "solid" in states.values():
        others = frozenset(uid for uid, state in states.items() if state != "solid")
        return Release(others) if others else Keep()
    below = list(dependents)
    if "waiting" in states.values() and below:
        return Delete("Foreground", unblock=any(d.waits_for_dependents for d in below))
    if ORPHAN in item.finalizers:
        return Delete("Orphan")
    return Delete("Foreground" if FOREGROUND in item.finalizers else "Background")
