"""Tables for `kubectl get`, and metadata-only objects.

The columns are those of k8s.io/kubernetes/pkg/printers/internalversion; custom resources bring theirs as
additionalPrinterColumns. A kind without columns of its own shows name and age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mooring.local.api import failures
from mooring.local.api.http import Query
from mooring.local.api.jsonpath import JsonPathError, find
from mooring.local.api.registry import Served
from mooring.local.api.wire import canonical_quantity, quantity_value

__all__ = ["age", "duration", "of_objects", "partial"]

JsonObject = dict[str, Any]
Cells = Sequence[Any]
NONE = "<none>"
UNSET = "<unset>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True, slots=True)
class _Column:
    """One column; wide ones have a priority above 0."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def to_json(self) -> JsonObject:
        """Return the column definition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


NAME = _Column("Name", format="name", description="Name must be unique within a namespace.")
AGE = _Column("Age", description="The time since the object was created.")


#: What the row of a pod that has ended says of it, by phase.
_COMPLETED: Mapping[str, JsonObject] = {
    phase: {"type": "Completed", "status": "True", "reason": phase, "message": message}
    for phase, message in (
        ("Succeeded", "The pod has completed successfully."),
        ("Failed", "The pod failed."),
    )
}


def of_objects(
    objects: Sequence[JsonObject],
    served: Served,
    query: Query,
    now: datetime,
    api_version: str,
    *,
    meta: JsonObject | None = None,
) -> JsonObject:
    """Return a Table; `includeObject` decides what each row carries of its object."""
    include = query.text("includeObject") or "Metadata"
    if include not in ("None", "Metadata", "Object"):
        raise failures.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    columns, cells = _printer(served, now)
    if len(objects) == 1 and objects[0].get("kind") == "Scale":
        columns, cells = _SCALE[0], lambda obj: _SCALE[1](obj, now)
    rows = []
    for obj in objects:
        row: JsonObject = {"cells": list(cells(obj)) if not _is_bookmark(obj) else []}
        if served.storage == "pods" and (done := _COMPLETED.get(_at(obj, "status", "phase"))):
            row["conditions"] = [done]
        row["object"] = obj if include == "Object" else None
        if include == "Metadata":
            row["object"] = partial(obj, api_version)
        rows.append(row)
    if meta is None:
        version = objects[0]["metadata"].get("resourceVersion") if len(objects) == 1 else None
        meta = {"resourceVersion": version} if version else {}
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": meta,
        "columnDefinitions": [column.to_json() for column in columns],
        # The generic printer of a real server prints none as null.
        "rows": rows or (None if served.custom is None and columns[-1].type == "date" else []),
    }


def _is_bookmark(obj: JsonObject) -> bool:
    return "name" not in obj["metadata"]


def partial(obj: JsonObject, api_version: str) -> JsonObject:
    """Return the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}


def _printer(served: Served, now: datetime) -> tuple[Sequence[_Column], Callable[[JsonObject], Cells]]:
    if served.custom is not None:
        return _custom_printer(served, now)
    found = _PRINTERS.get(served.storage)
    if found is None:
        columns: Sequence[_Column] = (NAME, _Column("Created At", "date"))
        return columns, lambda obj: (_name(obj), obj["metadata"].get("creationTimestamp"))
    columns, cells = found
    return columns, lambda obj: cells(obj, now)


# --- custom resources -----------------------------------------------------------------------------------


def _custom_printer(served: Served, now: datetime) -> tuple[Sequence[_Column], Callable[[JsonObject], Cells]]:
    assert served.custom is not None
    extra = served.custom.columns or (
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    )
    columns = [NAME, *map(_custom_column, extra)]

    def cells(obj: JsonObject) -> Cells:
        return [_name(obj), *(_custom_cell(obj, column, now) for column in extra)]

    return columns, cells


def _custom_column(column: Mapping[str, Any]) -> _Column:
    path = f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
    return _Column(
        column["name"],
        column["type"],
        column.get("format", ""),
        column.get("priority", 0),
        column.get("description") or path,
    )


def _custom_cell(obj: JsonObject, column: Mapping[str, Any], now: datetime) -> Any:
    try:
        values = find(obj, column["jsonPath"])
    except JsonPathError:
        return None
    if not values or values[0] is None:
        return None
    value = values[0]
    kind = column["type"]
    if kind == "string":
        return _plain(value)
    if kind == "date":
        return age(value, now) if isinstance(value, str) else UNKNOWN
    if kind == "integer" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value)
    if kind == "number" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind == "boolean" and isinstance(value, bool):
        return value
    return None


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + " ".join(_plain(item) for item in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_plain(value[key])}" for key in sorted(value)) + "]"
    return str(value)


