"""Decisions as files: what is saved decides the same again, and holds no secret."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from tests.operators.matrixone.test_buckets import eventually, operating, runs
from tests.operators.matrixone.test_cnset_rules import drained, member
from tests.operators.matrixone.test_cnset_rules import snapshot as nodes
from tests.operators.matrixone.test_logset_rules import failed, rolling, snapshot, without

from mooring.kube.object import decode
from mooring.operators.matrixone.cnset.plan import decide as decide_nodes
from mooring.operators.matrixone.logset.plan import decide
from mooring.operators.matrixone.saved import LOG, NODES, replay, save
from mooring.operators.matrixone.types import LogSet, MatrixOneCluster
from mooring.operators.workload.saved import NotDecided


@pytest.mark.parametrize(
    "one", [snapshot(), rolling(0, 1), failed(), without(failed(), 1), snapshot(view=None, error="no")]
)
def test_a_saved_log_set_is_decided_in_the_same_way(one: object) -> None:
    found = replay(LOG.dump(one))  # type: ignore[arg-type]
    assert found.verdict == decide(one)  # type: ignore[arg-type]


@pytest.mark.parametrize("one", [nodes(member(0)), drained(), drained(sessions=None)])
def test_saved_compute_nodes_are_decided_in_the_same_way(one: object) -> None:
    assert replay(NODES.dump(one)).verdict == decide_nodes(one)  # type: ignore[arg-type]


def test_mappings_that_cannot_be_changed_are_saved_too() -> None:
    one = snapshot()
    assert one.view is not None
    fixed = replace(one, view=replace(one.view, cns=MappingProxyType({})))
    assert replay(LOG.dump(fixed)).verdict == decide(one)


async def test_a_log_set_is_saved_as_the_api_server_and_its_stores_show_it() -> None:
    spec = {
        "image": "matrixorigin/matrixone:1.2.4",
        "replicas": 1,
        "volume": {"size": "1Gi"},
        "sharedStorage": {"fileSystem": {"path": "/shared"}},
    }
    async with operating() as client:
        await client.create(
            decode({"metadata": {"name": "mo", "namespace": "default"}, "spec": spec}, LogSet)
        )
        await eventually(lambda: runs(client, "mo"))
        saved = await save(client, await client.get(LogSet, "mo", namespace="default"))
        found = replay(saved.content)
        assert "HAKeeper does not answer" in found.seen[1]
        with pytest.raises(NotDecided, match="name one of its sets"):
            await save(client, MatrixOneCluster())
