"""The chart's rules against what the operator really asks for, as the API server's audit log has it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hack.kubernetes.controlplane import ControlPlane
from tests.charts.helm import LEASE, NAMESPACE, Helm

from mooring.kube import MergePatch, NotFound
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import Secret, Service
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.kube.objects.rbac import ClusterRole, Role
from mooring.testing.bed import ClusterBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.real_node, pytest.mark.timeout(600)]

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{{}}"
#: API group, resource with subresource, verb.
Right = tuple[str, str, str]


#: What no request shows: asked of whoever sets owner references, where that admission plugin is on (OpenShift).
UNSEEN = {("redis.kun", "redisclusters/finalizers", "update")}


def asked(plane: ControlPlane, since: int, account: str = "mooring") -> Iterator[tuple[Right, int]]:
    """What the operator's account asked for since so many bytes of the log, and the status of the answer.

    An apply that made its object needed the right to create as well.
    """
    for line in plane.audit_log.read_bytes()[since:].decode().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef")
        if event["user"]["username"] == ACCOUNT.format(account) and reference and "resource" in reference:
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            right = (reference.get("apiGroup", ""), resource, event["verb"])
            status = event.get("responseStatus", {}).get("code", 0)
            yield right, status
            if right[2] == "patch" and status == 201:
                yield (*right[:2], "create"), status


def granted(rules: list[Any] | None) -> Iterator[Right]:
    for rule in rules or ():
        for group in rule.api_groups or ():
            for resource in rule.resources or ():
                for verb in rule.verbs or ():
                    yield group, resource, verb


async def live_a_life(bed: ClusterBed) -> None:
    """Everything a cluster can go through that needs a right of its own."""
    declared = manifest("whole", password="first", config={"maxclients": "1000"})
    declared["spec"]["storage"]["keepAfterDeletion"] = False
    await bed.apply(declared)
    stage = RedisStage(bed, "whole", password="first")
    await stage.exact(120)
    # What somebody deletes or spoils is made again.
    await bed.client.delete(Service, stage.names.master, namespace="default")
    await bed.client.delete(PodDisruptionBudget, stage.names.redis, namespace="default")
    await bed.client.patch(Secret, stage.names.password, MergePatch({"data": None}), namespace="default")
    # Live, by a switch, and by rolls; to a version that does not start and back.
    await stage.patch({"config": {"maxclients": "1001"}, "password": "second"})
    stage.password = "second"
    await stage.exact(120)
    await stage.patch({"config": {"maxclients": "1001", "databases": "20"}, "configPolicy": "roll"})
    await stage.exact(180)
    await stage.patch({"image": "redis:none"})

    async def halted() -> bool:
        return any(roll.pod for roll in ((await stage.status()).rolls or {}).values())

    await bed.until(halted, "the roll is stopped", within=120)
    await stage.patch({"image": "redis:7.0"})
    await stage.exact(180)
    await stage.patch({"size": 4})
    await stage.exact(120)
    await stage.patch({"size": 3})
    await stage.exact(120)


async def test_every_rule_is_needed_and_none_is_missing(
    bed: ClusterBed, helm: Helm, real_cluster: ControlPlane
) -> None:
    # What earlier releases asked for when their rights had gone before them is not of interest.
    since = real_cluster.audit_log.stat().st_size
    with contextlib.suppress(NotFound):
        await bed.client.delete(Lease, LEASE, namespace=NAMESPACE)
    await helm.install("mooring")
    await live_a_life(bed)
    wide = await bed.get(ClusterRole, f"{NAMESPACE}-mooring")
    own = await bed.get(Role, "mooring-leader", NAMESPACE)

    requests = await asyncio.to_thread(list, asked(real_cluster, since))
    refused = {right for right, status in requests if status == 403}
    used = {right for right, _ in requests}
    given = {*granted(wide.rules), *granted(own.rules)}

    assert refused == set()
    assert used - given == set()
    assert given - used == UNSEEN


async def test_a_release_of_one_namespace_and_one_of_the_cluster_live_side_by_side(
    bed: ClusterBed, helm: Helm, real_cluster: ControlPlane
) -> None:
    await bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    since = real_cluster.audit_log.stat().st_size
    await helm.install("wide", "--set", "scope=cluster")
    await helm.install("team", "--set", "scope=namespaced,namespaces={team}")

    everyones = manifest("everyones")
    everyones["metadata"]["annotations"] = {"redis.kun/scope": "cluster-scoped"}
    own = manifest("own")
    own["metadata"]["namespace"] = "team"
    for one in (everyones, own):
        await bed.apply(one)

    await RedisStage(bed, "everyones").exact(120)
    await RedisStage(bed, "own", namespace="team").exact(120)
    for account in ("wide-mooring", "team-mooring"):
        requests = await asyncio.to_thread(list, asked(real_cluster, since, account))
        assert {right for right, status in requests if status == 403} == set()
        assert ("apps", "statefulsets", "create") in {right for right, _ in requests}
