"""Clusters that HarmonyCloud's operator made: when they are taken over, and what of them is changed for that.

Its pods bear labels of its own, its StatefulSet and Service select by them, and its servers were not let in by anybody.
A cluster that serves whole is taken over while it runs: its pods get our labels beside theirs, which is all that happens
to them; the template stays until the user changes something of it. What does not serve whole, or is declared otherwise
than it is, stays untouched, and a condition says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mooring.actor import APPLIED, Context, differs
from mooring.kube.client import Client
from mooring.kube.object import Object, controller_of, metadata_of
from mooring.kube.objects import apps, core
from mooring.kube.patches import MergePatch
from mooring.operators.redis.cluster.names import selector_of
from mooring.operators.redis.cluster.pair import leader_of
from mooring.operators.redis.cluster.slots import ALL
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.specs import Specs
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.workload.claims import claim_name
from mooring.operators.workload.pods import main_container

__all__ = ["bears_labels", "label", "leader", "made_by_another", "pods_selector", "refusal", "select_ours"]

LOCKS: Final = ("middleware-operator-manager", "3a49403d.hc.cn")
"""Names of the locks by which its operator is elected, of 2019 (Endpoints by default) and of 2021 (a ConfigMap)."""
_LOCKED: Final[tuple[type[Object], ...]] = (core.Endpoints, core.ConfigMap)
LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
STALE: Final = timedelta(seconds=60)
"""After which a lock that is not renewed has no living owner: four times its lease, for clocks that differ."""


def made_by_another(cluster: RedisCluster, live: apps.StatefulSet) -> bool:
    """The cluster's StatefulSet, and nothing of it is from us yet."""
    owner = controller_of(live)
    ours = owner is not None and owner.uid == cluster.metadata.uid
    return ours and APPLIED not in (live.metadata.annotations or {})


def bears_labels(cluster: str, labels: dict[str, str] | None) -> bool:
    """These are the labels by which pods of the cluster are found."""
    return selector_of(cluster).items() <= (labels or {}).items()


def pods_selector(live: apps.StatefulSet) -> str:
    """How the StatefulSet itself finds its pods."""
    selector = live.spec.selector if live.spec else None
    return ",".join(f"{key}={value}" for key, value in ((selector and selector.match_labels) or {}).items())


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """What a leader writes down at its lock."""

    holder_identity: str = ""
    renew_time: datetime | None = None


async def leader(client: Client, namespace: str, now: datetime) -> str:
    """Who leads HarmonyCloud's operator, "" if nobody does as far as its locks tell; in all namespaces with "".

    Raises `KubeError` when that cannot be found out: then nothing is to be taken over either.
    """
    for kind, name in product(_LOCKED, LOCKS):
        found = await client.list(
            metadata_of(kind), namespace=namespace, field_selector=f"metadata.name={name}"
        )
        for lock in found.items:
            if holder := _holder((lock.metadata.annotations or {}).get(LEADER, ""), now):
                return f"{holder} ({kind.resource.kind} {lock.metadata.namespace}/{name})"
    return ""


def _holder(text: str, now: datetime) -> str:
    try:
        record = msgspec.json.decode(text, type=_Record)
    except msgspec.MsgspecError:
        return ""
    renewed = record.renew_time
    return record.holder_identity if renewed is not None and now - renewed < STALE else ""


# --- whether it is taken over --------------------------------------------------------------------------------


def refusal(snapshot: Snapshot, specs: Specs, live: apps.StatefulSet, declared: int) -> str:
    """Why it is left as it is, with what to do; "" when it can be taken over."""
    return (
        _as_declared(snapshot, declared)
        or _same_data(specs, live)
        or _answering(snapshot)
        or (_whole_pair(snapshot) if declared == 2 else _whole_cluster(snapshot))
    )


def _as_declared(snapshot: Snapshot, declared: int) -> str:
    there = snapshot.wanted.pods
    if declared != there:
        return f"spec.replicas: {declared} are declared, and there are {there}; give {there}, and change it afterwards"
    old = [one.name for one in snapshot.seen.nodes if one.pod.revision not in ("", snapshot.wanted.revision)]
    if snapshot.wanted.rolls and old:
        return f"{', '.join(old)} is still to be made anew from the newest template; let that end"
    return ""


