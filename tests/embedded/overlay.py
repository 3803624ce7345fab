"""An overlay of pods in which each part depends on another: a pod is ready only if all of it works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from mooring.kube.objects.core import Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.objects.scheduling import PriorityClass
from mooring.testing.stage import Stage

__all__ = ["SIDECAR", "are_overlaid", "overlay", "priority"]

SIDECAR = "shipper"


def overlay(main: str, image: str, of_class: str | None = None) -> dict[str, Any]:
    """The server's hook writes a variable to a shared volume, and the sidecar is ready once it reads it there."""
    written = ["sh", "-c", 'printf "%s\\n" "$COLOUR" >/opt/shared/colour']
    return {
        "metadata": {"labels": {"tier": "gold"}},
        "spec": {
            "priorityClassName": of_class,
            "terminationGracePeriodSeconds": 180,
            "volumes": [{"name": "shared", "emptyDir": {}}],
            "containers": [
                {
                    "name": main,
                    "env": [{"name": "COLOUR", "value": "blue"}],
                    "volumeMounts": [{"name": "shared", "mountPath": "/opt/shared"}],
                    "livenessProbe": {"timeoutSeconds": 9},
                    "lifecycle": {"postStart": {"exec": {"command": written}}},
                },
                {
                    "name": SIDECAR,
                    "image": image,
                    "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"],
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared", "readOnly": True}],
                    "readinessProbe": {
                        "exec": {"command": ["grep", "-qx", "blue", "/shared/colour"]},
                        "periodSeconds": 1,
                    },
                },
            ],
        },
    }


@asynccontextmanager
async def priority(stage: Stage[Any]) -> AsyncIterator[str]:
    """A PriorityClass for the test's time; its name."""
    name = f"{stage.name}-first"
    await stage.bed.client.create(PriorityClass(metadata=ObjectMeta(name=name), value=1000))
    try:
        yield name
    finally:
        await stage.bed.client.delete(PriorityClass, name)


def are_overlaid(pods: Iterable[Pod], of_class: str | None = None) -> bool:
    """Every pod is ready with all of the overlay."""
    return all(_is_overlaid(pod, of_class) for pod in pods)


def _is_overlaid(pod: Pod, of_class: str | None) -> bool:
    if pod.spec is None or pod.status is None:
        return False
    ready = {one.name for one in pod.status.container_statuses or () if one.ready}
    return (
        {one.name for one in pod.spec.containers or ()} == ready
        and SIDECAR in ready
        and pod.spec.priority_class_name == of_class
        and pod.spec.termination_grace_period_seconds == 180
        and (pod.metadata.labels or {}).get("tier") == "gold"
    )
