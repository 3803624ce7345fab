"""Who a request acts for and what that user may do, where a real server cannot be asked the same way."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.local.api.conftest import CM, Client, Json, config_map

from mooring.local.api import ApiServer, User
from mooring.local.api.access.authentication import ADMIN, Authenticator
from mooring.local.api.tls import Certificates, ensure_certificates

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ME = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}


def ann(server: ApiServer, *groups: str) -> Client:
    return Client(server.transport(user=User("ann", groups=(*groups, "system:authenticated"))))


async def grant(api: Client, name: str, *rules: Json, user: str = "ann") -> None:
    await api.create(ROLES, {"metadata": {"name": name}, "rules": list(rules)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    await api.create(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})


def rule(verbs: str, resources: str, **more: Json) -> Json:
    return {"apiGroups": [""], "resources": resources.split(), "verbs": verbs.split(), **more}


async def test_a_right_counts_from_the_moment_it_is_given_until_it_is_taken(
    server: ApiServer, api: Client
) -> None:
    user = ann(server)
    await user.refused(403, "GET", CM)
    await grant(api, "r", rule("list", "configmaps"))
    await user.get(CM)
    await api.merge(ROLES + "/r", {"rules": [rule("list", "secrets")]})
    await user.refused(403, "GET", CM)
    await api.merge(ROLES + "/r", {"rules": [rule("list", "configmaps")]})
    await user.get(CM)
    await api.delete(BINDINGS + "/r")
    await user.refused(403, "GET", CM)


async def test_a_refused_write_changes_nothing(server: ApiServer, api: Client) -> None:
    await api.create(CM, config_map(x="1"))
    await grant(api, "r", rule("get", "configmaps"))
    for method, path, body in (
        ("PUT", CM + "/a", config_map(x="2")),
        ("DELETE", CM + "/a", None),
        ("DELETE", CM, None),
        ("POST", CM, config_map("b")),
    ):
        await ann(server).refused(403, method, path, body)
    assert [(c["metadata"]["name"], c["data"]) for c in (await api.get(CM))["items"]] == [("a", {"x": "1"})]


async def test_an_apply_that_creates_needs_the_right_to_create(server: ApiServer, api: Client) -> None:
    await grant(api, "r", rule("get patch", "configmaps"))
    user, path = ann(server), CM + "/a"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}
    refused = await user.refused(
        403, "PATCH", path, applied, content_type="application/apply-patch+yaml", fieldManager="x"
    )
    assert 'cannot create resource "configmaps"' in refused["message"]
    await api.create(CM, config_map("a"))
    await user.apply(path, applied)


async def test_roles_survive_a_restart_and_are_made_once(tmp_path: Path) -> None:
    names = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    async with ApiServer.open(tmp_path / "db") as server:
        api = Client(server.transport())
        await api.merge(names + "/view", {"metadata": {"labels": {"mine": "yes"}}})
        await grant(api, "r", rule("list", "configmaps"))
        await api.delete(names + "/edit")
    async with ApiServer.open(tmp_path / "db") as server:
        api = Client(server.transport())
        assert (await api.get(names + "/view"))["metadata"]["labels"]["mine"] == "yes"
        assert (await api.get(names + "/edit"))["rules"]
        await ann(server).get(CM)


async def test_narrow_impersonation_is_for_one_verb_and_never_for_masters(
    server: ApiServer, api: Client
) -> None:
    await grant(api, "lists", {**rule("impersonate-on:user-info:list list", "configmaps")})
    role = {
        "metadata": {"name": "as-bob"},
        "rules": [
            {
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["users", "groups"],
                "verbs": ["impersonate:user-info"],
            }
        ],
    }
    cluster = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
    await api.create(cluster + "s", role)
    about = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "as-bob"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}
    await api.create(
        cluster + "bindings", {"metadata": {"name": "as-bob"}, "roleRef": about, "subjects": [subject]}
    )
    await grant(api, "bob", rule("list get", "configmaps"), user="bob")

    user, bob = ann(server), {"Impersonate-User": "bob"}
    await user.ok("GET", CM, headers=bob)
    refused = await user.refused(403, "GET", CM + "/a", headers=bob)
    assert 'cannot impersonate-on:user-info:get resource "configmaps"' in refused["message"]
    masters = {**bob, "Impersonate-Group": "system:masters"}
    refused = await user.refused(403, "GET", CM, headers=masters)
    assert refused["message"].endswith("impersonating the system:masters group is not allowed")


async def test_a_node_is_impersonated_with_the_group_of_nodes(server: ApiServer, api: Client) -> None:
    who = await api.create(WHO, ME, headers={"Impersonate-User": "system:node:n1"})
    assert who["status"]["userInfo"]["groups"] == ["system:nodes", "system:authenticated"]


async def test_several_groups_come_in_several_headers(
    listening: tuple[str, Certificates], server: ApiServer
) -> None:
    url, files = listening
    server.authenticator = Authenticator({"t": ADMIN}, server.cluster.tokens, server.cluster.store)
    context = ssl.create_default_context(cafile=str(files.authority))
    headers = [("Authorization", "Bearer t"), ("Impersonate-User", "ann")]
    headers += [("Impersonate-Group", group) for group in ("a", "b", "c", "d")]
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url + WHO, json=ME, headers=headers) as answer,
    ):
        found = (await answer.json())["status"]["userInfo"]
    assert (found["username"], found["groups"]) == ("ann", ["a", "b", "c", "d", "system:authenticated"])


# --- client certificates --------------------------------------------------------------------------------


def certificate(
    directory: Path,
    files: Certificates,
    *,
    server: bool = False,
    days: int = 1,
    since: int = -10,
    issuer: Path | None = None,
    own: bool = False,
    named: bool = True,
) -> Path:
    """A certificate for ann in the groups a and b, with its key, in one file.

    It is good from ``since`` to ``days``, in days from now. ``issuer`` is a file that signs it instead of the authority,
    with ``own`` it is signed with its own key.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(
        (issuer or files.authority.parent / "ca.key").read_bytes(), None
    )
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    above = x509.load_pem_x509_certificate((issuer or files.authority).read_bytes())
    names: tuple[tuple[x509.ObjectIdentifier, str], ...] = (
        (NameOID.ORGANIZATION_NAME, "a"),
        (NameOID.ORGANIZATION_NAME, "b"),
        (NameOID.COMMON_NAME, "ann"),
    )
    usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    now = datetime.now(UTC)
    names = names if named else names[:2]
    signed = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(*name) for name in names]))
        .issuer_name(above.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=since))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(key if own else signer, hashes.SHA256())
    )
    chain = issuer.read_bytes()[issuer.read_bytes().index(b"-----BEGIN CERT") :] if issuer else b""
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = directory / "ann.pem"
    path.write_bytes(key.private_bytes(*form) + signed.public_bytes(serialization.Encoding.PEM) + chain)
    return path


