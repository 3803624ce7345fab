"""ControllerRevisions: which template a workload had, under names that its content gives.

Names are those that Kubernetes itself computes (FNV-32 over the JSON of the stored patch and the number of
collisions), so a revision here and there has the same name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from mooring.kube.errors import AlreadyExists
from mooring.kube.object import Object, controller_of, owner_reference
from mooring.kube.objects.apps import ControllerRevision
from mooring.kube.objects.core import PodTemplateSpec
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import MergePatch
from mooring.kube.selectors import Selector
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import adopt

__all__ = [
    "History",
    "Revisions",
    "compact_json",
    "fnv32",
    "name_of",
    "new_revision",
    "obsolete",
    "safe_encode",
    "sort_revisions",
    "template_of",
]

HASH_LABEL = "controller.kubernetes.io/hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def compact_json(value: Any) -> bytes:
    """JSON as Go writes a map: keys sorted, no spaces, ``<>&`` escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_ESCAPES).encode()


def fnv32(data: bytes) -> int:
    """The 32-bit FNV-1 hash."""
    value = 0x811C9DC5
    for byte in data:
        value = (value * 0x01000193 & 0xFFFFFFFF) ^ byte
    return value


def safe_encode(text: str) -> str:
    """``text`` in an alphabet without vowels, so that no name becomes a word."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in text.encode())


def name_of(parent: str, data: dict[str, Any], collisions: int) -> tuple[str, str]:
    """Name and hash of the revision that holds ``data``."""
    digest = safe_encode(str(fnv32(compact_json(data) + str(collisions).encode())))
    return f"{parent[:223]}-{digest}", digest


def template_data(template: PodTemplateSpec | None) -> dict[str, Any]:
    """What a revision stores: the patch that puts this template back.

    Its keys are in order, as Kubernetes writes them: there are clients that compare the bytes.
    """
    plain: dict[str, Any] = msgspec.to_builtins(template) if template is not None else {}
    plain["$patch"] = "replace"
    data: dict[str, Any] = msgspec.json.decode(compact_json({"spec": {"template": plain}}))
    return data


def template_of(revision: ControllerRevision) -> PodTemplateSpec:
    """The template a revision puts back."""
    plain = ((revision.data or {}).get("spec") or {}).get("template") or {}
    return msgspec.convert(plain, PodTemplateSpec)


def new_revision(
    owner: Object,
    template: PodTemplateSpec | None,
    *,
    number: int,
    collisions: int,
    label: str = HASH_LABEL,
) -> ControllerRevision:
    """The revision of a workload's present template, not stored yet; ``label`` carries its hash."""
    data = template_data(template)
    name, digest = name_of(owner.metadata.name or "", data, collisions)
    labels = (template.metadata.labels or {}) if template and template.metadata else {}
    return ControllerRevision(
        metadata=ObjectMeta(
            name=name,
            namespace=owner.metadata.namespace,
            labels={**labels, label: digest},
            annotations=dict(owner.metadata.annotations or {}) or None,
            owner_references=[owner_reference(owner)],
        ),
        data=data,
        revision=number,
    )


