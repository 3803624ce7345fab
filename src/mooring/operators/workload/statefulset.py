"""A StatefulSet whose template is written by moves alone: what its objects say of it, and how it is declared meanwhile.

An annotation holds the digest of the declaration that the template in place was made from. It is compared with the digest
of the present one, never the template itself, so that another version of an operator restarts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mooring.kube.object import Key, Object, controller_of
from mooring.kube.objects import apps
from mooring.operators.workload.rollout import SetState

__all__ = ["keeping_template", "made_from", "selector_of", "set_key", "state_of"]


def made_from(found: apps.StatefulSet | None, annotation: str) -> str:
    """Digest of the declaration that the template in place was made from; "" of one that was made by hand."""
    return ((found.metadata.annotations if found is not None else None) or {}).get(annotation, "")


def selector_of(found: apps.StatefulSet | None) -> dict[str, str]:
    """The labels that a StatefulSet selects by, which cannot be changed; none where there is no StatefulSet."""
    spec = found.spec if found is not None else None
    return (spec.selector.match_labels if spec and spec.selector else None) or {}


def keeping_template(
    declared: apps.StatefulSet, found: apps.StatefulSet | None, annotation: str
) -> apps.StatefulSet:
    """``declared`` with the template in place, bound to the version that was found: nobody's newer one is taken back."""
    if found is None or found.spec is None or declared.spec is None:
        return declared
    annotations = {**(declared.metadata.annotations or {}), annotation: made_from(found, annotation)}
    version = found.metadata.resource_version
    return replace(
        declared,
        metadata=replace(declared.metadata, annotations=annotations, resource_version=version),
        spec=replace(declared.spec, template=found.spec.template),
    )


def state_of(found: apps.StatefulSet | None, *, replicas: int, asked: str, annotation: str) -> SetState:
    """What a roll-out is decided from; ``asked`` is the digest of the present declaration."""
    inputs, revision = made_from(found, annotation), ""
    if found is not None and found.status is not None:
        seen = found.status.observed_generation == found.metadata.generation
        revision = (found.status.update_revision or "") if seen else ""
    return SetState(
        replicas=replicas, update_revision=revision, current=inputs == asked, inputs=inputs, asked=asked
    )


def set_key(pod: Object) -> Iterable[Key]:
    """The key of the StatefulSet that controls a pod: for an operator whose objects bear their sets' names."""
    owner = controller_of(pod)
    if owner is not None and owner.kind == "StatefulSet":
        yield Key(pod.metadata.namespace or "", owner.name or "")
