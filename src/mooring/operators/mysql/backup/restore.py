"""How a new MySQLCluster begins with a backup: a Job fills the claim of its first pod before any pod is made."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from mooring.actor import Context, Outcome
from mooring.kube.objects import apps
from mooring.operators.backup.restore_rules import Source
from mooring.operators.backup.restores import Restores, made
from mooring.operators.backup.run import Run, agent_image
from mooring.operators.backup.types import FAILED, RestoreFrom, RestoreStatus
from mooring.operators.mysql.backup.jobs import restore_run
from mooring.operators.mysql.backup.types import MySQLBackup
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.specs import DATA
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterSpec, MySQLClusterStatus, Storage
from mooring.operators.workload.claims import claim_name, is_older

__all__ = ["MySQLRestores"]


class MySQLRestores(Restores[MySQLCluster, Inputs]):
    """The restores of MySQLClusters."""

    backups = MySQLBackup

    def declared(self, cluster: MySQLCluster) -> RestoreFrom | None:
        """``spec.restoreFrom``."""
        return (cluster.spec or MySQLClusterSpec()).restore_from

    def recorded(self, cluster: MySQLCluster) -> RestoreStatus | None:
        """``status.restore``."""
        return (cluster.status or MySQLClusterStatus()).restore

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
            return ctx.act("MakeClaim", made, ctx, specs.first_claim(), message=name)
        return None

    def run(self, ctx: Context[MySQLCluster], inputs: Inputs, source: Source, attempt: int) -> Run:
        """See `restore_run`."""
        return restore_run(
            ctx.obj,
            target=source.target,
            prefix=source.prefix,
            flavor=inputs.found.flavor,
            attempt=attempt,
            agent_image=agent_image(),
        )

    def show(self, ctx: Context[MySQLCluster], restore: RestoreStatus) -> None:
        """The phase says it too."""
        phase = "RestoreFailed" if restore.phase == FAILED else "Restoring"
        ctx.show(replace(ctx.obj.status or MySQLClusterStatus(), restore=restore, phase=phase))
