"""Labels and annotations that users declare: refused exactly where the API server would, by the field they are written in."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.operators.workload.test_overlay import Kind, as_, each_kind

from mooring.kube import Client, Invalid, Key
from mooring.kube.object import Object
from mooring.kube.objects import core, meta
from mooring.local.api.server import ApiServer
from mooring.operators.matrixone.types import CNClaimSet, CNSet, ProxySet
from mooring.operators.matrixone.validate import validate as validate_matrixone
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.mysql.validate import validate as validate_mysql
from mooring.operators.mysql.webhook import MySQLClusterReview
from mooring.operators.redis.cluster.types import RedisCluster as HarmonyCluster
from mooring.operators.redis.cluster.validate import validate as validate_cluster
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.redis.sentinel.validate import validate as validate_sentinel
from mooring.operators.workload.labels import annotation_faults, label_faults
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict

KEYS = [
    *("a", "team", "Team_1", "a.b-c", "example.com/name", "a/b", "A.example/name", "x" * 63, "x" * 64, ""),
    *("not a key", "/a", "a/", "a/b/c", "-a", "a-", "a..b", "example..com/a", "-x.com/a", "é", "a\n"),
    *(f"{'d' * 63}.{'e' * 63}.{'f' * 63}.{'g' * 61}/a", f"{'d' * 63}.{'e' * 63}.{'f' * 63}.{'g' * 62}/a"),
]
VALUES = ["", "v", "V-1_2.3", "b c", "-v", "v.", "v" * 63, "v" * 64, "é", "v\n", "a/b"]
BAD = {"not a key": "v"}
LONG = {"team": "v" * 64}


async def refused(client: Client, **metadata: Any) -> bool:
    """Whether the server refuses a Service."""
    service = core.Service(
        metadata=meta.ObjectMeta(name="s", namespace="default", **metadata),
        spec=core.ServiceSpec(ports=[core.ServicePort(port=80)]),
    )
    try:
        await client.create(service, dry_run=True)
    except Invalid:
        return True
    return False


async def test_the_rule_says_what_the_api_server_says() -> None:
    dice = random.Random(7)
    letters = "aZ0-_./ "
    drawn = ["".join(dice.choice(letters) for _ in range(dice.randint(1, 5))) for _ in range(100)]
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(agent="test"))
        for key in (*KEYS, *drawn):
            ruled = bool(list(label_faults("l", {key: ""})))
            assert ruled is await refused(client, labels={key: ""}), key
            ruled = bool(list(annotation_faults("a", {key: "any\nthing"})))
            assert ruled is await refused(client, annotations={key: "any\nthing"}), key
        for value in (*VALUES, *drawn):
            ruled = bool(list(label_faults("l", {"key": value})))
            assert ruled is await refused(client, labels={"key": value}), value
        for size in (256 * 1024 - 1, 256 * 1024):  # and one byte of the key
            ruled = bool(list(annotation_faults("a", {"k": "v" * size})))
            assert ruled is await refused(client, annotations={"k": "v" * size}), size


def test_the_message_has_the_field_and_the_remedy() -> None:
    [key] = label_faults("spec.pod.labels", BAD)
    assert key.field == 'spec.pod.labels["not a key"]'
    assert "write name or domain/name" in key.message
    [value] = label_faults("spec.pod.labels", LONG)
    assert (value.field, value.message) == (
        'spec.pod.labels["team"]',
        "64 characters, a label has at most 63; shorten it, or use an annotation",
    )


@each_kind
def test_labels_and_annotations_of_an_overlay_are_judged(kind: Kind) -> None:
    said = kind.refused(metadata={"labels": LONG, "annotations": BAD}, spec={"nodeSelector": BAD})
    at = kind.ours(kind.base).where
    assert sorted(said) == [
        f'{at}.metadata.annotations["not a key"]',
        f'{at}.metadata.labels["team"]',
        f'{at}.spec.nodeSelector["not a key"]',
    ]


def _within(path: str, value: Any) -> dict[str, Any]:
    """A spec with the value at a path such as ``services.primary``; ``[0]`` is the one member of a list."""
    first, _, rest = path.partition(".")
    inner = _within(rest, value) if rest else value
    return {first.removesuffix("[0]"): [inner] if first.endswith("[0]") else inner}


@pytest.mark.parametrize(
    ("type_", "path"),
    [
        (MySQLCluster, "services.primary.annotations"),
        (MySQLCluster, "services.replicas.annotations"),
        (MySQLCluster, "pod.labels"),
        (MySQLCluster, "pod.annotations"),
        (MySQLCluster, "pod.nodeSelector"),
        (RedisCluster, "services.master.annotations"),
        (RedisCluster, "services.replica.annotations"),
        (RedisCluster, "annotations"),
        (RedisCluster, "nodeSelector"),
        (RedisCluster, "sentinel.annotations"),
        (RedisCluster, "sentinel.nodeSelector"),
        (HarmonyCluster, "pod[0].labels"),
        (HarmonyCluster, "pod[0].annotations"),
        (CNSet, "serviceAnnotations"),
        (CNSet, "overlay.podAnnotations"),
        (CNSet, "overlay.podLabels"),
        (ProxySet, "serviceAnnotations"),
        (CNClaimSet, "template.metadata.annotations"),
    ],
    ids=str,
)
def test_every_field_with_labels_or_annotations_is_judged(type_: type[Object], path: str) -> None:
    checks: dict[type[Object], Any] = {
        MySQLCluster: validate_mysql,
        RedisCluster: validate_sentinel,
        HarmonyCluster: validate_cluster,
    }
    validate = checks.get(type_, validate_matrixone)
    good, bad = (as_(type_, _within(path, entries)) for entries in ({"example.com/name": "v"}, BAD))
    field = f'spec.{path}["not a key"]'
    assert {one.field for one in validate(bad)} - {one.field for one in validate(good)} == {field}


async def test_an_annotation_that_is_there_already_is_warned_of_and_a_new_one_refused() -> None:
    async def served(_: str) -> bool:
        return True

    async def reviewed(before: dict[str, Any], after: dict[str, Any]) -> Verdict:
        review = MySQLClusterReview(scope="all", namespaces=(), served=served)
        old, new = (
            {"metadata": {"name": "shop", "namespace": "web"}, "spec": one} for one in (before, after)
        )
        asked = Review(kind=MySQLCluster, operation="UPDATE", key=Key("web", "shop"), object=new, old=old)
        return await review.review(asked)

    sound = {"image": "mariadb:10.11"}
    wrong = {**sound, **_within("services.primary.annotations", BAD)}
    field = 'spec.services.primary.annotations["not a key"]'
    kept = await reviewed(wrong, {**wrong, "size": 5})
    assert isinstance(kept, Allow)
    assert any(one.startswith(field) for one in kept.warnings)
    made = await reviewed(sound, wrong)
    assert isinstance(made, Refuse)
    assert [name for name, _ in made.causes] == [field]
