"""The objects an actor declares for its own: compared with what is there, applied, pruned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from mooring.actor.drift import APPLIED, as_found, differs, stamped
from mooring.kube.errors import Conflict, NotFound
from mooring.kube.object import Key, Object, controller_of, key_of, owner_reference
from mooring.runtime import CachedClient

__all__ = ["Children", "Drift", "Foreign"]

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object that bears a name we want and belongs to somebody else; it is left alone."""

    kind: str
    key: Key
    owner: str

    def __str__(self) -> str:
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

    def __str__(self) -> str:
        applied = ", ".join(f"{o.resource.kind} {o.metadata.name}" for o in self.apply)
        pruned = ", ".join(f"{o.resource.kind} {o.metadata.name}" for o in self.prune)
        return "; ".join(filter(None, [applied and f"apply {applied}", pruned and f"delete {pruned}"]))


class Children:
    """The cached children of one owner."""

    def __init__(self, owner: Object, client: CachedClient, kinds: Sequence[type[Object]]) -> None:
        self._owner = owner
        self._client = client
        self._kinds = tuple(kinds)

    def of(self, kind: type[T]) -> list[T]:
        """All children of a kind (by the UID of their controller), sorted by name."""
        found = self._client.owned_by(kind, self._owner)
        return sorted(found, key=lambda obj: obj.metadata.name or "")

    def find(self, kind: type[T], name: str) -> T | None:
        """The object of that name in the owner's namespace, whoever owns it."""
        return self._client.find(kind, name, namespace=self._owner.metadata.namespace or "")

    def diff(
        self,
        desired: Iterable[Object],
        *,
        keep: Collection[tuple[type[Object], str]] = (),
        unowned: Collection[tuple[type[Object], str]] = (),
    ) -> Drift:
        """Compare what is wanted with the cache; reads nothing else.

        ``keep`` names (kind, name) that are no longer wanted but must stay for now; ``unowned`` those that
        shall have no owner, so that they outlive this one.
        """
        apply, foreign, why, adopts = [], [], {}, False
        wanted: set[tuple[type[Object], str]] = set(keep)
        for plain in desired:
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
                apply.append(target)
                adopts = adopts or bool(target.metadata.owner_references and controller_of(live) is None)
                why[f"{plain.resource.kind}/{name}"] = path
        prune = [
            child
            for kind in self._kinds
            for child in self.of(kind)
            if (kind, child.metadata.name or "") not in wanted
            and APPLIED in (child.metadata.annotations or {})
            and not child.metadata.deletion_timestamp
        ]
        return Drift(tuple(apply), tuple(prune), tuple(foreign), why, adopts)

    async def apply(self, drift: Drift) -> None:
        """Apply what is missing or differs, in order, then delete what is no longer wanted.

        Raises `Conflict`, which means "look again", when the owner is no longer what was looked at and an
        orphan would be adopted for it, or when somebody made an object of a name that seemed free.
        """
        if drift.adopts:
            await self._still_there()
        for target in drift.apply:
            absent = drift.why.get(f"{target.resource.kind}/{target.metadata.name}") == "absent"
            # By force only what was seen: a stranger's object that came up meanwhile is not taken over.
            await self._client.apply(target, force=not absent)
        for obsolete in drift.prune:
            await self.delete(obsolete)

    async def _still_there(self) -> None:
        """Ask the server, not the cache: an owner that is gone must not adopt what the next one needs."""
        owner, key = self._owner, key_of(self._owner)
        try:
            live = await self._client.live.get(type(owner), key.name, namespace=key.namespace)
        except NotFound:
            live = None
        if live is None or live.metadata.uid != owner.metadata.uid or live.metadata.deletion_timestamp:
            message = f"{owner.resource.kind} {key} is gone or going; nothing is adopted for it"
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

    def _owned(self, plain: T, unowned: Collection[tuple[type[Object], str]]) -> T:
        meta = plain.metadata
        changes: dict[str, object] = {"namespace": meta.namespace or self._owner.metadata.namespace}
        if (type(plain), meta.name or "") not in unowned:
            changes["owner_references"] = [owner_reference(self._owner)]
        return msgspec.structs.replace(plain, metadata=msgspec.structs.replace(meta, **changes))

    def _stranger(
        self, plain: Object, live: Object, unowned: Collection[tuple[type[Object], str]]
    ) -> Foreign | None:
        """Who owns ``live`` if it is not ours; a name alone makes nothing ours."""
        kind, key = live.resource.kind, key_of(live)
        controller = controller_of(live)
        if controller is not None:
            if controller.uid == self._owner.metadata.uid:
                return None
            return Foreign(kind, key, f"{controller.kind} {controller.name} (uid {controller.uid})")
        labels, expected = live.metadata.labels or {}, plain.metadata.labels or {}
        if expected and all(labels.get(name) == value for name, value in expected.items()):
            return None  # an orphan that bears our labels: adopted by the apply
        return Foreign(kind, key, "nobody, and bears none of our labels")
