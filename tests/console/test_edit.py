"""Edits of an instance over the API: only what changed is sent, conflicts are told, secrets stay where they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from tests.console.bed import ADMIN, ANN, REDIS, SECRET, Bed, Browser, Json

from mooring.catalog import MASKED, packaged
from mooring.console.document import read_yaml, to_yaml
from mooring.console.edit import TRIES, Edit
from mooring.console.problems import Problem
from mooring.kube import Client, Conflict, Response

ONE = "namespaces/team-a/instances/redis-sentinel/cache"
LIVE = REDIS.format("team-a") + "/cache"


@pytest.fixture
async def root(bed: Bed, browsers: list[Browser]) -> Browser:
    await bed.redis(
        "team-a", "cache", size=3, image="redis:7.0", config={"maxmemory": "192mb"}, password=SECRET
    )
    return await browsers[0].signed_in(ADMIN)


async def live(bed: Bed) -> Json:
    return json.loads((await bed.admin.request("GET", LIVE)).body)


async def patched(bed: Bed, body: Json, path: str = LIVE) -> None:
    content = "application/merge-patch+json"
    await bed.admin.request("PATCH", path, body=json.dumps(body).encode(), content_type=content)


def edited(form: Json, **spec: Json) -> Json:
    """The form's document as YAML with fields of the spec replaced."""
    document = yaml.safe_load(form["yaml"])
    document["spec"] |= spec
    return to_yaml(document)


