"""Objects that another operator made: whether it still runs, and what an apply cannot change about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final

import msgspec

from mooring.actor import APPLIED, Context
from mooring.kube.client import Client
from mooring.kube.errors import Conflict, Invalid
from mooring.kube.object import Object, controller_of, metadata_of
from mooring.kube.objects import apps, core
from mooring.kube.patches import JsonPatch, MergePatch
from mooring.operators.workload.claims import claim_name

__all__ = [
    "LEADER",
    "has_labels",
    "label_pods",
    "lock_holder",
    "made_by_another",
    "pods_of_set",
    "pods_selector",
    "put_template",
    "rolls_itself",
    "select_only",
    "stop_rolling",
]

LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
"""The annotation by which client-go's older locks name their holder."""
STALE: Final = timedelta(seconds=60)
"""After which a lock that is not renewed has no living owner: four times its lease, for clocks that differ."""
_LOCKED: Final[tuple[type[Object], ...]] = (core.Endpoints, core.ConfigMap)


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """What a leader writes into the annotation."""

    holder_identity: str = ""
    renew_time: datetime | None = None


async def lock_holder(client: Client, locks: Sequence[str], *, namespace: str, now: datetime) -> str:
    """The live holder of one of these locks, with the lock; "" without one. An empty ``namespace`` means all.

    Raises `KubeError` when that cannot be found out: then nothing is to be taken over either.
    """
    for kind, name in product(_LOCKED, locks):
        found = await client.list(
            metadata_of(kind), namespace=namespace, field_selector=f"metadata.name={name}"
        )
        for lock in found.items:
            if holder := _holder((lock.metadata.annotations or {}).get(LEADER, ""), now):
                return f"{holder} ({kind.resource.kind} {lock.metadata.namespace}/{name})"
    return ""


def _holder(text: str, now: datetime) -> str:
    try:
        record = msgspec.json.decode(text, type=_Record)
    except msgspec.MsgspecError:
        return ""
    renewed = record.renew_time
    return record.holder_identity if renewed is not None and now - renewed < STALE else ""


def made_by_another(owner: Object, one: apps.StatefulSet) -> bool:
    """The StatefulSet is controlled by this owner, and nothing of it was applied by us yet."""
    controller = controller_of(one)
    ours = controller is not None and controller.uid == owner.metadata.uid
    return ours and APPLIED not in (one.metadata.annotations or {})


def has_labels(wanted: Mapping[str, str], one: Mapping[str, str] | None) -> bool:
    """All of these labels are there."""
    return wanted.items() <= (one or {}).items()


def pods_selector(one: apps.StatefulSet) -> str:
    """How the StatefulSet itself finds its pods."""
    selector = one.spec.selector if one.spec else None
    return ",".join(f"{key}={value}" for key, value in ((selector and selector.match_labels) or {}).items())


async def pods_of_set(client: Client, one: apps.StatefulSet) -> list[core.Pod]:
    """Its pods, by its own selector and asked of the API server: a cache has pods with our labels alone."""
    selector, namespace = pods_selector(one), one.metadata.namespace or ""
    found = await client.list(core.Pod, namespace=namespace, label_selector=selector)
    owners = ((pod, controller_of(pod)) for pod in found.items)
    return [pod for pod, owner in owners if owner is not None and owner.uid == one.metadata.uid]


async def label_pods(
    ctx: Context[Any], one: apps.StatefulSet, pods: Sequence[core.Pod], labels: Mapping[str, str]
) -> int:
    """Put labels on the set's pods that lack them, and on their claims; how many pods did."""
    found = [pod for pod in pods if not has_labels(labels, pod.metadata.labels)]
    templates = (one.spec.volume_claim_templates if one.spec else None) or ()
    for pod in found:
        name = pod.metadata.name or ""
        await _label(ctx, core.Pod, name, labels, uid=pod.metadata.uid)
        for claim in templates:
            await _label(ctx, core.PersistentVolumeClaim, claim_name(claim.metadata.name or "", name), labels)
    return len(found)


async def _label(
    ctx: Context[Any], kind: type[Object], name: str, labels: Mapping[str, str], *, uid: str | None = None
) -> None:
    body: dict[str, Any] = {"metadata": {"labels": dict(labels)}}
    if uid:
        body["metadata"]["uid"] = uid
    await ctx.client.patch(kind, name, MergePatch(body), namespace=ctx.key.namespace)


async def select_only(
    ctx: Context[Any], services: Iterable[core.Service | None], labels: Mapping[str, str]
) -> None:
    """Let Services select by these labels alone: an apply would leave others, which new pods do not all have."""
    for one in services:
        selector = (one.spec.selector if one is not None and one.spec else None) or {}
        if one is None or not (foreign := selector.keys() - labels.keys()):
            continue
        body = {
            "metadata": {"resourceVersion": one.metadata.resource_version},
            "spec": {"selector": {**labels, **dict.fromkeys(foreign)}},
        }
        await ctx.client.patch(
            core.Service, one.metadata.name or "", MergePatch(body), namespace=ctx.key.namespace
        )


def rolls_itself(one: apps.StatefulSet) -> bool:
    """Its controller replaces pods by itself, and the API server filled in how."""
    strategy = one.spec.update_strategy if one.spec else None
    return strategy is not None and strategy.rolling_update is not None


async def stop_rolling(ctx: Context[Any], one: apps.StatefulSet) -> None:
    """An apply cannot take a defaulted ``rollingUpdate`` away: beside OnDelete the API server refuses it."""
    body = {
        "metadata": {"resourceVersion": one.metadata.resource_version},
        "spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
    }
    await ctx.client.patch(
        apps.StatefulSet, one.metadata.name or "", MergePatch(body), namespace=ctx.key.namespace
    )


async def put_template(
    ctx: Context[Any], one: apps.StatefulSet, template: dict[str, Any], *, annotations: Mapping[str, str]
) -> None:
    """Replace a template as a whole: an apply would leave what other managers once put into it.

    Raises `Conflict` when the StatefulSet has changed since the cache saw it: look again.
    """
    name = one.metadata.name or ""
    live = ctx.client.get(apps.StatefulSet, name, namespace=ctx.key.namespace)
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": live.metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": live.metadata.resource_version},
        *(
            {"op": "add", "path": f"/metadata/annotations/{_escaped(key)}", "value": value}
            for key, value in annotations.items()
        ),
        {"op": "replace", "path": "/spec/template", "value": template},
    ]
    try:
        await ctx.client.patch(apps.StatefulSet, name, JsonPatch(operations), namespace=ctx.key.namespace)
    except Invalid as error:
        if error.causes:
            raise  # it names the fields of the template that break a rule
        # How the API server answers a test that fails.
        raise Conflict(error.message, status=409, reason="Conflict") from error


def _escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
