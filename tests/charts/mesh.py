"""A service mesh as far as an operator meets one: containers of others in its pods, and sources that are hidden.

It takes the three parts that istio has: a mutating webhook puts a first container and one that runs before all others
into every pod of a namespace; the node's agent changes the pod's own network before anything else starts there (as
istio-cni does); from then on servers see every connection come from 127.0.0.6, as through istio's proxy.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from mooring.kube import ApiError, Key
from mooring.kube.objects.core import Pod
from mooring.runtime.webhooks import Change, Review, Verdict, Webhook, WebhookServer
from mooring.runtime.webhooks_certificates import Certificates, Lifetimes, renewed
from mooring.testing.bed import Bed, ClusterBed

__all__ = ["HIDDEN", "mesh"]

#: Where servers in the mesh see every connection come from.
HIDDEN = "127.0.0.6"
_NAME = "mesh"
_ADDRESS = "127.0.0.1"
_RULES = f"""
table ip mesh {{
  chain arriving {{
    type nat hook input priority 100;
    iifname != "lo" tcp dport {{ 6379, 26379 }} snat to {HIDDEN}
  }}
}}
"""
_FIRST = "prepare"
_PROXY = {"name": "proxy", "image": "redis:7.0", "command": ["sleep", "100000"]}
#: Holds the pod's own containers back until its network is the mesh's.
_PREPARE = {
    "name": _FIRST,
    "image": "redis:7.0",
    "command": ["sh", "-c", "until [ -e /tmp/joined ]; do sleep 0.1; done"],
}


@asynccontextmanager
async def mesh(bed: Bed | ClusterBed, namespace: str) -> AsyncIterator[None]:
    """Every pod that is made in the namespace within the block belongs to the mesh."""
    hook = Webhook(Pod, _inject, mutating=True, operations=("CREATE",))
    server = WebhookServer([hook], host=_ADDRESS, port=0)
    certificates = renewed(None, names=[_ADDRESS], now=datetime.now(UTC), lifetimes=Lifetimes())
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + _NAME
    secret = {"metadata": {"name": _NAME, "namespace": namespace}, "data": certificates.to_secret()}
    await bed.apply({"apiVersion": "v1", "kind": "Secret", **secret})
    async with AsyncExitStack() as stack:
        for work in (server.serve(bed.client, Key(namespace, _NAME)), _join(bed, namespace)):
            task = asyncio.create_task(work)
            stack.push_async_callback(_ended, task)

        async def listening() -> bool:
            return server.listening

        await bed.until(listening, "the mesh's webhook listens")
        stack.push_async_callback(bed.client.request, "DELETE", path)
        await bed.apply(_configuration(hook, server.port, certificates, namespace))
        await bed.until(lambda: _asked(bed, namespace), "pods get the mesh's containers", every=0.1)
        yield


async def _inject(review: Review[Pod]) -> Verdict:
    spec = (review.object or {})["spec"]
    return Change(
        {
            "spec": {
                "containers": [_PROXY, *spec["containers"]],
                "initContainers": [_PREPARE, *spec.get("initContainers", ())],
            }
        }
    )


def _configuration(
    hook: Webhook[Pod], port: int, certificates: Certificates, namespace: str
) -> dict[str, Any]:
    resource = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": "inject.mesh.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": f"https://{_ADDRESS}:{port}{hook.path}",
            "caBundle": base64.b64encode(certificates.bundle).decode(),
        },
        "rules": [resource],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": _NAME},
        "webhooks": [webhook],
    }


async def _asked(bed: Bed | ClusterBed, namespace: str) -> bool:
    """Whether the API server asks the webhook by now."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "main", "image": "redis:7.0"}]},
    }
    try:
        answer = await bed.client.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            query={"dryRun": "All"},
            body=msgspec.json.encode(pod),
        )
    except ApiError:  # the namespace has no ServiceAccount yet
        return False
    return len(msgspec.json.decode(answer.body)["spec"]["containers"]) == 2


async def _join(bed: Bed | ClusterBed, namespace: str) -> None:
    """The node's agent: pods that wait in their first container get the mesh's network and go on."""
    joined: set[str] = set()
    while True:
        for pod in await bed.pods(namespace):
            uid, name = pod.metadata.uid or "", pod.metadata.name or ""
            if uid not in joined and _waits(pod):
                with suppress(LookupError, OSError):  # it has just gone; the next look tells
                    pid = bed.plane.agent.program_pid(namespace, name, _FIRST)
                    await asyncio.to_thread(_rule, pid)
                    joined.add(uid)
        await asyncio.sleep(0.1)


def _waits(pod: Pod) -> bool:
    statuses = (pod.status.init_container_statuses if pod.status else None) or ()
    return any(one.name == _FIRST and one.state and one.state.running for one in statuses)


def _rule(pid: int) -> None:
    enter = ["nsenter", f"--net=/proc/{pid}/ns/net", "nft", "-f", "-"]
    subprocess.run(enter, input=_RULES, text=True, check=True, capture_output=True)
    Path(f"/proc/{pid}/root/tmp/joined").touch()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
