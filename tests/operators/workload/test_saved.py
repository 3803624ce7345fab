"""Saved decisions: read back alike, and never of a type that could hold a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from mooring.kube.objects import core
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.saved import Form, NotDecided, form_of


@dataclass(frozen=True, kw_only=True)
class Server:
    name: str
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    now: datetime
    servers: tuple[Server, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hidden:
    text: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Below:
    servers: tuple[Hidden, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WithKept:
    by_name: dict[str, Kept | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WithSecret:
    given: core.Secret | None = None


def test_a_snapshot_is_read_back_as_it_was() -> None:
    form = Form("mooring/db/1", Snapshot)
    one = Snapshot(now=datetime(2026, 1, 1, tzinfo=UTC), servers=(Server(name="db-0", offset=7),))
    text = form.dump(one)
    assert form.load(text) == one
    assert form_of(text) == "mooring/db/1"


def test_a_file_of_another_form_is_refused() -> None:
    text = Form("mooring/db/1", Snapshot).dump(Snapshot(now=datetime(2026, 1, 1, tzinfo=UTC)))
    with pytest.raises(NotDecided, match="mooring/db/1"):
        Form("mooring/db/2", Snapshot).load(text)


@pytest.mark.parametrize("kind", [Hidden, Below, WithKept, WithSecret])
def test_a_type_that_could_hold_a_secret_is_refused(kind: type) -> None:
    with pytest.raises(TypeError, match="secret"):
        Form("mooring/db/1", kind)
