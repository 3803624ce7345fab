"""Makes random sequences of requests over several kinds, for two servers to answer alike.

A sequence is made from a seed alone: it refers to what was answered (versions, UIDs) by tokens, as the written
scenarios do. So it can be sent again, with some of its requests left out, to find the few that matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.comparing import Step

__all__ = ["GROUP", "Menu", "definition", "sequence"]

Json = Any
Path = tuple[str, ...]

GROUP = "gadgets.example.com"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
MANAGERS = ("ann", "bob", "controller")
#: Where the words about a wrong type are others: from where a scale is read, and what may be a number or text.
_WORDED = (("spec", "size"), ("spec", "minAvailable"), ("spec", "amount"))
#: How often a value is of a wrong type, a field unknown, a name wrong.
_WRONG = 0.02


@dataclass(frozen=True)
class Menu:
    """One kind: where it is served, the least it needs, and what its fields may be."""

    collection: str
    api_version: str
    kind: str
    base: Json
    fields: Mapping[Path, Sequence[Json]]
    status: Mapping[Path, Sequence[Json]] = field(default_factory=dict)
    scales: bool = False
    strategic: Sequence[Json] = ()
    fixed: bool = False


_NS = "namespaces/{ns}"
_CONTAINERS = (
    [{"name": "c", "image": "nginx:1"}],
    [{"name": "c", "image": "nginx:2"}],
    [{"name": "c", "image": "nginx"}, {"name": "d", "image": "redis:7"}],
    [{"name": "d", "image": "redis:7"}, {"name": "c", "image": "nginx:1"}],
    [
        {
            "name": "c",
            "image": "nginx:1",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
            "resources": {"limits": {"cpu": "0.5", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
        }
    ],
    [{"name": "c", "image": "nginx:1", "env": [{"name": "B", "value": "3"}], "args": ["x", "y"]}],
)
_POD_FIELDS: Mapping[Path, Sequence[Json]] = {
    ("containers",): _CONTAINERS,
    ("nodeSelector",): ({"a": "b"}, {"a": "c", "d": "e"}, {}),
    ("tolerations",): ([{"key": "a", "operator": "Exists"}], []),
    ("terminationGracePeriodSeconds",): (0, 5, 30),
    ("securityContext",): ({"runAsUser": 1}, {"fsGroup": 2, "runAsNonRoot": True}, {}),
    ("volumes",): ([{"name": "v", "emptyDir": {}}], [{"name": "w", "configMap": {"name": "x"}}]),
    ("hostAliases",): ([{"ip": "10.0.0.1", "hostnames": ["a"]}],),
    ("priorityClassName",): ("", "nope"),
}
_TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": _CONTAINERS[0]}}


def _template(prefix: Path) -> dict[Path, Sequence[Json]]:
    spec = {(*prefix, "spec", *path): values for path, values in _POD_FIELDS.items()}
    return {**spec, (*prefix, "metadata", "annotations"): ({"x": "1"}, {"x": "2", "y": "3"}, {})}


_META: Mapping[Path, Sequence[Json]] = {
    ("metadata", "labels"): ({"l": "1"}, {"l": "2", "m": "1"}, {"m": "2"}, {}),
    ("metadata", "annotations"): ({"a": "1"}, {"a": "2", "b": "3"}, {}),
    ("metadata", "finalizers"): (["example.com/a"], ["example.com/a", "example.com/b"], []),
}
_STRATEGIC_TEMPLATE: tuple[Json, ...] = (
    {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:9"}]}}}},
    {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "redis:8"}]}}}},
    {"spec": {"template": {"spec": {"containers": [{"name": "d", "$patch": "delete"}]}}}},
    {"spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "9"}]}]}}}},
    {"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}]}}}},
    {"spec": {"template": {"spec": {"nodeSelector": {"$patch": "replace", "z": "z"}}}}},
    {"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}}}},
)

MENUS: Mapping[str, Menu] = {
    "configmaps": Menu(
        f"/api/v1/{_NS}/configmaps", "v1", "ConfigMap", {},
        {
            ("data",): ({"a": "1"}, {"a": "2", "b": "3"}, {"c": "x\ny"}),
            ("binaryData",): ({"z": "AAEC"}, {"z": "AAAA", "y": "AQ=="}),
            ("immutable",): (False, True),
        },
    ),
    "secrets": Menu(
        f"/api/v1/{_NS}/secrets", "v1", "Secret", {},
        {
            ("data",): ({"a": "MQ=="}, {"a": "Mg==", "b": "Mw=="}, {}),
            ("stringData",): ({"a": "3"}, {"s": "t"}),
            ("type",): ("Opaque", "example.com/x"),
        },
    ),
    "serviceaccounts": Menu(
        f"/api/v1/{_NS}/serviceaccounts", "v1", "ServiceAccount", {},
        {
            ("secrets",): ([{"name": "a"}], [{"name": "b"}, {"name": "a"}], []),
            ("imagePullSecrets",): ([{"name": "p"}], [{"name": "q"}, {"name": "p"}]),
            ("automountServiceAccountToken",): (True, False),
        },
        strategic=({"secrets": [{"name": "z"}]}, {"secrets": [{"name": "a", "$patch": "delete"}]}),
    ),
    "services": Menu(
        f"/api/v1/{_NS}/services", "v1", "Service", {"spec": {"ports": [{"port": 80}]}},
        {
            ("spec", "selector"): ({"a": "b"}, {"a": "c"}, {}),
            ("spec", "ports"): (
                [{"port": 80}], [{"port": 81, "name": "x"}, {"port": 82, "name": "y"}],
                [{"port": 81, "name": "x", "targetPort": "web"}],
                [{"port": 53, "name": "u", "protocol": "UDP"}, {"port": 53, "name": "t"}],
            ),
            ("spec", "type"): ("ClusterIP", "ExternalName", "NodePort", "LoadBalancer"),
            ("spec", "clusterIP"): ("None",),
            ("spec", "externalTrafficPolicy"): ("Local", "Cluster"),
            ("spec", "internalTrafficPolicy"): ("Local", "Cluster"),
            ("spec", "allocateLoadBalancerNodePorts"): (True, False),
            ("spec", "externalName"): ("x.example.com",),
            ("spec", "sessionAffinity"): ("ClientIP", "None"),
            ("spec", "publishNotReadyAddresses"): (True, False),
            ("spec", "externalIPs"): (["192.0.2.7"], []),
        },
        strategic=(
            {"spec": {"ports": [{"port": 81, "name": "x", "targetPort": 9}]}},
            {"spec": {"ports": [{"port": 80, "$patch": "delete"}]}},
            {"spec": {"selector": {"$patch": "replace", "r": "s"}}},
        ),
    ),
    "pods": Menu(
        f"/api/v1/{_NS}/pods", "v1", "Pod", {"spec": {"containers": _CONTAINERS[0]}},
        {
            **{("spec", *path): values for path, values in _POD_FIELDS.items()},
            ("spec", "activeDeadlineSeconds"): (10, 20),
            ("spec", "nodeName"): ("n1",),
        },
        {
            ("status", "phase"): ("Running", "Pending", "Succeeded"),
            ("status", "podIP"): ("10.0.0.1", "10.0.0.2"),
            ("status", "conditions"): (
                [{"type": "Ready", "status": "True"}],
                [{"type": "Ready", "status": "False", "reason": "R"}, {"type": "X", "status": "True"}],
            ),
        },
        strategic=(
            {"spec": {"containers": [{"name": "c", "image": "nginx:9"}]}},
            {"spec": {"tolerations": [{"key": "t", "operator": "Exists"}]}},
        ),
    ),
    "deployments": Menu(
        f"/apis/apps/v1/{_NS}/deployments", "apps/v1", "Deployment",
        {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATE}},
        {
            **_template(("spec", "template")),
            ("spec", "replicas"): (0, 1, 3),
            ("spec", "paused"): (True, False),
            ("spec", "minReadySeconds"): (0, 5),
            ("spec", "strategy"): ({"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 1}}, {}),
        },
        {
            ("status", "replicas"): (1, 2),
            ("status", "observedGeneration"): (1, 2),
            ("status", "conditions"): ([{"type": "Available", "status": "True"}], []),
        },
        scales=True,
        strategic=(
            *_STRATEGIC_TEMPLATE,
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        ),
    ),
    "statefulsets": Menu(
        f"/apis/apps/v1/{_NS}/statefulsets", "apps/v1", "StatefulSet",
        {"spec": {"serviceName": "s", "selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATE}},
        {
            **_template(("spec", "template")),
            ("spec", "replicas"): (0, 1, 3),
            ("spec", "updateStrategy"): ({"type": "OnDelete"}, {"rollingUpdate": {"partition": 1}}),
            ("spec", "minReadySeconds"): (0, 5),
            ("spec", "revisionHistoryLimit"): (3, 10),
        },
        {("status", "replicas"): (1, 2), ("status", "readyReplicas"): (0, 1)},
        scales=True,
        strategic=_STRATEGIC_TEMPLATE,
    ),
    "poddisruptionbudgets": Menu(
        f"/apis/policy/v1/{_NS}/poddisruptionbudgets", "policy/v1", "PodDisruptionBudget",
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}},
        {
            ("spec", "minAvailable"): (1, 2, "50%"),
            ("spec", "selector"): ({"matchLabels": {"app": "b"}}, {}),
            ("spec", "unhealthyPodEvictionPolicy"): ("AlwaysAllow", "IfHealthyBudget"),
        },
        {("status", "disruptionsAllowed"): (0, 1), ("status", "currentHealthy"): (1, 2)},
    ),
    "leases": Menu(
        f"/apis/coordination.k8s.io/v1/{_NS}/leases", "coordination.k8s.io/v1", "Lease", {},
        {
            ("spec", "holderIdentity"): ("a", "b"),
            ("spec", "leaseDurationSeconds"): (10, 15),
            ("spec", "renewTime"): ("2024-01-01T00:00:00.123456Z", "2024-01-01T00:00:00.500000+02:00"),
        },
    ),
    "roles": Menu(
        f"/apis/rbac.authorization.k8s.io/v1/{_NS}/roles", "rbac.authorization.k8s.io/v1", "Role", {"rules": []},
        {
            ("rules",): (
                [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
                [{"apiGroups": ["apps", ""], "resources": ["*"], "verbs": ["*"], "resourceNames": ["x"]}],
            ),
        },
    ),
    "gadgets": Menu(
        f"/apis/{GROUP}/v1/{_NS}/gadgets", f"{GROUP}/v1", "Gadget", {"spec": {}},
        {
            ("spec", "size"): (1, 3, 9, 10),
            ("spec", "color"): ("red", "green", "pink"),
            ("spec", "most"): (1, 5, 20),
            ("spec", "ports"): (
                [{"name": "a", "port": 1}], [{"name": "b", "port": 2}, {"name": "a", "port": 3}],
                [{"name": "a"}, {"name": "a"}], [],
            ),
            ("spec", "tags"): (["x"], ["x", "y"], ["y", "x", "x"], []),
            ("spec", "order"): ([1, 2], [2], []),
            ("spec", "free"): ({"any": {"thing": [1, None]}}, {"b": True}, {}),
            ("spec", "amount"): (5, "50%"),
            ("spec", "nested"): ({"on": True}, {}, {"on": False, "level": 2}),
            ("spec", "maybe"): (None, "text"),
            ("spec", "pinned"): ("once", "twice"),
        },
        {
            ("status", "phase"): ("Up", "Down"),
            ("status", "replicas"): (1, 2),
            ("status", "conditions"): (
                [{"type": "Ready", "status": "True"}],
                [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}],
            ),
        },
        scales=True,
    ),
}  # fmt: skip


def definition() -> Json:
    """Return the definition of Gadgets: defaults, an enum, CEL rules, keyed, unique and atomic lists."""
    text, number = {"type": "string"}, {"type": "integer"}
    port = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": text,
            "port": {**number, "default": 80},
            "protocol": {**text, "default": "TCP"},
        },
    }
    condition = {"type": "object", "required": ["type"], "properties": {"type": text, "status": text}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map"}
    spec = {
        "type": "object",
        "properties": {
            "size": {**number, "minimum": 1, "maximum": 9, "default": 3},
            "most": {**number},
            "color": {**text, "enum": ["red", "green"], "default": "red"},
            "ports": {**keyed, "x-kubernetes-list-map-keys": ["name"], "items": port},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "order": {"type": "array", "x-kubernetes-list-type": "atomic", "items": number},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "amount": {"x-kubernetes-int-or-string": True},
            "nested": {
                "type": "object",
                "default": {},
                "properties": {"on": {"type": "boolean", "default": True}, "level": number},
            },
            "maybe": {**text, "nullable": True},
            "pinned": {
                **text,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "pinned is fixed"}],
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.most) || self.size <= self.most", "message": "size is above most"}
        ],
    }
    status = {
        "type": "object",
        "properties": {
            "phase": text,
            "replicas": number,
            "conditions": {**keyed, "x-kubernetes-list-map-keys": ["type"], "items": condition},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [version],
        },
    }


def sequence(seed: str, length: int) -> list[Step]:
    """Return the sequence of a seed: `length` requests over one to three kinds, few names."""
    return _Writer(random.Random(seed)).steps(length)


class _Writer:
    """Writes one sequence."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._menus = chance.sample(list(MENUS.values()), chance.randint(1, 3))
        self._written: list[Step] = []

    def steps(self, length: int) -> list[Step]:
        """Write the sequence: objects first, then anything, at its end what watches saw."""
        verbs: dict[Callable[[Menu], Step], int] = {
            self._create: 10, self._get: 4, self._update: 14, self._merge: 14, self._strategic: 8,
            self._json: 10, self._apply: 18, self._status: 8, self._scale: 5, self._delete: 8, self._list: 6,
            self._delete_all: 1,
        }  # fmt: skip
        for menu in self._menus:
            self._written += [self._real(self._create(menu)), self._real(self._create(menu))]
        while len(self._written) < length - 1:
            (verb,) = self._chance.choices(list(verbs), list(verbs.values()))
            self._written.append(self._real(verb(self._chance.choice(self._menus))))
        self._written.append(self._watch(self._menus[0]))
        return self._written

    def _real(self, step: Step) -> Step:
        """Return a step that is no dry run of a Service: a real server may draw the same address again there."""
        drawn = "/services" in step.path and step.method != "DELETE"
        return replace(step, path=step.path.replace("dryRun=All", "fieldManager=dry")) if drawn else step

    # --- parts ---------------------------------------------------------------------------------------------

    def _maybe(self, likely: float) -> bool:
        return self._chance.random() < likely

    def _name(self) -> str:
        return self._chance.choice(("a", "b"))

    def _one(self, menu: Menu, sub: str = "") -> str:
        return f"{menu.collection}/{self._name()}" + (f"/{sub}" if sub else "")

    def _picks(self, fields: Mapping[Path, Sequence[Json]], most: int = 3) -> list[tuple[Path, Json]]:
        paths = self._chance.sample(list(fields), min(len(fields), self._chance.randint(1, most)))
        return [(path, self._value(path, fields[path])) for path in sorted(paths)]

    def _value(self, path: Path, values: Sequence[Json]) -> Json:
        if self._maybe(_WRONG) and path not in _WORDED and path[0] != "status":
            return self._chance.choice(("wrong", 7, True, {"wrong": 1}, ["example.com/wrong"]))
        return self._chance.choice(values)

    def _object(self, menu: Menu, picks: Sequence[tuple[Path, Json]], *, base: bool = True) -> Json:
        obj: Json = {"apiVersion": menu.api_version, "kind": menu.kind}
        for path, value in [*(_leaves(menu.base) if base else ()), *picks]:
            obj = _put(obj, path, value)
        if self._maybe(_WRONG):
            obj = _put(obj, ("spec" if "spec" in obj else "metadata", "unknownField"), 1)
        return obj

    def _all(self, menu: Menu) -> Mapping[Path, Sequence[Json]]:
        return {**menu.fields, **_META}

    def _query(self, *more: str) -> str:
        parts = [part for part in more if part]
        for likely, choices in (
            (0.06, ("dryRun=All",)),
            (0.15, ("fieldValidation=Strict", "fieldValidation=Ignore", "fieldValidation=Warn")),
        ):
            if self._maybe(likely):
                parts.append(self._chance.choice(choices))
        return "?" + "&".join(parts) if parts else ""

    def _manager(self) -> str:
        return "fieldManager=" + self._chance.choice(MANAGERS) if self._maybe(0.5) else ""

    def _version(self) -> str:
        """Return a version of some earlier answer, mostly the newest."""
        number = self._chance.randrange(len(self._written)) if self._written else 0
        return "{rv:last}" if self._maybe(0.7) else f"{{rv:{number}}}"

    # --- verbs ---------------------------------------------------------------------------------------------

    def _create(self, menu: Menu) -> Step:
        obj = _put(self._object(menu, self._picks(self._all(menu))), ("metadata", "name"), self._name())
        return Step("POST", menu.collection + self._query(self._manager()), obj)

    def _get(self, menu: Menu) -> Step:
        return Step("GET", self._one(menu), headers=self._accept())

    def _accept(self) -> dict[str, str]:
        shape = self._chance.choice(("", "", "", "PartialObjectMetadata", "Table"))
        return {"Accept": f"application/json;as={shape};v=v1;g=meta.k8s.io"} if shape else {}

    def _update(self, menu: Menu) -> Step:
        path = self._one(menu)
        obj = self._object(menu, self._picks(self._all(menu), 4))
        obj = _put(obj, ("metadata", "name"), path.rpartition("/")[2])
        if self._maybe(0.4) or menu.kind in ("Gadget", "PodDisruptionBudget", "Lease"):
            obj = _put(obj, ("metadata", "resourceVersion"), self._version())
        return Step("PUT", path + self._query(self._manager()), obj)

    def _change(self, fields: Mapping[Path, Sequence[Json]]) -> Json:
        change: Json = {}
        for path, value in self._picks(fields):
            change = _put(change, path, None if self._maybe(0.2) else value)
        if self._maybe(0.1):
            change = _put(change, ("metadata", "resourceVersion"), self._version())
        return change

    def _merge(self, menu: Menu) -> Step:
        return Step(
            "PATCH", self._one(menu) + self._query(self._manager()), self._change(self._all(menu)), MERGE
        )

    def _strategic(self, menu: Menu) -> Step:
        special = [*menu.strategic, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}]
        change = self._chance.choice(special) if self._maybe(0.5) else self._change(self._all(menu))
        return Step("PATCH", self._one(menu) + self._query(self._manager()), change, STRATEGIC)

    def _json(self, menu: Menu) -> Step:
        operations = []
        for path, value in self._picks(self._all(menu), 2):
            pointer = "/" + "/".join(path)
            op = self._chance.choice(("add", "add", "replace", "remove", "test", "copy", "move"))
            if op in ("copy", "move") and path[0] == "metadata":
                operations.append({"op": op, "from": pointer, "path": "/metadata/annotations"})
            elif op == "remove":
                operations.append({"op": op, "path": pointer})
            elif isinstance(value, list) and value and op == "add" and self._maybe(0.5):
                operations.append({"op": op, "path": pointer + "/-", "value": value[0]})
            else:
                op = "add" if op in ("copy", "move") else op
                operations.append({"op": op, "path": pointer, "value": value})
        return Step("PATCH", self._one(menu) + self._query(self._manager()), operations, JSON_PATCH)

    def _apply(self, menu: Menu) -> Step:
        force = "force=true" if self._maybe(0.4) else ""
        picks = self._picks(self._all(menu))
        path = self._one(menu) + self._query("fieldManager=" + self._chance.choice(MANAGERS), force)
        obj = self._object(menu, picks, base=self._maybe(0.7))
        name = path.partition("?")[0].rpartition("/")[2]
        return Step("PATCH", path, _put(obj, ("metadata", "name"), name), APPLY)

    def _status(self, menu: Menu) -> Step:
        if not menu.status:
            return self._merge(menu)
        path = self._one(menu, "status")
        kind = self._chance.choice((MERGE, STRATEGIC, APPLY, "PUT"))
        picks = self._picks({**menu.status, ("metadata", "annotations"): _META["metadata", "annotations"]})
        if kind in ("PUT", APPLY):
            obj = self._object(menu, picks, base=kind == "PUT")
            name = path.split("/")[-2]
            obj = _put(obj, ("metadata", "name"), name)
            if kind == "PUT":
                obj = _put(obj, ("metadata", "resourceVersion"), self._version())
                return Step("PUT", path + self._query(self._manager()), obj)
            force = "force=true" if self._maybe(0.5) else ""
            return Step(
                "PATCH",
                path + self._query("fieldManager=" + self._chance.choice(MANAGERS), force),
                obj,
                APPLY,
            )
        change: Json = {}
        for place, value in picks:
            change = _put(change, place, value)
        return Step("PATCH", path + self._query(self._manager()), change, kind)

    def _scale(self, menu: Menu) -> Step:
        if not menu.scales:
            return self._get(menu)
        path = self._one(menu, "scale")
        if self._maybe(0.3):
            return Step("GET", path)
        size: Json = {"spec": {"replicas": self._chance.choice((0, 1, 2, 3, 5, 12))}}
        if self._maybe(0.4):
            return Step("PATCH", path + self._query(self._manager()), size, MERGE)
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", **size}
        body["metadata"] = {"name": path.split("/")[-2]}
        if self._maybe(0.5):
            return Step("PUT", path + self._query(self._manager()), body)
        force = "force=true" if self._maybe(0.5) else ""
        query = self._query("fieldManager=" + self._chance.choice(MANAGERS), force)
        return Step("PATCH", path + query, body, APPLY)

    def _delete(self, menu: Menu) -> Step:
        body: Json = {}
        if self._maybe(0.2):
            body["preconditions"] = {"resourceVersion": self._version()}
        if self._maybe(0.4):
            body["propagationPolicy"] = self._chance.choice(("Background", "Foreground", "Orphan"))
        if self._maybe(0.3):
            body["gracePeriodSeconds"] = self._chance.choice((0, 1, 30))
        return Step("DELETE", self._one(menu) + ("?dryRun=All" if self._maybe(0.1) else ""), body or None)

    def _delete_all(self, menu: Menu) -> Step:
        # The account that pods run as stays: the embedded server, where nobody makes accounts, does without it.
        spared = "&fieldSelector=metadata.name!%3Ddefault"
        return Step("DELETE", menu.collection + "?labelSelector=" + self._selector() + spared)

    def _selector(self) -> str:
        return self._chance.choice(("l%3D1", "l%3D2,m", "m+in+(1,2)", "!m", "l!%3D1,l", "l+notin+(2),l"))

    def _list(self, menu: Menu) -> Step:
        parts = []
        if self._maybe(0.6):
            parts.append("labelSelector=" + self._selector())
        if self._maybe(0.3):
            parts.append("fieldSelector=metadata.name%3D" + self._name())
        if not parts:
            # Lists of everything show what a server makes by itself in a namespace.
            parts.append("fieldSelector=metadata.name!%3Ddefault")
        if self._maybe(0.3):
            parts.append("limit=1")
        if self._maybe(0.3):
            parts.append(self._chance.choice(("resourceVersion=0", "resourceVersion={rv:last}")))
        shape = {key: value.replace("Metadata;", "MetadataList;") for key, value in self._accept().items()}
        return Step("GET", menu.collection + "?" + "&".join(filter(None, parts)), headers=shape)

    def _watch(self, menu: Menu) -> Step:
        selector = "&labelSelector=" + self._selector() if self._maybe(0.5) else ""
        name = "&fieldSelector=metadata.name%3D" + self._name()
        return Step(
            "GET", f"{menu.collection}?watch=1&timeoutSeconds=1&resourceVersion={{rv:0}}{name}{selector}"
        )


def _leaves(obj: Json) -> list[tuple[Path, Json]]:
    return [((key,), value) for key, value in obj.items()]


def _put(obj: Json, path: Path, value: Json) -> Json:
    """Return an object with a value at a path; what stands in the way is replaced."""
    inner = obj if isinstance(obj, dict) else {}
    if len(path) == 1:
        return {**inner, path[0]: value}
    return {**inner, path[0]: _put(inner.get(path[0]), path[1:], value)}
