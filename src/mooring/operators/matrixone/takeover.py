"""When sets that upstream's operator made are taken over, and in which steps. Pure.

Nothing is restarted for it but proxies. OpenKruise's workload is deleted without its pods: first their claims are set
free, since claims may go with the workload that owns them. The pods then belong to Mooring's StatefulSet of the same name,
which takes in pods by name and labels, or to the CNSet. Proxies are replaced, since a Deployment takes in no such pods.

Nothing is done while upstream's operator holds its Lease, nor before a person has asked for it: what was given up is
made again by nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mooring.actor import Wait, differs
from mooring.actor.verdict import Move, Verdict
from mooring.kube.object import Object, controller_of
from mooring.kube.objects import apps, coordination, core
from mooring.operators.matrixone import kruise
from mooring.operators.matrixone.identity import log_uuid
from mooring.operators.matrixone.names import INPUTS
from mooring.operators.workload.pods import main_container, ordinal_of
from mooring.operators.workload.scope import yields
from mooring.operators.workload.statefulset import made_from, pending

__all__ = [
    "FINALIZERS",
    "LEASE",
    "OLDER",
    "TAKEN_OVER",
    "TAKE_OVER",
    "Abandon",
    "AdoptPods",
    "FreePods",
    "KeepClaims",
    "Left",
    "MarkPods",
    "SettlePods",
    "as_declared",
    "decide",
    "foreign",
    "lease_held",
    "made_for",
    "mounted",
    "not_asked",
    "of_upstream",
    "orphans",
    "reserved_trouble",
    "settle",
    "without_upstreams",
]

LEASE: Final = "0c8ab548.matrixorigin.io"
"""The Lease of upstream's operator, in its own namespace."""
TAKE_OVER: Final = "mooring.dev/take-over"
"""Annotation of a MatrixOneCluster, or of a set that belongs to none: what upstream's operator made is to be taken over."""
TAKEN_OVER: Final = "mooring.dev/taken-over"
"""Annotation of a pod while it is taken over: the digest of the declaration that it runs, or `OLDER`."""
OLDER: Final = "older"
"""In place of the digest of a pod that runs another declaration than the present one."""
FINALIZERS: Final = frozenset(
    f"matrixorigin.io/{one}" for one in ("logset", "dnset", "proxyset", "webui", "cnstore", "cn-draining")
)
"""Upstream's on objects and pods, which Mooring does not use: an object with one of them is never gone."""
_OF_BUCKETS: Final = re.compile(r"matrixorigin\.io/(CN|DN)-[0-9a-f]+")
"""Upstream's on BucketClaims, one for each set that works with the path."""
_LOOK: Final = 10.0
"""Seconds between two looks at a set that is not taken over yet."""


@dataclass(frozen=True, kw_only=True)
class KeepClaims(Move):
    """Have the workload keep its claims, and take its name off them: they would go with it."""

    claims: tuple[core.PersistentVolumeClaim, ...] = field(repr=False)
    policy: bool
    """The workload's own policy has to be changed first."""


@dataclass(frozen=True, kw_only=True)
class MarkPods(Move):
    """Note on pods which declaration they run."""

    pods: Mapping[str, str]
    """UID -> mark."""


@dataclass(frozen=True, kw_only=True)
class Abandon(Move):
    """Delete OpenKruise's workload, exactly the one that was seen, and leave its pods."""


