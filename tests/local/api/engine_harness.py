"""Carries the same requests through the pure engine and to a real kube-apiserver, and makes both comparable.

The engine's side has no server around it: decode, merge, track, default, validate. What the engine
does not decide (UIDs, versions, allocated addresses, admission) is left out of the comparison.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.conformance.corpus.kinds import registry
from tests.local.api.crd_scenarios import RULES
from tests.local.api.crd_scenarios import definition as crd_definition
from tests.local.api.engine_scenarios import WIDGETS_CRD, Request

from mooring.kube.errors import ApiError
from mooring.kube.transport import HttpTransport
from mooring.local.api import apply as ssa
from mooring.local.api import crd, defaults, patch, schema, validation, wire
from mooring.local.api.errors import cannot_be_handled, invalid_object, strict_decoding
from mooring.local.api.fields import invalid
from mooring.local.api.storage import MemoryBackend, Store
from mooring.local.api.strategies import prepare_create
from mooring.local.api.world import World

JsonObject = dict[str, Any]
TIME = "2024-01-01T00:00:00Z"
CONTENT = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


# --- the engine, with a dictionary for a server -------------------------------------------------------


@dataclass
class Engine:
    """Carries out requests with the pure functions only."""

    custom: crd.CompiledVersion
    objects: dict[str, JsonObject] = field(default_factory=dict)

    def answer(self, request: Request) -> JsonObject:
        try:
            done: JsonObject = getattr(self, f"_{request.verb}")(request)
            return done
        except ApiError as error:
            causes = [dict(cause) for cause in error.causes]
            return {
                "status": error.status,
                "reason": error.reason,
                "message": error.message,
                "causes": causes,
            }

    def _kind(self, request: Request) -> schema.Schema:
        if request.custom:
            return self.custom.schema
        found = schema.builtin().get(request.group, request.version, request.kind)
        assert found is not None
        return found

    def _writer(self, request: Request) -> ssa.Writer:
        return ssa.Writer(request.manager, request.api_version, TIME, request.subresource)

    def _reset(self, request: Request) -> tuple[str, ...]:
        return ssa.reset_fields(request.kind, request.subresource, custom=request.custom, status=True)

    def _canonical(self, obj: JsonObject, request: Request, *, patched: bool = False) -> JsonObject:
        value: JsonObject
        kind = self._kind(request)
        if request.custom:
            metadata = wire.decode(obj.get("metadata") or {}, schema.builtin().object_meta())
            obj = {**obj, "metadata": metadata.value}
            unknown = [f"metadata.{path}" for path in metadata.unknown] + schema.unknown_fields(obj, kind)
            value = schema.default(schema.prune(obj, kind), kind, drop_nulls=request.verb != "apply")
        else:
            try:
                decoded = wire.decode(obj, kind)
            except wire.WireError as error:
                if patched:
                    text = error.converted if request.verb == "strategic" else str(error)
                    raise self._bad_patch(text) from None
                raise cannot_be_handled(request.kind, request.version, str(error)) from None
            unknown = list(decoded.unknown)
            value = defaults.default_builtin(decoded.value, group=request.group, kind=request.kind)
        if unknown and request.strict:
            text = strict_decoding([f'unknown field "{path}"' for path in unknown])
            if patched:
                raise self._bad_patch(text)
            raise cannot_be_handled(request.kind, request.version, text)
        return value

    def _bad_patch(self, text: str) -> ApiError:
        return invalid_object([invalid("patch", "<shown>", text)], group="", kind="", name="")

    def _checked(self, obj: JsonObject, request: Request, old: JsonObject | None) -> JsonObject:
        if request.custom:
            errors = self.custom.validate(obj, old)
        elif old is None:
            errors = validation.validate_create(
                obj, group=request.group, kind=request.kind, namespaced=request.namespaced
            )
        else:
            errors = validation.validate_update(
                obj, old, group=request.group, kind=request.kind, namespaced=request.namespaced,
                subresource=request.subresource,
            )  # fmt: skip
        if errors:
            raise invalid_object(errors, group=request.group, kind=request.kind, name=request.name)
        return obj

    def _stored(self, obj: JsonObject, request: Request, old: JsonObject | None) -> JsonObject:
        if old is None and request.kind == "Job":
            obj = selecting(obj)
        obj = self._checked(obj, request, old)
        if old is None:
            obj = {key: value for key, value in obj.items() if key != "status"} if request.custom else obj
        elif request.subresource == "status":
            meta = {**old["metadata"], "managedFields": obj["metadata"].get("managedFields")}
            obj = {**old, "status": obj.get("status", {}), "metadata": meta}
        elif "status" in old:
            obj = {**obj, "status": old["status"]}
        if old is not None:
            obj = ssa.restore_times(obj, old)
        self.objects[request.key] = obj
        return {"status": 200, "object": obj, "unchanged": obj is old}

    def _create(self, request: Request) -> JsonObject:
        new = self._canonical(request.body, request)
        new = ssa.track(None, new, self._kind(request), self._writer(request), reset=self._reset(request))
        return self._stored(new, request, None)

    def _update(self, request: Request) -> JsonObject:
        old = self.objects[request.key]
        return self._changed(self._canonical(request.body, request), request, old)

    def _changed(self, new: JsonObject, request: Request, old: JsonObject) -> JsonObject:
        new = ssa.track(old, new, self._kind(request), self._writer(request), reset=self._reset(request))
        return self._stored(new, request, old)

    def _json(self, request: Request) -> JsonObject:
        old = self.objects[request.key]
        return self._changed(
            self._canonical(patch.json_patch(old, request.body), request, patched=True), request, old
        )

    def _merge(self, request: Request) -> JsonObject:
        old = self.objects[request.key]
        return self._changed(
            self._canonical(patch.merge_patch(old, request.body), request, patched=True), request, old
        )

    def _strategic(self, request: Request) -> JsonObject:
        old = self.objects[request.key]
        new = patch.strategic_merge_patch(old, request.body, self._kind(request))
        return self._changed(self._canonical(new, request, patched=True), request, old)

    def _apply(self, request: Request) -> JsonObject:
        old = self.objects.get(request.key)
        new = ssa.apply(
            old, request.body, self._kind(request), self._writer(request), force=request.force,
            reset=self._reset(request),
        )  # fmt: skip
        return self._stored(new if new is old else self._canonical(new, request), request, old)


# --- the real server ----------------------------------------------------------------------------------


@dataclass
class Real:
    """Sends the same requests to a kube-apiserver."""

    transport: HttpTransport

    async def answer(self, request: Request) -> JsonObject:
        query = {"fieldManager": request.manager, "fieldValidation": "Strict" if request.strict else "Ignore"}
        if request.verb == "apply":
            query["force"] = str(request.force).lower()
        body = request.body
        method, path = "PATCH", request.path
        if request.verb == "create":
            method, path = "POST", request.collection
        elif request.verb == "update":
            method = "PUT"
            known = await self.send("GET", request.path, {}, None, "application/json")
            own = {"resourceVersion": known["object"]["metadata"]["resourceVersion"]}
            body = {**body, "metadata": {**body["metadata"], **own}}
        return await self.send(method, path, query, body, CONTENT.get(request.verb, "application/json"))

    async def send(
        self, method: str, path: str, query: dict[str, str], body: object, content_type: str
    ) -> JsonObject:
        encoded = None if body is None else json.dumps(body).encode()
        answer = await self.transport.request(
            method, path, query=query, body=encoded, headers={"Content-Type": content_type}
        )
        if answer.status == 404 and not answer.body.startswith(b"{"):
            return {"status": 404, "reason": "NotFound", "message": "nothing is served there", "causes": []}
        found = json.loads(answer.body)
        if answer.status < 300:
            return {"status": 200, "object": found}
        causes = (found.get("details") or {}).get("causes") or []
        reason = found.get("reason", "")
        return {"status": answer.status, "reason": reason, "message": found["message"], "causes": causes}


async def serve_widgets(server: Real) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await server.send("POST", path, {}, WIDGETS_CRD, "application/json")
    name = WIDGETS_CRD["metadata"]["name"]
    for _ in range(2000):
        found = await server.send("GET", f"{path}/{name}", {}, None, "application/json")
        conditions = (found["object"].get("status") or {}).get("conditions") or ()
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            served = await server.send(
                "GET", "/apis/engine.mooring.dev/v1/widgets", {}, None, "application/json"
            )
            if served["status"] == 200:
                return
    raise AssertionError("the real server does not serve widgets")


def selecting(job: JsonObject) -> JsonObject:
    """Return a new job as a server completes it: one that selects nothing is refused."""
    served = registry().find("batch", "v1", "jobs")
    assert served is not None
    world = World(Store(MemoryBackend()), lambda: datetime.fromisoformat(TIME))
    return prepare_create({**job, "metadata": {**job["metadata"], "uid": "u"}}, served, world)


# --- what is compared ---------------------------------------------------------------------------------

_ALLOCATED = {
    "Service": ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
    "Pod": ("serviceAccount", "serviceAccountName", "tolerations", "volumes", "preemptionPolicy", "priority"),
    "PersistentVolumeClaim": ("storageClassName",),
    "Job": ("selector", "template"),
}


def comparable(answer: JsonObject, request: Request, namespace: str) -> JsonObject:
    text = json.dumps(answer).replace(namespace, "NS")
    answer = json.loads(text)
    if "object" not in answer:
        return _comparable_error(answer)
    obj = answer["object"]
    metadata = obj["metadata"]
    for key in ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"):
        metadata.pop(key, None)
    entries = [e for e in metadata.get("managedFields", []) if e["manager"] != "kube-controller-manager"]
    metadata["managedFields"] = sorted(
        ({key: bool(value) if key == "time" else value for key, value in entry.items()} for entry in entries),
        key=lambda entry: json.dumps(entry, sort_keys=True),
    )
    annotations = metadata.get("annotations", {})
    annotations.pop("deployment.kubernetes.io/revision", None)
    if not annotations:
        metadata.pop("annotations", None)
    spec = obj.get("spec")
    for key in _ALLOCATED.get(request.kind, ()) if isinstance(spec, dict) else ():
        spec.pop(key, None)
    if request.kind == "Pod":
        metadata.pop("annotations", None)
        for part in ("containers", "initContainers"):
            for container in spec.get(part, ()):
                mounts = container.get("volumeMounts", ())
                container["volumeMounts"] = [m for m in mounts if "serviceaccount" not in m["mountPath"]]
    if request.kind == "Job":
        metadata.pop("labels", None)
        metadata.pop("annotations", None)
    if request.kind != "Widget":
        obj.pop("status", None)
    metadata["finalizers"] = [
        f for f in metadata.get("finalizers", ()) if "protection" not in f and "kubernetes" not in f
    ]
    return {"status": answer["status"], "object": obj}


def _comparable_error(answer: JsonObject) -> JsonObject:
    """Compare refusals; a patch's shows the whole object, and Go's maps order many causes."""
    message = answer["message"]
    if "patch: Invalid value" in message:
        head, _, tail = message.partition("patch: Invalid value: ")
        message = (
            head + "patch: " + tail[max(tail.rfind("strict decoding error"), tail.rfind("json: cannot")) :]
        )
        return {"status": answer["status"], "reason": answer["reason"], "message": message}
    causes = sorted(json.dumps(cause, sort_keys=True) for cause in answer["causes"])
    if len(causes) > 1:
        message = message.partition(" is invalid: ")[0]
    return {"status": answer["status"], "reason": answer["reason"], "message": message, "causes": causes}


# --- definitions and rules ----------------------------------------------------------------------------

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def judged(definition: JsonObject) -> set[tuple[str, str]]:
    kind = schema.builtin().get("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    assert kind is not None
    canonical = crd.default_crd(wire.decode(definition, kind).value)
    errors = validation.validate_create(
        canonical, group="apiextensions.k8s.io", kind="CustomResourceDefinition", namespaced=False
    )
    return {(error.field, first_line(error.message)) for error in errors + crd.validate_crd(canonical)}


def first_line(text: str) -> str:
    """Cut a message after what both compilers say, and before whole objects that Go shows its own way."""
    text = text.partition("compilation failed: ")[0]
    for start in ("Invalid value: {", "Invalid value: [{", "error parsing regexp"):
        head, found, tail = text.partition(start)
        if found:
            text = head + found + tail.rpartition("}: ")[2].rpartition("}]: ")[2]
    return text.partition("error parsing regexp")[0]


def rules_definition(name: str, plural: str) -> JsonObject:
    """Return the CRD of a rules scenario."""
    spec, rules, _ = RULES[name]
    listed = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    names = {"plural": plural, "kind": plural.capitalize()}
    schema_of_spec = {**spec, "x-kubernetes-validations": listed}
    return crd_definition(schema_of_spec, name=f"{plural}.rules.mooring.dev", names=names)


def rules_object(definition: JsonObject, spec: object) -> JsonObject:
    """Return an object of such a CRD."""
    kind = definition["spec"]["names"]["kind"]
    metadata = {"name": "x", "namespace": "default"}
    return {"apiVersion": "rules.mooring.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


async def written(
    server: Real, definition: JsonObject, obj: JsonObject, old: JsonObject | None
) -> list[list[str]]:
    """Create or replace the object on the real server, once it serves the kind; return the causes."""
    path = f"/apis/rules.mooring.dev/v1/namespaces/default/{definition['spec']['names']['plural']}"
    for _ in range(5000):
        if old is None:
            answer = await server.send("POST", path, {}, obj, "application/json")
        else:
            patch_body = [{"op": "replace", "path": "/spec", "value": obj["spec"]}]
            answer = await server.send("PATCH", f"{path}/x", {}, patch_body, CONTENT["json"])
        if answer["status"] != 404:
            return sorted([c["reason"], c["field"], c["message"]] for c in answer.get("causes", ()))
    raise AssertionError(f"the real server does not serve {path}")
