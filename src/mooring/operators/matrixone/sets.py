"""What the actors of MatrixOne's sets share: the pods of all of them by set, HAKeeper, and Secrets that are never kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from mooring.actor import Context, Related, StepFailed, Terminal, Wait
from mooring.kube.object import Key, Object, key_of
from mooring.kube.objects import coordination, core
from mooring.operators.matrixone.conditions import as_before
from mooring.operators.matrixone.look import Keeper, Seen
from mooring.operators.matrixone.names import CLUSTER, COMPONENT, INSTANCE
from mooring.operators.matrixone.rpc.dial import Dial, RpcError
from mooring.operators.matrixone.sql import Sql
from mooring.operators.matrixone.takeover import LEASE, foreign, lease_held
from mooring.operators.matrixone.types import (
    BackupJob,
    BucketClaim,
    CNClaim,
    CNPool,
    CNSet,
    DNSet,
    LogSet,
    ProxySet,
)
from mooring.operators.matrixone.validate import validate
from mooring.operators.workload.index import ClusterIndex, keys_of
from mooring.runtime import Manager

__all__ = ["NAME", "Surroundings", "blocked_by", "related", "told"]

NAME = "matrixone"
K = TypeVar("K", bound=Object)


def _selector(kind: type[Object]) -> str:
    return f"{COMPONENT}={kind.resource.kind}"


def _instance(labels: dict[str, str] | None) -> str:
    return (labels or {}).get(INSTANCE, "")


def related(kind: type[Object], *others: type[Object], own_writes: bool = True) -> list[Related[Any]]:
    """Watches on the pods (and on ``others``) of the sets of a kind; ``own_writes`` as `Related` has it."""
    keys = partial(keys_of, cluster_of=_instance)
    watched: list[type[Object]] = [core.Pod, *others]
    return [Related(one, keys, label_selector=_selector(kind), own_writes=own_writes) for one in watched]


class Surroundings:
    """The pods of all sets, their claims, and the way to HAKeeper; one for all actors of the operator."""

    def __init__(self, manager: Manager, *, namespaces: Sequence[str] = (), dial: Dial | None = None) -> None:
        # In its own namespace, which this process may not be allowed to read where it works in some alone.
        self._leases = (
            []
            if namespaces
            else [manager.informers.of(coordination.Lease, field_selector=f"metadata.name={LEASE}")]
        )
        self._cached, self.namespaced = manager.client, bool(namespaces)
        self.live = manager.client.live
        """For what must be known at this moment: asked of the API server."""
        self.keeper = Keeper(dial or Dial(fence=manager.fence.check), manager.clock)
        self.sql = Sql(manager.fence.check)

        def index(kind: type[K], of: type[Object]) -> ClusterIndex[K]:
            return ClusterIndex(
                manager, kind, selector=_selector(of), cluster_of=_instance, namespaces=namespaces
            )

        self._pods: dict[type[Object], ClusterIndex[core.Pod]] = {
            one: index(core.Pod, one) for one in (LogSet, DNSet, CNSet, ProxySet)
        }
        self._claims: dict[type[Object], ClusterIndex[core.PersistentVolumeClaim]] = {
            one: index(core.PersistentVolumeClaim, one) for one in (LogSet, DNSet, CNSet)
        }

    def pods(self, kind: type[Object], key: Key) -> tuple[core.Pod, ...]:
        """The pods of a set; of a WebUI there are none here."""
        return tuple(self._pods[kind].of(key)) if kind in self._pods else ()

    def compute_nodes(self, namespace: str) -> tuple[core.Pod, ...]:
        """The pods of every CNSet of a namespace."""
        return tuple(one for one in self._pods[CNSet].all() if one.metadata.namespace == namespace)

    def cn_claims(self, namespace: str) -> list[CNClaim]:
        """The claims of compute nodes in a namespace."""
        return self._cached.list(CNClaim, namespace=namespace)

    def backup_jobs(self, namespace: str) -> list[BackupJob]:
        """The BackupJobs of a namespace."""
        return self._cached.list(BackupJob, namespace=namespace)

    def pools(self, namespace: str) -> list[CNPool]:
        """The pools of a namespace."""
        return self._cached.list(CNPool, namespace=namespace)

    def claims(self, kind: type[Object], key: Key) -> tuple[core.PersistentVolumeClaim, ...]:
        """The claims of a set."""
        return tuple(self._claims[kind].of(key))

    def on_node(self, node: core.Node) -> list[Key]:
        """The CNSets with a pod on a node."""
        name = node.metadata.name
        found = (
            pod for pod in self._pods[CNSet].all() if pod.spec is not None and pod.spec.node_name == name
        )
        return [key for pod in found for key in keys_of(pod, _instance)]

    def left_alone(self, ctx: Context[Any]) -> Wait | None:
        """Nothing is written while upstream's operator runs."""
        leases = [one for each in self._leases for one in each.list()]
        held = lease_held(leases, now=ctx.now())
        if held is not None:
            as_before(ctx)
        return held

    def of_openkruise(self, sets: Iterable[Object]) -> list[str]:
        """The names of the pods of these sets that OpenKruise's workloads own."""
        found = [pod for one in sets for pod in self.pods(type(one), key_of(one))]
        return sorted(one.metadata.name or "" for one in foreign(found))

    def taken_over_first(self, kind: type[Object], key: Key | None) -> str:
        """Why what works with a set has to wait for its take-over; "" where it does not."""
        theirs = key is not None and any(foreign(self.pods(kind, key)))
        return f"{kind.resource.kind} {key.name} is taken over first" if theirs and key is not None else ""

    def bucket_claims(self, namespace: str) -> list[BucketClaim]:
        """All claims that this process knows: those of the namespace alone where it may read no others."""
        return self._cached.list(BucketClaim, namespace=namespace if self.namespaced else "")

    def claims_on(self, log_set: LogSet) -> list[Key]:
        """The BucketClaims that are bound to a LogSet."""
        name = str(key_of(log_set))
        every = self.bucket_claims(log_set.metadata.namespace or "")
        return [key_of(one) for one in every if one.status is not None and one.status.bind_to == name]

    def running(self, cluster: Key) -> frozenset[type[Object]]:
        """The kinds of sets of which a cluster has pods."""
        return frozenset(
            kind for kind, index in self._pods.items() if any(_is_of(pod, cluster) for pod in index.all())
        )

    async def see(
        self,
        log_set: Key | None,
        dn_set: Key | None = None,
        *,
        ask: Collection[str] = (),
        twice: bool = False,
    ) -> Seen:
        """What HAKeeper of a LogSet says; ``ask`` and ``twice`` as `Keeper.see` has them.

        The lock services of a DNSet are reached only where that is given: their names may not resolve here.
        """
        if log_set is None:
            return Seen(error="no LogSet is named")
        stores = [one for one in self.pods(LogSet, log_set) if one.metadata.deletion_timestamp is None]
        others = self.pods(DNSet, dn_set) if dn_set is not None else ()
        return await self.keeper.see(log_set, stores, others, ask=ask, twice=twice)


def _is_of(pod: core.Pod, cluster: Key) -> bool:
    labels = pod.metadata.labels or {}
    return labels.get(CLUSTER) == cluster.name and pod.metadata.namespace == cluster.namespace


def blocked_by(obj: Object) -> Terminal | None:
    """Why a declaration cannot be carried out: every problem with its field and remedy."""
    problems = "; ".join(str(one) for one in validate(obj))
    return Terminal("InvalidSpec", problems) if problems else None


async def told(what: Callable[[], Any]) -> Any:
    """Tell MatrixOne something; a failure is a step that failed."""
    try:
        return await what()
    except RpcError as error:
        raise StepFailed(str(error)) from error
