"""Admission webhooks: who is asked, what they may change, what their failure means."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from tests.local.api.conftest import CM, Client, config_map

from mooring.local.api.tls import Certificates, ensure_certificates
from mooring.local.api.validation import discovery

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

Json = Any


@dataclass
class Hook:
    """A webhook server; `answer` makes the response of each request."""

    port: int
    certificates: Certificates
    seen: list[Json] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    answer: Callable[[Json], Json] = lambda request: {"allowed": True}

    def configuration(self, *, rules: Json = None, **options: Any) -> Json:
        bundle = base64.b64encode(self.certificates.authority.read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        hook = {
            "name": "hook.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/hook", "caBundle": bundle},
            "rules": rules or [rule],
            **options,
        }
        return {"metadata": {"name": "hooks"}, "webhooks": [hook]}


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Hook]:
    certificates = ensure_certificates(tmp_path, ["127.0.0.1", "hook.default.svc"])
    sock = socket.create_server(("127.0.0.1", 0))
    hook = Hook(sock.getsockname()[1], certificates)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        review = msgspec.json.decode(await request.read())
        hook.paths.append(request.path)
        hook.seen.append(review["request"])
        response = {"uid": review["request"]["uid"], **hook.answer(review["request"])}
        body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
        return web.json_response(body)

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    context: ssl.SSLContext = certificates.server_context()
    await web.SockSite(runner, sock, ssl_context=context).start()
    yield hook
    await runner.cleanup()


def patch(*operations: Json) -> Json:
    encoded = base64.b64encode(msgspec.json.encode(list(operations))).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


async def test_a_mutating_webhook_changes_what_is_stored(api: Client, hook: Hook) -> None:
    hook.answer = lambda request: patch({"op": "add", "path": "/data/added", "value": "yes"})
    await api.create(MUTATING, hook.configuration())

    created = await api.create(CM, config_map(x="1"))

    assert created["data"] == {"x": "1", "added": "yes"}
    request = hook.seen[0]
    assert (request["operation"], request["name"], request["namespace"]) == ("CREATE", "a", "default")
    assert request["object"]["data"] == {"x": "1"}
    assert request["oldObject"] is None
    assert request["userInfo"]["username"] == "kubernetes-admin"
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}


async def test_a_validating_webhook_refuses_with_its_own_words(api: Client, hook: Hook) -> None:
    hook.answer = lambda request: {"allowed": False, "status": {"message": "size must be odd", "code": 403}}
    await api.create(VALIDATING, hook.configuration())

    status = await api.refused(403, "POST", CM, config_map())

    assert status["message"] == 'admission webhook "hook.example.com" denied the request: size must be odd'
    await api.refused(404, "GET", CM + "/a")


async def test_webhooks_see_updates_and_deletions_with_the_old_object(api: Client, hook: Hook) -> None:
    await api.create(CM, config_map(x="1"))
    await api.create(VALIDATING, hook.configuration())
    await api.merge(CM + "/a", {"data": {"x": "2"}})
    await api.delete(CM + "/a")

    update, deletion = hook.seen
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"x": "1"}, {"x": "2"})
    assert (deletion["operation"], deletion["object"]) == ("DELETE", None)
    assert deletion["oldObject"]["data"] == {"x": "2"}


async def test_a_bundle_may_be_the_webhooks_own_certificate(api: Client, hook: Hook) -> None:
    chain = hook.certificates.certificate.read_text()
    end = "-----END CERTIFICATE-----\n"
    configuration = hook.configuration()
    bundle = base64.b64encode((chain.partition(end)[0] + end).encode()).decode()
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = bundle
    await api.create(VALIDATING, configuration)
    await api.create(CM, config_map())
    assert len(hook.seen) == 1


@pytest.mark.parametrize(("path", "asked"), [("//hook", "/hook"), ("/a//b/../c/", "/a/c"), ("/", "/")])
async def test_a_webhooks_path_is_cleaned(api: Client, hook: Hook, path: str, asked: str) -> None:
    configuration = hook.configuration()
    configuration["webhooks"][0]["clientConfig"]["url"] = f"https://127.0.0.1:{hook.port}{path}"
    await api.create(VALIDATING, configuration)
    await api.create(CM, config_map())
    assert hook.paths == [asked]


async def test_a_refused_deletion_keeps_the_object(api: Client, hook: Hook) -> None:
    await api.create(CM, config_map())
    hook.answer = lambda request: {"allowed": False}
    await api.create(VALIDATING, hook.configuration())
    status = await api.refused(400, "DELETE", CM + "/a")
    assert status["message"].endswith("denied the request without explanation")
    await api.get(CM + "/a")


async def test_warnings_of_webhooks_reach_the_client(api: Client, hook: Hook) -> None:
    hook.answer = lambda request: {"allowed": True, "warnings": ['data goes "soon"']}
    await api.create(VALIDATING, hook.configuration())
    answer = await api.send("POST", CM, config_map())
    assert answer.headers["Warning"] == r'299 - "data goes \"soon\""'


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_a_dead_webhook_counts_as_its_failure_policy_says(
    api: Client, hook: Hook, policy: str, status: int
) -> None:
    configuration = hook.configuration(failurePolicy=policy)
    configuration["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:1/hook"
    await api.create(VALIDATING, configuration)
    answer = await api.send("POST", CM, config_map())
    assert answer.status == status
    if status == 500:
        assert b'failed calling webhook \\"hook.example.com\\"' in answer.body


async def test_a_webhook_that_does_not_answer_in_time_fails(
    api: Client, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        configuration = hook.configuration(timeoutSeconds=1)
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        configuration["webhooks"][0]["clientConfig"]["url"] = url
        await api.create(VALIDATING, configuration)
        status = await api.refused(500, "POST", CM, config_map())
        assert status["message"].endswith('?timeout=1s": context deadline exceeded')
    finally:
        silent.close()


async def test_selectors_and_rules_decide_who_is_asked(api: Client, hook: Hook) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "chosen", "labels": {"team": "a"}}})
    configuration = hook.configuration(
        namespaceSelector={"matchLabels": {"team": "a"}},
        objectSelector={"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
    )
    await api.create(VALIDATING, configuration)

    chosen = "/api/v1/namespaces/chosen"
    await api.create(CM, config_map())
    await api.create(chosen + "/secrets", {"metadata": {"name": "s"}})
    await api.create(chosen + "/configmaps", {"metadata": {"name": "b", "labels": {"skip": "1"}}})
    assert hook.seen == []
    await api.create(chosen + "/configmaps", {"metadata": {"name": "c"}})
    assert [request["name"] for request in hook.seen] == ["c"]


async def test_a_service_reference_is_resolved_to_a_ready_endpoint(
    api: Client, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The hook of the tests listens where no endpoint may be: on the loopback address.
    monkeypatch.setattr(discovery, "endpoint_ip_errors", lambda _address, _path: ())
    configuration = hook.configuration()
    config = configuration["webhooks"][0]["clientConfig"]
    del config["url"]
    config["service"] = {"namespace": "default", "name": "hook", "path": "/hook", "port": 443}
    await api.create(VALIDATING, configuration)
    assert "service" in (await api.refused(500, "POST", CM, config_map()))["message"]

    ports = [{"name": "https", "port": 443, "targetPort": 8443}]
    await api.create(
        "/api/v1/namespaces/default/services", {"metadata": {"name": "hook"}, "spec": {"ports": ports}}
    )
    assert "no endpoints" in (await api.refused(500, "POST", CM, config_map()))["message"]
    endpoints = {
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": hook.port}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
    }
    await api.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", endpoints)
    await api.create(CM, config_map())
    assert len(hook.seen) == 1


async def test_a_change_made_while_a_webhook_thinks_is_not_overwritten(api: Client, hook: Hook) -> None:
    await api.create(CM, config_map())
    await api.create(VALIDATING, hook.configuration())
    changed = False

    async def change() -> None:
        await api.merge(CM + "/a", {"data": {"other": "1"}})

    tasks: list[asyncio.Task[None]] = []

    def answer(request: Json) -> Json:
        nonlocal changed
        if not changed:
            changed = True
            tasks.append(asyncio.create_task(change()))
        return {"allowed": True}

    hook.answer = answer
    await api.merge(CM + "/a", {"data": {"mine": "1"}})
    await tasks[0]
    assert (await api.get(CM + "/a"))["data"] == {"mine": "1", "other": "1"}


async def test_a_webhook_with_side_effects_is_refused_for_it_would_run_at_a_dry_run(
    api: Client, hook: Hook
) -> None:
    status = await api.refused(422, "POST", VALIDATING, hook.configuration(sideEffects="Some"))
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueNotSupported",
            "message": 'Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
            "field": "webhooks[0].sideEffects",
        }
    ]


async def test_a_webhook_refuses_to_connect_to_a_pod(api: Client, hook: Hook) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CONNECT"],
        "resources": ["pods/attach", "pods/exec", "pods/portforward"],
    }
    hook.answer = lambda request: {"allowed": False, "status": {"message": "no visitors", "code": 403}}
    await api.create(VALIDATING, hook.configuration(rules=[rule]))
    pod = "/api/v1/namespaces/default/pods/p"

    for path, query in (
        ("attach", {"stdin": "true", "container": "c"}),
        ("exec", {"command": "ls", "stdout": "1"}),
        ("portforward", {"ports": "80"}),
    ):
        status = await api.refused(403, "POST", f"{pod}/{path}", **query)
        assert status["message"] == 'admission webhook "hook.example.com" denied the request: no visitors'

    assert [request["object"] for request in hook.seen] == [
        {"kind": "PodAttachOptions", "apiVersion": "v1", "stdin": True, "container": "c"},
        {"kind": "PodExecOptions", "apiVersion": "v1", "stdout": True, "command": ["ls"]},
        {"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80]},
    ]
    first = hook.seen[0]
    assert (first["operation"], first["name"], first["subResource"]) == ("CONNECT", "p", "attach")
    assert first["kind"] == {"group": "", "version": "v1", "kind": "PodAttachOptions"}
    assert (first["oldObject"], first["options"]) == (None, None)