# --- times ----------------------------------------------------------------------------------------------


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def age(text: str | None, now: datetime) -> str:
    """Return the time since a moment as kubectl shows it, `<unknown>` when there is none."""
    moment = _moment(text)
    return UNKNOWN if moment is None else duration((now - moment).total_seconds())


def duration(seconds: float) -> str:
    """Return a duration as kubectl shows it: 90s, 5m10s, 3h, 2d5h, 4y12d."""
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    s = max(s, 0)
    if s < 120:
        return f"{s}s"
    minutes = s // 60
    if minutes < 10:
        return _two(minutes, "m", s % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"


# --- pieces of objects ----------------------------------------------------------------------------------


def _name(obj: JsonObject) -> str:
    return str(obj["metadata"].get("name", ""))


def _age(obj: JsonObject, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _at(obj: Any, *path: str, default: Any = None) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted((labels or {}).items())) or NONE


def _selector(selector: Mapping[str, Any] | None) -> str:
    selector = selector or {}
    parts = [f"{k}={v}" for k, v in sorted((selector.get("matchLabels") or {}).items())]
    parts += [_expression(expression) for expression in selector.get("matchExpressions") or ()]
    return ",".join(parts) or NONE


def _expression(expression: Mapping[str, Any]) -> str:
    key, op = expression["key"], expression["operator"]
    if op == "Exists":
        return str(key)
    if op == "DoesNotExist":
        return f"!{key}"
    values = ",".join(sorted(expression.get("values") or ()))
    return f"{key} {'in' if op == 'In' else 'notin'} ({values})"


def _containers(spec: Any) -> tuple[str, str]:
    containers = _at(spec, "containers", default=[])
    names = ",".join(c.get("name", "") for c in containers)
    return names, ",".join(c.get("image", "") for c in containers)


def _access_modes(modes: Iterable[str]) -> str:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    present = set(modes)
    return ",".join(short[mode] for mode in short if mode in present)


def _condition(obj: JsonObject, kind: str) -> JsonObject | None:
    for condition in _at(obj, "status", "conditions", default=()):
        if condition.get("type") == kind:
            found: JsonObject = condition
            return found
    return None


# --- pods -----------------------------------------------------------------------------------------------

POD_COLUMNS = (
    NAME,
    _Column("Ready"),
    _Column("Status"),
    _Column("Restarts"),
    AGE,
    _Column("IP", priority=1),
    _Column("Node", priority=1),
    _Column("Nominated Node", priority=1),
    _Column("Readiness Gates", priority=1),
)


def _pod(obj: JsonObject, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    reason, ready, restarts, last = _pod_state(obj)
    text = str(restarts)
    if restarts and last:
        text = f"{restarts} ({age(last, now)} ago)"
    total = len(spec.get("containers") or ()) + sum(
        1 for c in spec.get("initContainers") or () if _is_sidecar(c)
    )
    gates = spec.get("readinessGates") or ()
    met = sum(1 for gate in gates if (_condition(obj, gate["conditionType"]) or {}).get("status") == "True")
    return (
        _name(obj),
        f"{ready}/{total}",
        reason,
        text,
        _age(obj, now),
        _at(status, "podIP", default=NONE) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{met}/{len(gates)}" if gates else NONE,
    )


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _pod_state(obj: JsonObject) -> tuple[str, int, int, str]:
    """Return what the Status column says, ready containers, restarts, and the last restart."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    reason = status.get("reason") or status.get("phase") or ""
    scheduled = _condition(obj, "PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    sidecars = {c["name"] for c in spec.get("initContainers") or () if _is_sidecar(c)}
    ready = restarts = 0
    last = ""
    initializing = False
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts += container.get("restartCount", 0)
        last = max(last, _at(container, "lastState", "terminated", "finishedAt", default=""))
        sidecar = container["name"] in sidecars
        if sidecar and container.get("started") and container.get("ready"):
            ready += 1
        if initializing:
            continue
        terminated = _at(container, "state", "terminated")
        waiting = _at(container, "state", "waiting", "reason", default="")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if sidecar and container.get("started"):
            continue
        initializing = True
        if terminated is not None:
            reason = "Init:" + _terminated(terminated)
        elif waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
    if not initializing:
        running = False
        main_restarts, main_last = 0, ""
        for container in reversed(status.get("containerStatuses") or ()):
            main_restarts += container.get("restartCount", 0)
            main_last = max(main_last, _at(container, "lastState", "terminated", "finishedAt", default=""))
            state = container.get("state") or {}
            waiting = _at(state, "waiting", "reason", default="")
            terminated = state.get("terminated")
            if waiting:
                reason = waiting
            elif terminated is not None:
                reason = _terminated(terminated)
            elif container.get("ready") and "running" in state:
                running = True
                ready += 1
        restarts, last = restarts * bool(sidecars) + main_restarts, max(main_last, last if sidecars else "")
        if reason == "Completed" and running:
            is_ready = (_condition(obj, "Ready") or {}).get("status") == "True"
            reason = "Running" if is_ready else "NotReady"
    if obj["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Failed", "Succeeded"):
            reason = "Terminating"
    return reason, ready, restarts, last


def _terminated(state: Mapping[str, Any]) -> str:
    if state.get("reason"):
        return str(state["reason"])
    if state.get("signal"):
        return f"Signal:{state['signal']}"
    return f"ExitCode:{state.get('exitCode', 0)}"


# --- workloads ------------------------------------------------------------------------------------------


def _stateful_set(obj: JsonObject, now: datetime) -> Cells:
    names, images = _containers(_at(obj, "spec", "template", "spec"))
    ready, wanted = _at(obj, "status", "readyReplicas", default=0), _at(obj, "spec", "replicas", default=1)
    return (_name(obj), f"{ready}/{wanted}", _age(obj, now), names, images)


def _deployment(obj: JsonObject, now: datetime) -> Cells:
    status = obj.get("status") or {}
    names, images = _containers(_at(obj, "spec", "template", "spec"))
    return (
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{_at(obj, 'spec', 'replicas', default=1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        names,
        images,
        _selector(_at(obj, "spec", "selector")),
    )


def _replica_set(obj: JsonObject, now: datetime) -> Cells:
    status = obj.get("status") or {}
    names, images = _containers(_at(obj, "spec", "template", "spec"))
    selector = _at(obj, "spec", "selector", default={})
    shown = _selector(selector) if obj.get("kind") == "ReplicaSet" else _labels(selector)
    return (
        _name(obj),
        _at(obj, "spec", "replicas", default=1),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _age(obj, now),
        names,
        images,
        shown,
    )


def _daemon_set(obj: JsonObject, now: datetime) -> Cells:
    status = obj.get("status") or {}
    names, images = _containers(_at(obj, "spec", "template", "spec"))
    return (
        _name(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        _labels(_at(obj, "spec", "template", "spec", "nodeSelector")),
        _age(obj, now),
        names,
        images,
        _selector(_at(obj, "spec", "selector")),
    )


def _job(obj: JsonObject, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    parallelism = spec.get("parallelism") or 0
    total = (
        str(spec["completions"])
        if spec.get("completions") is not None
        else f"1 of {parallelism}"
        if parallelism > 1
        else "1"
    )
    start, end = _moment(status.get("startTime")), _moment(status.get("completionTime"))
    took = duration(((end or now) - start).total_seconds()) if start else ""
    state = "Running"
    for kind, shown in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if (_condition(obj, kind) or {}).get("status") == "True":
            state = shown
            break
    else:
        if obj["metadata"].get("deletionTimestamp"):
            state = "Terminating"
    names, images = _containers(_at(spec, "template", "spec"))
    done = f"{status.get('succeeded', 0)}/{total}"
    return (_name(obj), state, done, took, _age(obj, now), names, images, _selector(spec.get("selector")))


def _cron_job(obj: JsonObject, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    names, images = _containers(_at(spec, "jobTemplate", "spec", "template", "spec"))
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    return (
        _name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        last,
        _age(obj, now),
        names,
        images,
        _selector(_at(spec, "jobTemplate", "spec", "selector")),
    )


def _ingress_class(obj: JsonObject, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    parameters = spec.get("parameters") or {}
    shown = NONE
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        shown = f"{parameters.get('kind')}{group}/{parameters.get('name')}"
    return (_name(obj), spec.get("controller", ""), shown, _age(obj, now))


def _runtime_class(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), obj.get("handler", ""), _age(obj, now))


def _csi_driver(obj: JsonObject, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    tokens = ",".join(request.get("audience", "") for request in spec.get("tokenRequests") or ())
    return (
        _name(obj),
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        tokens or UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        _age(obj, now),
    )


def _budget(obj: JsonObject, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    return (
        _name(obj),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        _at(obj, "status", "disruptionsAllowed", default=0),
        _age(obj, now),
    )


def _autoscaler(obj: JsonObject, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    current = {_metric_key(m): m for m in status.get("currentMetrics") or ()}
    shown = [_metric(metric, current.get(_metric_key(metric))) for metric in spec.get("metrics") or ()]
    targets = ", ".join(shown[:2]) + (f" + {len(shown) - 2} more..." if len(shown) > 2 else "") or NONE
    return (
        _name(obj),
        f"{target.get('kind')}/{target.get('name')}",
        targets,
        str(spec["minReplicas"]) if spec.get("minReplicas") is not None else UNSET,
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _age(obj, now),
    )


def _metric_key(metric: Mapping[str, Any]) -> tuple[str, str]:
    kind = str(metric.get("type"))
    detail = metric.get(kind[:1].lower() + kind[1:]) or {}
    return kind, str(detail.get("name") or _at(detail, "metric", "name", default=""))


def _metric(metric: Mapping[str, Any], current: Mapping[str, Any] | None) -> str:
    kind = str(metric.get("type"))
    field = kind[:1].lower() + kind[1:]
    detail = metric.get(field) or {}
    target, have = detail.get("target") or {}, _at(current, field, "current", default={})
    if target.get("averageUtilization") is not None:
        now = f"{have['averageUtilization']}%" if "averageUtilization" in have else UNKNOWN
        return f"{detail.get('name', '')}: {now}/{target['averageUtilization']}%"
    value = target.get("averageValue") or target.get("value")
    return f"{have.get('averageValue') or have.get('value') or UNKNOWN}/{value}"


# --- network --------------------------------------------------------------------------------------------


def _service(obj: JsonObject, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    internal = spec.get("clusterIP") or NONE
    if spec.get("type") == "ExternalName":
        internal = NONE
    return (
        _name(obj),
        spec.get("type", "ClusterIP"),
        internal,
        _external(obj),
        ",".join(_service_port(port) for port in spec.get("ports") or ()) or NONE,
        _age(obj, now),
        _labels(spec.get("selector")),
    )


def _external(obj: JsonObject) -> str:
    spec = obj.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or NONE)
    external = list(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        ingress = _at(obj, "status", "loadBalancer", "ingress", default=())
        external = [i.get("ip") or i.get("hostname") or "" for i in ingress] + external
        return ",".join(external) or "<pending>"
    return ",".join(external) or NONE


def _service_port(port: Mapping[str, Any]) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


def _endpoints(obj: JsonObject, now: datetime) -> Cells:
    shown: list[str] = []
    total = 0
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or [{}]
        for port in ports:
            for address in subset.get("addresses") or ():
                total += 1
                number = f":{port['port']}" if port.get("port") else ""
                shown.append(f"{address.get('ip')}{number}")
    text = ",".join(shown[:3]) + (f" + {total - 3} more..." if total > 3 else "")
    return (_name(obj), text or NONE, _age(obj, now))


def _endpoint_slice(obj: JsonObject, now: datetime) -> Cells:
    ports = obj.get("ports")
    numbers = [str(port.get("port", "*")) for port in ports or ()]
    addresses = [a for endpoint in obj.get("endpoints") or () for a in endpoint.get("addresses") or ()]
    return (
        _name(obj),
        obj.get("addressType", ""),
        _few(numbers) if ports is not None else UNSET,
        _few(addresses),
        _age(obj, now),
    )


def _few(values: Sequence[str], limit: int = 3) -> str:
    if not values:
        return UNSET
    more = f" + {len(values) - limit} more..." if len(values) > limit else ""
    return ",".join(values[:limit]) + more


def _ingress(obj: JsonObject, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    ingress = _at(obj, "status", "loadBalancer", "ingress", default=())
    addresses = ",".join(i.get("ip") or i.get("hostname") or "" for i in ingress)
    return (
        _name(obj),
        spec.get("ingressClassName") or NONE,
        _few(hosts) if hosts else "*",
        addresses,
        "80, 443" if spec.get("tls") else "80",
        _age(obj, now),
    )


def _network_policy(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), _selector(_at(obj, "spec", "podSelector")), _age(obj, now))


# --- storage --------------------------------------------------------------------------------------------


def _claim(obj: JsonObject, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    bound = bool(spec.get("volumeName"))
    return (
        _name(obj),
        phase,
        spec.get("volumeName", ""),
        _at(status, "capacity", "storage", default="") if bound else "",
        _access_modes(status.get("accessModes") or ()) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or UNSET,
        _age(obj, now),
        spec.get("volumeMode") or UNSET,
    )


def _volume(obj: JsonObject, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    claim = spec.get("claimRef") or {}
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return (
        _name(obj),
        _at(spec, "capacity", "storage", default=""),
        _access_modes(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason", ""),
        _age(obj, now),
        spec.get("volumeMode") or UNSET,
    )


def _storage_class(obj: JsonObject, now: datetime) -> Cells:
    name = _name(obj)
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    return (
        name,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        _age(obj, now),
    )


# --- the rest -------------------------------------------------------------------------------------------


def _node(obj: JsonObject, now: datetime) -> Cells:
    status = obj.get("status") or {}
    ready = _condition(obj, "Ready")
    states = ["Unknown"] if ready is None else ["Ready" if ready.get("status") == "True" else "NotReady"]
    if _at(obj, "spec", "unschedulable"):
        states.append("SchedulingDisabled")
    roles = []
    for key, value in sorted((obj["metadata"].get("labels") or {}).items()):
        if key.startswith("node-role.kubernetes.io/"):
            roles.append(key.partition("/")[2])
        elif key == "kubernetes.io/role" and value:
            roles.append(value)
    addresses = {a["type"]: a["address"] for a in reversed(status.get("addresses") or [])}
    info = status.get("nodeInfo") or {}
    return (
        _name(obj),
        ",".join(states),
        ",".join(sorted(set(filter(None, roles)))) or NONE,
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    )


def _event(obj: JsonObject, now: datetime) -> Cells:
    new = obj.get("apiVersion", "").startswith("events.k8s.io")
    about = obj.get("regarding" if new else "involvedObject") or {}
    source = obj.get("deprecatedSource" if new else "source") or {}
    reporter = obj.get("reportingController" if new else "reportingComponent") or ""
    component = source.get("component") or reporter
    host = source.get("host") or obj.get("reportingInstance") or ""
    first = obj.get("deprecatedFirstTimestamp" if new else "firstTimestamp") or obj.get("eventTime")
    last = obj.get("deprecatedLastTimestamp" if new else "lastTimestamp") or first
    count = obj.get("deprecatedCount" if new else "count") or 1
    if series := obj.get("series"):
        count, last = series.get("count", count), series.get("lastObservedTime") or last
    message = (obj.get("note" if new else "message") or "").strip()
    kind = str(about.get("kind", "")).lower()
    return (
        age(last, now),
        obj.get("type") or "",
        obj.get("reason", ""),
        f"{kind}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        ", ".join(filter(None, (component, host))),
        message,
        age(first, now),
        count,
        _name(obj),
    )


def _namespace(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), _at(obj, "status", "phase", default=""), _age(obj, now))


def _config_map(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now))


def _secret(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now))


def _service_account(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), _age(obj, now))


def _definition(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), obj["metadata"].get("creationTimestamp"))


def _lease(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), _at(obj, "spec", "holderIdentity", default=""), _age(obj, now))


def _controller_revision(obj: JsonObject, now: datetime) -> Cells:
    owner = next((o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)
    shown = NONE
    if owner:
        group = owner["apiVersion"].rpartition("/")[0]
        shown = f"{owner['kind'].lower()}{'.' + group if group else ''}/{owner['name']}"
    return (_name(obj), shown, obj.get("revision", 0), _age(obj, now))


def _priority_class(obj: JsonObject, now: datetime) -> Cells:
    policy = obj.get("preemptionPolicy") or "PreemptLowerPriority"
    return (_name(obj), obj.get("value", 0), bool(obj.get("globalDefault")), _age(obj, now), policy)


def _webhooks(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), len(obj.get("webhooks") or ()), _age(obj, now))


def _role(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), obj["metadata"].get("creationTimestamp"))


def _role_binding(obj: JsonObject, now: datetime) -> Cells:
    role = obj.get("roleRef") or {}
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        subjects.setdefault(subject.get("kind", ""), []).append(name)
    return (
        _name(obj),
        f"{role.get('kind')}/{role.get('name')}",
        _age(obj, now),
        ", ".join(subjects["User"]),
        ", ".join(subjects["Group"]),
        ", ".join(subjects["ServiceAccount"]),
    )


def _quota(obj: JsonObject, now: datetime) -> Cells:
    status = obj.get("status") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name, hard in sorted((status.get("hard") or {}).items()):
        shown = f"{name}: {(status.get('used') or {}).get(name, '0')}/{hard}"
        (limits if name.startswith("limits") else requests).append(shown)
    return (_name(obj), ", ".join(requests), ", ".join(limits), _age(obj, now))


def _pod_template(obj: JsonObject, now: datetime) -> Cells:
    names, images = _containers(_at(obj, "template", "spec"))
    return (_name(obj), names, images, _labels(_at(obj, "template", "metadata", "labels")))


def _names(
    *names: str, wide: Sequence[str] = (), integers: Sequence[str] = (), booleans: Sequence[str] = ()
) -> tuple[_Column, ...]:
    types = {**dict.fromkeys(integers, "integer"), **dict.fromkeys(booleans, "boolean")}
    shown = [_Column(name, types.get(name, "string")) for name in names]
    return (NAME, *shown, *(_Column(name, priority=1) for name in wide))


_WORKLOAD = ("Containers", "Images")
_Printer = tuple[Sequence[_Column], Callable[[JsonObject, datetime], Cells]]
_AGED: _Printer = (_names("Age"), _service_account)
_EVENTS: _Printer = (
    (
        _Column("Last Seen"),
        _Column("Type"),
        _Column("Reason"),
        _Column("Object"),
        _Column("Subobject", priority=1),
        _Column("Source", priority=1),
        _Column("Message"),
        _Column("First Seen", priority=1),
        _Column("Count", priority=1),
        _Column("Name", priority=1, format="name"),
    ),
    _event,
)
_ROLE: _Printer = ((NAME, _Column("Created At", "date")), _role)
_BINDING: _Printer = (_names("Role", "Age", wide=("Users", "Groups", "ServiceAccounts")), _role_binding)
_REPLICAS: _Printer = (
    _names(
        "Desired", "Current", "Ready", "Age",
        wide=(*_WORKLOAD, "Selector"), integers=("Desired", "Current", "Ready"),
    ),
    _replica_set,
)  # fmt: skip


def _used(*usages: JsonObject) -> tuple[str, str]:
    """The sums of cpu and memory."""
    totals = [
        sum((quantity_value(usage[name]) for usage in usages), Decimal(0)) for name in ("cpu", "memory")
    ]
    return canonical_quantity(f"{int(totals[0] * 10**9)}n"), f"{int(totals[1]) >> 10}Ki"


def _pod_metrics(obj: JsonObject, now: datetime) -> Cells:
    usages = [container["usage"] for container in obj["containers"]]
    return (_name(obj), *_used(*usages), obj["window"])


def _node_metrics(obj: JsonObject, now: datetime) -> Cells:
    return (_name(obj), *_used(obj["usage"]), obj["window"])


METRICS_COLUMNS = (
    _Column("Name", format="name", description="Name of the resource"),
    _Column("cpu", format="quantity"),
    _Column("memory", format="quantity"),
    _Column("Window", format="duration"),
)

_Cell = tuple[str, str, Callable[[JsonObject], Any]]


def _by_column(*columns: _Cell) -> _Printer:
    """Return the columns of a kind each of which one function of the object fills; "Age" fills itself."""

    def cells(obj: JsonObject, now: datetime) -> Cells:
        shown = (_age(obj, now) if name == "Age" else cell(obj) for name, _, cell in columns)
        return (_name(obj), *shown)

    return (NAME, *(_Column(name, kind) for name, kind, _ in columns)), cells


def _text(*path: str, default: Any = "") -> Callable[[JsonObject], Any]:
    return lambda obj: _at(obj, *path, default=default)


def _count(*path: str) -> Callable[[JsonObject], int]:
    return lambda obj: len(_at(obj, *path, default=None) or ())


def _param_kind(obj: JsonObject) -> str:
    kind = _at(obj, "spec", "paramKind", default=None)
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


def _param_ref(obj: JsonObject) -> str:
    reference = _at(obj, "spec", "paramRef", default=None) or {}
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    if reference.get("selector") is None:
        return UNSET
    selector = reference["selector"]
    labels = ",".join(f"{k}: {v}" for k, v in sorted((selector.get("matchLabels") or {}).items()))
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}"


def _signing_state(obj: JsonObject) -> str:
    kinds = {c.get("type") for c in _at(obj, "status", "conditions", default=None) or ()}
    state = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    failed = ",Failed" if "Failed" in kinds else ""
    return state + failed + (",Issued" if _at(obj, "status", "certificate", default="") else "")


def _signing_period(obj: JsonObject) -> str:
    seconds = _at(obj, "spec", "expirationSeconds", default=None)
    return NONE if seconds is None else duration(seconds)


def _parent(obj: JsonObject) -> str:
    parent = _at(obj, "spec", "parentRef", default=None)
    if not parent:
        return NONE
    kind = ".".join(filter(None, (parent.get("resource", ""), parent.get("group", "")))).lower()
    return "/".join(filter(None, (kind, parent.get("namespace", ""), parent.get("name", ""))))


def _available(obj: JsonObject) -> str:
    for condition in _at(obj, "status", "conditions", default=None) or ():
        if condition.get("type") == "Available":
            reason = condition.get("reason", "")
            return "True" if condition.get("status") == "True" else f"{condition.get('status')} ({reason})"
    return "Unknown"


def _api_service(obj: JsonObject) -> str:
    service = _at(obj, "spec", "service", default=None)
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _queue(key: str) -> Callable[[JsonObject], Any]:
    return lambda obj: _at(obj, "spec", "limited", "limitResponse", "queuing", key, default=NONE)


def _claim_state(obj: JsonObject) -> str:
    states = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
    status = obj.get("status") or {}
    states += ["allocated"] if status.get("allocation") else []
    states += ["reserved"] if status.get("reservedFor") else []
    return ",".join(states if "allocated" in states else [*states, "pending"])


def _missing_level(obj: JsonObject) -> str:
    conditions = _at(obj, "status", "conditions", default=None) or ()
    return next((c.get("status", "?") for c in conditions if c.get("type") == "Dangling"), "?")


_SCALE: _Printer = _by_column(
    ("Desired", "integer", _text("spec", "replicas", default=0)),
    ("Available", "integer", _text("status", "replicas", default=0)),
    ("Age", "string", str),
)
_AGE_CELL: _Cell = ("Age", "string", str)
_PARAMS: tuple[_Cell, ...] = (
    ("PolicyName", "string", _text("spec", "policyName")),
    ("ParamRef", "string", _param_ref),
    _AGE_CELL,
)
_PLAIN: Mapping[str, tuple[_Cell, ...]] = {
    "certificatesigningrequests.certificates.k8s.io": (
        _AGE_CELL,
        ("SignerName", "string", _text("spec", "signerName", default=NONE)),
        ("Requestor", "string", _text("spec", "username")),
        ("RequestedDuration", "string", _signing_period),
        ("Condition", "string", _signing_state),
    ),
    "servicecidrs.networking.k8s.io": (
        ("CIDRs", "string", lambda obj: ",".join(_at(obj, "spec", "cidrs", default=None) or ())),
        _AGE_CELL,
    ),
    "ipaddresses.networking.k8s.io": (("ParentRef", "string", _parent),),
    "csinodes.storage.k8s.io": (("Drivers", "integer", _count("spec", "drivers")), _AGE_CELL),
    "volumeattachments.storage.k8s.io": (
        ("Attacher", "string", _text("spec", "attacher")),
        ("PV", "string", _text("spec", "source", "persistentVolumeName")),
        ("Node", "string", _text("spec", "nodeName")),
        ("Attached", "boolean", _text("status", "attached", default=False)),
        _AGE_CELL,
    ),
    "volumeattributesclasses.storage.k8s.io": (("DriverName", "string", _text("driverName")), _AGE_CELL),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": (
        ("Mutations", "integer", _count("spec", "mutations")),
        ("ParamKind", "string", _param_kind),
        _AGE_CELL,
    ),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _PARAMS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": (
        ("Validations", "integer", _count("spec", "validations")),
        ("ParamKind", "string", _param_kind),
        _AGE_CELL,
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _PARAMS,
    "apiservices.apiregistration.k8s.io": (
        ("Service", "string", _api_service),
        ("Available", "string", _available),
        _AGE_CELL,
    ),
    "deviceclasses.resource.k8s.io": (_AGE_CELL,),
    "resourceclaims.resource.k8s.io": (("State", "string", _claim_state), _AGE_CELL),
    "resourceclaimtemplates.resource.k8s.io": (_AGE_CELL,),
    "resourceslices.resource.k8s.io": (
        ("Node", "string", _text("spec", "nodeName")),
        ("Driver", "string", _text("spec", "driver")),
        ("Pool", "string", _text("spec", "pool", "name")),
        _AGE_CELL,
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": (
        ("PriorityLevel", "string", _text("spec", "priorityLevelConfiguration", "name")),
        ("MatchingPrecedence", "string", _text("spec", "matchingPrecedence", default=0)),
        ("DistinguisherMethod", "string", _text("spec", "distinguisherMethod", "type", default=NONE)),
        _AGE_CELL,
        ("MissingPL", "string", _missing_level),
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": (
        ("Type", "string", _text("spec", "type")),
        (
            "NominalConcurrencyShares",
            "string",
            _text("spec", "limited", "nominalConcurrencyShares", default=NONE),
        ),
        ("Queues", "string", _queue("queues")),
        ("HandSize", "string", _queue("handSize")),
        ("QueueLengthLimit", "string", _queue("queueLengthLimit")),
        _AGE_CELL,
    ),
}

_PRINTERS: Mapping[str, _Printer] = {
    "pods.metrics.k8s.io": (METRICS_COLUMNS, _pod_metrics),
    "nodes.metrics.k8s.io": (METRICS_COLUMNS, _node_metrics),
    "pods": (POD_COLUMNS, _pod),
    "statefulsets.apps": (_names("Ready", "Age", wide=_WORKLOAD), _stateful_set),
    "deployments.apps": (
        _names(
            "Ready", "Up-to-date", "Available", "Age",
            wide=(*_WORKLOAD, "Selector"),
        ),
        _deployment,
    ),
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": _REPLICAS,
    "daemonsets.apps": (
        _names(
            "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age",
            wide=(*_WORKLOAD, "Selector"),
            integers=("Desired", "Current", "Ready", "Up-to-date", "Available"),
        ),
        _daemon_set,
    ),
    "controllerrevisions.apps": (
        _names("Controller", "Revision", "Age"),
        _controller_revision,
    ),
    "jobs.batch": (_names("Status", "Completions", "Duration", "Age", wide=(*_WORKLOAD, "Selector")), _job),
    "cronjobs.batch": (
        _names(
            "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age",
            wide=(*_WORKLOAD, "Selector"), integers=("Active",), booleans=("Suspend",),
        ),
        _cron_job,
    ),
    "poddisruptionbudgets.policy": (
        _names(
            "Min Available", "Max Unavailable", "Allowed Disruptions", "Age",
            integers=("Allowed Disruptions",),
        ),
        _budget,
    ),
    "horizontalpodautoscalers.autoscaling": (
        _names(
            "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age",
        ),
        _autoscaler,
    ),
    "services": (
        _names("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", wide=("Selector",)),
        _service,
    ),
    "endpoints": (_names("Endpoints", "Age"), _endpoints),
    "endpointslices.discovery.k8s.io": (
        _names("AddressType", "Ports", "Endpoints", "Age"),
        _endpoint_slice,
    ),
    "ingresses.networking.k8s.io": (_names("Class", "Hosts", "Address", "Ports", "Age"), _ingress),
    "ingressclasses.networking.k8s.io": (_names("Controller", "Parameters", "Age"), _ingress_class),
    "runtimeclasses.node.k8s.io": (_names("Handler", "Age"), _runtime_class),
    "csidrivers.storage.k8s.io": (
        _names(
            "AttachRequired", "PodInfoOnMount", "StorageCapacity", "TokenRequests", "RequiresRepublish",
            "Modes", "Age",
            booleans=("AttachRequired", "PodInfoOnMount", "StorageCapacity", "RequiresRepublish"),
        ),
        _csi_driver,
    ),
    "networkpolicies.networking.k8s.io": (_names("Pod-Selector", "Age"), _network_policy),
    "persistentvolumeclaims": (
        _names(
            "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age",
            wide=("VolumeMode",),
        ),
        _claim,
    ),
    "persistentvolumes": (
        _names(
            "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
            "VolumeAttributesClass", "Reason", "Age", wide=("VolumeMode",),
        ),
        _volume,
    ),
    "storageclasses.storage.k8s.io": (
        _names("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        _storage_class,
    ),
    "nodes": (
        _names(
            "Status", "Roles", "Age", "Version",
            wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    "events": _EVENTS,
    "namespaces": (_names("Status", "Age"), _namespace),
    "configmaps": (_names("Data", "Age"), _config_map),
    "secrets": (_names("Type", "Data", "Age"), _secret),
    "serviceaccounts": _AGED,
    "limitranges": ((NAME, _Column("Created At", "date")), _role),
    "resourcequotas": (_names("Request", "Limit", "Age"), _quota),
    "podtemplates": (_names("Containers", "Images", "Pod Labels"), _pod_template),
    "customresourcedefinitions.apiextensions.k8s.io": ((NAME, _Column("Created At", "date")), _definition),
    "leases.coordination.k8s.io": (_names("Holder", "Age"), _lease),
    "priorityclasses.scheduling.k8s.io": (
        _names("Value", "Global-Default", "Age", "PreemptionPolicy", integers=("Value",), booleans=("Global-Default",)),
        _priority_class,
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (
        _names("Webhooks", "Age", integers=("Webhooks",)),
        _webhooks,
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (
        _names("Webhooks", "Age", integers=("Webhooks",)),
        _webhooks,
    ),
    **{name: _by_column(*columns) for name, columns in _PLAIN.items()},
    "roles.rbac.authorization.k8s.io": _ROLE,
    "clusterroles.rbac.authorization.k8s.io": _ROLE,
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
}  # fmt: skip
