"""What we know of one kind: the newest state of every object, and nothing older, whoever told us.

Lists, watch events and the answers to our own writes all pass through one transition function. It compares
resource versions as integers (KEP-5504: they are ordered within one resource) and returns what changed, or
`None` when the news is old. Three traps are closed here:

- *Time travel*: an event of an older incarnation, or a list from a server that lags, never replaces newer
  state, whatever its UID.
- *Ghost*: the DELETED event may overtake the answer to our own create. An answer for an absent key that is
  not above everything the watch has already told us is about an object that is gone again.
- *Deleted by us*: after our delete was answered, the object is gone for every reader, though watch events
  about it are still under way. Its UID is remembered as dead until its DELETED event, or a list without it.

Objects are frozen and shared: readers must not, and cannot, change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec

from mooring.kube.object import Key, Object, controller_of, key_of

__all__ = ["Origin", "Store", "Transition", "version_of"]

T = TypeVar("T", bound=Object)

Origin = Literal["list", "watch", "write"]
IndexFunction = Callable[[T], Iterable[str]]


class Transition(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One object went from ``old`` to ``new``; ``None`` means it was, or is, not there.

    ``final_state_unknown``: the deletion was noticed by a list, so ``old`` may be long out of date.
    """

    key: Key
    old: T | None
    new: T | None
    origin: Origin
    final_state_unknown: bool = False

    @property
    def object(self) -> T:
        """The new state, or the last one known of a deleted object."""
        obj = self.new if self.new is not None else self.old
        if obj is None:
            raise ValueError("a transition has at least one side")
        return obj


@dataclass(frozen=True, slots=True)
class _Tombstone:
    """Why an absent key stays absent: nothing up to ``version`` counts; if ``dead``, nothing of the UID."""

    uid: str
    version: int
    dead: bool


class _Index(Generic[T]):
    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._values: dict[Key, tuple[str, ...]] = {}
        self._members: dict[str, dict[Key, None]] = {}

    def put(self, key: Key, obj: T) -> None:
        new = tuple(self._function(obj))
        old = self._values.get(key, ())
        if new == old:
            return
        self._drop_values(key, old)
        for value in new:
            self._members.setdefault(value, {})[key] = None
        if new:
            self._values[key] = new
        else:
            self._values.pop(key, None)

    def drop(self, key: Key) -> None:
        self._drop_values(key, self._values.pop(key, ()))

    def _drop_values(self, key: Key, values: Iterable[str]) -> None:
        for value in values:
            members = self._members[value]
            members.pop(key, None)
            if not members:
                del self._members[value]

    def keys(self, value: str) -> Iterable[Key]:
        return self._members.get(value, {})


def version_of(obj: Object) -> int:
    """The resource version as a number; 0 for an object that never was on a server."""
    return int(obj.metadata.resource_version or 0)


