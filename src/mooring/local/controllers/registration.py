"""Puts all controllers on a manager."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mooring.local.controllers.autoscaler import PERIOD, AutoscalerController
from mooring.local.controllers.collector import GarbageCollector
from mooring.local.controllers.context import Context, Recorder
from mooring.local.controllers.cronjob import CronJobController
from mooring.local.controllers.daemonset import DaemonSetController
from mooring.local.controllers.deployment import DeploymentController
from mooring.local.controllers.disruption import DisruptionController
from mooring.local.controllers.endpoints import EndpointsController, EndpointsMirror
from mooring.local.controllers.job import JobController
from mooring.local.controllers.kinds import Kinds
from mooring.local.controllers.namespaces import NamespaceController, NamespaceFurniture
from mooring.local.controllers.nodes import GRACE, NodeLifecycle, PodCollector, TaintEviction
from mooring.local.controllers.replicaset import REPLICATION, SETS, ReplicaSetController
from mooring.local.controllers.rolegathering import RoleGathering
from mooring.local.controllers.scheduler import Scheduler
from mooring.local.controllers.signing import CertificateSigner, Issuer
from mooring.local.controllers.statefulset import StatefulSetController
from mooring.local.controllers.volumes import (
    ClaimController,
    ClaimProtection,
    Directories,
    Provisioner,
    Reclaimer,
    Resizer,
    VolumeController,
    VolumeProtection,
)
from mooring.runtime import EventRecorder, Manager

__all__ = ["register", "register_for_nodes", "register_for_tests"]


def register(
    manager: Manager,
    *,
    volumes: Path,
    authority: str,
    authority_key: Path | None = None,
    locks: Path | None = None,
    node_grace: float = GRACE,
    autoscaler_period: float = PERIOD,
) -> None:
    """Add every controller of the embedded control plane to ``manager``.

    ``volumes`` is the directory that provisioned volumes are made in, ``locks`` that of the node's volume
    locks (default: ``node/locks`` beside it), ``authority`` the PEM text of the API server's authority, which
    every namespace gets as ConfigMap ``kube-root-ca.crt``; with ``authority_key``, the file of its key, approved
    CertificateSigningRequests are signed. ``node_grace``: seconds of silence after which a
    node counts as lost (50); ``autoscaler_period``: seconds between two looks at an autoscaler (15).
    """
    sources = _Sources(manager)
    context = Context(manager.client, manager.informers, manager.clock, sources.of)
    directories = _directories(volumes, locks)
    kinds = Kinds(context)
    collector = GarbageCollector(context, kinds)
    manager.serve("kinds", kinds.run)
    manager.serve("garbage collector", collector.run)
    for part in (
        collector,
        NamespaceController(context, kinds, collector),
        NamespaceFurniture(context, authority),
        RoleGathering(context),
        DisruptionController(context, kinds),
        StatefulSetController(context),
        ReplicaSetController(context, SETS),
        ReplicaSetController(context, REPLICATION),
        DeploymentController(context),
        DaemonSetController(context),
        JobController(context),
        CronJobController(context),
        AutoscalerController(context, kinds, period=autoscaler_period),
        EndpointsController(context),
        EndpointsMirror(context),
        ClaimController(context),
        VolumeController(context),
        Provisioner(context, directories),
        Reclaimer(context, directories),
        Resizer(context),
        ClaimProtection(context),
        VolumeProtection(context),
        Scheduler(context),
        NodeLifecycle(context, grace=node_grace),
        TaintEviction(context),
        PodCollector(context),
    ):
        manager.add(part.controller())
    if authority_key is not None:
        signer = CertificateSigner(context, Issuer.load(authority.encode(), authority_key))
        manager.add(signer.controller())


def register_for_nodes(manager: Manager, *, volumes: Path, locks: Path | None = None) -> None:
    """Add what nodes of ours need on another API server, whose own controllers do the rest.

    That is the scheduler, and what makes, enlarges and removes volumes; ``volumes`` and ``locks`` as for `register`.
    """
    context = Context(manager.client, manager.informers, manager.clock, _Sources(manager).of)
    directories = _directories(volumes, locks)
    for part in (
        Scheduler(context),
        Provisioner(context, directories),
        Reclaimer(context, directories),
        Resizer(context),
    ):
        manager.add(part.controller())


def register_for_tests(
    manager: Manager, *, directories: Directories, endpoints: bool, budgets: bool = False
) -> None:
    """Add what workloads need of a cluster whose nodes are simulated and never fail.

    Left out are the life of nodes, autoscaling, signing, cron and roles, and where it is asked for the addresses
    behind Services; ``budgets`` adds what evictions go by; ``directories`` makes those of volumes.
    """
    sources = _Sources(manager)
    context = Context(manager.client, manager.informers, manager.clock, sources.of)
    kinds = Kinds(context)
    collector = GarbageCollector(context, kinds)
    manager.serve("kinds", kinds.run)
    manager.serve("garbage collector", collector.run)
    for part in (
        collector,
        NamespaceController(context, kinds, collector),
        NamespaceFurniture(context, "no authority"),
        StatefulSetController(context),
        ReplicaSetController(context, SETS),
        DeploymentController(context),
        DaemonSetController(context),
        JobController(context),
        *([EndpointsController(context)] if endpoints else ()),
        *([DisruptionController(context, kinds)] if budgets else ()),
        ClaimController(context),
        VolumeController(context),
        Provisioner(context, directories),
        Reclaimer(context, directories),
        Resizer(context),
        ClaimProtection(context),
        Scheduler(context),
    ):
        manager.add(part.controller())


def _directories(volumes: Path, locks: Path | None) -> Directories:
    return Directories(volumes, locks or volumes.parent / "node" / "locks")


class _Sources:
    """Event recorders by the name of their source."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._made: dict[str, EventRecorder] = {}

    def of(self, name: str) -> Recorder:
        """The recorder of a source, started with the manager."""
        if name not in self._made:
            manager = self._manager
            recorder = EventRecorder(
                manager.client.live, controller=name, clock=manager.clock, metrics=manager.metrics
            )
            self._made[name] = recorder
            manager.serve(f"events of {name}", lambda: _record(recorder))
        return self._made[name]


async def _record(recorder: EventRecorder) -> None:
    recorder.start()
    try:
        await asyncio.Event().wait()
    finally:
        await recorder.stop()
