"""Small things that client programs rely on, as Kubernetes' own specs ask for them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.local.api.conftest import CM, CRDS, PODS, Client, Json, definition, pod

from mooring.local.api import ApiServer, User
from mooring.local.api.protobuf import _message, _messages
from mooring.local.api.wire import canonical_time

STRICT = {"fieldValidation": "Strict"}
EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


async def test_decoding_problems_are_told_in_the_order_of_the_document(api: Client) -> None:
    body = b'{"metadata":{"name":"c","odd":1},"data":{"a":"1","a":"2"},"other":1,"immutable":true,"immutable":false}'
    status = await api.refused(400, "POST", CM, body, **STRICT)
    assert status["message"].endswith(
        'unknown field "metadata.odd", duplicate field "data.a", unknown field "other", duplicate field "immutable"'
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: '1'\n  a: '2'\n", 6),
        (b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},\n"data":{"a":"1","a":"2"}}', 2),
    ],
)
async def test_keys_an_applied_configuration_holds_twice_are_refused_or_told(
    api: Client, text: bytes, line: int
) -> None:
    kind = "application/apply-patch+yaml"
    told = f'line {line}: key "a" already set in map'
    asked = {"fieldManager": "me", **STRICT}
    status = await api.refused(400, "PATCH", f"{CM}/c", text, content_type=kind, **asked)
    assert told in status["message"]
    warned = await api.send("PATCH", f"{CM}/c", text, content_type=kind, fieldManager="me")
    assert warned.status == 201
    assert "already set in map" in warned.headers["Warning"]


async def test_a_review_is_never_a_table(api: Client) -> None:
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    assert (await api.refused(406, "POST", path, review, headers=table))["reason"] == "NotAcceptable"
    await api.create(path, review)


async def test_events_are_found_by_who_reported_them_whatever_group_they_came_by(api: Client) -> None:
    about = {"namespace": "default", "name": "p", "kind": "Pod"}
    new = {
        "metadata": {"name": "new"},
        "regarding": about,
        "eventTime": "2030-01-01T00:00:00.000000Z",
        "reportingController": "tester",
        "reportingInstance": "i",
        "action": "a",
        "reason": "r",
        "type": "Normal",
    }
    old = {"metadata": {"name": "old"}, "involvedObject": about, "source": {"component": "other"}}
    await api.create(NEW_EVENTS, new)
    await api.create(EVENTS, old)
    for component, name in (("tester", "new"), ("other", "old")):
        found = await api.get(EVENTS, fieldSelector=f"source={component}")
        assert [event["metadata"]["name"] for event in found["items"]] == [name]


def test_a_year_has_four_digits() -> None:
    assert canonical_time("0001-01-01T00:00:02.000000Z", micro=True) == "0001-01-01T00:00:02.000000Z"


def _encoded(name: str, obj: Json) -> bytes:
    """Encode an object of a message as Go does, by the numbers of its fields."""
    numbers = {key: (int(number), kind, flags) for number, (key, kind, flags) in _messages()[name].items()}
    parts = []
    for key, value in obj.items():
        number, kind, flags = numbers[key]
        for one in value if flags == "r" else [value]:
            if isinstance(one, bool):
                parts.append(_varint(number << 3) + bytes([one]))
                continue
            content = one.encode() if isinstance(one, str) else _encoded(kind, one)
            parts.append(_varint(number << 3 | 2) + _varint(len(content)) + content)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


def test_what_go_writes_for_an_unset_field_of_a_schema_is_left_out() -> None:
    item = {"id": "", "description": "", "type": "string", "uniqueItems": False, "nullable": True}
    name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
    encoded = _encoded(name, {"type": "array", "items": {"schema": item}})
    assert _message(encoded, name, 0)["items"] == {"type": "string", "nullable": True}


async def test_the_range_of_service_addresses_is_told_and_in_use() -> None:
    async with ApiServer.in_memory(service_range="10.9.0.0/16") as server:
        api = Client(server.transport())
        found = await api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes")
        assert found["spec"] == {"cidrs": ["10.9.0.0/16"]}
        assert [(c["type"], c["status"]) for c in found["status"]["conditions"]] == [("Ready", "True")]


async def test_only_who_may_decide_for_a_signer_decides(server: ApiServer, api: Client) -> None:
    rbac, path = (
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    )
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    pem = named.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": "example.com/x",
        "usages": ["client auth"],
    }
    made = await api.create(path, {"metadata": {"name": "r"}, "spec": {**spec, "username": "liar"}})
    assert made["spec"]["username"] == "kubernetes-admin"

    rules = [{"apiGroups": ["*"], "resources": ["certificatesigningrequests/approval"], "verbs": ["patch"]}]
    await api.create(f"{rbac}/clusterroles", {"metadata": {"name": "decides"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "decides"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}
    binding = {"metadata": {"name": "ann"}, "roleRef": reference, "subjects": [subject]}
    await api.create(f"{rbac}/clusterrolebindings", binding)
    ann = Client(server.transport(user=User("ann", groups=("system:authenticated",))))
    decision = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "R"}]}}
    merge = "application/merge-patch+json"
    status = await ann.refused(403, "PATCH", f"{path}/r/approval", decision, content_type=merge)
    assert 'user not permitted to approve requests with signerName "example.com/x"' in status["message"]

    signers = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": ["example.com/*"],
        "verbs": ["approve"],
    }
    await api.merge(f"{rbac}/clusterroles/decides", {"rules": [*rules, signers]})
    decided = await ann.merge(f"{path}/r/approval", decision)
    assert decided["status"]["conditions"][0]["lastUpdateTime"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "absent"}, 'pod rejected: RuntimeClass "absent" not found'),
        ({"overhead": {"cpu": "1"}}, "pod rejected: Pod Overhead set without corresponding RuntimeClass"),
        ({"runtimeClassName": "slow", "overhead": {"cpu": "1"}}, "Pod's Overhead doesn't match"),
        ({"runtimeClassName": "slow", "nodeSelector": {"kind": "fast"}}, "conflict: runtimeClass.scheduling"),
    ],
)
async def test_pods_that_do_not_fit_their_runtime_class_are_refused(
    api: Client, spec: Json, why: str
) -> None:
    slow = {
        "metadata": {"name": "slow"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "10m"}},
        "scheduling": {"nodeSelector": {"kind": "slow"}},
    }
    await api.create("/apis/node.k8s.io/v1/runtimeclasses", slow)
    body = pod("p")
    assert (
        why in (await api.refused(403, "POST", PODS, {**body, "spec": {**body["spec"], **spec}}))["message"]
    )
    fits = {**body["spec"], "runtimeClassName": "slow"}
    made = await api.create(PODS, {**body, "spec": fits})
    assert made["spec"]["overhead"] == {"cpu": "10m"}
    assert made["spec"]["nodeSelector"] == {"kind": "slow"}


async def test_fields_are_explained_in_built_in_kinds_and_custom_ones(api: Client) -> None:
    await api.create(CRDS, definition())
    pods = (await api.get("/openapi/v3/api/v1"))["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pods["description"].startswith("Pod is a collection of containers")
    assert pods["properties"]["spec"]["description"].startswith("Specification of the desired behavior")
    assert pods["properties"]["spec"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}
    ]
    schemas = (await api.get("/openapi/v3/apis/example.com/v1"))["components"]["schemas"]
    widget = schemas["com.example.v1.Widget"]["properties"]
    assert widget["apiVersion"]["description"].startswith("APIVersion defines the versioned schema")
    meta = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]
    assert meta["creationTimestamp"]["description"].startswith("CreationTimestamp is a timestamp")


async def test_openapi_v2_has_the_paths_and_definitions_of_all_kinds(api: Client) -> None:
    await api.create(CRDS, definition())

    document = await api.get("/openapi/v2")

    paths, definitions = document["paths"], document["definitions"]
    pod = paths["/api/v1/namespaces/{namespace}/pods/{name}"]["get"]
    assert pod["responses"]["200"]["schema"] == {"$ref": "#/definitions/io.k8s.api.core.v1.Pod"}
    assert {"name": "fieldManager", "in": "query", "type": "string", "uniqueItems": True} in (
        paths["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]["parameters"]
    )
    spec = definitions["io.k8s.api.core.v1.Pod"]["properties"]["spec"]
    assert spec["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    assert spec["description"].startswith("Specification of the desired behavior")
    port = definitions["io.k8s.api.core.v1.ServicePort"]["properties"]["targetPort"]["$ref"]
    named = definitions[port.removeprefix("#/definitions/")]
    assert (named["type"], named["format"]) == ("string", "int-or-string")
    assert definitions["com.example.v1.Widget"]["x-kubernetes-group-version-kind"]
    assert not [where for where in _references(document) if where.rpartition("/")[2] not in definitions]


def _references(node: Any) -> Iterator[str]:
    """Every reference of a document."""
    if isinstance(node, list):
        for part in node:
            yield from _references(part)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for part in node.values():
            yield from _references(part)
