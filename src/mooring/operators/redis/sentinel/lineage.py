"""Which data is the cluster's: its recorded history, and which servers may become master by it.

INFO alone cannot say it: with AOF on, every restarted server has a new random replication id and offset 0,
so a master, its replica and a stale replica look alike. What was true while they served is therefore recorded
in ``status.lineage`` *before* a server is promoted, by pod and volume.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec.structs import replace

from mooring.kube.part import Part
from mooring.operators.redis.sentinel.topology import Server
from mooring.operators.workload.pods import Pod
from mooring.runtime.crd import F

__all__ = ["Lineage", "Standing", "descends", "standing_of"]


HISTORY = 16
"""Replication ids remembered: an old master that wakes after several fail-overs is still known for ours."""


class Standing(Part, frozen=True, kw_only=True):
    """One server as it was when it held the cluster's data."""

    pod: Annotated[str, F("Name of the pod.")] = ""
    uid: Annotated[str, F("UID of the pod.")] = ""
    volume: Annotated[str, F("UID of the claim it stores on; the pod's own without one.")] = ""
    ip: Annotated[str, F("Address it had.")] = ""
    incarnation: Annotated[str, F("Which start of the container it was.")] = ""

    def same_process(self, pod: Pod) -> bool:
        """The container recorded here is the one that runs now."""
        return self.uid == pod.uid and self.incarnation == pod.incarnation and pod.running

    def same_volume(self, pod: Pod) -> bool:
        """The pod stores on what was recorded here."""
        return self.volume == pod.volume


def standing_of(pod: Pod) -> Standing:
    """Record a pod as it is now."""
    return Standing(pod=pod.name, uid=pod.uid, volume=pod.volume, ip=pod.ip, incarnation=pod.incarnation)


class Lineage(Part, frozen=True, kw_only=True):
    """The cluster's data: its present replication id, its master and who has all of it."""

    epoch: Annotated[int, F("Counts masters; grows with every change of master.")] = 0
    replid: Annotated[str, F("Replication id of the data.")] = ""
    past: Annotated[tuple[str, ...], F("Earlier replication ids of the same data, newest last.")] = ()
    master: Annotated[Standing, F("Who leads.")] = Standing()
    members: Annotated[tuple[Standing, ...], F("Who has all of the data, the master among them.")] = ()
    sentinel_epoch: Annotated[
        int, F("The sentinels' configuration epoch at that time; a higher one later overrides the record.")
    ] = 0

    def standing(self, name: str) -> Standing | None:
        """The record of a pod, if it was in sync."""
        return next((one for one in self.members if one.pod == name), None)

    def at(self, ip: str) -> Standing | None:
        """The record of the pod that had this address."""
        return next((one for one in self.members if one.ip == ip), None)

    def succeed(self, master: Pod, *, replid: str, sentinel_epoch: int) -> Lineage:
        """The record after a change of master; who else is in sync stays as it was."""
        heir = standing_of(master)
        others = tuple(one for one in self.members if one.pod != master.name)
        return replace(
            self,
            epoch=self.epoch + 1,
            replid=replid,
            past=self._past_of(replid),
            master=heir,
            members=_ordered([heir, *others]),
            sentinel_epoch=sentinel_epoch,
        )

    def _past_of(self, replid: str) -> tuple[str, ...]:
        if not self.replid or replid == self.replid:
            return self.past
        return (*(one for one in self.past if one != self.replid), self.replid)[-HISTORY:]

    def ours(self, replid: str) -> bool:
        """The replication id is, or was, that of this data."""
        return bool(replid) and (replid == self.replid or replid in self.past)

    def with_members(self, pods: Iterable[Pod], *, keep: Iterable[Standing] = ()) -> Lineage:
        """The record with these pods in sync, and those of ``keep`` that are not among them."""
        fresh = {pod.name: standing_of(pod) for pod in pods}
        kept = [one for one in keep if one.pod not in fresh]
        return replace(self, members=_ordered([*fresh.values(), *kept]))

    @staticmethod
    def begin(master: Pod, *, replid: str, sentinel_epoch: int = 0, epoch: int = 1) -> Lineage:
        """The record of a first master."""
        heir = standing_of(master)
        return Lineage(
            epoch=epoch, replid=replid, master=heir, members=(heir,), sentinel_epoch=sentinel_epoch
        )


def _ordered(standings: Iterable[Standing]) -> tuple[Standing, ...]:
    return tuple(sorted(standings, key=lambda one: one.pod))


def descends(server: Server, lineage: Lineage) -> bool:
    """The server's history is the recorded one, or grew out of it by one promotion.

    Before 4.0 there are no replication ids: there the record of pods alone counts.
    """
    return not lineage.replid or lineage.replid in (server.replid, server.replid2)
