"""A decision's inputs as a file: what `mooring why --save` writes and `mooring replay` decides again.

It holds what was seen, never a password nor a key of the data, so that it can be sent to somebody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from mooring.actor import Terminal, Wait
from mooring.kube.client import Client
from mooring.kube.errors import NotFound
from mooring.kube.object import Object
from mooring.kube.objects import apps, core
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.sentinel.inputs import Gathering
from mooring.operators.redis.sentinel.moves import Verdict
from mooring.operators.redis.sentinel.names import Names
from mooring.operators.redis.sentinel.plan import held_back, next_step
from mooring.operators.redis.sentinel.snapshot import Observed, Recorded, Wanted
from mooring.operators.redis.sentinel.specs import Specs
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterStatus, spec_of
from mooring.operators.workload.saved import NotDecided

__all__ = ["NotDecided", "Saved", "gather", "load", "read_around", "replay"]

T = TypeVar("T", bound=Object)
FORM = "mooring/redis-sentinel/1"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Everything one decision is made from."""

    form: str = FORM
    now: datetime
    wanted: Wanted
    observed: Observed
    recorded: Recorded

    def dump(self) -> bytes:
        """As JSON, for people too."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n"


def load(text: bytes) -> Saved:
    """Read a file that `Saved.dump` wrote; `NotDecided` when it is none."""
    try:
        saved = msgspec.json.decode(text, type=Saved)
    except msgspec.MsgspecError as error:
        raise NotDecided(
            f"not a saved decision: {error}; make one by mooring why KIND/NAME --save FILE"
        ) from error
    if saved.form != FORM:
        raise NotDecided(f"saved in the form {saved.form!r}; this version reads {FORM!r}")
    return saved


def replay(saved: Saved) -> Verdict:
    """What the planner decides from it."""
    return held_back(saved.wanted, next_step(saved.wanted, saved.observed, saved.recorded, saved.now))


async def gather(client: Client, cluster: RedisCluster, *, now: datetime) -> Saved:
    """Ask the API server and the cluster's own servers, as the operator does; reads only."""
    status = cluster.status or RedisClusterStatus()
    gathering = Gathering(cluster, await read_around(client, cluster), status)
    inputs = gathering.inputs()
    if isinstance(inputs, Wait | Terminal):
        raise NotDecided(f"{inputs.reason}: {inputs.message}")
    observed, recorded = await gathering.snapshot(Dial(), Specs(cluster, inputs.found), inputs)
    return Saved(now=now, wanted=inputs.wanted, observed=observed, recorded=recorded)


class _Around:
    """The objects around a cluster, as they were read."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._objects = list(objects)

    def find(self, kind: type[T], name: str) -> T | None:
        return next((one for one in self._of(kind) if one.metadata.name == name), None)

    def pods(self) -> list[core.Pod]:
        return self._of(core.Pod)

    def claims(self) -> list[core.PersistentVolumeClaim]:
        return self._of(core.PersistentVolumeClaim)

    def _of(self, kind: type[T]) -> list[T]:
        return [one for one in self._objects if isinstance(one, kind)]


async def read_around(client: Client, cluster: RedisCluster) -> _Around:
    """Read from the API server what a cluster is decided from, beside its servers' word."""
    namespace, name = cluster.metadata.namespace or "", cluster.metadata.name or ""
    names, spec = Names(name), spec_of(cluster)
    selector = f"app.kubernetes.io/name={name},app.kubernetes.io/managed-by=redis-operator"
    found: list[Object] = []
    for kind in (core.Pod, core.PersistentVolumeClaim):
        found += (await client.list(kind, namespace=namespace, label_selector=selector)).items
    given = spec.password_secret.name if spec.password_secret else None
    single: list[tuple[type[Object], str | None]] = [
        *((apps.StatefulSet, one) for one in (names.redis, names.sentinel)),
        *((core.ConfigMap, one) for one in (names.live, names.lineage, spec.shutdown_config_map)),
        *((core.Secret, one) for one in (names.password, given)),
    ]
    for one_kind, wanted in single:
        if wanted:
            try:
                found.append(await client.get(one_kind, wanted, namespace=namespace))
            except NotFound:
                continue
    return _Around(found)
