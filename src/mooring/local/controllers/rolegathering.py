"""ClusterRoles that gather the rules of others: `admin`, `edit`, `view`, and whatever users make."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mooring.kube.object import Key, key_of
from mooring.kube.objects.meta import LabelSelector
from mooring.kube.objects.rbac import ClusterRole, PolicyRule
from mooring.kube.patches import MergePatch
from mooring.kube.selectors import selector_of
from mooring.local.controllers.context import Context
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["RoleGathering", "gathered"]


def gathered(role: ClusterRole, roles: Iterable[ClusterRole]) -> list[PolicyRule]:
    """The rules of all other roles that a role selects, in the order of their names, each once."""
    selectors = [selector_of(one) for one in _selectors(role)]
    rules: list[PolicyRule] = []
    for other in sorted(roles, key=lambda one: one.metadata.name or ""):
        labels = other.metadata.labels or {}
        if other.metadata.name != role.metadata.name and any(one.matches(labels) for one in selectors):
            rules += [rule for rule in other.rules or () if rule not in rules]
    return rules


class RoleGathering:
    """Keeps the rules of gathering roles those of what they select."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._roles = context.informers.of(ClusterRole)

    def controller(self) -> Controller:
        """The controller with its watches: any change of a role may concern every one that gathers."""
        return Controller("clusterrole-aggregation", self.reconcile).watch(self._roles, map=self._gathering)

    def _gathering(self, changed: ClusterRole) -> Iterable[Key]:
        return {key_of(role) for role in (changed, *self._roles.list()) if _selectors(role)}

    async def reconcile(self, key: Key) -> Result:
        """One pass over a role."""
        role = self._roles.get(key)
        if role is None or role.metadata.deletion_timestamp or not _selectors(role):
            return Done()
        rules = gathered(role, self._roles.list())
        if rules != (role.rules or []):
            guard = {"uid": role.metadata.uid, "resourceVersion": role.metadata.resource_version}
            body = {"metadata": guard, "rules": msgspec.to_builtins(rules)}
            await self._client.patch(ClusterRole, key.name, MergePatch(body))
        return Done()


def _selectors(role: ClusterRole) -> list[LabelSelector]:
    return list((role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else None) or ())
