"""kopf's peer of the benchmark; `kopf run peer_kopf.py -n NAMESPACE` in the environment of requirements/bench.txt.

The same logic as go/main.go and peer_mooring.py, with what kopf offers for it: an index knows the children
there are, one handler creates and updates them. kopf has no client, so they are written with the library it
stands on. Everything is at kopf's defaults, but its progress is kept in annotations only, as its documentation
advises for structural schemas.
"""

from __future__ import annotations

import base64
import datetime
import os
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import yaml

LABEL = "bench.mooring.dev/widget"


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()
    memo.session = _session(Path(os.environ["KUBECONFIG"]))


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    await memo.session.close()


def _session(kubeconfig: Path) -> aiohttp.ClientSession:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    return aiohttp.ClientSession(
        cluster["server"],
        connector=aiohttp.TCPConnector(ssl=context, limit=64),
        headers={"Authorization": f"Bearer {user['token']}"},
    )


@kopf.index("v1", "configmaps", labels={LABEL: kopf.PRESENT})
async def children(namespace: str, name: str, body: kopf.Body, **_: Any) -> Any:
    return {(namespace, name): dict(body.get("data") or {})}


@kopf.on.resume("bench.mooring.dev", "v1", "widgets")
@kopf.on.create("bench.mooring.dev", "v1", "widgets")
@kopf.on.update("bench.mooring.dev", "v1", "widgets")
async def reconcile(
    body: kopf.Body,
    spec: kopf.Spec,
    meta: kopf.Meta,
    name: str,
    namespace: str,
    patch: kopf.Patch,
    memo: kopf.Memo,
    children: kopf.Index[tuple[str, str], dict[str, str]],
    **_: Any,
) -> None:
    """Make the children as declared, then say so in the status if it does not yet."""
    for number in range(spec["children"]):
        wanted = {"value": spec["value"], "number": str(number)}
        child = f"{name}-{number}"
        found = next(iter(children.get((namespace, child), ())), None)
        if found is None:
            await _create(memo.session, body, namespace, child, wanted)
        elif found != wanted:
            await _patch(memo.session, namespace, child, wanted)
    status = body.get("status") or {}
    if status.get("observedGeneration") != meta["generation"] or status.get("value") != spec["value"]:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        since = next((c["lastTransitionTime"] for c in status.get("conditions", ())), now)
        patch.status["observedGeneration"] = meta["generation"]
        patch.status["children"] = spec["children"]
        patch.status["value"] = spec["value"]
        patch.status["conditions"] = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "InSync",
                "message": "everything is as declared",
                "observedGeneration": meta["generation"],
                "lastTransitionTime": since,
            }
        ]


async def _create(
    session: aiohttp.ClientSession, owner: kopf.Body, namespace: str, name: str, data: dict[str, str]
) -> None:
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: owner["metadata"]["name"]}},
        "data": data,
    }
    kopf.append_owner_reference(child, owner=owner)
    async with session.post(f"/api/v1/namespaces/{namespace}/configmaps", json=child) as answer:
        if answer.status != 409:  # it is there: the index had not seen it yet
            answer.raise_for_status()
            return
    await _patch(session, namespace, name, data)


async def _patch(session: aiohttp.ClientSession, namespace: str, name: str, data: dict[str, str]) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(path, json={"data": data}, headers=headers) as answer:
        answer.raise_for_status()
