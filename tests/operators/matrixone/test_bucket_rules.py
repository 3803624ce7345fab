"""Who owns a path of an object store, and when its data goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mooring.actor.verdict import InSync, Wait
from mooring.operators.matrixone.bucket.paths import overlap
from mooring.operators.matrixone.bucket.plan import Erase, MarkDeleting, Release, Snapshot, decide, leave
from mooring.operators.matrixone.types import DELETING, IN_USE, RELEASED, RETAIN, S3Provider

USED = Snapshot(state=IN_USE, bound_to="ns/mo", was_live=True)
LEFT = replace(USED, owner_there=False)


def test_a_claim_in_use_stays_even_when_it_is_deleted() -> None:
    assert isinstance(decide(USED), InSync)
    step = leave(replace(USED, deleted=True))
    assert isinstance(step, Wait)
    assert step.reason == "InUse"


def test_data_goes_only_after_its_log_set_and_everything_that_writes() -> None:
    assert isinstance(decide(replace(LEFT, users=("CNSet ns/mo-tp",))), Wait)
    assert isinstance(decide(LEFT), MarkDeleting)
    assert isinstance(leave(replace(LEFT, deleted=True, users=("Pod ns/mo-log-0",))), Wait)
    assert isinstance(leave(replace(LEFT, state=DELETING, deleted=True)), Erase)


def test_kept_data_is_released_and_survives_the_claim() -> None:
    kept = replace(LEFT, policy=RETAIN)
    assert isinstance(decide(kept), Release)
    released = replace(kept, state=RELEASED, bound_to="")
    assert isinstance(decide(released), InSync)
    assert isinstance(leave(replace(released, deleted=True)), InSync)


def test_nothing_is_erased_where_no_process_ever_ran() -> None:
    """The path may hold somebody else's data: the LogSet that claimed it never started."""
    assert isinstance(leave(replace(LEFT, state=DELETING, deleted=True, was_live=False)), InSync)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("b/a", "b/a", True),
        ("b/a/", "/b/a", True),
        ("b/a", "b/a/c", True),
        ("b", "b/a", True),
        ("b/a", "b/ab", False),
        ("b/a", "c/a", False),
    ],
)
def test_paths_overlap_by_whole_segments(one: str, other: str, same: bool) -> None:
    endpoint = "http://minio:9000"
    left = S3Provider(path=one, endpoint=endpoint, type="minio")
    right = S3Provider(path=other, endpoint=endpoint)
    assert overlap(left, right) is same
    assert overlap(right, left) is same
    assert not overlap(left, replace_endpoint(right))


def replace_endpoint(s3: S3Provider) -> S3Provider:
    return S3Provider(path=s3.path, endpoint="http://elsewhere:9000")
