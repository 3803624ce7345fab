"""TLS and users for clusters of Redis under random faults: the Secrets, the fields of the spec, and who comes with what."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mooring.operators.workload.certificates import trust
from mooring.runtime.webhooks_certificates import Lifetimes, renewed

__all__ = ["APP", "OPS", "Secure"]

APP = ("app", "of-the-application")
"""The writer's user and password."""
OPS = ("ops", "of-those-who-look")
"""User and password of the benchmark's own queries."""
_CERTIFICATES, _PASSWORDS = "secure-tls", "secure-users"


@dataclass(frozen=True)
class Secure:
    """A certificate of an authority made for the run; the default user is off."""

    pair: dict[str, str]

    @classmethod
    def made(cls) -> Secure:
        """With a new authority."""
        now, names = datetime.now(UTC), ["localhost"]
        made = renewed(None, names=names, now=now, lifetimes=Lifetimes(), peers=True).to_secret()
        return cls({name: made[name] for name in ("tls.crt", "tls.key", "ca.crt")})

    @property
    def context(self) -> ssl.SSLContext:
        """What a client trusts."""
        return trust(self.pair)

    def secrets(self) -> list[dict[str, Any]]:
        """To be applied before the cluster."""
        words = {name: base64.b64encode(word.encode()).decode() for name, word in (APP, OPS)}
        body = {"apiVersion": "v1", "kind": "Secret"}
        return [
            {**body, "metadata": {"name": name, "namespace": "default"}, "data": dict(data)}
            for name, data in ((_CERTIFICATES, self.pair), (_PASSWORDS, words))
        ]

    def spec(self) -> dict[str, Any]:
        """Fields of either kind of cluster."""

        def user(name: str, *rules: str) -> dict[str, Any]:
            return {
                "name": name,
                "rules": list(rules),
                "passwordSecrets": [{"name": _PASSWORDS, "key": name}],
            }

        return {
            "tls": {"enabled": True, "secretName": _CERTIFICATES},
            "users": [
                user(APP[0], "~ledger:*", "+@read", "+@write", "+wait", "+ping", "+role", "+cluster"),
                user(OPS[0], "~*", "&*", "+@all"),
            ],
            "defaultUser": {"mode": "Off"},
        }
