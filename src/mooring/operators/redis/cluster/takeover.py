"""Clusters that HarmonyCloud's operator made: when they are taken over, and what of them is changed for that.

Its pods bear labels of its own, its StatefulSet and Service select by them, and no operator released its servers.
A cluster that serves whole is taken over while it runs: its pods get our labels beside theirs, which is all that happens
to them; the template stays until the user changes something of it. What does not serve whole, or is declared otherwise
than it is, stays untouched, and a condition says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace

from mooring.actor import Context, Outcome, Wait, differs
from mooring.kube.object import controller_of
from mooring.kube.objects import apps, core
from mooring.operators.redis.cluster.effects import apply
from mooring.operators.redis.cluster.inputs import Inputs
from mooring.operators.redis.cluster.names import selector_of
from mooring.operators.redis.cluster.pair import leader_of
from mooring.operators.redis.cluster.slots import ALL
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.specs import Specs
from mooring.operators.redis.cluster.types import RedisCluster, status_of
from mooring.operators.workload.adoption import (
    has_labels,
    label_pods,
    lock_holder,
    made_by_another,
    pods_of_set,
    rolls_itself,
    select_only,
    stop_rolling,
)
from mooring.operators.workload.hindrances import RENAME
from mooring.operators.workload.pods import main_container
from mooring.runtime import Manager

__all__ = ["LOCKS", "Takeover", "refusal"]

LOCKS: Final = ("middleware-operator-manager", "3a49403d.hc.cn")
"""Names of the locks by which its operator is elected, of 2019 (Endpoints by default) and of 2021 (a ConfigMap)."""
LOOK_AT_REFUSED: Final = 5.0
"""Seconds between two looks at a cluster that cannot be taken over yet."""
AFTER_LABELS: Final = 0.2
"""Seconds for the cache to hear of pods that have our labels."""

Given = Callable[[Context[RedisCluster], Sequence[core.Pod]], Inputs]
"""The inputs of a cluster whose pods are these."""
Look = Callable[[Context[RedisCluster], Inputs], Awaitable[Snapshot]]


class Takeover:
    """Leaves clusters of HarmonyCloud's operator to it while it runs, and takes them over afterwards.

    With ``namespaced`` its lock is looked for in the cluster's namespace alone, which is as far as a Role reaches.
    """

    def __init__(self, manager: Manager, given: Given, look: Look, *, namespaced: bool) -> None:
        self._manager = manager
        self._given = given
        self._look = look
        self._namespaced = namespaced

    async def precede(
        self, ctx: Context[RedisCluster], live: apps.StatefulSet, pods: Callable[[], int]
    ) -> Outcome | None:
        """Pods of another template than ours have other labels: nothing is decided while one of them is not seen."""
        template = live.spec.template if live.spec else None
        if template and template.metadata and has_labels(selector_of(ctx.key.name), template.metadata.labels):
            return None
        if made_by_another(ctx.obj, live):
            return await self._take_over_or_say_why(ctx, live)
        owner = controller_of(live)
        if owner is None or owner.uid != ctx.obj.metadata.uid:
            return None  # of somebody else, by the same name: nothing of it is touched
        there = (live.status.replicas if live.status else None) or 0
        if pods() >= there or (ctx.obj.spec is not None and ctx.obj.spec.pause):
            return None
        return ctx.act("LabelPods", self._label, ctx, live, message="pods get the labels they are found by")

    async def still_runs(self, ctx: Context[RedisCluster]) -> Outcome | None:
        """A cluster that is not ours yet is left to HarmonyCloud's operator while that runs, also one still to be made."""
        namespace = ctx.key.namespace if self._namespaced else ""
        client = self._manager.client.live
        holder = await lock_holder(client, LOCKS, namespace=namespace, now=ctx.now())
        if not holder:
            return None
        message = (
            f"HarmonyCloud's operator runs as {holder} and looks after this cluster; nothing is touched until it "
            "has ended: scale its Deployment to 0"
        )
        return ctx.wait("LegacyOperatorRunning", message, after=LOOK_AT_REFUSED, stalled=True)

    async def _take_over_or_say_why(
        self, ctx: Context[RedisCluster], live: apps.StatefulSet
    ) -> Outcome | None:
        """Nothing is written before its servers have been looked at."""
        if outcome := await self.still_runs(ctx):
            return outcome
        inputs = self._given(ctx, await pods_of_set(self._manager.client.live, live))
        if inputs.paused:
            return _untouched(ctx, "Paused", "spec.pause: it is taken over once that is false")
        if inputs.blocked is not None:
            return _untouched(ctx, inputs.blocked.reason, inputs.blocked.message)
        drift = ctx.children.diff(inputs.specs.objects())
        if drift.foreign:
            return _untouched(ctx, "NameTaken", f"{drift.taken}; {RENAME}")
        snapshot = await self._look(ctx, inputs)
        if why := refusal(snapshot, inputs.specs, live, inputs.spec.replicas or 0):
            return _untouched(ctx, "NotTakenOver", f"{why}. Until then nothing is touched")
        leads = leader_of(snapshot)
        name = leads.name if leads is not None else None
        ctx.show(replace(inputs.status, formed_cluster_before=True, leader=name))
        why = "a cluster that HarmonyCloud's operator made is taken over; its pods stay"
        ctx.events.normal(ctx.obj, "TakeOver", why)
        return ctx.act("TakeOver", self._take_over, ctx, inputs, live, message=why, record=True)

    async def _take_over(self, ctx: Context[RedisCluster], inputs: Inputs, live: apps.StatefulSet) -> None:
        """Labels first, so that no Service is without pods; what says that it is ours comes last, so this is repeated."""
        await self._label(ctx, live)
        names = (inputs.names.service, inputs.names.entry)
        services = (ctx.children.find(core.Service, one) for one in names)
        await select_only(ctx, services, selector_of(ctx.key.name))
        if rolls_itself(live):
            await stop_rolling(ctx, live)
        await apply(ctx, inputs, inputs.orders)

    async def _label(self, ctx: Context[RedisCluster], live: apps.StatefulSet) -> None:
        pods = await pods_of_set(self._manager.client.live, live)
        if not await label_pods(ctx, live, pods, selector_of(ctx.key.name)):
            await self._manager.clock.sleep(AFTER_LABELS)


def _untouched(ctx: Context[RedisCluster], reason: str, message: str) -> Wait:
    ctx.show(replace(status_of(ctx.status), reason=message, reason_type=reason))
    return ctx.wait(reason, message, after=LOOK_AT_REFUSED, stalled=reason != "Paused")


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
        return f"{', '.join(old)} must still be recreated from the newest template; wait until it is"
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
