"""Decisions of this operator as files; see `workload.saved`. Slots are written as ranges."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from mooring.kube.client import Client
from mooring.kube.errors import Forbidden
from mooring.kube.object import Key, key_of
from mooring.kube.objects import core
from mooring.operators.redis.cluster.inputs import Inputs, read_inputs, read_snapshot, references, zones_of
from mooring.operators.redis.cluster.names import selector_of
from mooring.operators.redis.cluster.passwords import GRACE
from mooring.operators.redis.cluster.slots import parse, show
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterStatus
from mooring.operators.redis.dial import Dial
from mooring.operators.workload.saved import Form, NotDecided, form_of
from mooring.operators.workload.surroundings import read_surroundings

__all__ = ["dump", "gather", "inputs_of", "load"]

_FORM: Final = Form("mooring/redis-cluster/1", Snapshot)


def dump(snapshot: Snapshot) -> bytes:
    """A snapshot as JSON, for people too."""
    raw = msgspec.to_builtins(snapshot)
    _each_slots(raw, show)
    text = msgspec.json.encode({"form": _FORM.name, **raw}, order="sorted")
    return msgspec.json.format(text, indent=1) + b"\n"


def load(text: bytes) -> Snapshot:
    """Read a file that `dump` wrote; `NotDecided` when it is another."""
    if (form := form_of(text)) != _FORM.name:
        raise NotDecided(f"saved in the form {form!r}; this version reads {_FORM.name!r}")
    try:
        raw = msgspec.json.decode(text)
        _each_slots(raw, parse)
        return msgspec.convert(raw, Snapshot)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise NotDecided(f"not a saved decision: {error}") from error


def _each_slots(raw: dict[str, Any], change: Callable[[Any], Any]) -> None:
    """Change every set of slots: as numbers of 16384 bits JSON does not take them."""
    views = [node["server"]["view"] for node in raw["seen"]["nodes"] if node["server"] is not None]
    for one in (peer for view in views for peer in view):
        one["slots"] = change(one["slots"])
    raw["recorded"]["slots"] = {id: change(slots) for id, slots in raw["recorded"]["slots"].items()}


async def gather(client: Client, cluster: RedisCluster, *, now: datetime) -> Snapshot:
    """Ask the API server and the cluster's own servers, as the operator does; reads only."""
    inputs = await inputs_of(client, cluster)
    if inputs.live is None:
        why = inputs.blocked.message if inputs.blocked is not None else "it has no StatefulSet yet"
        raise NotDecided(f"nothing is decided before there are pods: {why}")
    return await read_snapshot(inputs, Dial(keys=inputs.found.kept.keys), now, grace=GRACE)


async def inputs_of(client: Client, cluster: RedisCluster) -> Inputs:
    """The inputs as the API server gives them."""
    name, namespace = cluster.metadata.name or "", cluster.metadata.namespace or ""
    selector = ",".join(f"{key}={value}" for key, value in selector_of(name).items())
    around = await read_surroundings(client, namespace, references(cluster), label_selector=selector)
    nodes: dict[Key, core.Node] = {}
    with suppress(Forbidden):  # without nodes no zones are known
        nodes = {key_of(one): one for one in (await client.list(core.Node)).items}
    zones = zones_of(around.pods, nodes)
    return read_inputs(cluster, around, cluster.status or RedisClusterStatus(), zones=zones)
