"""The actor of MatrixOneClusters: the rooms of a pass put together."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from msgspec.structs import replace

from mooring.actor import Context, InSync, Move, Outcome, Planned, Related, Report, Terminal, Verdict, Wait
from mooring.cache import rfc3339
from mooring.kube.errors import AlreadyExists, NotFound
from mooring.kube.object import Key, Object, metadata_of, owner_reference
from mooring.kube.objects import core, meta
from mooring.operators.matrixone.backup.records import source_of
from mooring.operators.matrixone.cluster import metrics
from mooring.operators.matrixone.cluster import restore as restoring
from mooring.operators.matrixone.cluster.scale import asked_about, scaled
from mooring.operators.matrixone.cluster.stages import STAGES, DeleteSets, Held, in_order, next_deletion
from mooring.operators.matrixone.cluster.status import Snapshot, decide, report
from mooring.operators.matrixone.conditions import as_before
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.depends import as_declared
from mooring.operators.matrixone.names import CLUSTER, SQL
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.specs import ClusterSpecs
from mooring.operators.matrixone.sql import Login, SqlFailed
from mooring.operators.matrixone.takeover import TAKE_OVER, not_asked
from mooring.operators.matrixone.takeover_steps import held_by_upstream
from mooring.operators.matrixone.types import (
    Backup,
    ClusterMetrics,
    ClusterRestore,
    LogSet,
    MatrixOneCluster,
    MatrixOneClusterStatus,
    RestoreJob,
)
from mooring.operators.workload.containers import encoded
from mooring.operators.workload.credentials import secret_value
from mooring.operators.workload.ownership import SizeOwners

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
    scalers: Mapping[str, str] = field(default_factory=dict)
    """Who sets the number of pods by the scale subresource, by the name of the CNSet."""
    has_credential: bool = False
    lacks_reader: bool = False
    """The Secret of the SQL user that is to read the metrics is missing."""
    reader: metrics.Reader | None = None
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
    ready_metric = "mooring_matrixone_cluster_ready"
    related = (
        Related(core.Pod, _cluster_of, label_selector=CLUSTER),
        Related(RestoreJob, lambda job: _restored_cluster(job)),
    )

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._owners = SizeOwners(around.live, "replicas")
        self._tried: dict[Key, float] = {}
        """When the SQL user that reads the metrics could not be made; forgotten with the process, which tries at once."""

    def forget(self, key: Key) -> None:
        """Drop what was read of its CNSets."""
        self._owners.forget_below(key)
        self._tried.pop(key, None)

    async def precede(self, ctx: Context[MatrixOneCluster]) -> Outcome | None:
        """What is to be left alone is."""
        notes = ctx.obj.metadata.annotations or {}
        if notes.get(SKIP):
            return InSync(f"the annotation {SKIP} leaves it alone")
        if PAUSE in notes:
            return Wait(
                "Paused", f"the annotation {PAUSE} holds the operator back; remove it to go on", after=30.0
            )
        if (waits := self._around.left_alone(ctx)) is not None:
            return waits
        theirs = self._around.of_openkruise(one for kind in STAGES for one in ctx.children.of(kind))
        if theirs and notes.get(TAKE_OVER) != "true":
            as_before(ctx)
            name = f"{ctx.obj.resource.kind} {ctx.key.name}"
            return not_asked(name, name, theirs)
        return None

    async def inputs(self, ctx: Context[MatrixOneCluster]) -> Inputs | Outcome:
        """The declaration and its sets, from the caches."""
        cluster = with_defaults(ctx.obj)
        live = {(kind, one.metadata.name or ""): one for kind in STAGES for one in ctx.children.of(kind)}
        log_set = live.get((LogSet, ctx.key.name))
        assert log_set is None or isinstance(log_set, LogSet)
        blocked: Wait | Terminal | None = blocked_by(cluster) or restoring.refused(ctx.obj, log_set)
        if blocked is not None:
            return Inputs(cluster=cluster, live=live, blocked=blocked) if live else blocked
        secret = ctx.client.find(
            metadata_of(core.Secret), ClusterSpecs(ctx.obj).credential, namespace=ctx.key.namespace
        )
        if _restores(ctx.obj):
            log_set = log_set or await ctx.client.refresh(LogSet, ctx.key.name, namespace=ctx.key.namespace)
            if (first := await self._restore(ctx, log_set, has_credential=secret is not None)) is not None:
                return first
        # The sets fill in their own defaults.
        specs = ClusterSpecs(ctx.obj, restored=restoring.from_backup(ctx.obj, log_set))
        wanted = specs.sets()
        owners = {one.metadata.name or "": await self._owners.of(one) for one in asked_about(wanted, live)}
        wanted, scalers = scaled(wanted, live, owners)
        made, held = in_order(wanted, live, as_declared)
        return Inputs(
            cluster=cluster,
            live=live,
            wanted=tuple(wanted),
            made=tuple(made),
            held=tuple(held),
            scalers=scalers,
            has_credential=secret is not None,
            lacks_reader=metrics.is_wanted(cluster) and self._find_secret(ctx, specs.metrics) is None,
            reader=self._reader(ctx),
        )

    def _find_secret(self, ctx: Context[MatrixOneCluster], name: str) -> Object | None:
        return ctx.client.find(metadata_of(core.Secret), name, namespace=ctx.key.namespace)

    def _reader(self, ctx: Context[MatrixOneCluster]) -> metrics.Reader | None:
        """The SQL user that reads the metrics, where it is wanted and not made yet."""
        known = ctx.obj.status.cluster_metrics if ctx.obj.status is not None else None
        if not metrics.is_wanted(ctx.obj) or (known is not None and known.initialized):
            return None
        pods = self._around.compute_nodes(ctx.key.namespace)
        mine = [one for one in pods if (one.metadata.labels or {}).get(CLUSTER) == ctx.key.name]
        pod, tried = metrics.serving(mine), self._tried.get(ctx.key)
        if pod is None or pod.status is None:
            return metrics.Reader()
        after = 0.0 if tried is None else max(0.0, tried + metrics.AGAIN - ctx.clock.monotonic())
        return metrics.Reader(pod=pod.metadata.name or "", address=pod.status.pod_ip or "", after=after)

    async def _restore(
        self, ctx: Context[MatrixOneCluster], log_set: LogSet | None, *, has_credential: bool
    ) -> Outcome | None:
        """What comes before the sets of a cluster that begins with a backup; ``None``: nothing does."""
        name = restoring.restore_job(ctx.obj).metadata.name or ""
        job = ctx.client.find(RestoreJob, name, namespace=ctx.key.namespace)
        if job is None and log_set is None:
            job = await ctx.client.refresh(RestoreJob, name, namespace=ctx.key.namespace)
        verdict = restoring.restore(ctx.obj, log_set, job)
        if isinstance(verdict, restoring.BeginRestore) and not has_credential:
            return await self._credential(ctx, verdict.backup)
        if not isinstance(verdict, Move):
            return verdict
        return ctx.act(verdict.name, self._restore_step, ctx, verdict, message=verdict.why)

    async def _credential(self, ctx: Context[MatrixOneCluster], backup: str) -> Outcome:
        """The first SQL user has the password of the cluster that the backup is of: it is in the data."""
        name, namespace = ClusterSpecs(ctx.obj).credential, ctx.key.namespace
        found = await ctx.client.refresh(Backup, backup)
        if found is None:
            text = f"spec.restoreFrom: the Backup {backup} does not exist; correct the name in a new cluster"
            return ctx.wait("BackupNotFound", text, after=10.0, stalled=True)
        where, source = source_of(found)
        secret = None
        if where == namespace and source:
            secret = await ctx.client.refresh(core.Secret, f"{source}-credential", namespace=namespace)
        if secret is None:
            text = (
                f"the data has the SQL users of the cluster that the backup is of; make the Secret {name} with "
                f"username and password of its first one ({_USER})"
            )
            return ctx.wait("CredentialNeeded", text, after=10.0, stalled=True)
        data = {key: value for key, value in (secret.data or {}).items() if key in ("username", "password")}
        return ctx.act("CopyCredential", self._make_credential, ctx, data)

    async def _restore_step(self, ctx: Context[MatrixOneCluster], move: Move) -> None:
        """Make the RestoreJob, or record how far the restore is; the record comes before what follows from it."""
        status = ctx.obj.status or MatrixOneClusterStatus()
        known = status.restore or ClusterRestore()
        match move:
            case restoring.MakeRestoreJob():
                await ctx.client.ensure(restoring.restore_job(ctx.obj))
                return
            case restoring.BeginRestore(backup=backup):
                known = ClusterRestore(
                    backup=backup,
                    phase=restoring.RESTORING,
                    job=restoring.restore_job(ctx.obj).metadata.name,
                    started_at=rfc3339(ctx.now()),
                )
            case restoring.Restored(position=position, at=at):
                known = replace(
                    known, phase=restoring.RESTORED, position=position or None, finished_at=at or None
                )
            case restoring.Founded():
                known = replace(known, phase=restoring.FOUNDED)
        ctx.show(replace(status, phase=status.phase or "NotReady", restore=known))
        await ctx.record()

    def children(self, ctx: Context[MatrixOneCluster], inputs: Inputs) -> Outcome | None:
        """The step that brings the sets in line, one stage at a time; those that are no longer declared go."""
        if inputs.blocked is not None:
            return None
        if not inputs.has_credential:
            return ctx.act("MakeCredential", self._make_credential, ctx)
        if inputs.lacks_reader:
            return ctx.act("MakeMetricSecret", self._make_metric_secret, ctx)
        drift = ctx.children.settle(lambda: inputs.made, given=inputs.held)
        if drift.foreign:
            return ctx.wait(
                "NameTaken", f"{drift.taken}; rename the cluster, or delete that object", stalled=True
            )
        return ctx.act("ApplySets", ctx.children.apply, drift, message=str(drift)) if drift else None

    async def _make_credential(
        self, ctx: Context[MatrixOneCluster], data: Mapping[str, str] | None = None
    ) -> None:
        """Make the first SQL user's password; a Secret of that name that is there already is used as it is."""
        made = {"username": encoded(_USER), "password": encoded(secrets.token_urlsafe(15))}
        await self._make_secret(ctx, ClusterSpecs(ctx.obj).credential, dict(data or made))

    async def _make_metric_secret(self, ctx: Context[MatrixOneCluster]) -> None:
        """Make the password of the SQL user that reads the metrics; that the user follows is recorded before."""
        name, status = ClusterSpecs(ctx.obj).metrics, ctx.obj.status or MatrixOneClusterStatus()
        known = ClusterMetrics(secret_ref=core.LocalObjectReference(name=name), initialized=False)
        ctx.show(replace(status, phase=status.phase or "NotReady", cluster_metrics=known))
        await ctx.record()
        made = {"username": encoded(metrics.USER), "password": encoded(secrets.token_urlsafe(15))}
        await self._make_secret(ctx, name, made)

    async def _make_secret(self, ctx: Context[MatrixOneCluster], name: str, data: dict[str, str]) -> None:
        metadata = meta.ObjectMeta(
            name=name,
            namespace=ctx.key.namespace,
            labels={CLUSTER: ctx.key.name},
            owner_references=[owner_reference(ctx.obj)],
        )
        try:
            await ctx.client.create(core.Secret(metadata=metadata, type="Opaque", data=data))
        except AlreadyExists:
            ctx.log.info("the Secret with a SQL user is there already", name=name)

    async def snapshot(self, ctx: Context[MatrixOneCluster], inputs: Inputs) -> Snapshot:
        """The sets' own reports; nothing is asked."""
        return Snapshot(
            cluster=inputs.cluster,
            wanted=tuple((type(one), one.metadata.name or "") for one in inputs.wanted) or tuple(inputs.live),
            live=inputs.live,
            held=inputs.held,
            scalers=inputs.scalers,
            blocked=inputs.blocked,
            reader=inputs.reader,
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
    ) -> MatrixOneClusterStatus | None:
        """Make the SQL user that reads the metrics: the only move beside the sets."""
        assert isinstance(move, metrics.MakeReader)
        failure: tuple[str, str] | None = None
        try:
            await self._make_reader(ctx, move)
        except SqlFailed as error:
            failure = error.reason, f"{error}; it is tried again every {metrics.AGAIN:g} s"
            self._tried[ctx.key] = ctx.clock.monotonic()
        else:
            self._tried.pop(ctx.key, None)
        await ctx.did(f"{move.pod}: the user that reads the metrics")
        return metrics.reported(
            cast("MatrixOneClusterStatus", ctx.status),
            secret=ClusterSpecs(ctx.obj).metrics,
            failure=failure,
            generation=ctx.obj.metadata.generation,
            now=ctx.now(),
        )

    async def _make_reader(self, ctx: Context[MatrixOneCluster], move: metrics.MakeReader) -> None:
        specs, namespace = ClusterSpecs(ctx.obj), ctx.key.namespace
        first = await self._read(ctx, specs.credential)
        reader = await self._read(ctx, specs.metrics)
        try:
            made = metrics.statements(secret_value(reader, "password"))
        except ValueError as error:
            raise SqlFailed(
                "InvalidSecret", f"the Secret {specs.metrics} {error}; delete it to have another made"
            ) from None
        login = Login(user=secret_value(first, "username") or _USER, password=secret_value(first, "password"))
        await self._around.sql.run(move.address, SQL, login, made, where=f"{namespace}/{move.pod}")

    async def _read(self, ctx: Context[MatrixOneCluster], name: str) -> core.Secret:
        """A Secret, as it is now; it is not kept."""
        try:
            return await ctx.client.live.get(core.Secret, name, namespace=ctx.key.namespace)
        except NotFound:
            raise SqlFailed("SecretNotFound", f"the Secret {name} does not exist") from None

    async def finalize(self, ctx: Context[MatrixOneCluster]) -> Outcome:
        """Delete the sets from the clients' side: proxies, compute nodes, transaction nodes, then the log service."""
        if (ctx.obj.metadata.annotations or {}).get(SKIP):
            return InSync("its sets go by their owner references")
        sets = [one for kind in STAGES for one in ctx.children.of(kind)]
        if (waits := self._around.left_alone(ctx) or held_by_upstream(ctx, sets)) is not None:
            return waits
        move, text = next_deletion(sets, self._around.running(ctx.key))
        if move is not None:
            return ctx.act("DeleteSets", _delete, ctx, move, message=move.why)
        return ctx.wait("Deleting", text, after=2.0) if text else InSync("all sets are gone")


async def _delete(ctx: Context[Any], move: DeleteSets) -> None:
    for one in move.sets:
        await ctx.client.delete(
            type(one), one.metadata.name or "", namespace=ctx.key.namespace, uid=one.metadata.uid
        )


def _restores(cluster: MatrixOneCluster) -> bool:
    """It is to begin with a backup, or did."""
    asked = cluster.spec is not None and bool(cluster.spec.restore_from)
    return asked or (cluster.status is not None and cluster.status.restore is not None)


def _restored_cluster(job: RestoreJob) -> list[Key]:
    names = [one.name for one in job.metadata.owner_references or () if one.kind == "MatrixOneCluster"]
    return [Key(job.metadata.namespace or "", name) for name in names if name]
