"""Admission: what a real server's built-in plugins fill into pods, and the configured webhooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from mooring.kube.errors import ApiError
from mooring.local.api import failures, patch
from mooring.local.api.access.accounts import account_made, with_account
from mooring.local.api.access.signingrequests import SIGNING_REQUESTS, check_decision, with_requester
from mooring.local.api.admission.admissionpolicies import check_policies
from mooring.local.api.admission.claimsizes import check_claim_size
from mooring.local.api.admission.limitranges import check_limits, with_default_limits
from mooring.local.api.admission.mutatingpolicies import Mutations
from mooring.local.api.admission.podsecurity import check_pod_security
from mooring.local.api.admission.policies import ExpressionError, conditions_hold, seen
from mooring.local.api.admission.quotas import Quotas
from mooring.local.api.admission.review import EXEMPT, Review, rule_matches, selected
from mooring.local.api.admission.runtimeclasses import with_runtime_class
from mooring.local.api.admission.webhooks import Reply, WebhookClient, WebhookError, denied
from mooring.local.api.call import Call, Operation
from mooring.local.api.objectmeta import finalizers, with_metadata
from mooring.local.api.options import WriteOptions
from mooring.local.api.storage import Store

__all__ = ["Admission"]

_log = logging.getLogger(__name__)

JsonObject = dict[str, Any]

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"

_MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"


class Admission:
    """The chain every write goes through: plugins, then webhooks."""

    def __init__(self, store: Store, quotas: Quotas, client: WebhookClient) -> None:
        self._store, self._quotas, self._client = store, quotas, client

    async def mutate(
        self,
        call: Call,
        obj: JsonObject,
        old: JsonObject | None,
        operation: Operation,
        options: WriteOptions,
    ) -> JsonObject:
        """Return the object as the chain wants it; the very same one when nobody changed it."""
        if not call.target.subresource:
            if call.served.storage == "pods" and old is None:
                await account_made(obj, call)
            obj = _completed(obj, old, call)
        policies = Mutations(Review(call, obj, old, operation, options))
        given = obj = policies.first(obj)
        for hook in self._hooks(_MUTATING, call):
            review = Review(call, obj, old, operation, options)
            if _matches(hook, review):
                reply = await self._ask(hook, review)
                if reply is not None and reply.patch:
                    obj = _patched(hook, obj, reply.patch)
        return policies.again(obj, changed=obj is not given)

    async def validate(
        self,
        call: Call,
        obj: JsonObject | None,
        old: JsonObject | None,
        operation: Operation,
        options: WriteOptions | None,
    ) -> None:
        """Ask those who may refuse, all at once; raises the first refusal."""
        if obj is not None:
            check_limits(obj, call, creates=operation == "CREATE")
            _check_priority_class(obj, call)
            check_pod_security(call, obj, old)
            if old is not None and call.served.storage == SIGNING_REQUESTS:
                check_decision(call, obj, old)
            if (
                old is not None
                and call.served.storage == "persistentvolumeclaims"
                and not call.target.subresource
            ):
                check_claim_size(obj, old, call)
        await self._check(Review(call, obj, old, operation, options))
        if obj is not None:
            dry_run = options is not None and options.dry_run
            self._quotas.check(call, obj, old, dry_run=dry_run)

    async def connect(self, call: Call, options: JsonObject) -> None:
        """Ask those who may refuse a connection to a pod; raises the first refusal."""
        await self._check(Review(call, options, None, "CONNECT", None))

    async def _check(self, review: Review) -> None:
        check_policies(review)
        hooks = [hook for hook in self._hooks(_VALIDATING, review.call) if _matches(hook, review)]
        if review.operation in ("DELETE", "CONNECT"):
            hooks += [hook for hook in self._hooks(_MUTATING, review.call) if _matches(hook, review)]
        if hooks:
            asked = (self._ask(hook, review) for hook in hooks)
            for reply in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(reply, BaseException):
                    raise reply

    def _hooks(self, kind: str, call: Call) -> Iterator[Mapping[str, Any]]:
        """Yield the webhooks of a kind in the order of their configurations' names."""
        configurations = self._store.collection(kind)
        if not configurations.count or call.served.storage in EXEMPT:
            return
        for entry in configurations.entries():
            yield from entry.obj.get("webhooks") or ()

    async def _ask(self, hook: Mapping[str, Any], review: Review) -> Reply | None:
        """Ask one webhook; None when it failed and may. Raises its refusal, or 500."""
        if review.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise failures.bad_request(f'admission webhook "{hook["name"]}" does not support dry run')
        try:
            reply = await self._client.ask(hook, review.request())
        except WebhookError as error:
            if hook.get("failurePolicy") == "Ignore":
                _log.warning("webhook failed and is ignored: %s", error)
                return None
            raise failures.internal(str(error)) from error
        review.call.request.warnings.extend(reply.warnings)
        if not reply.allowed:
            raise denied(hook["name"], reply.status)
        return reply


