"""Scenarios about who may do what: roles, bindings, reviews, tokens, acting as somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.comparing import Step

__all__ = ["ACCESS"]

Json = Any

NS = "/api/v1/namespaces/{ns}"
PODS = NS + "/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES, BINDINGS = RBAC + "/namespaces/{ns}/roles", RBAC + "/namespaces/{ns}/rolebindings"
CLUSTER_ROLES, CLUSTER_BINDINGS = RBAC + "/clusterroles", RBAC + "/clusterrolebindings"
REVIEWS = "/apis/authorization.k8s.io/v1"
IDENTITIES = "/apis/authentication.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
DEFAULTS = "?labelSelector=kubernetes.io%2Fbootstrapping%3Drbac-defaults"
MERGE = "application/merge-patch+json"
META = ("metadata.managedFields",)

ANN: Mapping[str, str] = {"Impersonate-User": "ann"}


def as_ann(method: str, path: str, body: Json = None, **options: Any) -> Step:
    """A request of a plain user."""
    kind = MERGE if method == "PATCH" else "application/json"
    return Step(method, path, body, kind, {**ANN, **options.pop("headers", {})}, **options)


def post(path: str, body: Json, **options: Any) -> Step:
    return Step("POST", path, body, **options)


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> Json:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **more}


def role(name: str, *rules: Json) -> Step:
    return post(ROLES, {"metadata": {"name": name}, "rules": list(rules)}, quiet=True)


def cluster_role(name: str, *rules: Json, **more: Any) -> Step:
    body = {"metadata": {"name": name, **more.pop("metadata", {})}, "rules": list(rules), **more}
    return post(CLUSTER_ROLES, body, quiet=True)


def ref(name: str, kind: str = "Role") -> Json:
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def user(name: str = "ann", kind: str = "User") -> Json:
    return {"kind": kind, "name": name, "apiGroup": GROUP}


def bind(name: str, *subjects: Json, kind: str = "Role") -> Step:
    body = {"metadata": {"name": name}, "roleRef": ref(name, kind), "subjects": list(subjects)}
    return post(BINDINGS, body, quiet=True)


def bind_cluster(name: str, *subjects: Json) -> Step:
    body = {"metadata": {"name": name}, "roleRef": ref(name, "ClusterRole"), "subjects": list(subjects)}
    return post(CLUSTER_BINDINGS, body, quiet=True)


def gone(*paths: str) -> list[Step]:
    return [Step("DELETE", path, quiet=True) for path in paths]


def granted(path: str, headers: Mapping[str, str] = ANN) -> Step:
    """Wait until a right that was just given counts: a real server learns of it by a watch."""
    return Step("GET", path, headers=headers, quiet=True, until=200)


def review(kind: str, spec: Json, **options: Any) -> Step:
    where = "/namespaces/{ns}" if kind.startswith("Local") else ""
    path = f"{REVIEWS}{where}/{kind.lower()}s"
    return post(path, {"apiVersion": "authorization.k8s.io/v1", "kind": kind, **spec}, **options)


def asks(verb: str, resource: str, **more: Any) -> Json:
    return {"verb": verb, "resource": resource, **more}


ACCESS: Mapping[str, list[Step]] = {
    "nobody may": [
        as_ann("GET", NS + "/pods"),
        as_ann("GET", NS + "/pods?watch=1"),
        as_ann("GET", NS + "/pods/p"),
        as_ann("GET", NS + "/pods/p/log"),
        as_ann("GET", NS + "/pods/p/exec"),
        as_ann("GET", "/api/v1/pods"),
        as_ann("GET", "/api/v1/watch/namespaces/{ns}/pods"),
        as_ann("GET", NS + "/pods?fieldSelector=metadata.name%3Dp"),
        as_ann("GET", NS),
        as_ann("GET", "/api/v1/namespaces"),
        as_ann("POST", NS + "/configmaps", {"metadata": {"name": "a"}}),
        as_ann("POST", NS + "/configmaps", "nonsense"),
        as_ann("PUT", NS + "/configmaps/a", {"metadata": {"name": "a"}}),
        as_ann("PATCH", NS + "/configmaps/a", {}),
        as_ann("DELETE", NS + "/configmaps/a"),
        as_ann("DELETE", NS + "/configmaps"),
        as_ann("PATCH", "/apis/apps/v1/namespaces/{ns}/deployments/d/scale", {}),
        as_ann("GET", "/apis/apps/v1/namespaces/{ns}/deployments/d/status"),
        as_ann("GET", "/apis/nothing.example.com/v1/namespaces/{ns}/things"),
        as_ann("GET", "/api/v1/nonsense"),
        as_ann("GET", "/metrics"),
        as_ann("GET", "/"),
        as_ann("GET", "/nothing/<here>"),
        as_ann("POST", "/version"),
        as_ann("GET", "/version", quiet=True),
        as_ann("GET", "/healthz"),
        as_ann("GET", "/apis/apps"),
        as_ann("GET", "/openapi/v3", quiet=True),
        Step("GET", NS + "/pods", headers={"Impersonate-User": 'a"b\\c<d>'}),
    ],
    "rights by role": [
        role("r", rule("get list", "configmaps"), rule("get", "pods/log secrets", resourceNames=["one"])),
        bind("r", user()),
        granted(NS + "/configmaps"),
        as_ann("GET", NS + "/configmaps/none"),
        as_ann("GET", NS + "/configmaps?watch=1&timeoutSeconds=1"),
        as_ann("GET", NS + "/secrets/one"),
        as_ann("GET", NS + "/secrets/two"),
        as_ann("GET", NS + "/secrets"),
        as_ann("GET", NS + "/pods/one/log"),
        as_ann("GET", NS + "/pods/one"),
        as_ann("GET", "/api/v1/configmaps"),
        as_ann("GET", "/api/v1/namespaces/default/configmaps"),
        Step("DELETE", BINDINGS + "/r", quiet=True),
        Step("GET", NS + "/configmaps", headers=ANN, quiet=True, until=403),
    ],
    "rights to create by other verbs": [
        role("r", rule("get patch update", "configmaps services"), rule("get update", "roles", GROUP)),
        bind("r", user()),
        Step("GET", NS + "/configmaps/a", headers=ANN, quiet=True, until=404),
        *(
            Step(
                "PATCH",
                f"{NS}/{plural}/a?fieldManager=ann",
                {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, **more},
                "application/apply-patch+yaml",
                headers=ANN,
            )
            for plural, kind, more in (
                ("configmaps", "ConfigMap", {"data": {"a": "b"}}),
                ("services", "Service", {"spec": {"ports": [{"port": 80}]}}),
                ("services", "Service", {"spec": {"ports": [{"port": 0}]}}),
            )
        ),
        Step(
            "PATCH", NS + "/configmaps/a?fieldManager=ann", {"apiVersion": "v1", "kind": "ConfigMap"},
            "application/apply-patch+yaml",
        ),
        as_ann("PUT", NS + "/services/a", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}),
        as_ann("PUT", NS + "/configmaps/a", {"metadata": {"name": "a"}}),
        as_ann("PUT", ROLES + "/a", {"metadata": {"name": "a"}, "rules": [rule("get", "configmaps")]}),
        as_ann("PUT", ROLES + "/a", {"metadata": {"name": "a"}, "rules": [rule("get", "secrets")]}),
        post(NS + "/configmaps", {"metadata": {"name": "a"}}, quiet=True),
        as_ann("PATCH", NS + "/configmaps/a", {"data": {"x": "y"}}, ignore=META),
    ],
    "rights to exec": [
        role("r", rule("get", "pods/exec pods/portforward pods/proxy")),
        bind("r", user()),
        # 403 is answered before the role counts too, in other words.
        Step("GET", PODS + "/p/proxy", headers=ANN, quiet=True, until=404),
        *(as_ann("GET", f"{PODS}/p/{sub}?command=x&stdout=1") for sub in ("exec", "portforward", "attach")),
        as_ann("POST", PODS + "/p/exec?command=x&stdout=1"),
    ],
    "rights to proxies": [
        role("r", rule("get", "pods/proxy"), rule("create", "services/proxy")),
        bind("r", user()),
        Step("GET", PODS + "/p/proxy", headers=ANN, quiet=True, until=404),
        *(
            as_ann(method, f"{path}/p/proxy{rest}")
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
            for path, rest in ((PODS, "/a"), (PODS, "/"), (NS + "/services", "/a"))
        ),
    ],
    "rights by cluster role": [
        cluster_role(
            "{ns}", rule("*", "*/scale", "*"), rule("list", "nodes"),
            {"nonResourceURLs": ["/{ns}/*", "/metrics"], "verbs": ["get"]},
        ),
        bind_cluster("{ns}", user("{ns}", "Group")),
        *(
            Step(step.method, step.path, step.body, step.type, {**ANN, "Impersonate-Group": "{ns}"}, until=step.until)
            for step in (
                Step("GET", "/apis/apps/v1/namespaces/{ns}/deployments/d/scale", until=404),
                Step("GET", "/apis/apps/v1/namespaces/{ns}/deployments/d"),
                Step("GET", "/{ns}/x"),
                Step("GET", "/{ns}"),
                Step("GET", "/api/v1/nodes/x"),
            )
        ),
        *gone(CLUSTER_BINDINGS + "/{ns}", CLUSTER_ROLES + "/{ns}"),
    ],
    "rights by cluster role in a namespace": [
        bind("view", user(), kind="ClusterRole"),
        granted(NS + "/configmaps"),
        as_ann("GET", NS + "/secrets"),
        as_ann("GET", NS + "/pods/p"),
        as_ann("DELETE", NS + "/pods/p"),
        as_ann("GET", "/api/v1/configmaps"),
        as_ann("GET", ROLES),
    ],
    "roles that do not exist": [
        bind("nothing", user()),
        role("later", rule("list", "secrets")),
        bind("later", user()),
        granted(NS + "/secrets", ANN),  # so the binding before it has been seen as well
        review("SubjectAccessReview", {"spec": {"user": "ann", "resourceAttributes": asks("get", "pods", namespace="{ns}")}}, ignore=META),
        as_ann("GET", NS + "/configmaps"),
    ],
    "accounts": [
        post(NS + "/configmaps", {"metadata": {"name": "a"}}, quiet=True),
        role("r", rule("get", "configmaps")),
        bind("r", {"kind": "ServiceAccount", "name": "sa", "namespace": "{ns}"}),
        granted(NS + "/configmaps/a", {"Impersonate-User": "system:serviceaccount:{ns}:sa"}),
        Step("GET", NS + "/configmaps", headers={"Impersonate-User": "system:serviceaccount:{ns}:sa"}),
        Step("GET", NS + "/configmaps", headers={"Impersonate-User": "system:serviceaccount:other:sa"}),
        Step("GET", "/.well-known/openid-configuration", headers=ANN),
    ],
    "reviews of rights": [
        review("SelfSubjectAccessReview", {"spec": {"resourceAttributes": asks("get", "pods")}}, ignore=META),
        review("SelfSubjectAccessReview", {"spec": {"resourceAttributes": asks("get", "pods")}}, headers=ANN),
        review("SelfSubjectAccessReview", {"metadata": {"name": "x"}, "spec": {"resourceAttributes": asks("get", "pods")}}, ignore=("message", "details.causes.message")),
        review("SelfSubjectAccessReview", {"spec": {}}),
        review("SelfSubjectAccessReview", {"spec": {"resourceAttributes": {"verb": 3}}}),
        review("SelfSubjectAccessReview", {"spec": {"other": 3, "nonResourceAttributes": {"path": "/x", "verb": "get"}}}),
        review("SubjectAccessReview", {"spec": {"user": "u", "groups": ["system:masters"], "resourceAttributes": asks("get", "pods")}}),
        review("SubjectAccessReview", {"spec": {"user": "u", "nonResourceAttributes": {"path": "/healthz", "verb": "get"}}}),
        review("SubjectAccessReview", {"spec": {"groups": ["system:unauthenticated"], "nonResourceAttributes": {"path": "/healthz", "verb": "get"}}}),
        review("SubjectAccessReview", {"spec": {"resourceAttributes": asks("get", "pods"), "nonResourceAttributes": {"path": "/x", "verb": "get"}}}),
        review("SubjectAccessReview", {"spec": {"user": "u"}}),
        review("SubjectAccessReview", {"spec": {"user": "u", "resourceAttributes": asks("get", "pods")}}, headers=ANN),
        review("LocalSubjectAccessReview", {"spec": {"user": "u", "resourceAttributes": asks("get", "pods")}}),
        review("LocalSubjectAccessReview", {"spec": {"user": "u", "resourceAttributes": asks("get", "pods", namespace="{ns}")}}),
        review("LocalSubjectAccessReview", {"metadata": {"namespace": "{ns}"}, "spec": {"user": "u", "resourceAttributes": asks("get", "pods", namespace="{ns}")}}),
        review("LocalSubjectAccessReview", {"metadata": {"namespace": "{ns}"}, "spec": {"user": "u", "nonResourceAttributes": {"path": "/x", "verb": "get"}}}),
        review("SelfSubjectRulesReview", {"spec": {"namespace": "{ns}"}}),
        review("SelfSubjectRulesReview", {"spec": {"namespace": "{ns}"}}, headers=ANN),
        review("SelfSubjectRulesReview", {"spec": {}}),
        Step("GET", REVIEWS + "/selfsubjectaccessreviews"),
    ],
    "reviews agree with roles": [
        role("r", rule("get", "configmaps", resourceNames=["one"])),
        bind("r", user()),
        Step("GET", NS + "/configmaps/one", headers=ANN, quiet=True, until=404),
        *(
            review("SubjectAccessReview", {"spec": {"user": "ann", "resourceAttributes": asks(*about, namespace="{ns}")}})
            for about in (("get", "configmaps"), ("get", "pods"))
        ),
        review("SubjectAccessReview", {"spec": {"user": "ann", "resourceAttributes": asks("get", "configmaps", namespace="{ns}", name="one")}}),
        review("SelfSubjectRulesReview", {"spec": {"namespace": "{ns}"}}, headers=ANN),
    ],
    "nobody grants more than they hold": [
        role("r", rule("get list", "configmaps"), rule("* ", "roles rolebindings", GROUP)),
        bind("r", user()),
        granted(ROLES),
        as_ann("POST", ROLES, {"metadata": {"name": "a"}, "rules": [rule("get", "configmaps")]}, ignore=META),
        as_ann("POST", ROLES, {"metadata": {"name": "b"}, "rules": [rule("get delete watch", "configmaps secrets"), rule("get", "pods", resourceNames=["x", "y"])]}),
        as_ann("POST", ROLES, {"metadata": {"name": "b"}, "rules": [rule("get", "configmaps", "nope")]}),
        as_ann("POST", ROLES, {"metadata": {"name": "B_"}, "rules": [rule("get", "pods")]}),
        as_ann("PATCH", ROLES + "/a", {"rules": [rule("*", "*", "*")]}),
        as_ann("PATCH", ROLES + "/a", {"metadata": {"labels": {"x": "y"}}}, ignore=META),
        as_ann("PATCH", ROLES + "/r", {"metadata": {"finalizers": ["a.b/c"]}}, ignore=META),
        as_ann("PATCH", ROLES + "/r", {"metadata": {"finalizers": None}}, quiet=True),
        as_ann("POST", BINDINGS, {"metadata": {"name": "a"}, "roleRef": ref("a"), "subjects": [user("bob")]}, ignore=META),
        as_ann("POST", BINDINGS, {"metadata": {"name": "b"}, "roleRef": ref("none"), "subjects": [user("bob")]}),
        as_ann("POST", BINDINGS, {"metadata": {"name": "b"}, "roleRef": ref("none", "ClusterRole"), "subjects": [user("bob")]}),
        as_ann("POST", BINDINGS, {"metadata": {"name": "b"}, "roleRef": ref("system:node-bootstrapper", "ClusterRole"), "subjects": [user("bob")]}),
        as_ann("POST", CLUSTER_ROLES, {"metadata": {"name": "{ns}"}, "rules": []}),
    ],
    "who may escalate and bind": [
        role("e", rule("create escalate", "roles", GROUP), rule("create", "rolebindings", GROUP), rule("bind", "clusterroles", GROUP, resourceNames=["view"])),
        bind("e", user()),
        Step("POST", ROLES, {"metadata": {"name": "big"}, "rules": [rule("*", "*", "*")]}, headers=ANN, quiet=True, until=201),
        as_ann("POST", BINDINGS, {"metadata": {"name": "v"}, "roleRef": ref("view", "ClusterRole"), "subjects": [user("bob")]}, ignore=META),
        as_ann("POST", BINDINGS, {"metadata": {"name": "w"}, "roleRef": ref("big"), "subjects": [user("bob")]}),
    ],
    "roles that are wrong": [
        *(
            post(path, {"metadata": {"name": "a.{ns}"}, **body})
            for path, body in (
                (ROLES, {"rules": [{}]}),
                (ROLES, {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
                (CLUSTER_ROLES, {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"], "apiGroups": ["a"]}]}),
                (CLUSTER_ROLES, {"rules": [{"verbs": ["get"], "apiGroups": [""]}], "aggregationRule": {}}),
                (CLUSTER_ROLES, {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]}}),
                (BINDINGS, {}),
                (BINDINGS, {"roleRef": {"kind": "X", "name": "a/b", "apiGroup": "x"}}),
                (BINDINGS, {"roleRef": ref("r"), "subjects": [{}, {"kind": "User", "name": "u"}, {"kind": "Group", "apiGroup": "x"}]}),
                (BINDINGS, {"roleRef": ref("r"), "subjects": [{"kind": "ServiceAccount", "name": "A_", "apiGroup": "x"}]}),
                (CLUSTER_BINDINGS, {"roleRef": ref("r")}),
                (CLUSTER_BINDINGS, {"roleRef": ref("r", "ClusterRole"), "subjects": [{"kind": "ServiceAccount", "name": "a"}]}),
            )
        ),
        bind("b", user("bob")),
        Step("PATCH", BINDINGS + "/b", {"roleRef": {"name": "other"}}, MERGE),
        Step("PATCH", BINDINGS + "/b", {"subjects": []}, MERGE, ignore=META),
    ],
    "who may gather roles": [
        cluster_role("{ns}", rule("create", "clusterroles", GROUP)),
        bind_cluster("{ns}", user("{ns}", "Group")),
        Step("POST", CLUSTER_ROLES, {"metadata": {"name": "x.{ns}"}}, headers={**ANN, "Impersonate-Group": "{ns}"}, quiet=True, until=201),
        as_ann(
            "POST", CLUSTER_ROLES, {"metadata": {"name": "y.{ns}"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}},
            headers={"Impersonate-Group": "{ns}"},
        ),
        *gone(CLUSTER_BINDINGS + "/{ns}", CLUSTER_ROLES + "/{ns}", CLUSTER_ROLES + "/x.{ns}"),
    ],
    "acting as somebody else": [
        Step("POST", IDENTITIES + "/selfsubjectreviews", {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}, headers=headers)
        for headers in (
            ANN,
            {**ANN, "Impersonate-Group": "g", "Impersonate-Uid": "u1", "Impersonate-Extra-Some%2fkey": "v"},
            {"Impersonate-User": "system:anonymous"},
            {**ANN, "Impersonate-Group": "system:unauthenticated"},
            {"Impersonate-User": "system:serviceaccount:{ns}:sa"},
            {"Impersonate-Group": "g"},
            {"Impersonate-Uid": "u"},
            {"Impersonate-Extra-a": "v"},
            {"Impersonate-User": "x", "Impersonate-Group": "system:masters"},
        )
    ],
    "roles of a fresh server": [
        Step("GET", path + DEFAULTS, ignore=("items.metadata.managedFields", "items.metadata.creationTimestamp", "items.metadata.uid", "items.metadata.resourceVersion"))
        for path in (CLUSTER_ROLES, CLUSTER_BINDINGS, RBAC + "/namespaces/kube-system/roles", RBAC + "/namespaces/kube-public/rolebindings")
    ],
    "requests for tokens": [
        post(NS + "/serviceaccounts", {"metadata": {"name": "sa"}}),
        post(NS + "/pods", {"metadata": {"name": "p"}, "spec": {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "x"}]}}, quiet=True),
        *(
            post(NS + "/serviceaccounts/sa/token", {**meta, "spec": spec}, ignore=("status.token",))
            for meta, spec in (
                ({}, {}),
                ({}, {"audiences": ["a", "b"], "expirationSeconds": 700}),
                ({}, {"expirationSeconds": 1 << 33}),
                ({}, {"expirationSeconds": 5}),
                ({}, {"expirationSeconds": "x"}),
                ({"metadata": {"name": "other"}}, {}),
                ({"metadata": {"namespace": "other"}}, {}),
                ({"metadata": {"name": "sa", "uid": "x"}}, {}),
                ({}, {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}),
                ({}, {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"}}),
                ({}, {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "q"}}),
                ({}, {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "q"}}),
                ({}, {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "q"}}),
                ({}, {"boundObjectRef": {"kind": "Other", "apiVersion": "x/v1", "name": "q"}}),
            )
        ),
        post(NS + "/serviceaccounts", {"metadata": {"name": "tb"}}, quiet=True),
        post(NS + "/serviceaccounts/tb/token", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}}),
        as_ann("POST", NS + "/serviceaccounts/sa/token", {"spec": {}}),
        Step("GET", NS + "/serviceaccounts/sa/token"),
    ],
    "reviews of tokens": [
        post(NS + "/serviceaccounts", {"metadata": {"name": "sa"}}, quiet=True),
        post(NS + "/serviceaccounts/sa/token", {"spec": {}}, quiet=True),
        post(NS + "/serviceaccounts/sa/token", {"spec": {"audiences": ["mine"]}}, quiet=True),
        *(
            post(IDENTITIES + "/tokenreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}, ignore=("spec.token",))
            for spec in (
                {"token": "{token:1}"},
                {"token": "{token:1}", "audiences": ["mine"]},
                {"token": "{token:2}", "audiences": ["mine", "yours"]},
                {"token": "{token:2}"},
                {"token": "nonsense"},
                {"token": "a.b.c"},
                {},
            )
        ),
        Step("GET", NS + "/configmaps", headers={"Authorization": "Bearer {token:1}"}),
        Step("GET", NS + "/configmaps", headers={"Authorization": "Bearer {token:2}"}),
        Step("GET", NS + "/configmaps", headers={"Authorization": "Bearer nonsense"}),
        Step("GET", "/openid/v1/jwks", headers={"Authorization": "Bearer {token:1}", "Accept": "application/jwk-set+json"}, quiet=True),
    ],
}  # fmt: skip
