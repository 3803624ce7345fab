"""Backup objects: what is written into one, and what is read from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from mooring.kube.objects import meta
from mooring.operators.backup.manifest import FORM
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.retention import Kept
from mooring.operators.matrixone.backup.chain import BASE
from mooring.operators.matrixone.backup.places import shown, within
from mooring.operators.matrixone.backup.verification import is_damaged
from mooring.operators.matrixone.conditions import with_condition
from mooring.operators.matrixone.types import (
    DELETE,
    RETAIN,
    Backup,
    BackupJob,
    BackupJobSpec,
    BackupJobStatus,
    BackupMeta,
    BackupStatus,
    SharedStorageProvider,
    Verification,
)

__all__ = [
    "HOME",
    "POLICY",
    "SCHEDULE",
    "backup_of",
    "base_in",
    "base_place",
    "deletes_data",
    "home_of",
    "kept_of",
    "name_of",
    "newest_verified",
    "policy_of",
    "source_of",
    "verified_condition",
]

VERIFIED: Final = "BackupVerified"
"""Condition of a BackupJob and of a Backup: the newest test restore passed."""
POLICY: Final = "mooring.dev/deletion-policy"
"""Annotation of a Backup: Delete or Retain, what becomes of its data."""
HOME: Final = "mooring.dev/namespace"
"""Label of a Backup: the namespace of its BackupJob, where the Secret of its location is."""
SCHEDULE: Final = "mooring.dev/backup-schedule"
"""Label of a Backup and of a BackupJob: UID of the BackupJob with the schedule."""


def policy_of(spec: BackupJobSpec) -> str:
    """What becomes of the data when its Backup is deleted."""
    return spec.deletion_policy or (DELETE if spec.schedule is not None else RETAIN)


def name_of(job: BackupJob, identity: str) -> str:
    """The Backup of a BackupJob."""
    return f"{job.metadata.name}-{identity[-5:]}"


def backup_of(job: BackupJob, root: SharedStorageProvider, outcome: Outcome, *, now: datetime) -> Backup:
    """The Backup of a run that succeeded."""
    spec, status = job.spec or BackupJobSpec(), job.status or BackupJobStatus()
    result = outcome.result
    facts = result.facts if result is not None else {}
    prefix = facts.get("prefix") or status.prefix or ""
    identity = prefix.rpartition("/")[2]
    raw = {
        "form": FORM,
        "namespace": job.metadata.namespace,
        "objects": result.objects if result is not None else 0,
        "position": facts.get("position", ""),
        "version": facts.get("version", ""),
    }
    source, namespace = spec.source, job.metadata.namespace or ""
    ref = f"cnset/{namespace}/{source.cn_set_ref}" if source is not None and source.cn_set_ref else ""
    if source is not None and source.cluster_ref:
        ref = f"matrixonecluster/{namespace}/{source.cluster_ref}"
    labels = {HOME: namespace}
    if belongs := (job.metadata.labels or {}).get(SCHEDULE):
        labels[SCHEDULE] = belongs
    ended = outcome.ended or now
    began = facts.get("began") or (outcome.began or now).isoformat()
    base = base_in(spec, facts)
    return Backup(
        metadata=meta.ObjectMeta(
            name=name_of(job, identity), labels=labels, annotations={POLICY: policy_of(spec)}
        ),
        status=BackupStatus(base=base) if base else None,
        meta=BackupMeta(
            location=within(root, prefix),
            id=identity,
            size=str(result.size if result is not None else 0),
            at_time=_seconds(datetime.fromisoformat(began)),
            complete_time=_seconds(ended),
            source_ref=ref,
            raw=msgspec.json.encode(raw).decode(),
        ),
    )


def base_in(spec: BackupJobSpec, facts: Mapping[str, str]) -> str | None:
    """The Backup that a backup with these facts builds on; ``None`` for a full one."""
    return spec.incremental_from if facts.get(BASE) else None


def base_place(backup: Backup | None, root: SharedStorageProvider, parent: str) -> tuple[str, str]:
    """Where below ``root`` a backup lies that another one beside it, below ``parent``, is to build on; else why none can."""
    if backup is None:
        return "", "does not exist"
    if backup.metadata.deletion_timestamp:
        return "", "is being deleted"
    known = backup.status.verified if backup.status is not None else None
    if is_damaged(known):
        return "", "is damaged"
    found = backup.meta
    place = f"{parent}/{found.id if found is not None else ''}"
    if found is None or found.location is None or shown(found.location) != shown(within(root, place)):
        return "", "is of another cluster, or in another place than spec.target"
    return place, ""


def _seconds(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def deletes_data(backup: Backup) -> bool:
    """Its data goes with it."""
    return (backup.metadata.annotations or {}).get(POLICY) == DELETE


def home_of(backup: Backup) -> str:
    """The namespace where the Secret of its location is; "" where that is not known."""
    return (backup.metadata.labels or {}).get(HOME, "")


def source_of(backup: Backup) -> tuple[str, str]:
    """Namespace and name of the MatrixOneCluster that it is of; empty where it is of none."""
    kind, _, rest = ((backup.meta.source_ref if backup.meta is not None else None) or "").partition("/")
    namespace, _, name = rest.partition("/")
    return (namespace, name) if kind == "matrixonecluster" else ("", "")


def kept_of(backup: Backup, *, held: bool) -> Kept:
    """A Backup as retention sees it; ``held``: a restore reads it."""
    at = backup.meta.at_time if backup.meta is not None else None
    ending = backup.metadata.deletion_timestamp is not None
    known = backup.status.verified if backup.status is not None else None
    damaged = is_damaged(known)
    return Kept(
        name=backup.metadata.name or "",
        at=datetime.fromisoformat(at or "1970-01-01T00:00:00Z"),
        good=not ending and not damaged,
        failed=damaged and not ending,
        verified=known is not None and known.passed,
        held=held or ending,
        base=(backup.status.base if backup.status is not None else None) or "",
    )


def newest_verified(backups: Iterable[Backup]) -> tuple[str, str] | None:
    """The newest backup that was verified, and when it was; ``None`` where none was."""
    found = [
        (one.meta.at_time or "", one.metadata.name or "", known.at)
        for one in backups
        if one.meta is not None
        and one.status is not None
        and (known := one.status.verified) is not None
        and known.passed
        and known.at is not None
    ]
    if not found:
        return None
    _, name, at = max(found)
    return name, _seconds(at)


def verified_condition(
    present: Sequence[meta.Condition] | None, known: Verification, *, now: datetime
) -> list[meta.Condition]:
    """The conditions with BackupVerified as a test restore that is over has it."""
    reason = "Restored" if known.passed else known.reason or "VerificationFailed"
    return with_condition(present, VERIFIED, known.passed, reason, known.message, generation=None, now=now)
