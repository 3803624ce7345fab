"""What the actors of databases in StatefulSets share: their clusters' pods and claims, the scope, volumes that fill up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

from mooring.actor import Context, Planned, Related, run_actor
from mooring.kube.object import Key, Object
from mooring.kube.objects import core
from mooring.operators.workload.autogrow import AutogrowStatus, Filling
from mooring.operators.workload.growing import Growing
from mooring.operators.workload.hindrances import Hindrances
from mooring.operators.workload.index import ClusterIndex, keys_of
from mooring.operators.workload.kept_secrets import KeptSecrets
from mooring.operators.workload.scope import SCOPE_ANNOTATION, Scoped
from mooring.operators.workload.surroundings import Surroundings
from mooring.operators.workload.volumes import Growth, Refusals
from mooring.runtime import Manager

__all__ = ["DatabaseActor", "register"]

C = TypeVar("C", bound=Object)
K = TypeVar("K", bound=Object)
I = TypeVar("I")  # noqa: E741 - as in `Planned`
S = TypeVar("S")


class Measured(Protocol):
    """What is remembered of clusters between passes; nothing that reaches status."""

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""


M = TypeVar("M", bound=Measured)


class DatabaseActor(Planned[C, I, S]):
    """An actor whose clusters have pods and claims, found by their labels."""

    selector: ClassVar[str]
    """Labels of the pods and claims of every cluster."""
    container: ClassVar[str]
    """The one with the server."""
    path: ClassVar[str]
    """Where it stores."""
    annotation: ClassVar[str] = SCOPE_ANNOTATION
    kept_entry: ClassVar[str] = "password"
    """The entry that the Secret with a cluster's passwords has, unless somebody emptied it."""

    def __init__(self, manager: Manager, *, scope: str, namespaces: Sequence[str]) -> None:
        self.manager = manager
        self.scoped = Scoped(manager, self.kind, operator=self.name, scope=scope, annotation=self.annotation)
        self._namespaces = namespaces
        self.related: list[Related[Any]] = []
        self.pods = self.indexed(core.Pod)
        self.claims = self.indexed(core.PersistentVolumeClaim)
        self.wake: Callable[[Key], None] = lambda key: None
        """Brings the next pass over a cluster forward."""
        self.refusals = Refusals()
        self._measuring: list[Measured] = []
        self.hindrances = self.measuring(Hindrances())
        self._kept_secrets = self.measuring(KeptSecrets(self.kept_entry))
        self.growing = self.measuring(
            Growing(
                manager,
                operator=self.name,
                container=self.container,
                path=self.path,
                wake=lambda key: self.wake(key),
            )
        )
        self.serves: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {"volumes": self.growing.run}
        """What runs beside the passes, by the names that the log and the metrics give it."""

    def measuring(self, one: M) -> M:
        """The same, which is forgotten with each cluster."""
        self._measuring.append(one)
        return one

    def indexed(self, kind: type[K]) -> ClusterIndex[K]:
        """The objects of a kind by cluster; a change of one brings a pass over its cluster."""
        how = partial(keys_of, cluster_of=self.cluster_of)
        self.related.append(Related(kind, how, label_selector=self.selector))
        return ClusterIndex(
            self.manager,
            kind,
            selector=self.selector,
            cluster_of=self.cluster_of,
            namespaces=self._namespaces,
        )

    @staticmethod
    @abstractmethod
    def cluster_of(labels: dict[str, str] | None) -> str:
        """The name of the cluster that an object with these labels belongs to; "" for none."""

    def manages(self, obj: C) -> bool:
        """By scope; what another process manages is left alone."""
        ours = self.scoped.manages(obj)
        if not ours:
            self.forget(Key(obj.metadata.namespace or "", obj.metadata.name or ""))
        return ours

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it: drop what was measured of it."""
        self.refusals.clear(key)
        for one in self._measuring:
            one.forget(key)

    async def read_secrets(self, ctx: Context[C], names: Iterable[str]) -> None:
        """Have the contents of these Secrets in the pass."""
        for name in names:
            await ctx.children.read(core.Secret, name)

    def around(
        self,
        ctx: Context[C],
        references: Iterable[tuple[type[Object], str]],
        pods: Sequence[core.Pod],
        *more: Object | None,
        keeps: str = "",
    ) -> Surroundings:
        """The objects that a declaration refers to, as far as there are any, the pods and the claims.

        The Secret named ``keeps`` is there as it last was whole, should somebody have emptied or deleted it.
        """
        found = {(kind, name): ctx.children.find(kind, name) for kind, name in references}
        if keeps:
            secret = ctx.children.find(core.Secret, keeps)
            found[core.Secret, keeps] = self._kept_secrets.whole(ctx.key, ctx.obj.metadata.uid or "", secret)
        return Surroundings([*found.values(), *pods, *self.claims.of(ctx.key), *more])

    def volumes(
        self, ctx: Context[C], storage: Any, status: AutogrowStatus | None, growth: Growth
    ) -> tuple[Mapping[str, str], Filling]:
        """Which claims the API server refused to enlarge and why; what to do about their size, by ``spec.storage``."""
        spec = storage.autogrow if storage is not None else None
        refused = self.refusals.of(ctx.key, growth.volumes)
        return refused, self.growing.decide(ctx, spec, status, growth)


def register(actor: DatabaseActor[Any, Any, Any], *, namespaces: Sequence[str], workers: int) -> None:
    """Put an actor onto its manager, with what it measures and the namespaces that it takes up."""
    manager = actor.manager
    run_actor(actor, manager, namespaces=namespaces, workers=workers)
    controller: Any = next(one for one in manager.controllers if one.name == actor.name)
    actor.wake = controller.enqueue
    for what, run in actor.serves.items():
        manager.serve(f"{actor.name} {what}", run)
    actor.scoped.serve()
