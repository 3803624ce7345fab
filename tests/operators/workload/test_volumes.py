"""Which claims grow, what is shown of them, and what is in the way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mooring.kube.object import Key, decode
from mooring.kube.objects import apps, core
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.volumes import (
    ASK_AGAIN,
    Growth,
    Refusals,
    Volume,
    awaiting_volumes,
    claimed_volumes,
    claims_to_make,
    sized_as,
)

WHERE = "spec.storage.size"
KEY = Key("web", "shop")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claim(name: str, size: str, capacity: str = "", **status: Any) -> core.PersistentVolumeClaim:
    """A claim, bound where it has a capacity."""
    phase = {"phase": "Bound", "capacity": {"storage": capacity}} if capacity else {"phase": "Pending"}
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
        "status": {**phase, **status},
    }
    return decode(body, core.PersistentVolumeClaim)


def volume(declared: str, size: str, capacity: str = "", **status: Any) -> Volume:
    there = {"data-shop-0": claim("data-shop-0", size, capacity, **status)}
    (found,) = claimed_volumes([claim("data", declared)], ["shop-0", "shop-1"], there)
    return found


def condition(kind: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "message": message}]}


@pytest.mark.parametrize(
    ("one", "small", "state"),
    [
        (volume("1Gi", "1Gi", "1Gi"), False, ""),
        (volume("1024Mi", "1Gi", "1Gi"), False, ""),
        (
            volume("1Gi", "1Gi", "5Gi"),
            False,
            "",
        ),  # a volume made by hand may be larger than what was asked for
        (volume("2Gi", "1Gi", "1Gi"), True, "Growing"),
        (volume("2Gi", "2Gi", "1Gi"), False, "Growing"),
        (volume("2Gi", "1Gi"), False, "Unbound"),
        (volume("2Gi", "2Gi"), False, ""),
        (volume("500Mi", "1Gi", "1Gi"), False, "TooLarge"),
        (
            volume("3Gi", "5Gi", "2Gi"),
            True,
            "Growing",
        ),  # an expansion that failed is given up for a smaller one
        (volume("2Gi", "5Gi", "2Gi"), False, "TooLarge"),  # the API server wants more than there is
        (volume("2Gi", "2Gi", "1Gi", **condition("FileSystemResizePending")), False, "ResizePending"),
        (volume("2Gi", "2Gi", "1Gi", **condition("ControllerResizeError", "no space")), False, "Failed"),
        (
            volume("2Gi", "2Gi", "1Gi", allocatedResourceStatuses={"storage": "NodeResizeInfeasible"}),
            False,
            "Failed",
        ),
    ],
)
def test_what_is_to_be_done_about_a_claim(one: Volume, small: bool, state: str) -> None:
    assert (one.small, one.state) == (small, state)


def test_sizes_that_cannot_be_read_are_left_alone() -> None:
    there = {"data-shop-0": claim("data-shop-0", "1Gi", "1Gi")}
    assert not claimed_volumes([claim("data", "much")], ["shop-0"], there)


def test_what_needs_a_person_names_field_and_remedy() -> None:
    quota = "exceeded quota: small, requested: requests.storage=1Gi"
    fixed = "the storageclass that provisions the pvc must support resize"
    for one, refused, texts in (
        (volume("500Mi", "1Gi", "1Gi"), "", ("a volume never shrinks: put it back",)),
        (volume("2Gi", "5Gi", "2Gi"), "", ("declare more than 2Gi",)),
        (volume("2Gi", "1Gi", "1Gi"), quota, (quota, "raise requests.storage in the ResourceQuota")),
        (volume("2Gi", "1Gi", "1Gi"), fixed, (fixed, "allowVolumeExpansion: true")),
        (
            volume("2Gi", "2Gi", "1Gi", **condition("NodeResizeError", "no space left")),
            "",
            ("no space left", "above 1Gi"),
        ),
    ):
        refusals = {one.claim: refused} if refused else {}
        growth = Growth(where=WHERE, volumes=(one,), refused=refusals)
        (said,) = growth.unmet()
        assert said.startswith(f"{WHERE}: the claim data-shop-0 ")
        for text in texts:
            assert text in said
        [shown] = growth.shown() or []
        assert shown.message == said
        assert growth.wait(after=1.0) is None


def test_what_is_the_same_for_several_claims_is_said_once() -> None:
    three = [
        volume("500Mi", "1Gi", "1Gi"),
        *(replace(volume("500Mi", "1Gi", "1Gi"), claim=f"data-shop-{n}") for n in (1, 2)),
    ]
    other = replace(volume("500Mi", "2Gi", "1Gi"), claim="data-shop-3")
    growth = Growth(where=WHERE, volumes=(*three, other), refused={})
    alike, apart = growth.unmet()
    assert alike.startswith(f"{WHERE}: the claim data-shop-0 has more than 500Mi")
    assert alike.endswith("(the same of data-shop-1, data-shop-2)")
    assert apart.startswith(f"{WHERE}: the claim data-shop-3 ")


def test_claims_on_their_way_are_a_wait_and_those_as_declared_are_nothing() -> None:
    growth = Growth(where=WHERE, volumes=(volume("2Gi", "2Gi", "1Gi"),))
    wait = growth.wait(after=30.0)
    assert wait is not None
    assert (wait.reason, wait.stalled) == ("VolumesGrowing", False)
    assert "data-shop-0 from 1Gi to 2Gi" in wait.message
    assert not growth.unmet()
    rest = Growth(where=WHERE, volumes=(volume("2Gi", "2Gi", "2Gi"),))
    assert (rest.shown(), rest.unmet(), rest.wait(after=1.0)) == (None, [], None)


def test_what_was_refused_is_asked_for_again_later_or_in_another_size() -> None:
    refusals, one = Refusals(), volume("2Gi", "1Gi", "1Gi")
    assert refusals.due(KEY, [one], NOW) == [one]
    assert refusals.note(KEY, one, "no", NOW)
    assert not refusals.note(KEY, one, "no", NOW)
    assert refusals.of(KEY, [one]) == {"data-shop-0": "no"}
    assert not refusals.due(KEY, [one], NOW + ASK_AGAIN - timedelta(seconds=1))
    assert refusals.due(KEY, [one], NOW + ASK_AGAIN) == [one]
    larger = volume("3Gi", "1Gi", "1Gi")
    assert refusals.due(KEY, [larger], NOW) == [larger]
    assert not refusals.of(KEY, [larger])
    refusals.clear(KEY, ["data-shop-0"])
    assert not refusals.of(KEY, [one])


def test_claims_of_pods_to_come_are_made_where_the_set_would_make_them_smaller() -> None:
    spec = {
        "volumeClaimTemplates": [
            {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
        ]
    }
    live = decode({"metadata": {"name": "shop"}, "spec": spec}, apps.StatefulSet)
    there = {"data-shop-3": claim("data-shop-3", "1Gi", "1Gi")}

    def made(size: str, found: apps.StatefulSet | None = live) -> list[str | None]:
        templates = [claim("data", size), claim("logs", "9Gi")]
        new = claims_to_make(found, templates, ["shop-2", "shop-3"], there, namespace="web")
        assert all(one.metadata.namespace == "web" for one in new)
        return [one.metadata.name for one in new]

    assert made("2Gi") == ["data-shop-2"]
    assert made("1024Mi") == []
    assert made("2Gi", None) == []


def test_the_size_alone_does_not_make_a_claim_another_one() -> None:
    declared, given = claim("data", "2Gi").spec, claim("data-shop-0", "1Gi").spec
    assert declared is not None
    assert given is not None
    assert sized_as(declared, given) == given


def test_pods_know_what_their_volumes_wait_for() -> None:
    pending = {
        "type": "FileSystemResizePending",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    one = volume("2Gi", "2Gi", "1Gi", conditions=[pending])
    first, second = awaiting_volumes([pod(0), pod(1)], [one])
    assert (first.resize_since, second.resize_since) == (NOW, None)
    growth = Growth(where=WHERE, volumes=(one,))
    wait = growth.wait(after=1.0)
    assert wait is not None
    assert (wait.reason, wait.stalled) == ("FileSystemResizePending", False)
    done = volume("2Gi", "2Gi", "2Gi", conditions=[pending])
    assert [each.resize_since for each in awaiting_volumes([pod(0)], [done])] == [None]


def pod(at: int) -> Pod:
    return Pod(name=f"shop-{at}", ordinal=at, uid=f"uid-{at}")
