"""An upgrade from an earlier commit and back."""

from __future__ import annotations

import os
import subprocess

import pytest
from hack.upgrade import CLUSTERS, ROOT, known, moved

FROM = "8309e4a2"


def test_pods_that_went_came_or_restarted_are_named() -> None:
    before = {"a": ("1", 0), "b": ("2", 0), "c": ("3", 1), "d": ("4", 0)}
    after = {"b": ("2", 0), "c": ("3", 2), "d": ("5", 0), "e": ("6", 0)}
    assert moved(before, after) == ["a is gone", "c restarted", "d was made again", "e is new"]
    assert moved(before, before) == []


def test_each_cluster_has_an_example() -> None:
    assert all((ROOT / "examples" / one.example).is_file() for one in CLUSTERS)


def test_a_commit_that_the_clone_lacks_is_known_to_be_missing() -> None:
    assert not known("0" * 40)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's machine reaches pods of two programs")
@pytest.mark.skipif(not known(FROM), reason="a shallow clone lacks the commit")
def test_clusters_of_an_earlier_commit_run_on_under_this_tree_and_back() -> None:
    command = [str(ROOT / "mooring"), "exec", "python", "hack/upgrade.py", "--from", FROM]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MOORING_LOCK": "dev"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
