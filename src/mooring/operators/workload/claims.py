"""Objects that belong to a cluster by their labels, and claims that go or stay with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from mooring.actor import Context
from mooring.cache import Informer
from mooring.kube.object import Key, Object, owner_reference, to_dict
from mooring.kube.objects import apps, core
from mooring.kube.patches import MergePatch
from mooring.runtime import Manager

__all__ = ["Belongings", "keys_of", "mounted_config_maps", "own_claims", "owned"]

K = TypeVar("K", bound=Object)
Owner = Callable[[dict[str, str] | None], str]
"""From an object's labels to the name of its cluster, "" for none."""


class Belongings(Generic[K]):
    """The objects of one kind that belong to clusters, found by cluster.

    ``selector`` restricts what is cached, ``cluster_of`` tells whose an object is. No ``namespaces`` means all.
    """

    def __init__(
        self,
        manager: Manager,
        kind: type[K],
        *,
        selector: str,
        cluster_of: Owner,
        namespaces: Sequence[str] = (),
    ) -> None:
        self._index = f"cluster {selector}"
        self._informers: list[Informer[K]] = []
        for namespace in namespaces or ("",):
            informer = manager.informers.of(kind, namespace=namespace, label_selector=selector)
            informer.add_index(self._index, lambda obj: [str(key) for key in keys_of(obj, cluster_of)])
            self._informers.append(informer)

    def of(self, key: Key) -> list[K]:
        """Those of one cluster."""
        return [obj for informer in self._informers for obj in informer.by_index(self._index, str(key))]


def keys_of(obj: Object, cluster_of: Owner) -> list[Key]:
    """The cluster an object belongs to, if any."""
    name = cluster_of(obj.metadata.labels)
    return [Key(obj.metadata.namespace or "", name)] if name else []


def mounted_config_maps(
    sets: Iterable[apps.StatefulSet | None], pods: Iterable[core.Pod]
) -> list[tuple[type[Object], str]]:
    """ConfigMaps that a pod or a template in place refers to: content-named ones are kept as long."""
    specs = [one.spec.template.spec for one in sets if one and one.spec and one.spec.template]
    specs += [pod.spec for pod in pods]
    names = {
        volume.config_map.name
        for spec in specs
        for volume in (spec.volumes if spec else None) or ()
        if volume.config_map is not None and volume.config_map.name
    }
    return [(core.ConfigMap, name) for name in sorted(names)]


def owned(cluster: Object, claim: core.PersistentVolumeClaim) -> bool:
    """The claim goes when the cluster does."""
    return any(ref.uid == cluster.metadata.uid for ref in claim.metadata.owner_references or ())


async def own_claims(ctx: Context[Any], claims: Iterable[core.PersistentVolumeClaim], goes: bool) -> None:
    """Let claims go with the cluster when it is deleted (``goes``), or stay."""
    for claim in claims:
        others = [ref for ref in claim.metadata.owner_references or () if ref.uid != ctx.obj.metadata.uid]
        owners = [*others, owner_reference(ctx.obj, controller=False)] if goes else others
        body = {
            "metadata": {
                "resourceVersion": claim.metadata.resource_version,
                "ownerReferences": [to_dict(ref) for ref in owners] or None,
            }
        }
        name = claim.metadata.name or ""
        await ctx.client.patch(
            core.PersistentVolumeClaim, name, MergePatch(body), namespace=ctx.key.namespace
        )
