"""Volumes that grow: claims follow a larger declared size while their pods run. See docs/design/volumes.md.

An operator names the claims as declared, its pods and the claims there are; `Growth` says which claims are too small, which
are on their way, and what is in the way. Claims grow before the databases are looked at, since a full volume may be why
none of them answers. No StatefulSet is deleted: a claim of a later pod is made before the pod, with the declared size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final

from msgspec.structs import replace

from mooring.actor import Context, StepFailed, Wait
from mooring.kube.errors import Forbidden, Invalid
from mooring.kube.object import Key
from mooring.kube.objects import apps, core
from mooring.kube.part import Part
from mooring.kube.patches import MergePatch
from mooring.kube.quantity import parse_quantity
from mooring.operators.workload.claims import claim_name, make_claim
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import RESTART_AFTER
from mooring.runtime.crd import F

__all__ = [
    "Growth",
    "Refusals",
    "Volume",
    "VolumeStatus",
    "awaiting_volumes",
    "claimed_volumes",
    "claims_to_make",
    "grow",
    "make_claims",
    "size_of",
    "sized_as",
    "volume_of",
    "with_size",
]

ASK_AGAIN: Final = timedelta(minutes=5)
"""After which a size that the API server refused is asked for again."""
_STORAGE: Final = "storage"
_PENDING: Final = "FileSystemResizePending"
_FAILED: Final = {"ControllerResizeError", "NodeResizeError"}
_INFEASIBLE: Final = {"ControllerResizeInfeasible", "NodeResizeInfeasible"}


class VolumeStatus(Part, frozen=True, kw_only=True):
    """A claim that does not have the declared size."""

    claim: Annotated[str, F("Its name.")] = ""
    capacity: Annotated[str, F("What it has.")] = ""
    wanted: Annotated[str, F("What is declared.")] = ""
    state: Annotated[str, F("Growing, ResizePending, Failed, Refused, TooLarge or Unbound.")] = ""
    message: Annotated[str, F("What is in the way, and what to do.")] = ""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A claim beside the size that is declared for it; sizes as written, "" where unknown."""

    claim: str
    pod: str
    wanted: str
    requested: str
    capacity: str = ""
    """What its volume has; "" while it is not bound."""
    uid: str = ""
    version: str = ""
    """Its resourceVersion."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Messages of the conditions that are true, by type."""
    resize_since: datetime | None = None
    """Since when its file system waits to be enlarged."""
    resizing: str = ""
    """How far the expansion is, as ``status.allocatedResourceStatuses`` says."""

    @property
    def small(self) -> bool:
        """Its request is to be raised; or lowered to a size above what it has, after an expansion that failed.

        A volume that has enough stays as it is, whatever was asked for: one made by hand often cannot be resized.
        """
        if not self.capacity:
            return False
        wanted = parse_quantity(self.wanted)
        return parse_quantity(self.capacity) < wanted != parse_quantity(self.requested)

    @property
    def too_large(self) -> bool:
        """It has, or asks for, more than is declared: a volume never shrinks."""
        return not self.small and parse_quantity(self.wanted) < parse_quantity(self.requested)

    @property
    def state(self) -> str:
        """The word for it in status; "" where it is as declared."""
        if self.too_large:
            return "TooLarge"
        if not self.capacity:
            return "Unbound" if parse_quantity(self.requested) < parse_quantity(self.wanted) else ""
        if parse_quantity(self.capacity) >= parse_quantity(self.wanted):
            return ""
        if self.resizing in _INFEASIBLE or self.conditions.keys() & _FAILED:
            return "Failed"
        return "ResizePending" if _PENDING in self.conditions else "Growing"


def claimed_volumes(
    templates: Iterable[core.PersistentVolumeClaim],
    pods: Sequence[str],
    claims: Mapping[str, core.PersistentVolumeClaim],
) -> tuple[Volume, ...]:
    """The claims there are of these pods, beside ``templates`` as declared; sizes that cannot be read are left out."""
    found = []
    for template in templates:
        wanted = size_of(template)
        for pod in pods if _size(wanted) is not None else ():
            claim = claims.get(claim_name(template.metadata.name or "", pod))
            if claim is not None and _size(size_of(claim)) is not None:
                found.append(volume_of(claim, wanted, pod=pod))
    return tuple(found)


def volume_of(claim: core.PersistentVolumeClaim, wanted: str, *, pod: str = "") -> Volume:
    """A claim beside the size that is declared for it."""
    status = claim.status or core.PersistentVolumeClaimStatus()
    bound = status.phase == "Bound" and not claim.metadata.deletion_timestamp
    return Volume(
        claim=claim.metadata.name or "",
        pod=pod,
        wanted=wanted,
        requested=size_of(claim),
        capacity=str((status.capacity or {}).get(_STORAGE, "")) if bound else "",
        uid=claim.metadata.uid or "",
        version=claim.metadata.resource_version or "",
        conditions={
            one.type or "": one.message or "" for one in status.conditions or () if one.status == "True"
        },
        resize_since=next(
            (
                datetime.fromisoformat(one.last_transition_time)
                for one in status.conditions or ()
                if one.type == _PENDING and one.status == "True" and one.last_transition_time
            ),
            None,
        ),
        resizing=(status.allocated_resource_statuses or {}).get(_STORAGE, ""),
    )


