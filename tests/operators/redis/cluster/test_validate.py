"""What is said of a declaration before anything is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.kube.object import decode
from mooring.operators.redis.cluster.slots import shares
from mooring.operators.redis.cluster.specs import template_lines
from mooring.operators.redis.cluster.types import (
    RATE_ANNOTATION,
    AssignStrategy,
    RedisCluster,
    RedisClusterSpec,
    UpdateStrategy,
    image_of,
    pipeline_of,
)
from mooring.operators.redis.cluster.validate import invalid_scaling, validate, warnings

SAMPLE = Path(__file__).with_name("harmonycloud.yaml")


def sample(**spec: Any) -> RedisCluster:
    document = yaml.safe_load(SAMPLE.read_text())
    document["status"]["conditions"][0]["lastTransitionTime"] = "2019-03-25T03:10:29Z"
    document["spec"] |= spec
    return decode(document, RedisCluster)


def told(cluster: RedisCluster) -> dict[str, str]:
    return {problem.field: problem.message for problem in validate(cluster)}


def test_every_placeholder_of_the_sample_is_named() -> None:
    assert set(told(sample())) == {
        "spec.pod[0].middlewareImage",
        "spec.pod[0].monitorImage",
        "spec.pod[0].initImage",
        "spec.pod[0].configmap",
        "spec.pod[0].volumes.persistentVolumeClaimName",
        "spec.updateStrategy.assignStrategies[0].fromReplicas",
        "spec.updateStrategy.assignStrategies[1].fromReplicas",
    }


def test_the_sample_with_its_placeholders_filled_in_is_accepted() -> None:
    pod = {"middlewareImage": "redis:7.0", "volumes": {"type": "nfs", "persistentVolumeClaimName": "shared"}}
    cluster = sample(pod=[pod])
    assert told(cluster) == {}
    assert "7 is odd: 3 masters" in warnings(cluster)[0]


@pytest.mark.parametrize("rate", ["8", "fast", "0", "-1Mi", "512Ki", "1e999999Ki"])
def test_a_rate_of_moves_that_is_none_is_named(rate: str) -> None:
    document = yaml.safe_load(SAMPLE.read_text())
    document["metadata"]["annotations"] = {RATE_ANNOTATION: rate}
    del document["status"]
    assert 'as "8Mi"' in told(decode(document, RedisCluster))["metadata.annotations[mooring.dev/slot-rate]"]


def test_the_sample_keeps_every_field_it_has() -> None:
    spec = sample().spec
    assert spec
    assert (spec.replicas, spec.pause, spec.finalizers, spec.version) == (7, True, "foreground", "3.2.8")
    assert pipeline_of(spec) == 100
    status = sample().status
    assert status
    assert status.conditions
    assert status.conditions[0].host_ip == "192.168.26.122"


@pytest.mark.parametrize("total", [0, 1, 3, 4, 5])
def test_totals_that_make_no_cluster_are_refused_with_the_nearest_that_do(total: int) -> None:
    assert "give 2" in told(sample(replicas=total))["spec.replicas"]


@pytest.mark.parametrize("total", [2, 6, 7, 10])
def test_pairs_and_clusters_are_possible(total: int) -> None:
    assert "spec.replicas" not in told(sample(replicas=total))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"updateStrategy": {"type": "Magic"}}, "spec.updateStrategy.type"),
        ({"updateStrategy": {"pipeline": "many"}}, "spec.updateStrategy.pipeline"),
        ({"pod": [{}, {}]}, "spec.pod"),
        ({"pod": [{"middlewareImage": "two words"}]}, "spec.pod[0].middlewareImage"),
        ({"pod": [{}], "repository": None, "version": None}, "spec.pod[0].middlewareImage"),
        ({"pod": [{"volumes": {"type": "nfs"}}]}, "spec.pod[0].volumes.persistentVolumeClaimName"),
        ({"pod": [{"volumes": {"type": "tape"}}]}, "spec.pod[0].volumes.type"),
        (
            {
                "volumeClaimTemplates": [
                    {"metadata": {"name": "d"}, "spec": {"resources": {"requests": {"storage": "-1Gi"}}}}
                ]
            },
            "spec.volumeClaimTemplates[0].spec.resources.requests.storage",
        ),
        ({"pod": [{"requirepass": "a\nb"}]}, "spec.pod[0].requirepass"),
    ],
)
def test_what_cannot_be_carried_out_is_named_with_its_field(spec: dict[str, Any], field: str) -> None:
    assert field in told(sample(**spec))


def test_the_image_is_the_given_one_or_made_of_repository_and_version() -> None:
    assert image_of(RedisClusterSpec(repository="library/redis", version="7.0")) == "library/redis:7.0"
    assert image_of(RedisClusterSpec()) == ""


OWNED = dict(zip("abc", shares(3), strict=True))


def scaling(total: int, *entries: tuple[int, str], kind: str = "AssignReceive") -> str:
    given = [AssignStrategy(slots=slots, from_replicas=sources) for slots, sources in entries]
    spec = RedisClusterSpec(
        replicas=total, update_strategy=UpdateStrategy(type=kind, assign_strategies=given)
    )
    return invalid_scaling(spec, nodes=6, owned=OWNED, names=["a", "b", "c", "r"])


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (scaling(8), "0 entries for 1 new masters"),
        (scaling(8, (1, "a"), (1, "b")), "2 entries for 1 new masters"),
        (scaling(8, (1, "x")), "x is not a node of this cluster"),
        (scaling(8, (1, "r")), "r is a replica"),
        (scaling(8, (1, "")), "is empty"),
        (scaling(8, (1, ",")), "is empty"),
        (scaling(8, (0, "a")), "no slots are asked for"),
        (scaling(8, (6000, "a")), "6000 slots are asked of nodes that have 5461"),
        (scaling(10, (5000, "a"), (5000, "a")), "5000 slots are asked of nodes that have 461"),
        (scaling(8, (5461, "a")), "a would keep none of its 5461 slots"),
        (scaling(10, (5460, "a"), (1, "a")), "a would keep none of its 1 slots"),
        (scaling(2, kind="AutoReceive"), "do not turn into one another"),
    ],
)
def test_an_assignment_that_does_not_fit_is_refused_before_any_pod_is_made(why: str, words: str) -> None:
    assert words in why


def test_an_assignment_that_fits_is_accepted() -> None:
    assert scaling(8, (1000, "a, b,")) == ""
    assert scaling(10, (2000, "a"), (1000, "b,c")) == ""
    assert scaling(8, kind="AutoReceive") == ""
    assert scaling(7) == "", "one node more is one replica more"


def test_nodes_are_not_taken_out_by_an_assignment() -> None:
    spec = RedisClusterSpec(replicas=6, update_strategy=UpdateStrategy(type="AssignReceive"))
    owned = dict(zip("abcd", shares(4), strict=True))
    assert "give AutoReceive" in invalid_scaling(spec, nodes=8, owned=owned)


def test_a_template_keeps_its_lines_but_for_what_the_operator_decides() -> None:
    text = "# a comment\nport 7000\nmaxclients 500\ncluster-node-timeout 3000\ndir /tmp\nsave 60 1\n"
    kept, dropped = template_lines(text)
    assert kept == ["maxclients 500", "cluster-node-timeout 3000", "save 60 1"]
    assert dropped == ["port", "dir"]


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"limits": {"memory": "-1Gi"}}, "limits.memory"),
        ({"requests": {"cpu": "-10m"}}, "requests.cpu"),
        ({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}, "requests.memory"),
        ({"requests": {"memory": "1024Mi"}, "limits": {"memory": "1Gi", "cpu": "1"}}, ""),
    ],
)
def test_resources_that_no_pod_can_have_are_named_by_their_field(
    resources: dict[str, Any], field: str
) -> None:
    named = told(sample(pod=[{"middlewareImage": "redis:7.0", "resources": resources}]))
    assert {one for one in named if "resources" in one} == (
        {f"spec.pod[0].resources.{field}"} if field else set()
    )