class Store(Generic[T]):
    """The objects of one kind by key, with indexes; see the module's text for its one rule.

    ``selects`` tells whether an object belongs here at all (a filtered cache): the answer to a write may show
    an object that has just left the selection.
    """

    def __init__(self, *, selects: Callable[[T], bool] | None = None) -> None:
        self._selects = selects
        self._objects: dict[Key, T] = {}
        self._tombstones: dict[Key, _Tombstone] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self.last_version = 0

    # --- reading

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, key: Key) -> T | None:
        """The newest known state."""
        return self._objects.get(key)

    def values(self) -> list[T]:
        """All objects."""
        return list(self._objects.values())

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Index by the strings that ``function`` gives for an object; objects already here are included."""
        if name in self._indexes:
            raise ValueError(f"index {name!r} exists already")
        index = _Index(function)
        for key, obj in self._objects.items():
            index.put(key, obj)
        self._indexes[name] = index

    def has_index(self, name: str) -> bool:
        """Whether an index of that name was added."""
        return name in self._indexes

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects that an index files under ``value``.

        Built in, made when first asked for: ``namespace``, ``owner`` (UID of the controlling owner) and
        ``label:KEY``. An unknown name raises KeyError.
        """
        index = self._indexes.get(name) or self._built_in(name)
        objects = self._objects
        return [objects[key] for key in index.keys(value)]

    def _built_in(self, name: str) -> _Index[T]:
        if name == "namespace":
            self.add_index(name, _by_namespace)
        elif name == "owner":
            self.add_index(name, _by_owner)
        elif name.startswith("label:"):
            self.add_index(name, _by_label(name.removeprefix("label:")))
        else:
            raise KeyError(f"no index {name!r}; add it with add_index before use")
        return self._indexes[name]

    # --- the transition function

    def apply(self, obj: T, origin: Origin) -> Transition[T] | None:
        """An object was seen in this state by a watch or in the answer to a write."""
        key = key_of(obj)
        version = version_of(obj)
        if origin == "watch" and version > self.last_version:
            absent_floor, self.last_version = self.last_version, version
        else:
            absent_floor = self.last_version
        if not self._is_news(key, obj, version, absent_floor):
            return None
        if self._selects is not None and not self._selects(obj):
            return self._leave(key, obj, version, origin)
        return self._put(key, obj, origin)

    def _is_news(self, key: Key, obj: T, version: int, absent_floor: int) -> bool:
        stored = self._objects.get(key)
        if stored is not None:
            return version > version_of(stored)
        tombstone = self._tombstones.get(key)
        if tombstone is not None and _covers(tombstone, obj, version):
            return False
        return version > absent_floor

    def _leave(self, key: Key, obj: T, version: int, origin: Origin) -> Transition[T] | None:
        if key not in self._objects:
            return None
        self._tombstones[key] = _Tombstone(obj.metadata.uid or "", version, dead=False)
        return self._drop(key, origin)

    def remove(self, obj: T) -> Transition[T] | None:
        """A watch said DELETED: the object is gone, or has left the selection."""
        return self.remove_key(key_of(obj), uid=obj.metadata.uid or "", version=version_of(obj))

    def remove_key(self, key: Key, *, uid: str, version: int) -> Transition[T] | None:
        """As `remove`, when the object itself could not be decoded."""
        self.last_version = max(self.last_version, version)
        tombstone = self._tombstones.get(key)
        if tombstone is not None and (tombstone.uid == uid or version >= tombstone.version):
            del self._tombstones[key]
        stored = self._objects.get(key)
        if stored is None or version < version_of(stored):
            return None
        return self._drop(key, "watch")

    def gone(self, key: Key, uid: str) -> Transition[T] | None:
        """The server answered that the object of this UID is no more (to our delete, to a live read)."""
        stored = self._objects.get(key)
        if stored is None or stored.metadata.uid != uid:
            return None  # its DELETED event was faster, or the name lives on in a newer object
        self._tombstones[key] = _Tombstone(uid, version_of(stored), dead=True)
        return self._drop(key, "write")

    def progress(self, version: int) -> None:
        """A bookmark: everything up to this version has been delivered."""
        self.last_version = max(self.last_version, version)

    def replace(
        self, items: Sequence[T], version: int, *, keep: Iterable[Key] = (), reset: bool = False
    ) -> list[Transition[T]]:
        """A complete list, taken at ``version``: what is not in it was deleted while nobody looked.

        ``keep`` are keys that the list holds but that could not be decoded: their last sound state stays.
        ``reset`` accepts a list from the past (the server was restored from a backup): it becomes the truth.
        Otherwise objects that we know to be newer than the list stay as they are.
        """
        if reset:
            self.last_version = 0
            self._tombstones.clear()
        elif version < self.last_version:
            raise ValueError(f"list at {version} is older than {self.last_version}, already seen")
        changes: list[Transition[T]] = []
        listed: dict[Key, str] = {}
        for obj in items:
            key = key_of(obj)
            listed[key] = obj.metadata.uid or ""
            change = self._take_listed(key, obj, reset=reset)
            if change is not None:
                changes.append(change)
        keep = set(keep)
        missing = [k for k in self._objects if k not in listed and k not in keep]
        lost = [k for k in missing if reset or version_of(self._objects[k]) <= version]
        changes += [self._drop(k, "list", final_state_unknown=True) for k in lost]
        self._forget_tombstones(listed, version)
        self.last_version = version
        return changes

    def _take_listed(self, key: Key, obj: T, *, reset: bool) -> Transition[T] | None:
        version = version_of(obj)
        stored = self._objects.get(key)
        if stored is not None:
            same = stored.metadata.uid == obj.metadata.uid and version_of(stored) == version
            if same or (not reset and version <= version_of(stored)):
                return None
        else:
            tombstone = self._tombstones.get(key)
            if tombstone is not None and _covers(tombstone, obj, version):
                return None
        return self._put(key, obj, "list")

    def _forget_tombstones(self, listed: dict[Key, str], version: int) -> None:
        for key, tombstone in list(self._tombstones.items()):
            if listed.get(key) != tombstone.uid and tombstone.version <= version:
                del self._tombstones[key]

    def _put(self, key: Key, obj: T, origin: Origin) -> Transition[T]:
        old = self._objects.get(key)
        self._objects[key] = obj
        if self._tombstones:
            self._tombstones.pop(key, None)
        for index in self._indexes.values():
            index.put(key, obj)
        return Transition(key, old, obj, origin)

    def _drop(self, key: Key, origin: Origin, *, final_state_unknown: bool = False) -> Transition[T]:
        old = self._objects.pop(key)
        for index in self._indexes.values():
            index.drop(key)
        return Transition(key, old, None, origin, final_state_unknown)


def _covers(tombstone: _Tombstone, obj: Object, version: int) -> bool:
    return version <= tombstone.version or (tombstone.dead and obj.metadata.uid == tombstone.uid)


def _by_namespace(obj: Object) -> Iterable[str]:
    return (obj.metadata.namespace or "",)


def _by_owner(obj: Object) -> Iterable[str]:
    owner = controller_of(obj)
    return (owner.uid or "",) if owner is not None else ()


def _by_label(label: str) -> Callable[[Object], Iterable[str]]:
    def values(obj: Object) -> Iterable[str]:
        value = (obj.metadata.labels or {}).get(label)
        return () if value is None else (value,)

    return values
