"""Custom resources in the version that is asked for: converted, pruned and defaulted as they are read.

An object is stored in the version that was the storage version when it was written. Whoever reads it
sees it by the schema that its definition has now: in another version it is converted first, by changing
its apiVersion (strategy None) or by asking the definition's webhook (ConversionReview). What an entry
looks like by a schema is kept with the entry, so a webhook is asked once for each version of an object,
as by the watch cache of a real server, and its words are those of a real server when it fails.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mooring.local.api import failures, schema
from mooring.local.api.admission.webhooks import WebhookClient, WebhookError
from mooring.local.api.crd import CompiledVersion
from mooring.local.api.registry import Registry, Served
from mooring.local.api.schema import Schema
from mooring.local.api.storage import Entry, encode_tail
from mooring.local.api.validation.metadata import annotation_errors, label_errors

__all__ = ["Conversions", "Learned", "Unconverted", "shape"]

JsonObject = dict[str, Any]

#: Seconds a conversion webhook has to answer, as on a real server.
_SECONDS = 30
_REVIEWS = ("v1", "v1beta1")
#: Objects after which others get a turn on the event loop.
_TURN = 64


class Unconverted(Exception):
    """A conversion is wanted that only a webhook can tell: learn it, then compute again."""

    def __init__(self, obj: JsonObject, api_version: str) -> None:
        super().__init__(api_version)
        self.obj, self.api_version = obj, api_version


def shape(obj: JsonObject, compiled: CompiledVersion) -> JsonObject:
    """Return an object as a schema shows it: without unknown fields, with the defaults of now."""
    shaped: JsonObject = schema.default(schema.prune(obj, compiled.schema), compiled.schema)
    return shaped


class Conversions:
    """Shows stored custom resources in served versions, and brings written ones into the stored one."""

    def __init__(self, registry: Registry, client: WebhookClient) -> None:
        self._registry, self._client = registry, client

    async def show(self, entries: Sequence[Entry], served: Served) -> Sequence[Entry]:
        """Return entries in a served version; raises 500 when a webhook fails."""
        if served.custom is None:
            return entries
        compiled = served.custom
        found = {
            id(entry): entry.forms[compiled] for entry in entries if entry.forms and compiled in entry.forms
        }
        missing = [entry for entry in entries if id(entry) not in found]
        if missing:
            found |= await self._learn(missing, served, compiled)
        return [found[id(entry)] or entry for entry in entries]

    async def shown(self, entry: Entry, served: Served) -> Entry:
        """Return one entry in a served version; raises 500 when a webhook fails."""
        return (await self.show((entry,), served))[0]

    async def _learn(
        self, entries: Sequence[Entry], served: Served, compiled: CompiledVersion
    ) -> dict[int, Entry | None]:
        """Find out, and keep with each entry, how a version shows it; by the entries' identities."""
        found: dict[int, Entry | None] = {}
        foreign: list[tuple[Entry, JsonObject]] = []
        for index, entry in enumerate(entries):
            version = entry.version or served.stored_version
            if version == served.version or served.webhook is None:
                found[id(entry)] = _keep(entry, compiled, shape(entry.obj, compiled))
            else:
                source = {"kind": served.kind, "apiVersion": f"{served.group}/{version}", **entry.obj}
                foreign.append((entry, source))
            if index % _TURN == _TURN - 1:
                await asyncio.sleep(0)  # a long list after a restart is for others to wait in between
        if foreign and served.webhook is not None:
            objects = [obj for _, obj in foreign]
            results = await self.convert(objects, served.api_version, served.webhook)
            for (entry, _), converted in zip(foreign, results, strict=True):
                found[id(entry)] = _keep(entry, compiled, shape(converted, compiled))
        return found

    async def stored(self, obj: JsonObject, served: Served) -> JsonObject:
        """Return an object of a served version in the shape it is stored in; raises 500."""
        if served.webhook is None or served.version == served.stored_version:
            return obj
        wanted = f"{served.group}/{served.stored_version}"
        (converted,) = await self.convert([obj], wanted, served.webhook)
        known = self._registry.version(served, served.stored_version)
        result: JsonObject = schema.prune(converted, known.schema) if known is not None else converted
        return result

    async def convert(
        self, objects: Sequence[JsonObject], api_version: str, webhook: Mapping[str, Any]
    ) -> list[JsonObject]:
        """Ask a webhook for objects in another version; raises 500 in a real server's words."""
        group, _, version = objects[0]["apiVersion"].rpartition("/")
        by = f"conversion webhook for {group}/{version}, Kind={objects[0]['kind']}"
        try:
            found = await self._ask(objects, api_version, webhook)
        except (WebhookError, ValueError, TypeError) as error:
            raise failures.without_reason(f"{by} failed: {error}") from error
        if len(found) != len(objects):
            why = f"returned {len(found)} objects, expected {len(objects)}"
            raise failures.without_reason(f"{by} {why}")
        return [_checked(old, new, api_version, by) for old, new in zip(objects, found, strict=True)]

    async def _ask(
        self, objects: Sequence[JsonObject], api_version: str, webhook: Mapping[str, Any]
    ) -> list[Any]:
        accepted = webhook.get("conversionReviewVersions") or ()
        review = next((version for version in accepted if version in _REVIEWS), "v1")
        uid = str(uuid.uuid4())
        kind = {"kind": "ConversionReview", "apiVersion": f"apiextensions.k8s.io/{review}"}
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": list(objects)}
        answer = await self._client.post(
            webhook.get("clientConfig") or {}, {**kind, "request": request}, seconds=_SECONDS
        )
        return _converted(answer, kind, uid if review == "v1" else "")

    def of(self, served: Served) -> Learned | None:
        """Return the views of other versions for one request; None when all of them look alike."""
        if served.custom is None or not self._registry.has_versions(served):
            return None
        return Learned(self, self._registry, served)


