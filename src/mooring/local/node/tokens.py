"""ServiceAccount tokens of a pod's projected volumes: asked of the API server, renewed before they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from mooring.cache.clock import Clock
from mooring.kube.client import Client
from mooring.kube.objects.core import Pod, ServiceAccountTokenProjection
from mooring.local.node.sources import Missing

__all__ = ["Issue", "PodTokens", "Token", "issue_from"]

#: As the kubelet does it: a token is renewed after this part of its life, and at the latest after a day.
_SHARE: Final = 0.8
_LONGEST: Final = timedelta(days=1)
_SECONDS: Final = 3600
_SOON: Final = 10.0


@dataclass(frozen=True, slots=True)
class Token:
    """A token and when it ends."""

    value: str = field(repr=False)
    expires: datetime


class Issue(Protocol):
    """Asks for a token bound to a pod; raises KubeError."""

    async def __call__(self, pod: Pod, wanted: ServiceAccountTokenProjection) -> Token: ...


def issue_from(client: Client) -> Issue:
    """Tokens from the API server's TokenRequest."""

    async def issue(pod: Pod, wanted: ServiceAccountTokenProjection) -> Token:
        account = (pod.spec.service_account_name if pod.spec else None) or "default"
        meta = pod.metadata
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        spec = {
            "audiences": [wanted.audience] if wanted.audience else [],
            "expirationSeconds": wanted.expiration_seconds or _SECONDS,
            "boundObjectRef": bound,
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{meta.namespace}/serviceaccounts/{account}/token"
        answer = await client.request("POST", path, body=msgspec.json.encode(body))
        status = msgspec.json.decode(answer.body)["status"]
        return Token(status["token"], datetime.fromisoformat(status["expirationTimestamp"]))

    return issue


class PodTokens:
    """The tokens of one pod. `renew` asks for them on the event loop; `value` is read by other threads."""

    def __init__(self, issue: Issue, clock: Clock) -> None:
        self._issue, self._clock = issue, clock
        self._tokens: dict[tuple[str | None, int | None], tuple[Token, datetime]] = {}

    async def renew(self, pod: Pod) -> bool:
        """Ask for what is missing or due; whether anything is new. Raises KubeError."""
        new = False
        for wanted in _projections(pod):
            key = wanted.audience, wanted.expiration_seconds
            now = self._clock.now()
            if key not in self._tokens or self._tokens[key][1] <= now:
                token = await self._issue(pod, wanted)
                due = now + min((token.expires - now) * _SHARE, _LONGEST)
                self._tokens[key] = token, due
                new = True
        return new

    @property
    def pause(self) -> float | None:
        """Seconds until the next is due, at least ten; ``None`` when the pod has none."""
        if not self._tokens:
            return None
        due = min(due for _, due in self._tokens.values())
        return max(_SOON, (due - self._clock.now()).total_seconds())

    def value(self, wanted: ServiceAccountTokenProjection) -> bytes:
        """The token of a projection; raises :class:`Missing` before it was asked for."""
        try:
            token, _ = self._tokens[wanted.audience, wanted.expiration_seconds]
        except KeyError:
            raise Missing("the ServiceAccount's token was not issued yet") from None
        return token.value.encode()


def _projections(pod: Pod) -> Iterator[ServiceAccountTokenProjection]:
    for volume in (pod.spec.volumes if pod.spec else None) or ():
        for source in (volume.projected.sources if volume.projected else None) or ():
            if source.service_account_token is not None:
                yield source.service_account_token
