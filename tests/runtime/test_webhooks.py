"""Webhooks: certificates that never gap, answers to every kind of request, and both kinds of API server."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from prometheus_client import CollectorRegistry, generate_latest

from mooring.kube import AlreadyExists, ApiError, Client, Config, Conflict, HttpTransport, Key, MergePatch
from mooring.kube.objects.admissionregistration import (
    MutatingWebhookConfiguration,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
)
from mooring.kube.objects.core import ConfigMap, Namespace, Secret, Service, ServicePort, ServiceSpec
from mooring.kube.objects.discovery import Endpoint, EndpointPort, EndpointSlice
from mooring.kube.objects.meta import LabelSelector, ObjectMeta
from mooring.kube.transport import Response
from mooring.local.api.server import ApiServer
from mooring.local.api.validation import discovery
from mooring.runtime import SystemClock
from mooring.runtime.webhooks import Allow, Change, Refuse, Review, Verdict, Webhook, WebhookServer
from mooring.runtime.webhooks_certificates import CertificateError, Certificates, Lifetimes, renewed
from mooring.runtime.webhooks_keeper import Registration, WebhookKeeper

NAMES = ["hooks.mooring-system.svc", "127.0.0.1"]
BIRTH = datetime(2030, 1, 1, tzinfo=UTC)
LIFE = Lifetimes()
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


def made(now: datetime = BIRTH, names: Sequence[str] = NAMES) -> Certificates:
    return renewed(None, names=names, now=now, lifetimes=LIFE)


def step(found: Certificates, now: datetime, **how: Any) -> Certificates:
    return renewed(found, **{"names": NAMES, "now": now, "lifetimes": LIFE, **how})


def trusts(bundle: bytes, served: Certificates, now: datetime) -> bool:
    """Whether a client with this bundle accepts what is served, at that time."""
    store = Store(x509.load_pem_x509_certificates(bundle))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(NAMES[0]))
    try:
        verifier.verify(served.serving, [])
    except VerificationError:
        return False
    return True


# --- certificates ------------------------------------------------------------------------------------------


def test_for_three_years_every_client_trusts_what_any_replica_serves() -> None:
    found = made()
    now = changed = BIRTH
    steps = 0
    while now < BIRTH + 3 * 365 * DAY:
        before, found = found, step(found, now)
        if found is not before:
            steps, changed = steps + 1, now
        # For half an hour a client may not have been told, and a replica may not have reloaded.
        for bundle in (before.bundle, found.bundle):
            assert trusts(bundle, before, now), now
            assert trusts(bundle, found, now), now
        # While no operator leads nothing is renewed: what is served must last as long as it says.
        (signer,) = [one for one in found.authorities if one.subject == found.serving.issuer]
        assert found.serving.not_valid_after_utc <= signer.not_valid_after_utc, now
        now += HOUR / 2 if now - changed < 4 * HOUR else 12 * HOUR
    assert steps > 3 * 365 / 90


def test_at_rest_the_certificates_are_the_very_same() -> None:
    found = made()
    assert step(found, BIRTH + 59 * DAY) is found


def test_a_serving_certificate_is_renewed_with_a_third_of_its_life_left() -> None:
    found = made()
    after = step(found, BIRTH + 61 * DAY)
    assert after.serving != found.serving
    assert after.authorities == found.authorities


def test_a_new_authority_signs_only_when_every_configuration_carries_it_and_had_time_to_spread() -> None:
    found = step(made(), BIRTH + 200 * DAY)
    now = BIRTH + (365 - 120) * DAY + MINUTE
    two = step(found, now)
    assert len(two.authorities) == 2
    assert two.serving == found.serving
    assert step(two, now + 59 * MINUTE).serving == two.serving, "it had no time to spread"
    assert step(two, now + 2 * HOUR, trusted=False) is two, "a configuration does not carry it"
    assert step(two, now + 61 * MINUTE).serving.issuer == two.authorities[0].subject


def test_the_old_authority_stays_until_every_replica_serves_the_new_certificate() -> None:
    now = BIRTH + 246 * DAY
    two = step(made(), now)
    signed = step(two, now + 2 * HOUR)
    assert len(step(signed, now + 2 * HOUR + 59 * MINUTE).authorities) == 2
    assert step(signed, now + 3 * HOUR + MINUTE).authorities == (signed.authorities[0],)


def test_another_host_name_gets_a_certificate_at_once_from_the_same_authority() -> None:
    found = made(names=["other.svc"])
    after = step(found, BIRTH + MINUTE)
    assert after.authorities == found.authorities
    assert trusts(after.bundle, after, BIRTH + MINUTE)


def test_after_a_long_sleep_everything_is_made_anew() -> None:
    now = BIRTH + 400 * DAY
    after = step(made(), now)
    assert trusts(after.bundle, after, now)


def test_a_secret_holds_all_of_it_and_a_broken_one_is_named() -> None:
    found = made()
    data = found.to_secret()
    again = Certificates.from_secret(data)
    assert (again.authorities, again.serving) == (found.authorities, found.serving)
    for broken, named in (
        ({**data, "tls.key": made().to_secret()["tls.key"]}, "belong together"),
        ({name: value for name, value in data.items() if name != "ca.key"}, "ca.key"),
        ({**data, "tls.crt": "!"}, "tls.crt"),
        ({**data, "ca.crt": base64.b64encode(b"nonsense").decode()}, "PEM"),
        (None, "ca.crt"),
    ):
        with pytest.raises(CertificateError, match=named):
            Certificates.from_secret(broken)


def test_lifetimes_that_would_leave_a_gap_are_refused() -> None:
    with pytest.raises(ValueError, match="outlive its authority"):
        Lifetimes(serving=timedelta(days=200))


# --- the server, asked directly ----------------------------------------------------------------------------


class Shifted(SystemClock):
    """The machine's clock, put back or forward."""

    def __init__(self, shift: timedelta = timedelta()) -> None:
        self.shift = shift

    def now(self) -> datetime:
        return super().now() + self.shift


