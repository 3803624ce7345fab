"""Eviction: a deletion that honours PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.kube.errors import TooManyRequests
from mooring.kube.selectors import Selector
from mooring.local.api import deletes, failures
from mooring.local.api.call import Call
from mooring.local.api.http import Query
from mooring.local.api.objectmeta import is_deleting, rfc3339
from mooring.local.api.options import DeleteOptions
from mooring.local.api.selectors import label_selector
from mooring.local.api.storage import Entry, StaleError

__all__ = ["evict"]

JsonObject = dict[str, Any]

_ATTEMPTS = 8
_BUDGETS = "poddisruptionbudgets.policy"


async def evict(call: Call, body: Mapping[str, Any]) -> None:
    """Delete a pod if its budget allows; raises 404, 429, 500."""
    meta = body.get("metadata") or {}
    if meta.get("name") not in (None, "", call.target.name):
        raise failures.bad_request("name in URL does not match name in Eviction object")
    sent = body.get("deleteOptions")
    options = DeleteOptions.parse(Query({}) if sent else call.request.query, sent)
    for _ in range(_ATTEMPTS):
        try:
            pod = call.live()
            if not _goes_anyway(pod.obj):
                await _spend_budget(call, pod, dry_run=options.dry_run)
            if not options.dry_run:
                await _say_disrupted(call, call.live())
            await deletes.delete_entry(call, call.live(), options)
            return
        except StaleError:
            continue
    raise call.conflict()


async def _say_disrupted(call: Call, pod: Entry) -> None:
    """Say in the pod's status that it goes through no fault of its own: a Job may not count that as a failure."""
    status = pod.obj.get("status") or {}
    if is_deleting(pod.obj) or status.get("phase") in ("Succeeded", "Failed"):
        return
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": rfc3339(call.cluster.now()),
    }
    others = [one for one in status.get("conditions") or () if one["type"] != "DisruptionTarget"]
    changed = {**pod.obj, "status": {**status, "conditions": [*others, condition]}}
    await call.cluster.store.put(call.collection, pod.place, changed, base=pod).committed()


def _goes_anyway(pod: JsonObject) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return is_deleting(pod) or phase in ("Succeeded", "Failed", "Pending")


async def _spend_budget(call: Call, pod: Entry, *, dry_run: bool) -> None:
    """Take one disruption from the pod's budget; the write makes two evictions at once impossible."""
    budgets = call.cluster.store.collection(_BUDGETS)
    labels = pod.obj["metadata"].get("labels") or {}
    matching = [
        entry
        for entry in budgets.newest()
        if entry.namespace == pod.namespace and _selector(entry.obj).matches(labels)
    ]
    if not matching:
        return
    if len(matching) > 1:
        raise failures.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = matching[0]
    if not _is_ready(pod.obj) and _unhealthy_may_go(budget.obj):
        return
    changed = _spent(budget, pod, rfc3339(call.cluster.now()))
    if not dry_run:
        await call.cluster.store.put(budgets, budget.place, changed, base=budget).committed()


def _is_ready(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _unhealthy_may_go(budget: JsonObject) -> bool:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired, current = int(status.get("desiredHealthy", 0)), int(status.get("currentHealthy", 0))
    return 0 < desired <= current


def _spent(budget: Entry, pod: Entry, now: str) -> JsonObject:
    status = budget.obj.get("status") or {}
    generation = budget.obj["metadata"].get("generation", 0)
    if status.get("observedGeneration", 0) < generation:
        why = f"The disruption budget {budget.name} is still being processed by the server."
        raise _refused(why, retry_after=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise _refused(
            f"The disruption budget {budget.name} needs {status.get('desiredHealthy', 0)} healthy pods"
            f" and has {status.get('currentHealthy', 0)} currently",
            retry_after=0,
        )
    disrupted = {**(status.get("disruptedPods") or {}), pod.name: now}
    changed = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    return {**budget.obj, "status": changed}


def _refused(why: str, *, retry_after: float) -> TooManyRequests:
    return TooManyRequests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        status=429,
        reason="TooManyRequests",
        details={"causes": [{"reason": "DisruptionBudget", "message": why}]},
        retry_after=retry_after or None,
    )


def _selector(budget: JsonObject) -> Selector:
    return label_selector((budget.get("spec") or {}).get("selector"))
