"""PodDisruptionBudgets: how many of the selected pods may go by eviction just now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from mooring.cache.clock import rfc3339
from mooring.cache.store import Transition
from mooring.kube.errors import NotFound
from mooring.kube.object import Key, controller_of
from mooring.kube.objects.apps import ReplicaSet, StatefulSet
from mooring.kube.objects.core import Pod
from mooring.kube.objects.meta import Condition, OwnerReference
from mooring.kube.objects.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from mooring.kube.selectors import selector_of
from mooring.local.controllers.context import Context
from mooring.local.controllers.kinds import Kinds
from mooring.local.controllers.moments import seconds_since
from mooring.local.controllers.patching import status_patch
from mooring.local.controllers.pods import condition_of, is_ready
from mooring.local.controllers.selection import filed_labels, selected_by, selecting
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["DisruptionController", "needs_scale", "status_of"]

#: Seconds after which an evicted pod that is still there counts again.
DELETION_TIMEOUT = 120.0
UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the "
    "status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for "
    'these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
)


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Whether the budget is a share of what the pods' controllers want."""
    spec = budget.spec
    return spec is not None and (spec.max_unavailable is not None or isinstance(spec.min_available, str))


def _share(value: int | str | None, whole: int) -> int:
    """An absolute number, or a percentage of ``whole`` rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(whole * int(value[:-1]) / 100)
    return int(value or 0)


def status_of(
    budget: PodDisruptionBudget, pods: Sequence[Pod], scales: Mapping[str, int], now: datetime
) -> tuple[PodDisruptionBudgetStatus, float | None]:
    """The status, and the seconds until it changes by time alone.

    ``scales`` are the replicas that the pods' controllers want, by UID; only used where `needs_scale`.
    """
    spec = budget.spec
    if needs_scale(budget) and spec is not None:
        expected = sum(scales.values())
        if spec.max_unavailable is not None:
            desired = max(0, expected - _share(spec.max_unavailable, expected))
        else:
            desired = _share(spec.min_available, expected)
    else:
        expected = len(pods)
        desired = int((spec.min_available or 0) if spec else 0)
    disrupted, after = _disrupted(budget, pods, now)
    healthy = sum(
        is_ready(pod) and pod.metadata.deletion_timestamp is None and pod.metadata.name not in disrupted
        for pod in pods
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        expected_pods=expected,
        desired_healthy=desired,
        current_healthy=healthy,
        disruptions_allowed=allowed,
        disrupted_pods=disrupted or None,
        conditions=_conditions(budget, allowed=allowed > 0, now=now),
    )
    return status, after


def _disrupted(
    budget: PodDisruptionBudget, pods: Iterable[Pod], now: datetime
) -> tuple[dict[str, str], float | None]:
    """Pods that were evicted and are not being deleted yet, and when the first of them counts again."""
    marked = (budget.status.disrupted_pods or {}) if budget.status else {}
    kept: dict[str, str] = {}
    waits = []
    for pod in pods:
        name = pod.metadata.name or ""
        if name not in marked or pod.metadata.deletion_timestamp:
            continue
        left = DELETION_TIMEOUT - seconds_since(marked[name], now)
        if left > 0:
            kept[name] = marked[name]
            waits.append(left)
    return kept, min(waits, default=None)


def _conditions(budget: PodDisruptionBudget, *, allowed: bool, now: datetime) -> list[Condition]:
    status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    present = list((budget.status.conditions or ()) if budget.status else ())
    before = next((c for c in present if c.type == "DisruptionAllowed"), None)
    same = before is not None and before.status == status
    since = before.last_transition_time if before is not None and same else rfc3339(now)
    condition = Condition(
        type="DisruptionAllowed",
        status=status,
        reason=reason,
        message="",
        last_transition_time=since,
        observed_generation=budget.metadata.generation,
    )
    if before is None:
        return [*present, condition]
    return [condition if c.type == "DisruptionAllowed" else c for c in present]


class DisruptionController:
    """Keeps the status of every budget."""

    def __init__(self, context: Context, kinds: Kinds) -> None:
        self._context = context
        self._client = context.client
        self._kinds = kinds
        self._events = context.recorder("disruption-controller")
        informers = context.informers
        self._budgets = informers.of(PodDisruptionBudget)
        self._pods = informers.of(Pod)
        self._sets = informers.of(StatefulSet)
        self._replica_sets = informers.of(ReplicaSet)
        self._told: dict[str, str] = {}
        context.index(self._budgets, "selects", _filed)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("disruption", self.reconcile)
        made.watch(self._budgets)
        made.watch(self._pods, map=self._pod_to_budgets, predicate=_counts_differently)
        made.watch(self._sets, map=self._of_namespace, predicate=_scaled)
        made.watch(self._replica_sets, map=self._of_namespace, predicate=_scaled)
        return made

    def _pod_to_budgets(self, pod: Pod) -> Iterable[Key]:
        namespace = pod.metadata.namespace or ""
        for budget in selecting(self._budgets, namespace, pod.metadata.labels):
            if selector_of(budget.spec.selector if budget.spec else None).matches(pod.metadata.labels):
                yield Key(namespace, budget.metadata.name or "")

    def _of_namespace(self, owner: StatefulSet | ReplicaSet) -> Iterable[Key]:
        namespace = owner.metadata.namespace or ""
        return [
            Key(namespace, b.metadata.name or "") for b in self._budgets.list(namespace) if needs_scale(b)
        ]

    async def reconcile(self, key: Key) -> Result:
        """One pass over a budget."""
        budget = self._budgets.get(key)
        if budget is None:
            return Done()
        selector = selector_of(budget.spec.selector if budget.spec else None)
        found = selected_by(self._pods, key.namespace, _demanded(budget))
        pods = [pod for pod in found if selector.matches(pod.metadata.labels)]
        self._tell(budget, "NoPods" if not pods else "", "No matching pods found")
        scales = await self._scales(budget, pods) if needs_scale(budget) else {}
        status, after = status_of(budget, pods, scales, self._context.clock.now())
        patch = status_patch(budget, status)
        if patch is not None:
            # Evictions write here too: a version guard keeps one from being overlooked.
            patch.body["metadata"]["resourceVersion"] = budget.metadata.resource_version
            await self._client.patch(
                PodDisruptionBudget, key.name, patch, namespace=key.namespace, subresource="status"
            )
        return After(after) if after is not None else Done()

    def _tell(self, budget: PodDisruptionBudget, reason: str, message: str, *, bad: bool = False) -> None:
        uid = budget.metadata.uid or ""
        if self._told.get(uid, "") == reason:
            return
        self._told[uid] = reason
        if reason:
            (self._events.warning if bad else self._events.normal)(budget, reason, message)

    async def _scales(self, budget: PodDisruptionBudget, pods: Iterable[Pod]) -> dict[str, int]:
        scales: dict[str, int] = {}
        unmanaged = False
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                unmanaged = True
            elif (owner.uid or "") not in scales:
                scale = await self._scale_of(pod.metadata.namespace or "", owner)
                unmanaged |= scale is None
                if scale is not None:
                    scales[owner.uid or ""] = scale
        if unmanaged:
            selector = selector_of(budget.spec.selector if budget.spec else None)
            self._tell(budget, "UnmanagedPods", UNMANAGED.format(selector), bad=True)
        return scales

    async def _scale_of(self, namespace: str, owner: OwnerReference) -> int | None:
        key = Key(namespace, owner.name or "")
        known: StatefulSet | ReplicaSet | None = None
        if owner.kind == "StatefulSet":
            known = self._sets.get(key)
        elif owner.kind == "ReplicaSet":
            known = self._replica_sets.get(key)
        if known is not None and known.metadata.uid == owner.uid and known.spec is not None:
            return 1 if known.spec.replicas is None else known.spec.replicas
        return await self._scale_of_other(key, owner)

    async def _scale_of_other(self, key: Key, owner: OwnerReference) -> int | None:
        """The scale subresource of whatever controls the pods."""
        resource = self._kinds.find(owner.api_version or "", owner.kind or "")
        if resource is None or owner.kind in ("StatefulSet", "ReplicaSet"):
            return None
        path = resource.path(namespace=key.namespace, name=key.name, subresource="scale")
        try:
            answer = await self._client.live.request("GET", path)
        except NotFound:
            return None
        scale = msgspec.json.decode(answer.body)
        return int((scale.get("spec") or {}).get("replicas") or 0)


def _demanded(budget: PodDisruptionBudget) -> dict[str, str] | None:
    selector = budget.spec.selector if budget.spec else None
    return selector.match_labels if selector else None


def _filed(budget: PodDisruptionBudget) -> Iterable[str]:
    return filed_labels(budget.metadata.namespace, _demanded(budget))


def _counts_differently(change: Transition[Pod]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return _face(old) != _face(new)


def _face(pod: Pod) -> tuple[object, ...]:
    ready = condition_of(pod, "Ready")
    meta = pod.metadata
    return (
        meta.uid,
        meta.labels,
        meta.deletion_timestamp,
        meta.owner_references,
        ready.status if ready else None,
    )


def _scaled(change: Transition[StatefulSet] | Transition[ReplicaSet]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None or old.spec is None or new.spec is None:
        return True
    return old.spec.replicas != new.spec.replicas
