"""What another version of the operator would roll is told by fields, and only where the meaning differs."""

from __future__ import annotations

from msgspec.structs import replace
from tests.operators.redis.sentinel.test_specs import cluster

from mooring.cli.plan_upgrade import told
from mooring.kube.objects import apps, core
from mooring.operators.redis.sentinel.specs import Found, Specs
from mooring.operators.workload.upgrade import Planned, differences


def template(made: apps.StatefulSet) -> core.PodTemplateSpec:
    assert made.spec is not None
    assert made.spec.template is not None
    return made.spec.template


def as_before(now: core.PodTemplateSpec) -> core.PodTemplateSpec:
    """The template of a version with a shorter grace, another image and no probe of life."""
    assert now.spec is not None
    containers = [
        replace(one, image="redis:old", liveness_probe=None) if one.name == "redis" else one
        for one in now.spec.containers or ()
    ]
    return replace(now, spec=replace(now.spec, containers=containers, termination_grace_period_seconds=3))


def test_every_field_that_differs_is_named_with_its_container() -> None:
    now = template(Specs(cluster(), Found()).redis_set())

    assert set(differences(now, as_before(now))) == {
        "spec.containers[redis].image",
        "spec.containers[redis].livenessProbe",
        "spec.terminationGracePeriodSeconds",
    }


def test_the_same_template_differs_in_nothing_and_a_new_container_as_a_whole() -> None:
    now = template(Specs(cluster(), Found()).redis_set())
    assert list(differences(now, now)) == []
    assert now.spec is not None
    bare = replace(now, spec=replace(now.spec, containers=[core.Container(name="other")]))
    assert "spec.containers[redis]" in set(differences(now, bare))


def test_the_plan_is_told_by_cluster_and_component() -> None:
    assert told("default/demo", Planned(component="redis")).endswith("rolls for itself alone")
    waiting = told("default/demo", Planned(component="redis", fields=("spec.x",), waiting=True))
    assert waiting.splitlines()[1] == "  spec.x"
    assert "waits" in waiting
    assert told("default/demo", Planned(component="redis", trouble="has no pods yet")).endswith("no pods yet")
