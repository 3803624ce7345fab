"""Fields of the custom resources that all operators' backups share; each kind adds its own."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from mooring.kube.object import Object
from mooring.kube.objects import core, meta
from mooring.kube.part import Part
from mooring.objectstore import Target
from mooring.operators.workload.rollout import TIME
from mooring.runtime.crd import AGE, F, PrinterColumn, Rule, rules

__all__ = [
    "BACKED_UP",
    "BACKUP_COLUMNS",
    "DELETE",
    "DELETING",
    "FAILED",
    "FIXED",
    "PENDING",
    "RETAIN",
    "RUNNING",
    "SCHEDULE_COLUMNS",
    "SUCCEEDED",
    "TEMPLATE",
    "BackupFields",
    "BackupObject",
    "BackupStatus",
    "Progress",
    "RestoreFrom",
    "RestoreStatus",
    "Retention",
    "ScheduleFields",
    "ScheduleObject",
    "ScheduleStatus",
    "Verified",
]

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
DELETING: Final = "Deleting"
DELETE: Final = "Delete"
RETAIN: Final = "Retain"
_QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?([kMGT]|[KMGT]i)?$"
FIXED: Final = Rule(
    "!has(oldSelf.spec) || (self.spec.cluster == oldSelf.spec.cluster && self.spec.target == oldSelf.spec.target)",
    "spec.cluster and spec.target of a backup never change; make another one",
)
"""The rule of every kind that is one backup."""
BACKED_UP: Final = F("The cluster that is backed up.", required=True)
"""The field ``cluster`` of a backup; each kind has a reference of its own."""
TEMPLATE: Final = F(
    "What each backup is. Its deletionPolicy is Delete unless it says otherwise: retention removes data.",
    required=True,
)
"""The field ``template`` of a schedule."""


class BackupFields(Part, frozen=True, kw_only=True):
    """What every backup declares: where it goes, how fast, and what becomes of the data."""

    target: Annotated[Target | None, F("Where the backup is stored.", required=True)] = None
    deletion_policy: Annotated[
        str | None,
        F(
            "What becomes of the stored data when this object is deleted. Delete removes it first, by a Job.",
            enum=(DELETE, RETAIN),
            default=RETAIN,
        ),
    ] = None
    bandwidth: Annotated[
        str | None,
        F(
            "Bytes per second at most, such as 50Mi. Default: as fast as it goes.",
            pattern=_QUANTITY,
            max_length=20,
        ),
    ] = None
    timeout_seconds: Annotated[
        int | None,
        F(
            "A run that takes longer is ended and counts as failed.",
            minimum=60,
            maximum=604800,
            default=86400,
        ),
    ] = None
    tries: Annotated[
        int | None,
        F("Runs in all, where one failed for a reason that may pass.", minimum=1, maximum=10, default=3),
    ] = None
    resources: Annotated[core.ResourceRequirements | None, F("Of the container that reads the database.")] = (
        None
    )
    verify: Annotated[
        bool | None,
        F("Once it is complete, restore it into a throw-away server and check it: condition BackupVerified."),
    ] = None


class Progress(Part, frozen=True, kw_only=True):
    """How far the run is that is under way."""

    at: Annotated[datetime | None, F("When it was that far.", schema=TIME)] = None
    bytes: Annotated[int, F("Stored so far.")] = 0


class Verified(Part, frozen=True, kw_only=True):
    """The newest test restore."""

    at: Annotated[datetime | None, F("When it ended.", schema=TIME)] = None
    passed: Annotated[bool, F("Whether all checks passed.")] = False
    message: Annotated[str, F("What was compared, or what differed.")] = ""
    seconds: Annotated[float, F("How long the restore took.")] = 0.0
    tries: Annotated[int, F("Test restores begun.")] = 0


class BackupStatus(Part, frozen=True, kw_only=True):
    """How far a backup is, and what it is once it succeeded."""

    conditions: Annotated[list[meta.Condition] | None, F("Ready, Progressing, Stalled, BackupVerified.")] = (
        None
    )
    observed_generation: Annotated[int | None, F("The generation this speaks of.")] = None
    phase: Annotated[str | None, F("Pending, Running, Succeeded, Failed or Deleting.")] = None
    reason: Annotated[str | None, F("Why it failed, or what it waits for: one word.")] = None
    message: Annotated[str | None, F("The same in a sentence, with the remedy.")] = None
    id: Annotated[str | None, F("Its identity in the store.")] = None
    prefix: Annotated[str | None, F("Where its objects are in the target: CLUSTER-UID/backups/ID.")] = None
    location: Annotated[str | None, F("The same for people.")] = None
    job: Annotated[str | None, F("The newest Job.")] = None
    tries: Annotated[int | None, F("Runs begun.")] = None
    source: Annotated[str | None, F("The pod it is read from.")] = None
    method: Annotated[str | None, F("How it is made.")] = None
    version: Annotated[str | None, F("Version of the server it is of.")] = None
    position: Annotated[str | None, F("It has all writes up to here; empty before the first write.")] = None
    size_bytes: Annotated[int | None, F("Bytes that the database gave, compressed.")] = None
    stored_bytes: Annotated[int | None, F("Bytes in the store.")] = None
    started_at: Annotated[datetime | None, F("When the newest run began.", schema=TIME)] = None
    finished_at: Annotated[datetime | None, F("When it ended.", schema=TIME)] = None
    progress: Annotated[
        Progress | None, F("Of a run that takes longer: how far it is, once a minute at most.")
    ] = None
    verified: Annotated[Verified | None, F("The newest test restore.")] = None


class BackupObject(Object, frozen=True, kw_only=True):
    """The base of the kinds that are one backup."""

    spec: BackupFields | None = None
    status: BackupStatus | None = None


@rules(
    Rule(
        "!has(self.keepLast) || self.keepLast > 0 || (has(self.keepDays) && self.keepDays > 0)",
        "keepLast 0 would keep nothing but the newest; set keepLast to 1 or more, or keepDays",
    )
)
class Retention(Part, frozen=True, kw_only=True):
    """Which backups of a schedule stay; those that any of these keeps. The newest good one always does."""

    keep_last: Annotated[int | None, F("The newest so many good ones.", minimum=0, maximum=10000)] = None
    keep_days: Annotated[int | None, F("Good ones of the last so many days.", minimum=0, maximum=36500)] = (
        None
    )
    keep_last_verified: Annotated[
        int | None, F("The newest so many verified ones. Default 1.", minimum=1, maximum=1000)
    ] = None


class ScheduleFields(Part, frozen=True, kw_only=True):
    """When backups are made, and which stay."""

    schedule: Annotated[
        str | None,
        F(
            'Five fields, minute hour day month weekday, such as "30 3 * * *"; or @hourly, @daily, @weekly.',
            required=True,
            min_length=1,
            max_length=200,
        ),
    ] = None
    time_zone: Annotated[str | None, F("Such as Europe/Berlin. Default: UTC.", max_length=64)] = None
    suspend: Annotated[bool | None, F("No further backups are begun; those there are stay.")] = None
    starting_deadline_seconds: Annotated[
        int | None,
        F(
            "A run that is so late is skipped. Default: the newest missed one is made up for.",
            minimum=10,
            maximum=604800,
        ),
    ] = None
    concurrency_policy: Annotated[
        str | None,
        F(
            "While the one before still runs: Forbid skips the new one, Replace ends the old one.",
            enum=("Forbid", "Replace"),
            default="Forbid",
        ),
    ] = None
    retention: Annotated[Retention | None, F("Which backups stay; absent: all.")] = None
    verify_every: Annotated[
        int | None,
        F(
            "Every so many backups are restored into a throw-away server and compared. 0: none.",
            minimum=0,
            maximum=1000,
        ),
    ] = None


class ScheduleStatus(Part, frozen=True, kw_only=True):
    """What a schedule did and will do."""

    conditions: Annotated[list[meta.Condition] | None, F("Ready, Progressing, Stalled.")] = None
    observed_generation: Annotated[int | None, F("The generation this speaks of.")] = None
    last_scheduled_at: Annotated[datetime | None, F("The newest run that was begun.", schema=TIME)] = None
    next_at: Annotated[datetime | None, F("The next run.", schema=TIME)] = None
    last_backup: Annotated[str | None, F("The newest backup that succeeded.")] = None
    last_success_at: Annotated[datetime | None, F("When it was complete.", schema=TIME)] = None
    last_verified_backup: Annotated[str | None, F("The newest backup that was verified.")] = None
    last_verified_at: Annotated[datetime | None, F("When it was.", schema=TIME)] = None
    runs: Annotated[int | None, F("Backups begun.")] = None
    missed: Annotated[int | None, F("Runs that were skipped, in all.")] = None


class ScheduleObject(Object, frozen=True, kw_only=True):
    """The base of the kinds that make backups by a schedule."""

    spec: ScheduleFields | None = None
    status: ScheduleStatus | None = None


@rules(
    Rule(
        "has(self.backup) != (has(self.target) && has(self.prefix))",
        "name either a backup, or a target and the prefix in it",
    )
)
class RestoreFrom(Part, frozen=True, kw_only=True):
    """The backup that a new cluster begins with: an object of the namespace, or its place in a store."""

    backup: Annotated[
        str | None, F("Name of a backup object of the namespace.", min_length=1, max_length=253)
    ] = None
    target: Annotated[Target | None, F("A store that no object here describes; with prefix.")] = None
    prefix: Annotated[
        str | None,
        F(
            "Where the backup is in that store: status.prefix of the object that made it.",
            min_length=1,
            max_length=700,
        ),
    ] = None


class RestoreStatus(Part, frozen=True, kw_only=True):
    """How a cluster got its first data; recorded before anything is made."""

    phase: Annotated[str | None, F("Pending, Running, Succeeded or Failed.")] = None
    backup: Annotated[str | None, F("The backup object, where one was named.")] = None
    prefix: Annotated[str | None, F("Where the backup is in its target.")] = None
    job: Annotated[str | None, F("The newest Job.")] = None
    tries: Annotated[int | None, F("Runs begun.")] = None
    position: Annotated[str | None, F("What was restored has all writes up to here.")] = None
    message: Annotated[str | None, F("What it waits for, or why it failed, with the remedy.")] = None
    started_at: Annotated[datetime | None, F("When the newest run began.", schema=TIME)] = None
    finished_at: Annotated[datetime | None, F("When it ended.", schema=TIME)] = None


BACKUP_COLUMNS: Final = (
    PrinterColumn("Cluster", ".spec.cluster.name"),
    PrinterColumn("Phase", ".status.phase"),
    PrinterColumn("Size", ".status.sizeBytes", type="integer"),
    PrinterColumn("Finished", ".status.finishedAt", type="date"),
    PrinterColumn("Verified", '.status.conditions[?(@.type=="BackupVerified")].status'),
    PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    PrinterColumn("Location", ".status.location", priority=1),
    PrinterColumn("Position", ".status.position", priority=1),
    AGE,
)
SCHEDULE_COLUMNS: Final = (
    PrinterColumn("Cluster", ".spec.template.cluster.name"),
    PrinterColumn("Schedule", ".spec.schedule"),
    PrinterColumn("Suspended", ".spec.suspend", type="boolean"),
    PrinterColumn("Next", ".status.nextAt"),
    PrinterColumn("Last", ".status.lastSuccessAt", type="date"),
    PrinterColumn("Verified", ".status.lastVerifiedAt", type="date"),
    PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    AGE,
)
