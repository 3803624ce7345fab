"""Scenarios about what admission fills in, bounds and counts: limits, quotas, priorities, protection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.comparing import Step

__all__ = ["POLICIES"]

Json = Any

NS = "/api/v1/namespaces/{ns}"
PODS, CLAIMS, SERVICES = NS + "/pods", NS + "/persistentvolumeclaims", NS + "/services"
LIMITS, QUOTAS = NS + "/limitranges", NS + "/resourcequotas"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
MAPS = NS + "/configmaps"
POLICIES_PATH = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
REVISIONS = "/apis/apps/v1/namespaces/{ns}/controllerrevisions"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MERGE = "application/merge-patch+json"
META = ("metadata.managedFields",)


def post(path: str, body: Json, **options: Any) -> Step:
    return Step("POST", path, body, **options)


def get(path: str) -> Step:
    return Step("GET", path, ignore=META)


def pod(name: str, *containers: Json, init: Json = (), **spec: Any) -> Json:
    made = [
        {"name": f"c{index}", "image": "x", "resources": one} for index, one in enumerate(containers or ({},))
    ]
    first = [{"name": f"i{index}", "image": "x", **one} for index, one in enumerate(init)]
    spec = {"containers": made, **spec}
    return {"metadata": {"name": name}, "spec": {**spec, "initContainers": first} if first else spec}


def asks(cpu_request: str = "", memory_request: str = "", /, **limits: str) -> Json:
    asked = (("cpu", cpu_request), ("memory", memory_request))
    requests = {name: amount for name, amount in asked if amount}
    return {"requests": requests, "limits": limits}


def claim(name: str, size: str, **spec: Any) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": {"name": name}, "spec": spec}


def limits(*items: Json) -> Step:
    return post(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": list(items)}}, ignore=META)


def quota(hard: Json, path: str, body: Json, name: str = "q", **spec: Any) -> list[Step]:
    """A quota, in force: a real server learns of it by a watch, so at first it allows nothing of all."""
    nothing = dict.fromkeys(hard, "0")
    return [
        post(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": nothing, **spec}}, quiet=True),
        Step("POST", path + "?dryRun=All", body, quiet=True, until=403),
        Step("PATCH", f"{QUOTAS}/{name}", {"spec": {"hard": hard}}, MERGE, quiet=True),
    ]


def counted(path: str, body: Json) -> Step:
    """The first object under a quota: a real server refuses until it has counted."""
    return Step("POST", path, body, quiet=True, until=201)


def config_map(name: str, **data: str) -> Json:
    return {"metadata": {"name": name}, "data": data}


def policy(
    *validations: Json, name: str = "{ns}", operations: Json = ("CREATE",), quiet: bool = True, **more: Any
) -> Step:
    ignore = more.pop("ignore", ())
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": ["configmaps"],
    }
    where = {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}
    match = {"resourceRules": [rule], "namespaceSelector": where}
    spec = {"matchConstraints": match, "validations": list(validations), **more}
    return post(POLICIES_PATH, {"metadata": {"name": name}, "spec": spec}, quiet=quiet, ignore=ignore)


def enforce(*actions: str, **more: Any) -> Step:
    spec = {"policyName": "{ns}", "validationActions": list(actions), **more}
    return post(POLICY_BINDINGS, {"metadata": {"name": "{ns}"}, "spec": spec}, quiet=True)


def gone_policy() -> list[Step]:
    return [Step("DELETE", path + "/{ns}", quiet=True) for path in (POLICY_BINDINGS, POLICIES_PATH)]


SERVICE: Json = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}


def lease(name: str) -> Json:
    return {"metadata": {"name": name}}


POLICIES: Mapping[str, list[Step]] = {
    "limits are filled in": [
        limits({"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}),
        counted(PODS, pod("warm")),
        post(PODS, pod("a"), ignore=META),
        post(PODS, pod("b", asks("200m"), {}, init=({},)), ignore=META),
        post(PODS, pod("c", asks("200m", "1Gi", cpu="1", memory="2Gi")), ignore=META),
    ],
    "limits bound containers": [
        limits(
            {
                "type": "Container", "min": {"cpu": "100m", "memory": "10Mi"}, "max": {"cpu": "2"},
                "maxLimitRequestRatio": {"memory": "2"},
            }
        ),
        Step("POST", PODS, pod("warm"), quiet=True, until=403),
        post(PODS, pod("a")),
        post(PODS, pod("b", asks("50m", "20Mi", cpu="1", memory="30Mi"))),
        post(PODS, pod("c", asks("1", "20Mi", cpu="3", memory="30Mi"))),
        post(PODS, pod("d", asks("1", "20Mi", cpu="1", memory="50Mi"))),
        post(PODS, pod("e", asks("1", "20Mi", cpu="1", memory="40Mi")), ignore=META),
        Step("PATCH", PODS + "/e", {"metadata": {"labels": {"a": "b"}}}, MERGE, ignore=META),
    ],
    "limits bound pods and claims": [
        limits(
            {"type": "Pod", "max": {"cpu": "1"}},
            {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
        ),
        Step("POST", PODS, pod("warm"), quiet=True, until=403),
        post(PODS, pod("a", asks("600m", cpu="600m"), asks("600m", cpu="600m"))),
        post(PODS, pod("b", asks("300m", cpu="300m"), init=({"resources": asks("2", cpu="2")},))),
        post(PODS, pod("c", asks("300m", cpu="300m"), asks("600m", cpu="600m")), quiet=True),
        post(CLAIMS, claim("a", "500Mi")),
        post(CLAIMS, claim("b", "3Gi")),
        post(CLAIMS, claim("c", "1.5Gi"), quiet=True),
    ],
    "quotas count pods": [
        *quota({"pods": "3", "requests.cpu": "1", "limits.memory": "1Gi", "count/pods": "10"}, PODS, pod("a")),
        counted(PODS, pod("a", asks("500m", memory="256Mi"))),
        get(QUOTAS + "/q"),
        post(PODS, pod("b")),
        post(PODS, pod("c", asks("600m", memory="1Mi"))),
        post(PODS, pod("d", asks("600m", memory="1Gi"))),
        post(PODS + "?dryRun=All", pod("e", asks("500m", memory="256Mi")), quiet=True),
        post(PODS, pod("f", asks("0.25", memory="300M")), quiet=True),
        post(PODS, pod("g", asks("1m", memory="1Mi")), quiet=True),
        post(PODS, pod("h", asks("1m", memory="1Mi"))),
        get(QUOTAS + "/q"),
        Step("GET", QUOTAS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, ignore=("rows.object", "rows.cells")),
    ],
    "quotas count services and claims": [
        *quota({"services": "2", "services.nodeports": "1", "services.loadbalancers": "0", "persistentvolumeclaims": "2", "requests.storage": "3Gi", "fast.storageclass.storage.k8s.io/requests.storage": "1Gi"}, SERVICES, SERVICE),
        counted(SERVICES, SERVICE),
        post(SERVICES, {"metadata": {"name": "b"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
        post(SERVICES, {"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}, quiet=True),
        Step("PATCH", SERVICES + "/a", {"spec": {"type": "NodePort"}}, MERGE),
        post(SERVICES, {"metadata": {"name": "c"}, "spec": {"ports": [{"port": 80}]}}),
        post(CLAIMS, claim("a", "2Gi", storageClassName="slow"), quiet=True),
        post(CLAIMS, claim("b", "2Gi", storageClassName="slow")),
        post(CLAIMS, claim("b", "1100Mi", storageClassName="fast")),
        post(CLAIMS, claim("b", "512Mi", storageClassName="fast"), quiet=True),
        post(CLAIMS, claim("c", "1Mi")),
        get(QUOTAS + "/q"),
    ],
    "quotas count anything": [
        *quota({"count/leases.coordination.k8s.io": "1", "secrets": "1"}, LEASES, lease("a")),
        counted(LEASES, lease("a")),
        post(LEASES, lease("b")),
        post(LEASES, {"metadata": {"generateName": "b"}}, ignore=("message", "details.name")),
        post(NS + "/secrets", {"metadata": {"name": "a"}}, quiet=True),
        post(NS + "/secrets", {"metadata": {"name": "b"}}),
        get(QUOTAS + "/q"),
        Step("DELETE", LEASES + "/a", quiet=True),
        counted(LEASES, lease("b")),
        get(QUOTAS + "/q"),
    ],
    "quotas with scopes": [
        *quota({"pods": "1"}, PODS, pod("a"), scopes=["BestEffort"]),
        *quota({"pods": "2"}, PODS, pod("t", asks("1m"), activeDeadlineSeconds=10), "t", scopes=["Terminating"]),
        *quota({"pods": "1"}, PODS, pod("p", asks("1m"), priorityClassName="system-node-critical"), "p", scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}),
        counted(PODS, pod("t", asks("1m"), activeDeadlineSeconds=10)),
        counted(PODS, pod("a")),
        counted(PODS, pod("p", asks("1m"), priorityClassName="system-node-critical")),
        post(PODS, pod("b")),
        post(PODS, pod("q", asks("1m"), priorityClassName="system-node-critical")),
        post(PODS, pod("c", asks("1m")), quiet=True),
        *(get(f"{QUOTAS}/{name}") for name in "qtp"),
    ],
    "changed quotas": [
        *quota({"secrets": "1"}, NS + "/secrets", {"metadata": {"name": "a"}}),
        counted(NS + "/secrets", {"metadata": {"name": "a"}}),
        Step("PATCH", QUOTAS + "/q", {"spec": {"hard": {"secrets": "2"}}}, MERGE, quiet=True),
        counted(NS + "/secrets", {"metadata": {"name": "b"}}),
        Step("DELETE", QUOTAS + "/q", quiet=True),
        counted(NS + "/secrets", {"metadata": {"name": "c"}}),
    ],
    "priorities": [
        post(CLASSES, {"metadata": {"name": "{ns}"}, "value": 7, "preemptionPolicy": "Never"}, ignore=META),
        counted(PODS, pod("warm", priorityClassName="{ns}")),
        post(PODS, pod("a", priorityClassName="{ns}"), ignore=META),
        post(PODS, pod("b", priorityClassName="{ns}", priority=8)),
        post(PODS, pod("c", priorityClassName="{ns}", preemptionPolicy="PreemptLowerPriority")),
        post(PODS, pod("d", priorityClassName="none.{ns}")),
        post(PODS, pod("e", priority=3)),
        post(PODS, pod("f", priority=0, preemptionPolicy="Never"), ignore=META),
        post(CLASSES, {"metadata": {"name": "d.{ns}"}, "value": 1, "globalDefault": True}, quiet=True),
        # Tried only: a real server reads the classes from a cache that lags, and would keep a second default for good.
        Step("POST", CLASSES + "?dryRun=All", {"metadata": {"name": "e.{ns}"}, "value": 1, "globalDefault": True}, until=403),
        Step("DELETE", CLASSES + "/d.{ns}", quiet=True),
        # No pod of a later scenario gets this default: that it is gone has reached the cache.
        Step("POST", CLASSES + "?dryRun=All", {"metadata": {"name": "e.{ns}"}, "value": 1, "globalDefault": True}, quiet=True, until=201),
        Step("DELETE", CLASSES + "/{ns}", quiet=True),
    ],
    "revisions": [
        *(
            post(REVISIONS, {"metadata": {"name": "a"}, **body})
            for body in ({"revision": 1}, {"data": None}, {"revision": -1, "data": "x"}, {"data": 5})
        ),
        post(REVISIONS, {"metadata": {"name": "a"}, "data": {"a": 1}}, ignore=META),
        Step("PATCH", REVISIONS + "/a", {"data": {"a": 2}}, MERGE, ignore=("message", "details.causes.message")),
        Step("PATCH", REVISIONS + "/a", {"revision": -3}, MERGE),
    ],
    "policies in CEL": [
        policy(
            {"expression": "object.data.a == 'b'"},
            {"expression": "!has(object.data.c)", "message": " no c ", "reason": "Forbidden"},
            {"expression": "variables.size < 4", "messageExpression": "'too many: ' + string(variables.size)"},
            {"expression": "object.metadata.name != 'error' || object.data.nope == 'x'"},
            matchConditions=[{"name": "m", "expression": "!request.name.startsWith('free')"}],
            variables=[{"name": "size", "expression": "object.data.size()"}],
        ),
        enforce("Deny"),
        Step("POST", MAPS + "?dryRun=All", config_map("bad", a="x"), quiet=True, until=422),
        post(MAPS, config_map("bad", a="x")),
        post(MAPS, config_map("bad", a="b", c="d")),
        post(MAPS, config_map("bad", a="b", d="d", e="e", f="f")),
        post(MAPS, config_map("error", a="b")),
        post(MAPS, config_map("bad")),
        post(MAPS, config_map("good", a="b"), ignore=META),
        post(MAPS, config_map("free"), ignore=META),
        Step("PATCH", MAPS + "/good", {"data": {"a": "z"}}, MERGE, ignore=META),
        post(NS + "/secrets", {"metadata": {"name": "other"}}, ignore=META),
        *gone_policy(),
    ],
    "policies that look at the old object": [
        policy(
            {"expression": "request.operation != 'UPDATE' || object.data.a == oldObject.data.a", "message": "a is fixed"},
            {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'"},
            {"expression": "request.name != 'canary'"},
            {"expression": "namespaceObject.metadata.name == request.namespace"},
            operations=["*"],
        ),
        post(MAPS, config_map("kept", a="b"), ignore=META),
        enforce("Deny"),
        Step("POST", MAPS + "?dryRun=All", config_map("canary"), quiet=True, until=422),
        Step("PATCH", MAPS + "/kept", {"data": {"a": "d"}}, MERGE),
        Step("PATCH", MAPS + "/kept", {"metadata": {"labels": {"a": "b"}}}, MERGE, ignore=(*META, "data")),
        Step("DELETE", MAPS + "/kept"),
        *gone_policy(),
    ],
    "policies that warn": [
        policy({"expression": "has(object.data.a)", "message": "better with a"}),
        enforce("Warn"),
        Step("POST", MAPS, config_map("x"), quiet=True),
        *gone_policy(),
    ],
    "policies with parameters": [
        policy(
            {"expression": "object.data.size() <= int(params.data.most)"},
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
            matchConditions=[{"name": "m", "expression": "request.name != 'limit'"}],
        ),
        enforce("Deny", paramRef={"name": "limit", "parameterNotFoundAction": "Deny"}),
        Step("POST", MAPS + "?dryRun=All", config_map("none", a="b"), quiet=True, until=422),
        post(MAPS, config_map("none", a="b")),
        *gone_policy(),
    ],
    "policies that ask the authorizer": [
        policy(
            {"expression": "request.name != 'canary'"},
            {"expression": "authorizer.group('').resource('configmaps').namespace('{ns}').check('delete').allowed()", "message": "one"},
            {"expression": "authorizer.requestResource.check('update').allowed()", "message": "two"},
            {"expression": "authorizer.path('/healthz').check('get').allowed()", "message": "three"},
            {"expression": "!authorizer.group('apps').resource('deployments').subresource('scale').namespace('{ns}').name('x').check('get').errored()"},
            {"expression": "has(object.data) == authorizer.serviceAccount('{ns}', 'default').group('').resource('configmaps').namespace('{ns}').check('create').allowed()", "message": "four"},
            {"expression": "authorizer.group('').resource('configmaps').namespace('{ns}').check('create').reason() == ''", "message": "five"},
            auditAnnotations=[{"key": "a", "valueExpression": "'b' + object.metadata.name"}],
        ),
        enforce("Deny"),
        Step("POST", MAPS + "?dryRun=All", config_map("canary"), quiet=True, until=422),
        post(MAPS, {"metadata": {"name": "none"}}, ignore=META),
        post(MAPS, config_map("some", a="b")),
        *gone_policy(),
    ],
    "webhooks with conditions": [
        post(HOOKS, {"metadata": {"name": "{ns}"}, "webhooks": [{
            "name": "a.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
            "matchConditions": [
                {"name": "named", "expression": "request.name != 'free'"},
                {"name": "data", "expression": "!has(object.data) || object.data.a != 'free'"},
                {"name": "may", "expression": "authorizer.requestResource.check('create').allowed()"},
            ],
        }]}, quiet=True),
        Step("POST", MAPS + "?dryRun=All", config_map("canary", a="b"), quiet=True, until=500),
        post(MAPS, config_map("called", a="b")),
        post(MAPS, config_map("free", a="b"), ignore=META),
        post(MAPS, config_map("other", a="free"), ignore=META),
        post(MAPS, config_map("wrong", b="b")),
        Step("PATCH", HOOKS + "/{ns}", {"webhooks": None}, MERGE, quiet=True),
        post(HOOKS, {"metadata": {"name": "w.{ns}"}, "webhooks": [{
            "name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "matchConditions": [{"name": "x", "expression": "1 + 1"}],
        }]}, ignore=("metadata",)),
        Step("DELETE", HOOKS + "/{ns}", quiet=True),
    ],
    "policies that are wrong": [
        *(
            policy(validation, name="w.{ns}", quiet=False, ignore=(*ignored, *META))
            for validation, ignored in (
                ({"expression": "'a'"}, ()),
                ({"expression": "1 + 1"}, ()),
                ({"expression": "true", "messageExpression": "1"}, ("message", "details.causes.message")),
                ({"expression": "foo == 1"}, ("message", "details.causes.message")),
                ({"expression": "object.data.a =="}, ("message", "details.causes.message")),
            )
        ),
    ],
    "volumes are protected": [
        post(CLAIMS, claim("a", "1Gi", storageClassName="none.{ns}"), ignore=META),
        post("/api/v1/persistentvolumes", {"metadata": {"name": "{ns}", "finalizers": ["a.b/c"]}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}, "storageClassName": "{ns}"}}, ignore=(*META, "status")),
    ],
}  # fmt: skip