async def test_the_form_is_filled_from_the_live_object(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    assert form["values"]["size"] == 3
    assert form["values"]["maxmemory"] == "192mb"
    assert form["form"]["parameters"]["properties"]["storageClass"]["x-immutable"] is True
    assert form["base"]["document"]["spec"]["password"] == MASKED
    assert "status" not in form["base"]["document"]
    await patched(bed, {"spec": {"size": 5}})
    assert (await root.ok("GET", ONE + "/form"))["values"]["size"] == 5


async def test_a_review_says_what_would_change_and_changes_nothing(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    body = {"base": form["base"], "values": {**form["values"], "size": 5}}
    review = await root.ok("PATCH", ONE + "?dryRun=true", body)
    change = {"op": "replace", "path": "spec.size", "field": "size", "old": "3", "new": "5", "secret": False}
    assert review["changes"] == [change]
    assert "-  size: 3" in review["diff"]
    assert "+  size: 5" in review["diff"]
    assert (await live(bed))["spec"]["size"] == 3
    nothing = await root.ok("PATCH", ONE + "?dryRun=true", {"base": form["base"], "values": form["values"]})
    assert (nothing["changes"], nothing["diff"]) == ([], "")


async def test_only_the_changed_fields_are_sent(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    await root.ok("PATCH", ONE, {"base": form["base"], "values": {"size": 5}})
    made = await live(bed)
    assert made["spec"]["size"] == 5
    assert made["spec"]["password"] == SECRET
    owned = [one for one in made["metadata"]["managedFields"] if one["manager"] == "mooring-console"]
    assert [one["fieldsV1"] for one in owned] == [{"f:spec": {"f:size": {}}}]


async def test_the_form_and_the_editor_can_be_used_together(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    body = {"base": form["base"], "values": {"size": 5}, "yaml": edited(form, image="redis:7.2")}
    assert len((await root.ok("PATCH", ONE, body))["changes"]) == 2
    spec = (await live(bed))["spec"]
    assert (spec["size"], spec["image"], spec["password"]) == (5, "redis:7.2", SECRET)
    again = await root.ok("GET", ONE + "/form")
    both = {"base": again["base"], "values": {"size": 7}, "yaml": edited(again, size=9)}
    status, problem, _ = await root.send("PATCH", ONE, both)
    assert (status, problem["errors"][0]["field"]) == (422, "size")


async def test_a_status_written_meanwhile_is_no_conflict(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    await patched(bed, {"status": {"observedGeneration": 1}}, LIVE + "/status")
    await root.ok("PATCH", ONE, {"base": form["base"], "values": {"size": 5}})
    assert (await live(bed))["spec"]["size"] == 5


class Racing:
    """A transport on which the operator writes the status just before each of the first patches."""

    def __init__(self, bed: Bed, times: int) -> None:
        self.bed = bed
        self.times = times
        self.stream = bed.admin.transport.stream
        self.close = bed.admin.transport.close

    async def request(self, method: str, path: str, **more: Any) -> Response:
        """See `Transport.request`."""
        if method == "PATCH" and self.times > 0:
            self.times -= 1
            await patched(self.bed, {"status": {"observedGeneration": 100 + self.times}}, LIVE + "/status")
        return await self.bed.admin.transport.request(method, path, **more)


@pytest.mark.parametrize(("times", "size"), [(TRIES - 1, 5), (TRIES, 3)])
async def test_a_status_written_between_is_tried_again_and_not_for_ever(
    bed: Bed, root: Browser, times: int, size: int
) -> None:
    form = await root.ok("GET", ONE + "/form")
    entry = next(entry for entry in packaged() if entry.name == "redis-sentinel")
    edit = Edit(entry, {"base": form["base"], "values": {"size": 5}})
    sending = edit.send(Client(Racing(bed, times)), LIVE, dry_run=False, manager="test")
    if size == 5:
        await sending
    else:
        with pytest.raises(Conflict):
            await sending
    assert (await live(bed))["spec"]["size"] == size


async def test_a_change_by_somebody_else_is_told_with_both_sides(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    await patched(bed, {"spec": {"size": 4, "config": {"maxmemory": "96mb"}}})
    body = {
        "base": form["base"],
        "values": {"size": 5},
        "yaml": edited(form, image="redis:7.2", password="n3w-word"),
    }
    for path in (ONE + "?dryRun=true", ONE):
        status, problem, text = await root.send("PATCH", path, body)
        assert (status, problem["code"]) == (409, "Changed")
        assert [row["path"] for row in problem["theirs"]] == ["spec.size", "spec.config.maxmemory"]
        assert [row["path"] for row in problem["ours"]] == ["spec.size", "spec.image", "spec.password"]
        assert problem["both"] == ["spec.size"]
        assert "n3w-word" not in text
    assert (await live(bed))["spec"]["size"] == 4
    merged = yaml.safe_load(problem["merged"])["spec"]
    assert (merged["size"], merged["image"], merged["config"]) == (5, "redis:7.2", {"maxmemory": "96mb"})
    # Going on from what is there now, with what was typed.
    current = problem["current"]
    again = {"base": current["base"], "values": {"size": 5}, "yaml": edited(current, image="redis:7.2")}
    await root.ok("PATCH", ONE, again)
    spec = (await live(bed))["spec"]
    assert (spec["size"], spec["config"], spec["password"]) == (5, {"maxmemory": "96mb"}, SECRET)


async def test_an_instance_made_again_under_the_name_is_not_changed(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    await bed.admin.request("DELETE", LIVE)
    status, _, _ = await root.send("PATCH", ONE, {"base": form["base"], "values": {"size": 5}})
    assert status == 404
    await bed.redis("team-a", "cache", **form["base"]["document"]["spec"])
    status, problem, _ = await root.send("PATCH", ONE, {"base": form["base"], "values": {"size": 5}})
    assert (status, problem["code"]) == (409, "Replaced")
    assert (await live(bed))["spec"]["size"] == 3


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"size": 99}, "size", "at most 10"),
        ({"size": None}, "size", "needed"),
        ({"storageClass": "fast"}, "storageClass", "cannot be changed"),
        ({"odd": 1}, "odd", "no such field"),
    ],
)
async def test_a_wrong_value_is_told_at_its_field(root: Browser, values: Json, field: str, said: str) -> None:
    form = await root.ok("GET", ONE + "/form")
    status, problem, _ = await root.send("PATCH", ONE, {"base": form["base"], "values": values})
    assert (status, problem["errors"][0]["field"]) == (422, field)
    assert said in problem["errors"][0]["message"]["en"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: cache", "name: other"),
        ("namespace: team-a", "namespace: team-b"),
        ("kind: RedisCluster", "kind: Secret"),
        ("spec:", "status: {}\nspec:"),
        ("spec:", "spec: &a [*a]\nodd:"),
        ("spec:", "spec: {}\nspec:"),
        ("spec:", "spec: ["),
        (f"password: {MASKED}", f"password: {MASKED}\n  other: {MASKED}"),
    ],
)
async def test_what_the_editor_may_not_hold_is_refused(bed: Bed, root: Browser, old: str, new: str) -> None:
    form = await root.ok("GET", ONE + "/form")
    assert old in form["yaml"]
    text = form["yaml"].replace(old, new)
    status, problem, _ = await root.send("PATCH", ONE, {"base": form["base"], "yaml": text})
    assert (status, problem["errors"][0]["field"]) == (422, "yaml")


@pytest.mark.parametrize(
    "body", [{}, {"base": []}, {"base": {"uid": 1, "document": {}}}, {"base": None, "values": 3}]
)
async def test_what_is_no_edit_is_refused(root: Browser, body: Json) -> None:
    assert (await root.send("PATCH", ONE, body))[0] == 400


async def test_no_secret_that_was_typed_comes_back(bed: Bed, root: Browser) -> None:
    form = await root.ok("GET", ONE + "/form")
    config = {"requirepass": "n3w-word", "maxmemory": "1mb"}
    text = edited(form, password="n3w-word", config=config)
    answers = [await root.send("PATCH", ONE + "?dryRun=true", {"base": form["base"], "yaml": text})]
    wrong = edited(form, password="n3w-word", config=config, configPolicy="n3w-word")
    answers.append(await root.send("PATCH", ONE, {"base": form["base"], "yaml": wrong}))
    answers.append(await root.send("PATCH", ONE, {"base": form["base"], "yaml": text}))
    assert [status for status, _, _ in answers] == [200, 422, 200]
    for _, body, answer in (answers[0], answers[2]):
        assert MASKED in [change["new"] for change in body["changes"]]
        assert "n3w-word" not in answer
    assert "n3w-word" not in json.dumps(answers[1][1]["errors"]), "the API server quotes what it refuses"
    spec = (await live(bed))["spec"]
    assert (spec["password"], spec["config"]) == ("n3w-word", config)


async def test_a_reader_may_look_and_not_change(bed: Bed, root: Browser, browsers: list[Browser]) -> None:
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["get"])
    ann = await browsers[1].signed_in(ANN)
    form = await ann.ok("GET", ONE + "/form")
    for query in ("?dryRun=true", ""):
        status, problem, _ = await ann.send(
            "PATCH", ONE + query, {"base": form["base"], "values": {"size": 5}}
        )
        assert (status, problem["code"]) == (403, "Forbidden")
        assert problem["changes"][0]["path"] == "spec.size"
    rights = await ann.ok("GET", "permissions?entry=redis-sentinel&namespace=team-a")
    assert rights["patch"] == "denied"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [", "line 2"),
        ("- a", "must be an object"),
        ("a: *x", "aliases"),
        ("a: 1\na: 2", "line 2: the key 'a' is there twice"),
        ("no: 1", "quote it"),
        ("a: .nan", "finite"),
        ("a: " + "[" * 5000, "not YAML|levels"),
        ("a: !!python/object:os.system 1", "line 1"),
    ],
)
def test_yaml_that_is_no_plain_object_is_refused(text: str, said: str) -> None:
    with pytest.raises(Problem, match=said):
        read_yaml(text)


def test_yaml_is_read_as_it_was_written() -> None:
    document = {"a": "2026-01-01", "b": "no", "c": "1:30", "d": 1.5, "e": [{"f": None}], "g": "中文"}
    assert read_yaml(to_yaml(document)) == document
    assert read_yaml("a: 2026-01-01") == {"a": "2026-01-01"}
