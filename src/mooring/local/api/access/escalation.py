"""Nobody hands out rights that they do not have: the check on every write of a role or binding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mooring.kube.errors import NotFound
from mooring.local.api.access import rbac
from mooring.local.api.access.authorization import GROUP, MASTERS
from mooring.local.api.access.rbac import Attributes, Rule
from mooring.local.api.call import Call
from mooring.local.api.objectmeta import differs, with_metadata

__all__ = ["check_grant"]

JsonObject = dict[str, Any]

_EVERYTHING: tuple[Rule, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)


def check_grant(call: Call, obj: JsonObject, old: JsonObject | None) -> None:
    """Raise 403 when a role or binding would grant more than its writer holds; 404 for a missing role."""
    if call.served.group != GROUP or MASTERS in call.user.groups:
        return
    if old is not None and not _changes_more_than_ownership(obj, old):
        return
    if call.served.plural in ("roles", "clusterroles"):
        _check_role(call, obj, old)
    else:
        _check_binding(call, obj)


def _changes_more_than_ownership(obj: JsonObject, old: JsonObject) -> bool:
    names = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    kept = {name: old["metadata"].get(name) for name in names}
    return differs(with_metadata(obj, **kept), old, without=("kind", "apiVersion"))


def _check_role(call: Call, obj: JsonObject, old: JsonObject | None) -> None:
    if _may(call, "escalate", call.served.plural, call.target.name):
        return
    name = obj["metadata"].get("name") or ""
    _check_rules(call, obj.get("rules") or (), name)
    gathers = any(
        ((role or {}).get("aggregationRule") or {}).get("clusterRoleSelectors") for role in (obj, old)
    )
    if gathers and rbac.missing(_held(call)[0], _EVERYTHING):
        raise call.forbidden("must have cluster-admin privileges to use the aggregationRule", name)


def _check_binding(call: Call, obj: JsonObject) -> None:
    role = obj.get("roleRef") or {}
    kind, name = role.get("kind"), role.get("name") or ""
    if kind not in ("Role", "ClusterRole"):
        return  # validation names it
    if _may(call, "bind", f"{kind.lower()}s", name):
        return
    try:
        rules = call.cluster.authorizer.role_rules(kind, name, call.namespace)
    except NotFound:
        if kind == "Role":
            raise
        # A real server looks ClusterRoles up as what the request is about.
        raise call.not_found(name) from None
    _check_rules(call, rules, obj["metadata"].get("name") or "")


def _may(call: Call, verb: str, plural: str, name: str) -> bool:
    wanted = Attributes(
        user=call.user, verb=verb, group=GROUP, resource=plural, name=name, namespace=call.namespace
    )
    return call.cluster.authorizer.decide(wanted).allowed


def _held(call: Call) -> tuple[list[Rule], str]:
    return call.cluster.authorizer.rules_for(call.user, call.namespace)


def _check_rules(call: Call, rules: Iterable[Rule], name: str) -> None:
    held, errors = _held(call)
    if not (lacking := rbac.missing(held, rules)):
        return
    user, groups = rbac.quoted(call.user.name), rbac.quoted_list(call.user.groups)
    lines = sorted({rbac.described(rule) for rule in lacking})
    text = f"user {user} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n"
    text += "\n".join(lines)
    raise call.forbidden(text + (f"; resolution errors: [{errors}]" if errors else ""), name)
