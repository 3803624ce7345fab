"""A StatefulSet under OnDelete and its pod template, which only moves write: how it is declared, read and replaced.

An annotation holds the digest of the declaration that the template in place was made from. It is compared with the digest
of the present one, never the template itself, so that another version of an operator restarts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from mooring.actor import Context
from mooring.actor.children import Named
from mooring.kube.client import Client
from mooring.kube.object import Key, Object, controller_of, to_dict
from mooring.kube.objects import apps, core, meta
from mooring.operators.workload.adoption import put_template
from mooring.operators.workload.pods import main_container
from mooring.operators.workload.rollout import SetState

__all__ = [
    "apply_whole",
    "image_in",
    "is_current",
    "keeping_template",
    "kept_or_written",
    "kept_template",
    "made_from",
    "mounted_config_maps",
    "on_delete",
    "pending",
    "replicas_of",
    "revision_template",
    "selector_of",
    "set_key",
    "state_of",
]


# --- the declaration -----------------------------------------------------------------------------------------


def on_delete(
    metadata: meta.ObjectMeta,
    *,
    replicas: int | None,
    service: str,
    selector: dict[str, str],
    template: core.PodTemplateSpec,
    claims: list[core.PersistentVolumeClaim] | None,
    found: apps.StatefulSet | None,
) -> apps.StatefulSet:
    """A StatefulSet whose pods start in parallel and are replaced by the operator alone.

    It is bound to the version of ``found``: number of pods and template are taken from there, so that newer ones are not
    written over.
    """
    version = found.metadata.resource_version if found is not None else None
    return apps.StatefulSet(
        metadata=replace(metadata, resource_version=version),
        spec=apps.StatefulSetSpec(
            replicas=replicas,
            service_name=service,
            pod_management_policy="Parallel",
            update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
            selector=meta.LabelSelector(match_labels=selector),
            template=template,
            volume_claim_templates=claims,
        ),
    )


def keeping_template(
    declared: apps.StatefulSet, found: apps.StatefulSet | None, annotation: str
) -> apps.StatefulSet:
    """``declared`` with the template in place, bound to the version that was found: a newer one is not taken back."""
    if found is None or found.spec is None or declared.spec is None:
        return declared
    annotations = {**(declared.metadata.annotations or {}), annotation: made_from(found, annotation)}
    version = found.metadata.resource_version
    return replace(
        declared,
        metadata=replace(declared.metadata, annotations=annotations, resource_version=version),
        spec=replace(declared.spec, template=found.spec.template),
    )


def kept_or_written(
    one: apps.StatefulSet | None, made: core.PodTemplateSpec, *, rewrite: bool
) -> core.PodTemplateSpec:
    """The template to declare: the one in place, unless ``rewrite``. What was taken out of the declaration goes with it."""
    there = one.spec.template if one is not None and one.spec is not None else None
    return made if there is None or rewrite else there


def mounted_config_maps(
    sets: Iterable[apps.StatefulSet | apps.Deployment | None], pods: Iterable[core.Pod]
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


# --- what is there -------------------------------------------------------------------------------------------


def made_from(found: apps.StatefulSet | None, annotation: str) -> str:
    """Digest of the declaration that the template in place was made from; "" of one that was made by hand."""
    return ((found.metadata.annotations if found is not None else None) or {}).get(annotation, "")


def is_current(one: apps.StatefulSet | None, annotation: str, inputs: str) -> bool:
    """The template in place was made from these inputs, as far as the annotation with their digest tells."""
    return one is None or (one.metadata.annotations or {}).get(annotation) in (None, inputs)


def selector_of(found: apps.StatefulSet | None) -> dict[str, str]:
    """The labels that a StatefulSet selects by, which cannot be changed; none where there is no StatefulSet."""
    spec = found.spec if found is not None else None
    return (spec.selector.match_labels if spec and spec.selector else None) or {}


def image_in(found: apps.StatefulSet | None, component: str) -> str:
    """The main container's image in the template in place; "" where there is none."""
    template = found.spec.template if found is not None and found.spec is not None else None
    return (main_container(template.spec, component).image if template and template.spec else None) or ""


def replicas_of(found: apps.StatefulSet | None) -> int:
    """The number of pods it asks for; 0 where there is no StatefulSet."""
    return (found.spec.replicas if found is not None and found.spec is not None else None) or 0


def pending(one: apps.StatefulSet | None) -> bool:
    """Its controller has not seen what was last written to it, so its update revision may be the one before."""
    if one is None:
        return False
    seen = (one.status.observed_generation if one.status else None) or 0
    return seen < (one.metadata.generation or 0)


def state_of(found: apps.StatefulSet | None, *, replicas: int, asked: str, annotation: str) -> SetState:
    """What a roll-out is decided from; ``asked`` is the digest of the present declaration."""
    inputs, revision = made_from(found, annotation), ""
    if found is not None and found.status is not None and not pending(found):
        revision = found.status.update_revision or ""
    return SetState(
        replicas=replicas, update_revision=revision, current=inputs == asked, inputs=inputs, asked=asked
    )


def set_key(pod: Object) -> Iterable[Key]:
    """The key of the StatefulSet that controls a pod: for an operator whose objects bear their sets' names."""
    owner = controller_of(pod)
    if owner is not None and owner.kind == "StatefulSet":
        yield Key(pod.metadata.namespace or "", owner.name or "")


# --- templates of earlier revisions, and of other operators --------------------------------------------------


async def revision_template(client: Client, revision: str, *, namespace: str) -> dict[str, Any]:
    """The pod template that a ControllerRevision kept, as it was; raises `NotFound` when it is gone."""
    kept = await client.get(apps.ControllerRevision, revision, namespace=namespace)
    template = ((kept.data or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


async def kept_template(client: Client, revision: str, *, namespace: str) -> core.PodTemplateSpec:
    """The same, typed."""
    return msgspec.convert(
        await revision_template(client, revision, namespace=namespace), core.PodTemplateSpec
    )


async def apply_whole(ctx: Context[Any], objects: Iterable[Object], *, keep: Collection[Named]) -> None:
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
