"""What the account of a new pod brings along: its token as a mounted volume, its image pull secrets."""

from __future__ import annotations

import asyncio
from typing import Any

from mooring.local.api import failures
from mooring.local.api.call import Call
from mooring.local.api.objectmeta import generate_name

__all__ = ["account_made", "with_account"]

JsonObject = dict[str, Any]

_ACCOUNTS = "serviceaccounts"
_DEFAULT = "default"
_VOLUME = "kube-api-access-"
_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
#: Seconds; the odd number marks tokens that nobody asked for.
_SECONDS = 3607
_MIRROR = "kubernetes.io/config.mirror"
#: Seconds in which the account `default` of a new namespace has to appear, and between two looks.
_PATIENCE, _LOOK = 1.5, 0.02


async def account_made(obj: JsonObject, call: Call) -> None:
    """Wait for the account `default` that a pod of a new namespace runs as: it is made right after the namespace."""
    name = (obj.get("spec") or {}).get("serviceAccountName") or _DEFAULT
    if name != _DEFAULT or not _makes_accounts(call):
        return
    accounts = call.cluster.store.collection(_ACCOUNTS)
    clock = asyncio.get_running_loop().time
    deadline = clock() + _PATIENCE
    while accounts.head((call.namespace, name)) is None and clock() < deadline:
        await asyncio.sleep(_LOOK)


def _makes_accounts(call: Call) -> bool:
    """Tell whether a controller of accounts is at work: a server alone has none, and its pods do without."""
    return call.cluster.store.collection(_ACCOUNTS).head(("default", _DEFAULT)) is not None


def with_account(obj: JsonObject, call: Call) -> JsonObject:
    """Return a new pod that runs as an account and holds its token; raises 403 when there is no such account.

    Only on a server where nobody makes accounts, a pod of the account `default` does without it.
    """
    spec: JsonObject = dict(obj.get("spec") or {})
    if _MIRROR in ((obj.get("metadata") or {}).get("annotations") or {}):
        return {**obj, "spec": spec}
    name = spec.get("serviceAccountName") or _DEFAULT
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    entry = call.cluster.store.collection(_ACCOUNTS).head((call.namespace, name))
    if entry is None:
        if name != _DEFAULT or _makes_accounts(call):
            missing = failures.not_found("", "serviceaccount", name).message
            why = f"error looking up service account {call.namespace}/{name}: {missing}"
            raise call.forbidden(why, obj["metadata"].get("name") or "")
        return {**obj, "spec": spec}
    account = entry.obj
    if _mounts_token(account, spec):
        _mount(spec)
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]
    return {**obj, "spec": spec}


def _mounts_token(account: JsonObject, spec: JsonObject) -> bool:
    field = "automountServiceAccountToken"
    return bool(spec.get(field, account.get(field, True)))


def _mount(spec: JsonObject) -> None:
    """Mount the token into every container that has nothing mounted at its place."""
    present = [volume["name"] for volume in spec.get("volumes") or () if volume["name"].startswith(_VOLUME)]
    name = present[0] if present else generate_name(_VOLUME)
    mount = {"name": name, "readOnly": True, "mountPath": _PATH}
    needed = False
    for part in ("initContainers", "containers"):
        containers = spec.get(part)
        if not containers:
            continue
        spec[part] = [_mounted(container, mount) for container in containers]
        needed = needed or any(new is not old for new, old in zip(spec[part], containers, strict=True))
    if needed and not present:
        spec["volumes"] = [*(spec.get("volumes") or ()), _volume(name)]


def _mounted(container: JsonObject, mount: JsonObject) -> JsonObject:
    mounts = container.get("volumeMounts") or ()
    if any(one.get("mountPath") == _PATH for one in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, mount]}


def _volume(name: str) -> JsonObject:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