def sort_revisions(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Oldest first: by number, then by age, then by name."""
    return sorted(
        revisions,
        key=lambda r: (r.revision or 0, r.metadata.creation_timestamp or "", r.metadata.name or ""),
    )


def same_content(a: ControllerRevision, b: ControllerRevision) -> bool:
    """Whether two revisions put the same template back, however it was written down."""
    return a.data == b.data or template_of(a) == template_of(b)


def holds(revision: ControllerRevision, template: PodTemplateSpec | None) -> bool:
    """Whether a revision puts this template back."""
    return template_of(revision) == (template or PodTemplateSpec())


@dataclass(frozen=True, slots=True)
class History:
    """The answer of `choose`: what the revision of the present template is, and what must be written."""

    update: ControllerRevision
    create: bool = False
    renumber: int | None = None


def choose(
    owner: Object,
    template: PodTemplateSpec | None,
    revisions: Sequence[ControllerRevision],
    collisions: int,
    *,
    label: str = HASH_LABEL,
) -> History:
    """Which stored revision the present template is; ``revisions`` are sorted."""
    number = (revisions[-1].revision or 0) + 1 if revisions else 1
    equal = [revision for revision in revisions if holds(revision, template)]
    if not equal:
        made = new_revision(owner, template, number=number, collisions=collisions, label=label)
        return History(made, create=True)
    if same_content(equal[-1], revisions[-1]):
        return History(revisions[-1])
    # Rolled back: the old revision becomes the newest again.
    return History(equal[-1], renumber=number)


def obsolete(
    revisions: Sequence[ControllerRevision], *, live: Collection[str], limit: int
) -> list[ControllerRevision]:
    """Revisions beyond the history limit, oldest first; ``live`` names are never among them."""
    spare = [revision for revision in revisions if revision.metadata.name not in live]
    return spare[: len(spare) - limit] if 0 <= limit < len(spare) else []


class Revisions:
    """Carries out what `choose` and `obsolete` say; ``label`` is where a kind keeps the hash."""

    def __init__(self, context: Context, *, label: str = HASH_LABEL) -> None:
        self._label = label
        self._client = context.client
        self._informer = context.family(ControllerRevision)

    def of(self, owner: Object, selector: Selector) -> list[ControllerRevision]:
        """The revisions that are the owner's or nobody's and match its selector, oldest first."""
        orphans = self._informer.by_index("orphan", owner.metadata.namespace or "")
        candidates = [*self._informer.owned_by(owner), *orphans]
        return sort_revisions(r for r in candidates if selector.matches(r.metadata.labels))

    async def adopt(self, owner: Object, revisions: Sequence[ControllerRevision]) -> list[ControllerRevision]:
        """Make orphans among the revisions the owner's."""
        adopted = []
        for revision in revisions:
            if controller_of(revision) is None:
                revision = await self._client.patch(
                    ControllerRevision,
                    revision.metadata.name or "",
                    adopt(revision, owner_reference(owner)),
                    namespace=revision.metadata.namespace or "",
                )
            adopted.append(revision)
        return adopted

    async def settle(
        self,
        owner: Object,
        template: PodTemplateSpec | None,
        revisions: Sequence[ControllerRevision],
        collisions: int,
    ) -> tuple[ControllerRevision, int]:
        """The stored revision of the present template, and the number of name collisions so far.

        Nothing is stored for an owner that is being deleted: the collector would take it away again.
        """
        chosen = choose(owner, template, revisions, collisions, label=self._label)
        if owner.metadata.deletion_timestamp is not None:
            return chosen.update, collisions
        if chosen.renumber is not None:
            return await self._renumber(chosen.update, chosen.renumber), collisions
        if not chosen.create:
            return chosen.update, collisions
        return await self._create(owner, template, chosen.update, collisions)

    async def _renumber(self, revision: ControllerRevision, number: int) -> ControllerRevision:
        meta = revision.metadata
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        return await self._client.patch(
            ControllerRevision,
            meta.name or "",
            MergePatch({"metadata": guard, "revision": number}),
            namespace=meta.namespace or "",
        )

    async def _create(
        self, owner: Object, template: PodTemplateSpec | None, revision: ControllerRevision, collisions: int
    ) -> tuple[ControllerRevision, int]:
        number = revision.revision or 1
        while True:
            try:
                return await self._client.create(revision), collisions
            except AlreadyExists:
                present = await self._client.live.get(
                    ControllerRevision,
                    revision.metadata.name or "",
                    namespace=revision.metadata.namespace or "",
                )
                if same_content(present, revision):
                    return present, collisions
            collisions += 1
            # The label keeps the hash of the first name, as Kubernetes' does.
            name, _ = name_of(owner.metadata.name or "", revision.data or {}, collisions)
            first = new_revision(owner, template, number=number, collisions=collisions, label=self._label)
            meta = msgspec.structs.replace(first.metadata, name=name, labels=revision.metadata.labels)
            revision = msgspec.structs.replace(first, metadata=meta)

    async def drop(self, revisions: Iterable[ControllerRevision]) -> None:
        """Delete revisions."""
        for revision in revisions:
            meta = revision.metadata
            await self._client.delete(
                ControllerRevision, meta.name or "", namespace=meta.namespace or "", uid=meta.uid
            )
