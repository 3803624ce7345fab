"""The rules of pods and pod templates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from mooring.local.api.validation.metadata import annotation_errors, label_errors
from mooring.local.api.validation.rules import (
    NOT_NEGATIVE,
    PROTOCOLS,
    Errors,
    JsonObject,
    chosen,
    nonnegative,
    port_errors,
    port_number,
)
from mooring.local.api.wire import quantity_value

__all__ = [
    "pod_create",
    "pod_spec",
    "pod_update",
    "resource_errors",
    "template",
    "toleration_errors",
]


def template(value: JsonObject, path: str) -> Errors:
    """Yield what is wrong with a pod template."""
    metadata = value.get("metadata") or {}
    yield from label_errors(metadata.get("labels"), f"{path}.labels")
    yield from annotation_errors(metadata.get("annotations"), f"{path}.annotations")
    spec = value.get("spec") or {}
    yield from pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        yield forbidden(
            f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"
        )


def pod_create(pod: JsonObject) -> Errors:
    """Yield what is wrong with a new pod, metadata aside."""
    spec = pod.get("spec") or {}
    yield from pod_spec(spec, "spec")
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")


def pod_spec(spec: JsonObject, path: str) -> Errors:
    """Yield what is wrong with a pod's spec."""
    volumes: set[str] = set()
    yield from _volumes(spec.get("volumes") or (), f"{path}.volumes", volumes)
    yield from _containers(spec.get("containers") or (), f"{path}.containers", volumes)
    taken = [container.get("name") for container in spec.get("containers") or ()]
    yield from _init_containers(spec.get("initContainers") or (), f"{path}.initContainers", volumes, taken)
    yield from chosen(spec, "restartPolicy", ("Always", "OnFailure", "Never"), path)
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    yield from chosen(spec, "dnsPolicy", policies, path)
    yield from label_errors(spec.get("nodeSelector"), f"{path}.nodeSelector")
    for key, check in _SPEC_NAMES.items():
        if spec.get(key):
            for text in check(spec[key]):
                yield invalid(f"{path}.{key}", spec[key], text)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        yield invalid(
            f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"
        )
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield required(f"{path}.dnsConfig", text)
    yield from toleration_errors(spec.get("tolerations") or (), f"{path}.tolerations")
    yield from _sysctls(spec, f"{path}.securityContext.sysctls")


_SPEC_NAMES: Final = {
    "serviceAccountName": names.dns1123_subdomain,
    "nodeName": names.dns1123_subdomain,
    "hostname": names.dns1123_label,
    "subdomain": names.dns1123_label,
    "priorityClassName": names.dns1123_subdomain,
    "runtimeClassName": names.dns1123_subdomain,
}


_SYSCTL: Final = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_SYSCTL_LENGTH: Final = 253
#: Kernel parameters of a namespace that a pod may share with its host, by their beginnings.
_SHARED_SYSCTLS: Final = {
    "hostNetwork": ("net.",),
    "hostIPC": ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."),
}


def _sysctls(spec: JsonObject, path: str) -> Errors:
    """Yield what is wrong with the kernel parameters a pod wants."""
    known: set[str] = set()
    for index, sysctl in enumerate((spec.get("securityContext") or {}).get("sysctls") or ()):
        place, name = f"{path}[{index}].name", sysctl.get("name") or ""
        if not name:
            yield required(place)
        elif len(name) > _SYSCTL_LENGTH or re.fullmatch(_SYSCTL, name) is None:
            why = f"must have at most {_SYSCTL_LENGTH} characters and match regex {_SYSCTL}"
            yield invalid(place, name, why)
        elif name in known:
            yield duplicate(place, name)
        for host, beginnings in _SHARED_SYSCTLS.items():
            if spec.get(host) and name.replace("/", ".").startswith(beginnings):
                yield invalid(place, name, f"may not be specified when '{host}' is true")
        known.add(name)


# --- volumes ------------------------------------------------------------------------------------------


def _volumes(volumes: Sequence[JsonObject], path: str, known: set[str]) -> Errors:
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        errors = list(_volume(volume, place))
        name = volume.get("name") or ""
        if not name:
            errors.append(required(f"{place}.name"))
        else:
            errors += [invalid(f"{place}.name", name, text) for text in names.dns1123_label(name)]
        if name in known:
            errors.append(duplicate(f"{place}.name", name))
        if errors:
            yield from errors
        else:
            known.add(name)


