"""The rules of roles and bindings."""

from __future__ import annotations

from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import GoStruct, invalid, not_supported, required
from mooring.local.api.validation.metadata import selector_errors
from mooring.local.api.validation.rules import Create, Errors, JsonObject, Table, also

__all__ = ["RULES"]


_GROUP = "rbac.authorization.k8s.io"


def _role(obj: JsonObject) -> Errors:
    """Yield what is wrong with a Role."""
    for index, rule in enumerate(obj.get("rules") or ()):
        yield from _rule(rule, f"rules[{index}]", namespaced=True)


def _cluster_role(obj: JsonObject) -> Errors:
    """Yield what is wrong with a ClusterRole."""
    for index, rule in enumerate(obj.get("rules") or ()):
        yield from _rule(rule, f"rules[{index}]", namespaced=False)
    gathers = obj.get("aggregationRule")
    if gathers is None:
        return
    path, selectors = "aggregationRule.clusterRoleSelectors", gathers.get("clusterRoleSelectors") or ()
    if not selectors:
        yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for index, selector in enumerate(selectors):
        wrong = list(selector_errors(selector, f"{path}[{index}]"))
        yield from wrong
        if wrong:
            yield invalid(f"{path}[{index}]", None, "invalid label selector.")


def _rule(rule: JsonObject, path: str, *, namespaced: bool) -> Errors:
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        place = f"{path}.nonResourceURLs"
        if namespaced:
            yield invalid(place, urls, "namespaced rules cannot apply to non-resource URLs")
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            yield invalid(place, urls, "rules cannot apply to both regular resources and non-resource URLs")
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _binding(*, namespaced: bool) -> Create:
    """Return what judges RoleBindings, or without `namespaced` ClusterRoleBindings."""
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)

    def check(obj: JsonObject) -> Errors:
        ref = obj.get("roleRef") or {}
        if ref.get("apiGroup") != _GROUP:
            yield not_supported("roleRef.apiGroup", ref.get("apiGroup") or "", (_GROUP,))
        if ref.get("kind") not in kinds:
            yield not_supported("roleRef.kind", ref.get("kind") or "", kinds)
        name = ref.get("name") or ""
        if not name:
            yield required("roleRef.name")
        for text in names.http_path_segment(name) if name else ():
            yield invalid("roleRef.name", name, text)
        for index, subject in enumerate(obj.get("subjects") or ()):
            yield from _subject(subject, f"subjects[{index}]", namespaced=namespaced)

    return check


def _subject(subject: JsonObject, path: str, *, namespaced: bool) -> Errors:
    name, kind, group = (subject.get(key) or "" for key in ("name", "kind", "apiGroup"))
    if not name:
        yield required(f"{path}.name")
    if kind == "ServiceAccount":
        for text in names.dns1123_subdomain(name) if name else ():
            yield invalid(f"{path}.name", name, text)
        if group:
            yield not_supported(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        if group != _GROUP:
            yield not_supported(f"{path}.apiGroup", group, (_GROUP,))
    else:
        yield not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))


def _binding_update(obj: JsonObject, old: JsonObject) -> Errors:
    """Yield what is wrong with a change of a binding."""
    ref, before = obj.get("roleRef") or {}, old.get("roleRef") or {}
    if not same(ref, before):
        shown = {go: ref.get(key) or "" for go, key in _REF_FIELDS}
        yield invalid("roleRef", GoStruct(shown), "cannot change roleRef")


_REF_FIELDS = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))


RULES: Final[Table] = {
    (_GROUP, "Role"): also(_role),
    (_GROUP, "ClusterRole"): also(_cluster_role),
    (_GROUP, "RoleBinding"): also(_binding(namespaced=True), _binding_update),
    (_GROUP, "ClusterRoleBinding"): also(_binding(namespaced=False), _binding_update),
}
