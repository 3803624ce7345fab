"""A pod on this node: from its network to its end, and the status it shows meanwhile.

One worker per pod. Its life is a coroutine (network, volumes, init containers, main containers); asking it to
stop cancels that and ends the containers. Whatever changes wakes the reporter, which sends the difference to
the status the API knows, at once, one request at a time.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from mooring.cache.clock import rfc3339
from mooring.kube.errors import ApiError, Conflict, KubeError, NotFound
from mooring.kube.objects.core import Container, ContainerStatus, Pod, PodSpec
from mooring.kube.patches import StrategicMergePatch
from mooring.local.node.container import ContainerRunner, PodView
from mooring.local.node.environment import hostname
from mooring.local.node.fields import FieldError
from mooring.local.node.network import PodNetwork
from mooring.local.node.nft import NftError
from mooring.local.node.node import Node
from mooring.local.node.sources import Missing
from mooring.local.node.staging import Mount
from mooring.local.node.status import Situation, is_sidecar, status_of, status_patch
from mooring.local.node.tokens import PodTokens
from mooring.local.node.volumes import PodVolumes, VolumeBusy, VolumeError
from mooring.local.removal import remove_tree

__all__ = ["PodWorker"]

log = structlog.get_logger("mooring.node")

_RETRY_CAP = 2.0
_DEFAULT_GRACE = 30
_LAST_REPORT = 5.0
_TOKEN_RETRY = 30.0


class PodWorker:
    """Runs one pod; made once per UID."""

    def __init__(self, node: Node, pod: Pod, *, refused: tuple[str, str] | None = None) -> None:
        """``refused``: reason and message of a pod that this node does not take; it fails at once."""
        self.node = node
        self.uid = pod.metadata.uid or ""
        directory = node.pod_directory(self.uid)
        security = pod.spec.security_context if pod.spec else None
        self._tokens = PodTokens(node.tokens, node.clock)
        volumes = PodVolumes(
            directory=directory / "volumes",
            locks_directory=node.data_dir / "locks",
            plane=node.plane,
            sources=node.sources,
            token=self._tokens.value,
            group=security.fs_group if security else None,
        )
        self.view = PodView(node=node, pod=pod, volumes=volumes, changed=self._changed)
        self._directory = directory
        self._network: PodNetwork | None = None
        self._ready_to_start = self._initialized = self._all_ended = False
        self._verdict: tuple[str, str, str] | None = None
        self._refused = refused
        self._start_time = (pod.status.start_time if pod.status else None) or rfc3339(node.clock.now())
        self._dirty = asyncio.Event()
        self._stop = asyncio.Event()
        self._deadline_moved = asyncio.Event()
        self._objects_changed = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._grace = 0.0
        self._delete_when_gone = False
        self._report_wanted = True
        self._closing = False
        spec = pod.spec or PodSpec()
        old = _known_statuses(pod)
        self.init = [self._runner(c, old) for c in spec.init_containers or ()]
        self.main = [self._runner(c, old) for c in spec.containers or ()]
        self._task: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        """Set when no process of the pod is left and its end was reported."""

    def _runner(self, spec: Container, old: dict[str, ContainerStatus]) -> ContainerRunner:
        return ContainerRunner(self.view, spec, restored=old.get(spec.name or ""))

    # --- for the agent

    def start(self) -> None:
        """Begin; a pod that is being deleted already is only removed."""
        self._task = asyncio.create_task(self._run(), name=f"pod {self.view.pod.metadata.name}")
        if self.view.pod.metadata.deletion_timestamp:
            self.update(self.view.pod)

    def update(self, pod: Pod) -> None:
        """Take a newer version of the object."""
        labels_changed = pod.metadata.labels != self.view.pod.metadata.labels
        changed = labels_changed or pod.metadata.annotations != self.view.pod.metadata.annotations
        self.view.pod = pod
        self._deadline_moved.set()
        self._take_new_images(pod)
        if pod.metadata.deletion_timestamp:
            grace = pod.metadata.deletion_grace_period_seconds
            self._delete_when_gone = True
            self._ask_to_stop(float(_DEFAULT_GRACE if grace is None else grace))
        elif changed:
            self.objects_changed()
        self._changed()

    def _take_new_images(self, pod: Pod) -> None:
        spec = pod.spec or PodSpec()
        newest = {each.name: each for each in (*(spec.containers or ()), *(spec.init_containers or ()))}
        for runner in (*self.main, *self.init):
            if (found := newest.get(runner.name)) is not None:
                runner.replace_spec(found)

    def vanished(self) -> None:
        """The object is gone from the API (deleted by force): end soon, and say nothing."""
        self._report_wanted = False
        self._delete_when_gone = False
        self._ask_to_stop(self.node.settings.force_grace)

    def shut_down(self, grace: float) -> None:
        """The plane stops: end the containers within ``grace`` seconds, keep the object and the data."""
        self._ask_to_stop(min(grace, self._pod_grace))

    def objects_changed(self) -> None:
        """A ConfigMap, Secret, claim or the pod's own labels changed."""
        self._objects_changed.set()
        if self._ready_to_start:
            self._fork(asyncio.create_task(self._refresh_volumes()))

    def container(self, name: str) -> ContainerRunner:
        """A container by name (``""``: the first one); raises LookupError."""
        for runner in (*self.main, *self.init):
            if runner.name == name or not name:
                return runner
        raise LookupError(f"container {name} is not valid for pod {self.view.pod.metadata.name}")

    @property
    def address(self) -> str:
        """The pod's IP, ``""`` before it has one."""
        return str(self.view.address or "")

    @property
    def lives(self) -> bool:
        """Whether containers of the pod run, or may be started."""
        return not self._all_ended and self._refused is None and not _is_over(self.view.pod)

    # --- life

    async def _run(self) -> None:
        reporter = asyncio.create_task(self._report_forever())
        life = asyncio.create_task(self._live())
        stop = asyncio.create_task(self._stop.wait())
        deadline = asyncio.create_task(self._deadline())
        try:
            self._changed()
            await asyncio.wait([life, stop, deadline], return_when=asyncio.FIRST_COMPLETED)
            if not life.done():
                await self._terminate(life)
            elif not life.cancelled() and (error := life.exception()) is not None:
                log.error("a pod failed", pod=self.view.pod.metadata.name, error=repr(error))
                self._verdict = ("Failed", "NodeError", f"the node agent failed: {error}")
                await self._terminate(life)
            self._all_ended = True
            await self._let_go()
            self._changed()
            await self._stop.wait()  # a pod that completed stays until it is deleted
        finally:
            for task in (life, deadline, stop, *self._background):
                task.cancel()
            await asyncio.gather(life, deadline, stop, *self._background, return_exceptions=True)
            await self._kill_all()
            await self._let_go()
            await self._last_report(reporter)
            await self._finish()
            self.ended.set()

    async def _live(self) -> None:
        if _is_over(self.view.pod):
            self._initialized = self._all_ended = True
            status = self.view.pod.status
            self._verdict = (
                (status.phase or "", status.reason or "", status.message or "") if status else None
            )
            self._report_wanted = False
            return
        if self._refused is not None:
            self._verdict = ("Failed", *self._refused)
            self.node.events.warning(self.view.pod, *self._refused)
            return
        self._say_what_is_not_done()
        await self._make_network()
        await self._mount_volumes()
        self._ready_to_start = True
        self._fork(asyncio.create_task(self._keep_tokens()))
        self._changed()
        sidecars: list[asyncio.Task[int]] = []
        try:
            if await self._initialize(sidecars):
                await self._run_main(sidecars)
        finally:
            for task in sidecars:
                task.cancel()
            await asyncio.gather(*sidecars, return_exceptions=True)

    async def _initialize(self, sidecars: list[asyncio.Task[int]]) -> bool:
        """Run the init containers in order; false when one failed for good."""
        policy = self._policy
        for runner in self.init:
            if is_sidecar(runner.spec.restart_policy):
                task = asyncio.create_task(runner.run("Always"))
                sidecars.append(task)
                await _until_up(task, runner.up)
                continue
            status = await runner.run("OnFailure" if policy == "Always" else policy)
            if status != 0:
                await self._stop_sidecars()
                self._all_ended = True
                return False
        self._initialized = True
        for runner in self.main if not self.init else ():
            runner.creating()
        self._changed()
        return True

    async def _run_main(self, sidecars: Sequence[asyncio.Task[int]]) -> None:
        policy = self._policy
        async with asyncio.TaskGroup() as group:
            for runner in self.main:
                group.create_task(runner.run(runner.spec.restart_policy or policy))
        await self._stop_sidecars()
        await asyncio.gather(*sidecars, return_exceptions=True)
        self._all_ended = True

    async def _terminate(self, life: asyncio.Task[None]) -> None:
        """End all containers: main ones together, then sidecars in reverse order, within the grace period."""
        self.view.terminating = True
        runners = [*self.main, *self.init]
        for runner in runners:
            runner.forbid_restart()
        began = self.node.clock.monotonic()
        plain = [runner for runner in runners if not is_sidecar(runner.spec.restart_policy)]
        await asyncio.gather(*(runner.stop(grace=self._grace) for runner in plain if runner.running))
        for runner in reversed(self.init):
            if is_sidecar(runner.spec.restart_policy) and runner.running:
                left = max(0.0, self._grace - (self.node.clock.monotonic() - began))
                await runner.stop(grace=left)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)

    async def _stop_sidecars(self) -> None:
        for runner in reversed(self.init):
            if is_sidecar(runner.spec.restart_policy):
                runner.forbid_restart()
                await runner.stop(grace=self._pod_grace)

    async def _kill_all(self) -> None:
        self.view.kill_now.set()
        for runner in (*self.main, *self.init):
            runner.forbid_restart()
            await runner.stop(grace=0)
            await runner.cleared()

    async def _deadline(self) -> None:
        while (left := self._time_left()) is None or left > 0:
            self._deadline_moved.clear()
            waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._deadline_moved.wait())]
            if left is not None:
                waiting.append(asyncio.create_task(self.node.clock.sleep(left)))
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        text = "Pod was active on the node longer than the specified deadline"
        self._verdict = ("Failed", "DeadlineExceeded", text)
        self.node.events.warning(self.view.pod, "DeadlineExceeded", text)
        self._grace = self._pod_grace

    def _time_left(self) -> float | None:
        """Seconds until the pod has been active for too long; ``None``: it may for ever."""
        spec = self.view.pod.spec
        if spec is None or spec.active_deadline_seconds is None:
            return None
        lived = self.node.clock.now() - datetime.fromisoformat(self._start_time)
        return spec.active_deadline_seconds - lived.total_seconds()

    def _say_what_is_not_done(self) -> None:
        spec = self.view.pod.spec or PodSpec()
        wishes = {
            "shareProcessNamespace": spec.share_process_namespace,
            "hostPID": spec.host_pid,
            "hostIPC": spec.host_ipc,
        }
        if asked := [name for name, wanted in wishes.items() if wanted]:
            text = f"{', '.join(asked)}: without effect on this node, each container has processes of its own"
            self.node.events.warning(self.view.pod, "NotSupported", text)

    # --- what containers stand on

    async def _make_network(self) -> None:
        spec = self.view.pod.spec or PodSpec()
        if spec.host_network:
            self.view.address = self.node.address
        while not spec.host_network:
            try:
                name = hostname(self.view.facts, domain=self.node.domain)
                self._network = await self.node.network.attach(hostname=name)
                break
            except (OSError, RuntimeError, NftError, FieldError) as error:
                text = f"Failed to create pod sandbox: {error}"
                self.node.events.warning(self.view.pod, "FailedCreatePodSandBox", text)
                await self.node.clock.sleep(1.0)
        if self._network is not None:
            self.view.address = self._network.address
            self.view.namespaces = self._network.namespaces.descriptors
        self.view.etc = await asyncio.to_thread(self._write_etc)

    async def _mount_volumes(self) -> None:
        said, pause = "", self.node.settings.retry_volumes
        while True:
            self._objects_changed.clear()
            try:
                await self._tokens.renew(self.view.pod)
                await asyncio.to_thread(self.view.volumes.prepare, self.view.facts)
                if self._objects_changed.is_set():
                    continue
                return
            except (VolumeError, Missing, FieldError, KubeError, OSError) as error:
                message, busy = f"MountVolume.SetUp failed: {error}", isinstance(error, VolumeBusy)
            if message != said:
                self.node.events.warning(self.view.pod, "FailedMount", message)
                said = message
            with suppress(TimeoutError):
                async with self.node.clock.deadline(pause):
                    await self._objects_changed.wait()
            pause = self.node.settings.retry_busy_volume if busy else min(pause * 1.5, _RETRY_CAP)

    async def _keep_tokens(self) -> None:
        """Renew the pod's tokens while it lives."""
        pause = self._tokens.pause
        while pause is not None:
            await self.node.clock.sleep(pause)
            try:
                if await self._tokens.renew(self.view.pod):
                    await self._refresh_volumes()
                pause = self._tokens.pause
            except KubeError as error:
                self.node.events.warning(self.view.pod, "FailedMount", f"a token cannot be renewed: {error}")
                pause = _TOKEN_RETRY

    async def _refresh_volumes(self) -> None:
        try:
            async with self._refreshing:  # the newest facts are written last
                await asyncio.to_thread(self.view.volumes.refresh, self.view.facts)
        except (VolumeError, FieldError, OSError) as error:
            self.node.events.warning(self.view.pod, "FailedMount", f"volumes cannot be updated: {error}")

    def _write_etc(self) -> tuple[Mount, ...]:
        directory = self._directory / "etc"
        directory.mkdir(parents=True, exist_ok=True)
        mounts = []
        for name, text in etc_files(self.view).items():
            path = directory / name
            path.write_text(text)
            path.chmod(0o644)
            mounts.append(Mount(path, f"/etc/{name}"))
        return tuple(mounts)

    async def _let_go(self) -> None:
        """Give back the network and the volumes' locks; no process is left that uses them."""
        network, self._network = self._network, None
        self._ready_to_start = False
        if network is not None:
            self.view.namespaces = ()
            with suppress(OSError, NftError):
                await self.node.network.detach(network)
        await asyncio.to_thread(self.view.volumes.release)

    async def _finish(self) -> None:
        """Tell the API that the object may go, if so, and then remove the pod's files."""
        if self._delete_when_gone:
            await self._delete_object()
        if self._delete_when_gone or not self._report_wanted:
            await asyncio.to_thread(self._remove_files)

    async def _delete_object(self) -> None:
        meta, pause = self.view.pod.metadata, 0.1
        while True:
            try:
                await self.node.client.delete(
                    Pod, meta.name or "", namespace=meta.namespace or "", uid=self.uid, grace_period=0
                )
                return
            except (NotFound, Conflict):
                return
            except KubeError as error:
                log.warning("a pod could not be removed from the API", pod=meta.name, error=str(error))
                await self.node.clock.sleep(pause)
                pause = min(pause * 2, _RETRY_CAP)

    def _remove_files(self) -> None:
        self.view.volumes.remove()
        with suppress(OSError):
            remove_tree(self._directory)
        logs = self.node.log_path(self.view.pod, "x", 0).parents[1]
        shutil.rmtree(logs, ignore_errors=True)

    # --- reporting

    def _changed(self) -> None:
        self._dirty.set()

    async def _report_forever(self) -> None:
        pause = 0.05
        while True:
            await self._dirty.wait()
            await self.node.reporting.wait()
            self._dirty.clear()
            closing = self._closing
            try:
                if self._report_wanted:
                    await self._report()
                if closing:
                    return
                pause = 0.05
            except KubeError as error:
                log.warning("a pod's status was not taken", pod=self.view.pod.metadata.name, error=str(error))
                await self.node.clock.sleep(pause)
                pause = min(pause * 2, 5.0)
                self._dirty.set()

    async def _last_report(self, reporter: asyncio.Task[None]) -> None:
        """Let the reporter send the end of the containers.

        It is not cut off in the middle of a request: then nobody would know what the API knows, and the
        difference to that could be computed wrongly.
        """
        self._closing = True
        self._dirty.set()
        if self.node.reporting.is_set():
            await asyncio.wait([reporter], timeout=_LAST_REPORT)
        reporter.cancel()
        await asyncio.gather(reporter, return_exceptions=True)

    async def _report(self) -> None:
        pod = self.view.pod
        status = status_of(pod, self._situation(), now=rfc3339(self.node.clock.now()))
        patch = status_patch(pod, status)
        if patch is None:
            return
        meta = pod.metadata
        try:
            answer = await self.node.client.patch(
                Pod,
                meta.name or "",
                StrategicMergePatch(patch),
                namespace=meta.namespace or "",
                subresource="status",
            )
        except NotFound:
            return  # deleted: the watch will tell
        except ApiError as error:
            if error.status == 422:
                log.error("a pod's status is invalid", pod=meta.name, error=str(error))
                return
            raise
        if _version(answer) > _version(self.view.pod):
            # It may bring what somebody else changed meanwhile: the watch will not tell that apart from it any more.
            self.update(answer)

    def _situation(self) -> Situation:
        return Situation(
            address=self.address,
            host_address=str(self.node.address),
            start_time=self._start_time,
            network_ready=self._ready_to_start,
            initialized=self._initialized,
            init=[runner.status for runner in self.init],
            main=[runner.status for runner in self.main],
            ended=self._all_ended,
            verdict=self._verdict,
        )

    # --- small things

    def _ask_to_stop(self, grace: float) -> None:
        """Stop within ``grace`` seconds; a later, shorter one wins over an earlier, longer one."""
        if not self._stop.is_set():
            self._grace = grace
            self._stop.set()
        elif grace < self._grace:
            self._grace = grace
            self.node.clock.call_later(grace, self.view.kill_now.set)

    def _fork(self, task: asyncio.Task[None]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @property
    def _policy(self) -> str:
        spec = self.view.pod.spec
        return (spec.restart_policy if spec else None) or "Always"

    @property
    def _pod_grace(self) -> float:
        spec = self.view.pod.spec
        given = spec.termination_grace_period_seconds if spec else None
        return float(_DEFAULT_GRACE if given is None else given)


def etc_files(view: PodView) -> dict[str, str]:
    """The generated files of ``/etc``."""
    spec = view.pod.spec or PodSpec()
    name, domain = hostname(view.facts), view.node.domain
    return {
        "hosts": _hosts(view, name),
        "hostname": f"{hostname(view.facts, domain=domain)}\n",
        "resolv.conf": resolv_conf(view),
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n",
        "passwd": _passwd(spec),
        "group": "root:x:0:\nredis:x:999:\nmysql:x:998:\nnogroup:x:65534:\n",
        "services": "domain 53/tcp\ndomain 53/udp\nhttp 80/tcp\nhttps 443/tcp\n",
    }


def _hosts(view: PodView, name: str) -> str:
    """``/etc/hosts``: its first line is what programs know a kubelet's file by."""
    spec, namespace = view.pod.spec or PodSpec(), view.pod.metadata.namespace or ""
    aliases = [f"{alias.ip}\t" + "\t".join(alias.hostnames or ()) for alias in spec.host_aliases or ()]
    if aliases:
        aliases = ["", "# Entries added by HostAliases.", *aliases]
    if spec.host_network:
        with suppress(OSError):
            machine = Path("/etc/hosts").read_text().rstrip("\n")
            return "\n".join(["# Kubernetes-managed hosts file (host network).", machine, *aliases, ""])
    names = f"{name}.{spec.subdomain}.{namespace}.svc.{view.node.domain}\t{name}" if spec.subdomain else name
    return "\n".join(
        [
            *("# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"),
            *("::1\tlocalhost ip6-localhost ip6-loopback", f"{view.address}\t{names}"),
            *aliases,
            "",
        ]
    )


def resolv_conf(view: PodView) -> str:
    """The resolver's configuration, by the pod's ``dnsPolicy`` and ``dnsConfig``."""
    spec, namespace = view.pod.spec or PodSpec(), view.pod.metadata.namespace or ""
    policy, domain = spec.dns_policy or "ClusterFirst", view.node.domain
    if policy == "ClusterFirst" and spec.host_network:
        policy = "Default"
    servers, search, options = [], [], []
    if policy == "Default":
        with suppress(OSError):
            return Path("/etc/resolv.conf").read_text()
    elif policy != "None":
        servers = [str(view.node.network.config.dns_address)]
        search = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain]
        options = ["ndots:5"]
    config = spec.dns_config
    if config is not None:
        servers += config.nameservers or []
        search += config.searches or []
        options += [f"{o.name}:{o.value}" if o.value else (o.name or "") for o in config.options or ()]
    lines = [f"nameserver {server}" for server in servers[:3]]
    lines += [f"search {' '.join(search)}"] if search else []
    lines += [f"options {' '.join(options)}"] if options else []
    return "\n".join(lines) + "\n"


def _passwd(spec: PodSpec) -> str:
    users = {0: "root:x:0:0:root:/root:/bin/sh", 65534: "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin"}
    users |= {999: "redis:x:999:999::/data:/bin/sh", 998: "mysql:x:998:998::/var/lib/mysql:/bin/sh"}
    for context in (spec.security_context, *(c.security_context for c in spec.containers or ())):
        if context is not None and context.run_as_user is not None:
            uid, gid = context.run_as_user, context.run_as_group or 0
            users.setdefault(uid, f"user{uid}:x:{uid}:{gid}::/:/bin/sh")
    return "\n".join(users.values()) + "\n"


def _known_statuses(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    both: Iterable[ContainerStatus] = (
        [*(status.init_container_statuses or ()), *(status.container_statuses or ())] if status else ()
    )
    return {each.name or "": each for each in both}


def _is_over(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in ("Succeeded", "Failed")


async def _until_up(task: asyncio.Task[int], event: asyncio.Event) -> None:
    """Wait until the sidecar is up (or has ended for good)."""
    up = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([task, up], return_when=asyncio.FIRST_COMPLETED)
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)


def _version(pod: Pod) -> int:
    text = pod.metadata.resource_version or "0"
    return int(text) if text.isdigit() else 0
