"""What whoever applies a RedisCluster is told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mooring.kube.object import Key
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.redis.cluster.webhook import review
from mooring.runtime.webhooks import Allow, Operation, Review, Verdict

SAMPLE = Path(__file__).with_name("harmonycloud.yaml")


async def said(new: dict[str, Any], old: dict[str, Any] | None = None) -> Verdict:
    operation: Operation = "UPDATE" if old is not None else "CREATE"
    return await review(
        Review(kind=RedisCluster, operation=operation, key=Key("web", "shop"), object=new, old=old)
    )


async def test_the_samples_misplaced_affinity_is_named_and_nothing_is_refused() -> None:
    document = yaml.safe_load(SAMPLE.read_text())
    document.pop("status")
    verdict = await said(document)
    assert isinstance(verdict, Allow)
    assert "spec.pod[0].affinity.requiredDuringSchedulingIgnoredDuringExecution" in verdict.warnings[0]
    assert any("7 is odd" in one for one in verdict.warnings)


async def test_a_change_of_something_else_is_let_pass_without_a_word() -> None:
    document = {"metadata": {"name": "shop"}, "spec": {"replicas": 4}}
    assert await said(document, {**document, "status": {}}) == Allow()


async def test_a_total_that_makes_no_cluster_is_warned_of() -> None:
    verdict = await said(
        {"metadata": {"name": "shop"}, "spec": {"replicas": 4, "repository": "redis", "version": "7"}}
    )
    assert isinstance(verdict, Allow)
    assert "spec.replicas: 4 nodes cannot form a cluster" in verdict.warnings[0]
