"""Certificates that servers show, as the planner sees them."""

from __future__ import annotations

from dataclasses import replace

from tests.operators.mysql.builders import Scene, healthy

from mooring.operators.mysql.moves import ReloadCertificates

OLD, NEW = "Jan  2 15:04:05 2026 GMT", "Mar  2 15:04:05 2026 GMT"


def showing(scene: Scene, wanted: str, **shown: str) -> Scene:
    """The scene with TLS; ``shown`` is what servers show by pod, with an underscore for the hyphen."""
    members = dict(scene.members)
    for name, certificate in shown.items():
        member = members[name.replace("_", "-")]
        assert member.server is not None
        members[member.name] = replace(member, server=replace(member.server, certificate=certificate))
    return replace(scene, wanted=replace(scene.wanted, certificate=wanted), members=members)


def test_servers_read_a_renewed_certificate_without_a_restart() -> None:
    move = showing(healthy(), NEW, demo_0=NEW, demo_1=OLD, demo_2=OLD).decide()
    assert isinstance(move, ReloadCertificates)
    assert [one.name for one in move.targets] == ["demo-1", "demo-2"]
    assert move.certificate == NEW


def test_nothing_is_reloaded_once_all_show_it_or_where_a_server_has_none() -> None:
    assert not isinstance(
        showing(healthy(), NEW, demo_0=NEW, demo_1=NEW, demo_2="").decide(), ReloadCertificates
    )
    assert not isinstance(showing(healthy(), "", demo_0=OLD).decide(), ReloadCertificates)
