"""Secrets of type `kubernetes.io/service-account-token`: filled with a token that never expires.

A Secret that names an account gets the token, the namespace and the authority of the API; it goes with its
account. The token is good while the Secret holds it. On a real cluster a controller does this with the key
of the API server; here only the server has that key.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mooring.kube.errors import ApiError, TransportError, api_error
from mooring.kube.transport import Transport
from mooring.local.api.access.tokens import Authority
from mooring.local.api.objectmeta import is_deleting
from mooring.local.api.storage import Collection, Entry, Event, Place, Store

__all__ = ["TokenSecrets"]

_log = logging.getLogger(__name__)

JsonObject = dict[str, Any]

_TYPE = "kubernetes.io/service-account-token"
_NAME, _UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
_ROOT = "kube-root-ca.crt"
_AGENT_RETRY = 1.0


class TokenSecrets:
    """Follows Secrets and accounts; `start` and `stop` are the server's."""

    def __init__(self, store: Store, authority: Authority) -> None:
        self._store, self._authority = store, authority
        self._open: set[Place] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        store.observers.append(self._published)

    def start(self, transport: Transport) -> None:
        """Begin; everything stored is looked at once."""
        self._open.update(entry.place for entry in self._store.collection("secrets"))
        self._wake.set()
        self._task = asyncio.create_task(self._run(transport))

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _published(self, collection: Collection, event: Event) -> None:
        entry, found = event.entry, set[Place]()
        if collection.resource == "secrets" and event.type != "DELETED":
            found = {entry.place} if entry.obj.get("type") == _TYPE else set()
        elif collection.resource == "serviceaccounts" and event.type != "MODIFIED":
            found = set(self._of(entry.namespace, lambda name: name == entry.name))
        elif (collection.resource, entry.name) == ("configmaps", _ROOT):
            found = set(self._of(entry.namespace, lambda name: True))
        if found:
            self._open |= found
            self._wake.set()

    def _of(self, namespace: str, wanted: Callable[[str], bool]) -> Iterator[Place]:
        for entry in self._store.collection("secrets").entries(namespace):
            annotations = entry.obj["metadata"].get("annotations") or {}
            if entry.obj.get("type") == _TYPE and wanted(annotations.get(_NAME, "")):
                yield entry.place

    async def _run(self, transport: Transport) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._open:
                place = self._open.pop()
                try:
                    await self._settle(place, transport)
                except (ApiError, TransportError) as error:
                    _log.info("token secret %s/%s has to wait: %s", *place, error)
                    asyncio.get_running_loop().call_later(_AGENT_RETRY, self._again, place)

    def _again(self, place: Place) -> None:
        self._open.add(place)
        self._wake.set()

    async def _settle(self, place: Place, transport: Transport) -> None:
        """Fill one Secret, or delete it when its account is gone."""
        secret = self._store.collection("secrets").get(place)
        if secret is None or secret.obj.get("type") != _TYPE or is_deleting(secret.obj):
            return
        meta = secret.obj["metadata"]
        annotations = meta.get("annotations") or {}
        account = self._store.collection("serviceaccounts").get((place[0], annotations.get(_NAME, "")))
        path = f"/api/v1/namespaces/{place[0]}/secrets/{place[1]}"
        uid = account.obj["metadata"]["uid"] if account is not None else ""
        if account is None or annotations.get(_UID, uid) != uid:
            body = {"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
            await _send(transport, "DELETE", path, body)
            return
        missing = self._missing(secret, account)
        if missing:
            guard = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            change = {"metadata": {**guard, "annotations": {_UID: uid}}, "data": missing}
            await _send(transport, "PATCH", path, change)

    def _missing(self, secret: Entry, account: Entry) -> JsonObject:
        data = secret.obj.get("data") or {}
        root = self._store.collection("configmaps").get((secret.namespace, _ROOT))
        texts = {
            "namespace": secret.namespace,
            "ca.crt": ((root.obj.get("data") or {}) if root else {}).get("ca.crt"),
        }
        if not data.get("token"):
            uid = account.obj["metadata"]["uid"]
            texts["token"] = self._authority.sign_lasting(secret.place, account=account.name, uid=uid)
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items() if text}
        # Another authority replaces an old one; a token or namespace that is there stays.
        return {key: text for key, text in encoded.items() if data.get(key) != text}


async def _send(transport: Transport, method: str, path: str, body: JsonObject) -> None:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Content-Type": kind}
    answer = await transport.request(method, path, body=msgspec.json.encode(body), headers=headers)
    # A conflict: it changed meanwhile, which brings it here again.
    if answer.status >= 400 and answer.status not in (404, 409):
        raise api_error(answer.status, answer.body, answer.headers)
