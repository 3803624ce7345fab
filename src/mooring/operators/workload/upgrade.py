"""What another version of an operator would roll: pod templates as it renders them beside those in force.

An upgrade of an operator writes no template. The user's next change does, and everything that this version renders
differently comes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from mooring.actor import differs
from mooring.kube.objects import apps, core, meta
from mooring.kube.part import Part

__all__ = ["Planned", "compare", "differences"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What the user's next change would do to the pods of one component.

    ``fields`` are those that this version renders differently; ``waiting`` says that such a change was made already,
    so that they roll now; ``steps`` are those of an upgrade of the servers that is declared and not done;
    ``trouble`` is why nothing can be said.
    """

    component: str
    fields: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    waiting: bool = False
    trouble: str = ""


def compare(
    component: str, *, wanted: apps.StatefulSet, live: apps.StatefulSet | None, waiting: bool
) -> Planned:
    """Compare the rendered template of a component with the one in force."""
    made = wanted.spec.template if wanted.spec else None
    there = live.spec.template if live is not None and live.spec else None
    if made is None or there is None:
        return Planned(component=component, trouble="has no pods yet")
    return Planned(component=component, fields=tuple(differences(made, there)), waiting=waiting)


def differences(wanted: core.PodTemplateSpec, live: core.PodTemplateSpec) -> Iterator[str]:
    """The paths of what differs in meaning, each container and each field of the pod by itself."""
    if wanted.metadata is not None:
        yield from (
            f"metadata.{field}" for field in _each(wanted.metadata, live.metadata or meta.ObjectMeta())
        )
    pod, there = wanted.spec, live.spec
    if pod is None or there is None:
        return
    for kind in ("init_containers", "containers"):
        named = {one.name: one for one in getattr(there, kind) or ()}
        for container in getattr(pod, kind) or ():
            place = f"{'initContainers' if kind == 'init_containers' else 'containers'}[{container.name}]"
            if container.name not in named:
                yield f"spec.{place}"
                continue
            yield from (f"spec.{place}.{field}" for field in _each(container, named[container.name]))
    rest = msgspec.structs.replace(pod, containers=None, init_containers=None)
    yield from (f"spec.{field}" for field in _each(rest, there))


def _each(wanted: Part, live: Part) -> Iterator[str]:
    """The fields that are set and differ, by their names in JSON."""
    nothing = dict.fromkeys(wanted.__struct_fields__)
    for name, shown in zip(wanted.__struct_fields__, wanted.__struct_encode_fields__, strict=True):
        value = getattr(wanted, name)
        if value is not None and differs(type(wanted)(**{**nothing, name: value}), live):
            yield shown
