"""Metrics of schedules: when the newest backup was made, and when the newest one was verified."""

from __future__ import annotations

import contextlib
from datetime import datetime

from mooring.kube.object import Key
from mooring.operators.matrixone.types import BackupJob, BackupJobSpec, BackupJobStatus
from mooring.runtime.metrics import Metrics

__all__ = ["Gauges"]


class Gauges:
    """Named as those of the other operators' schedules are."""

    def __init__(self, metrics: Metrics) -> None:
        name = "mooring_matrixone_backup_last_"
        text = "When the newest backup of a schedule that is not suspended {}; before the first, when the schedule was made."
        labels = ["namespace", "name"]
        self._success = metrics.gauge(f"{name}success_timestamp_seconds", text.format("was complete"), labels)
        self._verified = metrics.gauge(
            f"{name}verified_timestamp_seconds", text.format("was verified"), labels
        )

    def show(self, key: Key, job: BackupJob, status: BackupJobStatus) -> None:
        """Set what a schedule shows."""
        self.forget(key)
        spec = job.spec or BackupJobSpec()
        schedule, made = spec.schedule, job.metadata.creation_timestamp or ""
        if schedule is None or schedule.suspend or not made:
            return
        self._success.labels(*key).set(_at(status.last_success_at or made))
        if spec.verify or schedule.verify_every:
            self._verified.labels(*key).set(_at(status.last_verified_at or made))

    def forget(self, key: Key) -> None:
        """Drop what a schedule showed."""
        for one in (self._success, self._verified):
            with contextlib.suppress(KeyError):
                one.remove(key.namespace, key.name)


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
