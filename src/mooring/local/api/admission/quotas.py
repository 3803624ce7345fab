"""ResourceQuotas: what a namespace may hold in all, counted from what it holds.

Usage is computed from the stored objects whenever it matters, never carried along, so it cannot drift; what
an object uses is remembered until the object changes. The status of a quota follows within the same commit
as the write that used it, and soon after everything that gives something back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from mooring.local.api.amounts import Amounts, minus, plus, pod_total, rounded_up, shown, total
from mooring.local.api.call import Call
from mooring.local.api.constraints import same
from mooring.local.api.objectmeta import is_deleting
from mooring.local.api.storage import Collection, Entry, Event, StaleError, StorageError, Store
from mooring.local.api.wire import quantity_value
from mooring.local.api.world import World

__all__ = ["Quotas"]

JsonObject = dict[str, Any]

_QUOTAS = "resourcequotas"
#: Objects whose usage is remembered.
_REMEMBERED = 20_000
#: Kinds that were counted under their plain names before `count/...` came.
_PLAIN = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
_POD_COMPUTE = ("cpu", "memory", "ephemeral-storage")
#: What every container must state once a quota counts it.
_DEMANDED = {f"{prefix}{name}" for name in ("cpu", "memory") for prefix in ("", "requests.", "limits.")}
_SERVICE_NAMES = ("services", "services.loadbalancers", "services.nodeports")
_CLAIM_NAMES = ("persistentvolumeclaims", "requests.storage")
_OF_CLASS = ".storageclass.storage.k8s.io/"


def _counted_in(name: str) -> str:
    """Return the collection whose objects a quota's resource counts."""
    if name.startswith("count/"):
        return name.removeprefix("count/")
    if name in _SERVICE_NAMES:
        return "services"
    if name in _CLAIM_NAMES or _OF_CLASS in name:
        return "persistentvolumeclaims"
    return name if name in _PLAIN else "pods"


# --- what an object uses --------------------------------------------------------------------------------


def _usage(storage: str, obj: JsonObject, now: datetime) -> Amounts:
    own = {f"count/{storage}": "1"}
    if storage == "pods":
        return {**own, **(_pod_usage(obj["spec"]) if _lives(obj, now) else {})}
    if storage == "services":
        return {**own, **_service_usage(obj["spec"])}
    if storage == "persistentvolumeclaims":
        return {**own, **_claim_usage(obj)}
    return {**own, storage: "1"} if storage in _PLAIN else own


def _lives(pod: JsonObject, now: datetime) -> bool:
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    gone = pod["metadata"].get("deletionTimestamp")
    return not gone or now <= datetime.fromisoformat(gone)


def _pod_usage(spec: JsonObject) -> Amounts:
    return {"pods": "1", **_compute(pod_total(spec, "requests"), pod_total(spec, "limits"))}


def _compute(requests: Amounts, limits: Amounts) -> Amounts:
    used: Amounts = {}
    for name, amount in requests.items():
        if name in _POD_COMPUTE or name.startswith("hugepages-"):
            used[name] = used[f"requests.{name}"] = amount
        elif "/" in name:
            used[f"requests.{name}"] = amount
    return used | {f"limits.{name}": limits[name] for name in _POD_COMPUTE if name in limits}


def _service_usage(spec: JsonObject) -> Amounts:
    kind, ports = spec.get("type"), spec.get("ports") or ()
    numbers = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        numbers = sum(1 for port in ports if port.get("nodePort"))
    return {
        "services": "1",
        "services.loadbalancers": "1" if kind == "LoadBalancer" else "0",
        "services.nodeports": str(numbers),
    }


def _claim_usage(claim: JsonObject) -> Amounts:
    used = {"persistentvolumeclaims": "1"}
    spec = claim.get("spec") or {}
    if size := ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        used["requests.storage"] = rounded_up(size)
    if name := spec.get("storageClassName"):
        used |= {f"{name}{_OF_CLASS}{resource}": amount for resource, amount in used.items()}
    return used


# --- which objects a quota counts -----------------------------------------------------------------------


def _in_scope(spec: JsonObject, storage: str, obj: JsonObject) -> bool:
    selectors = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    selectors += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(storage == "pods" and _pod_in_scope(selector, obj) for selector in selectors)