def _volume(volume: JsonObject, path: str) -> Errors:
    sources = [key for key in volume if key != "name"]
    if not sources:
        yield required(path, "must specify a volume type")
    for extra in sorted(sources)[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
    wanted = (
        ("secret", "secretName"),
        ("configMap", "name"),
        ("persistentVolumeClaim", "claimName"),
        ("hostPath", "path"),
    )
    for source, key in wanted:
        if source in volume and not (volume[source] or {}).get(key):
            yield required(f"{path}.{source}.{key}")
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            mode = (volume[source] or {}).get("defaultMode")
            if mode is not None and not 0 <= mode <= 0o777:
                text = "must be a number between 0 and 0777 (octal), both inclusive"
                yield invalid(f"{path}.{source}.defaultMode", mode, text)
            yield from _items((volume[source] or {}).get("items") or (), f"{path}.{source}.items", source)


def _items(items: Sequence[JsonObject], path: str, source: str) -> Errors:
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        if source != "downwardAPI" and not item.get("key"):
            yield required(f"{place}.key")
        if not item.get("path"):
            yield required(f"{place}.path")
        else:
            yield from _descending(item["path"], f"{place}.path")


def _descending(text: str, path: str) -> Errors:
    if text.startswith("/"):
        yield invalid(path, text, "must be a relative path")
    if ".." in text.split("/"):
        yield invalid(path, text, "must not contain '..'")


# --- containers ---------------------------------------------------------------------------------------


def _containers(containers: Sequence[JsonObject], path: str, volumes: set[str]) -> Errors:
    if not containers:
        yield required(path)
    seen: set[str] = set()
    for index, container in enumerate(containers):
        place = f"{path}[{index}]"
        yield from _container(container, place, volumes)
        name = container.get("name", "")
        if name in seen:
            yield duplicate(f"{place}.name", name)
        seen.add(name)
        yield from _lifecycle(container, place)


def _init_containers(
    containers: Sequence[JsonObject], path: str, volumes: set[str], taken: Sequence[str | None]
) -> Errors:
    seen = set(taken)
    for index, container in enumerate(containers):
        place = f"{path}[{index}]"
        yield from _container(container, place, volumes)
        name = container.get("name")
        if name in seen:
            yield duplicate(f"{place}.name", name)
        seen.add(name)
        if container.get("restartPolicy") == "Always":
            yield from _lifecycle(container, place)
            continue
        for key in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if key in container:
                text = "may not be set for init containers without restartPolicy=Always"
                yield forbidden(f"{place}.{key}", text)


def _lifecycle(container: JsonObject, path: str) -> Errors:
    for key in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(key)
        if handler is not None:
            yield from _handler(handler, f"{path}.lifecycle.{key}")
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(key)
        if probe is not None:
            yield from _probe(probe, f"{path}.{key}", once=key != "readinessProbe")


def _probe(probe: JsonObject, path: str, *, once: bool) -> Errors:
    yield from _handler(probe, path)
    for key in (
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ):
        yield from nonnegative(probe.get(key), f"{path}.{key}")
    grace = probe.get("terminationGracePeriodSeconds")
    if once and probe.get("successThreshold", 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
    if grace is not None and not once:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
    elif grace is not None and grace <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")


def _handler(handler: JsonObject, path: str) -> Errors:
    found = [key for key in ("exec", "httpGet", "tcpSocket", "grpc", "sleep") if key in handler]
    if not found:
        yield required(path, "must specify a handler type")
        return
    for extra in found[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    kind = found[0]
    action = handler[kind] or {}
    if kind == "exec" and not action.get("command"):
        yield required(f"{path}.exec.command")
    if kind == "httpGet":
        if not action.get("path"):
            yield required(f"{path}.httpGet.path")
        yield from port_errors(action.get("port"), f"{path}.httpGet.port")
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            yield not_supported(f"{path}.httpGet.scheme", action.get("scheme", ""), ("HTTP", "HTTPS"))
    if kind in ("tcpSocket", "grpc"):
        yield from port_errors(action.get("port"), f"{path}.{kind}.port")


def _container(container: JsonObject, path: str, volumes: set[str]) -> Errors:
    name = container.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    for text in names.dns1123_label(name) if name else ():
        yield invalid(f"{path}.name", name, text)
    image = container.get("image") or ""
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    policies = ("File", "FallbackToLogsOnError")
    yield from chosen(container, "terminationMessagePolicy", policies, path)
    yield from _ports(container.get("ports") or (), f"{path}.ports")
    yield from _env(container, path)
    yield from _mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    yield from chosen(container, "imagePullPolicy", ("Always", "IfNotPresent", "Never"), path)
    yield from resource_errors(container.get("resources") or {}, f"{path}.resources")


def _ports(ports: Sequence[JsonObject], path: str) -> Errors:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        place = f"{path}[{index}]"
        if name := port.get("name"):
            complaints = names.port_name(name)
            for text in complaints:
                yield invalid(f"{place}.name", name, text)
            if name in seen and not complaints:
                yield duplicate(f"{place}.name", name)
            seen.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            yield required(f"{place}.containerPort")
        else:
            yield from port_number(number, f"{place}.containerPort")
        host = port.get("hostPort")
        if host:
            yield from port_number(host, f"{place}.hostPort")
        yield from chosen(port, "protocol", PROTOCOLS, place)


def _env(container: JsonObject, path: str) -> Errors:
    for index, variable in enumerate(container.get("env") or ()):
        place = f"{path}.env[{index}]"
        name = variable.get("name") or ""
        if not name:
            yield required(f"{place}.name")
        for text in names.env_var_name(name) if name else ():
            yield invalid(f"{place}.name", name, text)
        source = variable.get("valueFrom")
        if source is not None:
            yield from _value_from(source, variable.get("value"), f"{place}.valueFrom")
    for index, entry in enumerate(container.get("envFrom") or ()):
        place = f"{path}.envFrom[{index}]"
        found = [key for key in ("configMapRef", "secretRef") if key in entry]
        if len(found) != 1:
            text = (
                "must specify one of: `configMapRef` or `secretRef`"
                if not found
                else "may not have more than one field specified at a time"
            )
            yield invalid(place, "", text)
        for key in found:
            if not (entry[key] or {}).get("name"):
                yield required(f"{place}.{key}.name")


def _value_from(source: JsonObject, value: str | None, path: str) -> Errors:
    if not source:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield invalid(path, "", f"must specify one of: {kinds}")
    if value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif len(source) > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")
    for key in ("configMapKeyRef", "secretKeyRef"):
        reference = source.get(key)
        if reference is None:
            continue
        if not reference.get("name"):
            yield required(f"{path}.{key}.name")
        if not reference.get("key"):
            yield required(f"{path}.{key}.key")
        else:
            for text in names.config_map_key(reference["key"]):
                yield invalid(f"{path}.{key}.key", reference["key"], text)
    if "fieldRef" in source and not (source["fieldRef"] or {}).get("fieldPath"):
        yield required(f"{path}.fieldRef.fieldPath")


def _mounts(mounts: Sequence[JsonObject], path: str, volumes: set[str]) -> Errors:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        place = f"{path}[{index}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{place}.name")
        if name not in volumes:
            yield not_found(f"{place}.name", name)
        if not where:
            yield required(f"{place}.mountPath")
        if where in seen:
            yield invalid(f"{place}.mountPath", where, "must be unique")
        seen.add(where)
        for key in ("subPath", "subPathExpr"):
            if mount.get(key):
                yield from _descending(mount[key], f"{path}.{key}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            text = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{place}.subPathExpr", mount["subPathExpr"], text)


def resource_errors(resources: JsonObject, path: str) -> Errors:
    """Yield what is wrong with requests and limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, values in (("limits", limits), ("requests", requests)):
        for name, value in values.items():
            place = f"{path}.{part}[{name}]"
            if quantity_value(value) < 0:
                yield invalid(place, value, NOT_NEGATIVE)
    for name, value in requests.items():
        limit = limits.get(name)
        if limit is not None and quantity_value(value) > quantity_value(limit):
            text = f"must be less than or equal to {name} limit of {limit}"
            yield invalid(f"{path}.requests", value, text)


def toleration_errors(tolerations: Sequence[JsonObject], path: str) -> Errors:
    """Yield what is wrong with tolerations."""
    for index, toleration in enumerate(tolerations):
        place = f"{path}[{index}]"
        operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
        if not toleration.get("key") and operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{place}.operator", toleration.get("operator", ""), text)
        if operator not in ("Equal", "Exists"):
            yield not_supported(f"{place}.operator", operator, ("Equal", "Exists"))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{place}.effect", effect, text)
        if effect and effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            yield not_supported(f"{place}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"))


# --- changes ------------------------------------------------------------------------------------------

_UPDATABLE: Final = (
    "`spec.containers[*].image`", "`spec.initContainers[*].image`", "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)  # fmt: skip


def pod_update(pod: JsonObject, old: JsonObject) -> Errors:
    """Yield what is wrong with a changed pod: little of its spec may change."""
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    if same(spec, before):
        return
    yield from pod_spec(spec, "spec")
    for key in ("containers", "initContainers"):
        if len(spec.get(key) or ()) != len(before.get(key) or ()):
            yield forbidden(f"spec.{key}", "pod updates may not add or remove containers")
            return
        for index, container in enumerate(spec.get(key) or ()):
            if not container.get("image", "").strip():
                yield required(f"spec.{key}[{index}].image")
    late = list(_deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")))
    yield from late
    if late and spec.get("activeDeadlineSeconds") is not None:
        return
    kept = [t for t in before.get("tolerations") or () if t in (spec.get("tolerations") or ())]
    if len(kept) != len(before.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", text)
    if not same(_munged(spec, before), before):
        yield forbidden("spec", f"pod updates may not change fields other than {','.join(_UPDATABLE)}")


def _deadline(value: int | None, old: int | None) -> Errors:
    path = "spec.activeDeadlineSeconds"
    if value is None:
        if old is not None:
            yield invalid(path, None, "must not update from a positive integer to nil value")
    elif old is not None and old < value:
        yield invalid(path, value, "must be less than or equal to previous value")


def _munged(spec: JsonObject, old: JsonObject) -> JsonObject:
    """Return the new spec with what may change put back."""
    result = dict(spec)
    for key in ("containers", "initContainers"):
        if key in spec:
            pairs = zip(spec[key], old.get(key) or (), strict=True)
            result[key] = [{**new, "image": before.get("image")} for new, before in pairs]
    for key in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        result.pop(key, None)
        if key in old:
            result[key] = old[key]
    grace = old.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        result["terminationGracePeriodSeconds"] = grace
    return result
