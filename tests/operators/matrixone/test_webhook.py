"""MatrixOne's kinds on an API server: definitions, defaults, rejections and warnings as clients see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.operators.matrixone.builders import BY_KIND, declared, samples

from mooring.kube import AlreadyExists, ApiError, Client, Key
from mooring.kube.object import Object
from mooring.local.api.server import ApiServer
from mooring.operators.host import Operate, Webhooks, apply_crds, operate
from mooring.operators.matrixone.defaults import default_patch
from mooring.operators.matrixone.types import KINDS, CNSet, LogSet, MatrixOneCluster
from mooring.operators.matrixone.webhook import Reviews, unknown, webhooks
from mooring.operators.operator import Operator
from mooring.operators.workload.admission import Scope
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")


def registers_nothing(*_: Any, **__: Any) -> None:
    """An operator that answers reviews and does nothing."""


OPERATOR = Operator("matrixone", KINDS, registers_nothing, webhooks=webhooks)


@asynccontextmanager
async def operated() -> AsyncIterator[Client]:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await apply_crds(client, [OPERATOR])
        how = Operate(operators=[OPERATOR], webhooks=Webhooks(port=0))
        task = asyncio.create_task(operate(client, how))
        try:
            deadline = time.monotonic() + 20
            while "did you mean" not in await warned(client, declared("CNClaim", "probe", spec__selektor={})):
                assert time.monotonic() < deadline, "the webhook was not asked"
                await asyncio.sleep(0.01)
            while not (await made(client, declared("LogSet", "probe"), dry=True))["spec"].get(
                "initialConfig"
            ):
                assert time.monotonic() < deadline, "the defaults were not asked for"
                await asyncio.sleep(0.01)
            yield client
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    """A client of an API server with our definitions and webhooks."""
    async with operated() as client:
        yield client


def collection(raw: dict[str, Any]) -> str:
    return BY_KIND[raw["kind"]].resource.path(namespace=raw["metadata"].get("namespace") or "default")


def sent(raw: dict[str, Any]) -> bytes:
    metadata = {key: value for key, value in raw["metadata"].items() if key != "uid"}
    return msgspec.json.encode({**raw, "metadata": metadata})


async def answer(client: Client, raw: dict[str, Any], *, dry: bool = False) -> Any:
    query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry else {})}
    return await client.request("POST", collection(raw), query=query, body=sent(raw))


async def made(client: Client, raw: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((await answer(client, raw, dry=dry)).body)
    return found


async def warned(client: Client, raw: dict[str, Any]) -> str:
    headers: dict[str, str] = dict((await answer(client, raw, dry=True)).headers)
    return headers.get("Warning", "")


async def put(client: Client, raw: dict[str, Any]) -> dict[str, Any]:
    path = f"{collection(raw)}/{raw['metadata']['name']}"
    there = msgspec.json.decode((await client.request("GET", path)).body)
    version = there["metadata"]["resourceVersion"]
    body = sent({**raw, "metadata": {**raw["metadata"], "resourceVersion": version}})
    return msgspec.json.decode((await client.request("PUT", path, body=body)).body)  # type: ignore[no-any-return]


@pytest.mark.parametrize("raw", samples(), ids=lambda raw: f"{raw['kind']}-{raw['metadata']['name']}")
async def test_upstreams_samples_are_stored_as_they_are_with_defaults_beside(
    client: Client, raw: dict[str, Any]
) -> None:
    stored = await made(client, raw)
    path = f"{collection(raw)}/{raw['metadata']['name']}"
    read = msgspec.json.decode((await client.request("GET", path)).body)
    for name, value in raw.items():
        if name != "metadata":
            assert_within(value, read[name], name)
    assert read == stored
    assert default_patch(BY_KIND[raw["kind"]], read, new=False) == {}


def assert_within(given: Any, stored: Any, path: str) -> None:
    """Nothing that was given is missing or another."""
    if isinstance(given, dict):
        for key, value in given.items():
            assert key in stored, f"{path}.{key} is gone"
            assert_within(value, stored[key], f"{path}.{key}")
    elif isinstance(given, list):
        assert len(given) == len(stored), path
        for at, value in enumerate(given):
            assert_within(value, stored[at], f"{path}[{at}]")
    else:
        assert given == stored, path


async def test_defaults_of_a_cluster_are_upstreams(client: Client) -> None:
    raw = declared(
        "MatrixOneCluster",
        "defaults",
        spec__logService__exportToPrometheus=True,
        spec__tn={
            "replicas": 1,
            "cacheVolume": {"size": "10Gi"},
            "resources": {"requests": {"memory": "12Gi"}},
        },
        spec__cnGroups=[
            {"name": "a", "replicas": 1, "scalingConfig": {"storeDrainEnabled": True}},
            {
                "name": "b",
                "replicas": 1,
                "cacheVolume": {"size": "1G"},
                "resources": {"requests": {"memory": "2G"}},
            },
        ],
    )
    spec = (await made(client, raw))["spec"]
    log = spec["logService"]
    assert log["initialConfig"] == {"logShardReplicas": 3, "logShards": 1, "dnShards": 1}
    assert log["storeFailureTimeout"] == "10m0s"
    assert log["pvcRetentionPolicy"] == log["sharedStorage"]["s3"]["s3RetentionPolicy"] == "Delete"
    assert log["promDiscoveryScheme"] == "Service"
    assert spec["tn"]["sharedStorageCache"] == {"memoryCacheSize": "6Gi", "diskCacheSize": "9Gi"}
    one, other = spec["cnGroups"]
    assert one["serviceType"] == "ClusterIP"
    assert one["scalingConfig"]["storeDrainTimeout"] == "5m0s"
    assert one["updateStrategy"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "sharedStorageCache" not in one
    assert other["sharedStorageCache"] == {"memoryCacheSize": "1G", "diskCacheSize": "900M"}
    assert spec["operatorVersion"] == "1.3.0"


@pytest.mark.parametrize(
    ("given", "claims", "data"),
    [
        ({}, "Delete", "Delete"),
        ({"pvcRetentionPolicy": "Retain"}, "Retain", "Retain"),
        ({"s3RetentionPolicy": "Retain"}, "Retain", "Retain"),
        ({"pvcRetentionPolicy": "Delete", "s3RetentionPolicy": "Retain"}, "Delete", "Retain"),
        ({"pvcRetentionPolicy": "Retain", "s3RetentionPolicy": "Delete"}, "Retain", "Delete"),
    ],
)
async def test_what_becomes_of_claims_and_data_is_inherited_from_each_other(
    client: Client, given: dict[str, str], claims: str, data: str
) -> None:
    raw = declared("LogSet", "kept")
    if "pvcRetentionPolicy" in given:
        raw["spec"]["pvcRetentionPolicy"] = given["pvcRetentionPolicy"]
    if "s3RetentionPolicy" in given:
        raw["spec"]["sharedStorage"]["s3"]["s3RetentionPolicy"] = given["s3RetentionPolicy"]
    spec = (await made(client, raw, dry=True))["spec"]
    assert spec["pvcRetentionPolicy"] == claims
    assert spec["sharedStorage"]["s3"]["s3RetentionPolicy"] == data


async def test_a_single_store_has_one_replica_of_a_shard_and_the_role_of_a_compute_node_is_tp(
    client: Client,
) -> None:
    log = await made(client, declared("LogSet", "single", spec__replicas=1), dry=True)
    assert log["spec"]["initialConfig"]["logShardReplicas"] == 1
    nodes = await made(client, declared("CNSet", "role"), dry=True)
    assert nodes["spec"]["role"] == "TP"
    transactions = await made(client, declared("DNSet", "cache"), dry=True)
    assert transactions["spec"]["sharedStorageCache"] == {"memoryCacheSize": "0"}


REJECTED: list[tuple[str, dict[str, Any], str]] = [
    ("MatrixOneCluster", {"spec__tn": None}, "give spec.tn"),
    ("MatrixOneCluster", {"spec__dn": {"replicas": 1}}, "give spec.tn"),
    ("MatrixOneCluster", {"metadata__name": "m" * 47}, "longer than 46"),
    ("MatrixOneCluster", {"metadata__name": "1mo"}, "must begin with a letter"),
    ("MatrixOneCluster", {"spec__version": None}, "spec.version"),
    ("MatrixOneCluster", {"spec__logService__volume__size": "0"}, "spec.logService.volume.size"),
    ("MatrixOneCluster", {"spec__logService__sharedStorage": {}}, "give either s3 or fileSystem"),
    ("MatrixOneCluster", {"spec__logService__replicas": -1}, "spec.logService.replicas"),
    (
        "MatrixOneCluster",
        {"spec__logService__replicas": 5, "spec__logService__initialConfig": {"logShardReplicas": 7}},
        "logShardReplicas must not be more than replicas",
    ),
    ("MatrixOneCluster", {"spec__cnGroups__0__name": "a_b"}, "spec.cnGroups[0].name"),
    (
        "MatrixOneCluster",
        {"spec__cnGroups": [{"name": "a", "replicas": 1}, {"name": "a", "replicas": 1}]},
        "spec.cnGroups[1]",
    ),
    ("LogSet", {"spec__sharedStorage__s3__path": ""}, "spec.sharedStorage.s3.path"),
    ("LogSet", {"spec__overlay": {"volumes": 3}}, "spec.overlay.volumes"),
    ("DNSet", {"spec__config": "[tn]\na = 1\n[dn]\na = 1"}, "[tn] and [dn] cannot be set at the same time"),
    ("CNSet", {"spec__cnLabels": [{"key": "", "values": ["a"]}]}, "spec.cnLabels[0].key"),
    ("CNSet", {"spec__cnLabels": [{"key": "a"}]}, "spec.cnLabels[0].values"),
    ("CNSet", {"spec__serviceType": "ExternalName"}, "spec.serviceType"),
    ("CNSet", {"deps": {}}, "deps.logSet"),
]


@pytest.mark.parametrize(("kind", "change", "text"), REJECTED)
async def test_bad_input_is_rejected_as_invalid_with_the_field_and_the_remedy(
    client: Client, kind: str, change: dict[str, Any], text: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await made(client, declared(kind, "bad", **change))
    assert refused.value.status == 422
    assert "is invalid" in str(refused.value)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        ("LogSet", {"spec__sharedStorage__s3__path": "bucket/other"}, "spec.sharedStorage.s3"),
        ("LogSet", {"spec__sharedStorage": {"fileSystem": {"path": "/x"}}}, "sharedStorage.s3"),
        ("LogSet", {"spec__initialConfig": {"logShardReplicas": 1}}, "spec.initialConfig.logShardReplicas"),
        ("LogSet", {"spec__volume__size": "1Gi"}, "spec.volume.size"),
        ("MatrixOneCluster", {"spec__logService__sharedStorage__s3__path": "b/x"}, "sharedStorage.s3"),
        (
            "MatrixOneCluster",
            {"spec__logService__initialConfig": {"logShards": 2}},
            "initialConfig.logShards",
        ),
    ],
)
async def test_what_was_decided_at_creation_cannot_be_changed(
    client: Client, kind: str, change: dict[str, Any], text: str
) -> None:
    name = f"fixed-{kind.lower()}"
    with suppress(ApiError):
        await made(client, declared(kind, name))
    with pytest.raises(ApiError) as refused:
        await put(client, declared(kind, name, **change))
    assert refused.value.status == 422
    assert text in str(refused.value)


async def test_a_log_service_may_be_scaled_to_zero(client: Client) -> None:
    await made(client, declared("LogSet", "zero"))
    stored = await put(
        client,
        declared(
            "LogSet",
            "zero",
            spec__replicas=0,
            spec__initialConfig={"logShardReplicas": 3, "logShards": 1, "dnShards": 1},
        ),
    )
    assert stored["spec"]["replicas"] == 0


async def test_an_object_with_an_old_fault_can_still_be_edited() -> None:
    old = declared("CNSet", spec__nodePort=30011)
    new = declared("CNSet", spec__nodePort=30011, spec__replicas=5)
    verdict = await reviewed(new, old)
    assert isinstance(verdict, Allow)
    assert any("spec.nodePort" in one for one in verdict.warnings)
    worse = await reviewed(declared("CNSet", spec__nodePort=30011, spec__role="X"), old)
    assert isinstance(worse, Refuse)
    assert [field for field, _ in worse.causes] == ["spec.role"]


async def test_a_deleted_object_is_let_go_whatever_is_wrong_with_it() -> None:
    gone = declared("CNSet", spec__role="X", metadata__deletionTimestamp="2026-01-01T00:00:00Z")
    assert await reviewed(gone, declared("CNSet")) == Allow()


@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        ("CNSet", {"spec__replica": 1}, 'unknown field "spec.replica"; did you mean "replicas"?'),
        ("CNSet", {"spec__overlay": {"enf": []}}, 'unknown field "spec.overlay.enf"; did you mean "env"?'),
        (
            "CNSet",
            {"deps__externalLogSett": {}},
            'unknown field "deps.externalLogSett"; did you mean "externalLogSet"?',
        ),
        (
            "MatrixOneCluster",
            {"spec__cnGroups__0__overlay": {"tolerationz": []}},
            'unknown field "spec.cnGroups[0].overlay.tolerationz"; did you mean "tolerations"?',
        ),
        (
            "CNSet",
            {"spec__pythonUdfSidecar": {"overlay": {"affinity": {}}}},
            'unknown field "spec.pythonUdfSidecar.overlay.affinity"',
        ),
    ],
)
async def test_an_unknown_field_is_kept_and_named_with_the_nearest_known_one(
    client: Client, kind: str, change: dict[str, Any], text: str
) -> None:
    raw = declared(kind, "typo", **change)
    assert text in unknown(BY_KIND[kind], raw)
    assert text.replace('"', '\\"') in await warned(client, raw)
    assert_within(raw["spec"], (await made(client, raw, dry=True))["spec"], "spec")


@pytest.mark.parametrize("path", ["owned/by", "owned/by/", "/owned/by/us", "owned"])
@pytest.mark.parametrize("kind", ["LogSet", "MatrixOneCluster"])
async def test_a_path_within_one_that_another_log_service_owns_is_refused_in_every_namespace(
    client: Client, kind: str, path: str
) -> None:
    server = {"type": "minio", "endpoint": "http://minio:9000", "region": "us-east-1"}
    claim = declared(
        "BucketClaim",
        "taken",
        spec__s3={**server, "path": "owned/by"},
        status={"bindTo": "elsewhere/mo", "state": "InUse"},
    )
    with suppress(AlreadyExists):
        await made(client, claim)
    field = "spec__sharedStorage__s3" if kind == "LogSet" else "spec__logService__sharedStorage__s3"
    with pytest.raises(ApiError) as refused:
        await made(client, declared(kind, "second", **{field: {**server, "path": path}}))
    assert "already bind to elsewhere/mo" in str(refused.value)
    assert "sharedStorage.s3" in str(refused.value)
    await made(client, declared(kind, "third", **{field: {**server, "path": "owned-by/others"}}), dry=True)


async def test_status_and_scale_are_served_as_upstream_serves_them(client: Client) -> None:
    await made(client, declared("CNSet", "scaled"))
    path = CNSet.resource.path(namespace="default", name="scaled")
    scale = msgspec.json.decode((await client.request("GET", f"{path}/scale")).body)
    assert scale["spec"] == {"replicas": 2}
    for kind in KINDS:
        subresource = f"{kind.resource.path(namespace='default', name='none')}/status"
        with pytest.raises(ApiError) as missing:
            await client.request("GET", subresource)
        served = "could not find the requested resource" not in str(missing.value)
        assert served is (kind.resource.kind not in ("BucketClaim", "Backup")), kind


class Nothing:
    """Answers every list with nothing."""

    async def list(self, *_: Any, **__: Any) -> Any:
        class Found:
            items: tuple[Object, ...] = ()

        return Found()


async def reviewed(new: dict[str, Any], old: dict[str, Any] | None = None) -> Verdict:
    async def live(_: str) -> bool:
        return True

    scope = Scope(scope="all", namespaces=(), served=live)
    asked = Review(
        kind=BY_KIND[new["kind"]],
        operation="UPDATE" if old is not None else "CREATE",
        key=Key("default", new["metadata"]["name"]),
        object=new,
        old=old,
    )
    return await Reviews(Nothing(), scope).review(asked)  # type: ignore[arg-type]


async def test_junk_of_any_type_gets_no_defaults_and_no_exception() -> None:
    odd: tuple[Any, ...] = (
        None,
        3,
        "x",
        [],
        [1],
        {"cnGroups": 3},
        {"logService": []},
        {"cnGroups": [None, 1]},
    )
    for junk in odd:
        raw = {"metadata": {"annotations": 7}, "spec": junk}
        for kind in (MatrixOneCluster, LogSet, CNSet):
            patch = default_patch(kind, raw, new=True)
            assert set(patch) <= {"spec"}
