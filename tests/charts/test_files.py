"""The chart's files without a cluster: what they name has to exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hack.build import helm

from mooring.operators.registry import OPERATORS

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "mooring"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def described(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in schema.get("properties", {}).items():
        yield f"{path}{name}", value.get("description", "")
        yield from described(value, f"{path}{name}.")


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Values that the schema does not know."""
    known = schema.get("properties", {})
    for name, value in values.items():
        if name not in known:
            yield f"{path}{name}"
        elif isinstance(value, dict) and "properties" in known[name]:
            yield from leaves(value, known[name], f"{path}{name}.")


def test_every_value_is_described_and_every_default_is_known() -> None:
    assert [path for path, text in described(SCHEMA) if not text] == []
    assert list(leaves(VALUES, SCHEMA)) == []
    objects = [SCHEMA, *(one for one in SCHEMA["properties"].values() if "properties" in one)]
    assert all(one["additionalProperties"] is False for one in objects)


def test_the_chart_names_every_kind_of_every_operator() -> None:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    named = {
        (operator, group, plural)
        for operator, group, plurals in re.findall(
            r"- operator: (\S+)\n  group: (\S+)\n(?:  .*\n)*?  plurals: \[(.*)\]", helpers
        )
        for plural in plurals.split(", ")
    }
    # Two operators share the kinds of Redis' backups.
    (backups,) = re.findall(r'"redis-sentinel" .*"redis-cluster" .*\nredis: (\S+)\n', helpers)
    named |= {
        (operator, "redis.mooring.dev", f"{backups}{more}")
        for operator in ("redis-sentinel", "redis-cluster")
        for more in ("s", "schedules")
    }
    assert named == {
        (name, kind.resource.group, kind.resource.plural)
        for name, one in OPERATORS.items()
        for kind in one.kinds
    }
    pattern = re.compile(SCHEMA["properties"]["operators"]["pattern"])
    assert all(pattern.match(name) for name in (*OPERATORS, ",".join(OPERATORS), "*"))
    assert ",".join(OPERATORS) in helpers


def test_the_dashboards_are_such_that_grafana_takes() -> None:
    boards = [json.loads(path.read_text()) for path in CHART.glob("dashboards/*.json")]
    assert len({board["uid"] for board in boards}) == len(boards) == 2
    for board in boards:
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids))
        assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])


@pytest.mark.kubernetes
def test_rights_that_few_need_are_switched_by_a_value(tmp_path: Path) -> None:
    def rights(*values: str) -> str:
        switches = [word for value in ("operators=*", *values) for word in ("--set", value)]
        command = [str(helm(3)), "template", "mooring", str(CHART), "--kube-version", "1.33.0", *switches]
        command += ["--show-only", "templates/rbac.yaml"]
        done = subprocess.run(
            command, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "pods/exec" in rights()
    assert "pods/exec" not in rights("rbac.exec=false")
    assert "pods/exec" in rights("rbac.exec=false", "rbac.volumes=true")
    assert "pods/exec" not in rights("rbac.volumes=true", "operators=matrixone")
    assert "apps.kruise.io" not in rights()
    assert "apps.kruise.io" in rights("rbac.takeover=true")
    assert "apps.kruise.io" not in rights("rbac.takeover=true", "scope=namespaced")