def _pod_in_scope(selector: Mapping[str, Any], pod: JsonObject) -> bool:
    name: str = selector["scopeName"]
    spec = pod["spec"]
    if name in ("Terminating", "NotTerminating"):
        return (spec.get("activeDeadlineSeconds") is not None) == (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        asked = {**pod_total(spec, "requests"), **pod_total(spec, "limits")}
        best = not any(quantity_value(asked.get(resource, "0")) for resource in ("cpu", "memory"))
        return best == (name == "BestEffort")
    if name == "PriorityClass":
        return _class_selected(selector, spec.get("priorityClassName") or "")
    return name == "CrossNamespacePodAffinity" and _looks_elsewhere(spec.get("affinity") or {})


def _class_selected(selector: Mapping[str, Any], name: str) -> bool:
    operator: str = selector.get("operator") or ""
    values = tuple(map(str, selector.get("values") or ()))
    if operator in ("Exists", "DoesNotExist"):
        return bool(name) == (operator == "Exists")
    return name in values if operator == "In" else name not in values


def _looks_elsewhere(affinity: JsonObject) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [one.get("podAffinityTerm") or {} for one in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def _concerned(hard: Iterable[str], storage: str) -> list[str]:
    """Return the resources of a quota that objects of a kind use."""
    return [name for name in hard if _counted_in(name) == storage]


def _unstated(spec: JsonObject, concerned: Iterable[str]) -> str:
    """Name the resources that containers must state, with the containers that do not."""
    if spec.get("resources"):
        return ""
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        stated = _compute(resources.get("requests") or {}, resources.get("limits") or {})
        for name in concerned:
            if name in _DEMANDED and name not in stated:
                missing.setdefault(name, set()).add(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


# --- the quotas of one server ---------------------------------------------------------------------------


class Quotas:
    """Refuses what exceeds a quota, and keeps the status of quotas true."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._quotas = store.collection(_QUOTAS)
        self._known: dict[tuple[str, str, str], tuple[int, Amounts]] = {}
        self._due: set[str] = set()
        store.observers.append(self._published)

    def resume(self) -> None:
        """Look at every quota once, after a start."""
        for entry in self._quotas:
            self._look_at(entry.namespace)

    def check(self, call: Call, obj: JsonObject, old: JsonObject | None, *, dry_run: bool) -> None:
        """Raise 403 when a write exceeds a quota, else stage the new status of the quotas it uses.

        To be called right before the write itself is staged: nothing is awaited in between.
        """
        storage = call.served.storage
        if not self._quotas.count or not call.namespace or call.target.subresource:
            return
        if old is not None and storage not in ("services", "persistentvolumeclaims"):
            return
        after = _usage(storage, obj, self._world.now())
        before = _usage(storage, old, self._world.now()) if old is not None else {}
        for entry in [quota for quota in self._quotas.newest(call.namespace) if _counts(quota, storage, obj)]:
            self._check_one(call, entry, obj, _grown(after, before), dry_run=dry_run)

    def _check_one(self, call: Call, quota: Entry, obj: JsonObject, more: Amounts, *, dry_run: bool) -> None:
        storage, name = call.served.storage, obj["metadata"].get("name") or ""
        hard: Amounts = quota.obj["spec"].get("hard") or {}
        concerned = _concerned(hard, storage)
        if storage == "pods" and (unstated := _unstated(obj["spec"], concerned)):
            raise call.forbidden(f"failed quota: {quota.name}: must specify {unstated}", name)
        more = {resource: more[resource] for resource in concerned if resource in more}
        if not more:
            return
        used = self._used(quota)
        after = {**used, **{resource: plus(used[resource], amount) for resource, amount in more.items()}}
        exceeded = [one for one in more if quantity_value(after[one]) > quantity_value(hard[one])]
        if exceeded:
            requested, present, limited = (
                shown({one: amounts[one] for one in exceeded}) for amounts in (more, used, hard)
            )
            why = f"requested: {requested}, used: {present}, limited: {limited}"
            raise call.forbidden(f"exceeded quota: {quota.name}, {why}", name)
        if not dry_run:
            self._tell(quota, after)

    # --- status -----------------------------------------------------------------------------------------

    def _used(self, quota: Entry) -> Amounts:
        """Return what a namespace uses of everything a quota limits, staged writes included."""
        spec = quota.obj["spec"]
        hard = spec.get("hard") or {}
        used = dict.fromkeys(hard, "0")
        for storage in {_counted_in(name) for name in hard}:
            collection = self._store.collection(storage)
            names = set(_concerned(hard, storage))
            sums = total(
                {name: amount for name, amount in usage.items() if name in names}
                for usage in self._usages(collection, spec, quota.namespace)
            )
            used |= {name: plus("0", amount) for name, amount in sums.items()}
        return used

    def _usages(self, collection: Collection, spec: JsonObject, namespace: str) -> Iterator[Amounts]:
        scoped = bool(spec.get("scopes") or spec.get("scopeSelector"))
        for entry in collection.newest(namespace):
            if not scoped or _in_scope(spec, collection.resource, entry.obj):
                yield self._usage_of(collection, entry)

    def _usage_of(self, collection: Collection, entry: Entry) -> Amounts:
        key = (collection.resource, *entry.place)
        known = self._known.get(key)
        if known is not None and known[0] == entry.rv:
            return known[1]
        usage = _usage(collection.resource, entry.obj, self._world.now())
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        if not is_deleting(entry.obj):  # what goes stops counting by time alone
            self._known[key] = (entry.rv, usage)
        return usage

    def _tell(self, quota: Entry, used: Amounts) -> None:
        status = {"hard": quota.obj["spec"].get("hard") or {}, "used": used}
        if not same(quota.obj.get("status"), status):
            self._store.put(self._quotas, quota.place, {**quota.obj, "status": status}, base=quota)

    def _published(self, collection: Collection, event: Event) -> None:
        if not self._quotas.count:
            return
        self._look_at(event.entry.namespace)

    def _look_at(self, namespace: str) -> None:
        """Put the status of a namespace's quotas right, once everything that is published now is."""
        if namespace and namespace not in self._due and self._quotas.entries(namespace):
            self._due.add(namespace)
            asyncio.get_running_loop().call_soon(self._settle, namespace)

    def _settle(self, namespace: str) -> None:
        self._due.discard(namespace)
        for quota in list(self._quotas.newest(namespace)):
            try:
                self._tell(quota, self._used(quota))
            except StaleError:
                continue  # its next version is looked at when it is published
            except StorageError:
                return  # the server stops; the next one looks at every quota


def _counts(quota: Entry, storage: str, obj: JsonObject) -> bool:
    spec = quota.obj["spec"]
    return bool(_concerned(spec.get("hard") or (), storage)) and _in_scope(spec, storage, obj)


def _grown(after: Amounts, before: Amounts) -> Amounts:
    """Return what a write uses more than before."""
    differences = {name: minus(amount, before.get(name, "0")) for name, amount in after.items()}
    return {name: amount for name, amount in differences.items() if quantity_value(amount) > 0}
