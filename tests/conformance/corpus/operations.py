"""The requests of the corpus: operations written once, for every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import yaml
from tests.conformance.comparing import Step
from tests.conformance.corpus.kinds import Sample, registry, samples

__all__ = ["PATCHES", "scenarios"]

Json = Any
Steps = Iterator[Step]

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
#: Every type of patch, by the name the coverage gives it.
PATCHES = {JSON_PATCH: "json", MERGE: "merge", STRATEGIC: "strategic", APPLY: "apply"}

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
META = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
META_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
_PROSE = ("columnDefinitions.description", "columnDefinitions.format")


def scenarios() -> dict[str, list[Step]]:
    """Return the corpus: name -> requests sent in order to a fresh namespace."""
    found = {}
    for resource, sample in samples().items():
        parts = {
            "creates": _creates(sample),
            "reads": _reads(sample),
            "updates": _updates(sample),
            "patches": _patches(sample),
            "applies": _applies(sample),
            "subresources": _subresources(sample),
            "deletes": _deletes(sample),
        }
        for about, steps in parts.items():
            if listed := [_calm(step, sample) for step in steps]:
                found[f"{resource} {about}"] = listed
    return {**found, "what is only created": list(_reviews()), "what reaches into pods": list(_streams())}


def _calm(step: Step, sample: Sample) -> Step:
    places = ("", "items.", "object.", "rows.object.")
    return replace(step, ignore=(*step.ignore, *(at + path for path in sample.noise for at in places)))


def _post(sample: Sample, body: Json, query: str = "", **options: Any) -> Step:
    return Step("POST", sample.collection + query, body, **options)


def _patch(path: str, body: Json, kind: str, **options: Any) -> Step:
    return Step("PATCH", path, body, kind, **options)


def _one(sample: Sample) -> str:
    return f"{sample.collection}/{sample.name}"


def _selected(sample: Sample) -> str:
    return sample.collection + "?labelSelector=corpus%3D{ns}"


def _gone(sample: Sample) -> Steps:
    """Delete what a scenario made; nobody else takes finalizers off here."""
    yield _patch(_one(sample), {"metadata": {"finalizers": None}}, MERGE, quiet=True)
    yield Step("DELETE", _one(sample) + "?gracePeriodSeconds=0", quiet=True)


# --- create ---------------------------------------------------------------------------------------------


def _creates(sample: Sample) -> Steps:
    body = sample.body(sample.minimal)
    yield _post(sample, sample.body(sample.rich), "?dryRun=All")
    yield _post(sample, body, "?fieldManager=creator")
    yield _post(sample, body)
    yield _post(sample, {**body, "kind": "Nothing"})
    yield _post(sample, {**body, "apiVersion": "example.com/v9"})
    yield _post(sample, sample.body(sample.minimal, name=""))
    yield _post(sample, sample.body(sample.minimal, name="A_b"))
    yield _post(sample, sample.body(sample.minimal, name="n" * 254))
    yield _post(sample, sample.body(sample.minimal, namespace="elsewhere"))
    yield _post(sample, sample.body(sample.minimal, resourceVersion="1"))
    yield _post(sample, sample.body(sample.minimal, labels={"a b": "c d"}))
    yield _post(sample, sample.body(sample.minimal, finalizers=["nope"]))
    yield _post(sample, sample.body(sample.minimal, ownerReferences=[{"kind": "X", "name": "y"}]))
    for validation in ("Strict", "Warn", "Ignore"):
        unknown = {**sample.body(sample.rich, nope=1), "also": {"x": 1}}
        yield _post(sample, unknown, f"?dryRun=All&fieldValidation={validation}")
    yield _post(sample, {**body, "metadata": []})
    yield _post(sample, {**body, "metadata": {"name": 1}})
    yield _post(sample, {**body, "spec": "text", "data": "text"}, "?fieldValidation=Ignore")
    yield _post(sample, "{nope")
    yield _post(sample, "", "?fieldManager=x")
    yield _post(sample, "a: {b", type="application/yaml")
    yield _post(sample, yaml.safe_dump(sample.body(sample.rich)), "?dryRun=All", type="application/yaml")
    yield _post(sample, body, type="text/plain")
    yield _post(sample, body, headers={"Accept": "text/html"})
    yield _post(sample, sample.body(sample.rich), "?dryRun=All", headers=META)
    yield _post(sample, body, "?dryRun=Some")
    yield _post(sample, body, "?fieldValidation=Some")
    yield Step("POST", _one(sample), body)
    if sample.served.namespaced:
        elsewhere = sample.collection.replace("{ns}", "no-{ns}")
        yield Step("POST", elsewhere, body)
        yield Step("POST", sample.collection.replace("/namespaces/{ns}", ""), body)
    for broken in sample.broken:
        yield _post(sample, sample.body(_merged(sample.minimal, broken), name=""), "?dryRun=All")
        yield _post(sample, sample.body(_merged(sample.minimal, broken)), "?dryRun=All")
    yield from _gone(sample)


def _merged(obj: Json, change: Json) -> Json:
    """Return an object after a merge patch."""
    if not isinstance(change, dict):
        return change
    old = obj if isinstance(obj, dict) else {}
    merged = {key: value for key, value in old.items() if change.get(key, "") is not None}
    return {**merged, **{k: _merged(old.get(k), v) for k, v in change.items() if v is not None}}


# --- get, list, watch -----------------------------------------------------------------------------------


def _reads(sample: Sample) -> Steps:
    one, selected = _one(sample), _selected(sample)
    yield _post(sample, sample.body(sample.rich))
    yield Step("GET", one)
    yield Step("GET", one + "?resourceVersion=0")
    yield Step("GET", one, headers=META)
    yield Step("GET", one, headers=TABLE, ignore=_PROSE)
    yield Step("GET", one, headers={"Accept": "text/html"})
    yield Step("GET", one, headers={"Accept": "application/yaml"}, quiet=True)
    yield Step("GET", f"{sample.collection}/absent-{{ns}}")
    yield _patch(one, {"metadata": {"labels": {"l": "m"}}}, MERGE)
    yield Step("GET", selected)
    yield Step("GET", selected, headers=META_LIST)
    yield Step("GET", selected, headers=TABLE, ignore=_PROSE)
    yield Step("GET", selected + "&resourceVersion=0")
    yield Step("GET", selected + "&resourceVersion={rv:0}&resourceVersionMatch=Exact")
    yield Step("GET", selected + "&resourceVersion={rv:0}&resourceVersionMatch=NotOlderThan")
    yield Step("GET", selected + "&resourceVersionMatch=Exact")
    yield Step("GET", selected + "&resourceVersion=x")
    yield Step("GET", selected + "&limit=1")
    yield Step("GET", selected + "&limit=x")
    yield Step("GET", selected + "&continue=x", ignore=("message",))
    yield Step("GET", selected + ",l+in+(m,n),!o&fieldSelector=metadata.name%3D" + sample.name)
    yield Step("GET", selected + ",l%3Dn")
    yield Step("GET", sample.collection + "?labelSelector=a+b")
    yield Step("GET", sample.collection + "?fieldSelector=nonsense%3Dx")
    yield Step("GET", sample.collection + "?fieldSelector=nonsense")
    if sample.served.namespaced:
        yield Step("GET", selected.replace("/namespaces/{ns}", ""))
    yield Step("GET", sample.collection + "?watch=1&resourceVersion=x")
    yield from _gone(sample)
    yield Step("GET", selected + "&watch=1&timeoutSeconds=1&resourceVersion={rv:0}")
    yield Step("GET", selected + "&watch=1&timeoutSeconds=1&resourceVersion={rv:0}", headers=META)


# --- update ---------------------------------------------------------------------------------------------


def _updates(sample: Sample) -> Steps:
    one = _one(sample)
    minimal = sample.minimal
    yield _post(sample, sample.body(minimal))
    yield Step("PUT", one, sample.body(minimal, labels={"l": "m"}))
    yield Step("PUT", one, sample.body(minimal, labels={"l": "n"}, resourceVersion="{rv:0}"))
    yield Step("PUT", one, sample.body(minimal, labels={"l": "n"}, resourceVersion="{rv:1}"))
    yield Step("PUT", one, sample.body(minimal, labels={"l": "n"}, resourceVersion="{rv:last}"))
    yield Step("PUT", one, sample.body(_merged(minimal, sample.change), resourceVersion="{rv:last}"))
    yield Step("PUT", one + "?dryRun=All", sample.body(sample.rich))
    yield Step("PUT", one, sample.body(minimal, uid="11111111-1111-1111-1111-111111111111"))
    yield Step("PUT", one, sample.body(minimal, name="other"))
    yield Step("PUT", one, sample.body(minimal, name=""))
    yield Step("PUT", one, sample.body(minimal, namespace="elsewhere"))
    yield Step("PUT", one, {**sample.body(minimal), "kind": "Nothing"})
    for validation in ("Strict", "Warn"):
        yield Step("PUT", f"{one}?dryRun=All&fieldValidation={validation}", sample.body(minimal, nope=1))
    yield Step("PUT", one, "{nope")
    yield Step("PUT", one, sample.body(minimal), type="text/plain")
    yield Step("PUT", sample.collection, sample.body(minimal))
    yield Step(
        "PUT", f"{sample.collection}/absent-{{ns}}?dryRun=All", sample.body(minimal, name="absent-{ns}")
    )
    for broken in sample.broken:
        yield Step("PUT", one + "?dryRun=All", sample.body(_merged(minimal, broken)))
    yield from _gone(sample)


# --- patches --------------------------------------------------------------------------------------------


def _patches(sample: Sample) -> Steps:
    one = _one(sample)
    yield _post(sample, sample.body(sample.minimal))
    for kind in (MERGE, STRATEGIC):
        yield _patch(one, {"metadata": {"labels": {"by": PATCHES[kind]}}}, kind)
        yield _patch(one, {"metadata": {"labels": {"by": PATCHES[kind]}}}, kind)
        yield _patch(one + "?dryRun=All", sample.change, kind)
        yield _patch(one, {"metadata": {"labels": {"by": None}, "annotations": {"a": "b"}}}, kind)
        yield _patch(one, {"metadata": {"resourceVersion": "1"}}, kind)
        yield _patch(one, {"metadata": {"name": "other"}}, kind)
        yield _patch(one, {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}}, kind)
        yield _patch(one + "?dryRun=All", {"metadata": {"finalizers": ["a.b/c"]}}, kind)
        yield _patch(one, [], kind)
        yield _patch(one, "{nope", kind)
        yield _patch(one + "?force=true", sample.change, kind)
        yield _patch(f"{sample.collection}/absent-{{ns}}", sample.change, kind)
        yield _patch(one + "?fieldManager=me&fieldValidation=Warn", {"metadata": {"nope": 1}}, kind)
    yield _patch(one, sample.change, MERGE)
    label = {"op": "add", "path": "/metadata/labels/by", "value": "json"}
    yield _patch(one, [label], JSON_PATCH)
    yield _patch(one, [{**label, "op": "test"}, {**label, "op": "replace", "value": "x"}], JSON_PATCH)
    yield _patch(one, [{**label, "op": "test", "value": "no"}], JSON_PATCH)
    yield _patch(one, [{"op": "remove", "path": "/metadata/labels/none"}], JSON_PATCH)
    yield _patch(
        one, [{"op": "copy", "from": "/metadata/labels/by", "path": "/metadata/labels/c"}], JSON_PATCH
    )
    yield _patch(
        one, [{"op": "move", "from": "/metadata/labels/c", "path": "/metadata/labels/d"}], JSON_PATCH
    )
    yield _patch(one, [{"op": "replace", "path": "/metadata/name", "value": "other"}], JSON_PATCH)
    yield _patch(one, {"op": "add"}, JSON_PATCH)
    yield _patch(f"{sample.collection}/absent-{{ns}}", [label], JSON_PATCH)
    yield _patch(one, sample.change, "application/json")
    yield _patch(one, sample.change, "text/plain")
    yield _patch(sample.collection, sample.change, MERGE)
    yield Step("GET", one)
    yield from _gone(sample)


def _applies(sample: Sample) -> Steps:
    # An apply that changes nothing is written at times by a real server, when a second has passed.
    for step in _applied(sample):
        yield replace(step, ignore=(*step.ignore, "metadata.resourceVersion"))


def _applied(sample: Sample) -> Steps:
    one = _one(sample)
    rich = sample.body(sample.rich)
    yield _patch(one, rich, APPLY)
    yield _patch(one + "?fieldManager=a&dryRun=All", rich, APPLY)
    yield _patch(one + "?fieldManager=a", rich, APPLY)
    yield _patch(one + "?fieldManager=a", rich, APPLY)
    yield _patch(one + "?fieldManager=b", sample.body({}, labels={"corpus": "{ns}", "b": "1"}), APPLY)
    yield _patch(one + "?fieldManager=b", sample.body({}, labels={"corpus": "other"}), APPLY)
    yield _patch(one + "?fieldManager=b&force=true", sample.body({}, labels={"b": "2"}), APPLY)
    yield _patch(one + "?fieldManager=c&dryRun=All", sample.body(_merged(sample.rich, sample.change)), APPLY)
    forced = sample.body(_merged(sample.rich, sample.change))
    yield _patch(one + "?fieldManager=c&dryRun=All&force=true", forced, APPLY)
    yield _patch(one + "?fieldManager=d", {"metadata": {"annotations": {"x": "y"}}}, MERGE)
    yield _patch(one + "?fieldManager=d", sample.body({}, annotations={"x": "z"}), APPLY)
    yield _patch(one + "?fieldManager=b", sample.body({}), APPLY)
    yield _patch(one + "?fieldManager=a&fieldValidation=Strict", {**rich, "nope": 1}, APPLY)
    yield _patch(one + "?fieldManager=a&dryRun=All", {**rich, "nope": 1}, APPLY)
    yield _patch(one + "?fieldManager=a", {**rich, "kind": "Nothing"}, APPLY)
    yield _patch(one + "?fieldManager=a", {**rich, "metadata": {"name": "other"}}, APPLY)
    yield _patch(one + "?fieldManager=a", {**rich, "metadata": {"managedFields": [{}]}}, APPLY)
    yield _patch(one + "?fieldManager=a", yaml.safe_dump(rich), APPLY)
    yield _patch(one + "?fieldManager=a", "a: {b", APPLY)
    yield _patch(one + "?fieldManager=a", "[]", APPLY)
    for broken in sample.broken:
        wrong = sample.body(_merged(sample.minimal, broken))
        yield _patch(one + "?fieldManager=e&force=true&dryRun=All", wrong, APPLY)
    unnamed = {key: value for key, value in rich["metadata"].items() if key != "name"}
    yield _patch(one + "?fieldManager=a", {**rich, "metadata": unnamed}, APPLY)
    yield Step("GET", one)
    yield from _gone(sample)


# --- subresources ---------------------------------------------------------------------------------------

#: Subresources that have the shape of the object itself, or of a Scale.
_SHAPED = ("status", "scale", "finalize", "approval", "resize", "ephemeralcontainers")


def _subresources(sample: Sample) -> Steps:
    shaped = [sub for sub in sample.served.subresources if sub in _SHAPED]
    if not shaped:
        yield _post(sample, sample.body(sample.minimal))
        yield Step("GET", _one(sample) + "/nothing")
        yield Step("GET", _one(sample) + "/status")
        yield Step("PUT", _one(sample) + "/status", sample.body(sample.minimal))
        yield _patch(_one(sample) + "/status", {}, MERGE)
        yield from _gone(sample)
    for sub in shaped:
        steps = _scale(sample) if sub == "scale" else _part(sample, sub)
        unowned = ("metadata.managedFields", "metadata.resourceVersion") if "scale" in shaped else ()
        for step in (_post(sample, sample.body(sample.minimal)), *steps, *_gone(sample)):
            yield replace(step, ignore=(*step.ignore, *unowned))


def _part(sample: Sample, sub: str) -> Steps:
    path, absent = f"{_one(sample)}/{sub}", f"{sample.collection}/absent-{{ns}}/{sub}"
    status = sample.status if sample.status is not None else {}
    yield Step("GET", path)
    yield Step("GET", absent)
    yield Step("PUT", path, {**sample.body(sample.minimal), "status": status})
    yield Step("PUT", path, {**sample.body(sample.rich, annotations={"new": "1"}), "status": status})
    yield Step("PUT", absent, sample.body(sample.minimal, name="absent-{ns}"))
    yield Step("PUT", path, sample.body(sample.minimal, resourceVersion="1"))
    yield Step("PUT", path, sample.body(sample.minimal, name="other"))
    for kind in (MERGE, STRATEGIC):
        change = {"status": status, "metadata": {"labels": {"by": PATCHES[kind]}}}
        yield _patch(path, change, kind)
        yield _patch(path + "?dryRun=All", sample.change, kind)
        yield _patch(path, {"status": {"nope": 1}}, kind)
        yield _patch(absent, change, kind)
    yield _patch(path, [{"op": "test", "path": "/kind", "value": sample.served.kind}], JSON_PATCH)
    yield _patch(path, [{"op": "add", "path": "/metadata/annotations", "value": {"s": "t"}}], JSON_PATCH)
    yield _patch(absent, [{"op": "add", "path": "/status", "value": status}], JSON_PATCH)
    applied = {key: sample.body({})[key] for key in ("apiVersion", "kind", "metadata")}
    yield _patch(path + "?fieldManager=s", {**applied, "status": status}, APPLY)
    yield _patch(path + "?fieldManager=s&force=true", {**applied, "status": status}, APPLY)
    yield _patch(path + "?fieldManager=t", {**applied, "status": status}, APPLY)
    yield _patch(absent + "?fieldManager=t", {**sample.body({}, name="absent-{ns}"), "status": status}, APPLY)
    yield _patch(path, {}, "text/plain")
    yield Step("POST", path, sample.body(sample.minimal))
    yield Step("DELETE", path)
    yield Step("GET", path, headers=TABLE, ignore=_PROSE)
    yield Step("GET", _one(sample))


def _scale(sample: Sample) -> Steps:
    path, absent = f"{_one(sample)}/scale", f"{sample.collection}/absent-{{ns}}/scale"
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": sample.name}}
    yield Step("GET", path)
    yield Step("GET", absent)
    yield Step("PUT", path, {**scale, "spec": {"replicas": 4}})
    yield Step("PUT", path, {**scale, "spec": {"replicas": -4}})
    yield Step("PUT", path, {**scale, "spec": {"replicas": "x"}})
    yield Step("PUT", path, {**scale, "kind": "Nothing"})
    yield Step("PUT", path, {**scale, "metadata": {"name": sample.name, "resourceVersion": "1"}})
    yield Step("PUT", path, {"spec": {"replicas": 5}})
    yield Step("PUT", absent, {**scale, "metadata": {"name": "absent-{ns}"}})
    for kind in (MERGE, STRATEGIC):
        yield _patch(path, {"spec": {"replicas": 6}}, kind)
        yield _patch(path + "?dryRun=All", {"spec": {"replicas": 7}}, kind)
        yield _patch(path, {"spec": {"replicas": -1}}, kind)
        yield _patch(path, {"nope": 1}, kind)
        yield _patch(absent, {"spec": {"replicas": 6}}, kind)
    yield _patch(path, [{"op": "replace", "path": "/spec/replicas", "value": 8}], JSON_PATCH)
    yield _patch(path, [{"op": "test", "path": "/spec/replicas", "value": 9}], JSON_PATCH)
    yield _patch(path + "?fieldManager=s", {**scale, "spec": {"replicas": 9}}, APPLY)
    yield _patch(path + "?fieldManager=s&force=true", {**scale, "spec": {"replicas": 9}}, APPLY)
    yield _patch(path + "?fieldManager=s", {**scale, "kind": "Nothing"}, APPLY)
    yield _patch(path, {}, "text/plain")
    yield Step("POST", path, scale)
    yield Step("DELETE", path)
    yield Step("GET", path, headers=TABLE)
    yield Step("GET", _one(sample))


# --- delete ---------------------------------------------------------------------------------------------


def _deletes(sample: Sample) -> Steps:
    one = _one(sample)
    yield _post(sample, sample.body(sample.minimal, finalizers=["a.example.com/b"]))
    yield Step("DELETE", one, {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}})
    yield Step("DELETE", one, {"preconditions": {"resourceVersion": "1"}})
    yield Step("DELETE", one + "?propagationPolicy=Nothing")
    yield Step("DELETE", one, {"propagationPolicy": "Orphan", "orphanDependents": True})
    yield Step("DELETE", one, "{nope")
    yield Step("DELETE", one, {"kind": "Nothing", "apiVersion": "v1"})
    yield Step("DELETE", one + "?gracePeriodSeconds=x")
    yield Step("DELETE", one + "?dryRun=All")
    yield Step("DELETE", one + "?dryRun=Some")
    yield Step("DELETE", one + "?propagationPolicy=Foreground")
    yield Step("DELETE", one + "?propagationPolicy=Orphan")
    yield Step("DELETE", one, {"preconditions": {"uid": "{uid:0}"}, "gracePeriodSeconds": 0})
    yield _patch(one, {"metadata": {"finalizers": ["a.example.com/b", "c.example.com/d"]}}, MERGE)
    yield _patch(one, sample.change, MERGE)
    yield _patch(one, {"metadata": {"finalizers": None}}, MERGE)
    yield Step("GET", one)
    yield from _gone(sample)
    yield Step("DELETE", one)
    yield _post(sample, sample.body(sample.minimal))
    yield Step("DELETE", one, {"propagationPolicy": "Background", "preconditions": {"uid": "{uid:last}"}})
    yield from _gone(sample)
    yield _post(sample, sample.body(sample.rich))
    yield Step("DELETE", _selected(sample) + "&dryRun=All")
    yield Step("DELETE", _selected(sample) + ",none%3Dnone")
    yield Step("DELETE", _selected(sample) + "&fieldSelector=nonsense%3Dx")
    yield Step("DELETE", _selected(sample) + "&gracePeriodSeconds=0")
    yield Step("GET", _selected(sample))
    yield from _gone(sample)


# --- what is not stored, what reaches into pods ----------------------------------------------------------


def _reviews() -> Steps:
    """What is only created: reviews, bindings, evictions, tokens."""
    pods = "/api/v1/namespaces/{ns}/pods"
    pod = samples()["v1/pods"]
    access = "/apis/authorization.k8s.io/v1"
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{ns}"}, "user": "ann"}
    own = {"resourceAttributes": spec["resourceAttributes"]}
    for path, body in (
        (access + "/subjectaccessreviews", spec),
        (access + "/namespaces/{ns}/localsubjectaccessreviews", spec),
        (access + "/selfsubjectaccessreviews", own),
        (access + "/selfsubjectrulesreviews", {"namespace": "{ns}"}),
        ("/apis/authentication.k8s.io/v1/tokenreviews", {"token": "nope"}),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", None),
    ):
        ignore = (
            "status.reason",
            "status.userInfo",
            "metadata",
            "status.resourceRules",
            "status.nonResourceRules",
        )
        yield Step("POST", path, {"spec": body} if body else {}, ignore=ignore)
        yield Step("POST", path, {"spec": {}})
        yield Step("POST", path, {"kind": "Nothing", "apiVersion": "v1"})
        yield Step(
            "POST",
            path + "?fieldValidation=Strict&dryRun=All",
            {"spec": {**(body or {}), "nope": 1}},
            ignore=ignore,
        )
        yield Step("POST", path, "{nope")
        yield Step("GET", path)
        yield Step("DELETE", path)
    bind = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x-{ns}"}, "target": {"name": "n"}}
    evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "x-{ns}"}}
    yield Step("GET", "/api/v1/componentstatuses", quiet=True)
    yield Step("GET", "/api/v1/componentstatuses/nope", quiet=True)
    yield _post(pod, pod.body(pod.minimal))
    yield Step(
        "POST", f"{pods}/x-{{ns}}/eviction?dryRun=All", {**evict, "deleteOptions": {"dryRun": ["All"]}}
    )
    yield Step("POST", f"{pods}/x-{{ns}}/eviction", {**evict, "metadata": {"name": "other"}})
    yield Step("POST", f"{pods}/absent/eviction", {**evict, "metadata": {"name": "absent"}})
    yield Step("POST", f"{pods}/x-{{ns}}/eviction", {**evict, "kind": "Nothing"})
    yield Step("POST", f"{pods}/x-{{ns}}/eviction", "{nope")
    yield Step("POST", f"{pods}/absent/binding", {**bind, "metadata": {"name": "absent"}})
    yield Step("POST", f"{pods}/x-{{ns}}/binding", {**bind, "target": {}})
    yield Step("POST", f"{pods}/x-{{ns}}/binding", {**bind, "kind": "Nothing"})
    yield Step("POST", f"{pods}/x-{{ns}}/binding", bind)
    yield Step("POST", "/api/v1/namespaces/{ns}/bindings", bind)
    yield Step("GET", f"{pods}/x-{{ns}}/binding")
    yield Step("POST", f"{pods}/x-{{ns}}/eviction", evict)
    account = "/api/v1/namespaces/{ns}/serviceaccounts"
    token = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 900},
    }
    yield Step("POST", f"{account}/default/token", token, ignore=("status.token", "metadata.managedFields"))
    yield Step("POST", f"{account}/default/token", {**token, "spec": {"expirationSeconds": 9}})
    yield Step("POST", f"{account}/default/token", {**token, "kind": "Nothing"})
    yield Step("POST", f"{account}/absent/token", token)
    yield Step("GET", f"{account}/default/token")


def _streams() -> Steps:
    """Every verb of the subresources that lead into pods, nodes and services, where there is none."""
    methods = {"get": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
    for served in registry():
        where = "/namespaces/{ns}" if served.namespaced else ""
        for sub in served.subresources.values():
            if sub.name in _SHAPED:
                continue
            path = f"/api/v1{where}/{served.plural}/absent-{{ns}}/{sub.name}"
            for method in methods.values():
                kind = MERGE if method == "PATCH" else "application/json"
                body: Json = {} if method in ("POST", "PUT", "PATCH") else None
                yield Step(method, path, body, kind)
