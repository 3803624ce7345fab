"""One container of a pod: its runs, restarts, hooks, probes and status."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from typing import TypeVar

import structlog

from mooring.cache.clock import rfc3339
from mooring.kube.objects.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodSecurityContext,
    Probe,
    SecurityContext,
)
from mooring.local.node import images, sandbox
from mooring.local.node.backoff import CrashBackoff
from mooring.local.node.cgroups import Cgroup
from mooring.local.node.checks import Checker, CheckFailed
from mooring.local.node.environment import environment
from mooring.local.node.exec import Entrance
from mooring.local.node.fields import FieldError, PodFacts, expand_all
from mooring.local.node.images import ImageError, Resolved
from mooring.local.node.imagestore import StoreError
from mooring.local.node.logs import LogFile
from mooring.local.node.logs import read as read_log
from mooring.local.node.nft import NftError
from mooring.local.node.node import Node
from mooring.local.node.probes import Probing
from mooring.local.node.rootfs import (
    TOOLS,
    Account,
    AccountError,
    RootFs,
    account_of,
    copy_tree,
    find_program,
    make_root,
)
from mooring.local.node.sandbox import Privileges, Sandbox, SandboxError, SandboxSpec
from mooring.local.node.sources import Missing
from mooring.local.node.staging import Mount, Stage, StagingError, stage
from mooring.local.node.stdio import Stdio
from mooring.local.node.trees import TreeError, inside
from mooring.local.node.usage import Running
from mooring.local.node.volumes import PodVolumes, VolumeError

T = TypeVar("T")

__all__ = ["ContainerRunner", "PodView", "privileges"]

log = structlog.get_logger("mooring.node")

_MESSAGE_LIMIT = 4096
_FALLBACK_LIMIT = 2048
_CONFIG_RETRY = 0.5
#: Seconds between looks whether an image that is missing has been loaded.
_LOOK_FOR_LOADED = 1.0
#: The files of /etc that every container gets; all others are the image's.
_ETC_OF_IMAGES = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")


@dataclass(slots=True)
class PodView:
    """What a container needs to know of its pod; the pod's worker keeps it current."""

    node: Node
    pod: Pod
    volumes: PodVolumes
    changed: Callable[[], None]
    address: IPv4Address | None = None
    namespaces: tuple[int, ...] = ()
    etc: tuple[Mount, ...] = ()
    terminating: bool = False
    kill_now: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def facts(self) -> PodFacts:
        """The pod with what its node knows."""
        return PodFacts(
            pod=self.pod,
            address=str(self.address or ""),
            host_address=str(self.node.address),
            allocatable=self.node.allocatable,
        )


