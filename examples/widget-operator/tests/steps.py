"""The steps of a user, and what the simulated servers do."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from mooring.kube import Client, MergePatch
from mooring.kube.objects.core import Pod
from mooring.testing.plane import ControlPlane
from mooring.testing.pods import AlwaysReady

from widget_operator import Widget

Step = Callable[[Client], Awaitable[None]]


class Servers(AlwaysReady):
    """Pods are ready at once, but those of an image whose name has the word ``bad``."""

    def __init__(self, plane: ControlPlane) -> None:
        """One for each control plane."""

    def ready(self, pod: Pod, ip: str) -> bool:
        containers = (pod.spec.containers if pod.spec else None) or ()
        return not any("bad" in (one.image or "") for one in containers)


async def create(client: Client) -> None:
    body = {
        "apiVersion": Widget.resource.api_version,
        "kind": "Widget",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"replicas": 3},
    }
    await client.request("POST", Widget.resource.path(namespace="default"), body=msgspec.json.encode(body))


def edit(**spec: Any) -> Step:
    async def step(client: Client) -> None:
        await client.patch(Widget, "shop", MergePatch({"spec": spec}), namespace="default")

    return step


async def delete(client: Client) -> None:
    await client.delete(Widget, "shop", namespace="default")
