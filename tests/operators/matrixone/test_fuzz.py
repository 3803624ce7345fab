"""Any object of our kinds, however odd: it is decoded or refused, and never fails anything else.

What the schema lets pass is validated, changed, defaulted and built; what `validate` calls sound is built without a failure,
and twice the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import msgspec
import pytest
from tests.operators.matrixone.builders import BY_KIND, declared, samples
from tests.operators.matrixone.golden_cases import CASES

from mooring.kube import DecodeError
from mooring.kube.object import Object, decode, to_dict
from mooring.operators.matrixone.advice import warnings
from mooring.operators.matrixone.changes import changes
from mooring.operators.matrixone.defaults import default_patch, with_defaults
from mooring.operators.matrixone.specs import (
    ClusterSpecs,
    CNSpecs,
    Credential,
    DNSpecs,
    LogService,
    LogSpecs,
    ProxySpecs,
    UISpecs,
)
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, MatrixOneCluster, ProxySet, WebUI
from mooring.operators.matrixone.validate import validate
from mooring.operators.matrixone.webhook import unknown

ROUNDS: Final = 30
ODD: Final[tuple[Any, ...]] = (
    None,
    0,
    -1,
    1,
    2**40,
    1.5,
    True,
    "",
    " ",
    "x",
    "1Gi",
    "-1",
    "1e9999",
    "10m",
    "é\n\x00",
    "a" * 300,
    "[a]\nb = 1",
    "a =",
    "[[fileservice]]\nname = 3",
    "fileservice = [1]",
    "cn = 1\ntn = 2\nlogservice = []",
    "http://[::1",
    "http://10.0.0.1:70000",
    "host:99999",
    [],
    [None],
    [{}],
    ["x", "x"],
    {},
    {"x": "y"},
    {"name": "x"},
    {"metadata": {}},
    {"s3": {}},
    {"limits": {"memory": "x"}},
    [{"name": "a"}, {"name": "a"}],
    [{"key": "a"}],
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of an object below its head."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from places(one, (*path, at))


def fields(kind: type[msgspec.Struct]) -> list[str]:
    return [one.encode_name for one in msgspec.structs.fields(kind)]


def mutated(raw: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The object with up to four odd values at places of it, or at fields that it has not."""
    out: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(raw))
    kind = BY_KIND[raw["kind"]]
    for _ in range(chance.randint(1, 4)):
        known = [path for path in places(out) if path[0] not in ("apiVersion", "kind")]
        *way, last = chance.choice(known)
        place: Any = out
        for key in way:
            place = place[key]
        if isinstance(place, dict) and chance.random() < 0.4:
            spec = next((one.type for one in msgspec.structs.fields(kind) if one.encode_name == "spec"), None)
            inner = next(
                (
                    one
                    for one in getattr(getattr(spec, "__args__", [None])[0], "__args__", ())
                    if hasattr(one, "__struct_fields__")
                ),
                None,
            )
            last = chance.choice(fields(inner)) if inner is not None else "spec"
        place[last] = deepcopy(chance.choice(ODD))
    return out


def built(obj: Object) -> list[dict[str, Any]]:
    """Every object that is made of one."""
    log = LogService.of(decode(declared("LogSet"), LogSet))
    made: list[Object] = []
    if isinstance(obj, LogSet):
        made += LogSpecs(obj).objects()
    elif isinstance(obj, DNSet):
        made += DNSpecs(obj, log).objects()
    elif isinstance(obj, CNSet):
        specs = CNSpecs(obj, log)
        made += [*specs.objects(), specs.pod("abcde"), *specs.claims("abcde")]
    elif isinstance(obj, ProxySet):
        made += ProxySpecs(obj, log).objects()
    elif isinstance(obj, WebUI):
        made += UISpecs(obj, Credential(username="u", password="p")).objects()
    elif isinstance(obj, MatrixOneCluster):
        made += ClusterSpecs(obj).sets()
    return [to_dict(one) for one in made]


SEEDS: Final = [
    *samples(),
    *(declared(kind) for kind in BY_KIND if kind != "Backup"),
    *(declared(case.kind, **case.changes) for case in CASES.values()),
]


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_no_object_however_odd_fails_validation_or_the_builders(seed: int) -> None:
    chance, raw = random.Random(seed), SEEDS[seed]
    kind, before = BY_KIND[raw["kind"]], decode(raw, BY_KIND[raw["kind"]])
    sound = 0
    for _ in range(ROUNDS):
        odd = mutated(raw, chance)
        default_patch(kind, odd, new=True)
        unknown(kind, odd)
        try:
            obj = decode(odd, kind)
        except DecodeError:
            continue
        found = validate(obj)
        assert all(one.field and one.message for one in found)
        warnings(obj)
        changes(before, obj)
        with_defaults(obj)
        if not found:
            sound += 1
            made = built(obj)
            assert made == built(obj)
            if isinstance(obj, MatrixOneCluster):
                assert_children_are_sound(obj)
    assert sound, "no odd object was sound, so nothing was built"


def assert_children_are_sound(cluster: MatrixOneCluster) -> None:
    """What a cluster is admitted with, its sets are admitted with."""
    if not cluster.metadata.name:
        return
    for one in ClusterSpecs(cluster).sets():
        assert validate(one) == [], one.resource.kind
        built(one)
