"""Who sets a size, by what the API server recorded."""

from __future__ import annotations

from typing import Any

from mooring.operators.workload.ownership import scaled_by

SIZE: dict[str, Any] = {"f:spec": {"f:size": {}}}


def entry(manager: str, *, subresource: str = "", fields: Any = SIZE) -> dict[str, Any]:
    made = {"manager": manager, "operation": "Update", "fieldsV1": fields}
    return {**made, "subresource": subresource} if subresource else made


def test_an_autoscaler_is_known_by_the_scale_subresource() -> None:
    entries = [entry("kubectl-apply"), entry("kube-controller-manager", subresource="scale")]
    assert scaled_by(entries, "size") == "kube-controller-manager"


def test_a_size_that_a_user_wrote_since_is_nobody_elses() -> None:
    entries = [
        entry("kubectl-edit"),
        entry("mooring", subresource="status", fields={"f:status": {"f:size": {}}}),
    ]
    assert scaled_by(entries, "size") == ""
    assert (
        scaled_by([entry("an-hpa", subresource="scale", fields={"f:spec": {"f:replicas": {}}})], "size") == ""
    )