def _same_data(specs: Specs, live: apps.StatefulSet) -> str:
    """New pods have to find the data where the present ones keep it."""
    pod = live.spec.template.spec if live.spec and live.spec.template else None
    if pod is None:
        return ""
    volumes = {one.name: one for one in pod.volumes or ()}
    mounted = [one.name for one in main_container(pod, "redis").volume_mounts or ()]
    ours = specs.data_volume()
    claims = [one.metadata.name for one in (live.spec.volume_claim_templates if live.spec else None) or ()]
    if ours is None:
        return "" if claims[0] in mounted else f"its servers do not store on the claims {claims[0]}; {_COPY}"
    for name in mounted:
        theirs = volumes.get(name)
        if theirs is None or theirs.config_map is not None or theirs.secret is not None:
            continue
        if _alike(ours, theirs):
            return ""
        claim = theirs.persistent_volume_claim
        if claim is not None:
            return (
                f"spec.pod[0].volumes: the data is on the claim {claim.claim_name}; give type nfs and that as "
                "persistentVolumeClaimName"
            )
    return f"spec.pod[0].volumes: new pods would not find the data of the present ones; {_COPY}"


_COPY = "make a new cluster beside it, and copy the data"


def _alike(ours: core.Volume, theirs: core.Volume) -> bool:
    """Of the same kind, which may say nothing more (emptyDir), and otherwise alike too."""
    kinds = [
        {name for name in one.__struct_fields__ if getattr(one, name) is not None} for one in (ours, theirs)
    ]
    return kinds[0] == kinds[1] and not differs(replace(ours, name=theirs.name), theirs)


def _answering(snapshot: Snapshot) -> str:
    if (number := len(snapshot.seen.nodes)) < snapshot.wanted.pods:
        return f"{number} of its {snapshot.wanted.pods} pods are there; bring them up"
    silent = next((one for one in snapshot.seen.nodes if one.server is None), None)
    if silent is not None:
        why = silent.error or silent.pod.trouble_message
        return (
            f"{silent.name} does not answer ({why}); spec.pod[0].requirepass has to be the password in force"
        )
    return ""


def _whole_pair(snapshot: Snapshot) -> str:
    leader = leader_of(snapshot)
    if leader is None:
        return "not exactly one of the two servers leads; let one of them follow the other"
    others = [one.server for one in snapshot.seen.nodes if one is not leader and one.server is not None]
    if all(one.master == leader.address and one.link_up for one in others):
        return ""
    return f"the other server does not follow {leader.name}; let it (REPLICAOF), or bring it up"


def _whole_cluster(snapshot: Snapshot) -> str:
    alone = [one.name for one in snapshot.seen.nodes if one.server is not None and not one.server.clustered]
    if alone:
        return f"{alone[0]} is no node of a Redis Cluster; {_COPY}"
    if snapshot.seen.covered != ALL:
        return "slots are without a live owner; bring it up (redis-cli --cluster fix)"
    if why := snapshot.seen.disagreement(snapshot.seen.live):
        return f"{why}; it is taken over once its nodes agree (redis-cli --cluster check)"
    return ""


# --- what is changed for it ----------------------------------------------------------------------------------


async def label(ctx: Context[RedisCluster], live: apps.StatefulSet, pods: Sequence[core.Pod]) -> int:
    """Put our labels on pods that lack them, and on their claims; how many pods did."""
    found = [one for one in pods if not bears_labels(ctx.key.name, one.metadata.labels)]
    templates = (live.spec.volume_claim_templates if live.spec else None) or ()
    for pod in found:
        name = pod.metadata.name or ""
        await _labelled(ctx, core.Pod, name, uid=pod.metadata.uid)
        for one in templates:
            await _labelled(ctx, core.PersistentVolumeClaim, claim_name(one.metadata.name or "", name))
    return len(found)


async def _labelled(
    ctx: Context[RedisCluster], kind: type[Object], name: str, *, uid: str | None = None
) -> None:
    body: dict[str, Any] = {"metadata": {"labels": selector_of(ctx.key.name)}}
    if uid:
        body["metadata"]["uid"] = uid
    await ctx.client.patch(kind, name, MergePatch(body), namespace=ctx.key.namespace)


async def select_ours(ctx: Context[RedisCluster], services: Iterable[core.Service | None]) -> None:
    """Let Services select by our labels alone: an apply would leave theirs, which new pods do not all bear."""
    wanted = selector_of(ctx.key.name)
    for one in services:
        selector = (one.spec.selector if one is not None and one.spec else None) or {}
        if one is None or not (foreign := selector.keys() - wanted.keys()):
            continue
        body = {
            "metadata": {"resourceVersion": one.metadata.resource_version},
            "spec": {"selector": {**wanted, **dict.fromkeys(foreign)}},
        }
        await ctx.client.patch(
            core.Service, one.metadata.name or "", MergePatch(body), namespace=ctx.key.namespace
        )
