"""Decisions about log sets and compute nodes as files; see `workload.saved`.

What the operator takes from its caches is read from the API server here, and the log service is asked in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from mooring.cache import SystemClock
from mooring.kube.client import Client
from mooring.kube.errors import NotFound
from mooring.kube.object import Key, Object, key_of
from mooring.kube.objects import apps, core
from mooring.operators.matrixone.cnset import inputs as cn
from mooring.operators.matrixone.cnset import plan as cn_plan
from mooring.operators.matrixone.cnset.snapshot import Snapshot as CNSnapshot
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.depends import as_declared, dn_set_of, log_set_of
from mooring.operators.matrixone.logset import inputs as log
from mooring.operators.matrixone.logset import plan as log_plan
from mooring.operators.matrixone.logset.snapshot import Snapshot as LogSnapshot
from mooring.operators.matrixone.look import Keeper, Seen
from mooring.operators.matrixone.names import CN_UUID, LogNames, labels_of
from mooring.operators.matrixone.rpc.dial import Dial
from mooring.operators.matrixone.sets import blocked_by
from mooring.operators.matrixone.specs import CNSpecs, LogService, LogSpecs
from mooring.operators.matrixone.stateful import Found
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet
from mooring.operators.operator import Replayed, SavedDecision
from mooring.operators.workload.saved import Form, NotDecided, form_of

__all__ = ["LOG", "NODES", "replay", "save"]

T = TypeVar("T", bound=Object)
LOG: Final = Form("mooring/matrixone/log/1", LogSnapshot)
NODES: Final = Form("mooring/matrixone/cn/1", CNSnapshot)


async def save(client: Client, one: Object) -> SavedDecision:
    """Ask the API server and HAKeeper, as the operator does; reads only."""
    match one:
        case LogSet():
            log_snapshot = await _log(client, one)
            silent = [each.pod.name for each in log_snapshot.members if not log_snapshot.serves(each)]
            return SavedDecision(content=LOG.dump(log_snapshot), silent=silent)
        case CNSet():
            snapshot = await _nodes(client, one)
            silent = [each.pod.name for each in snapshot.members if not snapshot.heard(each)]
            return SavedDecision(content=NODES.dump(snapshot), silent=silent)
    kind = one.resource.kind
    raise NotDecided(f"a decision is saved of a LogSet or a CNSet, not of a {kind}; name one of its sets")


async def _log(client: Client, one: LogSet) -> LogSnapshot:
    log_set = with_defaults(one)
    namespace = log_set.metadata.namespace or ""
    pods, claims = await _pods(client, log_set), await _claims(client, log_set)
    found = Found(
        set=await _find(client, apps.StatefulSet, LogNames(log_set).main, namespace), pods=pods, claims=claims
    )
    made = log.Inputs(
        log_set=log_set, found=found, asked=LogSpecs(log_set).inputs(), blocked=blocked_by(log_set)
    )
    return log.snapshot_of(made, await _see(key_of(log_set), pods), now=datetime.now(UTC))


async def _nodes(client: Client, one: CNSet) -> CNSnapshot:
    cn_set = with_defaults(one)
    key, dn_key = log_set_of(cn_set), dn_set_of(cn_set)
    log_set = await _find(client, LogSet, key.name, key.namespace) if key is not None else None
    if log_set is None or key is None:
        raise NotDecided("the LogSet that deps.logSet names does not exist")
    dn_set = await _find(client, DNSet, dn_key.name, dn_key.namespace) if dn_key is not None else None
    pods = await _pods(client, cn_set)
    trouble = [
        f"{each.resource.kind} {text}" for each in (log_set, dn_set) if each and (text := as_declared(each))
    ]
    full = with_defaults(log_set)
    stores = await _pods(client, log_set)
    others = await _pods(client, dn_set) if dn_set is not None else ()
    asked = [labels for pod in pods if (labels := (pod.metadata.labels or {}).get(CN_UUID, ""))]
    made = cn.Inputs(
        cn_set=cn_set,
        log_set=full,
        pods=pods,
        claims=await _claims(client, cn_set),
        cordoned=frozenset([name async for name in _cordoned(client, pods)]),
        revision=CNSpecs(cn_set, LogService.of(full)).inputs(),
        waiting="; ".join(trouble),
        begun=one.status is not None and one.status.host is not None,
        blocked=blocked_by(cn_set),
    )
    seen = await _see(key, stores, others, ask=asked)
    return cn.snapshot_of(made, seen, gave_locks=(), now=datetime.now(UTC))


async def _see(key: Key, stores: tuple[core.Pod, ...], others: tuple[core.Pod, ...] = (), **how: Any) -> Seen:
    return await Keeper(Dial(), SystemClock()).see(key, stores, others, twice=True, **how)


async def _find(client: Client, kind: type[Any], name: str, namespace: str) -> Any:
    try:
        return await client.get(kind, name, namespace=namespace)
    except NotFound:
        return None


async def _pods(client: Client, owner: Object) -> tuple[core.Pod, ...]:
    return await _labelled(client, core.Pod, owner)


async def _claims(client: Client, owner: Object) -> tuple[core.PersistentVolumeClaim, ...]:
    return await _labelled(client, core.PersistentVolumeClaim, owner)


async def _labelled(client: Client, kind: type[T], owner: Object) -> tuple[T, ...]:
    selector = ",".join(f"{key}={value}" for key, value in labels_of(owner).items())
    found = await client.list(kind, namespace=owner.metadata.namespace or "", label_selector=selector)
    return tuple(found.items)


async def _cordoned(client: Client, pods: tuple[core.Pod, ...]) -> Any:
    for name in {pod.spec.node_name for pod in pods if pod.spec is not None and pod.spec.node_name}:
        node = await _find(client, core.Node, name, "")
        if node is not None and node.spec is not None and node.spec.unschedulable:
            yield name


def replay(content: bytes) -> Replayed:
    """What was seen, and what the planner decides from it; contacts nothing."""
    if form_of(content) == NODES.name:
        snapshot = NODES.load(content)
        return Replayed(seen=tuple(_seen_nodes(snapshot)), verdict=cn_plan.decide(snapshot))
    log_snapshot = LOG.load(content)
    return Replayed(seen=tuple(_seen_stores(log_snapshot)), verdict=log_plan.decide(log_snapshot))


def _seen_stores(snapshot: LogSnapshot) -> Iterator[str]:
    yield f"At {snapshot.now.isoformat()}"
    if snapshot.view is None:
        yield f"  HAKeeper does not answer: {snapshot.error}"
    for member in snapshot.members:
        held = ", held at its gate" if member.held else ""
        shards = sorted(snapshot.view.shards_of(member.uuid)) if snapshot.view is not None else []
        heard = "heard" if snapshot.serves(member) else "not heard"
        yield f"  {member.pod.name}: {heard}{held}, member of the shards {shards}"


def _seen_nodes(snapshot: CNSnapshot) -> Iterator[str]:
    yield f"At {snapshot.now.isoformat()}"
    if snapshot.view is None:
        yield f"  HAKeeper does not answer: {snapshot.error}"
    for member in snapshot.members:
        state = member.store.state.name.capitalize() if member.store is not None else "not registered"
        yield f"  {member.pod.name}: {state}, {member.sessions} sessions, {member.pipelines} pipelines"
