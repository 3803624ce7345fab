"""The actor of MatrixOneClusters: the rooms of a pass put together."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.actor import Context, InSync, Move, Outcome, Planned, Related, Report, Terminal, Verdict, Wait
from mooring.kube.errors import AlreadyExists
from mooring.kube.object import Key, Object, metadata_of, owner_reference
from mooring.kube.objects import core, meta
from mooring.operators.matrixone.cluster.stages import STAGES, DeleteSets, Held, in_order, next_deletion
from mooring.operators.matrixone.cluster.status import Snapshot, decide, report
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.depends import as_declared
from mooring.operators.matrixone.names import CLUSTER
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.specs import ClusterSpecs
from mooring.operators.matrixone.types import MatrixOneCluster
from mooring.operators.workload.containers import encoded

__all__ = ["PAUSE", "SKIP", "ClusterActor"]

PAUSE: Final = "mooring.dev/pause"
SKIP: Final = "matrixorigin.io/skip-sync"
"""Annotation of upstream's: the operator leaves the cluster alone, and its sets go with it by their owner references."""
_USER: Final = "dump"
"""The first SQL user, whose name the server fixes."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The declaration, and what is there of it."""

    cluster: MatrixOneCluster = field(repr=False)
    """With its defaults."""
    live: Mapping[tuple[type[Object], str], Object] = field(default_factory=dict, repr=False)
    wanted: tuple[Object, ...] = field(default=(), repr=False)
    made: tuple[Object, ...] = field(default=(), repr=False)
    """As they are to be now: those whose turn has not come keep what rolls their pods."""
    held: tuple[Held, ...] = ()
    has_credential: bool = False
    blocked: Wait | Terminal | None = None


def _cluster_of(pod: core.Pod) -> list[Key]:
    return [Key(pod.metadata.namespace or "", (pod.metadata.labels or {}).get(CLUSTER, ""))]


class ClusterActor(Planned[MatrixOneCluster, Inputs, Snapshot]):
    """Observes one MatrixOneCluster and acts upon it."""

    kind = MatrixOneCluster
    name: Final = "matrixone"
    owns = STAGES
    owns_by_metadata = (core.Secret,)
    finalizer = "matrixorigin.io/matrixonecluster"
    related = (Related(core.Pod, _cluster_of, label_selector=CLUSTER),)

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def precede(self, ctx: Context[MatrixOneCluster]) -> Outcome | None:
        """What is to be left alone is."""
        notes = ctx.obj.metadata.annotations or {}
        if notes.get(SKIP):
            return InSync(f"the annotation {SKIP} leaves it alone")
        if PAUSE in notes:
            return Wait(
                "Paused", f"the annotation {PAUSE} holds the operator back; remove it to go on", after=30.0
            )
        return self._around.left_alone(ctx)

    async def inputs(self, ctx: Context[MatrixOneCluster]) -> Inputs | Outcome:
        """The declaration and its sets, from the caches."""
        cluster = with_defaults(ctx.obj)
        live = {(kind, one.metadata.name or ""): one for kind in STAGES for one in ctx.children.of(kind)}
        blocked: Wait | Terminal | None = blocked_by(cluster) or _not_yet(cluster)
        if blocked is not None:
            return Inputs(cluster=cluster, live=live, blocked=blocked) if live else blocked
        specs = ClusterSpecs(ctx.obj)  # the sets fill in their own defaults
        wanted = specs.sets()
        made, held = in_order(wanted, live, as_declared)
        secret = ctx.client.find(metadata_of(core.Secret), specs.credential, namespace=ctx.key.namespace)
        return Inputs(
            cluster=cluster,
            live=live,
            wanted=tuple(wanted),
            made=tuple(made),
            held=tuple(held),
            has_credential=secret is not None,
        )

    def children(self, ctx: Context[MatrixOneCluster], inputs: Inputs) -> Outcome | None:
        """The step that brings the sets in line, one stage at a time; those that are no longer declared go."""
        if inputs.blocked is not None:
            return None
        if not inputs.has_credential:
            return ctx.act("MakeCredential", self._make_credential, ctx)
        drift = ctx.children.settle(lambda: inputs.made, given=inputs.held)
        if drift.foreign:
            return ctx.wait(
                "NameTaken", f"{drift.taken}; rename the cluster, or delete that object", stalled=True
            )
        return ctx.act("ApplySets", ctx.children.apply, drift, message=str(drift)) if drift else None

    async def _make_credential(self, ctx: Context[MatrixOneCluster]) -> None:
        """Make the first SQL user's password; a Secret of that name that is there already is used as it is."""
        metadata = meta.ObjectMeta(
            name=ClusterSpecs(ctx.obj).credential,
            namespace=ctx.key.namespace,
            labels={CLUSTER: ctx.key.name},
            owner_references=[owner_reference(ctx.obj)],
        )
        data = {"username": encoded(_USER), "password": encoded(secrets.token_urlsafe(15))}
        try:
            await ctx.client.create(core.Secret(metadata=metadata, type="Opaque", data=data))
        except AlreadyExists:
            ctx.log.info("the Secret with the first SQL user is there already", name=metadata.name)

    async def snapshot(self, ctx: Context[MatrixOneCluster], inputs: Inputs) -> Snapshot:
        """The sets' own reports; nothing is asked."""
        return Snapshot(
            cluster=inputs.cluster,
            wanted=tuple((type(one), one.metadata.name or "") for one in inputs.wanted) or tuple(inputs.live),
            live=inputs.live,
            held=inputs.held,
            blocked=inputs.blocked,
            now=ctx.now(),
        )

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `decide`."""
        return decide(snapshot)

    def report(
        self, ctx: Context[MatrixOneCluster], inputs: Inputs, snapshot: Snapshot, verdict: Verdict
    ) -> Report:
        """See `status`."""
        return report(snapshot, verdict)

    async def step(
        self, ctx: Context[MatrixOneCluster], inputs: Inputs, snapshot: Snapshot, move: Move
    ) -> None:
        """There are no moves beside the sets."""

    async def finalize(self, ctx: Context[MatrixOneCluster]) -> Outcome:
        """Delete the sets from the clients' side: proxies, compute nodes, transaction nodes, then the log service."""
        if (ctx.obj.metadata.annotations or {}).get(SKIP):
            return InSync("its sets go by their owner references")
        sets = [one for kind in STAGES for one in ctx.children.of(kind)]
        move, text = next_deletion(sets, self._around.running(ctx.key))
        if move is not None:
            return ctx.act("DeleteSets", _delete, ctx, move, message=move.why)
        return ctx.wait("Deleting", text, after=2.0) if text else InSync("all sets are gone")


async def _delete(ctx: Context[Any], move: DeleteSets) -> None:
    for one in move.sets:
        await ctx.client.delete(
            type(one), one.metadata.name or "", namespace=ctx.key.namespace, uid=one.metadata.uid
        )


def _not_yet(cluster: MatrixOneCluster) -> Wait | None:
    """What this version does not act on: an empty cluster instead of the restored one would be worse than none."""
    spec = cluster.spec
    if spec is None or not spec.restore_from:
        return None
    text = f"spec.restoreFrom: {spec.restore_from}: this version restores no backups; leave the field out for an empty cluster"
    return Wait("RestoreNotSupported", text, after=300.0, stalled=True)
