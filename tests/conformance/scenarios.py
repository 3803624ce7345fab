"""The scenarios of the conformance table: name -> requests sent in order to a fresh namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.access import ACCESS
from tests.conformance.comparing import Step
from tests.conformance.kinds import lives
from tests.conformance.mutations import MUTATIONS
from tests.conformance.pod_security import POD_SECURITY
from tests.conformance.policies import POLICIES

__all__ = ["SCENARIOS"]

Json = Any

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

NS = "/api/v1/namespaces/{ns}"
CM = NS + "/configmaps"
PODS = NS + "/pods"
SVC = NS + "/services"
ENDPOINTS = NS + "/endpoints"
SECRETS = NS + "/secrets"
STS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
DEPLOY = "/apis/apps/v1/namespaces/{ns}/deployments"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
PDB = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/{ns}.example.com/v1/namespaces/{ns}/widgets"


def get(path: str, **options: Any) -> Step:
    return Step("GET", path, **options)


def post(path: str, body: Json, **options: Any) -> Step:
    return Step("POST", path, body, **options)


def put(path: str, body: Json, **options: Any) -> Step:
    return Step("PUT", path, body, **options)


def patch(path: str, body: Json, kind: str, **options: Any) -> Step:
    return Step("PATCH", path, body, kind, **options)


def apply(path: str, body: Json, manager: str = "me", *, force: bool = False, **options: Any) -> Step:
    mark = "&" if "?" in path else "?"
    query = f"{mark}fieldManager={manager}" + ("&force=true" if force else "")
    return Step("PATCH", path + query, body, APPLY, **options)


def delete(path: str, body: Json = None, **options: Any) -> Step:
    return Step("DELETE", path, body, **options)


def cm(name: str = "a", data: Mapping[str, Any] | None = None, **meta: Any) -> Json:
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}
    if data is not None:
        body["data"] = data
    return body


def pod(name: str = "p", spec: Json = None, **meta: Any) -> Json:
    containers = [{"name": "c", "image": "redis:7"}]
    spec = {"containers": containers, **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


def service(name: str = "s", spec: Json = None, **meta: Any) -> Json:
    spec = {"ports": [{"port": 80}], "selector": {"app": "a"}, **(spec or {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, **meta}, "spec": spec}


def stateful_set(name: str = "s", replicas: int = 0, **spec: Any) -> Json:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "redis:7"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": "x",
            "selector": {"matchLabels": {"app": "a"}},
            "template": template,
            **spec,
        },
    }


def definition(**version: Any) -> Json:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
                    "name": {"type": "string", "pattern": "^[a-z]+$"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "phase": {"type": "string"},
                    "replicas": {"type": "integer"},
                },
            },
        },
    }
    one = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        ],
        **version,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.{ns}.example.com"},
        "spec": {
            "group": "{ns}.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [one],
        },
    }


def widget(name: str = "w", spec: Json = None, **meta: Any) -> Json:
    body: Json = {
        "apiVersion": "{ns}.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, **meta},
    }
    if spec is not None:
        body["spec"] = spec
    return body


def with_widgets(*steps: Step) -> list[Step]:
    """Run steps with the definition of Widgets in place; it is removed afterwards."""
    made = post(CRDS, definition(), quiet=True)
    waits = [get(WIDGETS, quiet=True, until=200)]
    return [made, *waits, *steps, delete(CRDS + "/widgets.{ns}.example.com", quiet=True)]


#: A list that is empty on every server.
NONE = CM + "?labelSelector=none"

#: Messages that show an object whose fields stand in another order.
MESSAGE = ("message", "details.causes.message")

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
META = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
META_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


SCENARIOS: dict[str, list[Step]] = {
    "a create with a version that is tried only": [
        post(CM + "?dryRun=All", {"metadata": {"name": "a", "resourceVersion": "5"}}),
        post(CM, {"metadata": {"name": "a", "resourceVersion": "5"}}),
        post(CM, {"metadata": {"name": "a"}}),
        post(CM + "?dryRun=All", {"metadata": {"name": "a", "resourceVersion": "5"}}),
    ],
    # --- create and get ---------------------------------------------------------------------------------
    "create, get and delete a configmap": [
        post(CM, cm(data={"x": "1"})),
        get(CM + "/a"),
        delete(CM + "/a"),
        get(CM + "/a"),
        delete(CM + "/a"),
    ],
    "create without kind and apiVersion": [post(CM, {"metadata": {"name": "a"}})],
    "create twice": [post(CM, cm()), post(CM, cm())],
    "create with a generated name that is given too": [post(CM, cm(name="fixed", generateName="x-"))],
    "create without a name": [post(CM, {"metadata": {}})],
    "create with an invalid name": [post(CM, cm(name="A_b"))],
    "create in another namespace": [post(CM, cm(namespace="default"))],
    "create in no such namespace": [post("/api/v1/namespaces/none-{ns}/configmaps", cm())],
    "create with a resource version": [post(CM, cm(resourceVersion="12"))],
    "create with a UID, times and a deletion": [
        post(
            CM,
            cm(
                uid="11111111-1111-1111-1111-111111111111",
                creationTimestamp="2001-01-01T00:00:00Z",
                deletionTimestamp="2001-01-01T00:00:00Z",
                deletionGracePeriodSeconds=3,
                generation=7,
                selfLink="/x",
            ),
        )
    ],
    "create of another kind": [
        post(CM, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        post(CM, {"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        post(CM, {"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "a"}}),
        post(CM, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}),
    ],
    "create at a name": [post(CM + "/a", cm())],
    "create a dry run": [
        post(CM + "?dryRun=All", cm()),
        get(CM + "/a"),
        post(CM + "?dryRun=Some", cm()),
        post(CM + "?dryRun=All&dryRun=All", cm()),
    ],
    "create with field managers": [
        post(CM + "?fieldManager=someone", cm(data={"x": "y"})),
        post(CM + "?fieldManager=" + "x" * 129, cm("b")),
    ],
    "labels that are wrong": [
        post(CM, cm(labels={"a b": "c"})),
        post(CM, cm(labels={"a": "c d"})),
        post(CM, cm(annotations={"a b": "c d"})),
        post(CM, cm(finalizers=["plain"])),
        post(CM, cm("ok", ownerReferences=[{"apiVersion": "v1", "kind": "X", "name": "y"}])),
        post(CM, cm("ok", ownerReferences=[{"apiVersion": "v1", "kind": "X", "name": "y", "uid": "z"}])),
    ],
    # --- bad requests -----------------------------------------------------------------------------------
    **{
        f"bad body: {name}": [Step("POST", CM, body, type=kind)]
        for name, (body, kind) in {
            "no JSON": ("{nope", "application/json"),
            "empty": ("", "application/json"),
            "cut short": ('{"metadata":{"name":"a"}', "application/json"),
            "two values": ('{"metadata":{"name":"a"}} {}', "application/json"),
            "trailing comma": ('{"metadata":{"name":"a"},}', "application/json"),
            "a list": ("[]", "application/json"),
            "a string": ('"a"', "application/json"),
            "null": ("null", "application/json"),
            "a number": ("3", "application/json"),
            "single quotes": ("{'a': 1}", "application/json"),
            "plain text": ("hello", "text/plain"),
            "a form": ("a=b", "application/x-www-form-urlencoded"),
            "no content type": ('{"metadata":{"name":"nct"}}', ""),
            "yaml": ("metadata: {name: y}\ndata: {a: b}\n", "application/yaml"),
            "bad yaml": ("metadata: {name: y\n", "application/yaml"),
            "json with charset": ('{"metadata":{"name":"cs"}}', "application/json; charset=utf-8"),
            "wrong types": ('{"metadata":{"name":"a"},"data":"x"}', "application/json"),
            "wrong types within": ('{"metadata":{"name":"a"},"data":{"x":1}}', "application/json"),
            "metadata is a list": ('{"metadata":[]}', "application/json"),
            "labels are a list": ('{"metadata":{"name":"a","labels":["x"]}}', "application/json"),
            "name is a number": ('{"metadata":{"name":1}}', "application/json"),
            "immutable is text": ('{"metadata":{"name":"a"},"immutable":"yes"}', "application/json"),
        }.items()
    },
    **{
        f"bad path: {method} {path}": [Step(method, path)]
        for method, path in (
            ("GET", "/nothing"),
            ("GET", "/api/v2"),
            ("GET", "/api/v2/pods"),
            ("GET", "/apis/nothing"),
            ("GET", "/apis/nothing/v1"),
            ("GET", "/apis/nothing/v1/things"),
            ("GET", "/apis/apps/v2"),
            ("GET", "/apis/apps/v2/deployments"),
            ("GET", "/api/v1/nothings"),
            ("GET", "/apis/apps/v1/nothings"),
            ("GET", "/apis/apps/v1/namespaces/{ns}/nothings/x"),
            ("GET", "/api/v1/namespaces/{ns}/pods/x/nothing"),
            ("GET", "/api/v1/namespaces/{ns}/configmaps/x/status"),
            ("GET", "/api/v1/namespaces/{ns}/configmaps/x"),
            ("GET", "/api/v1/configmaps/x"),
            ("GET", "/api/v1/namespaces/{ns}/nodes"),
            ("GET", "/api/v1/namespaces/{ns}/nodes/x"),
            ("GET", "/api/v1/namespaces/{ns}/pods/x/log/y"),
            ("GET", "/api//v1/namespaces/{ns}"),
            ("GET", "//api/v1/namespaces/{ns}"),
            ("GET", "/api/v1/namespaces/{ns}/"),
            ("GET", "/api/v1/namespaces//pods"),
            ("GET", "/api/v1/namespaces/../pods"),
            ("GET", "/api/v1/namespaces/%2e%2e/pods"),
            ("GET", "/api/v1/namespaces/{ns}/configmaps/%2e%2e"),
            ("GET", "/api/v1/namespaces/{ns}/configmaps/a%2fb"),
            ("GET", "/api/v1/namespaces/{ns}/configmaps/a%20b"),
            ("POST", "/api/v1/namespaces/{ns}/nothings"),
            ("PUT", "/api/v1/namespaces/{ns}/configmaps"),
            ("PATCH", "/api/v1/namespaces/{ns}/configmaps"),
            ("DELETE", "/api/v1/namespaces"),
            ("POST", "/api/v1/configmaps"),
            ("DELETE", "/api/v1/configmaps"),
            ("POST", "/apis/apps/v1"),
            ("DELETE", "/api/v1"),
            ("OPTIONS", "/api/v1/namespaces"),
            ("TRACE", "/api/v1/namespaces"),
            ("PUT", "/version"),
            ("GET", "/healthz"),
            ("GET", "/livez"),
            ("GET", "/readyz"),
        )
    },
    "a zero byte in a name": [get(CM + "/a%00b", ignore=("message", "details.name"))],
    "accept types": [
        get(NONE, headers={"Accept": "application/json"}),
        get(NONE, headers={"Accept": "*/*"}),
        get(NONE, headers={"Accept": "text/html"}),
        get(NONE, headers={"Accept": "application/xml, application/json"}),
        get(NONE, headers={"Accept": "application/json;as=Nothing;v=v1;g=meta.k8s.io"}),
        get(NONE, headers={"Accept": "application/json;as=Nothing;v=v1;g=meta.k8s.io, application/json"}),
        get(NONE, headers={"Accept": "application/json;as=Table;v=v9;g=meta.k8s.io"}),
        get(NONE, headers={"Accept": "text/*"}),
        get(NONE, headers={"Accept": "application/*"}),
    ],
    "accept types of answers to writes": [
        post(CM, cm(), headers={"Accept": "text/html"}),
        get(CM + "/a"),
        post(CM, cm(data={"a": "b"}), headers=TABLE),
        post(CM, cm("m", data={"a": "b"}), headers=META),
    ],
    # --- update -----------------------------------------------------------------------------------------
    "update a configmap": [
        post(CM, cm(data={"x": "1"})),
        put(CM + "/a", cm(data={"x": "2"}, resourceVersion="{rv:0}")),
        put(CM + "/a", cm(data={"x": "3"}, resourceVersion="{rv:0}")),
        put(CM + "/a", cm(data={"x": "4"})),
        put(CM + "/a", cm(data={"x": "4"})),
        put(CM + "/a", cm(data={"x": "5"}, uid="11111111-1111-1111-1111-111111111111")),
        put(CM + "/a", cm(data={"x": "5"}, resourceVersion="nope")),
        put(CM + "/b", cm(data={"x": "5"})),
        put(CM + "/b", cm("b", data={"x": "5"})),
        put(CM + "/a", {"data": {}}),
        put(CM + "/a?dryRun=All", cm(data={"x": "9"})),
        get(CM + "/a"),
        put(CM + "/a", cm(data={"x": "1"}, labels={"l": "m"}, creationTimestamp="2001-01-01T00:00:00Z")),
        put(CM + "/a", cm(data={"x": "1"}, generation=5, deletionTimestamp="2001-01-01T00:00:00Z")),
    ],
    "update immutable configmaps": [
        post(CM, {**cm(data={"x": "1"}), "immutable": True}),
        put(CM + "/a", {**cm(data={"x": "2"}), "immutable": True}),
        put(CM + "/a", cm(data={"x": "1"})),
        patch(CM + "/a", {"metadata": {"labels": {"a": "b"}}}, MERGE),
    ],
    # --- patches ----------------------------------------------------------------------------------------
    "merge patch": [
        post(CM, cm(data={"x": "1", "y": "2"})),
        patch(CM + "/a", {"data": {"x": None, "z": "3"}}, MERGE),
        patch(CM + "/a", {"data": {"z": "3"}}, MERGE),
        patch(CM + "/a", {"data": None}, MERGE),
        patch(CM + "/a", {"metadata": {"resourceVersion": "1"}}, MERGE),
        patch(CM + "/a", {"metadata": {"resourceVersion": "{rv:0}"}}, MERGE),
        patch(CM + "/a", {"metadata": {"name": "b"}}, MERGE),
        patch(CM + "/a", {"metadata": {"namespace": "b"}}, MERGE),
        patch(CM + "/a", {"metadata": {"uid": "b"}}, MERGE),
        patch(CM + "/a", {"kind": "Secret"}, MERGE, ignore=MESSAGE),
        patch(CM + "/a", {"data": {"x": 1}}, MERGE, ignore=MESSAGE),
        patch(CM + "/a", [], MERGE),
        patch(CM + "/a", "nope", MERGE),
        patch(CM + "/b", {"data": {"x": "1"}}, MERGE),
        patch(CM + "/a?dryRun=All", {"data": {"q": "1"}}, MERGE),
        patch(CM + "/a?force=true", {"data": {"q": "1"}}, MERGE),
        patch(CM + "/a", {"data": {"q": "1"}}, "application/json"),
        patch(CM + "/a", {"data": {"q": "1"}}, "text/plain"),
    ],
    "json patch": [
        post(CM, cm(data={"x": "1"})),
        patch(CM + "/a", [{"op": "add", "path": "/data/y", "value": "2"}], JSON_PATCH),
        patch(CM + "/a", [{"op": "test", "path": "/data/y", "value": "3"}], JSON_PATCH),
        patch(CM + "/a", [{"op": "test", "path": "/data/y", "value": "2"}], JSON_PATCH),
        patch(CM + "/a", [{"op": "remove", "path": "/data/nope"}], JSON_PATCH),
        patch(CM + "/a", [{"op": "remove", "path": "/data/y"}], JSON_PATCH),
        patch(CM + "/a", [{"op": "move", "from": "/data/x", "path": "/data/z"}], JSON_PATCH),
        patch(CM + "/a", [{"op": "copy", "from": "/data/z", "path": "/data/q"}], JSON_PATCH),
        patch(CM + "/a", [{"op": "nope", "path": "/data/z"}], JSON_PATCH),
        patch(CM + "/a", {"op": "add"}, JSON_PATCH),
        patch(CM + "/a", "x", JSON_PATCH),
        patch(CM + "/a", [{"op": "replace", "path": "/metadata/name", "value": "b"}], JSON_PATCH),
        patch(
            CM + "/a",
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
                {"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]},
            ],
            JSON_PATCH,
        ),
        patch(CM + "/none", [{"op": "add", "path": "/data/y", "value": "2"}], JSON_PATCH),
    ],
    "strategic merge patch": [
        post(PODS, pod(spec={"containers": [{"name": "c", "image": "a:1"}, {"name": "d", "image": "b:1"}]})),
        patch(PODS + "/p", {"spec": {"containers": [{"name": "d", "image": "b:2"}]}}, STRATEGIC),
        patch(PODS + "/p", {"metadata": {"labels": {"x": "y"}}}, STRATEGIC),
        patch(PODS + "/p", {"metadata": {"labels": {"x": None}}}, STRATEGIC),
        patch(
            PODS + "/p",
            {"spec": {"containers": [{"name": "d", "image": "b:2", "command": ["x"]}]}},
            STRATEGIC,
            ignore=MESSAGE,
        ),
        patch(PODS + "/p", {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}, STRATEGIC),
        patch(PODS + "/p", {"metadata": {"finalizers": ["a.b/c"]}}, STRATEGIC),
        patch(PODS + "/p", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}, STRATEGIC),
        patch(PODS + "/p", {"spec": {"nope": 1}}, STRATEGIC),
        patch(PODS + "/p?fieldValidation=Strict", {"spec": {"nope": 1}}, STRATEGIC),
    ],
    # --- field validation -------------------------------------------------------------------------------
    "unknown fields": [
        post(CM, {**cm("u1"), "nope": 1}),
        post(CM + "?fieldValidation=Warn", {**cm("u2"), "nope": 1}),
        post(CM + "?fieldValidation=Strict", {**cm("u3"), "nope": 1}),
        post(CM + "?fieldValidation=Ignore", {**cm("u4"), "nope": 1}),
        post(CM + "?fieldValidation=Other", {**cm("u5"), "nope": 1}),
        post(
            PODS + "?fieldValidation=Strict",
            pod("u6", spec={"nope": 1, "containers": [{"name": "c", "image": "x", "also": 2}]}),
        ),
        Step("POST", CM + "?fieldValidation=Strict", '{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}'),
        Step("POST", CM, '{"metadata":{"name":"u7"},"data":{"x":"1","x":"2"}}'),
        patch(CM + "/u1", {"nope": 2}, MERGE),
        patch(CM + "/u1?fieldValidation=Strict", {"nope": 2}, MERGE, ignore=MESSAGE),
        patch(
            CM + "/u1?fieldValidation=Strict",
            [{"op": "add", "path": "/nope", "value": 1}],
            JSON_PATCH,
            ignore=MESSAGE,
        ),
        apply(CM + "/u1?fieldValidation=Strict", {**cm("u1"), "nope": 1}),
        apply(CM + "/u1", {**cm("u1"), "nope": 1}),
        put(CM + "/u1?fieldValidation=Strict", {**cm("u1"), "nope": 1}),
    ],
    # --- server-side apply ------------------------------------------------------------------------------
    "apply": [
        apply(CM + "/a", cm(data={"x": "1", "y": "2"})),
        apply(CM + "/a", cm(data={"x": "1", "y": "2"})),
        apply(CM + "/a", cm(data={"x": "1"})),
        apply(CM + "/a", cm(data={"x": "2"}), "other"),
        apply(CM + "/a", cm(data={"x": "2"}), "other", force=True),
        apply(CM + "/a", cm(data={"x": "1"})),
        apply(CM + "/a", cm(data={"z": "1"}, labels={"l": "m"})),
        patch(CM + "/a", cm(data={"x": "1"}), APPLY),
        apply(CM + "/b", cm(data={"x": "1"})),
        apply(CM + "/a", {"metadata": {"name": "a"}}),
        apply(CM + "/a", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        apply(CM + "/a", cm(data={"x": 1})),
        apply(CM + "/a", "a: {b"),
        apply(CM + "/a", "[]"),
        apply(CM + "/a", cm(managedFields=[{"manager": "x"}])),
        apply(CM + "/new?dryRun=All", cm("new", data={"x": "1"})),
        get(CM + "/new"),
        apply(CM + "/new", cm("new", uid="11111111-1111-1111-1111-111111111111")),
        apply(CM + "/new", cm("new", resourceVersion="1")),
        apply(CM + "/a", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {y: 'yes'}\n"),
        apply(CM + "/a", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"q": "r"}}),
    ],
    "apply after update and update after apply": [
        post(CM + "?fieldManager=creator", cm(data={"x": "1"})),
        apply(CM + "/a", cm(data={"x": "1"})),
        apply(CM + "/a", cm(data={"x": "2"})),
        apply(CM + "/a", cm(data={"x": "2"}), force=True),
        put(CM + "/a?fieldManager=creator", cm(data={"x": "3"})),
        apply(CM + "/a", cm(data={"x": "2"})),
        patch(CM + "/a?fieldManager=third", {"data": {"w": "1"}}, MERGE),
        patch(CM + "/a", {"metadata": {"managedFields": [{}]}}, MERGE),
        patch(CM + "/a", {"metadata": {"managedFields": []}}, MERGE),
    ],
    "apply a stateful set": [
        apply(
            STS + "/s",
            stateful_set(),
            ignore=("status", "metadata.managedFields", "metadata.resourceVersion"),
        ),
        apply(
            STS + "/s",
            stateful_set(podManagementPolicy="Parallel"),
            ignore=("status", "metadata.managedFields", "metadata.resourceVersion"),
        ),
    ],
    "apply a service": [
        apply(SVC + "/s", service()),
        apply(SVC + "/s", service(spec={"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]})),
        apply(SVC + "/s", service(spec={"ports": [{"port": 81, "name": "b"}]})),
        get(SVC + "/s"),
    ],
    # --- delete -----------------------------------------------------------------------------------------
    "delete with preconditions": [
        post(CM, cm()),
        delete(CM + "/a", {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}}),
        delete(CM + "/a", {"preconditions": {"resourceVersion": "1"}}, ignore=("message",)),
        delete(CM + "/a?dryRun=All"),
        delete(CM + "/a", {"preconditions": {"uid": "{uid:0}", "resourceVersion": "{rv:0}"}}),
        get(CM + "/a"),
    ],
    "delete options that are wrong": [
        post(CM, cm()),
        delete(CM + "/a?propagationPolicy=Nothing"),
        delete(CM + "/a", {"propagationPolicy": "Nothing"}),
        delete(CM + "/a", {"propagationPolicy": "Orphan", "orphanDependents": True}),
        delete(CM + "/a", {"kind": "Nothing", "apiVersion": "v1"}),
        delete(CM + "/a?gracePeriodSeconds=x"),
        delete(CM + "/a", "{nope"),
        delete(CM + "/a", "x", type="text/plain"),
        delete(CM + "/a", {"dryRun": ["Some"]}),
        delete(CM + "/a", {"gracePeriodSeconds": -5}),
    ],
    "finalizers hold an object": [
        post(CM, cm(finalizers=["a.b/c", "d.e/f"], data={"x": "1"})),
        delete(CM + "/a"),
        delete(CM + "/a"),
        patch(CM + "/a", {"data": {"x": "2"}}, MERGE),
        patch(CM + "/a", {"metadata": {"finalizers": ["a.b/c", "d.e/f", "g.h/i"]}}, MERGE),
        patch(CM + "/a", {"metadata": {"finalizers": ["d.e/f"]}}, MERGE),
        patch(CM + "/a", {"metadata": {"deletionTimestamp": None}}, MERGE),
        patch(CM + "/a", {"metadata": {"finalizers": None}}, MERGE),
        get(CM + "/a"),
    ],
    "foreground deletion": [
        post(CM, cm(finalizers=["a.b/c"])),
        delete(CM + "/a?propagationPolicy=Foreground"),
        # From here on the real server's garbage collector may take its finalizer off.
        patch(CM + "/a", {"metadata": {"finalizers": []}}, MERGE, quiet=True),
        get(CM + "/a"),
    ],
    "orphan deletion": [
        post(CM, cm(finalizers=["a.b/c"])),
        delete(CM + "/a", {"propagationPolicy": "Orphan"}, ignore=("metadata.finalizers",)),
        patch(CM + "/a", {"metadata": {"finalizers": None}}, MERGE, quiet=True),
    ],
    "jobs and replication controllers orphan by default": [
        post(
            "/apis/batch/v1/namespaces/{ns}/jobs",
            {
                "metadata": {"name": "j", "finalizers": ["a.b/c"]},
                "spec": {
                    "suspend": True,
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
                    },
                },
            },
            quiet=True,
        ),
        delete(
            "/apis/batch/v1/namespaces/{ns}/jobs/j",
            ignore=("metadata.managedFields", "status", "metadata.resourceVersion"),
        ),
    ],
    "a put takes the last finalizer": [
        post(CM, cm(finalizers=["a.b/c"], data={"x": "1"})),
        delete(CM + "/a"),
        put(CM + "/a", cm(data={"x": "2"})),
        get(CM + "/a"),
    ],
    "pods go gracefully": [
        post(PODS, pod(spec={"nodeName": "n1", "terminationGracePeriodSeconds": 7}, finalizers=["a.b/c"])),
        delete(PODS + "/p"),
        delete(PODS + "/p"),
        delete(PODS + "/p?gracePeriodSeconds=20"),
        delete(PODS + "/p?gracePeriodSeconds=3"),
        delete(PODS + "/p?gracePeriodSeconds=0"),
        get(PODS + "/p"),
        patch(PODS + "/p", {"metadata": {"finalizers": None}}, MERGE),
        get(PODS + "/p"),
    ],
    "pods on no node go at once": [post(PODS, pod()), delete(PODS + "/p"), get(PODS + "/p")],
    "pods are killed at once": [
        post(PODS, pod(spec={"nodeName": "n1"})),
        delete(PODS + "/p?gracePeriodSeconds=0"),
        get(PODS + "/p"),
    ],
    "delete collections": [
        post(CM, cm("a", labels={"x": "1"})),
        post(CM, cm("b", labels={"x": "2"})),
        post(CM, cm("c", labels={"x": "2"}, finalizers=["a.b/c"])),
        delete(CM + "?labelSelector=x%3D2"),
        get(CM + "?labelSelector=x"),
        delete(CM + "?fieldSelector=metadata.name%3Da"),
        get(CM + "?labelSelector=x"),
        patch(CM + "/c", {"metadata": {"finalizers": None}}, MERGE),
    ],
    # --- lists ------------------------------------------------------------------------------------------
    "lists and selectors": [
        post(CM, cm("a", labels={"x": "1", "y": "1"})),
        post(CM, cm("b", labels={"x": "2"})),
        post(CM, cm("c", labels={"x": "3"})),
        *(
            get(CM + "?labelSelector=" + selector, ignore=("message",))
            for selector in (
                "x",
                "x%3D1",
                "x%3D%3D1",
                "x!%3D1,x",
                "x+in+(1,2)",
                "x+notin+(1),x",
                "!y,x",
                "x%3E1",
                "x%3C3",
                "x%3D",
                "x%3D1,y%3D1",
                "%3D%3D",
                "x+in+",
                "x%3D(",
                "a+b",
                "x+in+(1,2),y",
            )
        ),
        *(
            get(CM + "?fieldSelector=" + selector)
            for selector in (
                "metadata.name%3Da",
                "metadata.name!%3Da,metadata.name!%3Dkube-root-ca.crt",
                "metadata.namespace%3Dnone",
                "spec.nodeName%3Dx",
                "nonsense",
                "metadata.name%3Da,metadata.name%3Db",
            )
        ),
    ],
    "pod fields": [
        post(PODS, pod("a", spec={"nodeName": "n1"})),
        post(PODS, pod("b")),
        *(
            get(PODS + "?fieldSelector=" + selector, ignore=("items.spec",))
            for selector in (
                "spec.nodeName%3Dn1",
                "spec.nodeName%3D",
                "status.phase%3DPending",
                "status.phase!%3DPending",
                "spec.restartPolicy%3DAlways",
                "spec.schedulerName%3Ddefault-scheduler",
                "status.podIP%3D",
                "spec.serviceAccountName%3Ddefault",
                "spec.nothing%3Dx",
                "spec.hostNetwork%3Dfalse",
            )
        ),
    ],
    "pages": [
        *(post(CM, cm(name, labels={"page": "yes"})) for name in "abcde"),
        get(CM + "?labelSelector=page&limit=2"),
        get(CM + "?labelSelector=page&limit=2&continue={continue:5}"),
        delete(CM + "/d"),
        post(CM, cm("bb", labels={"page": "yes"})),
        get(CM + "?labelSelector=page&limit=2&continue={continue:6}"),
        get(CM + "?labelSelector=page&limit=2&continue={continue:5}&resourceVersion=5"),
        get(CM + "?limit=2&continue=nonsense", ignore=MESSAGE),
        get(CM + "?limit=x"),
        get(CM + "?labelSelector=page&limit=-1"),
        get(CM + "?labelSelector=page&limit=3&resourceVersion=0"),
    ],
    "resource versions": [
        post(CM, cm("a", labels={"v": "1"})),
        post(CM, cm("b", labels={"v": "1"})),
        get(CM + "?labelSelector=v&resourceVersion={rv:0}&resourceVersionMatch=Exact"),
        # First: from then on what the real server answers from its memory has both objects.
        get(CM + "?labelSelector=v&resourceVersion={rv:1}"),
        get(CM + "?labelSelector=v&resourceVersion={rv:0}&resourceVersionMatch=NotOlderThan"),
        get(CM + "?labelSelector=v&resourceVersion=0"),
        get(CM + "?resourceVersionMatch=Exact"),
        get(CM + "?resourceVersion=0&resourceVersionMatch=Exact"),
        get(CM + "?resourceVersion=5&resourceVersionMatch=Other"),
        get(CM + "?resourceVersion=nope"),
        get(CM + "?resourceVersion=5&resourceVersionMatch=NotOlderThan&continue=x"),
        get(CM + "/a?resourceVersion=0"),
        get(CM + "/a?resourceVersion=nope"),
        get(CM + "?sendInitialEvents=true"),
        get(CM + "?watch=1&sendInitialEvents=true"),
        get(CM + "?watch=1&resourceVersionMatch=NotOlderThan"),
        get(CM + "?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact"),
        get(CM + "?watch=1&resourceVersion=nope"),
        get(CM + "?timeoutSeconds=x&watch=1"),
    ],
    "the future": [
        get(CM + "?resourceVersion=99999999", ignore=("message",)),
        get(CM + "/a?resourceVersion=99999999", ignore=("message",)),
    ],
    # --- watches ----------------------------------------------------------------------------------------
    "watch from a version": [
        post(CM, cm("a", data={"x": "1"}, labels={"w": "1"})),
        put(CM + "/a", cm("a", data={"x": "2"}, labels={"w": "1"})),
        post(CM, cm("b", labels={"w": "1"})),
        delete(CM + "/a"),
        get(CM + "?watch=1&timeoutSeconds=1&labelSelector=w&resourceVersion={rv:0}"),
        get(CM + "?watch=true&timeoutSeconds=1&labelSelector=w&resourceVersion={rv:2}"),
        get(CM + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Db&resourceVersion={rv:0}"),
    ],
    "watch from now": [
        post(CM, cm("a", labels={"w": "1"})),
        post(CM, cm("b", labels={"w": "2"})),
        get(CM + "?watch=1&timeoutSeconds=1&labelSelector=w"),
        get(CM + "?watch=1&timeoutSeconds=1&labelSelector=w&resourceVersion=0"),
        get("/api/v1/watch/namespaces/{ns}/configmaps?timeoutSeconds=1&labelSelector=w&watch=1"),
    ],
    "objects enter and leave a selection": [
        post(CM, cm("a", labels={"in": "no"})),
        patch(CM + "/a", {"metadata": {"labels": {"in": "yes"}}}, MERGE),
        patch(CM + "/a", {"data": {"x": "1"}}, MERGE),
        patch(CM + "/a", {"metadata": {"labels": {"in": "no"}}}, MERGE),
        patch(CM + "/a", {"data": {"x": "2"}}, MERGE),
        delete(CM + "/a"),
        get(CM + "?watch=1&timeoutSeconds=1&labelSelector=in%3Dyes&resourceVersion={rv:0}"),
        get(CM + "?watch=1&timeoutSeconds=1&labelSelector=in%3Dno&resourceVersion={rv:0}"),
    ],
    "watch list": [
        post(CM, cm("a", labels={"w": "1"})),
        get(
            CM + "?watch=1&timeoutSeconds=1&labelSelector=w&sendInitialEvents=true"
            "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            ignore=("object.metadata.resourceVersion",),
        ),
    ],
    "watch as tables and metadata": [
        post(CM, cm("a", labels={"w": "1"}, data={"x": "1"})),
        get(
            CM + "?watch=1&timeoutSeconds=1&labelSelector=w",
            headers=TABLE,
            ignore=("object.columnDefinitions.description", "object.columnDefinitions.format"),
        ),
        get(CM + "?watch=1&timeoutSeconds=1&labelSelector=w", headers=META),
        get(CM + "?labelSelector=w", headers=META_LIST),
        get(CM + "/a", headers=META),
        get(CM + "/a", headers=TABLE, ignore=("columnDefinitions.description", "columnDefinitions.format")),
        get(CM + "?labelSelector=w&includeObject=None", headers=TABLE, ignore=("metadata",)),
        get(CM + "?labelSelector=w&includeObject=Object", headers=TABLE, ignore=("metadata",)),
        get(CM + "?labelSelector=w&includeObject=Other", headers=TABLE),
    ],
    "watch a deletion with finalizers": [
        post(CM, cm("a", finalizers=["a.b/c"])),
        delete(CM + "/a"),
        patch(CM + "/a", {"metadata": {"finalizers": None}}, MERGE),
        get(CM + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da&resourceVersion={rv:0}"),
    ],
    "watch a pod go": [
        post(PODS, pod(spec={"nodeName": "n1"})),
        delete(PODS + "/p?gracePeriodSeconds=5"),
        delete(PODS + "/p?gracePeriodSeconds=0"),
        get(PODS + "?watch=1&timeoutSeconds=1&resourceVersion={rv:0}", ignore=("object.spec",)),
    ],
    # --- status, generation, scale ----------------------------------------------------------------------
    "pod status": [
        post(PODS, {**pod(spec={"nodeName": "n1"}), "status": {"phase": "Running"}}),
        patch(
            PODS + "/p/status",
            {"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}},
            MERGE,
        ),
        patch(
            PODS + "/p/status",
            {"spec": {"nodeName": "n2"}, "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
            MERGE,
        ),
        patch(PODS + "/p", {"status": {"phase": "Failed"}}, MERGE),
        patch(PODS + "/p/status", {"status": {"phase": "Running"}}, MERGE),
        apply(
            PODS + "/p/status",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        ),
        apply(PODS + "/q/status", {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}}),
        get(PODS + "/p/status"),
        patch(
            PODS + "/p/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, STRATEGIC
        ),
    ],
    "pod rules": [
        post(PODS, {"metadata": {"name": "x"}, "spec": {}}),
        post(PODS, pod(spec={"containers": [{"name": "C!", "image": ""}]})),
        post(PODS, pod(spec={"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]})),
        post(PODS, pod(spec={"restartPolicy": "Sometimes"})),
        post(
            PODS,
            pod(
                spec={
                    "volumes": [{"name": "v"}],
                    "containers": [
                        {"name": "a", "image": "x", "volumeMounts": [{"name": "w", "mountPath": "/x"}]}
                    ],
                }
            ),
        ),
        post(PODS, pod()),
        patch(
            PODS + "/p", {"spec": {"hostNetwork": True}}, MERGE, ignore=("message", "details.causes.message")
        ),
        patch(PODS + "/p", {"spec": {"activeDeadlineSeconds": 10}}, MERGE),
        patch(
            PODS + "/p",
            {"spec": {"terminationGracePeriodSeconds": 10}},
            MERGE,
            ignore=("message", "details.causes.message"),
        ),
    ],
    "binding": [
        post(PODS, pod()),
        post(
            PODS + "/p/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p"},
                "target": {"kind": "Node", "name": "n1"},
            },
        ),
        get(PODS + "/p"),
        post(
            PODS + "/p/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p"},
                "target": {"kind": "Node", "name": "n2"},
            },
        ),
        post(
            PODS + "/q/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "q"},
                "target": {"kind": "Node", "name": "n2"},
            },
        ),
        post(
            PODS + "/p/binding",
            {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {}},
        ),
        delete(PODS + "/p?gracePeriodSeconds=0"),
    ],
    "logs and exec of pods that do not run": [
        post(PODS, pod(spec={"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]})),
        get(PODS + "/none/log"),
        get(PODS + "/p/log"),
        get(PODS + "/p/log?container=zz"),
        get(PODS + "/p/log?container=c"),
        get(PODS + "/p/log?container=c&tailLines=-3"),
        get(PODS + "/p/log?container=c&limitBytes=0"),
        get(PODS + "/p/log?container=c&sinceSeconds=3&sinceTime=2020-01-01T00:00:00Z"),
        get(PODS + "/none/exec?command=x"),
        get(PODS + "/p/exec?command=x&container=c&stdout=true"),
    ],
    "proxies that lead nowhere": [
        *(
            get(f"{path}/{name}/proxy{rest}")
            for path in (PODS, SVC)
            for name in ("none", "none:80", "none:web", "http:none:80", "ftp:none:21", "a:b:c:d", ":80")
            for rest in ("", "/", "/a/b")
        ),
        get("/api/v1/nodes/none-{ns}/proxy/"),
        *(Step(method, PODS + "/none/proxy/a") for method in ("PUT", "POST", "PATCH", "DELETE", "OPTIONS")),
        *(Step(method, SVC + "/none/proxy/a") for method in ("PUT", "POST", "PATCH", "DELETE", "OPTIONS")),
        post(PODS + "/none/proxy/a?dryRun=All", None),
        post(SVC, {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}}, quiet=True),
        *(get(f"{SVC}/{name}/proxy/") for name in ("s", "s:web", "s:80", "s:81", "https:s:", "s:+80")),
        post(ENDPOINTS, {"metadata": {"name": "s"}}, quiet=True),
        *(get(f"{SVC}/{name}/proxy/") for name in ("s", "s:web", "s:80", "s:81", "https:s:web")),
        put(
            ENDPOINTS + "/s",
            {
                "metadata": {"name": "s"},
                "subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"name": "web", "port": 80}]}],
            },
            quiet=True,
        ),
        *(get(f"{SVC}/{name}/proxy/") for name in ("s", "s:web", "s:80", "https:s:web", "s:web?x=1")),
        post(PODS, pod(), quiet=True),
        *(get(f"{PODS}/{name}/proxy/") for name in ("p", "p:80", "https:p:443")),
        patch(
            PODS + "/p/status",
            {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}},
            MERGE,
            quiet=True,
        ),
        get(PODS + "/p/proxy/"),
        patch(
            PODS + "/p/status",
            {"status": {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]}},
            MERGE,
            quiet=True,
        ),
        get(PODS + "/p:70000/proxy/"),
        get(PODS + "/p/proxy"),
        get(PODS + "/p/proxy?x=1&y"),
    ],
    "generation of a stateful set": [
        post(STS, stateful_set(), ignore=("status",)),
        patch(
            STS + "/s",
            {"spec": {"minReadySeconds": 5}},
            MERGE,
            ignore=(
                "status",
                "metadata.resourceVersion",
                "metadata.managedFields",
            ),
        ),
        patch(
            STS + "/s",
            {"metadata": {"labels": {"a": "b"}}},
            MERGE,
            ignore=(
                "status",
                "metadata.resourceVersion",
                "metadata.managedFields",
            ),
        ),
        patch(STS + "/s", {"spec": {"serviceName": "other"}}, MERGE),
        patch(STS + "/s", {"spec": {"selector": {"matchLabels": {"x": "y"}}}}, MERGE),
        get(STS + "/s/scale", ignore=("metadata.resourceVersion",)),
        put(
            STS + "/s/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "s"},
                "spec": {"replicas": 0},
            },
            ignore=("metadata.resourceVersion",),
        ),
        patch(STS + "/s/scale", {"spec": {"replicas": -1}}, MERGE),
        patch(STS + "/s/scale", {"spec": {"replicas": "x"}}, MERGE, ignore=MESSAGE),
        patch(STS + "/none/scale", {"spec": {"replicas": 1}}, MERGE),
        get(STS + "/none/scale"),
        patch(STS + "/s/status", {"status": {"observedGeneration": 1}}, MERGE, quiet=True),
    ],
    "a stateful set that is wrong": [
        post(STS, stateful_set(selector={"matchLabels": {"x": "y"}})),
        post(STS, stateful_set(replicas=-1)),
        post(STS, stateful_set(updateStrategy={"type": "Nothing"}), ignore=MESSAGE),
        post(STS, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}}),
        post(
            STS,
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "s"},
                "spec": {"replicas": "x"},
            },
        ),
    ],
    "a deployment's defaults": [
        post(
            DEPLOY,
            {
                "metadata": {"name": "d"},
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {
                            "containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 1}]}]
                        },
                    },
                },
            },
        ),
        patch(
            DEPLOY + "/d",
            {"spec": {"paused": True}},
            MERGE,
            ignore=("status", "metadata.resourceVersion", "metadata.managedFields", "metadata.annotations"),
        ),
        delete(DEPLOY + "/d"),
    ],
    # --- services ---------------------------------------------------------------------------------------
    "services": [
        post(SVC, service()),
        get(SVC + "/s"),
        put(SVC + "/s", service(spec={"ports": [{"port": 81}]}, resourceVersion="{rv:0}")),
        put(SVC + "/s", service(spec={"ports": [{"port": 82}]})),
        patch(
            SVC + "/s",
            {"spec": {"clusterIP": "10.96.3.3"}},
            MERGE,
            ignore=("message", "details.causes.message"),
        ),
        patch(SVC + "/s", {"spec": {"type": "NodePort"}}, MERGE),
        patch(SVC + "/s", {"spec": {"type": "ClusterIP"}}, MERGE),
        delete(SVC + "/s"),
        get(SVC + "/s"),
    ],
    "headless services": [
        post(SVC, service(spec={"clusterIP": "None"})),
        post(SVC, service("t", spec={"clusterIP": "None", "selector": None})),
        put(
            SVC + "/s",
            service(spec={"clusterIP": "None", "publishNotReadyAddresses": True}, resourceVersion="{rv:0}"),
        ),
    ],
    "services with addresses of their own": [
        post(SVC, service("a", spec={"clusterIP": "1.2.3.4"}), ignore=("message", "details.causes.message")),
        post(SVC, service("b", spec={"type": "ExternalName", "externalName": "x.example.com"})),
        post(SVC, service("c", spec={"type": "NodePort", "ports": [{"port": 1, "nodePort": 80}]})),
        post(SVC, service("d", spec={"ports": []})),
        post(SVC, service("e", spec={"clusterIP": "x"})),
        post(SVC, service("f")),
        post(SVC, service("g", spec={"clusterIP": "{ip:5}"}), ignore=("message", "details.causes.message")),
        post(SVC, service("h", spec={"type": "NodePort", "ports": [{"port": 1}]})),
        post(SVC, service("i", spec={"ports": [{"port": 1}, {"port": 2}]})),
        post(SVC, service("j", spec={"type": "LoadBalancer"})),
    ],
    # --- secrets and others -----------------------------------------------------------------------------
    "secrets": [
        post(SECRETS, {"metadata": {"name": "a"}, "stringData": {"x": "1"}, "data": {"y": "Mg=="}}),
        patch(SECRETS + "/a", {"stringData": {"x": "2"}}, MERGE),
        post(SECRETS, {"metadata": {"name": "b"}, "data": {"y": "not base64"}}),
        patch(SECRETS + "/a", {"type": "other"}, MERGE),
        post(SECRETS, {"metadata": {"name": "c"}, "type": "kubernetes.io/tls"}),
        get(SECRETS + "?fieldSelector=type%3DOpaque"),
    ],
    "leases": [
        post(
            LEASE,
            {
                "metadata": {"name": "l"},
                "spec": {
                    "holderIdentity": "me",
                    "leaseDurationSeconds": 15,
                    "renewTime": "2024-01-01T00:00:00.123456Z",
                },
            },
        ),
        put(LEASE + "/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "you"}}),
        put(
            LEASE + "/l",
            {"metadata": {"name": "l", "resourceVersion": "{rv:0}"}, "spec": {"holderIdentity": "you"}},
        ),
        patch(LEASE + "/l", {"spec": {"leaseDurationSeconds": 0}}, MERGE),
        patch(LEASE + "/l", {"spec": {"renewTime": "yesterday"}}, MERGE, ignore=MESSAGE),
        put(LEASE + "/none", {"metadata": {"name": "none"}, "spec": {}}),
    ],
    "disruption budgets": [
        post(
            PDB,
            {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
            ignore=("status",),
        ),
        post(PDB, {"metadata": {"name": "c"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}),
    ],
    "events of both groups": [
        post(
            NS + "/events",
            {
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p"},
                "reason": "Because",
                "message": "text",
                "type": "Normal",
                "source": {"component": "me"},
                "count": 1,
                "firstTimestamp": "2024-01-01T00:00:00Z",
                "lastTimestamp": "2024-01-01T00:00:00Z",
            },
        ),
        get("/apis/events.k8s.io/v1/namespaces/{ns}/events/e"),
        post(
            "/apis/events.k8s.io/v1/namespaces/{ns}/events",
            {
                "metadata": {"name": "f"},
                "eventTime": "2024-01-01T00:00:00.000000Z",
                "regarding": {"kind": "Pod", "namespace": "{ns}", "name": "p"},
                "reason": "Because",
                "note": "text",
                "type": "Warning",
                "action": "Doing",
                "reportingController": "me.example.com/x",
                "reportingInstance": "me-1",
            },
        ),
        get(NS + "/events/f"),
        get(NS + "/events?fieldSelector=involvedObject.name%3Dp,type%3DWarning"),
        get(NS + "/events?fieldSelector=reason%3DBecause,involvedObject.kind%3DPod"),
        get("/apis/events.k8s.io/v1/namespaces/{ns}/events"),
    ],
    "namespaces": [
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-x", "labels": {"a": "b"}}}),
        get("/api/v1/namespaces/{ns}-x"),
        patch("/api/v1/namespaces/{ns}-x", {"metadata": {"labels": {"a": "c"}}}, MERGE),
        patch("/api/v1/namespaces/{ns}-x", {"spec": {"finalizers": []}}, MERGE),
        post("/api/v1/namespaces", {"metadata": {"name": "Bad_Name"}}),
    ],
    "token requests": [
        post(NS + "/serviceaccounts", {"metadata": {"name": "sa"}}),
        post(
            NS + "/serviceaccounts/sa/token",
            {"spec": {"expirationSeconds": 600}},
            ignore=("status.token", "metadata.managedFields"),
        ),
        post(NS + "/serviceaccounts/sa/token", {"spec": {"expirationSeconds": 1}}),
        post(NS + "/serviceaccounts/none/token", {"spec": {}}),
    ],
    "rights": [
        post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}},
            ignore=("status.reason", "metadata"),
        ),
    ],
    # --- custom resources -------------------------------------------------------------------------------
    "a status that a create does not take is read all the same": with_widgets(
        post(WIDGETS + "?fieldValidation=Strict", {**widget("a"), "status": {"nope": 1}}),
        post(WIDGETS + "?fieldValidation=Warn", {**widget("b"), "status": {"nope": 1}}),
        post(WIDGETS + "?fieldValidation=Strict", {**widget("c"), "status": {"phase": 1}}),
        post(PODS + "?fieldValidation=Strict", {**pod("d"), "status": {"nope": 1}}),
        post(PODS, {**pod("e"), "status": {"phase": 1}}, ignore=MESSAGE),
    ),
    "custom resources": with_widgets(
        post(WIDGETS, widget(spec={"name": "abc"})),
        post(WIDGETS, widget(spec={"name": "abc"})),
        post(WIDGETS, widget("x", spec={"name": "ABC", "size": 11}), ignore=("message",)),
        post(WIDGETS, widget("y", spec={"size": "three"}), ignore=("message", "details.causes")),
        post(WIDGETS, widget("z", spec={"nope": 1, "free": {"any": [1, 2]}})),
        post(WIDGETS + "?fieldValidation=Strict", widget("q", spec={"nope": 1})),
        post(WIDGETS, {"metadata": {"name": "nokind"}}),
        post(WIDGETS, {"kind": "Other", "apiVersion": "{ns}.example.com/v1", "metadata": {"name": "a"}}),
        post(WIDGETS, {"kind": "Widget", "apiVersion": "{ns}.example.com/v2", "metadata": {"name": "a"}}),
        put(WIDGETS + "/w", widget(spec={"name": "def"})),
        put(WIDGETS + "/w", widget(spec={"name": "def"}, resourceVersion="{rv:2}")),
        patch(WIDGETS + "/w", {"spec": {"name": "ghi"}}, MERGE),
        patch(WIDGETS + "/w", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        patch(WIDGETS + "/w", {"status": {"phase": "Up"}}, MERGE),
        patch(WIDGETS + "/w/status", {"status": {"phase": "Up"}, "spec": {"name": "zzz"}}, MERGE),
        patch(WIDGETS + "/w/status", {"status": {"phase": "Up"}}, MERGE),
        patch(WIDGETS + "/w/status", {"metadata": {"labels": {"c": "d"}}}, MERGE),
        patch(WIDGETS + "/w", {"spec": {"name": "x"}}, STRATEGIC),
        get(WIDGETS + "/w/scale"),
        patch(WIDGETS + "/w/scale", {"spec": {"replicas": 5}}, MERGE),
        patch(WIDGETS + "/w/scale", {"spec": {"replicas": 50}}, MERGE),
        get(WIDGETS, ignore=("items.metadata.managedFields",)),
        get(
            WIDGETS,
            headers=TABLE,
            ignore=("rows.object", "columnDefinitions.description", "metadata.resourceVersion"),
        ),
        get(WIDGETS + "?fieldSelector=spec.name%3Dx"),
        delete(WIDGETS + "/w"),
        get(WIDGETS + "/w"),
    ),
    "apply custom resources": with_widgets(
        apply(WIDGETS + "/w", widget(spec={"name": "abc", "tags": ["a", "b"]})),
        apply(WIDGETS + "/w", widget(spec={"name": "abc", "tags": ["a", "b"]})),
        apply(WIDGETS + "/w", widget(spec={"name": "abc", "tags": ["c"]})),
        apply(WIDGETS + "/w", widget(spec={"size": 4}), "other"),
        apply(WIDGETS + "/w", widget(spec={"name": "def"}), "other"),
        apply(WIDGETS + "/w/status", {**widget(), "status": {"phase": "Up"}}, "status"),
        apply(WIDGETS + "/w", widget(spec={"nope": "x"})),
        apply(WIDGETS + "/w?fieldValidation=Strict", widget(spec={"nope": "x"})),
        apply(WIDGETS + "/w", widget(spec={"size": 99})),
    ),
    "finalizers of custom resources": with_widgets(
        post(WIDGETS, widget(finalizers=["a.b/c"])),
        delete(WIDGETS + "/w"),
        patch(WIDGETS + "/w", {"spec": {"name": "x"}}, MERGE),
        patch(WIDGETS + "/w", {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}, MERGE),
        patch(WIDGETS + "/w", {"metadata": {"finalizers": None}}, MERGE),
        get(WIDGETS + "/w"),
    ),
    "discovery of custom resources": with_widgets(
        get("/apis/{ns}.example.com", quiet=True),
        get("/apis/{ns}.example.com/v1"),
    ),
    "definitions that are wrong": [
        post(CRDS, {**definition(), "metadata": {"name": "other.{ns}.example.com"}}, ignore=("message",)),
        post(CRDS, definition(schema=None), ignore=("message",)),
    ],
    # --- discovery --------------------------------------------------------------------------------------
    "discovery": [
        get("/apis/apps/v1"),
        get("/apis/apps"),
        get("/apis/coordination.k8s.io/v1"),
        get("/apis/policy/v1"),
        get("/apis/events.k8s.io/v1"),
        get("/apis/nothing.example.com"),
    ],
    # --- tables -----------------------------------------------------------------------------------------
    "tables": [
        post(PODS, pod(labels={"t": "1"})),
        get(
            PODS + "?labelSelector=t",
            headers=TABLE,
            ignore=("rows.object", "columnDefinitions.description", "columnDefinitions.format"),
        ),
        post(SVC, service(labels={"t": "1"})),
        get(
            SVC + "?labelSelector=t&includeObject=None",
            headers=TABLE,
            ignore=("columnDefinitions.description", "columnDefinitions.format", "rows.cells"),
        ),
        post(SECRETS, {"metadata": {"name": "a"}, "stringData": {"x": "1"}}, quiet=True),
        get(
            SECRETS,
            headers=TABLE,
            ignore=("rows.object", "columnDefinitions.description", "columnDefinitions.format"),
        ),
        *(
            get(
                path,
                headers=TABLE,
                ignore=("rows", "columnDefinitions.description", "columnDefinitions.format", "metadata"),
            )
            for path in (
                STS,
                DEPLOY,
                LEASE,
                PDB,
                CRDS,
                "/api/v1/nodes",
                "/api/v1/persistentvolumes",
                NS + "/persistentvolumeclaims",
                "/api/v1/namespaces",
                NS + "/events",
                NS + "/endpoints",
                NS + "/serviceaccounts",
                NS + "/resourcequotas",
                NS + "/limitranges",
                NS + "/replicationcontrollers",
                NS + "/podtemplates",
                "/apis/apps/v1/namespaces/{ns}/replicasets",
                "/apis/apps/v1/namespaces/{ns}/daemonsets",
                "/apis/apps/v1/namespaces/{ns}/controllerrevisions",
                "/apis/batch/v1/namespaces/{ns}/jobs",
                "/apis/batch/v1/namespaces/{ns}/cronjobs",
                "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
                "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
                "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
                "/apis/storage.k8s.io/v1/storageclasses",
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            )
        ),
    ],
}

SCENARIOS.update(lives())
SCENARIOS.update(ACCESS)
SCENARIOS.update(POLICIES)
SCENARIOS.update(MUTATIONS)
SCENARIOS.update(POD_SECURITY)