class ContainerRunner:
    """Runs a container again and again, as its restart policy asks."""

    def __init__(self, view: PodView, spec: Container, *, restored: ContainerStatus | None = None) -> None:
        self.view = view
        self.spec = spec
        self.name = spec.name or ""
        settings = view.node.settings
        self._backoff = CrashBackoff(settings.crash_backoff_initial, settings.crash_backoff_cap)
        self._state = ContainerState(waiting=ContainerStateWaiting(reason="PodInitializing"))
        self._last: ContainerState | None = None
        self._restarts = 0
        self._runs = 0
        self._runs_here = False
        self._image_id = ""
        self._id = ""
        self._probing: Probing | None = None
        self._sandbox: Sandbox | None = None
        self._entrance: Entrance | None = None
        self._cgroup: Cgroup | None = None
        self._loaded: _Opened | None = None
        self._clearing: asyncio.Future[None] | None = None
        self._stdio: Stdio | None = None
        self._signal_of_image = ""
        self._began = self._finished = 0.0
        self._background: set[asyncio.Future[None]] = set()
        self._stopping = False
        self._post_start_done = True
        self._image_changed = asyncio.Event()
        self._shown: ContainerStatus | None = None
        self._end_noted = asyncio.Event()
        self.up = asyncio.Event()
        """Set while the container runs and its startup probe and postStart hook have succeeded."""
        if restored is not None:
            self._restore(restored)

    # --- what others see

    @property
    def status(self) -> ContainerStatus:
        """The container's part of the pod's status.

        One that gets another image is shown as it was until the new one runs, as on a kubelet.
        """
        if self._shown is not None:
            return self._shown
        running = self._state.running is not None
        # Until the probing of this run has begun, a probe that is asked for has not succeeded.
        verdicts = self._probing.verdicts if self._probing else None
        by_startup = verdicts.started if verdicts else self.spec.startup_probe is None
        by_readiness = verdicts.ready if verdicts else self.spec.readiness_probe is None
        started = running and self._post_start_done and by_startup
        ready = started and by_readiness
        end = self._state.terminated
        if end is not None and self._is_plain_init:
            ready = end.exit_code == 0
        return ContainerStatus(
            name=self.name,
            image=self.spec.image or "",
            image_id=self._image_id,
            container_id=self._id or None,
            state=self._state,
            last_state=self._last or ContainerState(),
            restart_count=self._restarts,
            ready=ready,
            started=started,
        )

    @property
    def entrance(self) -> Entrance:
        """The way into the running container; raises LookupError when it does not run."""
        if self._entrance is None or self._state.running is None:
            raise LookupError(f"container {self.name} is not running")
        return self._entrance

    @property
    def stdio(self) -> Stdio:
        """The running container's own streams; raises LookupError when it does not run."""
        if self._stdio is None or self._state.running is None:
            raise LookupError(f"container {self.name} is not running")
        return self._stdio

    @property
    def program_pid(self) -> int | None:
        """The pid of the container's program, as the plane sees it."""
        return self._sandbox.program_pid if self._sandbox and self._state.running else None

    @property
    def measured(self) -> Running | None:
        """How to find what the container uses, ``None`` while it does not run."""
        if self._sandbox is None or self._state.running is None:
            return None
        meta = self.view.pod.metadata
        return Running(
            node=self.view.node.name,
            namespace=meta.namespace or "",
            pod=meta.name or "",
            container=self.name,
            id=self._id,
            pid_namespace=self._sandbox.pid_namespace,
            since=self._began,
            cgroup=self._cgroup,
        )

    @property
    def running(self) -> bool:
        """Whether a process of the container may be there."""
        return self._sandbox is not None

    @property
    def run_number(self) -> int:
        """Counts the runs on this machine; names the log."""
        return self._runs

    def log_path(self, *, previous: bool) -> Path:
        """The log of the current (or last) run, or of the one before it; raises LookupError."""
        run = self._runs - (1 if previous else 0)
        path = self._path_of_log(run)
        if run < 1 or (previous and not path.exists()):
            which = "previous terminated container" if previous else "container"
            raise LookupError(f'{which} "{self.name}" in pod "{self.view.pod.metadata.name}" not found')
        return path

    # --- life

    async def run(self, policy: str) -> int:
        """Run until the policy (Always, OnFailure, Never) asks for no restart; the last exit status."""
        if (end := self._final_end(policy)) is not None:
            return end
        while True:
            status = await self._once()
            if self._stopping or policy == "Never" or (policy == "OnFailure" and status == 0):
                self._show_anew()
                return status
            await self._back_off()
            self._restarts += 1

    def _final_end(self, policy: str) -> int | None:
        """The exit status of a container that ended under an earlier plane and is not to run again."""
        end = self._last.terminated if self._last and not self._runs_here else None
        if end is None or policy == "Always" or (policy == "OnFailure" and end.exit_code != 0):
            return None
        self._state, self._last = ContainerState(terminated=end), None
        self.view.changed()
        return end.exit_code or 0

    async def stop(self, *, grace: float, why: str = "") -> None:
        """End the running container: preStop hook, SIGTERM, and SIGKILL after ``grace`` seconds."""
        running, began = self._sandbox, self._now()
        if running is None:
            return
        self._event("Killing", why or f"Stopping container {self.name}")
        grace = await self._pre_stop(grace, began)
        running.signal(self._stop_signal)
        if not await self._ends_within(running, grace):
            running.kill()
        await running.gone()
        # Whoever stops a container may cancel its run next, which must not happen before the end is noted.
        await self._end_noted.wait()

    def replace_spec(self, spec: Container) -> None:
        """Take the container as it is now; another image restarts it (nothing else can change)."""
        shown, old, self.spec = self.status, self.spec, spec
        if spec.image == old.image:
            return
        self._image_changed.set()
        if self._state.running is not None and not self._stopping:
            self._shown = shown
            why = f"Container {self.name} definition changed, will be restarted"
            self._fork(self.stop(grace=self._grace, why=why))

    def forbid_restart(self) -> None:
        """The pod ends: whatever happens, do not start again."""
        self._stopping = True
        self._show_anew()

    async def _once(self) -> int:
        """One run, from the image to the end; the exit status."""
        image = await self._pull()
        sandbox = await self._create(image)
        self._end_noted.clear()
        try:
            self._post_start_done = self.spec.lifecycle is None or self.spec.lifecycle.post_start is None
            self._began = self._now()
            self._set(running=ContainerStateRunning(started_at=self._time()))
            self._event("Started", f"Container started: {self.name}")
            attending = asyncio.create_task(self._attend(sandbox))
            try:
                status = await sandbox.child.wait()
            finally:
                attending.cancel()
                self.up.clear()
            await self._ended(sandbox, status)
            await asyncio.wait([attending])
            return status
        finally:
            self._end_noted.set()
            if sandbox.child.status is None:
                sandbox.kill()
            # A cancelled run does not wait; whoever needs to know does, by :meth:`cleared`.
            self._clearing = asyncio.ensure_future(self._clear(sandbox))
            await asyncio.shield(self._clearing)

    async def cleared(self) -> None:
        """Wait until what the last run left is tidied up."""
        if self._clearing is not None:
            await asyncio.wait([self._clearing])

    async def _clear(self, sandbox: Sandbox) -> None:
        await sandbox.gone()
        self._sandbox = self._entrance = None
        if self._stdio is not None:
            self._stdio.close()
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            await asyncio.to_thread(loaded.remove)
        if self._cgroup is not None:
            self._cgroup.remove()
        self._remove_old_files()

    # --- starting

    async def _pull(self) -> Resolved:
        """Find the image; one that cannot be had is tried again and again."""
        settings = self.view.node.settings
        delay = settings.image_backoff_initial
        while True:
            self._image_changed.clear()
            reference, before = self.spec.image or "", self._loaded_state
            try:
                await self._make_image(reference)
                resolved = await asyncio.to_thread(self.view.node.catalog.resolve, reference)
            except ImageError as error:
                if self._refused(reference, error):
                    await self._pause_pull(delay, before)
                    continue
                await self._pause_pull(min(1.0, delay), before)
                message = f'Back-off pulling image "{reference}": {error.reason}: {error}'
                self._wait("ImagePullBackOff", message)
                self._event("BackOff", f'Back-off pulling image "{reference}"')
                self._event("Failed", "Error: ImagePullBackOff", warning=True)
                await self._pause_pull(delay, before)
                delay = min(delay * 2, settings.image_backoff_cap)
            else:
                self._image_id = resolved.image_id
                self._say_pulled(resolved)
                return resolved

    async def _make_image(self, reference: str) -> None:
        """Make an image of packages on its first use, and say how far that is; raises ImageError."""
        catalog = self.view.node.catalog
        recipe = catalog.to_make(reference)
        if recipe is None or catalog.packages is None or self.spec.image_pull_policy == "Never":
            return

        def say(text: str) -> None:
            self._wait("ContainerCreating", f'Pulling image "{reference}": {text}')
            self._event("Pulling", f'Pulling image "{reference}": {text}')

        began = self.view.node.clock.monotonic()
        made = await catalog.packages.obtain(recipe, say)
        took = self.view.node.clock.monotonic() - began
        size = f"Image size: {made.size} bytes."
        self._event("Pulled", f'Successfully pulled image "{reference}" in {took:.1f}s. {size}')

    def _refused(self, reference: str, error: ImageError) -> bool:
        """Say why an image cannot be had; true when pulling would not help either."""
        if error.reason == "InvalidImageName":
            event, reason, said = "InspectFailed", error.reason, str(error)
        elif self.spec.image_pull_policy == "Never":
            event = reason = "ErrImageNeverPull"
            said = f'Container image "{reference}" is not present with pull policy of Never'
        else:
            event, reason, said = "Failed", error.reason, str(error)
            self._event("Pulling", f'Pulling image "{reference}"')
        self._wait(reason, said)
        told = f'Failed to pull image "{reference}": {error}' if event == "Failed" else said
        self._event(event, told, warning=True)
        self._event("Failed", f"Error: {reason}", warning=True)
        return event != "Failed"

    def _say_pulled(self, resolved: Resolved) -> None:
        reference = resolved.reference
        if resolved.loaded is not None and self.spec.image_pull_policy == "Always":
            self._event("Pulling", f'Pulling image "{reference}"')
            size = f"Image size: {resolved.loaded.size} bytes."
            done = f'Successfully pulled image "{reference}" in 0s (0s including waiting). {size}'
            self._event("Pulled", done)
            return
        self._event("Pulled", f'Container image "{reference}" {resolved.says}')

    @property
    def _loaded_state(self) -> tuple[int, int] | None:
        store = self.view.node.catalog.store
        return store.state() if store is not None else None

    async def _pause_pull(self, seconds: float, before: tuple[int, int] | None) -> None:
        """Wait before the next try, unless the image was corrected or loaded meanwhile."""
        while seconds > 0 and not self._image_changed.is_set() and self._loaded_state == before:
            step = seconds if before is None else min(seconds, _LOOK_FOR_LOADED)
            with suppress(TimeoutError):
                async with self.view.node.clock.deadline(step):
                    await self._image_changed.wait()
            seconds -= step

    async def _create(self, image: Resolved) -> Sandbox:
        """Start the program; what is missing (a key of a ConfigMap ...) is waited for."""
        said = ""
        while True:
            try:
                return await self._start(image)
            except (Missing, FieldError, VolumeError, ConfigError, StagingError) as error:
                reason, message = "CreateContainerConfigError", str(error)
            except (SandboxError, NftError, OSError) as error:
                reason, message = "RunContainerError", str(error)
            self._wait(reason, message)
            if message != said:
                self._event("Failed", f"Error: {message}", warning=True)
                said = message
            await self._sleep(_CONFIG_RETRY)

    async def _start(self, image: Resolved) -> Sandbox:
        view, node = self.view, self.view.node
        loaded = await self._opened(image)
        try:
            rights = privileges(view.pod, self.spec, account=loaded.account if loaded else None)
            given = image.image.env if loaded is None else {"HOME": loaded.account.home, **image.image.env}
            env = environment(view.facts, self.spec, image=given, sources=node.sources, domain=node.domain)
            self._runs += 1
            self._runs_here = True
            if loaded or rights.identity:
                await asyncio.to_thread(node.tools.ensure)
            files = await asyncio.to_thread(self._files, image, env, loaded)
            if rights.identity:
                files.append(await asyncio.to_thread(self._no_preload, loaded))
            command = self._command(image, env)
            working_dir = self.spec.working_dir or image.image.working_dir
            _check_paths(self.spec)
            if loaded is None:
                _require_program(command[0], image)
            elif not find_program(loaded.image, command[0], env, working_dir):
                raise SandboxError(f'exec: "{command[0]}": executable file not found in $PATH')
            context = self.spec.security_context
            root = await _to_its_end(lambda: loaded.make(self._directory)) if loaded else None
            if loaded is not None:
                working_dir = loaded.resolved(working_dir)
            staged = await _to_its_end(
                lambda: stage(
                    files,
                    place=self._directory / "mounts",
                    working_dir=working_dir,
                    namespace=root.mounts if root else None,
                ),
                undo=Stage.close,
            )
            spec = SandboxSpec(
                command=command,
                env=env,
                working_dir=working_dir,
                make_working_dir=staged.working_dir,
                mounts=staged.mounts,
                mount_namespace=(root.mounts if root else None) or staged.namespace,
                symlinks=_programs(image),
                privileges=rights,
                read_only_root=bool(context and context.read_only_root_filesystem),
                namespaces=view.namespaces,
                terminal=bool(self.spec.tty),
                locks=view.volumes.locks(self.spec),
                root=root,
                tools=node.tools if loaded or rights.identity else None,
            )
            try:
                running = await self._start_sandbox(spec)
            finally:
                staged.close()
        except BaseException:
            if loaded is not None:
                await asyncio.shield(asyncio.to_thread(loaded.remove))
            raise
        self._loaded = loaded
        self._signal_of_image = image.image.stop_signal
        self._limit(running)
        self._id = f"mooring://{secrets.token_hex(32)}"
        self._sandbox = running
        self._entrance = Entrance(
            spawner=node.spawner,
            sandbox=running,
            namespaces=view.namespaces,
            env=env,
            working_dir=spec.working_dir,
            privileges=rights,
            tools=spec.tools,
            cgroup=self._cgroup,
        )
        self._event("Created", f"Container created: {self.name}")
        running.release()
        return running

    async def _start_sandbox(self, spec: SandboxSpec) -> Sandbox:
        node = self.view.node
        stdio = Stdio(
            node.logs,
            LogFile(self._path_of_log(self._runs)),
            stdin=bool(self.spec.stdin),
            once=bool(self.spec.stdin_once),
            tty=spec.terminal,
        )
        try:
            started = await sandbox.start(
                node.spawner, spec, stdin=stdio.stdin, stdout=stdio.stdout, stderr=stdio.stderr
            )
        except BaseException as error:
            stdio.given()
            stdio.close()
            if isinstance(error, SandboxError):
                await stdio.written()
                raise SandboxError(f"{error}{await self._last_words()}") from None
            raise
        stdio.given()
        self._stdio = stdio
        return started

    async def _opened(self, image: Resolved) -> _Opened | None:
        if image.loaded is None:
            return None
        opening = asyncio.ensure_future(asyncio.to_thread(self._open, image))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            if opening.exception() is None:
                opening.result().remove()
            raise

    def _open(self, image: Resolved) -> _Opened:
        """Keep a loaded image there, and look up whom it runs as (blocking)."""
        assert image.store is not None
        assert image.loaded is not None
        try:
            path, lock = image.store.use(image.loaded)
        except StoreError as error:
            raise SandboxError(str(error)) from error
        try:
            context = _contexts(self.view.pod, self.spec)
            user = next((str(c.run_as_user) for c in context if c.run_as_user is not None), image.image.user)
            return _Opened(path, lock, account_of(path, user))
        except AccountError as error:
            os.close(lock)
            raise ConfigError(str(error)) from error

    def _limit(self, running: Sandbox) -> None:
        resources, uid = self.spec.resources, self.view.pod.metadata.uid
        limits = (resources.limits if resources else None) or {}
        try:
            self._cgroup = self.view.node.cgroups.make(f"{uid}-{self.name}-{self._runs}", limits)
            if self._cgroup is not None:
                self._cgroup.add(running.program_pid)
        except OSError as error:
            self._event("LimitsNotApplied", f"limits of {self.name} cannot be set: {error}", warning=True)

    @property
    def _directory(self) -> Path:
        """Where the container's own files are."""
        return self.view.node.pod_directory(self.view.pod.metadata.uid or "") / "containers" / self.name

    def _files(self, image: Resolved, env: Mapping[str, str], loaded: _Opened | None) -> list[Mount]:
        """Everything mounted in the container, made ready."""
        mounts = [mount for mount in self.view.etc if loaded is None or mount.target in _ETC_OF_IMAGES]
        mounts += [Mount(Path(path), path, read_only=True) for path in image.image.paths]
        base = self._directory
        base.mkdir(parents=True, exist_ok=True)
        for number, (target, text) in enumerate(image.image.files.items()):
            path = base / f"script-{number}"
            path.write_text(text)
            path.chmod(0o755)
            mounts.append(Mount(path, target, read_only=True))
        own = self.view.volumes.mounts(self.spec, env)
        taken = {mount.target.rstrip("/") for mount in own}
        for number, target in enumerate(image.image.volumes):
            if target not in taken:
                path = base / f"run-{self._runs}-{number}"
                if loaded is not None:
                    loaded.copy(target, path)
                else:
                    path.mkdir(exist_ok=True)
                    path.chmod(0o777)
                mounts.append(Mount(path, target))
        message = base / f"message-{self._runs}"
        message.touch()
        message.chmod(0o666)
        mounts.append(Mount(message, self._message_path))
        mounts += own
        if loaded is not None:
            mounts = [replace(each, target=loaded.resolved(each.target)) for each in mounts]
        for mount in mounts:
            place = f"/{mount.target.strip('/')}"
            if place == "/" or PurePosixPath(place).is_relative_to(TOOLS):
                raise ConfigError(f"nothing can be mounted at {mount.target}")
        return mounts

    def _no_preload(self, loaded: _Opened | None) -> Mount:
        """An empty file for the loader of the program that gives up rights: the container's may name its own code."""
        path, target = self._directory / "no-preload", "/etc/ld.so.preload"
        path.touch(mode=0o644)
        return Mount(path, loaded.resolved(target) if loaded else target, read_only=True)

    def _command(self, image: Resolved, env: Mapping[str, str]) -> list[str]:
        command = expand_all(self.spec.command or (), env)
        arguments = expand_all(self.spec.args or (), env)
        if not command:
            command = list(image.image.entrypoint)
            arguments = arguments or ([] if self.spec.args else list(image.image.cmd))
        line = [*command, *arguments]
        if not line:
            raise ConfigError(f'image "{image.reference}" has no command: give one in the container')
        return line

    # --- running

    async def _attend(self, sandbox: Sandbox) -> None:
        """The hook after the start, then the probes; cancelled when the run ends."""
        checker = Checker(
            entrance=self.entrance,
            container=self.spec,
            address=self.view.address or self.view.node.address,
            source=self.view.node.network.config.probe_address if self.view.address else None,
        )
        probing = Probing(
            container=self.spec,
            checker=checker,
            clock=self.view.node.clock,
            changed=self._verdict_changed,
            unhealthy=self._unhealthy,
            kill=self._kill_for_probe,
        )
        self._probing = probing
        self.view.changed()
        try:
            if not await self._post_start(checker):
                return
            self._post_start_done = True
            self._verdict_changed()
            await probing.run()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("probing a container failed", pod=self.view.pod.metadata.name, container=self.name)

    async def _post_start(self, checker: Checker) -> bool:
        hook = self.spec.lifecycle.post_start if self.spec.lifecycle else None
        if hook is None:
            return True
        try:
            await checker.hook(hook, timeout=None)
        except CheckFailed as failure:
            self._event("FailedPostStartHook", f"PostStartHook failed: {failure}", warning=True)
            why = f"FailedPostStartHook: container {self.name} will be restarted"
            self._fork(self.stop(grace=self._grace, why=why))
            return False
        return True

    async def _kill_for_probe(self, kind: str, probe: Probe) -> None:
        if self.view.terminating:
            return
        grace = probe.termination_grace_period_seconds
        why = f"Container {self.name} failed {kind} probe, will be restarted"
        # Not awaited: the end of the run cancels whoever attends it, and that must not cancel the stop.
        self._fork(self.stop(grace=self._grace if grace is None else grace, why=why))

    def _fork(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _verdict_changed(self) -> None:
        if self.status.started:
            self.up.set()
        self.view.changed()

    def _unhealthy(self, kind: str, said: str) -> None:
        if not self.view.terminating:
            self._event("Unhealthy", f"{kind} probe failed: {said}", warning=True)

    # --- ending

    async def _pre_stop(self, grace: float, began: float) -> float:
        """Run the hook within the grace period; what is left of that, but at least two seconds."""
        hook = self.spec.lifecycle.pre_stop if self.spec.lifecycle else None
        if hook is None or self._entrance is None or grace <= 0:
            return grace
        checker = Checker(
            entrance=self._entrance,
            container=self.spec,
            address=self.view.address or self.view.node.address,
        )
        running = asyncio.ensure_future(checker.hook(hook, timeout=grace))
        over = [asyncio.ensure_future(self._entrance.sandbox.child.wait())]
        over.append(asyncio.ensure_future(_true(self.view.kill_now)))
        try:
            await asyncio.wait([running, *over], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
        except (CheckFailed, TimeoutError) as failure:
            self._event("FailedPreStopHook", f"PreStopHook failed: {failure}", warning=True)
        finally:
            for task in (running, *over):
                task.cancel()
            await asyncio.gather(running, *over, return_exceptions=True)
        return max(2.0, grace - (self._now() - began))

    async def _ends_within(self, running: Sandbox, grace: float) -> bool:
        waits = [
            asyncio.ensure_future(running.child.wait()),
            asyncio.ensure_future(_true(self.view.kill_now)),
        ]
        try:
            await asyncio.wait(waits, timeout=max(0.0, grace), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return running.child.status is not None

    async def _ended(self, running: Sandbox, status: int) -> None:
        """Report the end at once, but after the program's last words; only then tidy up."""
        if self._stdio is not None:
            await self._stdio.written()
        began = self._state.running.started_at if self._state.running else None
        self._finished = self._now()
        oom = status == 128 + signal.SIGKILL and self._cgroup is not None and self._cgroup.was_out_of_memory()
        reason = "OOMKilled" if oom else "Completed" if status == 0 else "Error"
        if oom:
            limits = (self.spec.resources.limits if self.spec.resources else None) or {}
            limit = limits.get("memory")
            why = (
                f"it needed more memory than its limit, {limit}" if limit else "the machine was out of memory"
            )
            text = f"container {self.name} was killed: {why}"
            self._event("OOMKilling", text, warning=True)
        message = await asyncio.to_thread(self._termination_message)
        if not message and status and self.spec.termination_message_policy == "FallbackToLogsOnError":
            message = (await self._log_tail())[-_FALLBACK_LIMIT:]
        self._probing = None
        self._set(
            terminated=ContainerStateTerminated(
                exit_code=status,
                reason=reason,
                message=message or None,
                started_at=began,
                finished_at=self._time(),
                container_id=self._id,
            )
        )

    async def _back_off(self) -> None:
        now = self._now()
        wait = self._backoff.wait(now=now, ended=self._finished)
        end = self._state.terminated
        if wait > 0 and end is not None:
            meta = self.view.pod.metadata
            text = (
                f"back-off {self._backoff.delay:g}s restarting failed container={self.name} "
                f"pod={meta.name}_{meta.namespace}({meta.uid})"
            )
            self._wait("CrashLoopBackOff", text)
            what = f"Back-off restarting failed container {self.name} in pod {meta.name}_{meta.namespace}"
            self._event("BackOff", f"{what}({meta.uid})", warning=True)
            await self._sleep(wait)
        self._backoff.started(now=self._now())

    # --- small things

    @property
    def _is_plain_init(self) -> bool:
        spec = self.view.pod.spec
        return self.spec.restart_policy != "Always" and any(
            each.name == self.name for each in (spec.init_containers if spec else None) or ()
        )

    @property
    def _message_path(self) -> str:
        return self.spec.termination_message_path or "/dev/termination-log"

    @property
    def _grace(self) -> float:
        spec = self.view.pod.spec
        given = spec.termination_grace_period_seconds if spec else None
        return 30.0 if given is None else float(given)

    @property
    def _stop_signal(self) -> int:
        name = (self.spec.lifecycle.stop_signal if self.spec.lifecycle else None) or self._signal_of_image
        if name.isdigit():
            return int(name)
        name = name if name.startswith("SIG") else f"SIG{name}"
        return int(getattr(signal, name)) if hasattr(signal, name) else signal.SIGTERM

    def _restore(self, old: ContainerStatus) -> None:
        """Take over from the status of a plane that is gone, whose processes died with it."""
        self._restarts = old.restart_count or 0
        self._image_id = old.image_id or ""
        end = old.state.terminated if old.state else None
        if end is None and old.state and old.state.running:
            end = ContainerStateTerminated(
                exit_code=137,
                reason="Error",
                message="the node agent was stopped, and the container with it",
                started_at=old.state.running.started_at,
                finished_at=self._time(),
                container_id=old.container_id,
            )
        self._last = ContainerState(terminated=end) if end else old.last_state
        if end is not None and not self._stays_ended(end):
            self._restarts += 1
        self._runs = self._last_log_number()

    def _stays_ended(self, end: ContainerStateTerminated) -> bool:
        spec = self.view.pod.spec
        policy = self.spec.restart_policy or (spec.restart_policy if spec else None) or "Always"
        if self._is_plain_init and policy == "Always":
            policy = "OnFailure"
        return policy == "Never" or (policy == "OnFailure" and end.exit_code == 0)

    def _set(
        self,
        *,
        running: ContainerStateRunning | None = None,
        terminated: ContainerStateTerminated | None = None,
    ) -> None:
        if running is not None and self._state.terminated is not None:
            self._last = self._state
        self._state = ContainerState(running=running, terminated=terminated)
        if running is not None:
            self._shown = None
            if self.status.started:
                self.up.set()
        self.view.changed()

    def _wait(self, reason: str, message: str) -> None:
        if self._state.terminated is not None:
            self._last = self._state
        self._state = ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))
        self._show_anew()

    def _show_anew(self) -> None:
        """What the container does is its status again."""
        self._shown = None
        self.view.changed()

    def creating(self) -> None:
        """The pod has no init containers: this container is next."""
        if self._state.waiting is not None:
            self._state = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))

    def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        events = self.view.node.events
        (events.warning if warning else events.normal)(self.view.pod, reason, message)

    async def _sleep(self, seconds: float) -> None:
        await self.view.node.clock.sleep(seconds)

    def _now(self) -> float:
        return self.view.node.clock.monotonic()

    def _time(self) -> str:
        return rfc3339(self.view.node.clock.now())

    def _path_of_log(self, run: int) -> Path:
        return self.view.node.log_path(self.view.pod, self.name, run)

    def _last_log_number(self) -> int:
        logs = self._path_of_log(0).parent.glob("*.log")
        return max((int(path.stem) for path in logs if path.stem.isdigit()), default=0)

    def _termination_message(self) -> str:
        with suppress(OSError), (self._directory / f"message-{self._runs}").open("rb") as file:
            return file.read(_MESSAGE_LIMIT).decode(errors="replace")
        return ""

    async def _log_tail(self) -> str:
        pieces = [piece async for piece in read_log(self._path_of_log(self._runs), tail_lines=80)]
        return b"".join(pieces).decode(errors="replace")

    async def _last_words(self) -> str:
        words = (await self._log_tail()).strip()
        return f": {words[-500:]}" if words else ""

    def _remove_old_files(self) -> None:
        """Keep the logs of this run and the one before."""
        for suffix in ("", ".1"):
            Path(f"{self._path_of_log(self._runs - 2)}{suffix}").unlink(missing_ok=True)


