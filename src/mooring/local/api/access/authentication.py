"""Who sends a request: a client certificate, a token of the administrator or of a ServiceAccount, or nobody."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from mooring.local.api import failures
from mooring.local.api.access.tokens import ISSUER, Authority, Claims, TokenError
from mooring.local.api.http import Request, User
from mooring.local.api.objectmeta import is_deleting
from mooring.local.api.storage import Store

__all__ = ["ADMIN", "ANONYMOUS", "Authenticator", "of_certificate"]

JsonObject = dict[str, Any]

_AUTHENTICATED = "system:authenticated"
ADMIN = User("kubernetes-admin", groups=("kubeadm:cluster-admins", "system:masters", _AUTHENTICATED))
ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))
#: A bootstrap token: its public name, a dot, its secret.
_BOOTSTRAP = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_BOOTSTRAP_TYPE, _BOOTSTRAPPERS = "bootstrap.kubernetes.io/token", "system:bootstrappers"
#: How long what a token belongs to may be on its way out before the token ends.
_HELD = timedelta(seconds=60)
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


def of_certificate(transport: asyncio.BaseTransport | None) -> User | None:
    """Return the user of a connection's client certificate: its common name, in its organizations.

    The listener has verified the certificate against the server's authority; None without one.
    """
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return None
    subject = [pair for names in certificate["subject"] for pair in names]
    name = next((value for kind, value in subject if kind == "commonName"), "")
    if not name:
        return None
    groups = tuple(value for kind, value in subject if kind == "organizationName")
    assert transport is not None
    encoded = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    identity = {_CREDENTIAL: (f"X509SHA256={hashlib.sha256(encoded).hexdigest()}",)}
    return _authenticated(User(name, groups=groups, extra=identity))


def _authenticated(user: User) -> User:
    if _AUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, _AUTHENTICATED))


class Authenticator:
    """Maps bearer tokens to users. Static tokens are kept as hashes only."""

    def __init__(self, tokens: Mapping[str, User], authority: Authority, store: Store) -> None:
        self._users = {_digest(token): _authenticated(user) for token, user in tokens.items()}
        self._authority = authority
        self._store = store

    def user(self, request: Request, *, now: datetime) -> User:
        """Return who sends a request, the anonymous user without a token; raises 401 for a wrong one."""
        scheme, _, token = request.header("authorization").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        try:
            return self.identify(token.strip(), now=now)[0]
        except TokenError:
            raise failures.unauthorized() from None

    def identify(
        self, token: str, *, now: datetime, audiences: tuple[str, ...] = (ISSUER,)
    ) -> tuple[User, tuple[str, ...]]:
        """Return the user of a token and those of the audiences it is for; raises TokenError without any."""
        if user := self._users.get(_digest(token)):
            return user, audiences
        if found := _BOOTSTRAP.fullmatch(token):
            return self._bootstrapper(found[1], found[2], now), audiences
        claims = self._authority.verify(token, now=now, audiences=audiences)
        if claims.lasting:
            self._check_held(claims, token)
            claims = replace(claims, bound={})
        return self._account(claims, now), tuple(one for one in claims.audiences if one in audiences)

    def _bootstrapper(self, name: str, secret: str, now: datetime) -> User:
        """Return the user of a bootstrap token, which a Secret of kube-system describes."""
        entry = self._store.collection("secrets").get(("kube-system", f"bootstrap-token-{name}"))
        if entry is None or is_deleting(entry.obj) or entry.obj.get("type") != _BOOTSTRAP_TYPE:
            raise TokenError
        encoded = entry.obj.get("data") or {}
        data = {key: base64.b64decode(value).decode(errors="replace") for key, value in encoded.items()}
        good = hmac.compare_digest(data.get("token-secret", "").encode(), secret.encode())
        if not good or data.get("token-id") != name or _expired(data.get("expiration", ""), now):
            raise TokenError
        if data.get("usage-bootstrap-authentication") != "true":
            raise TokenError
        extra = [group for group in data.get("auth-extra-groups", "").split(",") if group]
        if not all(group.startswith(_BOOTSTRAPPERS + ":") for group in extra):
            raise TokenError
        groups = (*sorted(extra), _BOOTSTRAPPERS)
        return _authenticated(User(f"system:bootstrap:{name}", groups=groups))

    def _account(self, claims: Claims, now: datetime) -> User:
        """Return the user of a ServiceAccount that still exists, as must what its token is bound to."""
        where = (claims.namespace, claims.name)
        account = self._store.collection("serviceaccounts").get(where)
        if account is None:
            raise TokenError(f'serviceaccounts "{claims.name}" not found')
        if _ended(account.obj, now):
            raise TokenError("service account has been deleted")
        if (uid := account.obj["metadata"]["uid"]) != claims.uid:
            raise TokenError(f"service account UID ({uid}) does not match claim ({claims.uid})")
        extra = {} if claims.lasting else {_CREDENTIAL: (f"JTI={claims.id}",)}
        for kind, (name, uid) in claims.bound.items():
            if kind != "node" or "pod" not in claims.bound:
                self._check_bound(kind, claims, now)
            if kind != "secret":
                extra[f"authentication.kubernetes.io/{kind}-name"] = (name,)
                extra |= {f"authentication.kubernetes.io/{kind}-uid": (uid,)} if uid else {}
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{claims.namespace}", _AUTHENTICATED)
        return User(f"system:serviceaccount:{claims.namespace}:{claims.name}", claims.uid, groups, extra)

    def _check_held(self, claims: Claims, token: str) -> None:
        """Raise TokenError unless the Secret that a lasting token was made for still holds it."""
        entry = self._store.collection("secrets").get((claims.namespace, claims.bound["secret"][0]))
        if entry is None or is_deleting(entry.obj):
            raise TokenError("Token has been invalidated")
        held = base64.b64decode((entry.obj.get("data") or {}).get("token") or "")
        if not hmac.compare_digest(held, token.encode()):
            raise TokenError("Token does not match server's copy")

    def _check_bound(self, kind: str, claims: Claims, now: datetime) -> None:
        name, uid = claims.bound[kind]
        entry = self._store.collection(f"{kind}s").get(("" if kind == "node" else claims.namespace, name))
        if entry is None or _ended(entry.obj, now):
            raise TokenError("service account token has been invalidated")
        if (found := entry.obj["metadata"]["uid"]) != uid:
            about = f"does not match service account {kind} ref claim ({uid})"
            raise TokenError(f"{kind} UID ({found}) {about}")


def _ended(obj: JsonObject, now: datetime) -> bool:
    """Whether an object was to be gone a minute ago, though something still holds it; as on a real server."""
    at = obj["metadata"].get("deletionTimestamp")
    return bool(at) and datetime.fromisoformat(at) < now - _HELD


def _expired(text: str, now: datetime) -> bool:
    """Whether a moment (RFC 3339; none: never) has passed; one that cannot be read has."""
    try:
        return bool(text) and datetime.fromisoformat(text) <= now
    except (ValueError, TypeError):
        return True


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
