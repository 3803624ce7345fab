"""Random sequences of writes by several managers, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.local.api.engine_scenarios import Request, make, request

__all__ = ["GENERATORS", "sequence"]

JsonObject = dict[str, Any]


def _some(dice: random.Random, values: str, most: int = 3) -> list[str]:
    return dice.sample(values, dice.randint(0, min(most, len(values))))


def _widget(dice: random.Random) -> JsonObject:
    def node(name: str) -> JsonObject:
        zone = {"zone": dice.choice("yz")} if dice.random() < 0.3 else {}
        weight = {"weight": dice.randint(0, 2)} if dice.random() < 0.6 else {}
        return {"name": name, **zone, **weight}

    parts: dict[str, Callable[[], Any]] = {
        "mode": lambda: dice.choice("ab"),
        "tags": lambda: _some(dice, "abcd"),
        "plain": lambda: [dice.randint(0, 2) for _ in range(dice.randint(0, 2))],
        "nodes": lambda: [node(name) for name in _some(dice, "abc")],
        "labels": lambda: {key: dice.choice("12") for key in _some(dice, "xyz")},
        "atom": lambda: {key: dice.choice("12") for key in _some(dice, "ab")},
        "deep": lambda: dice.choice([{}, {"on": False}, {"on": True}]),
        "any": lambda: dice.choice([{"x": {"y": 1}}, {"x": {"z": [1]}}, {"x": None}, [1], "text", {}]),
        "maybe": lambda: dice.choice([None, "m"]),
    }
    spec = {"size": dice.randint(1, 5)} | {key: part() for key, part in parts.items() if dice.random() < 0.45}
    metadata: JsonObject = {}
    if dice.random() < 0.4:
        metadata["labels"] = {key: dice.choice("12") for key in _some(dice, "pq")}
    if dice.random() < 0.2:
        metadata["finalizers"] = dice.sample(["a.b/c", "a.b/d"], dice.randint(0, 2))
    return make("Widget", "engine.mooring.dev/v1", metadata=metadata, spec=spec)


def _container(dice: random.Random, name: str) -> JsonObject:
    def port(number: int) -> JsonObject:
        protocol = {"protocol": dice.choice(["TCP", "UDP"])} if dice.random() < 0.4 else {}
        return {"containerPort": number, **protocol}

    parts: dict[str, Callable[[], Any]] = {
        "env": lambda: [{"name": key, "value": dice.choice("12")} for key in _some(dice, "ABC")],
        "ports": lambda: [port(number) for number in dice.sample([80, 81], dice.randint(0, 2))],
        "resources": lambda: {"limits": {"cpu": dice.choice(["1", "0.5"])}},
        "args": lambda: _some(dice, "xyz", 2),
        "securityContext": lambda: dice.choice([{}, {"runAsUser": 1}]),
    }
    chosen = {key: part() for key, part in parts.items() if dice.random() < 0.4}
    return {"name": name, "image": dice.choice("ij"), **chosen}


def _deployment(dice: random.Random) -> JsonObject:
    labels = {"a": "b", **({"c": dice.choice("de")} if dice.random() < 0.3 else {})}
    pod: JsonObject = {
        "containers": [_container(dice, name) for name in dice.sample("cde", dice.randint(1, 3))]
    }
    if dice.random() < 0.3:
        pod["nodeSelector"] = {"n": dice.choice("12")}
    if dice.random() < 0.3:
        pod["tolerations"] = [{"key": dice.choice("ab"), "operator": "Exists"}]
    spec: JsonObject = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if dice.random() < 0.5:
        spec["replicas"] = dice.randint(0, 2)
    if dice.random() < 0.3:
        rolling = {"rollingUpdate": {"maxSurge": 1}}
        spec["strategy"] = dice.choice([{"type": "Recreate"}, {"type": "RollingUpdate"}, rolling])
    return make("Deployment", "apps/v1", spec=spec)


GENERATORS: dict[str, Callable[[random.Random], JsonObject]] = {"widget": _widget, "deployment": _deployment}


def sequence(kind: str, seed: int, *, length: int = 7) -> Iterator[Request]:
    """Yield writes to one object; the first creates it."""
    dice = random.Random(seed)
    for number in range(length):
        obj = GENERATORS[kind](dice)
        obj["metadata"]["name"] = f"{kind}-{seed}"
        verb = dice.choice(["apply", "apply", "apply", "update", "merge"] if number else ["apply", "create"])
        manager, force = dice.choice(["one", "two", "three"]), dice.random() < 0.5
        if verb == "merge":
            body: JsonObject = {"spec": obj["spec"]}
            name = obj["metadata"]["name"]
            yield Request(verb, obj["kind"], body, name=name, api_version=obj["apiVersion"], manager=manager)
        else:
            yield request(verb, obj, manager=manager, force=force and verb == "apply")