class ConfigError(ValueError):
    """The container cannot be made as it is written."""


async def _to_its_end(work: Callable[[], T], *, undo: Callable[[T], None] | None = None) -> T:
    """Run it in a thread; a cancelled caller goes on only after its end, when it is undone or may be."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if undo is not None and task.exception() is None:
            undo(task.result())
        raise


@dataclass(slots=True)
class _Opened:
    """A loaded image while a container runs from it."""

    image: Path
    lock: int
    account: Account
    root: RootFs | None = None

    def resolved(self, path: str) -> str:
        """A path inside without the image's links, which must not lead a mount astray."""
        try:
            below = inside(self.image, path).relative_to(self.image)
        except TreeError as error:
            raise SandboxError(str(error)) from error
        return f"/{below}" if below.parts else "/"

    def make(self, directory: Path) -> RootFs:
        """Give the container a root of its own (blocking)."""
        for name in ("proc", "dev", TOOLS.strip("/")):
            if (self.image / name).is_symlink():
                raise SandboxError(f"the image's /{name} is a link: it cannot be mounted there")
        self.root = make_root(self.image, directory / "root", image_lock=self.lock)
        return self.root

    def copy(self, source: str, target: Path) -> None:
        """Begin a volume of the image with what the image has there (blocking)."""
        copy_tree(inside(self.image, source), target)

    def remove(self) -> None:
        """Let go of the image, remove what the container wrote (blocking)."""
        if self.root is not None:
            self.root.remove()
        else:
            os.close(self.lock)


