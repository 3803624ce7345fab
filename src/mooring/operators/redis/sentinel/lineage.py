"""Which data is the cluster's: the recorded line of descent, and who may stand for election by it.

INFO alone cannot say it: with AOF on, every restarted server has a new random replication id and offset 0,
so a master, its replica and a stale replica look alike. What was true while they served is therefore recorded
in ``status.lineage`` *before* a server is promoted, by pod and volume.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mooring.operators.redis.sentinel.topology import Member, Pod, Server, Topology

__all__ = ["Lineage", "Standing", "descends", "is_newer", "standing_of"]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One server as it was when it held the cluster's data."""

    pod: str
    uid: str
    volume: str
    ip: str
    incarnation: str

    def same_process(self, pod: Pod) -> bool:
        """The container recorded here is the one that runs now."""
        return self.uid == pod.uid and self.incarnation == pod.incarnation and pod.running

    def same_volume(self, pod: Pod) -> bool:
        """The pod stores on what was recorded here."""
        return self.volume == pod.volume


def standing_of(pod: Pod) -> Standing:
    """Record a pod as it is now."""
    return Standing(pod=pod.name, uid=pod.uid, volume=pod.volume, ip=pod.ip, incarnation=pod.incarnation)


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The cluster's data: its present replication id, its master and who has all of it."""

    epoch: int
    """Counts masters; grows with every change of master."""
    replid: str
    master: Standing
    members: tuple[Standing, ...] = ()
    """In-sync servers, the master among them."""
    sentinel_epoch: int = 0
    """The sentinels' configuration epoch when this was recorded; a higher one later overrides the record."""

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
            master=heir,
            members=_ordered([heir, *others]),
            sentinel_epoch=sentinel_epoch,
        )

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
    """The server's history is the recorded one, or grew out of it by one promotion."""
    return bool(lineage.replid) and lineage.replid in (server.replid, server.replid2)


def is_newer(left: Server, right: Server) -> bool:
    """``left`` was promoted out of ``right``'s history."""
    return bool(left.replid2) and left.replid2 == right.replid and left.replid != right.replid


def recorded_master(lineage: Lineage, topology: Topology) -> Member | None:
    """The pod of the recorded master, whether or not its process is the recorded one."""
    return topology.member(lineage.master.pod)
