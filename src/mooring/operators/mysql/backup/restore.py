"""How a new MySQLCluster begins with a backup: a Job fills the claim of its first pod before any pod is made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace as changed
from datetime import datetime

from msgspec.structs import asdict, replace

from mooring.actor import Context, Outcome, Terminal, Wait
from mooring.cache import NotCached
from mooring.kube.objects import apps
from mooring.operators.backup.restore_rules import Settle, Source, source_of
from mooring.operators.backup.restores import VolumeRestores
from mooring.operators.backup.run import Run, agent_image
from mooring.operators.backup.types import FAILED, RestoreFrom, RestoreStatus
from mooring.operators.mysql.backup.jobs import restore_run
from mooring.operators.mysql.backup.nearest import nearest
from mooring.operators.mysql.backup.types import MySQLBackup
from mooring.operators.mysql.flavors import flavor_of
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.specs import DATA
from mooring.operators.mysql.types import (
    DEFAULT_IMAGE,
    MySQLCluster,
    MySQLClusterSpec,
    MySQLClusterStatus,
    MySQLRestoreStatus,
    RestoreFromSpec,
    Storage,
)
from mooring.operators.workload.claims import claim_name, is_older, make_claim

__all__ = ["MySQLRestores", "reached"]


class MySQLRestores(VolumeRestores[MySQLCluster, Inputs]):
    """The restores of MySQLClusters."""

    backups = MySQLBackup

    def declared(self, cluster: MySQLCluster) -> RestoreFrom | None:
        """``spec.restoreFrom``."""
        return (cluster.spec or MySQLClusterSpec()).restore_from

    def recorded(self, cluster: MySQLCluster) -> RestoreStatus | None:
        """``status.restore``."""
        return (cluster.status or MySQLClusterStatus()).restore

    def _source(self, ctx: Context[MySQLCluster], declared: RestoreFrom) -> Source | Wait | Terminal:
        """Of a cluster that is named the newest backup before the point in time."""
        cluster = declared.cluster if isinstance(declared, RestoreFromSpec) else None
        point = declared.point_in_time if isinstance(declared, RestoreFromSpec) else None
        if not cluster or point is None:
            return super()._source(ctx, declared)
        spec = ctx.obj.spec or MySQLClusterSpec()
        try:
            backups = ctx.client.list(MySQLBackup, namespace=ctx.key.namespace)
        except NotCached:  # the operator began without its backups
            backups = []
        flavor = flavor_of(spec.image or DEFAULT_IMAGE, spec.flavor) or "mariadb"
        known = self.recorded(ctx.obj) or RestoreStatus()
        began = (known.backup or "") if known.tries else ""
        source = ctx.client.find(ctx.obj.__class__, cluster, namespace=ctx.key.namespace)
        archive = source.spec.archive if source is not None and source.spec is not None else None
        archived = archive.target if archive is not None else None
        found = nearest(backups, cluster, point, flavor=flavor, began=began, archived=archived)
        if isinstance(found, Wait):
            return found
        return source_of(RestoreFrom(backup=found.metadata.name), found, kind=MySQLBackup.resource.kind)

    def settled(self, ctx: Context[MySQLCluster], settled: Settle) -> Settle:
        """With the transaction at which a point in time ends."""
        look = self._looks.get(ctx.key)
        facts = look.run.facts if look is not None and look.run is not None else {}
        return changed(settled, status=reached(settled.status, facts))

    def lives(self, ctx: Context[MySQLCluster]) -> bool:
        """It has a StatefulSet."""
        return ctx.children.find(apps.StatefulSet, ctx.key.name) is not None

    def unfit(self, cluster: MySQLCluster) -> str:
        """A restore fills a claim."""
        storage = (cluster.spec or MySQLClusterSpec()).storage or Storage()
        return (
            "spec.storage.emptyDir: a restore needs claims; remove it, or spec.restoreFrom"
            if storage.empty_dir is not None
            else ""
        )

    def prepare(self, ctx: Context[MySQLCluster], inputs: Inputs) -> Outcome | None:
        """The Secrets and the claim of the first pod; one of an earlier cluster is never written to."""
        specs = inputs.specs
        name = claim_name(DATA, specs.names.pod(0))
        claim = inputs.around.claims.get(name)
        born = datetime.fromisoformat(ctx.obj.metadata.creation_timestamp or "")
        if claim is not None and is_older(claim, born):
            text = (
                f"spec.restoreFrom: the claim {name} is of an earlier cluster and may hold data; a restore never runs on "
                "it. To go on with the data that is there, remove spec.restoreFrom; to restore, choose another name"
            )
            return ctx.wait("ClaimInUse", text, after=30.0, stalled=True)
        drift = ctx.children.diff(
            [specs.secret(), specs.secret_copy(), *specs.certificates()], unowned=specs.unowned()
        )
        if drift:
            return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift))
        if claim is None:
            return ctx.act("MakeClaim", make_claim, ctx, specs.first_claim(), message=name)
        return None

    def run(self, ctx: Context[MySQLCluster], inputs: Inputs, source: Source, attempt: int) -> Run:
        """See `restore_run`."""
        declared = (ctx.obj.spec or MySQLClusterSpec()).restore_from
        return restore_run(
            ctx.obj,
            target=source.target,
            prefix=source.prefix,
            flavor=inputs.found.flavor,
            attempt=attempt,
            agent_image=agent_image(),
            point=declared.point_in_time if declared is not None else None,
        )

    def show(self, ctx: Context[MySQLCluster], restore: RestoreStatus) -> None:
        """The phase says it too."""
        phase = "RestoreFailed" if restore.phase == FAILED else "Restoring"
        ctx.show(replace(ctx.obj.status or MySQLClusterStatus(), restore=reached(restore, {}), phase=phase))


def reached(restore: RestoreStatus, facts: Mapping[str, str]) -> MySQLRestoreStatus:
    """The status with what the restore found out about its end."""
    status = MySQLRestoreStatus(**asdict(restore))
    if not facts.get("transaction"):
        return status
    with suppress(ValueError):
        status = replace(status, committed_at=datetime.fromisoformat(facts.get("committed", "")))
    return replace(status, transaction=facts["transaction"])
