"""What the webhook says of a RedisCluster, alone and as clients of an API server see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from mooring.kube import ApiError, Client, Key
from mooring.kube.objects.admissionregistration import ValidatingWebhookConfiguration
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.host import Operate, Webhooks, apply_crds, operate
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.redis.sentinel.webhook import RedisClusterReview, webhooks
from mooring.operators.registry import OPERATORS
from mooring.runtime import SystemClock, rfc3339
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict

CLAIM: dict[str, Any] = {
    "metadata": {"name": "data"},
    "spec": {"resources": {"requests": {"storage": "1Gi"}}},
}
WIDE = {"redis.kun/scope": "cluster-scoped"}


def cluster(annotations: dict[str, str] | None = None, /, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "shop", "namespace": "web", "annotations": annotations or {}}, "spec": spec}


async def said(
    new: dict[str, Any] | None,
    old: dict[str, Any] | None = None,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    served: bool = False,
) -> Verdict:
    async def live(namespace: str) -> bool:
        return served

    review = RedisClusterReview(scope=scope, namespaces=namespaces, served=live)
    return await review.review(
        Review(
            kind=RedisCluster,
            operation="DELETE" if new is None else "UPDATE" if old is not None else "CREATE",
            key=Key("web", "shop"),
            object=new,
            old=old,
        )
    )


async def test_a_sound_cluster_is_let_pass_without_a_word() -> None:
    storage = {"persistentVolumeClaim": CLAIM, "keepAfterDeletion": True}
    assert await said(cluster(size=3, storage=storage, config={"hz": "10"})) == Allow()


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"sizee": 3}, 'unknown field "spec.sizee"; did you mean "size"?; it has no effect'),
        (
            {"tolerations": []},
            'unknown field "spec.tolerations"; did you mean "toleRations"?; it has no effect',
        ),
        (
            {"sentinel": {"resources": {"limit": {}}}},
            'unknown field "spec.sentinel.resources.limit"; did you mean "limits"?; it has no effect',
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"wight": 1}]}
                }
            },
            'did you mean "weight"?',
        ),
        (
            {
                "storage": {
                    "keepAfterDeletion": True,
                    "persistentVolumeClaim": {**CLAIM, "spec": {**CLAIM["spec"], "storageClass": "fast"}},
                }
            },
            'unknown field "spec.storage.persistentVolumeClaim.spec.storageClass"; did you mean "storageClassName"?',
        ),
    ],
)
async def test_an_unknown_field_is_named_with_the_nearest_one_at_any_depth(
    spec: dict[str, Any], told: str
) -> None:
    verdict = await said(cluster(**spec))
    assert isinstance(verdict, Allow), "existing YAML is accepted"
    assert len(verdict.warnings) == 1
    assert told in verdict.warnings[0]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"maxmemroy": "10mb"},
            "spec.config.maxmemroy: Redis 7.0 has no such key; did you mean 'maxmemory'?",
        ),
        ({"Slave-Read-Onyl": "no"}, "did you mean 'replica-read-only'?"),
        ({"maxmemory": "lots"}, "spec.config.maxmemory: 'lots' is not a number of bytes; write it as 100mb"),
    ],
)
async def test_a_key_or_value_that_no_server_takes_is_named(config: dict[str, str], told: str) -> None:
    verdict = await said(cluster(config=config))
    assert isinstance(verdict, Allow)
    (warning,) = verdict.warnings
    assert told in warning


async def test_keys_and_values_of_any_version_are_let_pass_without_a_word() -> None:
    config = {
        "maxmemory-clients": "5%",
        "hash-max-ziplist-value": "64",
        "io-threads": "2",
        "locale-collate": "C",
    }
    assert await said(cluster(config=config)) == Allow()


async def test_many_unknown_fields_are_counted_rather_than_listed() -> None:
    verdict = await said(cluster(**{f"nosuch{n}": n for n in range(20)}))
    assert len(verdict.warnings) == 7
    assert verdict.warnings[-1] == "and 14 more unknown fields"


@pytest.mark.parametrize(
    ("keep", "told"),
    [(False, "will be deleted with the cluster"), (None, "claims stay when the cluster goes"), (True, "")],
)
async def test_what_becomes_of_the_data_is_said_before_it_is_too_late(keep: bool | None, told: str) -> None:
    storage: dict[str, Any] = {"persistentVolumeClaim": CLAIM}
    if keep is not None:
        storage["keepAfterDeletion"] = keep
    warnings = (await said(cluster(storage=storage))).warnings
    assert [told in text for text in warnings] == ([True] if told else [])
    (parting,) = (await said(None, cluster(storage=storage))).warnings
    assert ("deleted with it" in parting) is (keep is False)
    again = await said(cluster(storage=storage, size=4), cluster(storage=storage, size=3))
    assert again.warnings == (), "once is enough"


async def test_deleting_a_cluster_without_claims_needs_no_warning() -> None:
    assert await said(None, cluster(size=3)) == Allow()


@pytest.mark.parametrize(
    ("annotations", "options", "told"),
    [
        ({}, {"scope": "cluster"}, "annotate it redis.kun/scope=cluster-scoped"),
        ({}, {"scope": "cluster", "served": True}, ""),
        (WIDE, {"scope": "cluster"}, ""),
        (WIDE, {"scope": "cluster", "namespaces": ("shop",)}, "namespace web is not watched, only shop"),
        ({}, {"scope": "all"}, ""),
        ({}, {"scope": "all", "namespaces": ("web",)}, ""),
        ({}, {"scope": "all", "namespaces": ("shop",)}, "namespace web is not watched"),
        ({}, {"scope": "all", "namespaces": ("shop",), "served": True}, ""),
    ],
)
async def test_a_cluster_that_nobody_manages_is_told_so(
    annotations: dict[str, str], options: dict[str, Any], told: str
) -> None:
    warnings = (await said(cluster(annotations, size=3), **options)).warnings
    assert [told in text for text in warnings] == ([True] if told else [])


async def test_what_could_never_be_carried_out_is_refused_with_field_and_remedy() -> None:
    verdict = await said(cluster(exporter={"enabled": True}, sentinel={"customConfig": ["nosuch 1"]}))
    assert isinstance(verdict, Refuse)
    assert [field for field, _ in verdict.causes] == ["spec.exporter.image", "spec.sentinel.customConfig[0]"]
    assert "spec.exporter.image: the exporter is enabled and has no default image" in verdict.message


async def test_a_change_is_refused_only_for_what_it_makes_wrong() -> None:
    old = cluster(exporter={"enabled": True}, size=3)
    verdict = await said(cluster(exporter={"enabled": True}, size=4), old)
    assert isinstance(verdict, Allow)
    assert "spec.exporter.image" in verdict.warnings[0]
    assert isinstance(await said(cluster(exporter={"enabled": True}, image="a b"), old), Refuse)


async def test_labels_and_finalizers_of_a_faulty_cluster_can_be_changed_without_a_word() -> None:
    old = cluster(exporter={"enabled": True}, nosuch=1)
    new = msgspec.convert(old, dict[str, Any])
    new = {**new, "metadata": {**new["metadata"], "labels": {"a": "b"}}}
    assert await said(new, old) == Allow()
    dying = {**new, "metadata": {**new["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}
    assert await said({**dying, "spec": {"exporter": {"enabled": True}, "image": "a b"}}, old) == Allow()


async def test_a_key_that_the_operator_decides_is_named() -> None:
    (warning,) = (await said(cluster(config={"port": "7000", "hz": "10"}))).warnings
    assert warning.startswith("spec.config.port: the operator decides")


def test_there_is_no_webhook_in_namespaced_mode_and_a_failing_one_holds_nobody_back() -> None:
    client: Any = None
    assert webhooks(client, clock=SystemClock(), scope="namespaced") == []
    hooks = webhooks(client, clock=SystemClock(), scope="cluster")
    assert [one.failure_policy for one in hooks] == ["Ignore"] * 3


# --- as clients see it -------------------------------------------------------------------------------------


@asynccontextmanager
async def operated(scope: str) -> AsyncIterator[Client]:
    """The operator on an API server in memory, with its webhooks registered."""
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await apply_crds(client, [OPERATORS["redis-sentinel"]])
        async with replica(client, scope):
            yield client


@asynccontextmanager
async def replica(client: Client, scope: str) -> AsyncIterator[None]:
    """One process of the operator, ended in good order."""
    how = Operate(operators=[OPERATORS["redis-sentinel"]], scope=scope, webhooks=Webhooks(port=0))
    task = asyncio.create_task(operate(client, how))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def asked(client: Client) -> None:
    """Wait until the API server asks the webhook, and is answered."""
    deadline = time.monotonic() + 10
    while "did you mean" not in await warnings_of(client, {"spec": {"sizee": 3}}):
        assert time.monotonic() < deadline, "the webhook was not asked"
        await asyncio.sleep(0.01)


async def warnings_of(client: Client, body: dict[str, Any]) -> str:
    answer = await client.request(
        "POST",
        RedisCluster.resource.path(namespace="default"),
        query={"dryRun": "All"},
        body=msgspec.json.encode(
            {**body, "apiVersion": "redis.kun/v1beta1", "kind": "RedisCluster", "metadata": {"name": "shop"}}
        ),
    )
    return dict(answer.headers).get("Warning", "")


async def test_whoever_applies_a_cluster_sees_the_warnings_and_the_refusals() -> None:
    async with operated("all") as client:
        await asked(client)
        assert 'did you mean \\"size\\"?' in await warnings_of(client, {"spec": {"sizee": 3}})
        with pytest.raises(ApiError) as refused:
            await warnings_of(client, {"spec": {"exporter": {"enabled": True}}})
    assert refused.value.status == 422
    assert "spec.exporter.image" in str(refused.value)


async def test_a_live_namespaced_operator_takes_the_warning_away() -> None:
    async with operated("cluster") as client:
        await asked(client)
        assert "no operator manages it" in await warnings_of(client, {"spec": {"size": 3}})

        async def renew(moment: datetime) -> None:
            spec = LeaseSpec(
                holder_identity="a", lease_duration_seconds=15, renew_time=rfc3339(moment, micro=True)
            )
            meta = ObjectMeta(name="mooring-redis-sentinel-namespaced", namespace="default")
            await client.apply(Lease(metadata=meta, spec=spec))

        await renew(datetime.now(UTC))
        assert await warnings_of(client, {"spec": {"size": 3}}) == ""
        await renew(datetime.now(UTC) - timedelta(minutes=1))
        assert "no operator manages it" in await warnings_of(client, {"spec": {"size": 3}})


async def test_when_the_leader_goes_the_next_one_serves_with_the_same_authority() -> None:
    name = "mooring-redis-sentinel-all"

    async def registration(client: Client) -> tuple[str, str]:
        entry = ((await client.get(ValidatingWebhookConfiguration, name)).webhooks or [])[0]
        assert entry.client_config is not None
        return entry.client_config.url or "", entry.client_config.ca_bundle or ""

    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await apply_crds(client, [OPERATORS["redis-sentinel"]])
        async with replica(client, "all"):
            await asked(client)
            first = await registration(client)
            async with replica(client, "all"):
                await asked(client)
                assert await registration(client) == first, "who stands by registers nothing"
        async with replica(client, "all"):
            deadline = time.monotonic() + 10
            while (await registration(client))[0] == first[0]:
                assert time.monotonic() < deadline, "the next leader did not register itself"
                await asyncio.sleep(0.01)
            assert (await registration(client))[1] == first[1]
            await asked(client)
