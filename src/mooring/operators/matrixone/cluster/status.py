"""What a cluster reports of its sets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from mooring.actor import ConditionState, InSync, Report, Terminal, Verdict, Wait, not_ready
from mooring.kube.object import Object
from mooring.kube.objects import core
from mooring.operators.matrixone.cluster.metrics import MakeReader, Reader, is_wanted, without_reader
from mooring.operators.matrixone.cluster.stages import Held
from mooring.operators.matrixone.cnset.snapshot import PROXIES_LEARN
from mooring.operators.matrixone.conditions import with_condition
from mooring.operators.matrixone.depends import as_declared
from mooring.operators.matrixone.names import SQL
from mooring.operators.matrixone.specs import ClusterSpecs
from mooring.operators.matrixone.types import (
    CNGroupsStatus,
    CNGroupStatus,
    CNSet,
    DNSet,
    LogSet,
    MatrixOneCluster,
    MatrixOneClusterStatus,
    ProxySet,
    WebUI,
)

__all__ = ["Snapshot", "decide", "report"]

_READY = {
    LogSet: "LogServiceNotReady",
    DNSet: "DNSetNotReady",
    CNSet: "SomeCNSetsAreNotReady",
    ProxySet: "ProxySetNotReady",
}
_SYNCED = {
    LogSet: "LogServiceNotSynced",
    DNSet: "DNSetNotSynced",
    CNSet: "SomeCNSetsAreNotSynced",
    ProxySet: "ProxyNotSynced",
}
_AS_DECLARED = "every set is ready and as declared"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A cluster and its sets at one moment."""

    cluster: MatrixOneCluster = field(repr=False)
    wanted: tuple[tuple[type[Object], str], ...]
    """Kind and name of every declared set, in the order of the stages."""
    live: Mapping[tuple[type[Object], str], Object] = field(repr=False)
    held: tuple[Held, ...] = ()
    scalers: Mapping[str, str] = field(default_factory=dict)
    """Who sets the number of pods by the scale subresource, by the name of the CNSet."""
    blocked: Wait | Terminal | None = None
    reader: Reader | None = None
    """The SQL user that reads the metrics, where it is still to be made."""
    now: datetime


def decide(snapshot: Snapshot) -> Verdict:
    """The sets do the work; the cluster waits for them."""
    for key in snapshot.wanted:
        kind, name = key
        one = snapshot.live.get(key)
        text = as_declared(one) if one is not None else "is being made"
        if text:
            rest = f"; {len(snapshot.held)} changes wait for it" if snapshot.held else ""
            reason = _SYNCED.get(kind, f"{kind.resource.kind}NotSynced")
            return Wait(reason, f"{kind.resource.kind} {name} {text}{rest}", after=30.0)
    if snapshot.held:
        first = snapshot.held[0]
        text = f"{first.kind} {first.name} is changed once it is done: {first.waits_for}"
        return Wait("ChangeHeldBack", text, after=1.0)
    if text := _proxies_learn(snapshot):
        return Wait("ProxiesLearning", text, after=1.0)
    reader = snapshot.reader
    if reader is None or not reader.pod:
        return InSync(_AS_DECLARED)
    if reader.after > 0.0:
        return InSync(_AS_DECLARED, again=reader.after)
    why = f"the user that reads the metrics is made on {reader.pod}"
    return MakeReader(pod=reader.pod, address=reader.address, why=why)


