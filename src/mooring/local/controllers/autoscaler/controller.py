"""The HorizontalPodAutoscaler controller.

Every autoscaler is looked at when it changes and then every 15 seconds: figures come and go without an
event. What was recommended and done lately is remembered here and not in the API, as by the real
controller: after a restart the stabilisation windows begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from mooring.cache.clock import rfc3339
from mooring.cache.store import Transition
from mooring.kube.errors import ApiError, Conflict, KubeError, NotFound
from mooring.kube.object import Key
from mooring.kube.objects.autoscaling import (
    ContainerResourceMetricStatus,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    ResourceMetricStatus,
)
from mooring.kube.objects.core import Pod
from mooring.kube.quantity import format_bytes, parse_quantity
from mooring.kube.selectors import Selector, parse_selector
from mooring.local.controllers.autoscaler.limits import History, longest_period, normalized
from mooring.local.controllers.autoscaler.usage import (
    Proposal,
    Target,
    Tolerance,
    Unknown,
    Usage,
    propose,
)
from mooring.local.controllers.context import Context
from mooring.local.controllers.kinds import Kinds
from mooring.local.controllers.moments import moment
from mooring.local.controllers.patching import status_patch
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["PERIOD", "AutoscalerController"]

log = structlog.get_logger("mooring.local.autoscaler")

#: Seconds between two looks at an autoscaler.
PERIOD = 15.0
_METRICS = "/apis/metrics.k8s.io/v1beta1"
_ATTEMPTS = 5
_DURATION = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class _Stop(Exception):
    """This pass cannot go on; the condition is set and the Event told."""


@dataclass(slots=True)
class _Pass:
    """One look at one autoscaler: the status it will have."""

    autoscaler: HorizontalPodAutoscaler
    now: str
    conditions: list[HorizontalPodAutoscalerCondition]
    statuses: list[MetricStatus] = field(default_factory=list)

    @property
    def spec(self) -> HorizontalPodAutoscalerSpec:
        return self.autoscaler.spec or HorizontalPodAutoscalerSpec()

    @property
    def namespace(self) -> str:
        return self.autoscaler.metadata.namespace or ""

    def set(self, kind: str, status: bool, reason: str, message: str) -> None:
        """Set a condition; its time moves when its status changes."""
        before = next((c for c in self.conditions if c.type == kind), None)
        same = before is not None and before.status == str(status)
        since = before.last_transition_time if before is not None and same else self.now
        made = HorizontalPodAutoscalerCondition(
            type=kind, status=str(status), reason=reason, message=message, last_transition_time=since
        )
        if before is None:
            self.conditions.append(made)
        else:
            self.conditions[self.conditions.index(before)] = made


@dataclass(frozen=True, slots=True)
class _Scale:
    """The scale subresource of a target."""

    path: str
    body: Mapping[str, Any]

    @property
    def replicas(self) -> int:
        return int((self.body.get("spec") or {}).get("replicas") or 0)

    @property
    def selector(self) -> str:
        return str((self.body.get("status") or {}).get("selector") or "")


class AutoscalerController:
    """Reconciles HorizontalPodAutoscalers."""

    def __init__(self, context: Context, kinds: Kinds, *, period: float = PERIOD) -> None:
        self._context = context
        self._client = context.client
        self._kinds = kinds
        self._period = period
        self._events = context.recorder("horizontal-pod-autoscaler")
        self._autoscalers = context.informers.of(HorizontalPodAutoscaler)
        self._pods = context.informers.of(Pod)
        self._histories: dict[Key, History] = {}
        self._selectors: dict[Key, Selector] = {}

    def controller(self) -> Controller:
        """The controller with its watches."""
        return Controller("autoscaler", self.reconcile).watch(self._autoscalers, predicate=_wants_other)

    async def reconcile(self, key: Key) -> Result:
        """One pass over an autoscaler."""
        found = self._autoscalers.get(key)
        if found is None or found.spec is None:
            self._histories.pop(key, None)
            self._selectors.pop(key, None)
            return Done()
        now = rfc3339(self._context.clock.now())
        conditions = list((found.status.conditions or ()) if found.status else ())
        one = _Pass(found, now, [c for c in conditions if c.type != "ScaledToZero"])
        before = found.status or HorizontalPodAutoscalerStatus()
        try:
            status = await self._decide(key, one)
        except _Stop as stop:
            current = stop.args[0] if stop.args else before.current_replicas
            statuses = one.statuses if stop.args else before.current_metrics
            status = msgspec.structs.replace(
                before, conditions=one.conditions, current_metrics=statuses or None, current_replicas=current
            )
            status = msgspec.structs.replace(status, desired_replicas=before.desired_replicas or 0)
        await self._report(found, status)
        return After(self._period)

    async def _report(self, found: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus) -> None:
        patch = status_patch(found, status)
        if patch is None:
            return
        meta = found.metadata
        try:
            await self._client.patch(
                HorizontalPodAutoscaler,
                meta.name or "",
                patch,
                namespace=meta.namespace or "",
                subresource="status",
            )
        except NotFound:
            return
        except KubeError as error:
            self._events.warning(found, "FailedUpdateStatus", str(error))
            raise

    # --- the decision

    async def _decide(self, key: Key, one: _Pass) -> HorizontalPodAutoscalerStatus:
        """Scale if need be; return the status. Raises `_Stop` after the condition that says why."""
        scale = await self._scale_of(one)
        one.set(
            "AbleToScale",
            True,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        )
        current, clock = scale.replicas, self._context.clock.monotonic()
        history = self._histories.setdefault(key, History([(clock, current)]))
        least, most = one.spec.min_replicas, one.spec.max_replicas or 0
        least = 1 if least is None else least
        wanted, reason = current, ""
        if current == 0:
            one.set(
                "ScalingActive",
                False,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            )
        elif current > most:
            wanted, reason = most, "Current number of replicas above Spec.MaxReplicas"
        elif current < least:
            wanted, reason = least, "Current number of replicas below Spec.MinReplicas"
        else:
            asked, metric = await self._asked(key, one, scale)
            if asked > current:
                reason = f"{metric} above target"
            elif asked < current:
                reason = "All metrics below target"
            allowed = normalized(
                asked, history, one.spec.behavior, current=current, least=least, most=most, now=clock
            )
            one.set("AbleToScale", True, *allowed.able)
            one.set("ScalingLimited", allowed.limited, *allowed.limit)
            wanted = allowed.replicas
        if wanted != current:
            await self._rescale(one, scale, wanted, reason)
            self._remember(one.spec, history, current, wanted)
        last = one.autoscaler.status.last_scale_time if one.autoscaler.status else None
        return HorizontalPodAutoscalerStatus(
            current_replicas=current,
            desired_replicas=wanted,
            last_scale_time=one.now if wanted != current else last,
            current_metrics=one.statuses or None,
            conditions=one.conditions,
        )

    def _remember(self, spec: HorizontalPodAutoscalerSpec, history: History, before: int, after: int) -> None:
        if spec.behavior is not None:
            rules = spec.behavior.scale_up if after > before else spec.behavior.scale_down
            now = self._context.clock.monotonic()
            history.scaled(now, before, after, keep=longest_period(rules))

    # --- the target

    async def _scale_of(self, one: _Pass) -> _Scale:
        target = one.spec.scale_target_ref
        api_version, kind = (target.api_version or "", target.kind or "") if target else ("", "")
        resource = self._kinds.find(api_version, kind)
        if resource is None or target is None:
            group = api_version.rpartition("/")[0]
            raise self._unscalable(one, f'no matches for kind "{kind}" in group "{group}"')
        path = resource.path(namespace=one.namespace, name=target.name or "", subresource="scale")
        try:
            answer = await self._client.live.request("GET", path)
        except ApiError as error:
            raise self._unscalable(one, error.message) from error
        return _Scale(path, msgspec.json.decode(answer.body))

    def _unscalable(self, one: _Pass, why: str) -> _Stop:
        self._events.warning(one.autoscaler, "FailedGetScale", why)
        text = f"the HPA controller was unable to get the target's current scale: {why}"
        one.set("AbleToScale", False, "FailedGetScale", text)
        return _Stop()

    async def _rescale(self, one: _Pass, scale: _Scale, wanted: int, reason: str) -> None:
        try:
            await self._write_scale(scale, wanted)
        except ApiError as error:
            text = f"New size: {wanted}; reason: {reason}; error: {error.message}"
            self._events.warning(one.autoscaler, "FailedRescale", text)
            why = f"the HPA controller was unable to update the target scale: {error.message}"
            one.set("AbleToScale", False, "FailedUpdateScale", why)
            raise _Stop(scale.replicas) from error
        text = f"the HPA controller was able to update the target scale to {wanted}"
        one.set("AbleToScale", True, "SucceededRescale", text)
        self._events.normal(one.autoscaler, "SuccessfulRescale", f"New size: {wanted}; reason: {reason}")

    async def _write_scale(self, scale: _Scale, wanted: int) -> None:
        """Set the replicas; over somebody else's change too, which says nothing of the number wanted."""
        body = dict(scale.body)
        for left in range(_ATTEMPTS - 1, -1, -1):
            body["spec"] = {**(body.get("spec") or {}), "replicas": wanted}
            try:
                await self._client.live.request("PUT", scale.path, body=msgspec.json.encode(body))
                return
            except Conflict:
                if not left:
                    raise
                answer = await self._client.live.request("GET", scale.path)
                body = msgspec.json.decode(answer.body)

    # --- what the metrics ask for

    async def _asked(self, key: Key, one: _Pass, scale: _Scale) -> tuple[int, str]:
        """Return the most replicas any metric asks for, and that metric's name; raises `_Stop`."""
        metrics = one.spec.metrics or []
        try:
            selector = self._selector(key, one, scale.selector)
        except Unknown as error:
            self._events.warning(one.autoscaler, "FailedComputeMetricsReplicas", str(error))
            raise _Stop(scale.replicas) from None
        one.statuses = [MetricStatus(type="") for _ in metrics]
        pods = [p for p in self._pods.list(one.namespace) if selector.matches(p.metadata.labels)]
        asked, name = 0, ""
        failures: list[tuple[str, str, str]] = []
        for index, metric in enumerate(metrics):
            try:
                proposal, about = await self._by_metric(one, metric, scale, pods)
            except Unknown as error:
                failures.append(self._failed(one, metric, str(error)))
                continue
            one.statuses[index] = _status_of(metric, proposal)
            if asked == 0 or proposal.replicas > asked:
                asked, name = proposal.replicas, about
        if failures and (len(failures) == len(metrics) or asked < scale.replicas):
            reason, message, first = failures[0]
            one.set("ScalingActive", False, reason, message)
            total = (
                f"invalid metrics ({len(failures)} invalid out of {len(metrics)}), first error is: {first}"
            )
            self._events.warning(one.autoscaler, "FailedComputeMetricsReplicas", total)
            raise _Stop(scale.replicas)
        text = f"the HPA was able to successfully calculate a replica count from {name}"
        one.set("ScalingActive", True, "ValidMetricFound", text)
        return asked, name

    def _selector(self, key: Key, one: _Pass, text: str) -> Selector:
        if not text:
            self._events.warning(one.autoscaler, "SelectorRequired", "selector is required")
            one.set("ScalingActive", False, "InvalidSelector", "the HPA target's scale is missing a selector")
            raise Unknown("selector is required")
        try:
            selector = parse_selector(text)
        except ValueError as error:
            why = f"couldn't convert selector into a corresponding internal selector object: {error}"
            self._not_active(one, "InvalidSelector", why)
            raise Unknown(why) from None
        self._selectors[key] = selector
        pods = [p for p in self._pods.list(one.namespace) if selector.matches(p.metadata.labels)]
        rivals = [
            other
            for other, theirs in self._selectors.items()
            if other.namespace == one.namespace and any(theirs.matches(p.metadata.labels) for p in pods)
        ]
        if len(rivals) > 1:
            listed = " ".join(f"{{{other.namespace} {other.name}}}" for other in rivals)
            why = f"pods by selector {text} are controlled by multiple HPAs: [{listed}]"
            self._not_active(one, "AmbiguousSelector", why)
            raise Unknown(why)
        return selector

    def _not_active(self, one: _Pass, reason: str, why: str) -> None:
        self._events.warning(one.autoscaler, reason, why)
        one.set("ScalingActive", False, reason, why)

    def _failed(self, one: _Pass, metric: MetricSpec, why: str) -> tuple[str, str, str]:
        """Tell of a metric that cannot be had; return the reason and message of its condition, and a name."""
        kind = metric.type or ""
        reason, about = f"FailedGet{kind}Metric", f"{kind.lower()} metric value"
        if kind == "Resource" and metric.resource is not None:
            about = f"{metric.resource.name} resource metric value"
        elif kind == "ContainerResource" and metric.container_resource is not None:
            about = f"{metric.container_resource.container} container metric value"
        elif kind == "External" and metric.external is not None and metric.external.metric is not None:
            about = f"{metric.external.metric.name} external metric value"
        self._events.warning(one.autoscaler, reason, why)
        return (
            reason,
            f"the HPA was unable to compute the replica count: {why}",
            f"failed to get {about}: {why}",
        )

    async def _by_metric(
        self, one: _Pass, metric: MetricSpec, scale: _Scale, pods: Sequence[Pod]
    ) -> tuple[Proposal, str]:
        """Return what one metric asks for and its name; raises `Unknown`."""
        source = metric.resource or metric.container_resource
        if source is None:
            raise Unknown(_foreign(metric))
        container = metric.container_resource.container or "" if metric.container_resource else ""
        target = _target(source.name or "", container, source.target)
        about = "usage" if target.average is not None else "utilization"
        try:
            proposal = propose(
                scale.replicas,
                target,
                await self._usages(one.namespace, scale.selector, target),
                pods,
                tolerance=_tolerance(one.spec),
                now=self._context.clock.now(),
            )
        except Unknown as error:
            raise Unknown(f"failed to get {target.resource} {about}: {error}") from None
        if target.average is not None:
            return proposal, f"{target.resource} resource"
        kind = "container resource" if container else "resource"
        return proposal, f"{target.resource} {kind} utilization (percentage of request)"

    async def _usages(self, namespace: str, selector: str, target: Target) -> dict[str, Usage]:
        """Return what the pods use, by name, as metrics.k8s.io says; raises `Unknown`."""
        unable = f"unable to get metrics for resource {target.resource}"
        path = f"{_METRICS}/namespaces/{namespace}/pods"
        try:
            answer = await self._client.live.request("GET", path, query={"labelSelector": selector})
        except ApiError as error:
            why = error.message
            if isinstance(error, NotFound):
                why = "the server could not find the requested resource (get pods.metrics.k8s.io)"
            text = f"{unable}: unable to fetch metrics from resource metrics API: {why}"
            raise Unknown(text) from None
        items = msgspec.json.decode(answer.body).get("items") or []
        if not items:
            raise Unknown(f"{unable}: no metrics returned from resource metrics API")
        usages = {}
        for item in items:
            value = _used(item.get("containers") or (), target)
            if value is not None:
                window = _window(item.get("window") or "")
                usages[item["metadata"]["name"]] = Usage(value, moment(item.get("timestamp")), window)
        return usages