def size_of(claim: core.PersistentVolumeClaim) -> str:
    """The size that a claim asks for, as written; "" where it names none."""
    resources = claim.spec.resources if claim.spec else None
    return str(((resources.requests if resources else None) or {}).get(_STORAGE, ""))


def _size(text: str) -> Decimal | None:
    try:
        return parse_quantity(text) if text else None
    except ValueError:
        return None


def awaiting_volumes(pods: Iterable[Pod], volumes: Iterable[Volume]) -> list[Pod]:
    """The pods with what their volumes wait for."""
    since: dict[str, datetime] = {}
    for one in volumes:
        if one.resize_since is not None and one.state == "ResizePending":
            since[one.pod] = min(one.resize_since, since.get(one.pod, one.resize_since))
    return [changed(pod, resize_since=since.get(pod.name)) for pod in pods]


def with_size(claim: core.PersistentVolumeClaim, size: str) -> core.PersistentVolumeClaim:
    """The claim, asking for another size."""
    spec = claim.spec or core.PersistentVolumeClaimSpec()
    resources = spec.resources or core.VolumeResourceRequirements()
    requests = {**(resources.requests or {}), _STORAGE: size}
    return replace(claim, spec=replace(spec, resources=replace(resources, requests=requests)))


def sized_as(
    declared: core.PersistentVolumeClaimSpec, given: core.PersistentVolumeClaimSpec
) -> core.PersistentVolumeClaimSpec:
    """``declared`` with the size of ``given``: what cannot be changed is compared apart from what can."""
    size = size_of(core.PersistentVolumeClaim(spec=given))
    if not size or declared.resources is None:
        return declared
    requests = {**(declared.resources.requests or {}), _STORAGE: size}
    return replace(declared, resources=replace(declared.resources, requests=requests))


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What is to be shown of the sizes of a cluster's claims."""

    where: str
    """The field that declares the size."""
    autogrow: str = ""
    """The field that lets them grow by themselves."""
    data: str = ""
    """The volume with the data; where claims are of several volumes, only its claims grow by themselves."""
    volumes: tuple[Volume, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    """What the API server said, by claim."""

    @property
    def filling(self) -> tuple[Volume, ...]:
        """The claims that can grow by themselves."""
        return tuple(one for one in self.volumes if one.claim == claim_name(self.data, one.pod))

    def shown(self) -> list[VolumeStatus] | None:
        """For status; ``None`` while every claim has the declared size."""
        made = [
            VolumeStatus(
                claim=one.claim,
                capacity=one.capacity,
                wanted=one.wanted,
                state="Refused" if one.claim in self.refused else one.state,
                message=self._message(one),
            )
            for one in self.volumes
            if one.state
        ]
        return made or None

    def unmet(self) -> list[str]:
        """What needs a person, with field and remedy: the first claim in each state, and how many others there are."""
        alike: dict[str, list[Volume]] = {}
        for one in self.volumes:
            if one.state and (one.claim in self.refused or one.state in _PEOPLE):
                alike.setdefault("Refused" if one.claim in self.refused else one.state, []).append(one)
        return [
            f"{self._message(first)}{f' ({len(others)} more in status.volumes)' if others else ''}"
            for first, *others in alike.values()
        ]

    def wait(self, *, after: float) -> Wait | None:
        """The wait for claims that are on their way."""
        if pending := [one for one in self.volumes if one.state == "ResizePending"]:
            return Wait("FileSystemResizePending", "; ".join(map(self._message, pending)), after=after)
        growing = [one for one in self.volumes if one.state == "Growing" and one.claim not in self.refused]
        if not growing:
            return None
        text = ", ".join(f"{one.claim} from {one.capacity} to {one.wanted}" for one in growing)
        message = f"{self.where}: the storage system enlarges {text}; kubectl describe of the claim says how far it is"
        return Wait("VolumesGrowing", message, after=after)

    def _message(self, one: Volume) -> str:
        name = f"{self.where}: the claim {one.claim}"
        if one.claim in self.refused:
            return f"{name} cannot grow to {one.wanted}: {self.refused[one.claim]}; {_remedy(self.refused[one.claim])}"
        if one.state == "TooLarge":
            has = one.capacity or one.requested
            text = f"{name} is larger than {one.wanted}; a volume never shrinks: declare {one.requested}"
            failed = parse_quantity(has) < parse_quantity(one.requested)
            return f"{text}, or more than {has} to give the larger size up" if failed else text
        if one.state == "ResizePending":
            return (
                f"{name} is enlarged, its file system is not yet; most drivers do that within a minute. After "
                f"{RESTART_AFTER / 60:.0f} minutes the pods are recreated one at a time, unless you delete pods yourself (OnDelete)"
            )
        if one.state == "Failed":
            said = "; ".join(text for text in one.conditions.values() if text) or one.resizing
            return (
                f"{name} could not be enlarged to {one.wanted}: {said}; correct that in the storage system, or declare a "
                f"smaller size above {one.capacity}"
            )
        return ""


_PEOPLE: Final = {"TooLarge", "Failed"}


def _remedy(said: str) -> str:
    """What to do about a refusal of the API server."""
    if "exceeded quota" in said:
        return "raise requests.storage in the ResourceQuota, or put the size back"
    if "must support resize" in said:
        return "set allowVolumeExpansion: true in its storage class if the driver can do it, or put the size back"
    return "correct that, or put the size back"


# --- the effects -----------------------------------------------------------------------------------------


class Refusals:
    """What the API server refused, by cluster and claim. It paces attempts and is shown; nothing is decided from it."""

    def __init__(self) -> None:
        self._known: dict[Key, dict[str, tuple[str, str, datetime]]] = {}

    def of(self, key: Key, volumes: Iterable[Volume]) -> dict[str, str]:
        """Texts by claim, of those that still want the size that was refused."""
        known = self._known.get(key, {})
        return {
            one.claim: known[one.claim][1]
            for one in volumes
            if one.small and one.claim in known and known[one.claim][0] == one.wanted
        }

    def due(self, key: Key, volumes: Iterable[Volume], now: datetime) -> list[Volume]:
        """Claims to enlarge now."""
        known = self._known.get(key, {})
        return [
            one
            for one in volumes
            if one.small
            and (
                one.claim not in known
                or known[one.claim][0] != one.wanted
                or now >= known[one.claim][2] + ASK_AGAIN
            )
        ]

    def note(self, key: Key, one: Volume, why: str, now: datetime) -> bool:
        """A claim was refused; whether the reason is new."""
        before = self._known.setdefault(key, {}).get(one.claim)
        self._known[key][one.claim] = (one.wanted, why, now)
        return before is None or before[:2] != (one.wanted, why)

    def clear(self, key: Key, claims: Collection[str] | None = None) -> None:
        """These claims were enlarged; ``None``: the cluster is gone."""
        if claims is None:
            self._known.pop(key, None)
        for name in claims or ():
            self._known.get(key, {}).pop(name, None)


async def grow(ctx: Context[Any], volumes: Sequence[Volume], refusals: Refusals) -> None:
    """Ask for the declared sizes, each bound to the claim that was seen; what is refused of one holds no other up.

    Raises `Conflict` where a claim was written meanwhile.
    """
    grown = []
    for one in volumes:
        body = {
            "metadata": {"uid": one.uid, "resourceVersion": one.version},
            "spec": {"resources": {"requests": {_STORAGE: one.wanted}}},
        }
        try:
            await ctx.client.patch(
                core.PersistentVolumeClaim, one.claim, MergePatch(body), namespace=ctx.key.namespace
            )
        except (Forbidden, Invalid) as error:
            if refusals.note(ctx.key, one, str(error), ctx.now()):
                message = f"{one.claim} cannot grow from {one.requested} to {one.wanted}: {error!s}"
                ctx.events.warning(ctx.obj, "VolumeNotGrown", message)
            continue
        grown.append(one)
    refusals.clear(ctx.key, [one.claim for one in grown])
    if grown:
        text = ", ".join(f"{one.claim} from {one.requested} to {one.wanted}" for one in grown)
        ctx.events.normal(ctx.obj, "VolumesGrowing", text)


def claims_to_make(
    live: apps.StatefulSet | None,
    templates: Iterable[core.PersistentVolumeClaim],
    pods: Sequence[str],
    claims: Mapping[str, core.PersistentVolumeClaim],
    *,
    namespace: str,
) -> list[core.PersistentVolumeClaim]:
    """Claims of pods to come whose template in the StatefulSet has another size than is declared."""
    kept = (live.spec.volume_claim_templates if live is not None and live.spec is not None else None) or ()
    sizes = {one.metadata.name: _size(size_of(one)) for one in kept}
    made = []
    for template in templates:
        name, wanted = template.metadata.name or "", _size(size_of(template))
        if wanted is None or sizes.get(name) in (None, wanted):
            continue
        made += [
            replace(
                template,
                metadata=replace(template.metadata, name=claim_name(name, pod), namespace=namespace),
            )
            for pod in pods
            if claim_name(name, pod) not in claims
        ]
    return made


async def make_claims(ctx: Context[Any], claims: Iterable[core.PersistentVolumeClaim], *, where: str) -> None:
    """Make claims before their pods; one that is there already stays as it is. Raises `StepFailed` where one is refused."""
    for one in claims:
        try:
            await make_claim(ctx, one)
        except (Forbidden, Invalid) as error:
            text = f"{where}: the claim {one.metadata.name} cannot be made: {error}; {_remedy(str(error))}"
            raise StepFailed(text) from error
