"""Mutating admission policies: what they change, what they refuse, and in what order."""

from __future__ import annotations

import pytest
from tests.local.api.conftest import CM, PODS, Client, Json, config_map, pod

from mooring.local.api.cel.objects import as_maps

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/mutatingadmissionpolicies", f"{GROUP}/mutatingadmissionpolicybindings"


def configuration(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def policy(name: str, *mutations: Json, resource: str = "configmaps", **spec: Json) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": list(mutations),
            "reinvocationPolicy": "Never",
            **spec,
        },
    }


async def in_force(
    api: Client, name: str, *mutations: Json, resource: str = "configmaps", **spec: Json
) -> None:
    await api.create(POLICIES, policy(name, *mutations, resource=resource, **spec))
    await api.create(BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name}})


# --- the language ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "compiled"),
    [
        ("Object{spec: Object.spec{replicas: 3}}", '{"spec": {"replicas": 3}}'),
        ('Object{metadata: Object.metadata{labels: {"a": "b"}}}', '{"metadata": {"labels": {"a": "b"}}}'),
        ('[JSONPatch{op: "test", path: "/a", value: 1}]', '[{"op": "test", "path": "/a", "value": 1}]'),
        ("Object{data: x ? y : z, other: f(a, b)}", '{"data": x ? y : z, "other": f(a, b)}'),
        ("Object{?data: optional.none()}", '{?"data": optional.none()}'),
        ("Object{__namespace__: 1, a__dash__b: 2}", '{"namespace": 1, "a-b": 2}'),
        ("Object . spec { a : 1 }", '{ "a" : 1 }'),
        ("""'Object{a: 1}' + "Object{b: 'x'}" """, """'Object{a: 1}' + "Object{b: 'x'}" """),
        ("myObject{a: 1}.b", "myObject{a: 1}.b"),
    ],
)
def test_object_literals_become_maps(written: str, compiled: str) -> None:
    assert as_maps(written).expression == compiled


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("Object{spec: Object.spec{a: 1}}", ""),
        ("Object{spec: Object.spec{items: [Object.spec.items{a: 1}]}}", ""),
        ("Object{spec: c ? Object.spec{a: 1} : Object.spec{a: 2}}", ""),
        ('[JSONPatch{op: "add", path: "/spec", value: Object.spec{a: 1}}]', ""),
        ("Object{spec: Object.status{a: 1}}", 'unexpected type name "Object.status", expected "Object.spec"'),
    ],
)
def test_a_type_has_to_be_that_of_its_place(expression: str, told: str) -> None:
    assert as_maps(expression).mismatch.startswith(told)
    assert bool(as_maps(expression).mismatch) == bool(told)


# --- what is changed ------------------------------------------------------------------------------------


async def test_an_apply_configuration_is_merged_into_the_object(api: Client) -> None:
    expression = (
        'Object{metadata: Object.metadata{labels: {"by": request.userInfo.username}}, data: {"b": "2"}}'
    )
    await in_force(api, "p", configuration(expression))
    made = await api.create(CM, config_map("c", a="1"))
    assert made["data"] == {"a": "1", "b": "2"}
    assert made["metadata"]["labels"] == {"by": "kubernetes-admin"}


async def test_items_of_keyed_lists_are_merged_by_their_key(api: Client) -> None:
    expression = """Object{spec: Object.spec{containers: object.spec.containers.map(c,
        Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}"""
    await in_force(api, "p", configuration(expression), resource="pods")
    made = await api.create(PODS, pod("p"))
    [container] = made["spec"]["containers"]
    assert container["image"] == pod("p")["spec"]["containers"][0]["image"]
    assert container["imagePullPolicy"] == "Always"


async def test_mutations_see_what_those_before_them_did(api: Client) -> None:
    first = configuration('Object{data: {"a": "1"}}')
    path = '"/metadata/labels/" + jsonpatch.escapeKey("example.com/x")'
    second = json_patch(f'[JSONPatch{{op: "add", path: {path}, value: object.data.a + "2"}}]')
    await in_force(api, "p", first, second)
    body = {"metadata": {"name": "c", "labels": {"l": "m"}}}
    made = await api.create(CM, body, fieldValidation="Ignore")
    assert made["data"] == {"a": "1"}
    assert made["metadata"]["labels"] == {"l": "m", "example.com/x": "12"}