@dataclass(frozen=True, kw_only=True)
class FreePods(Move):
    """Take a workload that is gone off its pods, before they are collected with it."""

    pods: tuple[core.Pod, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SettlePods(Move):
    """Note on pods that the StatefulSet took in which of its revisions they run, and that they are taken over."""

    pods: Mapping[str, tuple[str, str]]
    """Name -> UID and revision, "" where it runs an older one."""


@dataclass(frozen=True, kw_only=True)
class AdoptPods(Move):
    """Make a CNSet the owner of the compute nodes that a workload left."""


@dataclass(frozen=True, kw_only=True)
class Left:
    """What upstream's operator left of one set, at one moment."""

    owner: str
    """Kind and name of the set."""
    ask: str
    """Kind and name of the object that a person annotates."""
    allowed: bool
    main: str
    """Name of the workload."""
    kind: type[Object]
    workload: Object | None = field(default=None, repr=False)
    unknown: str = ""
    """Why it cannot be read."""
    pods: Sequence[core.Pod] = field(default=(), repr=False)
    """Those that OpenKruise's workloads own."""
    claims: Sequence[core.PersistentVolumeClaim] = field(default=(), repr=False)
    """Those of the set, and all that its pods mount."""
    digest: str = ""
    """Of the present declaration."""
    declared: core.PodTemplateSpec | None = field(default=None, repr=False)
    """How pods are made from it."""
    refusal: str = ""
    """Why it cannot be taken over as it is."""
    trouble: str = ""
    """Why now is no time for it."""


def lease_held(leases: Iterable[coordination.Lease], *, now: datetime) -> Wait | None:
    """Upstream's operator runs: nothing is written."""
    for lease in leases:
        if yields(lease, now):
            holder = lease.spec.holder_identity if lease.spec is not None else None
            where = f"{lease.metadata.namespace}/{lease.metadata.name}"
            text = f"upstream's operator runs ({holder} holds the Lease {where}); stop it first"
            return Wait("LegacyOperatorRunning", text, after=_LOOK, stalled=True)
    return None


def foreign(pods: Iterable[core.Pod]) -> list[core.Pod]:
    """The pods that OpenKruise's workloads own."""
    return [one for one in pods if _foreign_owner(one) is not None]


def _foreign_owner(pod: core.Pod) -> str | None:
    owner = controller_of(pod)
    if owner is None or not (owner.api_version or "").startswith(f"{kruise.GROUP}/"):
        return None
    return f"{owner.kind} {owner.name}"


def not_asked(ask: str, owner: str, names: Sequence[str]) -> Wait:
    """What a take-over would do, and how to ask for it."""
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    text = (
        f"upstream's operator made {owner}, and OpenKruise's workloads own its pods ({listed or 'none'}). A take-over deletes "
        "these workloads and leaves the pods: log stores, transaction nodes and compute nodes run on, proxies are replaced. "
        f"Claims and data stay. To ask for it, set the annotation {TAKE_OVER}=true on the {ask}. Until then nothing is changed"
    )
    return Wait("NotAdopted", text, after=_LOOK, stalled=True)


def decide(left: Left) -> Verdict | None:
    """The next step of the take-over; ``None``: there is nothing left of OpenKruise's."""
    if not left.pods and left.workload is None and not left.unknown:
        return None
    if not left.allowed:
        names = [one.metadata.name or "" for one in left.pods]
        return not_asked(left.ask, left.owner, names)
    if text := left.unknown or _strangers(left) or left.refusal:
        return Wait("TakeOverRefused", f"{text}. Until then nothing is changed", after=_LOOK, stalled=True)
    going = left.workload is not None and left.workload.metadata.deletion_timestamp is not None
    if left.workload is not None and not going and left.trouble:
        text = f"{left.owner} is taken over when this is over: {left.trouble}"
        return Wait("TakeOverWaiting", text, after=1.0)
    if going:
        return Wait("TakingOver", f"OpenKruise's {left.main} ends, without its pods", after=0.3)
    return _claims(left) or _marks(left) or _end(left)


def _strangers(left: Left) -> str:
    """Pods of other workloads than upstream makes: their number and names mean something that is not known here."""
    expected = f"{left.kind.resource.kind} {left.main}"
    others = sorted({text for one in left.pods if (text := _foreign_owner(one)) not in (None, expected)})
    if not others:
        return ""
    return f"pods of it belong to {', '.join(others)}, which upstream's operator did not make; delete or rename that workload"


def _claims(left: Left) -> KeepClaims | None:
    uids = _uids(left)
    owned = tuple(
        one for one in left.claims if any(ref.uid in uids for ref in one.metadata.owner_references or ())
    )
    spec = getattr(left.workload, "spec", None)
    policy = spec.persistent_volume_claim_retention_policy if isinstance(spec, kruise.WorkloadSpec) else None
    deletes = policy is not None and "Delete" in (policy.when_deleted, policy.when_scaled)
    if not owned and not deletes:
        return None
    return KeepClaims(
        claims=owned, policy=deletes, why=f"the claims of {left.owner} stay without {left.main}"
    )


def _uids(left: Left) -> frozenset[str]:
    """Of the workload, which may be gone."""
    owners = [controller_of(one) for one in left.pods]
    found = {one.uid or "" for one in owners if one is not None}
    if left.workload is not None:
        found.add(left.workload.metadata.uid or "")
    return frozenset(found - {""})


def _marks(left: Left) -> MarkPods | None:
    marks = {
        one.metadata.uid or "": left.digest if as_declared(one, left.declared) else OLDER
        for one in left.pods
        if TAKEN_OVER not in (one.metadata.annotations or {})
    }
    return MarkPods(pods=marks, why=f"the pods of {left.owner} are taken over") if marks else None


def _end(left: Left) -> Move:
    if left.workload is not None:
        return Abandon(why=f"OpenKruise's {left.main} goes; its {len(left.pods)} pods stay")
    return FreePods(pods=tuple(left.pods), why=f"OpenKruise's {left.main} is gone; its pods stay")


def orphans(pods: Iterable[core.Pod]) -> list[core.Pod]:
    """The pods that belong to nobody: those that a deleted workload left."""
    return [one for one in pods if controller_of(one) is None]


def made_for(pod: core.Pod) -> list[str]:
    """The claims that a workload made for this pod alone, by name; those that it shares with others are the user's."""
    volumes = (pod.spec.volumes if pod.spec is not None else None) or ()
    own = [f"{one.name}-{pod.metadata.name}" for one in volumes]
    return [name for name in mounted(pod) if name in own]


def mounted(pod: core.Pod) -> list[str]:
    """All claims that a pod mounts, by name."""
    volumes = (pod.spec.volumes if pod.spec is not None else None) or ()
    sources = (one.persistent_volume_claim for one in volumes)
    return [one.claim_name for one in sources if one is not None and one.claim_name]


def settle(found: apps.StatefulSet | None, pods: Iterable[core.Pod]) -> SettlePods | Wait | None:
    """What comes before any other decision about a StatefulSet that takes pods in; ``None`` where it does not.

    A pod that runs what is declared counts as one of the newest revision, so that it is not rolled for the take-over.
    """
    marked = [
        one
        for one in pods
        if TAKEN_OVER in (one.metadata.annotations or {}) and one.metadata.deletion_timestamp is None
    ]
    if found is None or not marked:
        return None
    revision = (found.status.update_revision if found.status is not None else None) or ""
    uids = {one.metadata.name: owner.uid for one in marked if (owner := controller_of(one)) is not None}
    loose = [one.metadata.name or "" for one in marked if uids.get(one.metadata.name) != found.metadata.uid]
    if loose or pending(found) or not revision:
        text = f"StatefulSet {found.metadata.name} takes in {', '.join(sorted(loose)) or 'its pods'}"
        return Wait("TakingOver", text, after=0.2)
    inputs = made_from(found, INPUTS)
    return SettlePods(
        pods={
            one.metadata.name or "": (
                one.metadata.uid or "",
                revision if (one.metadata.annotations or {})[TAKEN_OVER] == inputs else "",
            )
            for one in marked
        },
        why=f"{len(marked)} pods belong to StatefulSet {found.metadata.name}, and none was restarted",
    )


def as_declared(pod: core.Pod, declared: core.PodTemplateSpec | None) -> bool:
    """The server of a pod has the image, arguments and resources that are declared now."""
    if pod.spec is None or declared is None or declared.spec is None:
        return False
    wanted = main_container(declared.spec, "main")
    found = main_container(pod.spec, "main")
    asked = core.Container(name=found.name, image=wanted.image, args=wanted.args, resources=wanted.resources)
    return not differs(asked, found)


def reserved_trouble(workload: Object | None, claims: Iterable[core.PersistentVolumeClaim]) -> str:
    """Why the ordinals that upstream's repair left out keep a log service from being taken over; "" where they do not.

    A native StatefulSet leaves none out: such a store is made again, empty, and joins as a spare. With the claim of the
    store that failed it would come up with a log that was given up.
    """
    try:
        reserved = kruise.reserved_in(workload)
    except ValueError:
        return "OpenKruise's workload leaves out ordinals in a form that is not known; take them out of reserveOrdinals"
    old = {ordinal_of(one.metadata.name or ""): one.metadata.name or "" for one in claims}
    kept = [old[at] for at in reserved if at in old]
    if not kept:
        return ""
    stores = ", ".join(log_uuid(ordinal_of(one)) for one in kept)
    return (
        f"{', '.join(kept)} holds the log of a store that upstream's operator replaced ({stores}); delete the claim once its "
        "data is not needed"
    )


def of_upstream(obj: Object) -> list[str]:
    """Upstream's finalizers on an object that no one else takes off."""
    return [one for one in obj.metadata.finalizers or () if one in FINALIZERS or _OF_BUCKETS.fullmatch(one)]


def without_upstreams(obj: Object) -> list[str] | None:
    """The finalizers without upstream's; ``None`` for none."""
    gone = of_upstream(obj)
    return [one for one in obj.metadata.finalizers or () if one not in gone] or None
