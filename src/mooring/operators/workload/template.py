"""The life cycle of a StatefulSet's pod template: what refers to it, and its last good revision."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from mooring.actor import Context, differs
from mooring.kube.client import Client
from mooring.kube.object import Object, to_dict
from mooring.kube.objects import apps, core
from mooring.operators.workload.adoption import put_template

__all__ = [
    "apply_whole",
    "is_current",
    "kept_or_written",
    "kept_template",
    "mounted_config_maps",
    "pending",
]


def is_current(one: apps.StatefulSet | None, annotation: str, inputs: str) -> bool:
    """The template in place was made from these inputs, as far as the annotation with their digest tells."""
    return one is None or (one.metadata.annotations or {}).get(annotation) in (None, inputs)


def kept_or_written(
    one: apps.StatefulSet | None, made: core.PodTemplateSpec, *, rewrite: bool
) -> core.PodTemplateSpec:
    """The template to declare: the one in place, unless ``rewrite`` and the rendered one differs in meaning."""
    there = one.spec.template if one is not None and one.spec is not None else None
    if there is None:
        return made
    return made if rewrite and differs(made, there) else there


def pending(one: apps.StatefulSet | None) -> bool:
    """Its controller has not taken up what was last written to it, so its update revision may be the one before."""
    if one is None:
        return False
    taken_up = (one.status.observed_generation if one.status else None) or 0
    return taken_up < (one.metadata.generation or 0)


async def kept_template(client: Client, revision: str, *, namespace: str) -> core.PodTemplateSpec:
    """The pod template that a ControllerRevision kept; raises `NotFound` when it is gone."""
    kept = await client.get(apps.ControllerRevision, revision, namespace=namespace)
    template = ((kept.data or {}).get("spec") or {}).get("template") or {}
    return msgspec.convert(
        {name: value for name, value in template.items() if name != "$patch"}, core.PodTemplateSpec
    )


async def apply_whole(
    ctx: Context[Any], objects: Iterable[Object], *, keep: Collection[tuple[type[Object], str]]
) -> None:
    """Replace the templates of StatefulSets as a whole, after everything that their pods will mount was applied.

    For sets that another operator made: an apply would leave that one's fields in the template.
    """
    made = list(objects)
    rest = [one for one in made if not isinstance(one, apps.StatefulSet)]
    names = [(type(one), one.metadata.name or "") for one in made]
    await ctx.children.apply(ctx.children.diff(rest, keep=[*names, *keep]))
    for one in made:
        if isinstance(one, apps.StatefulSet) and one.spec is not None:
            template = to_dict(one.spec.template or core.PodTemplateSpec())
            await put_template(ctx, one, template, annotations=one.metadata.annotations or {})


def mounted_config_maps(
    sets: Iterable[apps.StatefulSet | None], pods: Iterable[core.Pod]
) -> list[tuple[type[Object], str]]:
    """ConfigMaps that a pod or a template in place refers to: content-named ones are kept as long."""
    specs = [one.spec.template.spec for one in sets if one and one.spec and one.spec.template]
    specs += [pod.spec for pod in pods]
    names = {
        volume.config_map.name
        for spec in specs
        for volume in (spec.volumes if spec else None) or ()
        if volume.config_map is not None and volume.config_map.name
    }
    return [(core.ConfigMap, name) for name in sorted(names)]
