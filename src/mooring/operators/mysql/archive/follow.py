"""The archives of all clusters: what archivers say, and what is in the way of making them, as the status shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from mooring.actor import Wait
from mooring.actor.planned import Note
from mooring.kube.object import Key, key_of
from mooring.kube.objects import core
from mooring.operators.mysql.archive.poll import Archivers
from mooring.operators.mysql.archive.shown import hindered, news, shown, with_condition
from mooring.operators.mysql.archive.workload import is_archiver, root_of
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus
from mooring.operators.workload.hindrances import Hindrances
from mooring.runtime import Manager

__all__ = ["Archives"]


class Archives:
    """Those of one operator; ``wake`` brings the next pass over a cluster forward when the state of its archive changes."""

    def __init__(self, manager: Manager, wake: Callable[[Key], None]) -> None:
        self._archivers = Archivers(manager, wake)
        self.hindrances = Hindrances("ApplyArchive", remedy="delete that object, or remove spec.archive")

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._archivers.forget(key)
        self.hindrances.forget(key)

    async def serve(self) -> None:
        """Ask until this is cancelled."""
        await self._archivers.serve()

    def added(
        self,
        status: MySQLClusterStatus,
        cluster: MySQLCluster,
        pods: Sequence[core.Pod],
        *,
        hindrance: Wait | None,
        now: datetime,
    ) -> tuple[MySQLClusterStatus, list[Note]]:
        """The status with what the archiver of the cluster said last, and the Events of what is new in that.

        ``hindrance`` is what is in the way of making the archiver.
        """
        before, archive, key = status.archive, None, key_of(cluster)
        if cluster.spec is not None and cluster.spec.archive is not None:
            recorded = (before.last_recoverable if before else None) or datetime.fromisoformat(
                cluster.metadata.creation_timestamp or ""
            )
            prefix = root_of(cluster)
            heard = self._archivers.follow(key, _address(pods), recorded=recorded)
            archive = shown(before, heard, prefix=prefix, now=now)
            if hindrance is not None:
                archive = hindered(before, hindrance.message, prefix=prefix, now=now)
        else:
            self._archivers.forget(key)
        conditions = with_condition(status.conditions or (), archive, now=now)
        return replace(status, archive=archive, conditions=conditions), news(before, archive)


def _address(pods: Sequence[core.Pod]) -> str:
    """Of the newest pod that archives; "" while there is none."""
    archivers = [one for one in pods if is_archiver(one) and not one.metadata.deletion_timestamp]
    newest = max(archivers, key=lambda one: one.metadata.creation_timestamp or "", default=None)
    return (newest.status.pod_ip if newest is not None and newest.status is not None else None) or ""
