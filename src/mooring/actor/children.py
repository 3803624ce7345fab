"""The objects an actor declares for its own: compared with what is there, applied, pruned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import msgspec

from mooring.actor.drift import APPLIED, as_found, differs, onto, stamped
from mooring.kube.errors import Conflict, NotFound
from mooring.kube.object import Key, Object, controller_of, key_of, metadata_of, owner_reference
from mooring.runtime import CachedClient

__all__ = ["Children", "Drift", "Foreign", "Memory"]

T = TypeVar("T", bound=Object)

#: A child: its kind and name.
Named = tuple[type[Object], str]


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object that has a name we want and is not ours; it is left alone. ``owner`` is "" where it has none."""

    kind: str
    key: Key
    owner: str = ""

    def __str__(self) -> str:
        if not self.owner:
            return f"{self.kind} {self.key} exists, has no owner and lacks the operator's labels"
        return f"{self.kind} {self.key} belongs to {self.owner}"


@dataclass(frozen=True, slots=True)
class Drift:
    """What has to change for the children to be as declared; false when nothing has.

    ``why`` has the first field that differs of each object to apply, or ``absent``. ``adopts`` says that one of
    them is an orphan with our labels.
    """

    apply: tuple[Object, ...] = ()
    prune: tuple[Object, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    why: dict[str, str] = field(default_factory=dict)
    adopts: bool = False

    def __bool__(self) -> bool:
        return bool(self.apply or self.prune)

    @property
    def taken(self) -> str:
        """Which names other owners have: the first in full, and how many more; "" where there is none."""
        if not self.foreign:
            return ""
        more = len(self.foreign) - 1
        return f"{self.foreign[0]}{f' (and {more} more)' if more else ''}"

    def __str__(self) -> str:
        applied = ", ".join(f"{o.resource.kind} {o.metadata.name}" for o in self.apply)
        pruned = ", ".join(f"{o.resource.kind} {o.metadata.name}" for o in self.prune)
        return "; ".join(filter(None, [applied and f"apply {applied}", pruned and f"delete {pruned}"]))


@dataclass(slots=True)
class Memory:
    """What one pass over an object leaves to the next, each with the versions that say whether it still holds.

    Nothing is decided from it: without it a pass only works more.
    """

    settled: tuple[object, ...] | None = None
    """What the last comparison that found no drift was made from."""
    objects: dict[Named, Object] = field(default_factory=dict)
    """Objects that were read whole, of kinds whose metadata alone is cached."""
    owner: Object | None = None
    """The owner as it was looked at last."""


class Children:
    """The cached children of one owner.

    Of the kinds in ``by_metadata`` the cache has the metadata alone: such an object is read (`read`) before it is
    looked at, once per version.
    """

    def __init__(
        self,
        owner: Object,
        client: CachedClient,
        kinds: Sequence[type[Object]],
        *,
        by_metadata: Sequence[type[Object]] = (),
        memory: Memory | None = None,
    ) -> None:
        self._owner = owner
        self._client = client
        self._kinds = (*kinds, *by_metadata)
        self._by_metadata = frozenset(by_metadata)
        self._memory = memory if memory is not None else Memory()
        self._read: dict[Named, Object | None] = {}

    def of(self, kind: type[T]) -> Sequence[T]:
        """All children of a kind (by the UID of their controller), sorted by name."""
        if kind in self._by_metadata:
            raise LookupError(
                f"only the metadata of {kind.resource.plural} is cached; read the one that is needed"
            )
        return cast("list[T]", self._owned_of(kind))

    def find(self, kind: type[T], name: str) -> T | None:
        """The object of that name in the owner's namespace, with any owner."""
        if kind not in self._by_metadata:
            return self._client.find(kind, name, namespace=self._owner.metadata.namespace or "")
        if (kind, name) not in self._read:
            raise LookupError(f"only the metadata of {kind.resource.plural} is cached; read {name} first")
        return cast("T | None", self._read[kind, name])

    async def read(self, kind: type[T], name: str) -> T | None:
        """An object whose metadata alone is cached, whole; asked of the API server when its version is new."""
        namespace = self._owner.metadata.namespace or ""
        cached = self._client.find(metadata_of(kind), name, namespace=namespace)
        found = self._memory.objects.get((kind, name)) if cached is not None else None
        if cached is not None and (found is None or _version(found) != _version(cached)):
            found = await self._client.refresh(kind, name, namespace=namespace)
        self._keep(kind, name, found)
        return cast("T | None", found)

    def _keep(self, kind: type[Object], name: str, found: Object | None) -> None:
        self._read[kind, name] = found
        if found is None:
            self._memory.objects.pop((kind, name), None)
        else:
            self._memory.objects[kind, name] = found

    def _owned_of(self, kind: type[Object]) -> list[Object]:
        seen: type[Object] = metadata_of(kind) if kind in self._by_metadata else kind
        found = self._client.owned_by(seen, self._owner)
        return sorted(found, key=lambda obj: obj.metadata.name or "")

    def settle(
        self,
        desired: Callable[[], Iterable[Object]],
        *,
        given: object,
        keep: Collection[Named] = (),
        unowned: Collection[Named] = (),
    ) -> Drift:
        """As `diff`; but after one that found nothing to do, nothing is built or compared until something changed.

        What counts as a change: another version of the owner, of a child or of an object of a wanted name;
        another set of children; another ``given``, which must hold all else that ``desired`` is made from; and a
        new process, so that another release of the operator always compares.
        """
        before = self._memory.settled
        if before is not None and before[0] == self._made_from(given, keep, unowned):
            wanted = cast("frozenset[Named]", before[1])
            if before[2] == self._versions(wanted):
                return Drift()
        self._memory.settled = None
        made = list(desired())
        drift = self.diff(made, keep=keep, unowned=unowned)
        if not drift and not drift.foreign:
            names = frozenset((type(one), one.metadata.name or "") for one in made)
            self._memory.settled = (self._made_from(given, keep, unowned), names, self._versions(names))
        return drift

    def _made_from(
        self, given: object, keep: Collection[Named], unowned: Collection[Named]
    ) -> tuple[object, ...]:
        return _version(self._owner), given, frozenset(keep), frozenset(unowned)

    def _versions(self, wanted: frozenset[Named]) -> dict[Named, tuple[str | None, str | None] | None]:
        """The versions of all children, and of whatever has a wanted name."""
        found: dict[Named, tuple[str | None, str | None] | None] = {
            (kind, child.metadata.name or ""): _version(child)
            for kind in self._kinds
            for child in self._client.owned_by(
                metadata_of(kind) if kind in self._by_metadata else kind, self._owner
            )
        }
        for kind, name in wanted - found.keys():
            other = self.find(kind, name)
            found[kind, name] = _version(other) if other is not None else None
        return found

    def diff(
        self,
        desired: Iterable[Object],
        *,
        keep: Collection[Named] = (),
        unowned: Collection[Named] = (),
    ) -> Drift:
        """Compare what is wanted with the cache; reads nothing else.

        ``keep`` names (kind, name) that are no longer wanted but must stay for now; ``unowned`` those that
        shall have no owner, so that they outlive this one. What was made from the live object and repeats its content
        must have its resource version: it is applied to that version alone, so that it neither takes back a later change
        nor recreates what was deleted.
        """
        apply, foreign, why, adopts = [], [], {}, False
        wanted: set[Named] = set(keep)
        for declared in desired:
            version = declared.metadata.resource_version
            plain = onto(declared, None)
            name = plain.metadata.name or ""
            wanted.add((type(plain), name))
            live = self.find(type(plain), name)
            if live is None:
                apply.append(stamped(self._owned(plain, unowned)))
                why[f"{plain.resource.kind}/{name}"] = "absent"
                continue
            if live.metadata.deletion_timestamp:
                continue  # on its way out; its DELETED event brings us back
            if stranger := self._stranger(plain, live, unowned):
                foreign.append(stranger)
                continue
            # The digest is of what is declared: what the server made of an immutable field is not ours.
            target = as_found(stamped(self._owned(plain, unowned)), live)
            if path := differs(target, live):
                apply.append(onto(target, version, live.metadata.uid if version else None))
                adopts = adopts or bool(target.metadata.owner_references and controller_of(live) is None)
                why[f"{plain.resource.kind}/{name}"] = path
        prune = [
            child
            for kind in self._kinds
            for child in self._owned_of(kind)
            if (kind, child.metadata.name or "") not in wanted
            and APPLIED in (child.metadata.annotations or {})
            and not child.metadata.deletion_timestamp
        ]
        return Drift(tuple(apply), tuple(prune), tuple(foreign), why, adopts)

    async def apply(self, drift: Drift) -> None:
        """Apply what is missing or differs, in order, then delete what is no longer wanted.

        Raises `Conflict`, which means "look again", when the owner is no longer what was looked at and an
        object would be made or an orphan adopted for it: the news that it is gone may come after the news that its
        children are. Or when somebody made an object of a name that seemed free.
        """
        if drift.adopts or "absent" in drift.why.values():
            await self._still_there()
        for target in drift.apply:
            absent = drift.why.get(f"{target.resource.kind}/{target.metadata.name}") == "absent"
            # By force only what was seen: a stranger's object that came up meanwhile is not taken over.
            made = await self._client.apply(target, force=not absent)
            if type(target) in self._by_metadata:
                self._keep(type(target), made.metadata.name or "", made)
        for obsolete in drift.prune:
            await self.delete(obsolete)

    async def _still_there(self) -> None:
        """Ask the server, not the cache: nothing is made for an owner that is gone, nor adopted that the next one needs."""
        owner, key = self._owner, key_of(self._owner)
        try:
            live = await self._client.live.get(type(owner), key.name, namespace=key.namespace)
        except NotFound:
            live = None
        if live is None or live.metadata.uid != owner.metadata.uid or live.metadata.deletion_timestamp:
            message = f"{owner.resource.kind} {key} is deleted or being deleted; nothing is created for it"
            raise Conflict(message, status=409, reason="Conflict")

    async def delete(self, child: Object) -> None:
        """Delete exactly this object: its UID at its version; one that is gone already is fine."""
        key = key_of(child)
        try:
            await self._client.delete(
                type(child),
                key.name,
                namespace=key.namespace,
                uid=child.metadata.uid,
                resource_version=child.metadata.resource_version,
            )
        except NotFound:
            return

    def _owned(self, plain: T, unowned: Collection[Named]) -> T:
        meta = plain.metadata
        changes: dict[str, object] = {"namespace": meta.namespace or self._owner.metadata.namespace}
        if (type(plain), meta.name or "") not in unowned:
            changes["owner_references"] = [owner_reference(self._owner)]
        return msgspec.structs.replace(plain, metadata=msgspec.structs.replace(meta, **changes))

    def _stranger(self, plain: Object, live: Object, unowned: Collection[Named]) -> Foreign | None:
        """Who owns ``live`` if it is not ours; a name alone makes nothing ours."""
        kind, key = live.resource.kind, key_of(live)
        controller = controller_of(live)
        if controller is not None:
            if controller.uid == self._owner.metadata.uid:
                return None
            return Foreign(kind, key, f"{controller.kind} {controller.name} (uid {controller.uid})")
        labels, expected = live.metadata.labels or {}, plain.metadata.labels or {}
        if expected and all(labels.get(name) == value for name, value in expected.items()):
            return None  # an orphan with our labels: adopted by the apply
        return Foreign(kind, key)


def _version(obj: Object) -> tuple[str | None, str | None]:
    return obj.metadata.uid, obj.metadata.resource_version
