"""StatefulSets that another operator made: what an apply cannot change about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.actor import Context
from mooring.kube.objects import apps
from mooring.kube.patches import JsonPatch, MergePatch

__all__ = ["put_template", "rolls_itself", "stop_rolling"]


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
    """Replace a template as a whole: an apply would leave what other managers once put into it."""
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
    await ctx.client.patch(apps.StatefulSet, name, JsonPatch(operations), namespace=ctx.key.namespace)


def _escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
