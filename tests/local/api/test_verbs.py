"""What the verbs do, beyond what the conformance table compares with a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.local.api.conftest import CM, CRDS, PODS, WIDGETS, Client, config_map, definition, pod

from mooring.local.api import ApiServer
from mooring.local.api.access.tokens import TokenError

SVC = "/api/v1/namespaces/default/services"


def service(name: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


# --- concurrency ----------------------------------------------------------------------------------------


async def test_concurrent_patches_of_one_object_all_land(api: Client) -> None:
    await api.create(CM, config_map())
    await asyncio.gather(*(api.merge(CM + "/a", {"data": {f"k{n}": "1"}}) for n in range(50)))
    assert len((await api.get(CM + "/a"))["data"]) == 50


async def test_of_concurrent_creates_of_one_name_exactly_one_wins(api: Client) -> None:
    answers = await asyncio.gather(*(api.send("POST", CM, config_map()) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 19


async def test_of_concurrent_updates_from_one_version_exactly_one_wins(api: Client) -> None:
    live = await api.create(CM, config_map())
    answers = await asyncio.gather(
        *(api.send("PUT", CM + "/a", {**live, "data": {"x": str(n)}}) for n in range(20))
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 19


async def test_generated_names_do_not_collide(api: Client) -> None:
    body = {"metadata": {"generateName": "g-"}}
    made = await asyncio.gather(*(api.create(CM, body) for _ in range(200)))
    assert len({obj["metadata"]["name"] for obj in made}) == 200


# --- namespaces -----------------------------------------------------------------------------------------


async def test_nothing_is_created_in_a_namespace_that_goes(api: Client) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    path = "/api/v1/namespaces/n/configmaps"
    kept = await api.create(path, config_map())
    going = await api.delete("/api/v1/namespaces/n")
    assert going["status"]["phase"] == "Terminating"

    status = await api.refused(403, "POST", path, config_map("b"))
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert (await api.get(path + "/a")) == kept

    await api.delete(path + "/a")
    going["spec"]["finalizers"] = []
    await api.ok("PUT", "/api/v1/namespaces/n/finalize", going)
    await api.refused(404, "GET", "/api/v1/namespaces/n")


# --- services -------------------------------------------------------------------------------------------


async def test_service_addresses_are_unique_kept_and_given_back(api: Client) -> None:
    made = await asyncio.gather(*(api.create(SVC, service(f"s{n}")) for n in range(60)))
    addresses = {obj["spec"]["clusterIP"] for obj in made}
    assert len(addresses) == 60
    assert "10.96.0.1" not in addresses

    kept = made[0]["spec"]["clusterIP"]
    changed = await api.ok("PUT", SVC + "/s0", service("s0", selector={"a": "b"}))
    assert changed["spec"]["clusterIP"] == kept
    await api.refused(422, "POST", SVC, service("t", clusterIP=kept))
    await api.delete(SVC + "/s0")
    assert (await api.create(SVC, service("t", clusterIP=kept)))["spec"]["clusterIP"] == kept


async def test_a_full_range_is_said() -> None:
    async with ApiServer.in_memory(service_range="10.1.0.0/30") as server:
        client = Client(server.transport())
        answers = [await client.send("POST", SVC, service(f"s{n}")) for n in range(4)]
    assert answers[0].status == 201
    refused = [answer for answer in answers if answer.status != 201]
    assert refused
    assert b"range is full" in refused[0].body


async def test_node_ports_are_unique(api: Client) -> None:
    made = [await api.create(SVC, service(f"s{n}", type="NodePort")) for n in range(20)]
    ports = {obj["spec"]["ports"][0]["nodePort"] for obj in made}
    assert len(ports) == 20
    taken = next(iter(ports))
    body = service("t", type="NodePort", ports=[{"port": 80, "nodePort": taken}])
    assert "already allocated" in (await api.refused(422, "POST", SVC, body))["message"]


# --- pods -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Guaranteed"),
    ],
)
async def test_quality_of_service_follows_requests_and_limits(
    api: Client, resources: dict[str, object], expected: str
) -> None:
    body = pod()
    body["spec"]["containers"][0]["resources"] = resources
    assert (await api.create(PODS, body))["status"]["qosClass"] == expected


async def test_the_node_agents_final_delete_removes_the_pod(api: Client) -> None:
    await api.create(PODS, pod(node="n1"))
    marked = await api.delete(PODS + "/p", gracePeriodSeconds="30")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": marked["metadata"]["uid"]}}
    await api.delete(PODS + "/p", options)
    await api.refused(404, "GET", PODS + "/p")


async def test_a_priority_class_gives_its_value(api: Client) -> None:
    body = pod()
    body["spec"]["priorityClassName"] = "system-node-critical"
    assert (await api.create(PODS, body))["spec"]["priority"] == 2000001000
    body = pod("q")
    body["spec"]["priorityClassName"] = "none"
    await api.refused(403, "POST", PODS, body)


# --- eviction -------------------------------------------------------------------------------------------

PDB = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}


async def running(api: Client, name: str = "p") -> None:
    await api.create(PODS, pod(name, node="n1", labels={"app": "a"}))
    ready = [{"type": "Ready", "status": "True"}]
    await api.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})


async def budget(api: Client, allowed: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    await api.create(PDB, {"metadata": {"name": "b"}, "spec": spec})
    status = {
        "observedGeneration": 1, "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 2,
    }  # fmt: skip
    await api.merge(PDB + "/b/status", {"status": status})


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_namespaces_everything_stands_on_may_not_be_deleted(api: Client, name: str) -> None:
    path = f"/api/v1/namespaces/{name}"

    answer = await api.send("DELETE", path)

    assert answer.status == 403
    said = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    assert msgspec.json.decode(answer.body)["message"] == said
    assert "deletionTimestamp" not in (await api.get(path))["metadata"]


async def test_eviction_without_a_budget_deletes_gracefully(api: Client) -> None:
    await running(api)
    assert (await api.create(PODS + "/p/eviction", EVICTION))["status"] == "Success"
    evicted = await api.get(PODS + "/p")
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 30
    told = [one["reason"] for one in evicted["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert told == ["EvictionByEvictionAPI"]


async def test_a_budget_lets_exactly_as_many_go_as_it_allows(api: Client) -> None:
    for name in ("p", "q", "r"):
        await running(api, name)
    await budget(api, 1)

    async def evict(name: str) -> int:
        body = {**EVICTION, "metadata": {"name": name}}
        return (await api.send("POST", f"{PODS}/{name}/eviction", body)).status

    assert sorted(await asyncio.gather(*(evict(name) for name in "pqr"))) == [201, 429, 429]
    left = (await api.get(PDB + "/b"))["status"]
    assert left["disruptionsAllowed"] == 0
    assert len(left["disruptedPods"]) == 1


async def test_a_budget_nobody_has_processed_yet_allows_nothing(api: Client) -> None:
    await running(api)
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}}
    await api.create(PDB, {"metadata": {"name": "b"}, "spec": spec})
    status = await api.refused(429, "POST", PODS + "/p/eviction", EVICTION)
    assert "still being processed" in status["details"]["causes"][0]["message"]


# --- definitions ----------------------------------------------------------------------------------------


async def test_a_definition_is_served_at_once_and_takes_its_objects_along(api: Client) -> None:
    assert (await api.send("GET", WIDGETS)).status == 404
    created = await api.create(CRDS, definition())
    conditions = {c["type"]: c["status"] for c in created["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    assert (await api.create(WIDGETS, body))["metadata"]["generation"] == 1

    await api.delete(CRDS + "/widgets.example.com")
    async with asyncio.timeout(10):
        while (await api.send("GET", CRDS + "/widgets.example.com")).status != 404:
            await asyncio.sleep(0.01)
    assert (await api.send("GET", WIDGETS)).status == 404
    await api.create(CRDS, definition())
    assert (await api.get(WIDGETS))["items"] == []


async def test_objects_with_finalizers_hold_their_definition(api: Client) -> None:
    await api.create(CRDS, definition())
    meta = {"name": "w", "finalizers": ["example.com/hold"]}
    await api.create(WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta})
    going = await api.delete(CRDS + "/widgets.example.com")
    assert going["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]

    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "v"}}
    await api.refused(405, "POST", WIDGETS, body)
    await api.merge(WIDGETS + "/w", {"metadata": {"finalizers": None}})
    async with asyncio.timeout(10):
        while (await api.send("GET", CRDS + "/widgets.example.com")).status != 404:
            await asyncio.sleep(0.01)


async def test_versions_of_a_definition_show_the_same_objects(api: Client) -> None:
    crd = definition()
    second = {**crd["spec"]["versions"][0], "name": "v2", "storage": False}
    crd["spec"]["versions"].append(second)
    await api.create(CRDS, crd)
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    await api.create(WIDGETS, body)

    other = await api.get(WIDGETS.replace("/v1/", "/v2/") + "/w")
    assert other["apiVersion"] == "example.com/v2"
    assert other["metadata"]["uid"] == (await api.get(WIDGETS + "/w"))["metadata"]["uid"]


async def test_a_definition_that_cannot_be_served_holds_up_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "db"
    async with ApiServer.open(database) as server:
        await Client(server.transport()).create(CRDS, definition())
        store = server.cluster.store
        entries = store.collection("customresourcedefinitions.apiextensions.k8s.io")
        entry = entries.get(("", "widgets.example.com"))
        assert entry is not None
        broken = {**entry.obj, "spec": {**entry.obj["spec"], "versions": None}}
        await store.put(entries, entry.place, broken, base=entry).committed()
    async with ApiServer.open(database) as server:
        client = Client(server.transport())
        await client.create(CM, config_map())
        assert (await client.send("GET", WIDGETS)).status == 404
    assert "widgets.example.com" in caplog.text


# --- events, tokens -------------------------------------------------------------------------------------


async def test_events_expire_an_hour_after_their_last_change(api: Client, server: ApiServer) -> None:
    path = "/api/v1/namespaces/default/events"
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    await api.create(
        path, {"metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "message": "m"}
    )
    entry = server.cluster.store.collection("events").get(("default", "e"))
    assert entry is not None

    assert server._maintenance.expire_events(entry.written - 1) == 0
    assert server._maintenance.expire_events(entry.written + 1) == 1
    await api.refused(404, "GET", path + "/e")


async def test_account_tokens_authenticate_until_the_account_or_the_hour_is_gone() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    async with ApiServer.in_memory(now=lambda: moment) as server:
        client = Client(server.transport())
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await client.create(accounts, {"metadata": {"name": "sa"}})
        answer = await client.create(accounts + "/sa/token", {"spec": {"expirationSeconds": 600}})
        token = answer["status"]["token"]
        review = {"spec": {"token": token}}
        reviews = "/apis/authentication.k8s.io/v1/tokenreviews"

        seen = (await client.create(reviews, review))["status"]
        assert seen["user"]["username"] == "system:serviceaccount:default:sa"
        known, _ = server.authenticator.identify(token, now=moment + timedelta(seconds=599))
        assert known.name == "system:serviceaccount:default:sa"
        for late, wrong in ((601, token), (0, token[:-4] + "AAAA"), (0, "")):
            with pytest.raises(TokenError):
                server.authenticator.identify(wrong, now=moment + timedelta(seconds=late))
        await client.delete(accounts + "/sa")
        assert "authenticated" not in (await client.create(reviews, review))["status"]


# --- output ---------------------------------------------------------------------------------------------


async def test_answers_can_be_yaml_and_pretty(api: Client) -> None:
    await api.create(CM, config_map(x="yes"))
    as_yaml = await api.send("GET", CM + "/a", headers={"Accept": "application/yaml"})
    assert as_yaml.headers["Content-Type"] == "application/yaml"
    assert b"x: 'yes'" in as_yaml.body
    pretty = await api.send("GET", CM + "/a", pretty="true")
    assert b'\n  "kind"' in pretty.body
    assert msgspec.json.decode(pretty.body)["data"] == {"x": "yes"}


async def test_printer_columns_find_conditions_by_type(api: Client) -> None:
    path = '.status.conditions[?(@.type=="Ready")].status'
    columns = [{"name": "Ready", "type": "string", "jsonPath": path}]
    await api.create(CRDS, definition(subresources={"status": {}}, additionalPrinterColumns=columns))
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    await api.create(WIDGETS, body)
    conditions = [{"type": "Other", "status": "X"}, {"type": "Ready", "status": "True"}]
    await api.merge(WIDGETS + "/w/status", {"status": {"conditions": conditions}})

    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = await api.ok("GET", WIDGETS, headers=accept)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Ready"]
    assert table["rows"][0]["cells"] == ["w", "True"]


async def test_a_status_that_is_replaced_by_none_is_gone(api: Client) -> None:
    await api.create(CRDS, definition(subresources={"status": {}}))
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    await api.create(WIDGETS, body)
    await api.merge(WIDGETS + "/w/status", {"status": {"conditions": []}})
    body = await api.get(WIDGETS + "/w")
    assert "status" in body

    replaced = await api.ok("PUT", WIDGETS + "/w/status", {k: v for k, v in body.items() if k != "status"})

    assert "status" not in replaced


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    database = tmp_path / "db"
    async with ApiServer.open(database) as server:
        client = Client(server.transport())
        await client.create(CRDS, definition())
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
        before = await client.create(WIDGETS, body)
    async with ApiServer.open(database) as server:
        client = Client(server.transport())
        assert await client.get(WIDGETS + "/w") == before
        changed = await client.merge(WIDGETS + "/w", {"spec": {"size": 5}})
        assert int(changed["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


# --- what nobody would ask for, answered as by a real server ----------------------------------------------


async def test_a_version_is_no_precondition_of_a_deletion_that_takes_finalizers_off(api: Client) -> None:
    await api.create(CM, config_map())
    await api.delete(CM + "/a", {"propagationPolicy": "Foreground"})
    version = (await api.get(CM + "/a"))["metadata"]["resourceVersion"]
    options = {"propagationPolicy": "Background", "preconditions": {"resourceVersion": version}}
    status = await api.refused(409, "DELETE", CM + "/a", options)
    assert "ResourceVersion in precondition: ," in status["message"]
    await api.delete(CM + "/a", {"propagationPolicy": "Background"})
    await api.refused(404, "GET", CM + "/a")


async def test_who_applies_first_finds_the_marks_of_a_deletion_owned(api: Client) -> None:
    await api.create(CM, {"metadata": {"name": "a"}})
    await api.delete(CM + "/a", {"propagationPolicy": "Foreground"})
    applied = await api.apply(CM + "/a", config_map(x="1"))
    (before,) = [e for e in applied["metadata"]["managedFields"] if e["manager"] == "before-first-apply"]
    assert {"f:deletionTimestamp", "f:deletionGracePeriodSeconds"} <= before["fieldsV1"]["f:metadata"].keys()


async def test_empty_metadata_applied_to_a_custom_resource_makes_the_next_write_one(api: Client) -> None:
    await api.create(CRDS, definition())
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "labels": {}}}
    applied = await api.apply(WIDGETS + "/w", widget)
    assert "labels" not in applied["metadata"]
    versions = [applied, *[await api.merge(WIDGETS + "/w", {"spec": {"none": None}}) for _ in range(2)]]
    first, second, third = (int(obj["metadata"]["resourceVersion"]) for obj in versions)
    assert first < second == third


@pytest.mark.parametrize("ports", [["text"], [7], [None], [["x"]], ["text", {"port": 81}]])
async def test_a_list_that_merges_takes_elements_of_one_type(api: Client, ports: list[object]) -> None:
    await api.create(SVC, service("s"))
    status = await api.refused(
        500,
        "PATCH",
        SVC + "/s",
        {"spec": {"ports": ports}},
        content_type="application/strategic-merge-patch+json",
    )
    assert status["message"].startswith("list element types are not identical: [[map[")


@pytest.mark.parametrize(("path", "kind", "times"), [(CM, "ConfigMap", 4), (SVC, "Service", 3)])
async def test_wrong_labels_are_told_as_often_as_they_are_checked(
    api: Client, path: str, kind: str, times: int
) -> None:
    await api.create(path, config_map("s") if kind == "ConfigMap" else service("s"))
    status = await api.refused(
        422,
        "PATCH",
        path + "/s",
        {"metadata": {"labels": {"-": "x"}}},
        content_type="application/merge-patch+json",
    )
    assert len(status["details"]["causes"]) == times


async def test_a_template_is_warned_of_when_its_owner_changes(api: Client) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    alias = {"ip": "10.0.0.1", "hostnames": ["a"]}
    spec = {"containers": [{"name": "c", "image": "x"}], "hostAliases": [alias, alias]}
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    assert "Warning" in (await api.send("POST", path, body)).headers
    merge = "application/merge-patch+json"
    labelled = await api.send("PATCH", path + "/d", {"metadata": {"labels": {"a": "b"}}}, content_type=merge)
    assert "Warning" not in labelled.headers
    scaled = await api.send("PATCH", path + "/d/scale", {"spec": {"replicas": 2}}, content_type=merge)
    assert "Warning" in scaled.headers


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (
            "wrong",
            'parsing time "wrong" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "wrong" as "2006"',
        ),
        (True, "json: cannot unmarshal bool into Go value of type string"),
    ],
)
async def test_an_applied_value_that_only_a_conversion_refuses_is_no_bad_request(
    api: Client, wrong: object, why: str
) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    body = {**lease, "spec": {"renewTime": wrong}}
    status = await api.refused(
        500, "PATCH", path, body, content_type="application/apply-patch+yaml", fieldManager="me"
    )
    assert status["message"].startswith(
        "failed to convert new object (/a; coordination.k8s.io/v1, Kind=Lease)"
    )
    assert status["message"].endswith(why)


async def test_the_marks_of_a_deletion_lose_their_owner_when_an_update_leaves_them_out(api: Client) -> None:
    await api.create(CM, {"metadata": {"name": "a"}})
    await api.delete(CM + "/a", {"propagationPolicy": "Orphan"})
    await api.apply(CM + "/a", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "1"}}, "bob")
    marked = await api.get(CM + "/a")
    assert "before-first-apply" in {entry["manager"] for entry in marked["metadata"]["managedFields"]}
    kept = {"name": "a", "finalizers": ["orphan"]}

    left = await api.ok("PUT", CM + "/a", {"metadata": kept, "data": {"k": "2"}}, fieldManager="ann")

    assert left["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    owned = [entry["fieldsV1"].get("f:metadata", {}) for entry in left["metadata"]["managedFields"]]
    assert not any("f:deletionTimestamp" in fields for fields in owned)


@pytest.mark.parametrize(
    ("how", "first"),
    [("merge-patch", "of type []string"), ("strategic-merge-patch", "cannot restore map from slice")],
)
async def test_of_two_wrong_values_in_a_patch_the_one_that_is_read_first_is_told(
    api: Client, how: str, first: str
) -> None:
    await api.create(CM, {"metadata": {"name": "a", "labels": {"a": "b"}}})
    wrong = {"metadata": {"labels": ["x"], "finalizers": "x"}}
    status = await api.refused(422, "PATCH", CM + "/a", wrong, content_type=f"application/{how}+json")
    assert status["message"].endswith(first)


async def test_the_wrong_values_of_a_json_patch_are_read_by_name_on_the_way_to_what_it_changes(
    api: Client,
) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "publishNotReadyAddresses": True}}
    await api.create("/api/v1/namespaces/default/services", body)
    wrong = [
        {"op": "replace", "path": "/spec/publishNotReadyAddresses", "value": "x"},
        {"op": "add", "path": "/spec/externalName", "value": 7},
    ]
    path = "/api/v1/namespaces/default/services/s"
    status = await api.refused(422, "PATCH", path, wrong, content_type="application/json-patch+json")
    assert "ServiceSpec.spec.externalName of type string" in status["message"]


async def test_a_time_that_cannot_be_read_is_told_before_values_of_a_wrong_type(api: Client) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    spec = {"leaseDurationSeconds": {"wrong": 1}, "holderIdentity": 7}
    both = {"metadata": {"name": "a"}, "spec": {**spec, "renewTime": "wrong"}}
    status = await api.refused(400, "POST", path, both)
    assert 'parsing time "wrong"' in status["message"]
    status = await api.refused(400, "POST", path, {"metadata": {"name": "a"}, "spec": spec})
    assert "LeaseSpec.spec.leaseDurationSeconds of type int32" in status["message"]


async def test_a_label_of_a_wrong_type_is_told_whatever_its_name(api: Client) -> None:
    wrong = {"metadata": {"name": "a", "labels": {"example.com/x": 1, "y": 2}}}
    status = await api.refused(400, "POST", CM, wrong)
    assert "ObjectMeta.metadata.labels of type string" in status["message"]


async def test_a_new_node_takes_no_pods_until_its_conditions_are_known(api: Client) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    other = {"key": "mine", "effect": "NoExecute"}
    for name, given, found in (("a", [], [taint]), ("b", [other], [other, taint]), ("c", [taint], [taint])):
        made = await api.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"taints": given}})
        assert made["spec"]["taints"] == found
    changed = await api.merge("/api/v1/nodes/a", {"spec": {"taints": None}})
    assert "taints" not in changed["spec"]