def _contexts(pod: Pod, container: Container) -> list[SecurityContext | PodSecurityContext]:
    """The security contexts that count, the container's own first."""
    both = (container.security_context, pod.spec.security_context if pod.spec else None)
    return [context for context in both if context is not None]


def _check_paths(container: Container) -> None:
    """Refuse paths that lead out of the container while it is made; raises :class:`ConfigError`."""
    named = [(f"mountPath of {mount.name}", mount.mount_path) for mount in container.volume_mounts or ()]
    for name, path in named:
        if ":" in (path or ""):
            raise ConfigError(f"{name}: {path!r} must not contain ':'")
    named.append(("workingDir", container.working_dir))
    named.append(("terminationMessagePath", container.termination_message_path))
    for name, path in named:
        if path and (not path.startswith("/") or ".." in PurePosixPath(path).parts):
            raise ConfigError(f"{name}: {path!r} must be absolute and without '..'")


def privileges(pod: Pod, container: Container, *, account: Account | None = None) -> Privileges:
    """User, groups and capabilities of a container; raises :class:`ConfigError` when they contradict.

    ``account`` is whom a loaded image's files know under the pod's or the image's user.
    """
    contexts, shared = _contexts(pod, container), pod.spec.security_context if pod.spec else None
    asked = next((context.run_as_user for context in contexts if context.run_as_user is not None), None)
    gid = next((context.run_as_group for context in contexts if context.run_as_group is not None), None)
    uid = asked if asked is not None else account.uid if account else 0
    if gid is None:
        gid = account.gid if account else 0
    if next((context.run_as_non_root for context in contexts if context.run_as_non_root is not None), False):
        _check_non_root(uid, asked, account)
    groups = list((shared.supplemental_groups if shared else None) or ())
    if account is not None and not (shared and shared.supplemental_groups_policy == "Strict"):
        groups += account.groups
    if shared and shared.fs_group is not None:
        groups.append(shared.fs_group)
    names = _capabilities(container)
    if not all(sandbox.can_become(number) for number in (uid, gid, *groups)):
        # A plain user's plane has one user only, which is itself outside: the program stays that one.
        return Privileges(capabilities=names)
    return Privileges(uid, gid, tuple(dict.fromkeys(groups)), names)


