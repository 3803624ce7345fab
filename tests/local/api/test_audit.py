"""The audit log, and how many requests may be under way."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.local.api.conftest import CM, Client, config_map, lines

from mooring.local.api import ApiServer, User
from mooring.local.api import server as servers
from mooring.local.api.access.authentication import ADMIN
from mooring.local.api.audit import AuditLog, Policy, PolicyError

Json = Any

ANN = User("ann", groups=("staff", "system:authenticated"))


def policy(*rules: Json, **more: Any) -> Json:
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}


@asynccontextmanager
async def audited(path: Path, *rules: Json, **more: Any) -> AsyncIterator[ApiServer]:
    """A server whose log begins after its own start, and is complete when it is closed."""
    async with ApiServer.in_memory() as server:
        server.audit = AuditLog(path, Policy.read(policy(*rules, **more)), now=server.cluster.now)
        yield server


def events(path: Path) -> list[Json]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def test_a_request_is_logged_with_all_its_stages(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with audited(
        log, {"level": "Metadata", "resources": [{"group": "", "resources": ["configmaps"]}]}
    ) as server:
        await Client(server.transport(agent="me/1")).create(CM + "?fieldManager=x", config_map(x="secret"))
        await Client(server.transport()).get("/api/v1/namespaces/default")

    received, complete = events(log)
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert received["auditID"] == complete["auditID"]
    assert complete["requestURI"] == CM + "?fieldManager=x"
    about = {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}
    assert received["objectRef"] == about
    assert complete["objectRef"] == {**about, "name": "a"}
    assert (complete["verb"], complete["userAgent"]) == ("create", "me/1")
    assert complete["user"]["username"] == "kubernetes-admin"
    assert complete["responseStatus"] == {"metadata": {}, "code": 201}
    assert complete["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert "secret" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


async def test_the_level_says_how_much_of_the_bodies_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    rules = (
        {"level": "Request", "verbs": ["create"], "omitStages": ["RequestReceived"]},
        {"level": "RequestResponse", "verbs": ["patch"], "omitStages": ["RequestReceived"]},
        {"level": "None"},
    )
    async with audited(log, *rules) as server:
        api = Client(server.transport())
        await api.create(CM, config_map(x="1"))
        await api.merge(CM + "/a", {"data": {"x": "2"}})
        await api.get(CM + "/a")

    create, patch = events(log)
    assert create["requestObject"]["data"] == {"x": "1"}
    assert "responseObject" not in create
    assert patch["requestObject"] == {"data": {"x": "2"}}
    assert patch["responseObject"]["data"] == {"x": "2"}


async def test_a_long_list_is_logged_and_sent(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    rule = {"level": "RequestResponse", "verbs": ["list"], "omitStages": ["RequestReceived"]}
    async with audited(log, rule) as server:
        api = Client(server.transport())
        for name in ("a", "b", "c"):
            await api.create(CM, config_map(name, x="y" * 300_000))
        sent = await api.get(CM)

    assert [item["metadata"]["name"] for item in sent["items"]] == ["a", "b", "c"]
    (logged,) = events(log)
    assert logged["responseObject"] == sent


async def test_a_refusal_and_an_impersonation_are_told(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with audited(log, {"level": "Metadata"}, omitStages=["RequestReceived"]) as server:
        await Client(server.transport(user=ANN)).refused(403, "GET", CM)
        headers = {"Impersonate-User": "bob"}
        await Client(server.transport()).refused(403, "GET", CM, headers=headers)

    refused, impersonated = events(log)
    assert refused["responseStatus"]["reason"] == "Forbidden"
    assert refused["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert refused["user"]["groups"] == ["staff", "system:authenticated"]
    assert impersonated["user"]["username"] == "kubernetes-admin"
    assert impersonated["impersonatedUser"]["username"] == "bob"


async def test_a_watch_is_logged_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with audited(log, {"level": "Metadata"}) as server:
        api = Client(server.transport())
        async with lines(api.stream(CM, watch="1", timeoutSeconds="1", resourceVersion="0")) as found:
            assert [line async for line in found] == []

    assert [event["stage"] for event in events(log)] == [
        "RequestReceived",
        "ResponseStarted",
        "ResponseComplete",
    ]
    assert {event["verb"] for event in events(log)} == {"watch"}


RULES: list[tuple[Json, str, bool]] = [
    ({"users": ["kubernetes-admin"]}, CM, True),
    ({"users": ["ann"]}, CM, False),
    ({"userGroups": ["system:masters"]}, CM, True),
    ({"verbs": ["list"]}, CM, True),
    ({"verbs": ["watch"]}, CM, False),
    ({"namespaces": ["default"]}, CM, True),
    ({"namespaces": [""]}, CM, False),
    ({"resources": [{"group": ""}]}, CM, True),
    ({"resources": [{"group": "apps"}]}, CM, False),
    ({"resources": [{"group": "", "resources": ["pods", "configmaps"]}]}, CM, True),
    ({"resources": [{"group": "", "resources": ["pods/*"]}]}, CM, False),
    ({"resources": [{"group": "", "resources": ["configmaps"], "resourceNames": ["a"]}]}, CM, False),
    ({"nonResourceURLs": ["/healthz*"]}, "/healthz", True),
    ({"nonResourceURLs": ["/version"]}, "/healthz", False),
    ({"nonResourceURLs": ["*"]}, CM, False),
    ({"resources": [{"group": ""}]}, "/healthz", False),
]


@pytest.mark.parametrize(("rule", "path", "logged"), RULES)
async def test_the_first_rule_that_a_request_meets_decides(
    tmp_path: Path, rule: Json, path: str, logged: bool
) -> None:
    log = tmp_path / "audit.jsonl"
    async with audited(log, {"level": "Metadata", **rule}, {"level": "None"}) as server:
        await Client(server.transport()).send("GET", path)

    assert bool(events(log)) is logged


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"kind": "Policy"}, "apiVersion must be audit.k8s.io/v1"),
        ({"kind": "Pod"}, "kind Policy"),
        (policy({"level": "All"}), r"rules\[0\].level must be one of None, Metadata"),
        (policy({"level": "None", "omitStages": ["End"]}), "End is no stage"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_with_the_reason(document: Json, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        Policy.read(document)


async def test_too_many_requests_at_once_are_told_to_come_back(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "IN_FLIGHT_LIMIT", 2)
    held = asyncio.Event()
    admin, ann = Client(server.transport()), Client(server.transport(user=ANN))
    waiting = [asyncio.create_task(_hold(server, held)) for _ in range(2)]
    async with asyncio.timeout(5):
        while server._in_flight < 2:
            await asyncio.sleep(0)

    response = await ann.send("GET", "/version")
    assert response.status == 429
    assert response.headers["Retry-After"] == "1"
    assert response.body == b"Too many requests, please try again later.\n"
    assert (await admin.send("GET", "/version")).status == 200
    held.set()
    assert {response.status for response in await asyncio.gather(*waiting)} == {201}
    assert (await ann.send("GET", "/version")).status == 200


async def test_one_user_does_not_take_the_place_of_others(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "IN_FLIGHT_PER_USER", 2)
    held = asyncio.Event()
    accounts = [
        User(f"system:serviceaccount:shop:{name}", groups=("system:authenticated",)) for name in "abc"
    ]
    waiting = [asyncio.create_task(_hold(server, held, user)) for user in accounts[:2]]
    async with asyncio.timeout(5):
        while server._in_flight < 2:
            await asyncio.sleep(0)

    assert (await Client(server.transport(user=accounts[2])).send("GET", "/version")).status == 429
    other = User("system:serviceaccount:shopping:a", groups=("system:authenticated",))
    assert (await Client(server.transport(user=other)).send("GET", "/version")).status == 200
    assert (await Client(server.transport(user=ANN)).send("GET", "/version")).status == 200
    held.set()
    await asyncio.gather(*waiting)
    assert (await Client(server.transport(user=accounts[2])).send("GET", "/version")).status == 200
    assert not server._busy


async def _hold(server: ApiServer, held: asyncio.Event, user: User = ADMIN) -> Any:
    """Send a request whose body does not end before the event is set."""
    name = base64.b32encode(id(asyncio.current_task()).to_bytes(8)).decode().strip("=").lower()

    async def body() -> bytes:
        await held.wait()
        return msgspec.json.encode(config_map(name))

    transport = server.transport(user=user)
    path = CM if user is ADMIN else "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    request = transport._request("POST", path, None, b"", {"Content-Type": "application/json"})
    request.read_body = body
    return await server.handle(request)


async def test_what_a_policy_wants_told_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "has(object.data.owner)", "message": "nobody owns it"}],
        "auditAnnotations": [
            {"key": "size", "valueExpression": "string(size(object.data))"},
            {"key": "empty", "valueExpression": "null"},
        ],
    }
    level = {"level": "Metadata", "omitStages": ["RequestReceived"], "resources": [{"group": ""}]}
    async with audited(log, level) as server:
        api = Client(server.transport())
        await api.create(group + "ies", {"metadata": {"name": "p"}, "spec": spec})
        binding = {"policyName": "p", "validationActions": ["Audit"]}
        await api.create(group + "ybindings", {"metadata": {"name": "b"}, "spec": binding})
        await api.create(CM, config_map(x="1", y="2"))

    (event,) = events(log)
    annotations = event["annotations"]
    assert annotations["p/size"] == "2"
    assert "p/empty" not in annotations
    assert msgspec.json.decode(annotations["validation.policy.admission.k8s.io/validation_failure"]) == [
        {
            "message": "nobody owns it",
            "policy": "p",
            "binding": "b",
            "expressionIndex": 0,
            "validationActions": ["Audit"],
        }
    ]
