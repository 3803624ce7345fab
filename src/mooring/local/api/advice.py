"""What the API server warns of in an object it accepts, in the words of k8s.io/kubernetes/pkg/api."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mooring.local.api.constraints import same

__all__ = ["warnings_of"]

JsonObject = dict[str, Any]


def warnings_of(obj: JsonObject, old: JsonObject | None, *, group: str, kind: str) -> list[str]:
    """Return the warnings about a new (old None) or changed built-in object; of some only what changed counts."""
    found = _WARNINGS.get((group, kind))
    if found is None or (old is not None and not _advised_again(obj, old, group, kind)):
        return []
    return list(found(obj))


def _advised_again(obj: JsonObject, old: JsonObject, group: str, kind: str) -> bool:
    if kind == "CSIDriver":
        return not same(*((either.get("spec") or {}).get("tokenRequests") for either in (obj, old)))
    if kind == "DaemonSet":
        return not same(*((either.get("spec") or {}).get("template") for either in (obj, old)))
    if kind == "Service":
        return True
    # Changed pods are written too often to look at them again; a template is looked at when its owner changes.
    return kind != "Pod" and obj["metadata"].get("generation") != old["metadata"].get("generation")


def _service(obj: JsonObject) -> Iterator[str]:
    spec = obj.get("spec") or {}
    kind, external = spec.get("type"), bool(spec.get("externalIPs"))
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if external:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    if external and not headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if external and kind == "ExternalName":
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.get("externalName") and kind != "ExternalName":
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'


def _csi_driver(obj: JsonObject) -> Iterator[str]:
    spec = obj.get("spec") or {}
    if spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
            "possible logging of tokens in volume attributes"
        )


def _pods_at(*path: str) -> Callable[[JsonObject], Iterator[str]]:
    """Return the warnings about the pod spec at a path."""

    def found(obj: JsonObject) -> Iterator[str]:
        spec: Any = obj
        for step in path:
            spec = (spec or {}).get(step)
        seen: set[str] = set()
        for index, alias in enumerate((spec or {}).get("hostAliases") or ()):
            if (address := alias.get("ip", "")) in seen:
                yield f'{".".join(path)}.hostAliases[{index}].ip: duplicate ip "{address}"'
            seen.add(address)

    return found


_TEMPLATE: Final = ("spec", "template", "spec")
_WARNINGS: Final[Mapping[tuple[str, str], Callable[[JsonObject], Iterator[str]]]] = {
    ("", "Service"): _service,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("", "Pod"): _pods_at("spec"),
    ("", "PodTemplate"): _pods_at("template", "spec"),
    ("", "ReplicationController"): _pods_at(*_TEMPLATE),
    **{
        ("apps", kind): _pods_at(*_TEMPLATE)
        for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
    },
    ("batch", "Job"): _pods_at(*_TEMPLATE),
    ("batch", "CronJob"): _pods_at("spec", "jobTemplate", *_TEMPLATE),
}
