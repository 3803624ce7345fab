"""Pods in namespaces with Pod Security labels: refused, warned of and let in alike.

The labels are there when the namespace is made: a real server's admission reads later ones from a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.comparing import Step

__all__ = ["POD_SECURITY"]

Json = Any

_NAMESPACES = "/api/v1/namespaces"
_LABEL = "pod-security.kubernetes.io/"
_GOOD: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _spec(*contexts: Json, **pod: Json) -> Json:
    containers = [
        {"name": f"c{n}", "image": "x", "securityContext": context}
        for n, context in enumerate(contexts or ({},))
    ]
    return {
        "serviceAccountName": "mine",
        "automountServiceAccountToken": False,
        "containers": containers,
        **pod,
    }


def _volumes(**sources: Json) -> list[Json]:
    return [{"name": name, **source} for name, source in sources.items()]


_HOST: Json = {"hostPath": {"path": "/x"}}
_PORTS: Json = [{"containerPort": 80, "hostPort": 80}, {"containerPort": 443, "hostPort": 443}]
_PROBE: Json = {"httpGet": {"host": "1.2.3.4", "port": 80}}
_NOTHING: Json = {"name": "c", "image": "x"}
_SPECS: Sequence[Json] = (
    _spec(),
    _spec(_GOOD),
    _spec({}, {}),
    _spec({"privileged": True}, hostPID=True),
    _spec({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}, {"capabilities": {"add": ["NET_RAW"]}}),
    _spec({**_GOOD, "capabilities": {"add": ["CHOWN", "NET_BIND_SERVICE"]}}),
    _spec(hostNetwork=True, hostPID=True, hostIPC=True),
    _spec(_GOOD, volumes=_volumes(a=_HOST, b=_HOST, c={"emptyDir": {}})),
    _spec(containers=[{**_NOTHING, "ports": _PORTS}], hostNetwork=True),
    _spec(containers=[{**_NOTHING, "livenessProbe": _PROBE}]),
    _spec(_GOOD, initContainers=[{"name": "i", "image": "x", "securityContext": {"privileged": True}}]),
    _spec({"seLinuxOptions": {"type": "x_t"}}, securityContext={"seLinuxOptions": {"user": "u"}}),
    _spec(_GOOD, securityContext={"seccompProfile": {"type": "Unconfined"}}),
    _spec({**_GOOD, "seccompProfile": {"type": "Unconfined"}}),
    _spec(_GOOD, securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    _spec(_GOOD, securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}),
    _spec({**_GOOD, "runAsNonRoot": False, "runAsUser": 0}),
    _spec({**_GOOD, "runAsUser": 0}, _GOOD),
    _spec({**_GOOD, "appArmorProfile": {"type": "Unconfined"}}),
)


def _scenario(labels: Mapping[str, str]) -> list[Step]:
    namespace = f"{_NAMESPACES}/{{ns}}-secured"
    meta = {"name": "{ns}-secured", "labels": {_LABEL + name: value for name, value in labels.items()}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": _spec({"privileged": True}, hostIPC=True)}
    workload = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return [
        Step("POST", _NAMESPACES, {"metadata": meta}),
        Step("POST", namespace + "/serviceaccounts", {"metadata": {"name": "mine"}}),
        *(
            Step("POST", f"{namespace}/pods?dryRun=All", {"metadata": {"name": f"p{n}"}, "spec": spec})
            for n, spec in enumerate(_SPECS)
        ),
        Step(
            "POST",
            "/apis/apps/v1/namespaces/{ns}-secured/deployments?dryRun=All",
            {"metadata": {"name": "d"}, "spec": workload},
        ),
        Step("DELETE", namespace),
    ]


POD_SECURITY: Mapping[str, list[Step]] = {
    "pods where baseline is enforced": _scenario({"enforce": "baseline"}),
    "pods where restricted is enforced": _scenario({"enforce": "restricted"}),
    "pods where restricted is warned of": _scenario({"enforce": "privileged", "warn": "restricted"}),
    "pods where an old restricted is enforced": _scenario(
        {"enforce": "restricted", "enforce-version": "v1.20", "warn": "baseline"}
    ),
    "pods of a namespace with wrong labels": _scenario({"enforce": "strict", "warn-version": "1.2"}),
}
