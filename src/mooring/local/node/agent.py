"""The node agent: makes this machine one node (or several) of the embedded control plane.

It registers the nodes, renews their Leases, runs the pods bound to them, keeps Service addresses and DNS
current, and answers what the API server asks of pods (:attr:`NodeAgent.gateway`) and of their use (:attr:`NodeAgent.meter`). Several nodes share one
machine and one network; that is for trying out what needs several, not for capacity.

Order: :meth:`NodeAgent.start` before the manager runs (it clears what a killed plane left and makes the
network), :meth:`NodeAgent.stop` while the manager and the API still serve, so that the ends of the pods are
reported.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import structlog

from mooring.cache.clock import rfc3339
from mooring.cache.informer import Informer
from mooring.cache.store import Transition
from mooring.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from mooring.kube.object import Key, Object, key_of, to_dict
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import (
    ConfigMap,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Secret,
    Service,
)
from mooring.kube.objects.core import Node as NodeObject
from mooring.kube.objects.discovery import EndpointSlice
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.kube.patches import MergePatch, StrategicMergePatch
from mooring.local.controllers.scheduler.requests import host_ports as ports_of
from mooring.local.controllers.scheduler.requests import ports_conflict
from mooring.local.node import machine
from mooring.local.node.cgroups import detect
from mooring.local.node.cleanup import clean, end_leftovers, plane_id, sweep
from mooring.local.node.dns import DnsServer, Zone, machine_resolvers
from mooring.local.node.gateway import Gateway
from mooring.local.node.hostports import HostPorts
from mooring.local.node.images import Catalog
from mooring.local.node.imagestore import StoreError
from mooring.local.node.logs import LogPump
from mooring.local.node.network import Network, NetworkConfig
from mooring.local.node.nft import NftError
from mooring.local.node.node import Node, Settings
from mooring.local.node.pod import PodWorker
from mooring.local.node.rootfs import Tools
from mooring.local.node.rootless import inside
from mooring.local.node.services import Backend, Frontend, ServiceTable, host_ports, wanted
from mooring.local.node.spawner import Spawner
from mooring.local.node.tokens import issue_from
from mooring.local.node.usage import Meter
from mooring.local.node.volumes import memory_directory
from mooring.local.removal import remove_tree
from mooring.runtime.controller import Controller, Done, Result
from mooring.runtime.process import Manager

__all__ = ["NodeAgent"]

log = structlog.get_logger("mooring.node")

LEASE_NAMESPACE = "kube-node-lease"
_LEASE_SECONDS, _RENEW_SECONDS = 40, 10.0
_SETTLE = 0.002
#: Seconds beyond the pods' grace after which a stopping agent no longer waits for them.
_STOP_SLACK = 10.0
_POD_RANGE, _SERVICE_RANGE = IPv4Network("10.99.0.0/16"), IPv4Network("10.96.0.0/16")
_DNS = IPv4Address("10.96.0.10")


@dataclass(frozen=True, slots=True)
class _CachedSources:
    """Reads what pods refer to from the informers."""

    config_maps: Informer[ConfigMap]
    secrets: Informer[Secret]
    claims: Informer[PersistentVolumeClaim]
    volumes: Informer[PersistentVolume]
    service_objects: Informer[Service]

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self.config_maps.get(Key(namespace, name))

    def secret(self, namespace: str, name: str) -> Secret | None:
        return self.secrets.get(Key(namespace, name))

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(Key(namespace, name))

    def volume(self, name: str) -> PersistentVolume | None:
        return self.volumes.get(Key("", name))

    def services(self, namespace: str) -> list[Service]:
        return self.service_objects.list(namespace)


class NodeAgent:
    """The agent of all nodes of a plane.

    ``names``: the nodes', by default the host's name. ``zones``: theirs in turn. ``data_dir``: volumes that live as long as a pod, logs,
    locks. ``pod_cidr``, ``service_cidr``, ``dns_address``: the plane's ranges, which several planes on one
    machine must choose apart. ``version``: shown as the container runtime's.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        data_dir: Path,
        names: Sequence[str] = (),
        zones: Sequence[str] = (),
        pod_cidr: IPv4Network = _POD_RANGE,
        service_cidr: IPv4Network = _SERVICE_RANGE,
        dns_address: IPv4Address = _DNS,
        domain: str = "cluster.local",
        catalog: Catalog | None = None,
        settings: Settings | None = None,
        max_pods: int = 250,
        version: str = "0.1.0",
    ) -> None:
        self._manager, self._clock, self._version = manager, manager.clock, version
        self.data_dir = data_dir.resolve()
        self.names = tuple(names) or (socket.gethostname().lower(),)
        self._zones = {name: zones[index % len(zones)] for index, name in enumerate(self.names) if zones}
        self.network = Network(
            NetworkConfig(
                plane=plane_id(data_dir),
                pod_cidr=pod_cidr,
                service_cidr=service_cidr,
                dns_address=dns_address,
                nodes=len(self.names),
                cursor=self.data_dir / "network-cursor",
            )
        )
        self.gateway = Gateway(self.worker)
        self._settings, self._max_pods = settings or Settings(), max_pods
        self._catalog, self._domain = catalog or Catalog(), domain
        self._spawner, self._logs = Spawner(), LogPump()
        self.meter = Meter()
        self._images_shown = (0, 0)
        self._nodes: dict[str, Node] = {}
        self._workers: dict[str, PodWorker] = {}
        self._by_key: dict[Key, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._silent: set[str] = set()
        self._services_changed = asyncio.Event()
        self._table = ServiceTable(self.network.config.table)
        self._host_ports = HostPorts()
        self._refused: set[Frontend] = set()
        self._watch(manager)
        self._dns = DnsServer(self.zone, dns_address, upstream=() if inside() else machine_resolvers())
        # One key, one pass at a time, is not needed: a pass only hands the object to its worker.
        self._controller = Controller("node-pods", self._reconcile, workers=2)
        self._controller.watch(self._pods)
        manager.add(self._controller)
        manager.serve("node-leases", self._keep_leases)
        manager.serve("node-services", self._keep_services)
        manager.serve("node-metrics", self._keep_measuring)

    # --- life

    async def start(self) -> None:
        """Clear what a killed plane left, make the network, listen for DNS, register the nodes."""
        require_programs()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # Secrets of pods lie below, readable by whatever user a container runs as: for nobody else's eyes.
        self.data_dir.chmod(0o700)
        for gone in await asyncio.to_thread(self._clean):
            log.info("removed what an earlier plane left", what=gone)
        await self.network.start()
        try:
            await self._start_nodes()
        except BaseException:
            await self._stop_network()
            raise

    def _clean(self) -> list[str]:
        return clean(self.data_dir, self.network.config) + sweep()

    async def _start_nodes(self) -> None:
        await self._dns.start()
        cgroups = await asyncio.to_thread(detect, self.network.config.plane)
        tools = Tools(self.data_dir / "tools")
        allocatable = machine.capacity(self.data_dir, pods=self._max_pods)
        for index, name in enumerate(self.names):
            self._nodes[name] = Node(
                name=name,
                plane=self.network.config.plane,
                address=self.network.config.node_address(index),
                data_dir=self.data_dir,
                clock=self._clock,
                client=self._manager.client,
                events=self._manager.events,
                sources=self._sources,
                tokens=issue_from(self._manager.client.live),
                spawner=self._spawner,
                logs=self._logs,
                catalog=self._catalog,
                network=self.network,
                tools=tools,
                cgroups=cgroups,
                settings=self._settings,
                allocatable=allocatable,
                domain=self._domain,
            )
            await self._register(self._nodes[name])
        await self._remove_former_nodes()

    async def stop(self) -> None:
        """End all pods gracefully, together and within a bound; objects and data stay."""
        self._stopping = True
        workers = list(self._workers.values())
        for worker in workers:
            worker.shut_down(self._settings.stop_grace_cap)
        ends = [asyncio.create_task(worker.ended.wait()) for worker in workers]
        if ends:
            _, late = await asyncio.wait(ends, timeout=self._settings.stop_grace_cap + _STOP_SLACK)
            if late:  # their processes die with this one
                log.error("pods did not end in time", pods=len(late))
        for task in (*ends, *self._tasks):
            task.cancel()
        await asyncio.gather(*ends, *self._tasks, return_exceptions=True)
        await self._stop_network()

    async def _stop_network(self) -> None:
        await self._dns.stop()
        await self._table.close()
        self._host_ports.close()
        await self.network.stop()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._spawner.close()
        self._logs.close()
        for node in list(self._nodes.values())[:1]:
            node.cgroups.remove_all()
        # As after a reboot of a real node: what was in memory is gone, what is on disk stays.
        with suppress(OSError):
            remove_tree(memory_directory(self.network.config.plane))

    # --- for tests of faults, and for those who want to look

    def worker(self, key: Key) -> PodWorker | None:
        """The worker of the newest pod of that name."""
        return self._workers.get(self._by_key.get(key, ""))

    def pod_address(self, namespace: str, pod: str) -> IPv4Address:
        """A pod's IP; raises LookupError."""
        worker = self.worker(Key(namespace, pod))
        if worker is None or not worker.address:
            raise LookupError(f"pod {namespace}/{pod} has no address on this node")
        return IPv4Address(worker.address)

    def program_pid(self, namespace: str, pod: str, container: str = "") -> int:
        """The pid of a container's program, for kill -9, SIGSTOP ...; raises LookupError."""
        worker = self.worker(Key(namespace, pod))
        pid = worker.container(container).program_pid if worker else None
        if pid is None:
            raise LookupError(f"container {container!r} of pod {namespace}/{pod} does not run")
        return pid

    async def cut_pods(
        self, some: Iterable[tuple[str, str]], others: Iterable[tuple[str, str]] | None = None
    ) -> None:
        """Drop all packets between two groups of pods (namespace, name); ``others`` None: from the machine."""
        far = self.network.host_addresses() if others is None else [self.pod_address(*pod) for pod in others]
        await self.network.cut([self.pod_address(*pod) for pod in some], far)

    async def heal(self) -> None:
        """End all cuts."""
        await self.network.heal()

    def silence(self, name: str, *, silent: bool = True) -> None:
        """Make a node stop (or begin again) to renew its Lease and to report, as if its agent had hung."""
        (self._silent.add if silent else self._silent.discard)(name)
        node = self._nodes[name]
        (node.reporting.clear if silent else node.reporting.set)()

    # --- pods

    async def _reconcile(self, key: Key) -> Result:
        pod = self._pods.get(key)
        worker = self.worker(key)
        if worker is not None and (pod is None or pod.metadata.uid != worker.uid):
            worker.vanished()
            del self._by_key[key]
            worker = None
        if pod is None or self._stopping:
            return Done()
        if worker is not None:
            worker.update(pod)
        elif (node := self._nodes.get((pod.spec.node_name if pod.spec else None) or "")) is not None:
            self._begin(key, pod, node)
        return Done()

    def _begin(self, key: Key, pod: Pod, node: Node) -> None:
        worker = PodWorker(node, pod, refused=self._refusal(pod, node))
        self._workers[worker.uid] = worker
        self._by_key[key] = worker.uid
        worker.start()
        self._fork(self._forget(key, worker))

    def _refusal(self, pod: Pod, node: Node) -> tuple[str, str] | None:
        """Reason and message when the node cannot take a pod, which the scheduler did not place."""
        others = (each for each in self._workers.values() if each.node is node and each.lives)
        taken = [port for each in others for port in ports_of(each.view.pod)]
        if not ports_conflict(ports_of(pod), taken):
            return None
        free = "node(s) didn't have free ports for the requested pod ports"
        return "NodePorts", f"Pod was rejected: Predicate NodePorts failed: {free}"

    async def _forget(self, key: Key, worker: PodWorker) -> None:
        await worker.ended.wait()
        self._workers.pop(worker.uid, None)
        for pid in await asyncio.to_thread(end_leftovers, self.data_dir, worker.uid):
            log.warning("a process of a pod was still there after its end", pod=key.name, pid=pid)
        if self._by_key.get(key) == worker.uid:
            del self._by_key[key]
            # A successor of the same name may have come while this one ended.
            self._controller.enqueue(key)

    # --- Services, DNS, what pods refer to

    def _watch(self, manager: Manager) -> None:
        informers = manager.informers
        self._pods = informers.of(Pod)
        self._slices = informers.of(EndpointSlice)
        self._sources = _CachedSources(
            informers.of(ConfigMap),
            informers.of(Secret),
            informers.of(PersistentVolumeClaim),
            informers.of(PersistentVolume),
            informers.of(Service),
        )
        namespaces = informers.of(Namespace)
        self.zone = Zone(
            self._domain,
            self._sources.service_objects.list,
            self._slices.list,
            lambda: [each.metadata.name or "" for each in namespaces.list()],
        )
        for informer in (self._sources.service_objects, self._slices, namespaces):
            informer.add_handler(self._on_service_change)
        self._pods.add_handler(self._on_pod_change)
        for referred in (
            self._sources.config_maps,
            self._sources.secrets,
            self._sources.claims,
            self._sources.volumes,
        ):
            referred.add_handler(self._on_referred_change)

    def _on_pod_change(self, change: Transition[Pod]) -> None:
        both = [pod.spec for pod in (change.old, change.new) if pod is not None and pod.spec is not None]
        ports = (port for spec in both for c in spec.containers or () for port in c.ports or ())
        if any(port.host_port for port in ports):
            self._services_changed.set()

    def _on_service_change(self, change: Transition[Any]) -> None:
        self.zone.changed()
        self._services_changed.set()

    def _on_referred_change(self, change: Transition[Any]) -> None:
        reference = (type(change.object), change.key.name)
        for key, uid in self._by_key.items():
            if change.key.namespace in ("", key.namespace) and (worker := self._workers.get(uid)):
                pod = worker.view.pod
                if isinstance(change.object, PersistentVolume) or reference in references(pod):
                    worker.objects_changed()

    async def _keep_services(self) -> None:
        while True:
            await self._services_changed.wait()
            await asyncio.sleep(_SETTLE)
            self._services_changed.clear()
            try:
                nodes = {name: node.address for name, node in self._nodes.items()}
                services = self._sources.service_objects.list()
                table = wanted(services, self._slices.list(), nodes=tuple(nodes.values()))
                await self._table.sync(self._open_host_ports(nodes) | table)
            except NftError as error:
                log.error("Service addresses could not be updated", error=str(error))
                await self._clock.sleep(1.0)
                self._services_changed.set()

    def _open_host_ports(self, nodes: Mapping[str, IPv4Address]) -> dict[Frontend, tuple[Backend, ...]]:
        """The host ports of all pods but those that a program of the machine has, which an event says."""
        pods = self._pods.list()
        asked = host_ports(pods, nodes)
        held = self._host_ports.hold(asked)
        refused = asked.keys() - held
        for pod in pods if refused - self._refused else ():
            for port in sorted(host_ports([pod], nodes).keys() & (refused - self._refused)):
                text = f"host port {port.address}:{port.port} is in use by a program of this machine: it leads nowhere"
                self._manager.events.warning(pod, "HostPortConflict", text)
        self._refused = refused
        return {port: backends for port, backends in asked.items() if port in held}

    async def _keep_measuring(self) -> None:
        while True:
            runners = [r for worker in self._workers.values() for r in (*worker.init, *worker.main)]
            running = [each for runner in runners if (each := runner.measured) is not None]
            now, time = self._clock.monotonic(), self._clock.now()
            await asyncio.to_thread(self.meter.look, running, self.names, now=now, time=time)
            await self._clock.sleep(self._settings.metrics_period)

    # --- the nodes themselves

    async def _register(self, node: Node) -> None:
        annotations = {"mooring.dev/limits": node.cgroups.says}
        if inside():
            annotations["mooring.dev/network"] = "pods have no way out of this machine (plain user)"
        client = self._manager.client.as_manager("mooring-node").live
        made = await client.apply(
            machine.node_object(node.name, annotations=annotations, zone=self._zones.get(node.name, ""))
        )
        status = machine.node_status(
            node.name,
            node.address,
            dict(node.allocatable),
            now=self._clock.now(),
            version=self._version,
        )
        patch = {"status": to_dict(status)}
        await client.patch(NodeObject, node.name, StrategicMergePatch(patch), subresource="status")
        await self._renew(node.name, uid=made.metadata.uid or "")

    async def _show_images(self) -> None:
        """List the loaded images in the nodes' status, when they are others than before."""
        store = self._catalog.store
        if store is None or store.state() == self._images_shown:
            return
        state = store.state()
        try:
            images = machine.images_shown(await asyncio.to_thread(store.images))
        except StoreError as error:
            log.error("the loaded images cannot be read", error=str(error))
            return
        patch = MergePatch({"status": {"images": [to_dict(image) for image in images] or None}})
        client = self._manager.client.as_manager("mooring-node").live
        for name in self.names:
            await client.patch(NodeObject, name, patch, subresource="status")
        self._images_shown = state

    async def _keep_leases(self) -> None:
        self._fork(self._remove_strangers())
        while True:
            await self._try(self._show_images())
            await self._clock.sleep(_RENEW_SECONDS)
            for name in self.names:
                if name in self._silent:
                    continue
                try:
                    await self._renew(name)
                    await self._be_ready(name)
                except NotFound:
                    await self._try(self._register(self._nodes[name]))
                except KubeError as error:
                    log.warning("a node's Lease was not renewed", node=name, error=str(error))

    async def _be_ready(self, name: str) -> None:
        """Post a node's status again when it is said not to be ready: this process stood still, and is back."""
        found = await self._manager.client.live.get(NodeObject, name)
        conditions = (found.status.conditions or ()) if found.status is not None else ()
        if any(each.type == "Ready" and each.status != "True" for each in conditions):
            log.info("posting the status of a node that was marked as silent", node=name)
            await self._register(self._nodes[name])

    async def _remove_former_nodes(self) -> None:
        """Remove nodes that this agent had when it was started with other names, with their pods.

        Nothing of those pods runs any more; their owners make them anew, on a node that exists.
        """
        client = self._manager.client.live
        for node in (await client.list(NodeObject, label_selector=f"{machine.OWN_LABEL}=true")).items:
            name = node.metadata.name or ""
            if name in self.names:
                continue
            log.info("removing a node of an earlier start", node=name)
            for pod in (await client.list(Pod, field_selector=f"spec.nodeName={name}")).items:
                key, uid = key_of(pod), pod.metadata.uid
                with suppress(NotFound, Conflict):
                    await client.delete(Pod, key.name, namespace=key.namespace, uid=uid, grace_period=0)
            with suppress(NotFound, Conflict):
                await client.delete(NodeObject, name, uid=node.metadata.uid)

    async def _try(self, work: Any) -> None:
        try:
            await work
        except KubeError as error:
            log.warning("a node could not be brought up to date", error=str(error))

    async def _renew(self, name: str, *, uid: str = "") -> None:
        now = rfc3339(self._clock.now(), micro=True)
        client = self._manager.client.live
        if uid:
            owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=uid)
            lease = Lease(
                metadata=ObjectMeta(name=name, namespace=LEASE_NAMESPACE, owner_references=[owner]),
                spec=LeaseSpec(holder_identity=name, lease_duration_seconds=_LEASE_SECONDS, renew_time=now),
            )
            try:
                await client.create(lease)
            except AlreadyExists:
                pass
            else:
                return
        patch = {"spec": {"renewTime": now, "holderIdentity": name}}
        await client.patch(Lease, name, MergePatch(patch), namespace=LEASE_NAMESPACE)

    async def _remove_strangers(self) -> None:
        """Delete the files of pods that were deleted while no agent ran."""
        known = {pod.metadata.uid or "" for pod in self._pods.list()} | self._workers.keys()
        await asyncio.to_thread(_remove_others, self.data_dir, known)

    def _fork(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def require_programs() -> None:
    """Refuse to start without the tools every pod needs; raises RuntimeError naming the packages."""
    needed = {
        "/usr/bin/bwrap": "bubblewrap",
        "/usr/bin/setpriv": "util-linux",
        "/usr/bin/setsid": "util-linux",
    }
    missing = [package for path, package in needed.items() if not Path(path).exists()]
    if shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        missing.append("nftables")
    if missing:
        names = " ".join(dict.fromkeys(missing))
        raise RuntimeError(
            f"pods need the Debian packages {names}: apt-get install --no-install-recommends {names}"
        )


def references(pod: Pod) -> set[tuple[type[Object], str]]:
    """The ConfigMaps, Secrets and claims that a pod's volumes name."""
    found: set[tuple[type[Object], str]] = set()
    for volume in (pod.spec.volumes if pod.spec else None) or ():
        if volume.config_map is not None:
            found.add((ConfigMap, volume.config_map.name or ""))
        if volume.secret is not None:
            found.add((Secret, volume.secret.secret_name or ""))
        if volume.persistent_volume_claim is not None:
            found.add((PersistentVolumeClaim, volume.persistent_volume_claim.claim_name or ""))
        if volume.ephemeral is not None:
            found.add((PersistentVolumeClaim, f"{pod.metadata.name}-{volume.name}"))
        for source in (volume.projected.sources if volume.projected else None) or ():
            if source.config_map is not None:
                found.add((ConfigMap, source.config_map.name or ""))
            if source.secret is not None:
                found.add((Secret, source.secret.name or ""))
    return found


def _remove_others(data_dir: Path, known: set[str]) -> None:
    for base in (data_dir / "pods", data_dir / "logs"):
        for entry in base.iterdir() if base.is_dir() else ():
            if entry.name.rpartition("_")[2] not in known:
                with suppress(OSError):
                    remove_tree(entry)
