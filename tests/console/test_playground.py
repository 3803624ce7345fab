"""A template tried before it is anywhere: problems by line, its form and its manifest; nothing is kept or run."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.console.bed import ADMIN, ANN, Bed, Browser, Json

from mooring.console import playground
from mooring.console.playground import TEXT_LIMIT, _places

TEMPLATE = """apiVersion: catalog.mooring.dev/v1alpha1
kind: ClusterServiceTemplate
metadata: {name: small-redis}
spec:
  display:
    title: {en: Small, zh: 小}
    summary: {en: Small Redis, zh: 小型 Redis}
  target: {group: redis.kun, version: v1beta1, kind: RedisCluster, plural: redisclusters}
  sections:
    - {name: basics, title: {en: Basics, zh: 基本}}
  parameters:
    required: [size]
    properties:
      size:
        type: integer
        title: {en: Size, zh: 大小}
        default: 3
        x-bind: /spec/size
        x-ui: {group: basics}
  rules:
    - {cel: "params.size != 2.0", field: size, message: {en: Not two., zh: 不能为二。}}
  requests:
    requests.cpu: params.size * 0.5
  render: {spec: {image: "redis:7.0"}}
"""


async def tried(browser: Browser, text: str, values: Json = None) -> Json:
    return await browser.ok("POST", "templates/try", {"yaml": text, "values": values})


async def test_a_sound_template_gives_its_form_and_manifest(bed: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    found = await tried(root, TEMPLATE)
    assert (found["problems"], found["errors"], found["compared"]) == ([], [], True)
    assert found["defaults"] == {"size": 3}
    assert "size: 3" in found["yaml"]
    assert found["requests"] == {"requests.cpu": 1.5}
    found = await tried(root, TEMPLATE, {"size": 5})
    assert "size: 5" in found["yaml"]
    found = await tried(root, TEMPLATE, {"size": 2})
    assert found["yaml"] == ""
    assert found["errors"] == [{"field": "size", "message": {"en": "Not two.", "zh": "不能为二。"}}]
    assert (await root.ok("GET", "instances"))["rows"] == [], "nothing was made"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("type: integer", "type: decimal", 15, "decimal"),
        ("x-bind: /spec/size", "x-bind: /spec/sizes", 18, "the kind has no spec.sizes"),
        ("zh: 大小}", "cn: 大小}", 16, "cn"),
        ("{en: Size, zh: 大小}", "{en: Size}", 16, "missing"),
        ("params.size != 2.0", "params.size !=", 21, "Syntax error"),
        ("params.size * 0.5", "params.weight * 0.5", 23, "weight"),
        ("  render:", "\t render:", 24, "cannot start any token"),
        ("required: [size]", "required: [sizes]", 12, "there is no field"),
        ("  rules:", "  rulez:", 4, "rulez"),
        ("metadata: {name", "metadata: &a {b: *a, name", 3, "aliases"),
        ("metadata: {name", "metadata: {name: x, name", 3, "twice"),
    ],
)
async def test_a_problem_is_told_at_its_line(
    bed: Bed, browsers: list[Browser], old: str, new: str, line: int, said: str
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    assert old in TEMPLATE
    found = await tried(root, TEMPLATE.replace(old, new, 1))
    assert found["problems"], found
    assert any(one["line"] == line and said in one["message"] + one["path"] for one in found["problems"]), (
        found["problems"]
    )
    assert found["yaml"] == ""


async def test_who_may_not_read_the_definition_is_told_so(bed: Bed, browsers: list[Browser]) -> None:
    ann = await browsers[0].signed_in(ANN)
    found = await tried(ann, TEMPLATE.replace("/spec/size", "/spec/sizes"))
    assert (found["problems"], found["compared"]) == ([], False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "&a [*a, *a]",
        "{" * 500,
        "a: 1\n---\nb: 2",
        "a: !!python/object:os.system x",
        "\x00",
        "a: " + "x" * 300_000,
    ],
    ids=["empty", "list", "alias", "deep", "two", "tag", "nul", "long"],
)
async def test_no_text_breaks_it(bed: Bed, browsers: list[Browser], text: str) -> None:
    root = await browsers[0].signed_in(ADMIN)
    status, found, _ = await root.send("POST", "templates/try", {"yaml": text})
    if len(text) > TEXT_LIMIT:
        assert status == 413
    else:
        assert status == 200
        assert found["problems"]
    assert (await root.send("POST", "templates/try", {"yaml": 1}))[0] == 400
    assert (await root.send("POST", "templates/try", {"yaml": TEMPLATE, "values": []}))[0] == 400


def test_nested_named_lists_are_read_once() -> None:
    text = "1"
    for _ in range(45):
        text = f"[{{name: a, x: {text}}}]"
    places = _places(f"spec: {text}")
    seen: set[int] = set()
    waiting = [places]
    while waiting:
        place = waiting.pop()
        if id(place) not in seen:
            seen.add(id(place))
            waiting += place.below.values()
    # Depth by depth a list, an element and its name; two ways lead to an element, and both to the same place.
    assert len(seen) == 2 + 45 * 3
    assert places.below["spec"].below["a"] is places.below["spec"].below["0"]


async def test_a_problem_in_a_named_element_is_told_at_its_line(bed: Bed, browsers: list[Browser]) -> None:
    root = await browsers[0].signed_in(ADMIN)
    action = (
        "  actions:\n    - name: first\n      title: {en: a, zh: a}\n      description: {en: a, zh: a}\n"
        "      set: {/spec/size: 1}\n    - name: second\n      title: {en: a, zh: a}\n"
        "      description: {en: a}\n      set: {/spec/size: 1}\n  render:"
    )
    found = await tried(root, TEMPLATE.replace("  render:", action, 1))
    assert [(one["line"], one["path"]) for one in found["problems"]] == [
        (31, "spec.actions.second.description.zh")
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [("default: 3", "default: 1" + "0" * 400), ("/spec/size", "/spec" + "/a" * 3000)],
    ids=["number", "pointer"],
)
async def test_a_value_that_is_too_large_is_a_problem_and_no_defect(
    bed: Bed, browsers: list[Browser], old: str, new: str
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    found = await tried(root, TEMPLATE.replace(old, new, 1))
    assert found["problems"]
    assert found["yaml"] == ""


async def test_a_user_tries_one_template_at_a_time(
    bed: Bed, browsers: list[Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await browsers[0].signed_in(ADMIN)
    again, ann = await browsers[1].signed_in(ADMIN), await browsers[2].signed_in(ANN)
    began, go, read = threading.Event(), threading.Event(), playground._read

    def held(text: str) -> Json:
        if "held" in text:
            began.set()
            assert go.wait(20)
        return read(text)

    monkeypatch.setattr(playground, "_read", held)
    first = asyncio.create_task(tried(root, TEMPLATE.replace("small-redis", "held")))
    try:
        await asyncio.to_thread(began.wait, 20)
        # The console answers meanwhile: others, and the user whatever else they ask for.
        status, answer, _ = await again.send("POST", "templates/try", {"yaml": TEMPLATE, "values": None})
        assert (status, answer["code"]) == (429, "OneAtATime")
        assert (await tried(ann, TEMPLATE))["problems"] == []
    finally:
        go.set()
    assert (await first)["problems"] == []
    assert (await tried(again, TEMPLATE))["problems"] == []
