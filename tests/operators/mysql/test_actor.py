"""What a pass may rest on."""

from __future__ import annotations

from dataclasses import replace as replace_status
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operators.mysql.builders import healthy

from mooring.kube.errors import Conflict
from mooring.kube.object import Key
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.mysql.actor import MySQLActor
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus

NAME = ObjectMeta(name="demo", namespace="default")


async def _look(before: MySQLClusterStatus, after: MySQLClusterStatus) -> object:
    """A pass that began with one status; the cache has another one when the servers have been asked."""
    seen = replace_status(healthy().snapshot, status=before)

    class Asked:
        async def look(self, *_: object, **__: object) -> object:
            return seen

    actor: Any = object.__new__(MySQLActor)
    actor.databases = Asked()
    cached = MySQLCluster(metadata=NAME, status=after)
    client = SimpleNamespace(find=lambda *_, **__: cached)
    ctx: Any = SimpleNamespace(key=Key("default", "demo"), now=None, client=client)
    return await actor.snapshot(ctx, None)


async def test_nothing_is_decided_from_a_status_that_another_process_wrote_over() -> None:
    status = healthy().status

    with pytest.raises(Conflict):
        await _look(status, replace(status, primary="demo-1", term=2))


async def test_what_a_status_merely_shows_may_change_meanwhile() -> None:
    status = healthy().status

    assert await _look(status, replace(status, phase="Degraded"))
