"""Acting as somebody else: the Impersonate-* headers, for those who may.

The real server tries the narrow ways first (as a node, a ServiceAccount, any other user, each only for the
verb in question) and the old `impersonate` verb last; a refusal is that of the first way that applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote

from mooring.kube.errors import Forbidden
from mooring.local.api import failures
from mooring.local.api.access import rbac
from mooring.local.api.access.authorization import MASTERS, Authorizer, refused
from mooring.local.api.access.rbac import Attributes
from mooring.local.api.http import User

__all__ = ["impersonated"]

_PREFIX = "impersonate-"
_EXTRA = "impersonate-extra-"
_ANONYMOUS, _AUTHENTICATED, _UNAUTHENTICATED = (
    "system:anonymous",
    "system:authenticated",
    "system:unauthenticated",
)
_ACCOUNT, _NODE = "system:serviceaccount:", "system:node:"
#: The API group of what is impersonated, for all but users and groups in the old way.
_GROUP = "authentication.k8s.io"
_NODE_NAME = "authentication.kubernetes.io/node-name"


def impersonated(headers: Iterable[tuple[str, str]], wanted: Attributes, authorizer: Authorizer) -> User:
    """Return who a request acts as: its sender, or whom the headers name. Raises 400 and 403.

    `headers` are the request's with names in lower case; `wanted` is what the sender asks for.
    """
    asked = _asked(headers)
    if asked is None:
        return wanted.user
    first: Forbidden | None = None
    for mode in _modes(asked, wanted.user):
        try:
            if mode:
                authorizer.check(replace(wanted, verb=f"impersonate-on:{mode}:{wanted.verb}"))
            return _Check(authorizer, wanted.user, mode).user(asked)
        except Forbidden as error:
            first = first or error
    assert first is not None
    raise first


def _asked(headers: Iterable[tuple[str, str]]) -> User | None:
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in headers:
        if header == "impersonate-user":
            name = name or value
        elif header == "impersonate-uid":
            uid = uid or value
        elif header == "impersonate-group":
            groups.append(value)
        elif header.startswith(_EXTRA):
            key = unquote(header.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    if name:
        return User(name, uid, tuple(groups), extra)
    if uid or groups or extra:
        shown = _go_user(uid, groups, extra)
        raise failures.bad_request(f"requested {shown} without impersonating a user name")
    return None


def _go_user(uid: str, groups: list[str], extra: dict[str, tuple[str, ...]]) -> str:
    listed = "[]string{" + ", ".join(map(rbac.quoted, groups)) + "}" if groups else "[]string(nil)"
    pairs = ", ".join(
        f"{rbac.quoted(key)}:[]string{{{', '.join(map(rbac.quoted, extra[key]))}}}" for key in sorted(extra)
    )
    more = f"map[string][]string{{{pairs}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{rbac.quoted(uid)}, Groups:{listed}, Extra:{more}}}'


def _modes(asked: User, sender: User) -> Iterator[str]:
    """Yield the ways that apply, "" for the old one."""
    bare = not (asked.uid or asked.groups or asked.extra)
    node, account = _node(asked.name), _account(asked.name)
    if bare and node and _account(sender.name) and sender.extra.get(_NODE_NAME) == (node,):
        yield "associated-node"
    if bare and node:
        yield "arbitrary-node"
    if bare and account:
        yield "serviceaccount"
    if not node and not account:
        yield "user-info"
    yield ""


def _node(name: str) -> str:
    return name.removeprefix(_NODE) if name.startswith(_NODE) else ""


def _account(name: str) -> tuple[str, str] | None:
    if not name.startswith(_ACCOUNT):
        return None
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, account) if namespace and account and ":" not in account else None


@dataclass(frozen=True, slots=True)
class _Check:
    """Checks everything that one way of impersonation asks for."""

    authorizer: Authorizer
    sender: User
    mode: str

    def _attributes(self, resource: str, name: str, namespace: str = "", subresource: str = "") -> Attributes:
        new = bool(self.mode) or resource in ("uids", "userextras")
        return Attributes(
            user=self.sender,
            verb=f"impersonate:{self.mode}" if self.mode else "impersonate",
            group=_GROUP if new else "",
            resource=resource,
            subresource=subresource,
            name=name,
            namespace=namespace,
        )

    def user(self, asked: User) -> User:
        """Return the user to act as; raises 403."""
        groups = list(asked.groups)
        if account := _account(asked.name):
            self.authorizer.check(self._attributes("serviceaccounts", account[1], account[0]))
            groups = groups or ["system:serviceaccounts", f"system:serviceaccounts:{account[0]}"]
        elif self.mode and (node := _node(asked.name)):
            name = "*" if self.mode == "associated-node" else node
            self.authorizer.check(self._attributes("nodes", name))
            groups = ["system:nodes"]
        else:
            self.authorizer.check(self._attributes("users", asked.name))
        if asked.uid:
            self.authorizer.check(self._attributes("uids", asked.uid))
        self._check_groups(asked.groups)
        for key in sorted(asked.extra):
            for value in asked.extra[key]:
                self.authorizer.check(self._attributes("userextras", value, subresource=key))
        return replace(asked, groups=_completed(asked.name, groups))

    def _check_groups(self, groups: tuple[str, ...]) -> None:
        for bad, shown in ((MASTERS, "the system:masters group"), ("", "the empty string group")):
            if self.mode and bad in groups:
                why = f"impersonating {shown} is not allowed"
                raise refused(self._attributes("groups", bad), why)
        for group in groups:
            self.authorizer.check(self._attributes("groups", group))


def _completed(name: str, groups: list[str]) -> tuple[str, ...]:
    wanted = _UNAUTHENTICATED if name == _ANONYMOUS else _AUTHENTICATED
    settled = wanted in groups or (wanted == _AUTHENTICATED and _UNAUTHENTICATED in groups)
    return tuple(groups) if settled else (*groups, wanted)
