"""What a cluster reports when its servers keep ending: their own words, and the field that is to be corrected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bench.matrixone_workloads import CLUSTER, LOG
from tests.operators.matrixone.test_buckets import eventually, operating

from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.object import decode, owner_reference, to_dict
from mooring.kube.objects.apps import Deployment, ReplicaSet, StatefulSet
from mooring.kube.objects.core import Pod
from mooring.operators.matrixone.explain import lines
from mooring.operators.matrixone.remedies import remedies_of
from mooring.operators.matrixone.types import LogSet, MatrixOneCluster, ProxySet

SAID = "panic: internal error: bad s3 config: api error SignatureDoesNotMatch: The request signature we calculated does not match"
KEY = "AKIAIOSFODNN7EXAMPLE"
S3 = {"path": "data/mo", "type": "minio", "endpoint": "http://minio:9000", "secretRef": {"name": "keys"}}
REMEDY = (
    "check spec.logService.sharedStorage.s3.secretRef of MatrixOneCluster mo: the keys in the Secret keys, and what they may do "
    "with the bucket"
)


async def loops(client: Client, owner: Any, name: str, log: str) -> None:
    """A pod of a set whose container ends at each start, as a kubelet reports it."""
    template = to_dict(owner)["spec"]["template"]
    metadata = {
        **template["metadata"],
        "name": name,
        "namespace": "default",
        "ownerReferences": [msgspec.to_builtins(owner_reference(owner))],
    }
    spec = {**template["spec"], "nodeName": "node-1"}
    spec["volumes"] = [one for one in spec.get("volumes", ()) if one["name"] != "mo-data"]
    spec["volumes"].append({"name": "mo-data", "emptyDir": {}})
    await client.create(decode({"metadata": metadata, "spec": spec}, Pod))
    container = {
        "name": "main",
        "image": "matrixorigin/matrixone:1.2.4",
        "imageID": "sha256:0",
        "ready": False,
        "restartCount": 5,
        "state": {
            "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting failed container"}
        },
        "lastState": {
            "terminated": {"exitCode": 2, "reason": "Error", "message": log, "containerID": "containerd://5"}
        },
    }
    status = {"phase": "Running", "containerStatuses": [container]}
    await client.patch(Pod, name, MergePatch({"status": status}), namespace="default", subresource="status")


async def there(client: Client, kind: type[Any], name: str) -> Any:
    try:
        return await client.get(kind, name, namespace="default")
    except NotFound:
        return None


def condition(one: Any, type: str) -> tuple[str, str, str]:
    found = next(
        (each for each in (one.status.conditions if one.status else None) or () if each.type == type), None
    )
    return (found.status, found.reason or "", found.message or "") if found is not None else ("", "", "")


async def test_a_wrong_secret_is_reported_in_the_words_of_the_server_by_its_sets_and_its_cluster() -> None:
    async with operating() as client:
        spec = {**CLUSTER, "logService": {**LOG, "sharedStorage": {"s3": S3}}}
        await client.create(
            decode({"metadata": {"name": "mo", "namespace": "default"}, "spec": spec}, MatrixOneCluster)
        )
        owner = await eventually(lambda: there(client, StatefulSet, "mo-log"))
        await loops(
            client,
            owner,
            "mo-log-0",
            f"key {KEY} INFO new object storage\n{SAID} for {KEY}\n\ngoroutine 1 [running]:\n",
        )

        text = f'mo-log-0: the server keeps ending: "{SAID} for [redacted]"; {REMEDY}'

        async def told() -> LogSet | None:
            found: LogSet = await client.get(LogSet, "mo", namespace="default")
            return found if condition(found, "Stalled") == ("True", "CrashLoopBackOff", text) else None

        log_set: LogSet = await eventually(told)
        assert condition(log_set, "Synced") == ("False", "CrashLoopBackOff", text)
        assert log_set.status is not None
        # What `mooring why` prints beside the conditions.
        (line,) = [one for one in lines(msgspec.to_builtins(log_set.status)) if one.startswith("mo-log-0")]
        assert SAID in line

        async def of_the_cluster() -> MatrixOneCluster | None:
            found: MatrixOneCluster = await client.get(MatrixOneCluster, "mo", namespace="default")
            return found if text in condition(found, "Ready")[2] else None

        cluster: MatrixOneCluster = await eventually(of_the_cluster)
        assert text in condition(cluster, "Synced")[2]
        assert KEY not in str(msgspec.to_builtins(cluster)) + str(msgspec.to_builtins(log_set))


async def test_a_proxy_that_keeps_ending_is_reported_by_its_set() -> None:
    """A Deployment says no more than that a pod is missing."""
    async with operating() as client:
        spec = {**LOG, "image": "matrixorigin/matrixone:1.2.4", "sharedStorage": {"s3": S3}}
        await client.create(
            decode({"metadata": {"name": "mo", "namespace": "default"}, "spec": spec}, LogSet)
        )
        await eventually(lambda: there(client, StatefulSet, "mo-log"))
        now = {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        ready = {"status": {"conditions": [now, {**now, "type": "Synced"}]}}

        proxies = {
            "metadata": {"name": "mo", "namespace": "default"},
            "spec": {"replicas": 2, "image": "matrixorigin/matrixone:1.2.4"},
            "deps": {"logSet": {"metadata": {"name": "mo"}}},
        }
        await client.create(decode(proxies, ProxySet))

        async def made() -> Any:
            # Nothing runs here, so the log service is said to serve, until a pass has seen that.
            await client.patch(LogSet, "mo", MergePatch(ready), namespace="default", subresource="status")
            return await there(client, Deployment, "mo-proxy")

        deployment = await eventually(made)
        template = to_dict(deployment)["spec"]
        replicas = {"metadata": {"name": "mo-proxy-5d", "namespace": "default"}, "spec": {
            "replicas": 1, "selector": template["selector"], "template": template["template"]}}  # fmt: skip
        owner = await client.create(decode(replicas, ReplicaSet))
        await loops(
            client,
            owner,
            "mo-proxy-5d-x",
            "panic: failed to parse config from /tmp/tmp.a1/config, error: toml: line 3\n",
        )

        async def told() -> str:
            found: ProxySet = await client.get(ProxySet, "mo", namespace="default")
            status, reason, text = condition(found, "Stalled")
            return text if (status, reason) == ("True", "CrashLoopBackOff") else ""

        text = await eventually(told)
        assert (
            'mo-proxy-5d-x: the server keeps ending: "panic: failed to parse config from config, error: toml: line 3"'
            in text
        )
        assert text.endswith("; correct config")


@pytest.mark.parametrize(
    ("cluster", "here", "field"),
    [
        ("shop", True, "check spec.logService.sharedStorage.s3.secretRef of MatrixOneCluster shop"),
        ("", True, "check spec.sharedStorage.s3.secretRef: the keys"),
        ("", False, "check spec.sharedStorage.s3.secretRef of LogSet mo: the keys"),
    ],
)
def test_the_field_is_that_of_the_object_that_a_person_edits(cluster: str, here: bool, field: str) -> None:
    owner = {
        "apiVersion": "core.matrixorigin.io/v1alpha1",
        "kind": "MatrixOneCluster",
        "name": cluster,
        "uid": "1",
    }
    owners = [{**owner, "controller": True}] if cluster else []
    raw = {"metadata": {"name": "mo", "ownerReferences": owners}, "spec": {"sharedStorage": {"s3": S3}}}
    assert remedies_of(decode(raw, LogSet), here=here)["StorageRefused"].startswith(field)