def report(snapshot: Snapshot, verdict: Verdict) -> Report:
    """The status and readiness of one pass."""
    cluster, now = snapshot.cluster, snapshot.now
    before = cluster.status or MatrixOneClusterStatus()
    ready = _readiness(snapshot)
    log, dn, proxy, webui = (_status(snapshot, kind) for kind in (LogSet, DNSet, ProxySet, WebUI))
    groups = _groups(snapshot)
    first = next(
        (one for key, one in snapshot.live.items() if key[0] is CNSet and key in snapshot.wanted), None
    )
    entry = proxy if proxy is not None else getattr(first, "status", None)
    # Clients are served without the user that reads the metrics: that has a condition of its own.
    shown = snapshot.blocked or (InSync(_AS_DECLARED) if isinstance(verdict, MakeReader) else verdict)
    synced = isinstance(shown, InSync)
    status = replace(
        before,
        phase="Ready" if ready.status else "NotReady",
        credential_ref=core.LocalObjectReference(name=ClusterSpecs(cluster).credential),
        log_service=log,
        dn=dn,
        proxy=proxy,
        webui=webui,
        cn_groups=groups,
        host=getattr(entry, "host", None),
        port=getattr(entry, "port", None) or (SQL if entry is not None else None),
        conditions=with_condition(
            before.conditions if is_wanted(cluster) else without_reader(before.conditions),
            "Synced",
            synced,
            "AllSetsSynced" if isinstance(shown, InSync) else getattr(shown, "reason", "Changing"),
            shown.why if not isinstance(shown, InSync | Wait | Terminal) else shown.message,
            generation=cluster.metadata.generation,
            now=now,
        ),
    )
    return Report(status=status, ready=ready, instead=snapshot.blocked)


def _readiness(snapshot: Snapshot) -> ConditionState:
    for key in snapshot.wanted:
        kind, name = key
        if kind is WebUI:
            continue  # clients do without
        one = snapshot.live.get(key)
        text = not_ready(one) if one is not None else "is being made"
        if text:
            reason = _READY.get(kind, f"{kind.resource.kind}NotReady")
            return ConditionState(False, reason, f"{kind.resource.kind} {name} {text}")
    if text := _proxies_learn(snapshot):
        return ConditionState(False, "ProxySetNotReady", text)
    return ConditionState(True, "AllSetsReady", "every set is ready")


def _proxies_learn(snapshot: Snapshot) -> str:
    """Why the proxies may not know of any compute node yet, "" when they do."""
    if not any(kind is ProxySet for kind, _ in snapshot.wanted):
        return ""
    sets = [one for (kind, _), one in snapshot.live.items() if kind is CNSet and isinstance(one, CNSet)]
    stores = [store for one in sets if one.status is not None for store in one.status.stores or ()]
    up = [
        datetime.fromisoformat(one.since) for one in stores if one.state in ("Up", "Outdated") and one.since
    ]
    if any((snapshot.now - since).total_seconds() >= PROXIES_LEARN for since in up) or not sets:
        return ""
    return f"proxies learn of the first compute node within {PROXIES_LEARN:.0f} s"


def _status(snapshot: Snapshot, kind: type[Object]) -> Any:
    """The status of the one set of a kind, as it is."""
    keys = [key for key in snapshot.wanted if key[0] is kind]
    found = snapshot.live.get(keys[0]) if keys else None
    return getattr(found, "status", None)


def _groups(snapshot: Snapshot) -> CNGroupsStatus:
    sets: Sequence[tuple[str, Object | None]] = [
        (name, snapshot.live.get((kind, name))) for kind, name in snapshot.wanted if kind is CNSet
    ]
    prefix = f"{snapshot.cluster.metadata.name}-"
    groups = [
        CNGroupStatus(
            name=name.removeprefix(prefix),
            host=getattr(getattr(one, "status", None), "host", None),
            ready=one is not None and not not_ready(one),
            synced=one is not None and not as_declared(one),
            replicas=one.spec.replicas if isinstance(one, CNSet) and one.spec is not None else None,
            scaled_by=snapshot.scalers.get(name),
        )
        for name, one in sets
    ]
    return CNGroupsStatus(
        desired_groups=len(groups),
        ready_groups=sum(bool(one.ready) for one in groups),
        synced_groups=sum(bool(one.synced) for one in groups),
        groups=groups or None,
    )
