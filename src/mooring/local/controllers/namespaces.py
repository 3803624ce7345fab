"""Namespaces: emptied when they are deleted, and given what every pod in them relies on.

Deletion: pods first, then everything else, kind by kind; what stays behind (grace periods, finalizers) is
told in the conditions, and the namespace is looked at again when something in it has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from mooring.cache.clock import rfc3339
from mooring.cache.store import Transition
from mooring.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from mooring.kube.object import Key, Object, Resource
from mooring.kube.objects.core import (
    ConfigMap,
    Namespace,
    NamespaceCondition,
    NamespaceStatus,
    ServiceAccount,
)
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import MergePatch
from mooring.local.controllers.collector import GarbageCollector
from mooring.local.controllers.context import Context
from mooring.local.controllers.kinds import Kinds, Served, metadata_kind
from mooring.local.controllers.patching import metadata_patch, status_patch
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["NamespaceController", "NamespaceFurniture", "Remains", "conditions_of"]

T = TypeVar("T", bound=Object)

FINALIZER = "kubernetes"
ROOT_CA = "kube-root-ca.crt"
ROOT_CA_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as "
    "the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of "
    "Kubernetes clusters."
)
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


@dataclass
class Remains:
    """What is still in a namespace after everything was asked to go."""

    resources: Counter[Resource] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def add(self, resource: Resource, items: Sequence[Object]) -> None:
        """Objects of one kind that are left."""
        if items:
            self.resources[resource] += len(items)
        for item in items:
            self.finalizers.update(item.metadata.finalizers or ())

    @property
    def nothing(self) -> bool:
        """The namespace is empty."""
        return not self.resources and not self.errors


def conditions_of(
    remains: Remains, present: Sequence[NamespaceCondition], now: str
) -> list[NamespaceCondition]:
    """The conditions that tell of the deletion, in order; times move only with the rest."""
    found = dict.fromkeys(_FINE, ("", ""))
    if remains.errors:
        text = ", ".join(sorted(remains.errors))
        message = f"Failed to delete all resource types, {len(remains.errors)} remaining: {text}"
        found["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if remains.resources:
        told = sorted(
            f"{r.plural}.{r.group} has {count} resource instances" for r, count in remains.resources.items()
        )
        found["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(told)}",
        )
    if remains.finalizers:
        told = sorted(f"{name} in {count} resource instances" for name, count in remains.finalizers.items())
        found["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {', '.join(told)}",
        )
    before = {condition.type: condition for condition in present}
    others = [condition for condition in present if condition.type not in _FINE]
    return others + [_condition(kind, *found[kind], before.get(kind), now) for kind in _FINE]


def _condition(
    kind: str, reason: str, message: str, before: NamespaceCondition | None, now: str
) -> NamespaceCondition:
    status = "True" if reason else "False"
    reason, message = (reason, message) if reason else _FINE[kind]
    if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
        return before
    return NamespaceCondition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=now
    )


class NamespaceController:
    """Empties namespaces that are being deleted."""

    def __init__(self, context: Context, kinds: Kinds, collector: GarbageCollector) -> None:
        self._context = context
        self._client = context.client
        self._kinds = kinds
        self._namespaces = context.informers.of(Namespace)
        self._controller = Controller("namespace", self.reconcile)
        collector.on_gone(self._on_gone)

    def controller(self) -> Controller:
        """The controller with its watches."""
        return self._controller.watch(self._namespaces, predicate=_deletion)

    def _on_gone(self, namespace: str) -> None:
        """An object is gone; if its namespace is going too, that may have been the last."""
        found = self._namespaces.peek(Key("", namespace)) if namespace else None
        if found is not None and found.metadata.deletion_timestamp:
            self._controller.enqueue(Key("", namespace), after=0.02)

    async def reconcile(self, key: Key) -> Result:
        """One pass over a namespace."""
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return Done()
        finalizers = list((namespace.spec.finalizers or ()) if namespace.spec else ())
        if FINALIZER not in finalizers:
            return Done()
        await self._kinds.ready.wait()
        remains = await self._empty(key.name)
        namespace = await self._tell(namespace, remains)
        if remains.nothing:
            finalizers.remove(FINALIZER)
            await self._finalize(namespace, finalizers)
        elif remains.errors:
            raise RuntimeError(f"namespace {key.name} is not empty yet: {'; '.join(remains.errors)}")
        return Done()

    async def _empty(self, namespace: str) -> Remains:
        remains = Remains()
        served = [
            each for each in self._kinds.served if each.resource.namespaced and each.can("delete", "list")
        ]
        pods = [each for each in served if (each.resource.group, each.resource.plural) == ("", "pods")]
        for each in pods:
            await self._delete_all(namespace, each, remains)
        if remains.resources:
            return remains  # the others may still be needed by pods that are on their way out
        others = [each for each in served if each not in pods]
        await asyncio.gather(*(self._delete_all(namespace, each, remains) for each in others))
        return remains

    async def _delete_all(self, namespace: str, served: Served, remains: Remains) -> None:
        kind = metadata_kind(served.resource)
        live = self._client.live
        try:
            left = (await live.list(kind, namespace=namespace)).items
            if not left:
                return
            if served.can("deletecollection"):
                body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
                path = served.resource.path(namespace=namespace)
                await live.request("DELETE", path, body=json.dumps(body).encode())
            else:
                for obj in left:
                    with contextlib.suppress(NotFound):
                        await live.delete(kind, obj.metadata.name or "", namespace=namespace)
            remains.add(served.resource, (await live.list(kind, namespace=namespace)).items)
        except NotFound:
            return  # the kind itself has gone
        except ApiError as error:
            remains.errors.append(f"{served.resource.plural}: {error}")

    async def _tell(self, namespace: Namespace, remains: Remains) -> Namespace:
        present = (namespace.status.conditions or ()) if namespace.status else ()
        now = rfc3339(self._context.clock.now())
        status = msgspec.structs.replace(
            namespace.status or NamespaceStatus(), conditions=conditions_of(remains, list(present), now)
        )
        patch = status_patch(namespace, status)
        if patch is None:
            return namespace
        return await self._client.patch(Namespace, namespace.metadata.name or "", patch, subresource="status")

    async def _finalize(self, namespace: Namespace, finalizers: list[str]) -> None:
        name = namespace.metadata.name or ""
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "uid": namespace.metadata.uid},
            "spec": {"finalizers": finalizers},
        }
        path = Namespace.resource.path(name=name, subresource="finalize")
        try:
            await self._client.live.request("PUT", path, body=json.dumps(body).encode())
        except NotFound:
            return


def _deletion(change: Transition[Namespace]) -> bool:
    old, new = change.old, change.new
    if new is None or new.metadata.deletion_timestamp is None:
        return False
    return old is None or (old.metadata.deletion_timestamp is None or old.spec != new.spec)


class NamespaceFurniture:
    """Gives every namespace its ``default`` ServiceAccount and the authority of the API server."""

    def __init__(self, context: Context, authority: str) -> None:
        self._client = context.client
        self._authority = authority
        self._namespaces = context.informers.of(Namespace)
        self._accounts = context.informers.of(ServiceAccount)
        self._bundles = context.informers.of(ConfigMap, field_selector=f"metadata.name={ROOT_CA}")

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("namespace-furniture", self.reconcile)
        made.watch(self._namespaces)
        made.watch(self._accounts, map=_of_namespace("default"))
        made.watch(self._bundles, map=_of_namespace(ROOT_CA))
        return made

    async def reconcile(self, key: Key) -> Result:
        """One pass over a namespace."""
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp:
            return Done()
        try:
            await self._account(key.name)
            await self._bundle(key.name)
        except (Forbidden, NotFound):
            return Done()  # the namespace is going
        return Done()

    async def _account(self, namespace: str) -> None:
        if self._accounts.get(Key(namespace, "default")) is None:
            await self._create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=namespace)))

    async def _bundle(self, namespace: str) -> None:
        wanted = {"ca.crt": self._authority}
        present = self._bundles.get(Key(namespace, ROOT_CA))
        if present is None:
            meta = ObjectMeta(
                name=ROOT_CA,
                namespace=namespace,
                annotations={"kubernetes.io/description": ROOT_CA_TEXT},
            )
            await self._create(ConfigMap(metadata=meta, data=wanted))
        elif present.data != wanted:
            body = metadata_patch(present).body
            stale: dict[str, str | None] = dict.fromkeys(present.data or {})
            body["data"] = {**stale, **wanted}
            await self._client.patch(ConfigMap, ROOT_CA, MergePatch(body), namespace=namespace)

    async def _create(self, obj: T) -> None:
        try:
            await self._client.create(obj)
        except AlreadyExists:
            await self._client.refresh(
                type(obj), obj.metadata.name or "", namespace=obj.metadata.namespace or ""
            )


def _of_namespace(name: str) -> Callable[[Object], Iterable[Key]]:
    def keys(obj: Object) -> Iterable[Key]:
        return (Key("", obj.metadata.namespace or ""),) if obj.metadata.name == name else ()

    return keys
