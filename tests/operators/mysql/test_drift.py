"""Variables that somebody changed on a running server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operators.mysql.builders import healthy

from mooring.operators.mysql.config import forced
from mooring.operators.mysql.moves import Configure, InSync


@pytest.mark.parametrize("key", ["sync_binlog", "innodb_flush_log_at_trx_commit", "gtid_strict_mode"])
def test_a_variable_that_durability_rests_on_is_put_back_where_it_was_changed(key: str) -> None:
    scene = healthy()
    right = forced("mariadb")
    members = {}
    for name, member in scene.members.items():
        assert member.server is not None
        held = {**right, key: "0"} if name == "demo-1" else right
        members[name] = replace(member, server=replace(member.server, held={**member.server.held, **held}))
    move = replace(scene, members=members).decide()
    assert isinstance(move, Configure)
    assert ([one.name for one in move.targets], move.key, move.value) == (["demo-1"], key, right[key])


def test_variables_that_are_as_they_must_be_are_left_alone() -> None:
    scene = healthy()
    spelled = {key: {"ON": "1"}.get(value, value) for key, value in forced("mariadb").items()}
    members = {}
    for name, member in scene.members.items():
        assert member.server is not None
        members[name] = replace(member, server=replace(member.server, held={**member.server.held, **spelled}))
    assert isinstance(replace(scene, members=members).decide(), InSync)