def _wants_other(change: Transition[HorizontalPodAutoscaler]) -> bool:
    old, new = change.old, change.new
    return old is None or new is None or old.spec != new.spec


def _used(containers: Iterable[Mapping[str, Any]], target: Target) -> int | None:
    """Return what containers use together, in thousandths; None when a figure is missing."""
    total, found = 0, False
    for container in containers:
        if target.container and container.get("name") != target.container:
            continue
        usage = (container.get("usage") or {}).get(target.resource)
        if usage is None:
            return None
        found = True
        # As Go's MilliValue: rounded up.
        total += -int(-parse_quantity(usage) * 1000 // 1)
    return total if found else None


def _window(text: str) -> timedelta:
    """Read a Go duration: `30s`, `1m0.5s`."""
    seconds, number = 0.0, ""
    unit = ""
    for char in text + "0":
        if char.isdigit() or char == ".":
            if unit:
                seconds += float(number) * _DURATION.get(unit, 0.0)
                number, unit = "", ""
            number += char
        else:
            unit += char
    return timedelta(seconds=seconds)


def _target(resource: str, container: str, target: MetricTarget | None) -> Target:
    """Read a target; raises `Unknown` when it names none."""
    if target is not None and target.average_value is not None:
        average = -int(-parse_quantity(target.average_value) * 1000 // 1)
        return Target(resource, container, average=average)
    if target is None or target.average_utilization is None:
        raise Unknown(
            "invalid resource metric source: neither an average utilization target nor an average value "
            "(usage) target was set"
        )
    return Target(resource, container, utilization=target.average_utilization)


def _tolerance(spec: HorizontalPodAutoscalerSpec) -> Tolerance:
    default = Tolerance()
    if spec.behavior is None:
        return default
    down, up = spec.behavior.scale_down, spec.behavior.scale_up
    return Tolerance(
        down=float(parse_quantity(down.tolerance)) if down and down.tolerance is not None else default.down,
        up=float(parse_quantity(up.tolerance)) if up and up.tolerance is not None else default.up,
    )


def _foreign(metric: MetricSpec) -> str:
    """Say why a metric of another API cannot be had: nothing here serves them."""
    custom = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
    if metric.pods is not None and metric.pods.metric is not None:
        return f"unable to get metric {metric.pods.metric.name}: {custom}"
    if metric.object is not None and metric.object.metric is not None:
        return f"unable to get metric {metric.object.metric.name}: {custom}"
    name = metric.external.metric.name if metric.external and metric.external.metric else ""
    return (
        f"unable to get external metric {name}: unable to fetch metrics from external metrics API: the server "
        f"could not find the requested resource (get {name}.external.metrics.k8s.io)"
    )


def _status_of(metric: MetricSpec, proposal: Proposal) -> MetricStatus:
    name = (metric.resource or metric.container_resource or ResourceMetricStatus()).name or ""
    value = _amount(name, proposal.average)
    current = MetricValueStatus(average_value=value, average_utilization=proposal.utilization)
    if metric.container_resource is not None:
        container = metric.container_resource.container
        status = ContainerResourceMetricStatus(name=name, container=container, current=current)
        return MetricStatus(type="ContainerResource", container_resource=status)
    return MetricStatus(type="Resource", resource=ResourceMetricStatus(name=name, current=current))


def _amount(resource: str, thousandths: int) -> str:
    """Write an amount as a quantity: memory in bytes with a binary suffix, others down to thousandths."""
    if resource == "memory":
        return format_bytes(-(-thousandths // 1000))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"
