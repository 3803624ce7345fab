"""Who sends a request: the administrator's token, ServiceAccount tokens, or nobody.

Everybody who is authenticated may do everything: RBAC objects are stored and not evaluated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

from mooring.local.api import failures
from mooring.local.api.http import Request, User
from mooring.local.api.storage import Store
from mooring.local.api.tokens import Authority, Claims, TokenError

__all__ = ["ADMIN", "Authenticator"]

ADMIN = User("kubernetes-admin", groups=("kubeadm:cluster-admins", "system:masters", "system:authenticated"))
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version")


class Authenticator:
    """Maps bearer tokens to users. Static tokens are kept as hashes only."""

    def __init__(self, tokens: Mapping[str, User], authority: Authority, store: Store) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}
        self._authority = authority
        self._store = store

    def user(self, request: Request, *, now: datetime) -> User:
        """Return who sends a request; raises 401."""
        scheme, _, token = request.header("authorization").partition(" ")
        if scheme.lower() == "bearer" and (user := self.of_token(token.strip(), now=now)):
            return user
        if not scheme and request.path.startswith(_PUBLIC):
            return User("system:anonymous", groups=("system:unauthenticated",))
        raise failures.unauthorized()

    def of_token(self, token: str, *, now: datetime, audiences: tuple[str, ...] = ()) -> User | None:
        """Return the user of a token, None when it is not valid."""
        if not token:
            return None
        if user := self._users.get(_digest(token)):
            return user
        try:
            claims = (
                self._authority.verify(token, now=now, audiences=audiences)
                if audiences
                else self._authority.verify(token, now=now)
            )
        except TokenError:
            return None
        return self._account(claims)

    def _account(self, claims: Claims) -> User | None:
        """Return the user of a ServiceAccount that still exists (and its pod, where it is bound to one)."""
        account = self._store.collection("serviceaccounts").get((claims.namespace, claims.name))
        if account is None or account.obj["metadata"]["uid"] != claims.uid:
            return None
        extra: dict[str, tuple[str, ...]] = {}
        if claims.pod:
            pod = self._store.collection("pods").get((claims.namespace, claims.pod))
            if pod is None or pod.obj["metadata"]["uid"] != claims.pod_uid:
                return None
            extra = {
                "authentication.kubernetes.io/pod-name": (claims.pod,),
                "authentication.kubernetes.io/pod-uid": (claims.pod_uid,),
            }
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{claims.namespace}",
            "system:authenticated",
        )
        name = f"system:serviceaccount:{claims.namespace}:{claims.name}"
        return User(name, claims.uid, groups, extra)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
