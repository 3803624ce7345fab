"""The servers of bench/redis_world.py in the pods of a `ControlPlane`: for campaigns, in virtual time.

`Model` is told of pods by the simulated nodes; `in_memory` lets the operators' `Dial` reach its servers.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from bench.redis_world import Error, Sentinel, Server, Session, World
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as NoConnection

from mooring.kube import Key
from mooring.kube.objects.core import Pod
from mooring.operators.redis.dial import Address, Dial
from mooring.operators.redis.parameters import canonical
from mooring.operators.redis.sentinel.names import ROLE, cluster_of
from mooring.operators.redis.sentinel.topology import GATE
from mooring.operators.workload.configuration import parse_keys
from mooring.testing.changes import Change
from mooring.testing.monitors import Monitor, kept, owned
from mooring.testing.plane import ControlPlane

__all__ = ["Connection", "Model", "in_memory", "monitors", "of_servers"]

JsonObject = dict[str, Any]


class Model:
    """The servers and sentinels in a control plane's pods."""

    #: The cluster that an object with these labels belongs to.
    cluster_of: Callable[[dict[str, str] | None], str] = staticmethod(cluster_of)

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._ips: dict[str, str] = {}
        self.world = World(used=True)
        _models[:] = [self]
        #: What the servers did that they never may; see `monitors`.
        self.wrong: list[str] = []
        self.world.moved = self._look_for_two

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`."""
        uid, name, namespace = pod.metadata.uid or "", pod.metadata.name or "", pod.metadata.namespace or ""
        if uid in self._ips:
            return
        self._ips[uid] = ip
        cluster = f"{namespace}/{self.cluster_of(pod.metadata.labels)}"
        if "-sentinel-" in name:
            # As in its start script: a new pod of the name is the same sentinel to its peers.
            id = hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()
            self.world.sentinels[ip] = Sentinel(cluster, ip, my_id=id)
            return
        config = {canonical(key): value for key, value in self._config(pod).items()}
        config["replica-priority"] = "0"  # the arguments of every start
        config["requirepass"] = config["masterauth"] = self._password(pod)
        key = Key(namespace, name)
        self.world.servers[ip] = Server(cluster, ip, config, lambda: self._plane.pods.look(key))
        self.world.servers[ip].load(self._secret(pod, "users.conf"))

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        server = self.world.servers.get(ip)
        return server is None or server.master is None or server.master[0] != GATE.ip

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        ip = self._ips.pop(uid, "")
        self.world.servers.pop(ip, None)
        self.world.sentinels.pop(ip, None)

    def _look_for_two(self) -> None:
        """Two masters that take writes onto the same data: one of the two will be lost."""
        for cluster, masters in self.world.accepting().items():
            alike = [
                one
                for one in masters
                if any(set(one.data) & set(two.data) for two in masters if two is not one)
            ]
            if alike:
                named = " and ".join(sorted(one.ip for one in alike))
                self.wrong.append(f"two masters of one lineage take writes in {cluster}: {named}")

    def volume_of(self, pod: Pod, name: str) -> str:
        """What that volume lives as long as: its claim's uid, or the pod's own."""
        claims = self._plane.server.cluster.store.collection("persistentvolumeclaims")
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            if volume.name == name and volume.persistent_volume_claim is not None:
                claim = claims.get(
                    (pod.metadata.namespace or "", volume.persistent_volume_claim.claim_name or "")
                )
                return str(claim.obj["metadata"]["uid"]) if claim is not None else ""
        return pod.metadata.uid or ""

    def pods(self, namespace: str, cluster: str) -> list[JsonObject]:
        """A cluster's pods, but for those that leave."""
        found = [entry.obj for entry in self._plane.server.cluster.store.collection("pods")]
        ours = [one for one in found if self.cluster_of(one["metadata"].get("labels")) == cluster]
        return [one for one in ours if one["metadata"]["namespace"] == namespace and not _leaves(one)]

    def told(self) -> list[str]:
        """What the servers did that they never may, since this was asked last."""
        wrong, self.wrong = self.wrong, []
        return wrong

    def missing_without(self, pod: JsonObject) -> str:
        """What its cluster lacks once a pod is gone, or ""."""
        meta, world = pod["metadata"], self.world
        others = self.pods(meta["namespace"], self.cluster_of(meta.get("labels")))
        ips = {(one.get("status") or {}).get("podIP", "") for one in others} - {
            pod["status"].get("podIP", "")
        }
        if "-sentinel-" in meta["name"]:
            watching = [it for ip, it in world.sentinels.items() if ip in ips and it.master]
            quorum = max((int(it.settings["quorum"]) for it in watching), default=2)
            return "" if len(watching) >= quorum else f"no quorum of sentinels is left without {meta['name']}"
        servers = [it for ip, it in world.servers.items() if ip in ips]
        masters = [it for it in servers if it.master is None]
        if not masters:
            return f"no master is left without {meta['name']}"
        synced = any(one.ip in ips for one in world.followers(masters[0].ip))
        return "" if synced else f"no replica in sync is left without {meta['name']}"

    def _config(self, pod: Pod) -> dict[str, str]:
        """What a server reads at its start: the mounted files."""
        found: dict[str, str] = {}
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            data = self._data(pod, "configmaps", volume.config_map.name if volume.config_map else None)
            for file, text in sorted(data.items(), reverse=True):
                found |= parse_keys(text) if file.endswith(".conf") else {}
        return found

    def _password(self, pod: Pod) -> str:
        """The one it reads at its start; "" when there is none."""
        return self._secret(pod, "password")

    def _secret(self, pod: Pod, entry: str) -> str:
        """An entry of the cluster's Secret as pods mount it; "" when there is none."""
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            data = self._data(pod, "secrets", volume.secret.secret_name if volume.secret else None)
            if entry in data:
                return base64.b64decode(data[entry]).decode()
        return ""

    def _data(self, pod: Pod, resource: str, name: str | None) -> dict[str, str]:
        """What a ConfigMap or Secret holds; nothing when it is not there."""
        collection = self._plane.server.cluster.store.collection(resource)
        entry = collection.get((pod.metadata.namespace or "", name)) if name else None
        return (entry.obj.get("data") or {}) if entry else {}


_models: list[Model] = []


@contextmanager
def in_memory() -> Iterator[None]:
    """Every `Dial` reaches the servers of the newest `Model`, until the end of the block."""

    def connection(dial: Dial, address: Address, reply_timeout: float, **_: bool) -> Connection:
        return Connection(_models[-1].world, address)

    with mock.patch.object(Dial, "_connection", connection):
        yield


# --- what nobody may do


def monitors(*, outlives: Sequence[str] = ("configmaps redis-lineage-demo",)) -> tuple[Monitor, ...]:
    """For a workload with this model: what no operator may ever bring a cluster to.

    ``outlives`` are what it makes without an owner.
    """
    return *of_servers(outlives=outlives), _two_labels, _rolled


def of_servers(*, outlives: Sequence[str] = ()) -> tuple[Monitor, ...]:
    """The part of them that holds without sentinels and roles too."""
    return owned(but=outlives), kept("persistentvolumeclaims"), _wrong, _mounted


def _wrong(change: Change) -> str:
    """What the servers did, see `Model`: it is told with the next change of an object."""
    return "; ".join(dict.fromkeys(_models[-1].told()))


def _two_labels(change: Change) -> str:
    """Services send a master's clients to the pods that are labelled so; to one of them at most."""
    if change.resource != "pods" or not change.by:
        return ""
    meta = change.object["metadata"]
    pods = _models[-1].pods(meta["namespace"], _models[-1].cluster_of(meta.get("labels")))
    leading = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"].get(ROLE) == "master"]
    return f"labelled masters, all at once: {', '.join(leading)}" if len(leading) > 1 else ""


def _rolled(change: Change) -> str:
    """A pod that the operator deletes leaves a quorum of sentinels, a replica in sync, and is not the only master."""
    if change.resource != "pods" or not change.by.startswith("DELETE ") or _leaves(change.previous or {}):
        return ""
    return _models[-1].missing_without(change.object)


def _mounted(change: Change) -> str:
    """What a pod mounts stays: it could not be started again."""
    kind = {"configmaps": "configMap", "secrets": "secret"}.get(change.resource)
    if change.type != "DELETED" or not change.by or kind is None:
        return ""
    meta = change.object["metadata"]
    for pod in _models[-1].pods(meta["namespace"], _models[-1].cluster_of(meta.get("labels"))):
        sources = [volume.get(kind) or {} for volume in pod["spec"].get("volumes") or ()]
        if any(meta["name"] in (one.get("name"), one.get("secretName")) for one in sources):
            return f"deleted while {pod['metadata']['name']} mounts it: {change.resource} {meta['name']}"
    return ""


def _leaves(pod: JsonObject) -> bool:
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


class Connection:
    """As much of redis-py's connection as `Dial` uses."""

    def __init__(self, world: World, address: Address) -> None:
        self._world, self._address = world, address
        self._session: Session | None = None
        self._answers: deque[Any] = deque()

    def _answer(self, words: Sequence[str]) -> Any:
        try:
            self._session = self._session or self._world.session(*self._address)
            return self._session.answer(words)
        except KeyError:
            raise NoConnection("connection refused") from None

    async def connect_check_health(self) -> None:
        await asyncio.sleep(0)
        self._answer(["PING"])

    def pack_commands(self, commands: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        return list(commands)

    async def send_packed_command(self, commands: Sequence[Sequence[Any]]) -> None:
        for words in commands:
            said = [word if type(word) is str else _text(word) for word in words]
            self._answers.append(self._answer(said))

    async def send_command(self, *words: Any, check_health: bool = True) -> None:
        await self.send_packed_command([words])

    async def read_response(self, **_: Any) -> Any:
        if not self._answers:
            await asyncio.Event().wait()  # a subscriber to whom nothing happens
        answer = self._answers.popleft()
        if isinstance(answer, Error):
            raise BaseParser.parse_error(answer.text)  # type: ignore[no-untyped-call]
        return answer

    async def disconnect(self, *, nowait: bool = False) -> None:
        self._answers.clear()


def _text(word: object) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)
