"""The Pod Security Standards: what `baseline` and `restricted` forbid in a pod, by version of the standards. Pure.

The rules, their order and their words are those of k8s.io/pod-security-admission 0.36, so that an answer can be looked
up. A pod in a user namespace of its own (`hostUsers: false`) may run as root, as from version 1.35 of the standards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["LATEST", "Level", "Violation", "described", "violations"]

JsonObject = Mapping[str, Any]
Level = Literal["privileged", "baseline", "restricted"]
#: The minor version of the standards that `latest` means, and every later one.
LATEST: Final = 35


@dataclass(frozen=True, slots=True)
class Violation:
    """What a pod does that its level forbids: shortly, and with who does it."""

    reason: str
    detail: str


_Found = Violation | None
_Rule = Callable[[JsonObject, JsonObject], _Found]


def violations(meta: JsonObject, spec: JsonObject, *, level: Level, minor: int = LATEST) -> list[Violation]:
    """Return what a pod of these metadata and this spec violates of a level, in the order of a real server."""
    if level == "privileged":
        return []
    chosen = _rules(level, min(minor, LATEST))
    return [found for rule in chosen if (found := rule(meta, spec)) is not None]


def described(found: Iterable[Violation]) -> str:
    """Return violations in one line, each with its details in parentheses."""
    return ", ".join(f"{one.reason} ({one.detail})" if one.detail else one.reason for one in found)


# --- words ----------------------------------------------------------------------------------------------


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def _plural(one: str, many: Sequence[object] | set[str]) -> str:
    return one if len(many) == 1 else f"{one}s"


def _containers(names: Sequence[str]) -> str:
    return f"{_plural('container', names)} {_quoted(names)}"


def _setters(pod: bool, containers: Sequence[str]) -> str:
    """Name who sets something: the pod, some containers, or both."""
    return " and ".join([*(["pod"] if pod else []), *([_containers(containers)] if containers else [])])


# --- pods -----------------------------------------------------------------------------------------------


def _each(spec: JsonObject) -> Iterator[JsonObject]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(key) or ()


def _context(of: JsonObject) -> JsonObject:
    return of.get("securityContext") or {}


def _windows(spec: JsonObject) -> bool:
    return (spec.get("os") or {}).get("name") == "windows"


def _named(spec: JsonObject, bad: Callable[[JsonObject], object]) -> list[str]:
    """Return the names of the containers that something is wrong with."""
    return [container["name"] for container in _each(spec) if bad(container)]


# --- baseline -------------------------------------------------------------------------------------------

_CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


def _apparmor(meta: JsonObject, spec: JsonObject) -> _Found:
    def bad(of: JsonObject) -> str:
        profile = _context(of).get("appArmorProfile")
        kind = (profile or {}).get("type") or ""
        return kind if profile is not None and kind not in ("RuntimeDefault", "Localhost") else ""

    kinds = {kind for of in (spec, *_each(spec)) if (kind := bad(of))}
    annotations = sorted(
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith(_APPARMOR)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    setters = [_setters(bool(bad(spec)), _named(spec, bad))] if kinds else []
    setters += [_plural("annotation", annotations)] if annotations else []
    if not setters:
        return None
    values = [*sorted(kinds), *annotations]
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(values)}"
    return Violation(_plural("forbidden AppArmor profile", values), detail)


def _added(container: JsonObject, allowed: frozenset[str]) -> list[str]:
    added = (_context(container).get("capabilities") or {}).get("add") or ()
    return [capability for capability in added if capability not in allowed]


def _include(spec: JsonObject, allowed: frozenset[str]) -> str:
    """Say which containers add capabilities beyond some; "" when none does."""
    bad = _named(spec, lambda container: _added(container, allowed))
    if not bad:
        return ""
    beyond = {capability for container in _each(spec) for capability in _added(container, allowed)}
    return (
        f"{_containers(bad)} must not include {_quoted(sorted(beyond))} in securityContext.capabilities.add"
    )


def _capabilities_of_baseline(meta: JsonObject, spec: JsonObject) -> _Found:
    detail = _include(spec, _CAPABILITIES)
    return Violation("non-default capabilities", detail) if detail else None


def _host_namespaces(meta: JsonObject, spec: JsonObject) -> _Found:
    shared = [f"{key}=true" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(meta: JsonObject, spec: JsonObject) -> _Found:
    names = [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    if not names:
        return None
    return Violation("hostPath volumes", f"{_plural('volume', names)} {_quoted(names)}")


def _host_ports(meta: JsonObject, spec: JsonObject) -> _Found:
    def ports(container: JsonObject) -> list[str]:
        return [str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")]

    names = _named(spec, ports)
    if not names:
        return None
    found = sorted({port for container in _each(spec) for port in ports(container)})
    uses = "uses" if len(names) == 1 else "use"
    return Violation(
        "hostPort", f"{_containers(names)} {uses} {_plural('hostPort', found)} {', '.join(found)}"
    )


def _probed_hosts(meta: JsonObject, spec: JsonObject) -> _Found:
    def hosts(container: JsonObject) -> list[str]:
        lifecycle = container.get("lifecycle") or {}
        probes = (container.get(f"{which}Probe") for which in ("liveness", "readiness", "startup"))
        handlers = [*probes, lifecycle.get("postStart"), lifecycle.get("preStop")]
        targets = ((handler or {}).get(how) or {} for handler in handlers for how in ("httpGet", "tcpSocket"))
        return [target["host"] for target in targets if target.get("host")]

    names = sorted(set(_named(spec, hosts)))
    if not names:
        return None
    found = sorted({host for container in _each(spec) for host in hosts(container)})
    uses = "uses" if len(names) == 1 else "use"
    what = _plural("probe or lifecycle host", found)
    return Violation("probe or lifecycle host", f"{_containers(names)} {uses} {what} {_quoted(found)}")


def _privileged(meta: JsonObject, spec: JsonObject) -> _Found:
    names = _named(spec, lambda container: _context(container).get("privileged"))
    if not names:
        return None
    return Violation("privileged", f"{_containers(names)} must not set securityContext.privileged=true")


def _proc_mounts(meta: JsonObject, spec: JsonObject) -> _Found:
    def kind(container: JsonObject) -> str:
        found: str = _context(container).get("procMount") or "Default"
        return "" if found == "Default" else found

    names = _named(spec, kind)
    if not names:
        return None
    kinds = sorted({one for container in _each(spec) if (one := kind(container))})
    return Violation(
        "procMount", f"{_containers(names)} must not set securityContext.procMount to {_quoted(kinds)}"
    )


def _selinux(*more: str) -> _Rule:
    allowed = frozenset(("", "container_t", "container_init_t", "container_kvm_t", *more))

    def rule(meta: JsonObject, spec: JsonObject) -> _Found:
        def options(of: JsonObject) -> JsonObject:
            return _context(of).get("seLinuxOptions") or {}

        def bad(of: JsonObject) -> bool:
            found = options(of)
            return found.get("type", "") not in allowed or bool(found.get("user") or found.get("role"))

        setters = _setters(bad(spec), _named(spec, bad))
        if not setters:
            return None
        everywhere = [options(of) for of in (spec, *_each(spec))]
        types = sorted({found.get("type", "") for found in everywhere} - allowed)
        data = [f"{_plural('type', types)} {_quoted(types)}"] if types else []
        data += [f"{who} may not be set" for who in ("user", "role") if any(o.get(who) for o in everywhere)]
        what = "set forbidden securityContext.seLinuxOptions"
        return Violation("seLinuxOptions", f"{setters} {what}: {'; '.join(data)}")

    return rule


def _seccomp(of: JsonObject) -> str | None:
    """Return the type of a seccomp profile, None when none is set."""
    profile = _context(of).get("seccompProfile")
    return None if profile is None else str(profile.get("type") or "")


def _unconfined(of: JsonObject) -> bool:
    return _seccomp(of) not in (None, "RuntimeDefault", "Localhost")


def _seccomp_of_baseline(meta: JsonObject, spec: JsonObject) -> _Found:
    setters = _setters(_unconfined(spec), _named(spec, _unconfined))
    if not setters:
        return None
    kinds = sorted({_seccomp(of) or "" for of in (spec, *_each(spec)) if _unconfined(of)})
    detail = f"{setters} must not set securityContext.seccompProfile.type to {_quoted(kinds)}"
    return Violation("seccompProfile", detail)


_SECCOMP_ANNOTATION: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_ANNOTATIONS: Final = "container.seccomp.security.alpha.kubernetes.io/"


def _seccomp_annotations(meta: JsonObject, spec: JsonObject) -> _Found:
    annotations = meta.get("annotations") or {}
    keys = [_SECCOMP_ANNOTATION, *(_SECCOMP_ANNOTATIONS + container["name"] for container in _each(spec))]
    bad = {
        f"{key}={json.dumps(annotations[key], ensure_ascii=False)}"
        for key in keys
        if key in annotations
        and annotations[key] not in ("runtime/default", "docker/default")
        and not annotations[key].startswith("localhost/")
    }
    if not bad:
        return None
    return Violation("seccompProfile", f"forbidden {_plural('annotation', bad)} {', '.join(sorted(bad))}")


_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    *tuple(
        f"net.ipv4.{name}"
        for name in (
            "ip_local_port_range",
            "tcp_syncookies",
            "ping_group_range",
            "ip_unprivileged_port_start",
        )
    ),
)
_SYSCTLS_27: Final = (*_SYSCTLS, "net.ipv4.ip_local_reserved_ports")
_SYSCTLS_29: Final = _SYSCTLS_27 + tuple(
    f"net.ipv4.tcp_{name}"
    for name in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")
)
_SYSCTLS_32: Final = (*_SYSCTLS_29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")


def _sysctls(allowed: Sequence[str]) -> _Rule:
    def rule(meta: JsonObject, spec: JsonObject) -> _Found:
        set_here = [sysctl["name"] for sysctl in _context(spec).get("sysctls") or ()]
        bad = [name for name in set_here if name not in allowed]
        return Violation("forbidden sysctls", ", ".join(bad)) if bad else None

    return rule


def _host_process(meta: JsonObject, spec: JsonObject) -> _Found:
    def bad(of: JsonObject) -> bool:
        return bool((_context(of).get("windowsOptions") or {}).get("hostProcess"))

    setters = _setters(bad(spec), _named(spec, bad))
    if not setters:
        return None
    return Violation("hostProcess", f"{setters} must not set securityContext.windowsOptions.hostProcess=true")


# --- restricted -----------------------------------------------------------------------------------------


def _escalation(meta: JsonObject, spec: JsonObject) -> _Found:
    names = _named(spec, lambda one: _context(one).get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    detail = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def _capabilities(meta: JsonObject, spec: JsonObject) -> _Found:
    names = _named(
        spec, lambda one: "ALL" not in ((_context(one).get("capabilities") or {}).get("drop") or ())
    )
    details = (
        f'{_containers(names)} must set securityContext.capabilities.drop=["ALL"]' if names else "",
        _include(spec, frozenset(("NET_BIND_SERVICE",))),
    )
    told = "; ".join(filter(None, details))
    return Violation("unrestricted capabilities", told) if told else None


_VOLUMES: Final = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)


def _volumes(meta: JsonObject, spec: JsonObject) -> _Found:
    def kind(volume: JsonObject) -> str:
        return next((key for key, value in volume.items() if key != "name" and value is not None), "unknown")

    bad = [volume for volume in spec.get("volumes") or () if kind(volume) not in _VOLUMES]
    if not bad:
        return None
    names, kinds = [volume["name"] for volume in bad], sorted({kind(volume) for volume in bad})
    uses = "uses" if len(names) == 1 else "use"
    what = f"{_plural('restricted volume type', kinds)} {_quoted(kinds)}"
    return Violation("restricted volume types", f"{_plural('volume', names)} {_quoted(names)} {uses} {what}")


def _non_root(meta: JsonObject, spec: JsonObject) -> _Found:
    reason = "runAsNonRoot != true"

    def said(of: JsonObject) -> bool | None:
        return _context(of).get("runAsNonRoot")

    setters = _setters(said(spec) is False, _named(spec, lambda one: said(one) is False))
    if setters:
        return Violation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    names = [] if said(spec) else _named(spec, lambda one: said(one) is None)
    if not names:
        return None
    return Violation(reason, f"pod or {_containers(names)} must set securityContext.runAsNonRoot=true")


def _as_root(meta: JsonObject, spec: JsonObject) -> _Found:
    def bad(of: JsonObject) -> bool:
        return _context(of).get("runAsUser") == 0

    setters = _setters(bad(spec), _named(spec, bad))
    return Violation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _seccomp_of_restricted(meta: JsonObject, spec: JsonObject) -> _Found:
    if (found := _seccomp_of_baseline(meta, spec)) is not None:
        return found
    names = [] if _seccomp(spec) is not None else _named(spec, lambda one: _seccomp(one) is None)
    if not names:
        return None
    wanted = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {_containers(names)} must set {wanted}")


# --- the standards --------------------------------------------------------------------------------------


def _but(exempt: Callable[[JsonObject], bool], rule: _Rule) -> _Rule:
    return lambda meta, spec: None if exempt(spec) else rule(meta, spec)


def _confined(spec: JsonObject) -> bool:
    """Whether a pod runs in a user namespace of its own."""
    return spec.get("hostUsers") is False


@dataclass(frozen=True, slots=True)
class _Check:
    """A rule by the version from which it holds so; and the check of baseline that it takes the place of."""

    name: str
    versions: Mapping[int, _Rule]
    instead_of: str = ""

    def at(self, minor: int) -> _Rule | None:
        """Return the rule of a version, None before the first."""
        return next(
            (self.versions[since] for since in sorted(self.versions, reverse=True) if since <= minor), None
        )


_BASELINE: Final = (
    _Check("appArmorProfile", {0: _apparmor}),
    _Check("capabilities_baseline", {0: _capabilities_of_baseline}),
    _Check("hostNamespaces", {0: _host_namespaces}),
    _Check("hostPathVolumes", {0: _host_paths}),
    _Check("hostPorts", {0: _host_ports}),
    _Check("hostProbesAndHostLifecycle", {34: _probed_hosts}),
    _Check("privileged", {0: _privileged}),
    _Check("procMount", {0: _proc_mounts, 35: _but(_confined, _proc_mounts)}),
    _Check("seLinuxOptions", {0: _selinux(), 31: _selinux("container_engine_t")}),
    _Check("seccompProfile_baseline", {0: _seccomp_annotations, 19: _seccomp_of_baseline}),
    _Check(
        "sysctls",
        {
            0: _sysctls(_SYSCTLS),
            27: _sysctls(_SYSCTLS_27),
            29: _sysctls(_SYSCTLS_29),
            32: _sysctls(_SYSCTLS_32),
        },
    ),
    _Check("windowsHostProcess", {0: _host_process}),
)
_RESTRICTED: Final = (
    _Check("allowPrivilegeEscalation", {8: _escalation, 25: _but(_windows, _escalation)}),
    _Check(
        "capabilities_restricted",
        {22: _capabilities, 25: _but(_windows, _capabilities)},
        "capabilities_baseline",
    ),
    _Check("procMount_restricted", {35: _proc_mounts}, "procMount"),
    _Check("restrictedVolumes", {0: _volumes}, "hostPathVolumes"),
    _Check("runAsNonRoot", {0: _non_root, 35: _but(_confined, _non_root)}),
    _Check("runAsUser", {23: _as_root, 35: _but(_confined, _as_root)}),
    _Check(
        "seccompProfile_restricted",
        {19: _seccomp_of_restricted, 25: _but(_windows, _seccomp_of_restricted)},
        "seccompProfile_baseline",
    ),
)


def _rules(level: Level, minor: int) -> list[_Rule]:
    stricter = [check for check in _RESTRICTED if level == "restricted" and check.at(minor) is not None]
    replaced = {check.instead_of for check in stricter}
    chosen = [*(check for check in _BASELINE if check.name not in replaced), *stricter]
    return [rule for check in chosen if (rule := check.at(minor)) is not None]