def _check_non_root(uid: int, asked: int | None, account: Account | None) -> None:
    if asked is None and account is not None and account.named:
        why = "image has non-numeric user, cannot verify user is non-root: set runAsUser"
        raise ConfigError(f"container has runAsNonRoot and {why}")
    if asked == 0:
        raise ConfigError("container's runAsUser breaks non-root policy")
    if uid == 0:
        raise ConfigError("container has runAsNonRoot and image will run as root: set runAsUser")


def _capabilities(container: Container) -> tuple[str, ...]:
    context = container.security_context
    if context and context.privileged:
        return ("ALL",)
    names = list(sandbox.DEFAULT_CAPABILITIES)
    change = context.capabilities if context else None
    if change and change.drop:
        names = [] if "ALL" in change.drop else [name for name in names if name not in change.drop]
    if change and change.add:
        names += [name.removeprefix("CAP_") for name in change.add if name not in names]
    return tuple(names)


def _programs(image: Resolved) -> dict[str, str]:
    """Symbolic links by which the image's programs are found first."""
    programs = image.image.programs.items()
    return {
        f"/usr/local/bin/{name}": program.path for name, program in programs if Path(program.path).exists()
    }


def _require_program(command: str, image: Resolved) -> None:
    """Refuse a command that is surely not there, naming the package if the catalog knows it."""
    if "/" in command:
        return
    program = image.image.programs.get(command)
    if program is not None and not Path(program.path).exists():
        remedy = f": install the Debian package {program.package}" if program.package else ""
        raise SandboxError(f'exec: "{command}": {program.path} is not on this machine{remedy}')
    scripts = {Path(path).name for path in image.image.files}
    if program is None and command not in scripts and images.which(command) is None:
        raise SandboxError(f'exec: "{command}": executable file not found in $PATH')


async def _true(event: asyncio.Event) -> int:
    await event.wait()
    return 0
