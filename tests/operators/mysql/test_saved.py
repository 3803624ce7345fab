"""A decision written down decides the same when it is read again, and holds no secret."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operators.mysql.builders import NOW, UUID, ago, at, healthy, new
from tests.operators.mysql.declared import cluster, inputs, secret

from mooring.cli.replay import replay_of, shown
from mooring.operators.mysql.accounts import Account, Accounts
from mooring.operators.mysql.moves import Fence, Follow, InSync, Open, Promote, Switch
from mooring.operators.mysql.saved import dump, load, replay
from mooring.operators.mysql.snapshot import Snapshot, Trial
from mooring.operators.mysql.topology import Topology
from mooring.operators.mysql.types import MySQLClusterStatus, TailCut
from mooring.operators.workload.saved import NotDecided

LOST = healthy().silent("demo-0", seconds=10).lost("demo-1", "demo-2")
ELECTED = healthy().operation("FailOver", old="demo-0").dead("demo-0").fenced("demo-1", "demo-2")
SCENES = {
    "whole": (healthy(), InSync),
    "whole MySQL": (healthy(size=5, flavor="mysql"), InSync),
    "new": (new(), Open),
    "dead primary": (LOST, Fence),
    "election": (ELECTED, Promote),
    "switch": (healthy().want(switch_to="demo-2"), Switch),
    "stopped replica": (healthy(flavor="mysql").fenced("demo-1"), Follow),
    "all that is optional": (
        replace(
            healthy(flavor="mysql")
            .has("demo-0", f"{UUID.format(0)}:1-100:105,{UUID.format(1)}:1-3")
            .server("demo-0", purged=at(f"{UUID.format(0)}:1-10", "mysql"))
            .known("demo-1", cut=TailCut(file="binlog.000002", position=4), seeded=[ago(60)])
            .see(trial=Trial(state="Running", message="it starts"), reads={"demo-1": 2.5})
            .want(fenced=frozenset({"demo-2"}), user_keys=frozenset({"max_connections"})),
            before=at(f"{UUID.format(0)}:1-90", "mysql"),
        ),
        None,
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_what_was_saved_is_decided_alike_when_it_is_read_again(name: str) -> None:
    scene, kind = SCENES[name]
    one = scene.snapshot
    one = replace(one, topology=replace(one.topology, members=list(one.topology.members)))
    content = dump(one)

    assert load(content) == one
    assert replay(load(content)) == scene.planned()
    assert kind is None or isinstance(scene.planned(), kind)


def test_a_replay_shows_what_was_seen_and_what_follows_from_it() -> None:
    content = dump(LOST.snapshot)
    lines = list(shown(replay_of(content)(content)))

    assert any(line.startswith("  demo-0: ") and "Timeout" in line for line in lines), lines
    assert any(line.startswith("  demo-1: ") and "0-10-100" in line for line in lines), lines
    assert any(line.startswith("Next step: Fence") for line in lines), lines


def test_no_password_is_in_a_saved_decision() -> None:
    """The operator's own, the one before it, root's, and those of declared accounts."""
    declared = {
        "size": 3,
        "credentialsSecret": "mine",
        "users": [{"name": "app", "passwordSecret": {"name": "app", "key": "password"}}],
    }
    one = inputs(
        cluster(declared),
        secret("mine", root_password="one-of-root"),
        secret("app", password="one-of-app"),
        secret("demo-credentials", operator_password="one-that-is-declared"),
        secret("demo-credentials-copy", operator_password="one-in-force"),
    )
    texts = {text for text in one.credentials.texts.values() if text}
    told = Accounts(users={"app@%": Account(password=True, grants={"*.*": frozenset({"SELECT"})})})
    content = dump(
        Snapshot(
            wanted=one.wanted,
            topology=Topology(accounts=told),
            observed=one.observed,
            status=MySQLClusterStatus(),
            now=NOW,
        )
    ).decode()

    given = {"one-of-root", "one-of-app", "one-that-is-declared", "one-in-force"}
    assert given < texts
    assert [text for text in texts if text in content] == []
    assert '"app"' in content
    assert "operator-password" in content


@pytest.mark.parametrize("text", [b"", b"{}", b'{"form": "mooring/mysql/0"}'])
def test_another_file_is_refused_with_what_to_do(text: bytes) -> None:
    for read in (load, lambda text: replay_of(text)(text)):
        with pytest.raises(NotDecided, match="mooring why"):
            read(text)
