"""Who may do what: the stored roles and bindings decide, and members of system:masters may do everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from mooring.kube.errors import ApiError, Forbidden
from mooring.local.api import failures
from mooring.local.api.access import rbac
from mooring.local.api.access.rbac import Attributes, Rule
from mooring.local.api.http import Request, User
from mooring.local.api.request import Target
from mooring.local.api.storage import Entry, Event, Store

__all__ = ["GROUP", "MASTERS", "Authorizer", "Decision", "attributes_of", "refused"]

JsonObject = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"
#: Members of this group may do everything, whatever is stored.
MASTERS = "system:masters"

_STORED = tuple(
    f"{plural}.{GROUP}" for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
)
_EXACT_NAME = ("metadata.name==", "metadata.name=")


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is allowed, and why where there is something to tell."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Binding:
    """One binding as it applies to one of its subjects."""

    namespace: str
    name: str
    role_kind: str
    role_name: str
    subject: str

    def __str__(self) -> str:
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{self.name}/{self.namespace}"
        role = f"{self.role_kind} {rbac.quoted(self.role_name)}"
        return f"{kind} {rbac.quoted(name)} of {role} to {self.subject}"


_Subjects = dict[tuple[str, str], list[_Binding]]


class Authorizer:
    """Decides by the roles and bindings of a store; what it has parsed it keeps until that changes."""

    def __init__(self, store: Store) -> None:
        self._roles, self._cluster_roles, self._bindings, self._cluster_bindings = map(
            store.collection, _STORED
        )
        for collection in map(store.collection, _STORED):
            collection.observer = self._changed
        # Cluster-wide objects have the namespace "", so one table serves both scopes.
        self._rules: dict[tuple[str, str], tuple[Rule, ...] | None] = {}
        self._subjects: dict[str, _Subjects] = {}

    def _changed(self, event: Event) -> None:
        self._rules.pop(event.entry.place, None)
        self._subjects.pop(event.entry.namespace, None)

    def decide(self, wanted: Attributes) -> Decision:
        """Return whether a request is allowed."""
        if MASTERS in wanted.user.groups:
            return Decision(True)
        errors: list[str] = []
        for binding, rules in self._granted(wanted.user, wanted.namespace, errors):
            if any(rbac.allows(rule, wanted) for rule in rules):
                return Decision(True, f"RBAC: allowed by {binding}")
        return Decision(False, f"RBAC: {_aggregate(errors)}" if errors else "")

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], str]:
        """Return every rule a user has in a namespace, and what of it could not be found out."""
        errors: list[str] = []
        rules = [rule for _, rules in self._granted(user, namespace, errors) for rule in rules]
        return rules, _aggregate(errors)

    def check(self, wanted: Attributes) -> None:
        """Raise 403 unless a request is allowed."""
        decision = self.decide(wanted)
        if not decision.allowed:
            raise refused(wanted, decision.reason)

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[Rule, ...]:
        """Return the rules of a Role in a namespace or of a ClusterRole; raises 404."""
        place = (namespace if kind == "Role" else "", name)
        if place not in self._rules:
            entry = (self._roles if kind == "Role" else self._cluster_roles).get(place)
            self._rules[place] = tuple(entry.obj.get("rules") or ()) if entry is not None else None
        rules = self._rules[place]
        if rules is None:
            raise failures.not_found(GROUP, kind.lower(), name)
        return rules

    def _granted(
        self, user: User, namespace: str, errors: list[str]
    ) -> Iterator[tuple[_Binding, tuple[Rule, ...]]]:
        for scope in ("", namespace) if namespace else ("",):
            subjects, seen = self._bound(scope), set()
            for subject in (("User", user.name), *(("Group", group) for group in user.groups)):
                for binding in subjects.get(subject, ()):
                    if binding.name in seen:
                        continue
                    seen.add(binding.name)
                    try:
                        rules = self.role_rules(binding.role_kind, binding.role_name, scope)
                    except ApiError as error:
                        errors.append(error.message)
                        continue
                    yield binding, rules

    def _bound(self, namespace: str) -> _Subjects:
        """Return the bindings of a namespace ("" = of the whole cluster) by subject."""
        found = self._subjects.get(namespace)
        if found is None:
            found = self._subjects[namespace] = {}
            bindings = self._bindings if namespace else self._cluster_bindings
            for entry in bindings.entries(namespace):
                for key, binding in _subjects(entry):
                    found.setdefault(key, []).append(binding)
        return found


def _subjects(entry: Entry) -> Iterator[tuple[tuple[str, str], _Binding]]:
    role = entry.obj["roleRef"]
    for subject in entry.obj.get("subjects") or ():
        kind, name = subject["kind"], subject["name"]
        key, shown = (kind, name), name
        if kind == "ServiceAccount":
            namespace = subject.get("namespace") or entry.namespace
            key, shown = ("User", f"system:serviceaccount:{namespace}:{name}"), f"{name}/{namespace}"
        about = f"{kind} {rbac.quoted(shown)}"
        yield key, _Binding(entry.namespace, entry.name, role["kind"], role["name"], about)


def _aggregate(errors: list[str]) -> str:
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]" if unique else ""


_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def refused(wanted: Attributes, reason: str) -> Forbidden:
    """Return the 403 of a request, in the real server's words."""
    who = f"User {rbac.quoted(wanted.user.name)} cannot {wanted.verb}"
    if wanted.path is not None:
        text = f"{who} path {rbac.quoted(wanted.path)}"
    else:
        what = f"resource {rbac.quoted(wanted.full_resource)} in API group {rbac.quoted(wanted.group)}"
        where = (
            f"in the namespace {rbac.quoted(wanted.namespace)}"
            if wanted.namespace
            else "at the cluster scope"
        )
        text = f"{who} {what} {where}"
    text = text.translate(_HTML) + (f": {reason}" if reason else "")
    return failures.forbidden(wanted.group, wanted.resource, wanted.name, text)


def attributes_of(request: Request, target: Target | None, user: User) -> Attributes:
    """Return what a request asks for, read as the real server's RequestInfo reads it."""
    if target is None:
        return Attributes(user=user, verb=request.method.lower(), path=unquote(request.path) or "/")
    name, verb = target.name, target.verb(request.method, request.query) or ""
    if verb == "watch" and name and not target.legacy_watch:
        verb = "get"
    if not name and verb in ("list", "watch"):
        name = _selected_name(request.query.text("fieldSelector"))
    is_namespace = not target.group and target.plural == "namespaces"
    return Attributes(
        user=user,
        verb=verb,
        group=target.group,
        resource=target.plural,
        subresource=target.subresource,
        name=name,
        namespace=target.name if is_namespace else target.namespace,
    )


def _selected_name(selector: str) -> str:
    """Return the name that a field selector demands."""
    for term in selector.split(","):
        for prefix in _EXACT_NAME:
            if term.startswith(prefix):
                return term.removeprefix(prefix)
    return ""
