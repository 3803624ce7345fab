"""The account of a new pod: its token mounted, and what happens while it is still being made."""

from __future__ import annotations

import asyncio

import pytest
from tests.local.api.conftest import Client

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
ACCOUNT = {"metadata": {"name": "default"}}


@pytest.fixture
async def fresh(api: Client) -> str:
    """The path of a new namespace on a server where accounts are made: its `default` is still to come."""
    await api.create("/api/v1/namespaces/default/serviceaccounts", ACCOUNT)
    await api.create("/api/v1/namespaces", {"metadata": {"name": "fresh"}})
    return "/api/v1/namespaces/fresh"


async def test_a_pod_of_a_new_namespace_waits_for_its_account_and_has_its_token(
    api: Client, fresh: str
) -> None:
    making = asyncio.create_task(api.create(fresh + "/pods", POD))
    await asyncio.sleep(0)
    await api.create(fresh + "/serviceaccounts", ACCOUNT)

    made = await making

    [mount] = made["spec"]["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"


async def test_a_pod_whose_account_does_not_come_is_refused(api: Client, fresh: str) -> None:
    refusal = await api.refused(403, "POST", fresh + "/pods", POD)

    assert refusal["message"] == (
        'pods "p" is forbidden: error looking up service account fresh/default: '
        'serviceaccount "default" not found'
    )


async def test_a_pod_on_a_server_without_controllers_does_without_an_account(api: Client) -> None:
    made = await api.create("/api/v1/namespaces/default/pods", POD)

    assert "volumeMounts" not in made["spec"]["containers"][0]
