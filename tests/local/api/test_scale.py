"""The scale subresource: who owns a size that is set through it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.local.api.conftest import CRDS, WIDGETS, Client, definition

Json = Any

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ONE = DEPLOYMENTS + "/d"
SCALE = ONE + "/scale"
APPLY = "application/apply-patch+yaml"


@pytest.fixture
async def scaled(api: Client) -> Client:
    """A client of a server with a Deployment of size 3 that `ann` made."""
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    await api.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, fieldManager="ann")
    return api


def _scale(size: int) -> Json:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "d"},
        "spec": {"replicas": size},
    }


async def _owners(api: Client, path: str = ONE, size: str = "f:replicas") -> list[tuple[str, str, bool]]:
    """Return who owns the size: manager, subresource, and whether the entry has a time."""
    entries = (await api.get(path))["metadata"].get("managedFields") or []
    return [
        (entry["manager"], entry.get("subresource", ""), "time" in entry)
        for entry in entries
        if size in entry["fieldsV1"].get("f:spec", {})
    ]


async def test_who_scales_owns_the_size_without_a_time(scaled: Client) -> None:
    assert await _owners(scaled) == [("ann", "", True)]
    await scaled.ok("PUT", SCALE, _scale(4), fieldManager="bob")
    assert await _owners(scaled) == [("bob", "scale", False)]


async def test_scaling_to_the_size_it_has_splits_its_owner(scaled: Client) -> None:
    await scaled.ok("PUT", SCALE, _scale(3), fieldManager="bob")
    assert await _owners(scaled) == [("ann", "", False)]
    managers = [entry["manager"] for entry in (await scaled.get(ONE))["metadata"]["managedFields"]]
    assert managers == ["ann", "ann"]
    # The next write knows a manager once: of the two entries the later one stays.
    await scaled.merge(ONE, {"metadata": {"labels": {"a": "b"}}}, fieldManager="cat")
    assert await _owners(scaled) == []


async def test_the_next_write_knows_a_split_owner_once_even_when_it_changes_nothing(scaled: Client) -> None:
    await scaled.ok("PUT", SCALE, _scale(3), fieldManager="bob")
    before = await scaled.get(ONE)

    after = await scaled.merge(ONE, {"spec": {"paused": None}}, fieldManager="cat")

    assert [entry["manager"] for entry in after["metadata"]["managedFields"]] == ["ann"]
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


async def test_nobody_owns_a_size_of_zero(scaled: Client) -> None:
    shown = await scaled.merge(SCALE, {"spec": {"replicas": 0}}, fieldManager="bob")
    assert shown["spec"] == {}
    assert await _owners(scaled) == []


async def test_an_applied_scale_conflicts_and_can_be_forced(scaled: Client) -> None:
    await scaled.apply(ONE, {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3}}, "dog")
    status = await scaled.refused(409, "PATCH", SCALE, _scale(5), content_type=APPLY, fieldManager="cat")
    assert [cause["field"] for cause in status["details"]["causes"]] == [".spec.replicas"] * 2
    await scaled.apply(SCALE, _scale(5), "cat", force="true")
    assert await _owners(scaled) == [("cat", "scale", False)]


async def test_a_scale_of_a_custom_resource_cannot_be_applied(api: Client) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    await api.create(CRDS, definition(subresources={"scale": paths}))
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "d"}}
    await api.create(WIDGETS, widget, fieldManager="ann")
    await api.ok("PUT", WIDGETS + "/d/scale", _scale(5), fieldManager="bob")
    assert await _owners(api, WIDGETS + "/d", "f:size") == []
    status = await api.refused(
        500, "PATCH", WIDGETS + "/d/scale", _scale(6), content_type=APPLY, fieldManager="cat"
    )
    assert "request to convert CR to an invalid group/version: autoscaling/v1" in status["message"]
    assert (await api.get(WIDGETS + "/d"))["spec"]["size"] == 5