class Learned:
    """Objects of one request in other versions, as far as they are known.

    `view` is what pure code asks; what it does not know it raises as Unconverted, `learn` finds it out,
    and the pure code is run again.
    """

    def __init__(self, conversions: Conversions, registry: Registry, served: Served) -> None:
        self._conversions, self._registry, self._served = conversions, registry, served
        self._known: dict[tuple[str, bytes], JsonObject] = {}

    def view(self, obj: JsonObject, api_version: str) -> tuple[JsonObject, Schema]:
        """Return an object in a version with the schema of it; raises LookupError for an unknown one."""
        group, _, name = api_version.rpartition("/")
        compiled = self._registry.version(self._served, name) if group == self._served.group else None
        if compiled is None:
            raise LookupError(f"request to convert CR to an invalid group/version: {api_version}")
        if obj.get("apiVersion") == api_version:
            return obj, compiled.schema
        if self._served.webhook is None:
            return {**obj, "apiVersion": api_version}, compiled.schema
        known = self._known.get(_key(obj, api_version))
        if known is None:
            raise Unconverted(obj, api_version)
        return known, compiled.schema

    async def learn(self, wanted: Unconverted) -> None:
        """Ask the webhook for what `view` did not know; raises 500."""
        assert self._served.webhook is not None
        (found,) = await self._conversions.convert([wanted.obj], wanted.api_version, self._served.webhook)
        self._known[_key(wanted.obj, wanted.api_version)] = found


def _key(obj: JsonObject, api_version: str) -> tuple[str, bytes]:
    return api_version, msgspec.json.encode(obj)


def _keep(entry: Entry, compiled: CompiledVersion, obj: JsonObject) -> Entry | None:
    """Keep what an object looks like by a schema; return it, None when that is as it is stored."""
    tail = encode_tail({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})
    same = tail == entry.tail
    form = None if same else Entry(entry.place, entry.rv, tail, written=entry.written, version=compiled.name)
    others = entry.forms or {}
    # Forms by a schema that this version does not have any more are of no use.
    entry.forms = {key: form for key, form in others.items() if getattr(key, "name", "") != compiled.name}
    entry.forms[compiled] = form
    return form


def _converted(answer: Any, kind: Mapping[str, str], uid: str) -> list[Any]:
    """Return the objects of a ConversionReview; raises ValueError with what is wrong with it."""
    if not isinstance(answer, dict):
        raise ValueError("the answer is no ConversionReview")
    found = answer.get("apiVersion", ""), answer.get("kind", "")
    if uid and found != (kind["apiVersion"], kind["kind"]):
        wanted = f"{kind['apiVersion']}, Kind={kind['kind']}"
        raise ValueError(f"expected webhook response of {wanted}, got {found[0]}, Kind={found[1]}")
    response = answer.get("response")
    if not isinstance(response, dict):
        raise ValueError("no response provided")
    if uid and response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        status = result.get("status") or ""
        raise ValueError(result.get("message") or f"response.result.status was '{status}', not 'Success'")
    return list(response.get("convertedObjects") or ())


def _checked(old: JsonObject, new: Any, api_version: str, by: str) -> JsonObject:
    """Return a converted object with the metadata that no webhook may change; raises 500."""
    invalid = f"{by} returned invalid object"
    if not isinstance(new, dict):
        raise failures.without_reason(f"{invalid}: it is no object")
    if (found := new.get("apiVersion") or "") != api_version:
        why = f"invalid groupVersion (expected {api_version}, received {found})"
        raise failures.without_reason(f"{invalid} at index 0: {why}")
    if (kind := new.get("kind") or "") != old["kind"]:
        why = f"invalid kind (expected {old['kind']}, received {kind})"
        raise failures.without_reason(f"{invalid} at index 0: {why}")
    before, after = old.get("metadata") or {}, new.get("metadata")
    shown: Mapping[str, Any] = after if isinstance(after, dict) else {}
    for key, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        mine, theirs = before.get(key) or "", shown.get(key) or ""
        if mine != theirs:
            raise failures.without_reason(f"{invalid}: must have the same {word}: {mine} != {theirs}")
    try:
        metadata = _metadata(before, after)
    except ValueError as error:
        raise failures.without_reason(f"{by} returned invalid metadata: {error}") from None
    return {**new, "metadata": metadata}


def _metadata(old: Mapping[str, Any], new: Any) -> JsonObject:
    """Return the metadata an object had, with the labels and annotations of its converted form."""
    if not isinstance(new, dict):
        raise ValueError("missing metadata in converted object")
    metadata = dict(old)
    for key in ("labels", "annotations"):
        metadata.pop(key, None)
        values = new.get(key)
        if values is None:
            continue
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError(f"metadata.{key} must hold strings in converted object")
        errors: Iterable[Any] = ()
        if values != old.get(key):
            check = label_errors if key == "labels" else annotation_errors
            errors = check(values, f"metadata.{key}")
        if texts := [str(error) for error in errors]:
            raise ValueError(texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]")
        metadata[key] = values
    return metadata
