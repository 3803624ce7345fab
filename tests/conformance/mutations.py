"""Scenarios about what changes objects on their way in by the user's own rules, and about signing requests."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.conformance.comparing import Step

__all__ = ["MUTATIONS"]

Json = Any

GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING, BINDINGS = f"{GROUP}/mutatingadmissionpolicies", f"{GROUP}/mutatingadmissionpolicybindings"
MAPS, PODS = "/api/v1/namespaces/{ns}/configmaps", "/api/v1/namespaces/{ns}/pods"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
MERGE = "application/merge-patch+json"


def policy(mutation: Json, *, resource: str = "configmaps", **spec: Any) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    where = {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}
    match = {"resourceRules": [rule], "namespaceSelector": where}
    mutations = mutation if isinstance(mutation, list) else [mutation]
    spec = {"matchConstraints": match, "mutations": mutations, "reinvocationPolicy": "Never", **spec}
    return {"metadata": {"name": "{ns}"}, "spec": spec}


def configuration(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


#: Fails for an object named `probe`, so that its refusal says that the policy is in force.
_GATE = configuration("object.metadata.name == 'probe' ? Object{kind: object.absent} : Object{}")


def in_force(mutations: list[Json], *writes: Step, resource: str = "configmaps", **spec: Any) -> list[Step]:
    """Write under a policy that is in force, and take it away."""
    probe: Json = {"metadata": {"name": "probe"}, "data": {"a": "1"}}
    if resource == "pods":
        del probe["data"]
        probe["spec"] = {"containers": [{"name": "c", "image": "x"}]}
    path = f"/api/v1/namespaces/{{ns}}/{resource}"
    return [
        Step("POST", MUTATING, policy([_GATE, *mutations], resource=resource, **spec)),
        Step("POST", BINDINGS, {"metadata": {"name": "{ns}"}, "spec": {"policyName": "{ns}"}}),
        Step("POST", f"{path}?dryRun=All", probe, until=403),
        *writes,
        Step("DELETE", f"{BINDINGS}/{{ns}}", quiet=True),
        Step("DELETE", f"{MUTATING}/{{ns}}", quiet=True),
    ]


def config_map(name: str, **data: str) -> Step:
    return Step("POST", MAPS, {"metadata": {"name": name}, "data": data})


def pod(name: str, **spec: Any) -> Step:
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]
    body = {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    # Its token's volume has a random name; what a controller of the real server may add is its status.
    return Step("POST", PODS, body, ignore=("status",))


def request(**spec: Any) -> Json:
    """A signing request for a fixed key; the same bytes on both servers."""
    return {
        "metadata": {"name": "{ns}"},
        "spec": {
            "request": _CSR,
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            **spec,
        },
    }


def _csr(**subject: str) -> str:
    key = ec.derive_private_key(7, ec.SECP256R1())
    oids = {"name": NameOID.COMMON_NAME, "group": NameOID.ORGANIZATION_NAME}
    name = x509.Name([x509.NameAttribute(oids[part], value) for part, value in subject.items()])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


_CSR = _csr(name="somebody", group="dev")
#: Who asks differs in name and groups between the two servers.
_WHO = (
    "spec.username",
    "spec.groups",
    "spec.uid",
    "spec.extra",
    "metadata.managedFields",
    "status.certificate",
)


#: Mutations that no policy may have.
_REFUSED: list[Json] = [
    [],
    {"patchType": "Other"},
    {"patchType": "JSONPatch"},
    {"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}},
    {**configuration("Object{}"), "jsonPatch": {"expression": "[]"}},
    configuration("  "),
    configuration("'text'"),
    json_patch("1"),
]


def decision(kind: str, **more: str) -> Json:
    return {
        "status": {"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m", **more}]}
    }


MUTATIONS: Mapping[str, list[Step]] = {
    "a mutating policy merges an apply configuration": in_force(
        [
            configuration('Object{metadata: Object.metadata{labels: {"a": "b"}}, data: {"new": "1"}}'),
            json_patch('[JSONPatch{op: "add", path: "/data/more", value: object.data.new + "2"}]'),
        ],
        config_map("a", old="x"),
        config_map("b", new="x"),
    ),
    "a mutating policy merges keyed lists by their key": in_force(
        [
            configuration(
                "Object{spec: Object.spec{containers: object.spec.containers.map(c,"
                ' Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: "A", value: c.name}]})}}'
            )
        ],
        pod("a"),
        resource="pods",
    ),
    "a mutating policy may not replace a whole atomic list": in_force(
        [configuration('Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "a"}]}}')],
        pod("a"),
        resource="pods",
    ),
    "a mutating policy that names a field which is not there": in_force(
        [configuration("Object{spec: Object.spec{colour: 1}}")], pod("a"), resource="pods"
    ),
    "a type that is not that of its place": in_force(
        [configuration('Object{metadata: Object.wrong{labels: {"a": "b"}}}')], config_map("a")
    ),
    "a failed test in a policy's JSON patch changes nothing": in_force(
        [
            json_patch(
                '[JSONPatch{op: "test", path: "/data/a", value: "9"}, JSONPatch{op: "remove", path: "/data/a"}]'
            )
        ],
        config_map("a", a="1"),
        config_map("b", a="9"),
    ),
    "variables and conditions of a mutating policy": in_force(
        [configuration('Object{data: {"v": variables.v}}')],
        config_map("a", a="1"),
        config_map("plain", a="1"),
        variables=[{"name": "v", "expression": "object.metadata.name + '!'"}],
        matchConditions=[{"name": "c", "expression": "object.metadata.name != 'plain'"}],
    ),
    "mutating policies that are refused themselves": [
        Step("POST", MUTATING, policy(body), ignore=("message", "details.causes.message"))
        for body in _REFUSED
    ],
    "a signing request from asking to its certificate": [
        Step("POST", REQUESTS, request(), ignore=_WHO),
        Step("PATCH", f"{REQUESTS}/{{ns}}", {"metadata": {"labels": {"a": "b"}}}, MERGE, ignore=_WHO),
        Step("PATCH", f"{REQUESTS}/{{ns}}", {"spec": {"usages": ["any"]}}, MERGE, ignore=_WHO),
        Step("PATCH", f"{REQUESTS}/{{ns}}/approval", decision("Approved"), MERGE, ignore=_WHO),
        Step("PATCH", f"{REQUESTS}/{{ns}}/approval", decision("Denied"), MERGE, ignore=("message", *_WHO)),
        # By now the controllers of the real server may have signed it.
        Step("GET", f"{REQUESTS}/{{ns}}", ignore=("metadata.resourceVersion", *_WHO)),
        Step("DELETE", f"{REQUESTS}/{{ns}}"),
    ],
    "signing requests that are refused": [
        Step("POST", REQUESTS, request(request=_csr(name="x", group="system:masters")), ignore=("message",)),
        Step("POST", REQUESTS, request(request="AAAA"), ignore=("message", "details.causes.message")),
        Step("POST", REQUESTS, request(signerName="plain"), ignore=("message", "details.causes.message")),
        Step("POST", REQUESTS, request(usages=["other"]), ignore=("message", "details.causes.message")),
        Step("POST", REQUESTS, request(usages=[]), ignore=("message", "details.causes.message")),
    ],
    "runtime classes and pods": [
        Step(
            "POST",
            "/apis/node.k8s.io/v1/runtimeclasses",
            {
                "metadata": {"name": "{ns}"},
                "handler": "h",
                "overhead": {"podFixed": {"cpu": "10m"}},
                "scheduling": {
                    "nodeSelector": {"a": "b"},
                    "tolerations": [{"key": "k", "operator": "Exists"}],
                },
            },
        ),
        pod("a", runtimeClassName="absent-{ns}"),
        pod("b", runtimeClassName="{ns}"),
        pod("c", runtimeClassName="{ns}", overhead={"cpu": "20m"}),
        pod("d", overhead={"cpu": "20m"}),
        pod("e", runtimeClassName="{ns}", nodeSelector={"a": "c"}),
        Step("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/{ns}", quiet=True),
    ],
    "kernel parameters of pods": [
        pod(
            "a",
            securityContext={
                "sysctls": [{"name": name, "value": "1"} for name in ("foo-", "a.b", "a.b", "bar..")]
            },
        ),
        pod(
            "b", hostNetwork=True, securityContext={"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}
        ),
    ],
    "addresses as names": [
        Step(
            "POST",
            "/apis/networking.k8s.io/v1/ipaddresses",
            {"metadata": {"name": name}, "spec": {"parentRef": {"resource": "r", "name": "n"}}},
            ignore=("message", "details.causes.message"),
        )
        for name in ("x", "fe80::0001", "001.2.3.4")
    ],
}
