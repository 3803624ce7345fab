"""How the certificates of a Redis cluster follow one another."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.tls import Held, hold
from mooring.runtime.webhooks_certificates import Certificates, Lifetimes, renewed

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def made(*, peers: bool = True) -> Certificates:
    return renewed(None, names=["localhost"], now=NOW, lifetimes=Lifetimes(), peers=peers)


def secret(data: Mapping[str, str] | None) -> core.Secret | None:
    return core.Secret(metadata=ObjectMeta(name="one"), data=dict(data)) if data is not None else None


def given(
    data: Mapping[str, str] | None,
    there: Mapping[str, str] | None = None,
    *,
    bus: bool = False,
    days: float = 0,
) -> tuple[Held | None, str]:
    now = NOW + timedelta(days=days)
    return hold(mine=secret(data), named="mine", there=secret(there), made=None, hosts=(), now=now, bus=bus)


def ours(held: Held | None = None, *, hosts: tuple[str, ...] = ("localhost",), days: float = 0) -> Held:
    there, state = (held.data, held.made) if held is not None else (None, None)
    now = NOW + timedelta(days=days)
    found, why = hold(mine=None, named="", there=secret(there), made=secret(state), hosts=hosts, now=now)
    assert found is not None
    assert not why
    return found


def turns(wanted: Mapping[str, str], held: Held) -> list[str]:
    """What each next step changes, until there is none."""
    found: list[str] = []
    while True:
        next_held, why = given(wanted, held.data)
        assert next_held is not None
        assert not why
        if not next_held.state.turn:
            return found
        found.append(next_held.state.turn)
        held = next_held.turned()


def test_a_users_new_authority_is_trusted_first_then_shown_and_then_alone() -> None:
    old, new = made().to_secret(), made().to_secret()
    held, _ = given(old)
    assert held is not None
    assert turns(new, held) == ["trust", "show", "drop"]


def test_a_users_new_certificate_of_the_same_authority_is_one_step() -> None:
    first = made()
    second = renewed(first, names=["another"], now=NOW, lifetimes=Lifetimes(), peers=True)
    held, _ = given(first.to_secret())
    assert held is not None
    assert turns(second.to_secret(), held) == ["show"]


def test_what_no_server_could_use_is_refused_and_what_is_there_stays() -> None:
    right, other = made().to_secret(), made().to_secret()
    held, _ = given(right)
    assert held is not None
    faults = {
        "do not belong together": {**right, "tls.key": other["tls.key"]},
        "was not issued by ca.crt": {**right, "ca.crt": other["ca.crt"]},
        "ca.crt is missing": {**right, "ca.crt": ""},
        "no certificate in PEM": {**right, "tls.crt": base64.b64encode(b"none").decode()},
    }
    for fault, data in faults.items():
        found, why = given(data, held.data)
        assert fault in why
        assert found == held
    assert given(right, held.data, days=100)[1].endswith("correct it")
    assert "does not exist" in given(None, held.data)[1]


def test_the_cluster_bus_needs_a_certificate_for_clients_too() -> None:
    for_servers = made(peers=False).to_secret()
    assert "server auth and client auth" in given(for_servers, bus=True)[1]
    assert not given(for_servers)[1]
    assert not given(made().to_secret(), bus=True)[1]


def test_the_key_of_the_operators_authority_is_not_in_what_pods_mount() -> None:
    held = ours()
    assert held.made is not None
    assert held.made["ca.key"] not in held.data.values()
    assert held.made["ca.key"] not in repr(held)


def test_a_pods_new_address_comes_into_the_certificate_and_changes_no_authority() -> None:
    held = ours()
    assert ours(held).state.turn == ""
    found = ours(held, hosts=("localhost", "10.0.0.7"))
    assert found.state.turn == "show"
    assert found.turned().state.authority == held.state.authority


def test_the_operators_authority_changes_in_three_steps() -> None:
    held = ours()
    seen: list[str] = []
    for day in range(400):
        found = ours(held, days=day)
        if found.state.turn:
            seen.append(found.state.turn)
            held = found.turned()
    before, _, after = " ".join(seen).partition("trust")
    assert set(before.split()) == {"show"}
    assert after.split()[:2] == ["show", "drop"]


def test_a_lost_authority_is_replaced_while_servers_show_what_it_issued() -> None:
    held = ours()
    lost, why = hold(mine=None, named="", there=secret(held.data), made=None, hosts=("localhost",), now=NOW)
    assert lost is not None
    assert not why
    assert lost.state.leaf == held.state.leaf
    assert lost.state.authority != held.state.authority
