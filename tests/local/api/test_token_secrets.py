"""Secrets with tokens: of accounts, which do not expire, and of machines that are to join."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from typing import Any

import pytest
from tests.local.api.conftest import CM, Client, config_map

from mooring.local.api import ApiServer
from mooring.local.api.access.tokens import TokenError

Json = Any

SECRETS = "/api/v1/namespaces/default/secrets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def token_secret(account: str = "sa", **annotations: str) -> Json:
    named = {"kubernetes.io/service-account.name": account, **annotations}
    meta = {"name": "t", "annotations": named}
    return {"metadata": meta, "type": "kubernetes.io/service-account-token"}


async def filled(api: Client) -> Json:
    async with asyncio.timeout(5):
        while not (found := await api.get(SECRETS + "/t")).get("data", {}).get("token"):
            await asyncio.sleep(0.005)
    return found


async def gone(api: Client) -> None:
    async with asyncio.timeout(5):
        while (await api.send("GET", SECRETS + "/t")).status != 404:
            await asyncio.sleep(0.005)


def text(secret: Json, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


async def test_a_secret_gets_a_token_that_is_its_accounts(server: ApiServer, api: Client) -> None:
    account = await api.create(ACCOUNTS, {"metadata": {"name": "sa"}})
    await api.create(CM, config_map("kube-root-ca.crt", **{"ca.crt": "authority"}))
    await api.create(SECRETS, token_secret())

    secret = await filled(api)

    assert (text(secret, "namespace"), text(secret, "ca.crt")) == ("default", "authority")
    uid = secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"]
    assert uid == account["metadata"]["uid"]
    review = {"spec": {"token": text(secret, "token")}}
    status = (await api.create("/apis/authentication.k8s.io/v1/tokenreviews", review))["status"]
    assert status["user"]["username"] == "system:serviceaccount:default:sa"
    assert status["user"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]


async def test_the_token_is_good_while_its_secret_holds_it(server: ApiServer, api: Client) -> None:
    await api.create(ACCOUNTS, {"metadata": {"name": "sa"}})
    await api.create(SECRETS, token_secret())
    token = text(await filled(api), "token")
    now = server.cluster.now()
    assert server.authenticator.identify(token, now=now)[0].name == "system:serviceaccount:default:sa"

    other = base64.b64encode(b"other").decode()
    await api.merge(SECRETS + "/t", {"data": {"token": other}})
    with pytest.raises(TokenError, match="does not match server's copy"):
        server.authenticator.identify(token, now=now)
    await api.delete(SECRETS + "/t")
    with pytest.raises(TokenError, match="has been invalidated"):
        server.authenticator.identify(token, now=now)


async def test_a_secret_goes_with_its_account(api: Client) -> None:
    await api.create(ACCOUNTS, {"metadata": {"name": "sa"}})
    await api.create(SECRETS, token_secret())
    await filled(api)

    await api.delete(ACCOUNTS + "/sa")

    await gone(api)


@pytest.mark.parametrize(
    "made", [token_secret("nobody"), token_secret(**{"kubernetes.io/service-account.uid": "x"})]
)
async def test_a_secret_of_no_account_goes(api: Client, made: Json) -> None:
    await api.create(ACCOUNTS, {"metadata": {"name": "sa"}})
    await api.create(SECRETS, made)

    await gone(api)


BOOTSTRAP = "/api/v1/namespaces/kube-system/secrets"


def bootstrap_token(**data: str) -> Json:
    fields = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:b,system:bootstrappers:a",
        **data,
    }
    meta = {"name": "bootstrap-token-abcdef"}
    return {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "stringData": fields}


async def test_a_bootstrap_token_is_known_while_its_secret_says_so(server: ApiServer, api: Client) -> None:
    now = server.cluster.now()
    await api.create(BOOTSTRAP, bootstrap_token(expiration=(now + timedelta(hours=1)).isoformat()))

    user, _ = server.authenticator.identify("abcdef.0123456789abcdef", now=now)

    assert user.name == "system:bootstrap:abcdef"
    extra = ("system:bootstrappers:a", "system:bootstrappers:b", "system:bootstrappers")
    assert user.groups == (*extra, "system:authenticated")
    for late, token in (
        (2, "abcdef.0123456789abcdef"),
        (0, "abcdef.0123456789abcdeX"),
        (0, "abcdeg.0123456789abcdef"),
    ):
        with pytest.raises(TokenError):
            server.authenticator.identify(token, now=now + timedelta(hours=late))


@pytest.mark.parametrize(
    "data",
    [
        {"usage-bootstrap-authentication": "false"},
        {"auth-extra-groups": "system:masters"},
        {"token-id": "ghijkl"},
        {"expiration": "soon"},
    ],
)
async def test_a_bootstrap_token_that_is_not_whole_is_none(
    server: ApiServer, api: Client, data: dict[str, str]
) -> None:
    await api.create(BOOTSTRAP, bootstrap_token(**data))

    with pytest.raises(TokenError):
        server.authenticator.identify("abcdef.0123456789abcdef", now=server.cluster.now())
