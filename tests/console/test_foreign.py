"""Operators of others need an entry and their definitions, and no code: their instances are created, shown and paused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.console.bed import ADMIN, CRDS, Bed, Browser

from mooring.catalog import Entry, defaults, packaged

DEFINITIONS = Path(__file__).parents[1] / "catalog" / "definitions"
FOREIGN = [entry for entry in packaged() if (DEFINITIONS / f"{entry.name}.yaml").exists()]


@pytest.mark.parametrize("entry", FOREIGN, ids=lambda entry: entry.name)
async def test_an_instance_of_another_operator_is_created_edited_and_shown(
    bed: Bed, browsers: list[Browser], entry: Entry
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    await bed.post(CRDS, yaml.safe_load((DEFINITIONS / f"{entry.name}.yaml").read_text()))
    values = {**defaults(entry), **({"cluster": "one"} if "cluster" in entry.parameters else {})}
    body = {"entry": entry.name, "name": "one", "values": values}
    for query in ("?dryRun=true", ""):
        assert (await root.ok("POST", f"namespaces/team-a/instances{query}", body))["warnings"] == []
    one = f"namespaces/team-a/instances/{entry.name}/one"
    form = await root.ok("GET", one + "/form")
    assert form["values"] == {name: value for name, value in values.items() if value != {}}
    found = await root.ok("GET", one + "/diagnosis")
    assert found["diagnosis"]["code"] == "NoOperator"
    actions = await root.ok("GET", one + "/actions")
    if "pause" in [action["name"] for action in actions["actions"]]:
        await root.ok("POST", one + "/actions/pause", {"uid": form["base"]["uid"]})
        possible = {
            one["name"]: one["possible"] for one in (await root.ok("GET", one + "/actions"))["actions"]
        }
        assert (possible["pause"], possible["resume"]) == (False, True)
    target = entry.spec.target
    condition = {"type": entry.spec.status.ready or "Ready", "status": "True", "reason": "R", "message": "m"}
    status = json.dumps({"status": {"conditions": [condition]}}).encode()
    path = f"{target.resource.path(namespace='team-a', name='one')}/status"
    await bed.admin.request("PATCH", path, body=status, content_type="application/merge-patch+json")
    focus = f"instances?entry={entry.name}&namespace=team-a&name=one"
    while (await root.ok("GET", focus))["instance"]["phase"] != "Running":
        pass
    assert (await root.ok("GET", one + "/diagnosis"))["diagnosis"] is None


async def test_a_kind_that_is_not_there_is_neither_shown_nor_denied(
    bed: Bed, browsers: list[Browser]
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    assert (await root.ok("GET", "instances"))["denied"] == []
    served = {card["name"]: card["served"] for card in (await root.ok("GET", "catalog"))["entries"]}
    assert not any(served[entry.name] for entry in FOREIGN)
    assert len(FOREIGN) == 4
