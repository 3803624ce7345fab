"""UCloud's operator, where it still runs: what it made is not taken over while its lock has a living owner.

Two operators that both repair one cluster choose two masters. UCloud's is elected for life: its leader owns, by
an owner reference with its Pod's UID, a ConfigMap in the operator's own namespace, and gives it up only by ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mooring.actor import Context, Wait
from mooring.actor.drift import APPLIED
from mooring.kube.client import Client
from mooring.kube.object import Key, Object, metadata_of
from mooring.kube.objects import apps, core
from mooring.kube.objects.meta import OwnerReference
from mooring.operators.redis.sentinel.names import Names
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.runtime import Clock

__all__ = ["LOCK", "Predecessor", "left_to", "made_by_another"]

LOCK: Final = "redis-operator-lock"
"""Name of the ConfigMap that its leader owns."""
FRESH: Final = 5.0
"""Seconds for which an answer serves all clusters of this process."""
LOOK_FOR_PREDECESSOR: Final = 10.0
"""Seconds between two passes while UCloud's operator runs."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Predecessor:
    """Looks for its leader, with live reads: one list, and one more for each lock that a Pod owns.

    With ``namespaced`` a look covers the asking cluster's namespace alone, which is as far as a Role reaches;
    without it, all of them.
    """

    def __init__(self, client: Client, clock: Clock, *, namespaced: bool) -> None:
        self._client = client
        self._clock = clock
        self._namespaced = namespaced
        self._looking = asyncio.Lock()
        self._found: dict[str, tuple[float, Key | None]] = {}

    async def leader(self, namespace: str) -> Key | None:
        """The Pod that leads, as of the last `FRESH` seconds; ``None`` when none lives.

        Raises `KubeError` when that cannot be found out: then nothing is to be taken over either.
        """
        where = namespace if self._namespaced else ""
        async with self._looking:  # many clusters ask at once after a start: one look serves them all
            now = self._clock.boottime()
            known = self._found.get(where)
            if known is None or now - known[0] >= FRESH:
                known = self._found[where] = (now, await self._look(where))
            return known[1]

    async def _look(self, where: str) -> Key | None:
        kind = metadata_of(core.ConfigMap)
        locks = await self._client.list(kind, namespace=where, field_selector=f"metadata.name={LOCK}")
        for lock in locks.items:
            namespace = lock.metadata.namespace or ""
            for owner in lock.metadata.owner_references or ():
                if owner.kind == "Pod" and await self._lives(namespace, owner):
                    return Key(namespace, owner.name or "")
        return None

    async def _lives(self, namespace: str, owner: OwnerReference) -> bool:
        """A Pod of that name may be another one's; one that cannot be read may be the very one."""
        named = f"metadata.name={owner.name}"
        pods = await self._client.list(core.Pod, namespace=namespace, field_selector=named)
        now = self._clock.now()
        return bool(pods.undecodable) or any(
            pod.metadata.uid == owner.uid and _runs(pod, now) for pod in pods.items
        )


async def left_to(predecessor: Predecessor, ctx: Context[RedisCluster]) -> Wait | None:
    """Wait while UCloud's operator runs and the cluster is one that it made."""
    if not made_by_another(ctx):
        return None
    leader = await predecessor.leader(ctx.key.namespace)
    if leader is None:
        return None
    message = (
        f"UCloud's operator runs in pod {leader} and looks after this cluster; nothing is touched until it has "
        "ended: scale its Deployment to 0"
    )
    return Wait("LegacyOperatorRunning", message, after=LOOK_FOR_PREDECESSOR, stalled=True)


def made_by_another(ctx: Context[RedisCluster]) -> bool:
    """Whether one of the cluster's first objects bears no mark of ours; asked of the caches.

    An operator that replaces one of them later takes the mark away again.
    """
    names = Names(ctx.key.name)
    first: Sequence[Object | None] = (
        ctx.children.find(core.Service, names.redis),
        ctx.children.find(apps.StatefulSet, names.redis),
        ctx.children.find(apps.StatefulSet, names.sentinel),
    )
    return any(one is not None and APPLIED not in (one.metadata.annotations or {}) for one in first)


def _runs(pod: core.Pod, now: datetime) -> bool:
    """Not ended; and if it is being deleted, within its grace: a node that is lost never says that it has ended."""
    if pod.status is not None and pod.status.phase in _ENDED:
        return False
    until = pod.metadata.deletion_timestamp
    return until is None or now < datetime.fromisoformat(until)
