"""Which clusters of HarmonyCloud's operator are taken over, and what is said of the others."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.operators.redis.cluster.builders import NOW, change, snapshot, whole
from tests.operators.redis.cluster.harmonycloud import objects

from mooring.actor.drift import APPLIED
from mooring.kube import Client
from mooring.kube.object import decode
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import ConfigMap, Endpoints
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.specs import Found, Orders, Specs
from mooring.operators.redis.cluster.takeover import LOCKS, refusal
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterSpec
from mooring.operators.workload.adoption import LEADER, lock_holder, made_by_another, pods_selector

CLAIM = {"metadata": {"name": "redis-data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
SHARED = {"name": "redis-data", "persistentVolumeClaim": {"claimName": "shared"}}


def cluster(**spec: Any) -> RedisCluster:
    pod = {"middlewareImage": "redis:7.0", **spec.pop("pod", {})}
    body = {"replicas": 6, "volumeClaimTemplates": [CLAIM], "pod": [pod], **spec}
    return decode(
        {"metadata": {"name": "old", "namespace": "default", "uid": "u"}, "spec": body}, RedisCluster
    )


def live(*, shared: bool = False) -> StatefulSet:
    """Its StatefulSet; ``shared`` with a directory for each pod on one claim."""
    body = objects("old", "u", replicas=6, password="")[-1]
    if shared:
        del body["spec"]["volumeClaimTemplates"]
        body["spec"]["template"]["spec"]["volumes"].append(SHARED)
    return decode(body, StatefulSet)


def said(seen: Snapshot, declared: RedisCluster | None = None, found: StatefulSet | None = None) -> str:
    """Why it is not taken over."""
    declared, found = declared or cluster(), found or live()
    spec = declared.spec or RedisClusterSpec()
    return refusal(seen, Specs(declared, Found(live=found)), found, spec.replicas or 0)


def test_a_cluster_that_serves_whole_is_taken_over() -> None:
    assert said(snapshot(whole(), formed=False)) == ""


def test_it_is_another_ones_until_our_mark_is_on_it() -> None:
    found = live()
    assert made_by_another(cluster(), found)
    marked = {**(found.metadata.annotations or {}), APPLIED: "1"}
    body = objects("old", "u", replicas=6, password="")[-1]
    body["metadata"]["annotations"] = marked
    assert not made_by_another(cluster(), decode(body, StatefulSet))
    stranger = decode(objects("old", "another", replicas=6, password="")[-1], StatefulSet)
    assert not made_by_another(cluster(), stranger)
    assert pods_selector(found) == "app=old,component=old"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (snapshot(whole(), pods=8), ["spec.replicas", "give 8"]),
        (snapshot(whole(), revision="new"), []),
        (
            snapshot(change(whole(), 4, pod=(("revision", "old"),)), revision="new"),
            ["demo-4", "wait until it is"],
        ),
        (snapshot(change(whole(), 4, gone=True), pods=6), ["5 of its 6 pods"]),
        (snapshot(change(whole(), 4, silent=True)), ["demo-4", "requirepass"]),
        (snapshot(change(whole(), 0, slots=0)), ["slots are without a live owner"]),
        (snapshot(whole(), alone=[5]), ["does not know demo-5"]),
    ],
)
def test_what_is_in_the_way_is_named(seen: Snapshot, words: list[str]) -> None:
    why = said(seen)
    assert bool(why) == bool(words)
    for word in words:
        assert word in why


@pytest.mark.parametrize("kind", [ConfigMap, Endpoints])
@pytest.mark.parametrize(
    ("name", "holder", "seconds", "leads"),
    [
        ("middleware-operator-manager", "manager-0", 10, True),
        ("3a49403d.hc.cn", "manager-0", 10, True),
        ("3a49403d.hc.cn", "manager-0", 61, False),
        ("3a49403d.hc.cn", "", 10, False),
        ("another", "manager-0", 10, False),
    ],
)
async def test_its_operator_is_known_by_a_lock_that_is_renewed(
    kind: type[ConfigMap | Endpoints], name: str, holder: str, seconds: int, leads: bool
) -> None:
    renewed = (NOW - timedelta(seconds=seconds)).isoformat()
    record = json.dumps({"holderIdentity": holder, "renewTime": renewed})
    lock = kind(metadata=ObjectMeta(name=name, namespace="default", annotations={LEADER: record}))
    broken = ConfigMap(metadata=ObjectMeta(name=LOCKS[0], namespace="kube-public", annotations={LEADER: "{"}))
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await client.create(broken)
        await client.create(lock)
        said = await lock_holder(client, LOCKS, namespace="", now=NOW)
    assert said == (f"manager-0 ({kind.__name__} default/{name})" if leads else "")


def test_data_that_new_pods_would_not_find_is_no_small_thing() -> None:
    seen, found = snapshot(whole()), live(shared=True)
    elsewhere = cluster(volumeClaimTemplates=None)
    assert "persistentVolumeClaimName" in said(seen, elsewhere, found)
    shared = {"type": "nfs", "persistentVolumeClaimName": "shared"}
    assert said(seen, cluster(volumeClaimTemplates=None, pod={"volumes": shared}), found) == ""


def test_new_pods_bear_what_the_set_selects_by_and_images_begin_with_the_repository() -> None:
    declared = cluster(repository="harbor/library/")
    specs = Specs(declared, Found(live=live()), Orders(rewrite=True))
    made = specs.stateful_set()

    assert made.spec is not None
    assert made.spec.template is not None
    assert made.spec.template.metadata is not None
    assert made.spec.template.spec is not None
    labels = made.spec.template.metadata.labels or {}
    assert {labels.get(key) for key in ("app", "component", "app.kubernetes.io/name")} == {"old"}
    assert specs.image == "harbor/library/redis:7.0"
    assert [one.image for one in made.spec.template.spec.containers or ()] == [specs.image]
    assert Specs(cluster(repository="harbor/library"), Found()).image == "redis:7.0", (
        "of a new one: an image's path"
    )
