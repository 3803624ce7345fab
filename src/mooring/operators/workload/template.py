"""The life cycle of a StatefulSet's pod template: what refers to it, and its last good revision."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.kube.object import Object
from mooring.kube.objects import apps, core

__all__ = ["mounted_config_maps"]


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