def _matches(hook: Mapping[str, Any], review: Review) -> bool:
    """Whether a webhook is to be asked; raises 403 when its conditions cannot be told and must be."""
    if not any(rule_matches(rule, review) for rule in hook.get("rules") or ()):
        return False
    if not selected(hook, review):
        return False
    conditions = hook.get("matchConditions")
    if not conditions:
        return True
    try:
        return conditions_hold(conditions, seen(review, None))
    except ExpressionError as error:
        if hook.get("failurePolicy") == "Ignore":
            return False
        raise review.call.forbidden(str(error), review.name()) from None


def _patched(hook: Mapping[str, Any], obj: JsonObject, operations: list[Any]) -> JsonObject:
    try:
        changed = patch.json_patch(obj, operations)
    except ApiError as error:
        raise failures.internal(
            f'admission webhook "{hook["name"]}" sent a patch that does not apply: {error.message}'
        ) from error
    if not isinstance(changed, dict):
        raise failures.internal(f'admission webhook "{hook["name"]}" sent a patch that leaves no object')
    return changed


# --- what the server itself fills in ----------------------------------------------------------------------

_PROTECTED = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}


def _completed(obj: JsonObject, old: JsonObject | None, call: Call) -> JsonObject:
    """Return an object with what the built-in plugins give it."""
    storage = call.served.storage
    if storage == "pods":
        return _complete_pod(obj, call) if old is None else _with_tolerations(_with_priority_of(obj, old))
    if storage == SIGNING_REQUESTS and old is None:
        return with_requester(obj, call)
    if storage == "nodes" and old is None:
        return _with_not_ready(obj)
    finalizer = _PROTECTED.get(storage)
    if old is None and finalizer is not None and finalizer not in finalizers(obj):
        return with_metadata(obj, finalizers=[*finalizers(obj), finalizer])
    return obj


def _with_not_ready(obj: JsonObject) -> JsonObject:
    """Return a new node that takes no pods until its conditions are known."""
    spec = obj.get("spec") or {}
    taints = list(spec.get("taints") or ())
    taint = {"key": _NOT_READY, "effect": "NoSchedule"}
    if any(one.get("key") == taint["key"] and one.get("effect") == taint["effect"] for one in taints):
        return obj
    return {**obj, "spec": {**spec, "taints": [*taints, taint]}}


def _check_priority_class(obj: JsonObject, call: Call) -> None:
    """Refuse a second PriorityClass for pods that name none."""
    if call.served.storage != _PRIORITY_CLASSES or not obj.get("globalDefault"):
        return
    name = obj["metadata"].get("name") or ""
    for entry in call.cluster.store.collection(_PRIORITY_CLASSES).newest():
        if entry.obj.get("globalDefault") and entry.name != name:
            why = f"PriorityClass {entry.name} is already marked as default. Only one default can exist"
            raise call.forbidden(why, name)


def _with_priority_of(obj: JsonObject, old: JsonObject) -> JsonObject:
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    names = ("priority", "preemptionPolicy")
    kept = {name: before[name] for name in names if spec.get(name) is None and name in before}
    return {**obj, "spec": {**spec, **kept}} if kept else obj


def _complete_pod(obj: JsonObject, call: Call) -> JsonObject:
    """Return a new pod with its account, priority and the tolerations every pod gets for five minutes."""
    obj = with_account(with_default_limits(obj, call), call)
    spec = dict(obj["spec"])
    _set_priority(spec, call, obj["metadata"].get("name") or "")
    return with_runtime_class(_with_tolerations({**obj, "spec": spec}), call)


def _with_tolerations(obj: JsonObject) -> JsonObject:
    """Return a pod that tolerates a lost node for five minutes, unless it says otherwise itself."""
    spec = obj.get("spec") or {}
    present = list(spec.get("tolerations") or ())
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in (_NOT_READY, _UNREACHABLE)
        if not any(_tolerates(toleration, key) for toleration in present)
    ]
    return {**obj, "spec": {**spec, "tolerations": present + missing}} if missing else obj


def _tolerates(toleration: JsonObject, key: str) -> bool:
    same_key = toleration.get("key") in (None, "", key)
    return same_key and toleration.get("effect") in (None, "", "NoExecute")


def _set_priority(spec: JsonObject, call: Call, pod: str) -> None:
    classes = call.cluster.store.collection(_PRIORITY_CLASSES)
    name = spec.get("priorityClassName")
    if name:
        entry = classes.get(("", name))
        if entry is None:
            raise call.forbidden(f"no PriorityClass with name {name} was found", pod)
        chosen: JsonObject = entry.obj
    else:
        defaults = [entry.obj for entry in classes if entry.obj.get("globalDefault")]
        chosen = max(defaults, key=lambda c: c["value"], default={})
        if chosen:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    computed = {
        "priority": chosen.get("value", 0),
        "preemptionPolicy": chosen.get("preemptionPolicy", "PreemptLowerPriority"),
    }
    for field, called in (
        ("priority", "the integer value of priority"),
        ("preemptionPolicy", "the string value of PreemptionPolicy"),
    ):
        if spec.get(field) not in (None, computed[field]):
            raise call.forbidden(
                f"{called} ({spec[field]}) must not be provided in pod spec; priority admission controller"
                f" computed {computed[field]} from the given PriorityClass name",
                pod,
            )
    spec |= computed