async def test_variables_and_conditions_decide_with_parameters(api: Client) -> None:
    await api.create(CM, config_map("settings", colour="red"))
    await api.create(
        POLICIES,
        policy(
            "p",
            configuration('Object{data: {"colour": variables.colour}}'),
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
            variables=[{"name": "colour", "expression": "params.data.colour"}],
            matchConditions=[{"name": "c", "expression": "object.metadata.name != 'plain'"}],
        ),
    )
    reference = {"name": "settings", "namespace": "default", "parameterNotFoundAction": "Deny"}
    await api.create(
        BINDINGS, {"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": reference}}
    )
    assert (await api.create(CM, config_map("c", a="1")))["data"] == {"a": "1", "colour": "red"}
    assert (await api.create(CM, config_map("plain", a="1")))["data"] == {"a": "1"}


async def test_a_patch_whose_own_test_fails_changes_nothing(api: Client) -> None:
    patch = '[JSONPatch{op: "test", path: "/data/a", value: "9"}, JSONPatch{op: "remove", path: "/data/a"}]'
    await in_force(api, "p", json_patch(patch))
    assert (await api.create(CM, config_map("c", a="1")))["data"] == {"a": "1"}


@pytest.mark.parametrize(("wish", "times"), [("Never", "1"), ("IfNeeded", "2")])
async def test_who_wants_it_is_asked_again_when_a_later_policy_changed_the_object(
    api: Client, wish: str, times: str
) -> None:
    counted = """Object{data: {"count": string(int(has(object.data.count) ? object.data.count : "0") + 1)}}"""
    await in_force(api, "a", configuration(counted), reinvocationPolicy=wish)
    await in_force(api, "b", configuration('Object{data: {"other": "x"}}'))
    assert (await api.create(CM, {"metadata": {"name": "c"}, "data": {"x": "y"}}))["data"]["count"] == times


# --- what is refused ------------------------------------------------------------------------------------


async def test_a_mutation_that_fails_refuses_the_write(api: Client) -> None:
    await in_force(api, "p", configuration('Object{data: {"a": object.data.absent}}'))
    status = await api.refused(403, "POST", CM, config_map("c", a="1"))
    assert status["reason"] == "Invalid"
    assert status["message"].startswith("policy 'p' with binding 'p' denied request: expression ")
    assert "no such key: absent" in status["message"]


async def test_a_failure_that_is_ignored_changes_nothing(api: Client) -> None:
    broken = configuration('Object{data: {"a": object.data.absent}}')
    await in_force(api, "p", broken, failurePolicy="Ignore")
    assert (await api.create(CM, config_map("c", a="1")))["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("Object{spec: Object.spec{colour: 1}}", ".spec.colour: field not declared in schema"),
        (
            'Object{spec: Object.spec{schedulingGates: [Object.spec.wrong{name: "a"}]}}',
            'unexpected type name "Object.spec.wrong"',
        ),
        (
            (
                "Object{spec: Object.spec{securityContext: Object.spec.securityContext{sysctls: ["
                'Object.spec.securityContext.sysctls{name: "a", value: "b"}]}}}'
            ),
            "may not mutate atomic arrays, maps or structs: .spec.securityContext.sysctls",
        ),
    ],
)
async def test_a_configuration_that_does_not_fit_refuses_the_write(
    api: Client, expression: str, why: str
) -> None:
    await in_force(api, "p", configuration(expression), resource="pods")
    assert why in (await api.refused(403, "POST", PODS, pod("p")))["message"]


@pytest.mark.parametrize(
    ("mutation", "field"),
    [
        (configuration("Object{"), "spec.mutations[0].applyConfiguration.expression"),
        (configuration("'text'"), "spec.mutations[0].applyConfiguration.expression"),
        (json_patch("{}"), "spec.mutations[0].jsonPatch.expression"),
        ({"patchType": "JSONPatch"}, "spec.mutations[0].jsonPatch"),
        ({"patchType": "Other"}, "spec.mutations[0].patchType"),
    ],
)
async def test_a_policy_that_cannot_work_is_refused_itself(api: Client, mutation: Json, field: str) -> None:
    status = await api.refused(422, "POST", POLICIES, policy("p", mutation))
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]
