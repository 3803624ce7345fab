"""The sets of clusters beside those that upstream's operator makes of the same declarations.

``golden_clusters.json`` was written by upstream's own controller (commit 2301e3b) from `golden_clusters`, without its webhooks.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from tests.operators.matrixone.builders import typed
from tests.operators.matrixone.golden_clusters import CLUSTERS

from mooring.kube.object import to_dict
from mooring.operators.matrixone.names import CLUSTER
from mooring.operators.matrixone.specs import ClusterSpecs

GOLDEN: Final[dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "golden_clusters.json").read_text()
)
DIFFERENCES: Final = {
    "repository": "without imageRepository upstream's image begins with a colon, and no pod starts",
    "dashboard": "upstream's dashboard shows the group tp, whether there is one or not; ours says which in deps",
    "identity": "upstream writes dnsBasedIdentity: false for the deprecated tp, and reads it nowhere",
}


def plain(value: Any) -> Any:
    """Without empty parts, which Go writes of structures; a configuration as what it says."""
    if isinstance(value, dict):
        kept = {
            key: tomllib.loads(one) if key == "config" and isinstance(one, str) else plain(one)
            for key, one in value.items()
        }
        return {key: one for key, one in kept.items() if one not in (None, {}, [], "")}
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(params=list(CLUSTERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_sets_of_a_cluster_are_upstreams(name: str) -> None:
    cluster = typed("MatrixOneCluster", **CLUSTERS[name])
    ours = {f"{one.resource.kind} {one.metadata.name}": one for one in ClusterSpecs(cluster).sets()}
    assert set(ours) == set(GOLDEN[name])
    for which, wanted in GOLDEN[name].items():
        made = to_dict(ours[which])
        spec, theirs = plain(made["spec"]), plain(wanted["spec"])
        if theirs.get("image", "").startswith(":"):  # [repository]
            theirs["image"] = f"matrixorigin/matrixone{theirs['image']}"
        if which.endswith("-tp"):  # [identity]
            theirs.pop("dnsBasedIdentity", None)
        if which.startswith("WebUI"):  # [dashboard]
            made.pop("deps")
        assert spec == theirs, which
        assert plain(made.get("deps") or {}) == plain(wanted["deps"] or {}), which
        if which.startswith("CNSet"):
            assert made["metadata"]["labels"] == wanted["labels"] == {CLUSTER: "mo"}
