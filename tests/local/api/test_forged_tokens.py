"""Bearer tokens that nobody was given are refused over HTTP: forged, changed, of other servers, out of time, orphaned."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
import msgspec
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from tests.local.api.conftest import PODS, Client, pod

from mooring.local.api import ApiServer
from mooring.local.api.access.tokens import ISSUER, Authority

Json = Any

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ME = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
ANN = "system:serviceaccount:default:ann"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = 3600
ES256: Final = {"alg": "ES256"}


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def signing_input(header: Json, payload: Json) -> str:
    return encoded(msgspec.json.encode(header)) + "." + encoded(msgspec.json.encode(payload))


def es256(signed: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def jwt(header: Json, payload: Json, key: ec.EllipticCurvePrivateKey) -> str:
    signed = signing_input(header, payload)
    return f"{signed}.{encoded(es256(signed, key))}"


@dataclass
class Plane:
    """A server whose key and clock the test holds, reached over HTTP."""

    server: ApiServer
    api: Client
    url: str
    session: aiohttp.ClientSession
    key: ec.EllipticCurvePrivateKey
    clock: list[datetime]
    uid: str
    stranger: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    async def given(self, **spec: Json) -> str:
        """A token that the server gives."""
        body = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        token: str = (await self.api.create(f"{ACCOUNTS}/ann/token", body))["status"]["token"]
        return token

    def claims(self, **changed: Json) -> Json:
        """What the server writes into a token of ann, with some of it changed; None takes it out."""
        now = int(NOW.timestamp())
        payload = {
            "aud": [ISSUER],
            "exp": now + HOUR,
            "iat": now,
            "iss": ISSUER,
            "jti": "one",
            "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "ann", "uid": self.uid}},
            "nbf": now,
            "sub": ANN,
        } | changed
        return {name: value for name, value in payload.items() if value is not None}

    def about(self, **changed: Json) -> Json:
        return {"namespace": "default", "serviceaccount": {"name": "ann", "uid": self.uid}} | changed

    async def ask(self, authorization: str | None, **headers: str) -> tuple[int, str]:
        """The status and the user that the server takes the sender of these headers for."""
        sent = {**headers, **({"Authorization": authorization} if authorization is not None else {})}
        async with self.session.post(self.url + WHO, json=ME, headers=sent) as answer:
            body = await answer.json(content_type=None)
            return answer.status, body["status"]["userInfo"]["username"] if answer.status == 201 else ""


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    pem, clock = Authority.new_key(), [NOW]
    async with ApiServer.in_memory(service_account_key=pem, now=lambda: clock[0]) as server:
        sock = socket.create_server(("127.0.0.1", 0))
        await server.serve(sock, None)
        api = Client(server.transport())
        made = await api.create(ACCOUNTS, {"metadata": {"name": "ann"}})
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            yield Plane(server, api, url, session, private(pem), clock, made["metadata"]["uid"])


async def refused(plane: Plane, token: str) -> None:
    """Over HTTP it is 401, whatever is asked for, and a review calls it no user."""
    assert await plane.ask(f"Bearer {token}") == (401, "")
    for path in ("/healthz", "/api/v1/secrets", "/no/such/path"):
        async with plane.session.get(
            plane.url + path, headers={"Authorization": f"Bearer {token}"}
        ) as answer:
            assert answer.status == 401
            assert token not in await answer.text()
    status = (await plane.api.create(REVIEWS, {"spec": {"token": token or " "}}))["status"]
    assert not status.get("authenticated")
    assert status["user"] == {}


# --- the forgeries would work, but for what is forged ---------------------------------------------------


async def test_what_the_server_gives_and_what_its_key_signs_is_ann(plane: Plane) -> None:
    for token in (await plane.given(), jwt(ES256, plane.claims(), plane.key)):
        assert await plane.ask(f"Bearer {token}") == (201, ANN)


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "bEaReR"])
async def test_the_word_bearer_is_read_in_any_case(plane: Plane, scheme: str) -> None:
    assert await plane.ask(f"{scheme} {await plane.given()}") == (201, ANN)
    assert await plane.ask(f"{scheme} forged") == (401, "")


# --- signatures -----------------------------------------------------------------------------------------

ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def numbers(r: int, s: int) -> bytes:
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def unsigned(alg: str, signature: bytes = b"") -> Callable[[Plane], str]:
    return lambda plane: f"{signing_input({'alg': alg}, plane.claims())}.{encoded(signature)}"


def signed_as(signature: Callable[[bytes], bytes]) -> Callable[[Plane], str]:
    """A good token whose signature is written in another way, or not to its end."""

    def forged(plane: Plane) -> str:
        signed = signing_input(ES256, plane.claims())
        return f"{signed}.{encoded(signature(es256(signed, plane.key)))}"

    return forged


def by_stranger(**header: Json) -> Callable[[Plane], str]:
    return lambda plane: jwt({**ES256, **header}, plane.claims(), plane.stranger)


def hmac_with_the_public_key(plane: Plane) -> str:
    """The key that everybody may read, taken for the secret of an HMAC."""
    public = plane.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = signing_input({"alg": "HS256"}, plane.claims())
    return f"{signed}.{encoded(hmac.digest(public, signed.encode(), hashlib.sha256))}"


def with_the_servers_kid(plane: Plane) -> str:
    kid = plane.server.cluster.tokens.key_set()["keys"][0]["kid"]
    return jwt({**ES256, "kid": kid}, plane.claims(), plane.stranger)


def with_its_own_key(plane: Plane) -> str:
    """A header that brings the key it asks to be verified with."""
    at = plane.stranger.public_key().public_numbers()
    key = {
        "kty": "EC",
        "crv": "P-256",
        "x": encoded(numbers(0, at.x)[32:]),
        "y": encoded(numbers(0, at.y)[32:]),
    }
    return jwt({**ES256, "jwk": key}, plane.claims(), plane.stranger)


def of_another_token(plane: Plane) -> str:
    signature = jwt(ES256, plane.claims(jti="two"), plane.key).rpartition(".")[2]
    return f"{signing_input(ES256, plane.claims())}.{signature}"


def another_algorithm(alg: Json) -> Callable[[Plane], str]:
    return lambda plane: jwt({"alg": alg}, plane.claims(), plane.key)


SIGNATURES: Mapping[str, Callable[[Plane], str]] = {
    "algorithm none, no signature": unsigned("none"),
    "algorithm NONE": unsigned("NONE"),
    "algorithm none with a signature": unsigned("none", b"\1" * 64),
    "no algorithm": unsigned(""),
    "zeros": unsigned("ES256", bytes(64)),
    "r is 0": unsigned("ES256", numbers(0, 1)),
    "s is 0": unsigned("ES256", numbers(1, 0)),
    "r and s are the order": unsigned("ES256", numbers(ORDER, ORDER)),
    "ones": unsigned("ES256", b"\xff" * 64),
    "HMAC with the public key": hmac_with_the_public_key,
    "another key": by_stranger(),
    "another key, the server's key ID": with_the_servers_kid,
    "another key, its own in the header": with_its_own_key,
    "another key, a path as key ID": by_stranger(kid="../../../../dev/null"),
    "another key, a query as key ID": by_stranger(kid="' OR '1'='1"),
    "another key, an address of keys": by_stranger(jku="http://127.0.0.1:1/keys", x5u="http://127.0.0.1:1/"),
    "signature of another token": of_another_token,
    "truncated by a byte": signed_as(lambda signature: signature[:-1]),
    "half a signature": signed_as(lambda signature: signature[:32]),
    "no signature": signed_as(lambda signature: b""),
    "a byte more": signed_as(lambda signature: signature + b"\0"),
    "a zero before s": signed_as(lambda signature: signature[:32] + b"\0" + signature[32:]),
    "twice": signed_as(lambda signature: signature * 2),
    "r and s swapped": signed_as(lambda signature: signature[32:] + signature[:32]),
    "a bit turned": signed_as(lambda signature: bytes([signature[0] ^ 1]) + signature[1:]),
    "the server's key, said to be none": another_algorithm("none"),
    "the server's key, said to be HMAC": another_algorithm("HS256"),
    "the server's key, no algorithm": another_algorithm(None),
    "the server's key, an algorithm that is a list": another_algorithm(["ES256"]),
}  # fmt: skip


@pytest.mark.parametrize("forged", SIGNATURES.values(), ids=SIGNATURES)
async def test_a_token_with_a_wrong_signature_is_refused(
    plane: Plane, forged: Callable[[Plane], str]
) -> None:
    await refused(plane, forged(plane))


# --- what it says ---------------------------------------------------------------------------------------

CHANGES: Mapping[str, Callable[[Plane], Json]] = {
    "subject": lambda plane: plane.claims(sub="system:serviceaccount:kube-system:admin"),
    "account": lambda plane: plane.claims(
        **{"kubernetes.io": plane.about(serviceaccount={"name": "default", "uid": plane.uid})}
    ),
    "namespace": lambda plane: plane.claims(**{"kubernetes.io": plane.about(namespace="kube-system")}),
    "end": lambda plane: plane.claims(exp=int(NOW.timestamp()) + 1000 * HOUR),
    "audience": lambda plane: plane.claims(aud=[ISSUER, "other"]),
    "nothing but white space": lambda plane: None,
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
async def test_a_token_whose_content_was_changed_is_refused(
    plane: Plane, changed: Callable[[Plane], Json]
) -> None:
    header, payload, signature = (await plane.given()).split(".")
    content = changed(plane)
    other = encoded(msgspec.json.encode(content) if content is not None else decoded(payload) + b" ")
    await refused(plane, f"{header}.{other}.{signature}")


SAYS: Mapping[str, Callable[[Plane], Json]] = {
    "another issuer": lambda plane: plane.claims(iss="https://elsewhere.example.com"),
    "the issuer with a slash": lambda plane: plane.claims(iss=ISSUER + "/"),
    "no issuer": lambda plane: plane.claims(iss=None),
    "an issuer that is a list": lambda plane: plane.claims(iss=[ISSUER]),
    "another audience": lambda plane: plane.claims(aud=["vault"]),
    "no audience": lambda plane: plane.claims(aud=None),
    "an empty list of audiences": lambda plane: plane.claims(aud=[]),
    "an audience that is a number": lambda plane: plane.claims(aud=1),
    "expired": lambda plane: plane.claims(exp=int(NOW.timestamp()) - 1),
    "expired just now": lambda plane: plane.claims(exp=int(NOW.timestamp())),
    "no end": lambda plane: plane.claims(exp=None),
    "an end that is a text": lambda plane: plane.claims(exp="never"),
    "an end that is a list": lambda plane: plane.claims(exp=[1]),
    "not yet valid": lambda plane: plane.claims(nbf=int(NOW.timestamp()) + 120),
    "a beginning that is a text": lambda plane: plane.claims(nbf="soon"),
    "account of another UID": lambda plane: plane.claims(
        **{"kubernetes.io": plane.about(serviceaccount={"name": "ann", "uid": "other"})}
    ),
    "an account that is not there": lambda plane: plane.claims(
        **{"kubernetes.io": plane.about(serviceaccount={"name": "bob", "uid": plane.uid})}
    ),
    "a pod that is not there": lambda plane: plane.claims(
        **{"kubernetes.io": plane.about(pod={"name": "p", "uid": "u"})}
    ),
    "a secret that is not there": lambda plane: plane.claims(
        **{"kubernetes.io": plane.about(secret={"name": "s", "uid": "u"})}
    ),
    "no account": lambda plane: plane.claims(**{"kubernetes.io": {"namespace": "default"}}),
    "no claims of Kubernetes": lambda plane: plane.claims(**{"kubernetes.io": None}),
    "the issuer of tokens in Secrets": lambda plane: plane.claims(iss="kubernetes/serviceaccount"),
    "a list": lambda plane: [plane.claims()],
    "a text": lambda plane: "claims",
    "a number": lambda plane: 1,
    "null": lambda plane: None,
    "an empty object": lambda plane: {},
}  # fmt: skip


@pytest.mark.parametrize("payload", SAYS.values(), ids=SAYS)
async def test_what_the_servers_own_key_signed_but_is_not_for_now_and_here_is_refused(
    plane: Plane, payload: Callable[[Plane], Json]
) -> None:
    await refused(plane, jwt(ES256, payload(plane), plane.key))


# --- what is no token -----------------------------------------------------------------------------------

BROKEN: Mapping[str, str] = {
    "a word": "forged",
    "two dots": "..",
    "one part": "e30",
    "two parts": "e30.e30",
    "five parts": "e30.e30.e30.e30.e30",
    "no base64": "!!!.???.***",
    "a header that is no JSON": "eyJ.e30.AAAA",
    "a bootstrap token of nobody": "abcdef.0123456789abcdef",
    "7 kB": "a" * 7000,
    "7 kB of dots": "." * 7000,
    "7 kB of brackets": f"{encoded(b'[' * 2000)}.{encoded(b'[' * 2000)}.{encoded(bytes(64))}",
}


@pytest.mark.parametrize("token", BROKEN.values(), ids=BROKEN)
async def test_what_is_no_token_is_refused(plane: Plane, token: str) -> None:
    await refused(plane, token)


async def test_a_payload_of_the_servers_key_that_nests_without_end_is_refused(plane: Plane) -> None:
    signed = encoded(msgspec.json.encode(ES256)) + "." + encoded(b'{"iss":' + b"[" * 2500)
    await refused(plane, f"{signed}.{encoded(es256(signed, plane.key))}")


async def test_a_good_token_with_anything_added_is_refused(plane: Plane) -> None:
    token = await plane.given()
    header, payload, signature = token.split(".")
    for changed in (
        f"{token} {token}",
        f"{token},{token}",
        f"{token}.",
        f".{token}",
        f"{token}.{token}",
        f"{header}.{payload}=.{signature}",
        f"{header}.{header}.{payload}.{signature}",
        f'"{token}"',
        f"Bearer {token}",
        token.swapcase(),
    ):
        assert await plane.ask(f"Bearer {changed}") == (401, "")


async def test_without_a_token_the_sender_is_nobody_and_not_let_in(plane: Plane) -> None:
    token = await plane.given()
    for header in (None, "", "Bearer", "Bearer ", "Bearer \t ", f"Basic {token}", f"Token {token}", token):
        assert await plane.ask(header) == (403, "")
    # Nowhere else than in its header is a token looked for.
    for path, headers in (
        (f"?access_token={token}", {}),
        (f"?token={token}", {}),
        ("", {"Cookie": f"token={token}"}),
    ):
        async with plane.session.post(plane.url + WHO + path, json=ME, headers=headers) as answer:
            assert answer.status == 403


async def test_of_two_headers_the_first_counts_as_on_a_real_server(plane: Plane) -> None:
    good, forged = f"Bearer {await plane.given()}", "Bearer forged"
    for headers, status in (((good, forged), 201), ((forged, good), 401)):
        sent = [("Authorization", one) for one in headers]
        async with plane.session.post(plane.url + WHO, json=ME, headers=sent) as answer:
            assert answer.status == status


async def test_a_token_longer_than_a_header_may_be_is_refused_and_the_server_goes_on(plane: Plane) -> None:
    host, port = plane.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"a" * (1 << 20) + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(64), 10)
    writer.close()
    assert answer.split()[1] == b"400"
    assert await plane.ask(f"Bearer {await plane.given()}") == (201, ANN)


async def test_a_forged_token_acts_for_nobody_else(plane: Plane) -> None:
    forged = by_stranger()(plane)
    assert await plane.ask(f"Bearer {forged}", **{"Impersonate-User": "kubernetes-admin"}) == (401, "")


# --- what it belongs to is gone ---------------------------------------------------------------------------


async def bound(plane: Plane, kind: str, name: str) -> str:
    return await plane.given(boundObjectRef={"kind": kind, "apiVersion": "v1", "name": name})


async def test_a_token_ends_with_its_account_and_is_not_that_of_the_next_of_its_name(plane: Plane) -> None:
    token = await plane.given()
    await plane.api.delete(f"{ACCOUNTS}/ann")
    await refused(plane, token)
    await plane.api.create(ACCOUNTS, {"metadata": {"name": "ann"}})
    await refused(plane, token)
    assert await plane.ask(f"Bearer {await plane.given()}") == (201, ANN)


@pytest.mark.parametrize("kind", ["Pod", "Secret"])
async def test_a_token_ends_with_what_it_is_bound_to_and_is_not_that_of_the_next_of_its_name(
    plane: Plane, kind: str
) -> None:
    body = pod("it") if kind == "Pod" else {"metadata": {"name": "it"}}
    path = PODS if kind == "Pod" else SECRETS
    if kind == "Pod":
        body["spec"]["serviceAccountName"] = "ann"
    await plane.api.create(path, body)
    token = await bound(plane, kind, "it")
    assert await plane.ask(f"Bearer {token}") == (201, ANN)
    await plane.api.delete(f"{path}/it", {"gracePeriodSeconds": 0})
    await refused(plane, token)
    await plane.api.create(path, body)
    await refused(plane, token)


@pytest.mark.parametrize("what", ["account", "secret"])
async def test_a_token_ends_a_minute_after_the_deletion_of_what_a_finalizer_holds(
    plane: Plane, what: str
) -> None:
    held = {"metadata": {"name": "it", "finalizers": ["example.com/held"]}}
    await plane.api.create(SECRETS, held)
    token = await (bound(plane, "Secret", "it") if what == "secret" else plane.given())
    if what == "account":
        await plane.api.merge(f"{ACCOUNTS}/ann", {"metadata": {"finalizers": ["example.com/held"]}})
    await plane.api.delete(f"{ACCOUNTS}/ann" if what == "account" else f"{SECRETS}/it")
    plane.clock[0] += timedelta(seconds=60)
    assert await plane.ask(f"Bearer {token}") == (201, ANN)
    plane.clock[0] += timedelta(seconds=1)
    await refused(plane, token)


async def test_a_token_ends_when_its_time_is_over(plane: Plane) -> None:
    token = await plane.given(expirationSeconds=600)
    plane.clock[0] += timedelta(seconds=599)
    assert await plane.ask(f"Bearer {token}") == (201, ANN)
    plane.clock[0] += timedelta(seconds=1)
    await refused(plane, token)


async def test_a_token_for_others_is_not_for_the_server(plane: Plane) -> None:
    await refused(plane, await plane.given(audiences=["vault"]))
