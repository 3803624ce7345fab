"""Tokens of ServiceAccounts: asked for once, renewed in time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mooring.kube.objects.core import Pod, ServiceAccountTokenProjection
from mooring.local.node.sources import Missing
from mooring.local.node.tokens import PodTokens, Token
from mooring.testing.clock import VirtualClock

from .bed import pod


class Issuer:
    """Issues numbered tokens that live for an hour."""

    def __init__(self, clock: VirtualClock, *, hours: float = 1.0) -> None:
        self._clock, self._life = clock, timedelta(hours=hours)
        self.issued: list[str] = []

    async def __call__(self, pod: Pod, wanted: ServiceAccountTokenProjection) -> Token:
        self.issued.append(wanted.audience or "")
        return Token(f"token-{len(self.issued)}", self._clock.now() + self._life)


def with_tokens(*audiences: str | None) -> Pod:
    sources = [{"serviceAccountToken": {"path": f"t{n}", "audience": a}} for n, a in enumerate(audiences)]
    return pod(containers=[{}], volumes=[{"name": "all", "projected": {"sources": sources}}])


WANTED = ServiceAccountTokenProjection(path="t0")


async def test_a_token_is_asked_for_once_per_audience() -> None:
    clock = VirtualClock()
    issuer = Issuer(clock)
    tokens = PodTokens(issuer, clock)

    assert await tokens.renew(with_tokens(None, "vault", None))
    assert not await tokens.renew(with_tokens(None, "vault", None))

    assert issuer.issued == ["", "vault"]
    assert tokens.value(WANTED) == b"token-1"


async def test_a_token_is_renewed_after_four_fifths_of_its_life() -> None:
    clock = VirtualClock()
    issuer = Issuer(clock)
    tokens = PodTokens(issuer, clock)
    await tokens.renew(with_tokens(None))
    assert tokens.pause == pytest.approx(0.8 * 3600)

    await clock.advance(0.8 * 3600 - 1)
    assert not await tokens.renew(with_tokens(None))
    await clock.advance(2)
    assert await tokens.renew(with_tokens(None))

    assert tokens.value(WANTED) == b"token-2"


async def test_a_long_lived_token_is_renewed_daily() -> None:
    clock = VirtualClock()
    tokens = PodTokens(Issuer(clock, hours=24 * 365), clock)
    await tokens.renew(with_tokens(None))

    assert tokens.pause == pytest.approx(24 * 3600)


async def test_a_pod_without_tokens_asks_for_none_and_is_never_due() -> None:
    clock = VirtualClock()
    tokens = PodTokens(Issuer(clock), clock)

    assert not await tokens.renew(pod(containers=[{}]))

    assert tokens.pause is None
    with pytest.raises(Missing):
        tokens.value(WANTED)
