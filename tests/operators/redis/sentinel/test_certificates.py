"""When running servers and sentinels read their certificates again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.operators.redis.sentinel.builders import NOW, Scene, healthy

from mooring.operators.redis.sentinel.moves import InSync, ReadCertificates, RestartSentinel, TurnCertificates
from mooring.operators.redis.tls import TlsState

WANTED = TlsState(leaf="leaf", issuer="us", authority="ca-1.crt", made=True)


def certified(state: TlsState = WANTED) -> Scene:
    """A healthy cluster whose servers and sentinels show and trust what the Secret has."""
    scene = healthy()
    members = {
        name: replace(
            one,
            server=replace(
                one.server,
                leaf="leaf",
                config={**one.server.config, "tls-ca-cert-file": "/mooring/tls/ca-1.crt"},
            ),
        )
        for name, one in scene.members.items()
        if one.server is not None
    }
    watchers = {
        name: replace(
            one,
            sentinel=replace(
                one.sentinel, leaf="leaf", issuer="us", authority="ca-1.crt", ends=NOW + timedelta(days=80)
            ),
        )
        for name, one in scene.watchers.items()
        if one.sentinel is not None
    }
    scene = replace(scene, members=members, watchers=watchers, observed=replace(scene.observed, tls=state))
    return scene.opened("tls").over("tls")


def test_a_cluster_that_shows_and_trusts_what_the_secret_has_is_in_sync() -> None:
    assert isinstance(certified().decide(), InSync)


def test_a_server_that_shows_another_certificate_reads_it_again() -> None:
    move = certified(replace(WANTED, leaf="newer")).decide()
    assert isinstance(move, ReadCertificates)
    assert len(move.targets) == 3


def test_the_next_certificates_wait_until_every_server_trusts_the_present_authorities() -> None:
    trusting = replace(WANTED, authority="ca-2.crt", turn="show")
    assert isinstance(certified(trusting).decide(), ReadCertificates)
    assert isinstance(certified(replace(WANTED, turn="show")).decide(), TurnCertificates)


def test_sentinels_restart_for_another_authority_one_at_a_time() -> None:
    scene = certified()
    name, first = next(iter(scene.watchers.items()))
    assert first.sentinel is not None
    late = {**scene.watchers, name: replace(first, sentinel=replace(first.sentinel, authority="ca-0.crt"))}
    move = replace(scene, watchers=late).decide()
    assert isinstance(move, RestartSentinel)
    assert move.sentinel.name == name


def test_sentinels_do_not_restart_for_the_addresses_of_other_pods() -> None:
    scene = certified()
    older = {
        name: replace(one, sentinel=replace(one.sentinel, leaf="older"))
        for name, one in scene.watchers.items()
        if one.sentinel is not None
    }
    assert isinstance(replace(scene, watchers=older).decide(), InSync)
    ending = {
        name: replace(one, sentinel=replace(one.sentinel, ends=NOW + timedelta(days=20)))
        for name, one in older.items()
        if one.sentinel is not None
    }
    assert isinstance(replace(scene, watchers=ending).decide(), RestartSentinel)
    given = replace(scene.observed, tls=replace(WANTED, made=False))
    assert isinstance(replace(scene, watchers=older, observed=given).decide(), RestartSentinel)
