"""The requests of the engine's conformance test, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["SCENARIOS", "WIDGETS_CRD", "Request", "make", "request"]

JsonObject = dict[str, Any]

_PLURALS = {"Endpoints": "endpoints", "NetworkPolicy": "networkpolicies", "StorageClass": "storageclasses"}
_CLUSTER = ("PersistentVolume", "StorageClass", "PriorityClass", "ClusterRole", "Namespace")


@dataclass(frozen=True)
class Request:
    """One request: a verb (create, update, json, merge, strategic, apply) and the body."""

    verb: str
    kind: str
    body: Any
    name: str = "x"
    api_version: str = "v1"
    manager: str = "me"
    subresource: str = ""
    force: bool = False
    strict: bool = True
    namespace: str = ""

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def custom(self) -> bool:
        return self.kind == "Widget"

    @property
    def namespaced(self) -> bool:
        return self.kind not in _CLUSTER

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def collection(self) -> str:
        root = f"/apis/{self.api_version}" if self.group else "/api/v1"
        place = f"/namespaces/{self.namespace}" if self.namespaced else ""
        return f"{root}{place}/{_PLURALS.get(self.kind, self.kind.lower() + 's')}"

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}" + (f"/{self.subresource}" if self.subresource else "")

    def within(self, namespace: str) -> Request:
        """Return the request for a namespace, which stands as `NS` in bodies."""
        body = json.loads(
            json.dumps(self.body).replace('"NS"', f'"{namespace}"').replace('\\"NS\\"', f'\\"{namespace}\\"')
        )
        return replace(self, namespace=namespace, body=body)


def make(kind: str, api_version: str = "v1", name: str = "x", **parts: Any) -> JsonObject:
    """Return an object in the namespace NS."""
    metadata = {"name": name, "namespace": "NS", **parts.pop("metadata", {})}
    if kind in _CLUSTER:
        metadata.pop("namespace")
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def request(verb: str, body: Any, **options: Any) -> Request:
    """Build a request from a whole object."""
    return Request(
        verb,
        body["kind"],
        body,
        name=body["metadata"].get("name", "x"),
        api_version=body["apiVersion"],
        **options,
    )


def _patch(verb: str, kind: str, body: Any, api_version: str = "v1", **options: Any) -> Request:
    return Request(verb, kind, body, api_version=api_version, **options)


def _with(obj: JsonObject, path: str, value: Any) -> JsonObject:
    """Return an object with one field set (None: taken out), by a dotted path with list indices."""
    copied: JsonObject = json.loads(json.dumps(obj))
    node: Any = copied
    keys = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in keys[:-1]:
        node = node[key] if isinstance(key, int) else node.setdefault(key, {})
    if value is None:
        node.pop(keys[-1])
    else:
        node[keys[-1]] = value
    return copied


APPS = "apps/v1"
CONTAINER = {
    "name": "c",
    "image": "nginx",
    "ports": [{"containerPort": 80}],
    "env": [{"name": "A", "value": "1"}],
}
POD = make("Pod", metadata={"labels": {"a": "b"}}, spec={"containers": [CONTAINER]})
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
SELECTED: JsonObject = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
DEPLOYMENT = make("Deployment", APPS, spec=SELECTED)
CLAIM: JsonObject = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
STATEFUL = make(
    "StatefulSet", APPS,
    spec={**SELECTED, "serviceName": "s", "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": CLAIM}]},
)  # fmt: skip
SERVICE = make("Service", spec={"selector": {"a": "b"}, "ports": [{"port": 80}]})
CONFIG = make("ConfigMap", data={"a": "1", "b": "2"})
_LAST_APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(CONFIG)}
_CLIENT_SIDE = make("ConfigMap", metadata={"annotations": _LAST_APPLIED}, data=CONFIG["data"])
RICH_POD = make(
    "Pod",
    spec={
        "restartPolicy": "OnFailure",
        "initContainers": [{"name": "i", "image": "busybox:1.36", "command": ["true"]}],
        "containers": [
            {
                "name": "c",
                "image": "registry.example.com:5000/a/b@sha256:" + "0" * 64,
                "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}, "requests": {"cpu": "250m"}},
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 5},
                "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"name": "e", "mountPath": "/e"}, {"name": "s", "mountPath": "/s"}],
            },
            {"name": "d", "image": "nginx:latest", "stdin": False, "args": [], "workingDir": ""},
        ],
        "volumes": [
            {"name": "e", "emptyDir": {"sizeLimit": "1000M"}},
            {"name": "s", "secret": {"secretName": "x"}},
            {"name": "m", "configMap": {"name": "x", "items": [{"key": "a", "path": "b"}]}},
            {"name": "h", "hostPath": {"path": "/h"}},
            {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
    },
)

WIDGETS_CRD: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.engine.mooring.dev"},
    "spec": {
        "group": "engine.mooring.dev",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "x-kubernetes-validations": [
                                    {"rule": "self.size <= self.limit", "message": "size is above limit"},
                                    {"rule": "!has(oldSelf.fixed) || self.fixed == oldSelf.fixed"},
                                ],
                                "properties": {
                                    "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9},
                                    "limit": {"type": "integer", "default": 5},
                                    "ratio": {"type": "number"},
                                    "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                                    "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
                                    "fixed": {"type": "string"},
                                    "when": {"type": "string", "format": "date-time"},
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "any": {"x-kubernetes-preserve-unknown-fields": True},
                                    "tags": {
                                        "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}
                                    },
                                    "plain": {"type": "array", "maxItems": 2, "items": {"type": "integer"}},
                                    "nodes": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name", "zone"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "zone": {"type": "string", "default": "z"},
                                                "weight": {"type": "integer"},
                                            },
                                        },
                                    },
                                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                                    "atom": {
                                        "type": "object", "x-kubernetes-map-type": "atomic",
                                        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                                    },
                                    "deep": {
                                        "type": "object",
                                        "default": {},
                                        "properties": {"on": {"type": "boolean", "default": True}},
                                    },
                                    "maybe": {"type": "string", "nullable": True},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {"phase": {"type": "string"}, "ready": {"type": "integer"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}  # fmt: skip
_WIDGET_VERSION = "engine.mooring.dev/v1"


def _widget(**spec: Any) -> JsonObject:
    return make("Widget", _WIDGET_VERSION, spec={"size": 3, **spec})


def _refused(obj: JsonObject, **changes: Any) -> list[Request]:
    """Return creates that must fail: the object with each of the changes (`a__b` is the path a.b)."""
    return [request("create", _with(obj, path.replace("__", "."), value)) for path, value in changes.items()]


SCENARIOS: dict[str, list[Request]] = {
    # --- defaults and canonical form
    "a pod's defaults": [request("create", POD)],
    "a rich pod's defaults": [request("create", RICH_POD)],
    "a deployment's defaults": [request("create", DEPLOYMENT)],
    "a stateful set's defaults": [request("create", STATEFUL)],
    "a replica set's defaults": [request("create", make("ReplicaSet", APPS, spec=SELECTED))],
    "a daemon set's defaults": [request("create", make("DaemonSet", APPS, spec=SELECTED))],
    "a job's defaults": [
        request(
            "create",
            make(
                "Job",
                "batch/v1",
                spec={"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}},
            ),
        )
    ],
    "a cron job's defaults": [
        request(
            "create",
            make(
                "CronJob",
                "batch/v1",
                spec={
                    "schedule": "* * * * *",
                    "jobTemplate": {
                        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}
                    },
                },
            ),
        )
    ],
    "a service's defaults": [request("create", SERVICE)],
    "a claim's defaults": [request("create", make("PersistentVolumeClaim", spec=CLAIM))],
    "a secret's defaults": [request("create", make("Secret", data={"a": "YQ=="}))],
    "a budget's defaults": [
        request("create", make("PodDisruptionBudget", "policy/v1", spec={"minAvailable": 1, "selector": {}}))
    ],
    "an endpoint slice's defaults": [
        request(
            "create",
            make(
                "EndpointSlice",
                "discovery.k8s.io/v1",
                addressType="IPv4",
                endpoints=[{"addresses": ["10.0.0.1"]}],
                ports=[{"port": 80}],
            ),
        )
    ],
    "a lease": [
        request(
            "create",
            make(
                "Lease",
                "coordination.k8s.io/v1",
                spec={
                    "holderIdentity": "a",
                    "renewTime": "2024-01-01T01:00:00.500000+01:00",
                    "leaseDurationSeconds": 5,
                },
            ),
        )
    ],
    "a lease with a time in seconds": [
        request(
            "create",
            make("Lease", "coordination.k8s.io/v1", spec={"renewTime": "2024-01-01T01:00:00.5+01:00"}),
        ),
    ],
    "roles": [
        request(
            "create",
            make(
                "Role",
                "rbac.authorization.k8s.io/v1",
                rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            ),
        ),
        request(
            "create",
            make(
                "RoleBinding",
                "rbac.authorization.k8s.io/v1",
                roleRef={"kind": "Role", "name": "x"},
                subjects=[
                    {"kind": "User", "name": "u"},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "d"},
                ],
            ),
        ),
    ],
    "quantities": [
        request(
            "create",
            _with(
                _with(POD, "spec.containers.0.resources", {"limits": {"cpu": quantity}}),
                "metadata.name",
                f"q{n}",
            ),
        )
        for n, quantity in enumerate(
            (
                "0.0001",
                "1.0000005",
                "0.1n",
                "1e-9",
                "1.1Ki",
                "+2",
                "1e3",
                ".5",
                "5.",
                "100000",
                "1500m",
                "1.500",
                "007",
                "+3Gi",
                "8Gi",
                "1024Ki",
                "0.500",
                "2000m",
                "0.5Gi",
            )
        )
    ],
    "empty optional values are dropped": [
        request(
            "create", make("ConfigMap", metadata={"labels": {}, "annotations": {"a": ""}}, data={"a": ""})
        ),
    ],
    # --- decoding
    "values of wrong types": [
        *_refused(
            DEPLOYMENT,
            spec__replicas="3",
            spec__template__spec__containers="x",
            spec__template__spec__containers__0__image=5,
            metadata__labels={"a": 1},
            spec__paused="yes",
            spec__template__spec__nodeSelector=["a"],
            metadata__creationTimestamp="yesterday",
        ),
        *_refused(POD, spec__containers__0__resources={"limits": {"cpu": "much"}}),
        *_refused(make("Secret"), data={"a": "not base64!"}),
    ],
    "unknown fields": [
        *_refused(POD, spec__foo=1, metadata__bar=2),
        *_refused(DEPLOYMENT, spec__template__spec__containers__0__imagee="x"),
        request("create", _with(CONFIG, "extra", 1), strict=False),
        _patch("merge", "ConfigMap", {"more": 1}),
        _patch("strategic", "ConfigMap", {"more": 1}),
    ],
    # --- patches
    "json patches": [
        request("create", CONFIG),
        _patch("json", "ConfigMap", [{"op": "add", "path": "/data/c", "value": "3"}]),
        _patch("json", "ConfigMap", [{"op": "remove", "path": "/data/zz"}]),
        _patch("json", "ConfigMap", [{"op": "test", "path": "/data/a", "value": "9"}]),
        _patch("json", "ConfigMap", [{"op": "replace", "path": "/data/new", "value": "9"}]),
        _patch("json", "ConfigMap", [{"op": "move", "from": "/data/a", "path": "/data/moved"}]),
        _patch("json", "ConfigMap", [{"op": "copy", "from": "/data/b", "path": "/data/x~1y"}]),
        _patch("json", "ConfigMap", [{"op": "add", "path": "/data/a/b", "value": 1}]),
        _patch("json", "ConfigMap", [{"op": "nope", "path": "/data/a"}]),
    ],
    "merge patches": [
        request("create", CONFIG),
        _patch("merge", "ConfigMap", {"data": {"a": None, "c": "3"}, "metadata": {"labels": {"x": "y"}}}),
        _patch("merge", "ConfigMap", {"data": None}),
        _patch("merge", "ConfigMap", {"data": "x"}),
    ],
    "strategic patches of a deployment": [
        request("create", DEPLOYMENT),
        _patch(
            "strategic",
            "Deployment",
            {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "y"}]}}}},
            APPS,
        ),
        _patch(
            "strategic",
            "Deployment",
            {
                "spec": {
                    "template": {
                        "spec": {
                            "$setElementOrder/containers": [{"name": "c"}, {"name": "d"}],
                            "containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}],
                        }
                    }
                }
            },
            APPS,
            manager="other",
        ),
        _patch(
            "strategic",
            "Deployment",
            {"spec": {"template": {"spec": {"containers": [{"name": "d", "$patch": "delete"}]}}}},
            APPS,
        ),
        _patch(
            "strategic",
            "Deployment",
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
            APPS,
        ),
        _patch(
            "strategic",
            "Deployment",
            {"spec": {"template": {"spec": {"containers": [{"image": "y"}]}}}},
            APPS,
        ),
        _patch("strategic", "Deployment", {"spec": {"replicas": "3"}}, APPS),
        _patch("strategic", "Deployment", {"spec": {"replicas": 3.5}}, APPS),
        _patch("strategic", "Deployment", {"spec": {"template": {"spec": {"containers": "x"}}}}, APPS),
        _patch("strategic", "Deployment", {"metadata": {"labels": {"a": 1}}}, APPS),
        _patch("strategic", "Deployment", {"metadata": {"finalizers": ["a/b", "c/d"]}}, APPS),
        _patch(
            "strategic", "Deployment", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}, APPS
        ),
    ],
    # --- managedFields and apply
    "an update owns what it changes": [
        request("create", CONFIG),
        request("update", _with(CONFIG, "data.a", "5"), manager="other"),
        request("update", _with(CONFIG, "data.a", "5"), manager="third"),
        request("update", _with(CONFIG, "data.b", None), manager="third"),
    ],
    "apply creates, changes, gives up": [
        request("apply", CONFIG),
        request("apply", CONFIG),
        request("apply", _with(CONFIG, "data.c", "3")),
        request("apply", _with(CONFIG, "data.a", None)),
        request("apply", make("ConfigMap")),
    ],
    "apply conflicts and force": [
        request("apply", CONFIG),
        request("apply", CONFIG, manager="same"),
        request("apply", _with(CONFIG, "data.a", "9"), manager="two"),
        request("apply", _with(_with(CONFIG, "data.a", "9"), "data.b", "8"), manager="two"),
        request("apply", _with(CONFIG, "data.a", "9"), manager="two", force=True),
        _patch("merge", "ConfigMap", {"data": {"b": "7"}}, manager="patcher"),
        request("apply", CONFIG),
        request("apply", CONFIG, force=True),
    ],
    "apply over a created object": [
        request("create", DEPLOYMENT),
        request("apply", _with(DEPLOYMENT, "spec.replicas", 1), manager="a"),
        request("apply", _with(DEPLOYMENT, "spec.replicas", 2), manager="a"),
        request("apply", _with(DEPLOYMENT, "spec.replicas", 2), manager="a", force=True),
        request("apply", DEPLOYMENT, manager="a"),
    ],
    "apply merges lists by key": [
        request("apply", DEPLOYMENT),
        request(
            "apply",
            _with(
                DEPLOYMENT,
                "spec.template.spec.containers",
                [{"name": "d", "image": "y"}, {"name": "e", "image": "z"}],
            ),
            manager="b",
        ),
        request(
            "apply",
            _with(DEPLOYMENT, "spec.template.spec.containers", [{"name": "e", "image": "z"}]),
            manager="b",
        ),
        request(
            "apply",
            _with(
                DEPLOYMENT,
                "spec.template.spec.containers.0.ports",
                [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
            ),
        ),
        request(
            "apply",
            _with(
                DEPLOYMENT,
                "spec.template.spec.containers.0.env",
                [{"name": "Z"}, {"name": "A", "value": "1"}],
            ),
        ),
        request("apply", _with(DEPLOYMENT, "spec.template.spec.containers.0.ports", [])),
    ],
    "from client-side to server-side apply with kubectl": [
        request("create", _CLIENT_SIDE, manager="kubectl-client-side-apply"),
        request("apply", _with(CONFIG, "data.a", "2"), manager="kubectl"),
        request("apply", _with(CONFIG, "data.a", "2"), manager="kubectl"),
        _patch("merge", "ConfigMap", {"data": {"b": "7"}}, manager="patcher"),
        request("apply", CONFIG, manager="kubectl"),
    ],
    "managers can be given up and given back": [
        request("apply", CONFIG),
        _patch("merge", "ConfigMap", {"metadata": {"managedFields": [{}]}}),
        _patch("merge", "ConfigMap", {"data": {"a": "5"}}),
        request("apply", CONFIG, manager="later"),
        request("apply", CONFIG, manager="later", force=True),
    ],
    "more than ten updaters": [
        request("create", CONFIG, manager="a"),  # the oldest by time and by name
        *(_patch("merge", "ConfigMap", {"data": {f"k{n}": "v"}}, manager=f"m{n:02}") for n in range(12)),
    ],
    "what is given up whole is gone": [
        request(
            "apply", _with(DEPLOYMENT, "spec.template.spec.containers.0.securityContext", {"runAsUser": 1})
        ),
        request("apply", DEPLOYMENT),
        request("apply", _widget(tags=["a"], labels={"x": "1"}, nodes=[{"name": "a"}])),
        request("apply", _widget(tags=[])),
        request("apply", _widget(labels={})),
        request("apply", _widget()),
    ],
    "bad configurations": [
        request("apply", _with(DEPLOYMENT, "spec.foo", 1)),
        request("apply", _with(DEPLOYMENT, "spec.replicas", "x")),
        request("apply", _with(DEPLOYMENT, "spec.template.spec.containers", [{"image": "y"}])),
        request("apply", _with(DEPLOYMENT, "spec.template.spec.containers", [CONTAINER, CONTAINER])),
        request("apply", _with(DEPLOYMENT, "metadata.managedFields", [])),
    ],
    "apply a stateful set": [
        request("apply", STATEFUL),
        request("apply", STATEFUL),
        request("apply", _with(STATEFUL, "spec.replicas", 3), manager="scaler"),
        request("apply", _with(STATEFUL, "spec.serviceName", "other"), force=True),
    ],
    "quantities and no change": [
        request("apply", RICH_POD),
        request("apply", RICH_POD),
    ],
    "status by update, patch and apply": [
        request("create", _widget()),
        _patch(
            "merge", "Widget", {"status": {"phase": "Up"}}, _WIDGET_VERSION, subresource="status", manager="s"
        ),
        request("apply", {**_widget(), "status": {"ready": 1}}, subresource="status", manager="t"),
        _patch(
            "merge", "Widget", {"status": {"phase": "No"}, "spec": {"size": 4}}, _WIDGET_VERSION, manager="u"
        ),
    ],
    # --- custom resources
    "a widget's defaults": [
        request("create", _widget(nodes=[{"name": "a"}], maybe=None, any={"x": [1, {"y": None}]}, ratio=2)),
    ],
    "a widget applied": [
        request(
            "apply",
            _widget(tags=["a", "b"], nodes=[{"name": "a"}], labels={"x": "1"}, atom={"a": "1"}, plain=[1]),
        ),
        request(
            "apply", _widget(tags=["c"], nodes=[{"name": "b", "weight": 2}], labels={"y": "1"}), manager="two"
        ),
        request("apply", _widget(atom={"b": "1"}, plain=[1, 2]), manager="two"),
        request("apply", _widget(tags=["b"], nodes=[{"name": "a", "weight": 1}])),
        request("apply", _widget(any={"x": {"y": 1}})),
        request("apply", _widget(any={"x": {"z": [1]}})),
        request("apply", _widget(deep={"on": False})),
        request("apply", _widget()),
    ],
    "a value changes its type": [
        request("create", _widget(any={"x": {"y": 1}})),
        request("update", _widget(any=[1])),
        request("update", _widget(any={"x": {"z": [1]}}), manager="two"),
        request("update", _widget(any="text"), manager="three"),
        request("apply", _widget(any={"x": 1}), manager="four", force=True),
        request("update", _widget(any=None), manager="two"),
    ],
    "bad widgets": [
        *_refused(
            _widget(),
            spec__size="three",
            spec__mode="c",
            spec__name="A",
            spec__ratio="x",
            spec__when="soon",
            spec__plain=[1, 2, 3],
            spec__tags=["a", "a"],
            spec__nodes=[{"name": "a"}, {"name": "a", "zone": "z"}],
            spec__port=True,
            spec__labels={"a": 1},
            spec__foo=1,
            spec__deep={"off": 1, "on": 1},
        ),
        *(
            request("create", _widget(**{key: value}))
            for key, value in (
                ("size", 0),
                ("size", 10),
                ("size", True),
                ("size", 7),
                ("size", 2**40),
                ("size", 1.5),
                ("name", "toolong"),
                ("name", "a"),
            )
        ),
        request("create", make("Widget", _WIDGET_VERSION)),
        request("create", make("Widget", _WIDGET_VERSION, spec={})),
    ],
    "a widget's transitions": [
        request("create", _widget(fixed="a")),
        _patch("merge", "Widget", {"spec": {"fixed": "b"}}, _WIDGET_VERSION),
        _patch("merge", "Widget", {"spec": {"size": "x"}}, _WIDGET_VERSION),
        _patch("merge", "Widget", {"spec": {"zzz": 1}}, _WIDGET_VERSION),
        _patch("merge", "Widget", {"spec": {"mode": None}}, _WIDGET_VERSION),
    ],
    # --- rules of built-in kinds
    "bad metadata": [
        *_refused(
            CONFIG,
            metadata__labels={"a b": "c", "d": "e f"},
            metadata__annotations={"A B": ""},
            metadata__finalizers=["a b"],
            metadata__ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": ""}],
        ),
        request("create", make("ConfigMap", name="A_b")),
        request("create", make("Service", name="a.b", spec={"ports": [{"port": 80}]})),
        request("create", make("StatefulSet", APPS, name="a.b", spec=STATEFUL["spec"])),
    ],
    "bad pods": [
        *_refused(
            POD,
            spec__containers=[],
            spec__containers__0__name="A",
            spec__containers__0__image="",
            spec__containers__0__ports=[{"containerPort": 0}, {"containerPort": 70000, "name": "UPPER"}],
            spec__containers__0__env=[{"name": ""}, {"name": "A=B"}],
            spec__containers__0__volumeMounts=[{"name": "no", "mountPath": "/x"}],
            spec__containers__0__livenessProbe={},
            spec__containers__0__imagePullPolicy="Sometimes",
            spec__containers__0__resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            spec__restartPolicy="Maybe",
            spec__dnsPolicy="Maybe",
            spec__volumes=[{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}],
            spec__hostname="A",
            spec__activeDeadlineSeconds=0,
            spec__tolerations=[{"operator": "Maybe"}],
        ),
        request("create", _with(POD, "spec.containers", [CONTAINER, CONTAINER])),
    ],
    "bad deployments": [
        *_refused(
            DEPLOYMENT,
            spec__selector=None,
            spec__replicas=-1,
            spec__template__metadata__labels={"other": "x"},
            spec__strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
            spec__template__spec__restartPolicy="Never",
            spec__progressDeadlineSeconds=0,
        ),
        request("create", _with(DEPLOYMENT, "spec.selector", {"matchLabels": {}})),
        request("create", _with(DEPLOYMENT, "spec.strategy", {"type": "Sideways"})),
        request(
            "create",
            _with(DEPLOYMENT, "spec.strategy", {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
        ),
    ],
    "a deployment's selector is immutable": [
        request("create", DEPLOYMENT),
        _patch(
            "merge",
            "Deployment",
            {
                "spec": {
                    "selector": {"matchLabels": {"c": "d"}},
                    "template": {"metadata": {"labels": {"c": "d"}}},
                }
            },
            APPS,
        ),
    ],
    "bad stateful sets": [
        *_refused(
            STATEFUL,
            spec__podManagementPolicy="Chaos",
            spec__updateStrategy={"type": "OnDelete", "rollingUpdate": {"partition": 1}},
            spec__serviceName="A_b",
            spec__replicas=-2,
        ),
        request("create", _with(STATEFUL, "spec.volumeClaimTemplates.0.spec.accessModes", None)),
    ],
    "what a stateful set may change": [
        request("create", STATEFUL),
        _patch("merge", "StatefulSet", {"spec": {"replicas": 4}}, APPS),
        _patch("merge", "StatefulSet", {"spec": {"podManagementPolicy": "Parallel"}}, APPS),
        _patch("merge", "StatefulSet", {"spec": {"serviceName": "other"}}, APPS),
        _patch("merge", "StatefulSet", {"spec": {"updateStrategy": {"type": "OnDelete"}}}, APPS),
        _patch(
            "merge",
            "StatefulSet",
            {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}},
            APPS,
        ),
    ],
    "bad services": [
        *_refused(
            SERVICE,
            spec__ports=[],
            spec__type="Sideways",
            spec__sessionAffinity="Never",
            spec__selector={"a b": "c"},
        ),
        request("create", _with(SERVICE, "spec.ports", [{"port": 0}])),
        request("create", _with(SERVICE, "spec.ports", [{"port": 1}, {"port": 2}])),
        request("create", _with(SERVICE, "spec.ports", [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}])),
        request("create", _with(SERVICE, "spec", {"type": "ExternalName"})),
    ],
    "immutable configuration": [
        request("create", _with(CONFIG, "immutable", True)),
        _patch("merge", "ConfigMap", {"data": {"a": "9"}}),
        _patch("merge", "ConfigMap", {"immutable": None}),
        _patch("merge", "ConfigMap", {"metadata": {"labels": {"still": "possible"}}}),
    ],
    "bad configuration": [
        *_refused(CONFIG, data={"a b": "c"}),
        request("create", make("Secret", data={"a b": "YQ=="})),
        request("create", make("Secret", type="kubernetes.io/tls", data={})),
        request("create", make("Secret", name="y", data={"a": "YQ=="})),
        _patch("merge", "Secret", {"type": "other"}, name="y"),
    ],
    "bad claims": [
        request("create", make("PersistentVolumeClaim", spec={})),
        request("create", make("PersistentVolumeClaim", spec={**CLAIM, "accessModes": ["Sometimes"]})),
        request("create", make("PersistentVolumeClaim", spec={**CLAIM, "volumeMode": "Sideways"})),
    ],
    "bad budgets and leases": [
        request(
            "create",
            make("PodDisruptionBudget", "policy/v1", spec={"minAvailable": 1, "maxUnavailable": 1}),
        ),
        request("create", make("PodDisruptionBudget", "policy/v1", spec={"minAvailable": "150%"})),
        request("create", make("PodDisruptionBudget", "policy/v1", spec={"minAvailable": "x"})),
        request("create", make("Lease", "coordination.k8s.io/v1", spec={"leaseDurationSeconds": 0})),
    ],
    "a pod's spec is fixed": [
        request("create", POD),
        _patch("strategic", "Pod", {"spec": {"containers": [{"name": "c", "image": "other"}]}}),
        _patch("merge", "Pod", {"spec": {"activeDeadlineSeconds": 5}}),
        _patch("merge", "Pod", {"spec": {"activeDeadlineSeconds": 9}}),
    ],
    "a role binding's role is fixed": [
        request(
            "create",
            make(
                "RoleBinding",
                "rbac.authorization.k8s.io/v1",
                roleRef={"kind": "Role", "name": "x", "apiGroup": "rbac.authorization.k8s.io"},
            ),
        ),
        _patch("merge", "RoleBinding", {"roleRef": {"name": "y"}}, "rbac.authorization.k8s.io/v1"),
    ],
}
