"""The servers of the memcached example, in memory: for its tests and campaigns, in virtual time.

`Servers` is told of pods by the simulated nodes; `InMemory` is the operator's dial to the servers of the newest one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.kube import Client
from mooring.kube.objects import apps, core, meta
from mooring.kube.objects.core import Pod
from mooring.testing.changes import Change
from mooring.testing.plane import ControlPlane

__all__ = ["InMemory", "Running", "Servers", "by_hand", "newest", "one_at_a_time", "settled"]

if (_example := str(Path(__file__).resolve().parents[1] / "examples" / "memcached-operator")) not in sys.path:
    sys.path.append(_example)

from memcached_operator.dial import Dial, DialError, Server

BAD = "bad"
"""A word in an image's name: such a server never becomes ready."""


@dataclass
class Running:
    """One server."""

    pod: str
    memory_megabytes: int = 64
    verbosity: int = 0
    commands: list[str] = field(default_factory=list)
    """Changes it was asked for, in order."""
    refuses: str = ""
    """What it answers to changes instead of OK."""


class Servers:
    """The servers in a control plane's pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self.store = plane.server.cluster.store
        self._ips: dict[str, str] = {}
        self.running: dict[str, Running] = {}
        """By address."""
        _newest[:] = [self]

    def of(self, pod: str) -> Running:
        """The server of a pod."""
        return next(one for one in self.running.values() if one.pod == pod)

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`: it reads the options in its ConfigMap."""
        uid = pod.metadata.uid or ""
        if uid in self._ips:
            return
        self._ips[uid] = ip
        options = self._live(pod).split()
        memory = options[options.index("-m") + 1] if "-m" in options else "64"
        self.running[ip] = Running(
            pod.metadata.name or "", memory_megabytes=int(memory), verbosity=options.count("-v")
        )

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        return not any(BAD in (one.image or "") for one in (pod.spec.containers if pod.spec else None) or ())

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        self.running.pop(self._ips.pop(uid, ""), None)

    def _live(self, pod: Pod) -> str:
        maps = self.store.collection("configmaps")
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            if volume.config_map is not None:
                entry = maps.get((pod.metadata.namespace or "", volume.config_map.name or ""))
                return str(entry.obj["data"]["live"]) if entry is not None else ""
        return ""


_newest: list[Servers] = []


def newest() -> Servers:
    """Those of the present run."""
    return _newest[-1]


class InMemory(Dial):
    """Reaches the servers of the newest `Servers`."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    async def look(self, ip: str) -> Server:
        """See `Dial.look`."""
        server = _server(ip)
        return Server(server.memory_megabytes, server.verbosity)

    async def change(self, ip: str, command: str) -> None:
        """See `Dial.change`."""
        server = _server(ip)
        server.commands.append(command)
        if server.refuses:
            raise DialError(f"{command}: {server.refuses}")
        word, value = command.split(" ")
        if word == "cache_memlimit":
            server.memory_megabytes = int(value)
        else:
            server.verbosity = int(value)


def _server(ip: str) -> Running:
    found = newest().running.get(ip)
    if found is None:
        raise DialError("no route to host")
    return found


async def by_hand(client: Client) -> None:
    """A user's step: a StatefulSet of their own, labelled to be adopted."""
    labels = {"app": "cache"}
    pod = core.PodSpec(containers=[core.Container(name="cache", image="memcached:1.5", args=["-m", "32"])])
    made = apps.StatefulSet(
        metadata=meta.ObjectMeta(
            name="shop",
            namespace="default",
            labels={"app.kubernetes.io/name": "shop", "app.kubernetes.io/managed-by": "memcached-operator"},
        ),
        spec=apps.StatefulSetSpec(
            replicas=2,
            service_name="cache",
            selector=meta.LabelSelector(match_labels=labels),
            template=core.PodTemplateSpec(metadata=meta.ObjectMeta(labels=labels), spec=pod),
        ),
    )
    await client.create(made)


# --- what nobody may do


def one_at_a_time(change: Change) -> str:
    """A monitor: the operator deletes a pod that serves only while all others of the set serve."""
    before = change.previous
    if (
        change.resource != "pods"
        or not change.by.startswith("DELETE")
        or before is None
        or not _serves(before)
    ):
        return ""
    store = newest().store
    found = store.collection("statefulsets.apps").get(("default", "shop"))
    if found is None:
        return ""
    gone = change.object["metadata"]["uid"]
    pods = [entry.obj for entry in store.collection("pods") if entry.obj["metadata"]["uid"] != gone]
    others = sum(map(_serves, pods))
    wanted = found.obj["spec"]["replicas"] - 1
    return f"a pod is deleted while {others} of {wanted} others serve" if others < wanted else ""


def settled(change: Change) -> str:
    """A monitor: an object that is called in sync has servers with the declared settings."""
    if change.resource != "memcacheds.examples.mooring.dev" or change.type == "DELETED":
        return ""
    meta_, spec, status = change.object["metadata"], change.object["spec"], change.object.get("status") or {}
    said = {one["type"]: one for one in status.get("conditions") or ()}
    at_rest = said.get("Progressing", {}).get("reason") == "InSync"
    if not at_rest or status.get("observedGeneration") != meta_["generation"]:
        return ""
    wanted = (spec["memoryMegabytes"], spec["verbosity"])
    wrong = [one.pod for one in newest().running.values() if (one.memory_megabytes, one.verbosity) != wanted]
    return f"called in sync with other settings on {', '.join(wrong)}" if wrong else ""


def _serves(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
