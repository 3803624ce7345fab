"""What the stories of ``mooring demo`` share: the manifest, how it is applied, and the line by line telling."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mooring.kube import ApplyPatch, Client, KubeError, NotFound, Object
from mooring.kube.objects.core import Pod
from mooring.local.directory import DataDirectory
from mooring.local.plane import Plane
from mooring.testing.errors import NotInTime

__all__ = ["DemoFailed", "Manifest", "OnPlane", "Show", "namespace_of", "ready_pods"]

T = TypeVar("T", bound=Object)


class DemoFailed(OSError):
    """What did not happen in time."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The file to apply: its documents, and the cluster among them that the story is about."""

    path: Path
    documents: tuple[dict[str, Any], ...]
    cluster: dict[str, Any]


class OnPlane:
    """What a stage needs of a bed, on the demo's own plane."""

    def __init__(self, plane: Plane, client: Client) -> None:
        self.plane, self.client = plane, client

    async def get(self, kind: type[T], name: str, namespace: str = "default") -> T:
        """An object."""
        return await self.client.get(kind, name, namespace=namespace)

    async def pods(self, namespace: str = "default", selector: str = "") -> list[Pod]:
        """The pods of a label selector."""
        return (await self.client.list(Pod, namespace=namespace, label_selector=selector)).items

    async def until(
        self, check: Callable[[], Awaitable[object]], what: str, *, within: float = 30.0, every: float = 0.02
    ) -> float:
        """Wait for something, at most so many seconds; gives how many it took. Raises `NotInTime`."""
        began = time.monotonic()
        while time.monotonic() - began < within:
            if await check():
                return time.monotonic() - began
            await asyncio.sleep(every)
        raise NotInTime(f"waited {within:.0f} s in vain for: {what}")

    def kill(self, namespace: str, pod: str, container: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to the program of a container; gives its process id."""
        pid = self.plane.agent.program_pid(namespace, pod, container)
        os.kill(pid, number)
        return pid


class Show(ABC):
    """A story, told line by line.

    ``program`` is how the user calls mooring; with ``stay`` the plane stays up once the story is told.
    """

    def __init__(self, directory: DataDirectory, manifest: Manifest, *, stay: bool, program: str) -> None:
        self._directory = directory
        self._manifest = manifest
        self._stay = stay
        self._program = program
        self._started = time.monotonic()
        #: What ended it before its end.
        self.failure: BaseException | None = None
        #: Everything promised has happened; from here on the demo only stays up.
        self.told = False

    @classmethod
    def missing(cls, manifest: Manifest) -> str:
        """What this machine lacks for the story, and how to get it; "" when it can be shown."""
        return ""

    def say(self, text: str) -> None:
        """One line, with the seconds since the start."""
        sys.stdout.write(f"[{time.monotonic() - self._started:6.1f} s] {text}\n")
        sys.stdout.flush()

    async def play(self, plane: Plane) -> None:
        """The whole story; a failure is kept in ``failure``."""
        try:
            await self._play(plane)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.failure = error

    async def _play(self, plane: Plane) -> None:
        self.say(f"control plane ready; data in {self._directory.path}")
        client = plane.client("kubectl")
        self.say(f"kubectl apply -f {self._manifest.path}")
        for document in self._manifest.documents:
            await _apply(client, document)
        await self.tell(plane, client)
        self.say("look around, from another terminal:")
        self.say(f"  export KUBECONFIG={self._directory.kubeconfig}")
        for line in self.farewell():
            self.say(line)
        self.told = True
        if self._stay:
            self.say("up until Ctrl-C")
            await asyncio.Event().wait()

    @abstractmethod
    async def tell(self, plane: Plane, client: Client) -> None:
        """The faults, and what they cost; raises `DemoFailed`."""

    @abstractmethod
    def farewell(self) -> Sequence[str]:
        """Commands to look around with."""


def namespace_of(document: dict[str, Any]) -> str:
    """Where an object of a manifest lives."""
    return document["metadata"].get("namespace") or "default"


def ready_pods(pods: Sequence[Pod]) -> int:
    """How many pods are ready."""
    return sum(
        any(
            one.type == "Ready" and one.status == "True"
            for one in (pod.status and pod.status.conditions) or ()
        )
        for pod in pods
    )


async def _apply(client: Client, document: dict[str, Any]) -> None:
    group, _, version = document["apiVersion"].rpartition("/")
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    name = f"{document['kind']} {document['metadata']['name']}"
    try:
        listing = msgspec.json.decode((await client.request("GET", base)).body)
        found = next((r for r in listing["resources"] if r["kind"] == document["kind"]), None)
        if found is None:
            raise DemoFailed(f"{name}: {document['apiVersion']} has no such kind")
        place = f"/namespaces/{namespace_of(document)}" if found["namespaced"] else ""
        await client.request(
            "PATCH",
            f"{base}{place}/{found['name']}/{document['metadata']['name']}",
            query={"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"},
            body=ApplyPatch(document).encode(),
            content_type=ApplyPatch.content_type,
        )
    except NotFound as error:
        raise DemoFailed(f"{name}: {error} (no {document['apiVersion']}, or no such namespace)") from error
    except KubeError as error:
        raise DemoFailed(f"{name}: {error}") from error