class Asked:
    """A webhook server on loopback, and a client that trusts it as an API server does."""

    def __init__(self, server: WebhookServer, certificates: Certificates) -> None:
        self.server = server
        context = ssl.create_default_context(cadata=certificates.bundle.decode())
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))

    async def post(self, body: Any, *, path: str = "", timeout: str = "", **headers: str) -> tuple[int, str]:
        path = path or self.server.hooks[0].path
        url = f"https://127.0.0.1:{self.server.port}{path}"
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.session.post(
            url,
            data=data,
            params={"timeout": timeout} if timeout else None,
            headers={"Content-Type": "application/json", **headers},
        ) as answer:
            return answer.status, await answer.text()

    async def review(self, **request: Any) -> dict[str, Any]:
        status, text = await self.post(admission(**request))
        assert status == 200, text
        response: dict[str, Any] = msgspec.json.decode(text)["response"]
        return response


def admission(**request: Any) -> dict[str, Any]:
    thing = {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "1"}, "surplus": {"kept": 1}}
    asked = {
        "uid": "u-1",
        "operation": "CREATE",
        "name": "a",
        "namespace": "default",
        "object": thing,
        **request,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


@asynccontextmanager
async def serving(
    review: Callable[[Review[ConfigMap]], Awaitable[Verdict]], **options: Any
) -> AsyncIterator[Asked]:
    """One webhook on a free port, with a certificate of a Secret on an API server in memory."""
    mutating = options.pop("mutating", False)
    server = WebhookServer(
        [Webhook(ConfigMap, review, mutating=mutating, timeout=options.pop("seconds", 5))],
        host="127.0.0.1",
        port=0,
        **options,
    )
    certificates = made(datetime.now(UTC))
    secret = Secret(
        metadata=ObjectMeta(name="certificates", namespace="default"), data=certificates.to_secret()
    )
    async with ApiServer.in_memory() as api:
        client = Client(api.transport())
        await client.create(secret)
        task = asyncio.create_task(server.serve(client, Key("default", "certificates")))
        try:
            await until(lambda: server.listening)
            asked = Asked(server, certificates)
            try:
                yield asked
            finally:
                await asked.session.close()
        finally:
            await ended(task)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < deadline, "the condition did not hold in time"
        await asyncio.sleep(0.01)


async def test_a_refusal_has_its_message_its_fields_and_its_warnings() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Refuse("data.x: must be even; give 2", causes=(("data.x", "must be even"),), warnings=("odd",))

    async with serving(review) as asked:
        response = await asked.review()
    assert response["allowed"] is False
    assert response["uid"] == "u-1"
    assert response["status"]["message"] == "data.x: must be even; give 2"
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    assert response["status"]["details"]["causes"][0]["field"] == "data.x"
    assert response["warnings"] == ["odd"]


async def test_a_handler_sees_who_asks_for_what_with_unknown_fields_in_it() -> None:
    seen: list[Review[ConfigMap]] = []

    async def review(asked: Review[ConfigMap]) -> Verdict:
        seen.append(asked)
        return Refuse("no")

    user = {"username": "alice", "groups": ["dev"]}
    async with serving(review) as asked:
        response = await asked.review(
            operation="DELETE", object=None, oldObject={"surplus": 1}, userInfo=user, dryRun=True
        )
    assert response["status"]["code"] == 403
    (one,) = seen
    assert (one.operation, one.key, one.user, one.groups) == (
        "DELETE",
        Key("default", "a"),
        "alice",
        ("dev",),
    )
    assert (one.object, one.old, one.dry_run) == (None, {"surplus": 1}, True)
    assert one.typed() is None


async def test_a_change_is_sent_as_the_smallest_json_patch_and_leaves_unknown_fields_alone() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Change(
            {"data": {"x": "1", "y/z~": "2"}, "metadata": {"labels": {"a": "b", "c": None}}, "nosuch": None}
        )

    async with serving(review, mutating=True) as asked:
        response = await asked.review()
    assert response["patchType"] == "JSONPatch"
    assert msgspec.json.decode(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/data/y~1z~0", "value": "2"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]


async def test_a_change_that_changes_nothing_sends_no_patch() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Change({"data": {"x": "1"}})

    async with serving(review, mutating=True) as asked:
        assert "patch" not in await asked.review()


async def test_warnings_fit_a_header_and_the_limits_of_the_api_server() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Allow("two\nlines", "x" * 1000, *(str(n) for n in range(100)))

    async with serving(review) as asked:
        warnings = (await asked.review())["warnings"]
    assert warnings[0] == "two lines"
    assert len(warnings[1]) == 256
    assert sum(map(len, warnings)) < 4096


async def test_a_handler_that_fails_answers_an_error_without_its_text_and_harms_nobody() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        if asked.key.name == "bad":
            raise RuntimeError("password is hunter2")
        return Allow()

    async with serving(review) as asked:
        status, text = await asked.post(admission(name="bad"))
        assert status == 500
        assert "RuntimeError" in text
        assert "hunter2" not in text
        assert (await asked.review())["allowed"] is True
        registry = CollectorRegistry()
        asked.server.metrics.register(registry)
        shown = generate_latest(registry).decode()
    label = 'webhook="/validate/core/v1/configmaps"'
    assert f'controller_runtime_webhook_requests_total{{code="500",{label}}} 1.0' in shown
    assert f'controller_runtime_webhook_requests_total{{code="200",{label}}} 1.0' in shown
    assert f"controller_runtime_webhook_requests_in_flight{{{label}}} 0.0" in shown
    assert f"controller_runtime_webhook_latency_seconds_count{{{label}}} 2.0" in shown
    assert "controller_runtime_webhook_panics_total 1.0" in shown
    assert "certwatcher_read_certificate_total 1.0" in shown


async def test_a_handler_that_hangs_is_answered_for_within_the_callers_time_while_others_are_served() -> None:
    hangs = asyncio.Event()

    async def review(asked: Review[ConfigMap]) -> Verdict:
        if asked.key.name == "slow":
            hangs.set()
            await asyncio.Event().wait()
        return Allow()

    async with serving(review) as asked:
        started = time.monotonic()
        slow = asyncio.create_task(asked.post(admission(name="slow"), timeout="4000ms"))
        await hangs.wait()
        assert (await asked.review())["allowed"] is True
        assert not slow.done()
        status, text = await slow
        assert status == 504
        assert "3.6 s" in text
        assert time.monotonic() - started < 7


@pytest.mark.parametrize(
    ("body", "headers", "status", "told"),
    [
        (b"{", {}, 400, "not an AdmissionReview"),
        (b"{}", {}, 400, "not an AdmissionReview"),
        ({**admission(), "apiVersion": "admission.k8s.io/v1beta1"}, {}, 400, "admission.k8s.io/v1"),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, {}, 400, "no request"),
        (admission(operation="DANCE"), {}, 400, "operation"),
        (admission(), {"Content-Type": "text/yaml"}, 415, "application/json"),
        (admission(name="x" * 5000), {}, 413, "4096 bytes"),
    ],
)
async def test_what_is_no_review_is_answered_with_the_reason(
    body: Any, headers: dict[str, str], status: int, told: str
) -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Allow()

    async with serving(review, body_limit=4096) as asked:
        answered, text = await asked.post(body, **headers)
        assert (answered, told in text) == (status, True), text
        assert (await asked.review())["allowed"] is True


async def test_an_object_its_type_cannot_read_passes_with_a_warning_that_names_the_field() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        asked.typed()
        return Refuse("never reached")

    async with serving(review) as asked:
        response = await asked.review(object={"data": {"x": 1}})
    assert response["allowed"] is True
    assert "data" in response["warnings"][0]


async def test_a_validating_webhook_that_wants_to_change_is_an_error() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Change({"data": {"x": "2"}})

    async with serving(review) as asked:
        status, _ = await asked.post(admission())
    assert status == 500


def open_connection(asked: Asked) -> object:
    connector: Any = asked.session.connector
    (idle,) = connector._conns.values()
    return idle[0][0].transport


async def test_a_new_certificate_is_served_at_once_and_drops_no_connection() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Allow()

    async with serving(review) as asked:
        await asked.review()
        kept = open_connection(asked)
        fresh = made(datetime.now(UTC))
        asked.server.use(fresh)
        await asked.review()
        assert open_connection(asked) is kept, "the connection was given up"
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", asked.server.port, ssl=anybody)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        assert x509.load_der_x509_certificate(shown) == fresh.serving


async def test_a_server_that_stops_waits_for_no_client_that_keeps_its_connection() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Allow()

    def connect(port: int) -> socket.socket:
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        idle = anybody.wrap_socket(socket.create_connection(("127.0.0.1", port)))
        path = "/nothing"
        idle.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert idle.recv(65536).startswith(b"HTTP/1.1 404")
        return socket.socket(fileno=idle.detach())  # from here on without TLS: it never ends its side

    def until_the_end(idle: socket.socket) -> None:
        idle.settimeout(5)
        with suppress(ConnectionResetError):
            while idle.recv(65536):
                continue

    async with serving(review) as asked:
        idle = await asyncio.to_thread(connect, asked.server.port)
        with idle:
            await asked.server.stop()
            await asyncio.to_thread(until_the_end, idle)


async def test_a_broken_secret_leaves_the_certificate_in_use_and_is_counted() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Allow()

    async with serving(review) as asked:
        server = asked.server
        broken = Secret(metadata=ObjectMeta(name="certificates"), data={"tls.crt": "!"})
        assert server._read(broken) is False
        assert (await asked.review())["allowed"] is True
        assert server.metrics.read_errors._value.get() == 1


async def test_a_server_that_cannot_answer_says_why_to_the_readiness_probe() -> None:
    async def review(asked: Review[ConfigMap]) -> Verdict:
        return Allow()

    clock = Shifted()
    server = WebhookServer([], clock=clock)
    assert "no certificate yet" in server.trouble()
    server.use(made(datetime.now(UTC)))
    assert "not open" in server.trouble()
    async with serving(review, clock=clock) as asked:
        assert asked.server.trouble() == ""
        clock.shift = 91 * DAY
        assert "has ended" in asked.server.trouble()


def test_a_taken_port_is_named() -> None:
    first = WebhookServer([], host="127.0.0.1", port=0)
    port = first.bind()
    first._socket.listen()  # type: ignore[union-attr]
    with pytest.raises(OSError, match=str(port)):
        WebhookServer([], host="127.0.0.1", port=port).bind()
    first._socket.close()  # type: ignore[union-attr]


def test_a_registration_needs_a_service_or_an_https_url() -> None:
    for wrong in ({}, {"url": "http://a:1"}, {"url": "https://a", "service": Key("a", "b")}):
        with pytest.raises(ValueError, match="webhooks:"):
            Registration(name="hooks", **wrong)
    assert Registration(name="hooks", service=Key("ns", "svc")).names[0] == "svc.ns.svc"
    assert Registration(name="hooks", url="https://[::1]:9443").names == ["::1"]


# --- with an API server ------------------------------------------------------------------------------------


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """The embedded API server in this process, and a real kube-apiserver."""
    if request.param == "embedded":
        async with ApiServer.in_memory() as server:
            yield Client(server.transport())
        return
    client = Client(HttpTransport(Config.load(request.getfixturevalue("real_kubernetes"))))
    yield client
    await client.close()


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"webhooks-{uuid.uuid4().hex[:8]}"
    await client.create(Namespace(metadata=ObjectMeta(name=name, labels={"webhooks": name})))
    yield name
    for kind in (ValidatingWebhookConfiguration, MutatingWebhookConfiguration):
        with suppress(ApiError):
            await client.delete(kind, name)
    await client.delete(Namespace, name)


#: Certificates that are valid now although they are made and renewed at other times.
LONG = Lifetimes(
    authority=timedelta(days=4000),
    authority_left=timedelta(days=3900),
    serving=timedelta(days=3800),
    serving_left=timedelta(days=3700),
)


async def colours(asked: Review[ConfigMap]) -> Verdict:
    """Refuses red, warns of green, fails at broken."""
    colour = ((asked.object or {}).get("data") or {}).get("colour", "")
    if colour == "red":
        return Refuse("data.colour: red is taken; choose another", causes=(("data.colour", "taken"),))
    if colour == "broken":
        raise RuntimeError("a bug")
    return Allow(f"data.colour: {colour} will fade") if colour == "green" else Allow()


async def painted(asked: Review[ConfigMap]) -> Verdict:
    """Gives what has no colour the default one."""
    data = (asked.object or {}).get("data") or {}
    return Allow() if "colour" in data else Change({"data": {"colour": "blue"}})


class Deployed:
    """Replicas of a process with webhooks; the first leads. All are selected by the namespace's label."""

    def __init__(self, client: Client, namespace: str, stack: AsyncExitStack) -> None:
        self.client = client
        self.namespace = namespace
        self.clock = Shifted(-300 * DAY)
        self.servers: list[WebhookServer] = []
        self._stack = stack

    def hooks(self, policy: Any = "Fail") -> list[Webhook[Any]]:
        return [
            Webhook(ConfigMap, colours, failure_policy=policy),
            Webhook(ConfigMap, painted, mutating=True, operations=("CREATE",), failure_policy=policy),
        ]

    @property
    def secret(self) -> Key:
        return Key(self.namespace, "mooring-webhooks")

    def task(self, work: Any) -> None:
        self._stack.push_async_callback(ended, asyncio.create_task(work))

    def replica(self, hooks: list[Webhook[Any]]) -> WebhookServer:
        server = WebhookServer(hooks, host="127.0.0.1", port=0, clock=self.clock)
        server.bind()
        self.servers.append(server)
        self.task(server.serve(self.client, self.secret))
        return server

    def keeper(self, hooks: list[Webhook[Any]], **how: Any) -> WebhookKeeper:
        registration = Registration(
            name=self.namespace, url=f"https://127.0.0.1:{self.servers[0].port}", **how
        )
        return Narrow(
            self.client,
            hooks,
            secret=self.secret,
            registration=registration,
            clock=self.clock,
            lifetimes=LONG,
            period=0.02,
        )

    async def start(self, policy: Any = "Fail") -> None:
        hooks = self.hooks(policy)
        self.replica(hooks)
        self.task(self.keeper(hooks).run())
        await until(lambda: self.servers[0].listening)
        await until(lambda: self.works())

    async def works(self) -> bool:
        """The API server asks us by now: the default is filled in and red is refused."""
        made: dict[str, Any] = {}
        try:
            made = await self.send("probe", {})
            await self.send("probe", {"colour": "red"})
        except ApiError as error:
            return "red is taken" in str(error) and (made.get("data") or {}).get("colour") == "blue"
        return False

    async def send(self, name: str, data: dict[str, str]) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.json.decode((await self.dry_run(name, data)).body)
        return body

    async def dry_run(self, name: str, data: dict[str, str]) -> Response:
        body = {"metadata": {"name": name}, "data": data}
        path = ConfigMap.resource.path(namespace=self.namespace)
        return await self.client.request(
            "POST", path, query={"dryRun": "All"}, body=msgspec.json.encode(body)
        )

    async def certificates(self) -> Certificates:
        secret = await self.client.get(Secret, self.secret.name, namespace=self.namespace)
        return Certificates.from_secret(secret.data)

    async def registered(self) -> bytes:
        found = await self.client.get(ValidatingWebhookConfiguration, self.namespace)
        config = (found.webhooks or [])[0].client_config
        return base64.b64decode((config and config.ca_bundle) or "")


class Narrow(WebhookKeeper):
    """Registers for one namespace only: other tests use the same server."""

    def __init__(self, client: Client, hooks: Sequence[Webhook[Any]], **how: Any) -> None:
        super().__init__(client, hooks, **how)
        registration = how["registration"]

        class Selecting(Registration):
            def configurations(self, hooks: Any, bundle: bytes) -> Any:
                selector = LabelSelector(match_labels={"webhooks": self.name})
                return [
                    msgspec.structs.replace(
                        one,
                        webhooks=[
                            msgspec.structs.replace(entry, namespace_selector=selector)
                            for entry in one.webhooks or ()
                        ],
                    )
                    for one in Registration.configurations(self, hooks, bundle)
                ]

        self._registration = Selecting(
            name=registration.name, url=registration.url, inject_only=registration.inject_only
        )


@pytest.fixture
async def deployed(client: Client, namespace: str) -> AsyncIterator[Deployed]:
    async with AsyncExitStack() as stack:
        yield Deployed(client, namespace, stack)


async def test_the_api_server_refuses_changes_and_warns_as_the_webhooks_say(deployed: Deployed) -> None:
    await deployed.start()

    with pytest.raises(ApiError) as refused:
        await deployed.send("a", {"colour": "red"})
    assert refused.value.status == 422
    assert "denied the request: data.colour: red is taken; choose another" in str(refused.value)
    assert (await deployed.send("a", {}))["data"] == {"colour": "blue"}
    warned = await deployed.dry_run("a", {"colour": "green"})
    assert "data.colour: green will fade" in dict(warned.headers).get("Warning", "")


async def test_a_bug_in_a_handler_refuses_or_passes_as_the_failure_policy_says(deployed: Deployed) -> None:
    await deployed.start()
    with pytest.raises(ApiError) as refused:
        await deployed.send("a", {"colour": "broken"})
    assert refused.value.status == 500

    patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    path = ValidatingWebhookConfiguration.resource.path(name=deployed.namespace)
    await deployed.client.request(
        "PATCH", path, body=msgspec.json.encode(patch), content_type="application/json-patch+json"
    )

    async def restored() -> bool:
        found = await deployed.client.get(ValidatingWebhookConfiguration, deployed.namespace)
        return (found.webhooks or [])[0].failure_policy == "Fail"

    await until(restored)


async def test_certificates_rotate_while_requests_run_and_none_of_them_fails(deployed: Deployed) -> None:
    await deployed.start()
    second = deployed.replica(deployed.hooks())
    await until(lambda: second.listening)
    sent = 0
    failures: list[str] = []

    async def load() -> None:
        nonlocal sent
        while True:
            try:
                await deployed.send("load", {})
            except ApiError as error:
                failures.append(str(error))
            sent += 1
            await asyncio.sleep(0)

    async def more(count: int = 40) -> None:
        """Requests go on for a while: the API server has taken over what it was told."""
        enough = sent + count
        await until(lambda: sent >= enough)

    for _ in range(3):
        deployed.task(load())
    first = await deployed.certificates()
    await more()

    deployed.clock.shift += 101 * DAY
    await until(lambda: said(deployed, lambda c: len(c.authorities) == 2))
    assert (await deployed.certificates()).serving == first.serving, "signed before anybody could trust it"
    bundle = (await deployed.certificates()).bundle
    await until(lambda: carries(deployed, bundle))
    await more()

    deployed.clock.shift += 61 * MINUTE
    await until(lambda: said(deployed, lambda c: c.serving.issuer == c.authorities[0].subject))
    served = (await deployed.certificates()).serving
    await until(
        lambda: all(one.serving is not None and one.serving.serving == served for one in deployed.servers)
    )
    await more()

    deployed.clock.shift += 61 * MINUTE
    await until(lambda: said(deployed, lambda c: len(c.authorities) == 1))
    last = await deployed.certificates()
    await until(lambda: carries(deployed, last.bundle))
    await more()

    assert last.authorities[0] != first.authorities[0]
    assert failures == []
    assert await deployed.works()


async def said(deployed: Deployed, check: Callable[[Certificates], bool]) -> bool:
    return check(await deployed.certificates())


async def carries(deployed: Deployed, bundle: bytes) -> bool:
    return await deployed.registered() == bundle


async def test_of_two_replicas_that_start_at_once_one_makes_the_certificates(deployed: Deployed) -> None:
    hooks = deployed.hooks()
    one, two = deployed.replica(hooks), deployed.replica(hooks)
    keepers = [deployed.keeper(hooks) for _ in range(2)]

    await asyncio.gather(*(keeper.look() for keeper in keepers))

    await until(lambda: one.serving is not None and two.serving is not None)
    assert one.serving is not None
    assert two.serving is not None
    held = await deployed.certificates()
    assert one.serving.serving == two.serving.serving == held.serving
    assert await deployed.registered() == held.bundle


async def test_of_two_replicas_that_rotate_at_once_one_wins_and_the_other_reads(deployed: Deployed) -> None:
    hooks = deployed.hooks()
    deployed.replica(hooks)
    keepers = [deployed.keeper(hooks) for _ in range(2)]
    await keepers[0].look()
    deployed.clock.shift += 101 * DAY

    await asyncio.gather(*(keeper.look() for keeper in keepers))

    assert len((await deployed.certificates()).authorities) == 2


async def test_what_another_replica_wrote_meanwhile_is_not_overwritten(deployed: Deployed) -> None:
    hooks = deployed.hooks()
    deployed.replica(hooks)
    late, fast = (deployed.keeper(hooks) for _ in range(2))
    none, _ = await late._read()
    assert none is None
    await fast.look()
    mine = made(deployed.clock.now())
    with pytest.raises(AlreadyExists):
        await late._write(none, mine)

    seen, _ = await late._read()
    deployed.clock.shift += 101 * DAY
    await fast.look()
    with pytest.raises(Conflict):
        await late._write(seen, mine)
    assert len((await deployed.certificates()).authorities) == 2


async def test_nothing_is_signed_by_an_authority_that_a_configuration_does_not_carry(
    deployed: Deployed,
) -> None:
    hooks = deployed.hooks()
    deployed.replica(hooks)
    keeper = deployed.keeper(hooks, inject_only=True)
    await keeper.look()
    first = (await deployed.certificates()).authorities[0]
    deployed.clock.shift += 101 * DAY
    await keeper.look()
    deployed.clock.shift += 61 * MINUTE
    await keeper.look()

    now = await deployed.certificates()
    assert len(now.authorities) == 2
    assert now.serving.issuer == first.subject


async def test_at_rest_nothing_is_written(deployed: Deployed) -> None:
    hooks = deployed.hooks()
    deployed.replica(hooks)
    keeper = deployed.keeper(hooks)
    await keeper.look()

    async def versions() -> list[str | None]:
        secret = await deployed.client.get(Secret, deployed.secret.name, namespace=deployed.namespace)
        found = await deployed.client.get(ValidatingWebhookConfiguration, deployed.namespace)
        return [secret.metadata.resource_version, found.metadata.resource_version]

    before = await versions()
    transport = keeper._client.transport
    written: list[str] = []

    class Watched:
        async def request(self, method: str, path: str, **options: Any) -> Response:
            if method != "GET":
                written.append(f"{method} {path}")
            return await transport.request(method, path, **options)

    keeper._client = Client(Watched())  # type: ignore[arg-type]
    for _ in range(3):
        await keeper.look()
    assert written == []
    assert await versions() == before


async def test_a_spoilt_secret_is_made_anew(deployed: Deployed) -> None:
    await deployed.start()
    patch = MergePatch({"data": {"tls.crt": base64.b64encode(b"nonsense").decode()}})
    await deployed.client.patch(Secret, deployed.secret.name, patch, namespace=deployed.namespace)

    async def sound() -> bool:
        try:
            held = await deployed.certificates()
        except CertificateError:
            return False
        serving = deployed.servers[0].serving
        return serving is not None and serving.serving == held.serving

    await until(sound)
    await until(lambda: deployed.works())


async def test_into_a_charts_configuration_only_our_own_bundles_are_injected(deployed: Deployed) -> None:
    hooks = [one for one in deployed.hooks() if not one.mutating]
    server = deployed.replica(hooks)
    keeper = deployed.keeper(hooks, inject_only=True)
    await keeper.look()
    with pytest.raises(ApiError):
        await deployed.registered()

    (theirs,) = Registration(name=deployed.namespace, url=f"https://127.0.0.1:{server.port}").configurations(
        hooks, b""
    )
    entry = (theirs.webhooks or [])[0]
    assert isinstance(entry, ValidatingWebhook)
    bare = msgspec.structs.replace(entry.client_config, ca_bundle=None) if entry.client_config else None
    selector = LabelSelector(match_labels={"webhooks": deployed.namespace})
    entry = msgspec.structs.replace(entry, client_config=bare, namespace_selector=selector, timeout_seconds=3)
    other = msgspec.structs.replace(entry, name="somebody.else.example", failure_policy="Ignore")
    await deployed.client.as_manager("helm").apply(
        ValidatingWebhookConfiguration(metadata=theirs.metadata, webhooks=[entry, other])
    )

    await keeper.look()

    assert await deployed.registered() == (await deployed.certificates()).bundle
    path = ValidatingWebhookConfiguration.resource.path(name=deployed.namespace)
    raw = msgspec.json.decode((await deployed.client.request("GET", path)).body)
    ours, foreign = raw["webhooks"]
    assert "caBundle" not in foreign["clientConfig"]
    assert ours["timeoutSeconds"] == 3
    (owned,) = [
        m["fieldsV1"]["f:webhooks"]
        for m in raw["metadata"]["managedFields"]
        if m["manager"] == "mooring-webhooks"
    ]
    assert set(owned) == {f'k:{{"name":"{entry.name}"}}'}
    below = owned[f'k:{{"name":"{entry.name}"}}']
    assert set(below) - {".", "f:name"} == {"f:clientConfig"}
    assert set(below["f:clientConfig"]) == {"f:caBundle"}


async def test_an_operator_in_the_cluster_is_reached_by_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the embedded server: a real one would need the cluster's network. The name in the certificate counts."""
    # The replica of the test listens where no endpoint may be: on the loopback address.
    monkeypatch.setattr(discovery, "endpoint_ip_errors", lambda _address, _path: ())
    async with ApiServer.in_memory() as api, AsyncExitStack() as stack:
        client = Client(api.transport())
        deployed = Deployed(client, "default", stack)
        hooks = deployed.hooks()
        server = deployed.replica(hooks)
        await client.create(
            Service(
                metadata=ObjectMeta(name="hooks", namespace="default"),
                spec=ServiceSpec(ports=[ServicePort(name="webhooks", port=443, target_port=server.port)]),
            )
        )
        await client.create(
            EndpointSlice(
                metadata=ObjectMeta(
                    name="hooks-1", namespace="default", labels={"kubernetes.io/service-name": "hooks"}
                ),
                address_type="IPv4",
                endpoints=[Endpoint(addresses=["127.0.0.1"])],
                ports=[EndpointPort(name="webhooks", port=server.port, protocol="TCP")],
            )
        )
        registration = Registration(name="hooks", service=Key("default", "hooks"))
        keeper = WebhookKeeper(
            client,
            hooks,
            secret=deployed.secret,
            registration=registration,
            clock=deployed.clock,
            lifetimes=LONG,
        )
        deployed.task(keeper.run())
        await until(lambda: server.listening)
        await until(lambda: deployed.works())
        with pytest.raises(ApiError, match="red is taken"):
            await deployed.send("a", {"colour": "red"})


async def test_a_bundle_that_somebody_takes_away_is_put_back(deployed: Deployed) -> None:
    await deployed.start()
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    path = ValidatingWebhookConfiguration.resource.path(name=deployed.namespace)
    await deployed.client.request(
        "PATCH", path, body=msgspec.json.encode(patch), content_type="application/json-patch+json"
    )
    bundle = (await deployed.certificates()).bundle
    await until(lambda: carries(deployed, bundle))
