"""What each move changes about the child objects, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.operators.redis.sentinel.test_specs import cluster

from mooring.actor import Move
from mooring.kube.object import Object, to_dict
from mooring.operators.redis.passwords.moves import PublishPassword, StagePassword
from mooring.operators.redis.sentinel.effects import orders_of
from mooring.operators.redis.sentinel.inputs import Inputs, read_inputs
from mooring.operators.redis.sentinel.moves import (
    LabelRoles,
    PublishConfig,
    Resize,
    WriteTemplate,
)
from mooring.operators.redis.sentinel.specs import Found, Specs
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.surroundings import Surroundings

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def running(**spec: Any) -> Inputs:
    """A cluster whose objects are there, as it was declared first; ``spec`` is declared now."""
    first = Specs(cluster(password="old"), Found(kept=Kept(password="old", sentinel="key")))
    inputs = read_inputs(cluster(**{"password": "old", **spec}), Surroundings(first.objects()), now=NOW)
    assert isinstance(inputs, Inputs)
    return inputs


def objects(inputs: Inputs, move: Move) -> dict[str, dict[str, Any]]:
    made = inputs.ordered(orders_of(inputs, move)).objects()
    return {name(one): to_dict(one) for one in made}


def name(one: Object) -> str:
    return f"{one.resource.kind}/{one.metadata.name}"


@pytest.mark.parametrize(
    ("spec", "move", "changed"),
    [
        ({"size": 5}, Resize(component="redis", replicas=5), {"StatefulSet/redis-cluster-shop"}),
        ({}, Resize(component="sentinel", replicas=5), {"StatefulSet/redis-sentinel-shop"}),
        ({"image": "redis:7.4"}, WriteTemplate(component="redis"), {"StatefulSet/redis-cluster-shop"}),
        ({"image": "redis:7.4"}, WriteTemplate(component="sentinel"), set()),
        ({}, PublishConfig(values={"hz": "13"}), {"ConfigMap/redis-live-shop"}),
        ({"password": "new"}, StagePassword(), {"Secret/redis-password-shop"}),
        ({}, PublishPassword(sentinels=()), set()),
        ({"size": 5, "image": "redis:7.4"}, LabelRoles(roles={}, uids={}), set()),
    ],
)
def test_a_move_changes_its_own_object_alone(spec: dict[str, Any], move: Move, changed: set[str]) -> None:
    inputs = running(**spec)
    before = {name(one): to_dict(one) for one in inputs.specs.objects()}
    after = objects(inputs, move)
    assert {one for one in after if after[one] != before[one]} == changed
    assert after.keys() == before.keys()


def test_a_password_is_staged_beside_the_one_in_force_and_then_published() -> None:
    staged = orders_of(running(password="new"), StagePassword()).kept
    assert staged is not None
    assert (staged.password, staged.next) == ("old", "new")
    inputs = running(password="new")
    with_next = Inputs(
        cluster=inputs.cluster,
        around=inputs.around,
        wanted=inputs.wanted,
        found=Found(kept=staged),
        password=inputs.password,
    )
    published = orders_of(with_next, PublishPassword(sentinels=())).kept
    assert published is not None
    assert (published.password, published.next, published.previous) == ("new", None, "old")


def test_an_unusable_password_is_not_staged() -> None:
    inputs = running(password="new\nline")
    assert inputs.declared is None
    assert inputs.blocked is not None
    assert orders_of(inputs, StagePassword()) == Orders()


def test_neither_inputs_nor_orders_show_a_password() -> None:
    inputs = running(password="hush-hush")
    assert "hush-hush" not in repr(inputs)
    assert "hush-hush" not in repr(orders_of(inputs, StagePassword()))