@pytest.fixture
async def listening(server: ApiServer, tmp_path: Path) -> AsyncIterator[tuple[str, Certificates]]:
    files = ensure_certificates(tmp_path / "pki", ["127.0.0.1"])
    sock = socket.create_server(("127.0.0.1", 0))
    await server.serve(sock, files.server_context())
    yield f"https://127.0.0.1:{sock.getsockname()[1]}", files
    await asyncio.sleep(0)


async def ask(url: str, files: Certificates, pem: Path) -> Json:
    context = ssl.create_default_context(cafile=str(files.authority))
    context.load_cert_chain(pem)
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url + WHO, json=ME) as answer,
    ):
        return await answer.json()


async def test_a_client_certificate_names_its_user_and_groups(
    listening: tuple[str, Certificates], tmp_path: Path
) -> None:
    url, files = listening
    found = (await ask(url, files, certificate(tmp_path, files)))["status"]["userInfo"]
    assert (found["username"], found["groups"]) == ("ann", ["a", "b", "system:authenticated"])
    (identity,) = found["extra"]["authentication.kubernetes.io/credential-id"]
    assert identity.startswith("X509SHA256=")


@pytest.mark.parametrize(
    "wrong",
    [
        "expired",
        "not yet good",
        "for servers",
        "of another authority",
        "signed by itself",
        "signed by a client",
    ],
)
async def test_a_wrong_client_certificate_opens_no_connection(
    listening: tuple[str, Certificates], tmp_path: Path, wrong: str
) -> None:
    url, files = listening
    ways: dict[str, dict[str, Any]] = {
        "expired": {"days": -1},
        "not yet good": {"since": 1, "days": 2},
        "for servers": {"server": True},
        "signed by itself": {"own": True},
    }
    how = ways.get(wrong, {})
    if wrong == "signed by a client":
        (tmp_path / "client").mkdir()
        how["issuer"] = certificate(tmp_path / "client", files)
    signer = ensure_certificates(tmp_path / "other", ["x"]) if wrong == "of another authority" else files
    pem = certificate(tmp_path, signer, **how)
    with pytest.raises((aiohttp.ClientError, OSError)):
        await ask(url, files, pem)


async def test_a_client_certificate_without_a_name_is_nobodys(
    listening: tuple[str, Certificates], tmp_path: Path
) -> None:
    url, files = listening
    refused = await ask(url, files, certificate(tmp_path, files, named=False))
    assert (refused["code"], 'User "system:anonymous"' in refused["message"]) == (403, True)


def test_a_pair_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "one", ["localhost"])
    other = ensure_certificates(tmp_path / "two", ["localhost"])
    files.key.write_bytes(other.key.read_bytes())
    again = ensure_certificates(tmp_path / "one", ["localhost"])
    again.server_context()  # a certificate and a key that do not belong together cannot be loaded
    assert not list((tmp_path / "one").glob(".*"))
