"""A container: one program in its own mount and pid namespace, made by bubblewrap.

The process tree is ``bwrap`` (outside) -> ``bwrap`` (pid 1 inside) -> the program. The outer one passes on
the program's exit status, both die with the plane (``--die-with-parent``), and with pid 1 dies everything
inside, whatever user it became: that is why the program is not made pid 1 itself (a program that changes
its user loses its parent-death signal, and would survive).

Before the program runs, a one-line shell inside reports on a socket and waits for the word: then the pid is
known, limits are set, and a plane that died meanwhile is noticed, since both ends of the socket are its.

The environment is passed as such, never as arguments, which every user of the machine can read. What tells the loader
what to load goes under other names until all rights are given up: bwrap has them all, outside of any sandbox, and the
shell and setpriv have more than a program that is not root. These two come from `TOOLS` then, where the container's
volumes reach neither them nor their libraries.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import resource
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import msgspec

from mooring.local.node.rootfs import TOOLS, RootFs, Tools
from mooring.local.node.seccomp import keyring_filter, passed
from mooring.local.node.spawner import Child, Spawn, Spawner
from mooring.local.node.staging import Mount

__all__ = ["Privileges", "Sandbox", "SandboxError", "SandboxSpec", "can_become", "deferred", "start", "tool"]

DEFAULT_CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
"""What container engines grant by default, without MKNOD and AUDIT_WRITE."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SHIM = 'ulimit -n "$1"; shift; echo >&3; read -r _ <&3 || exit 125; {}exec "$@" 3>&- 4>&-'
_SHELL_NAME = re.compile("[A-Za-z_][A-Za-z_0-9]*")
_HANDSHAKE, _STATUS, _FILTER, _FIRST_LOCK = 3, 4, 5, 20
#: What the C library of a program obeys before the program begins (those it ignores in set-uid programs).
_LOADING = re.compile(
    "(LD_.*|GLIBC_TUNABLES|GCONV_PATH|GETCONF_DIR|HOSTALIASES|LOCALDOMAIN|LOCPATH|MALLOC_.*|NIS_PATH|NLSPATH"
    "|RESOLV_HOST_CONF|RES_OPTIONS|TMPDIR|TZDIR)"
)
#: Of /proc, by which root could change the machine, as container engines have it.
_PROC_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_START_DEADLINE = 20.0
_ABANDON_DEADLINE = 2.0
_REBIND_LIMIT = 512
#: Of /etc/ssl what is public: beside it lie private keys.
_HOST_FILES = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ca-certificates"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
)


class SandboxError(RuntimeError):
    """The container could not be started; the message says why."""


@dataclass(frozen=True, slots=True)
class Privileges:
    """Who the program is and what it may do."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    capabilities: tuple[str, ...] = DEFAULT_CAPABILITIES

    @property
    def all(self) -> bool:
        """Whether nothing is kept from the program: it is privileged."""
        return "ALL" in self.capabilities

    @property
    def identity(self) -> list[str]:
        """The options of setpriv that become the user; empty for plain root."""
        if not (self.uid or self.gid or self.groups):
            return []
        groups = ["--groups", ",".join(map(str, self.groups))] if self.groups else ["--clear-groups"]
        return [f"--reuid={self.uid}", f"--regid={self.gid}", *groups]

    @property
    def _limits(self) -> list[str]:
        kept = ",".join(f"+{name.lower()}" for name in self.capabilities)
        bounding = "+all" if self.all else f"-all,{kept}" if kept else "-all"
        return [f"--bounding-set={bounding}", "--inh-caps=-all"]

    def argv(self, tools: Tools | None = None) -> list[str]:
        """The command that gives up the rest, to be put before the program's; empty for plain root."""
        return [*tool("setpriv", tools), *self._limits, *self.identity, "--"] if self.identity else []

    def at_first(self) -> tuple[str, ...]:
        """The capabilities to start with: also those that `argv` needs, and gives up."""
        needed = ("SETUID", "SETGID", "SETPCAP") if self.identity else ()
        return tuple(dict.fromkeys((*self.capabilities, *needed)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """All that is needed to run a container."""

    command: Sequence[str]
    env: Mapping[str, str]
    working_dir: str = "/"
    mounts: Sequence[Mount] = ()
    symlinks: Mapping[str, str] = field(default_factory=dict)
    privileges: Privileges = Privileges()
    read_only_root: bool = False
    namespaces: Sequence[int] = ()
    root: RootFs | None = None
    """The file system of a loaded image; without one the machine's programs are seen."""
    tools: Tools | None = None
    """Needed with a root, and for a program that is not root."""
    terminal: bool = False
    """The standard streams are a terminal, which is to control the program."""
    locks: Sequence[int] = ()
    """Descriptors of volume locks: the program holds them too, so a lock lives as long as any user of it."""
    mount_namespace: int | None = None
    """Descriptor of the mount namespace in which the root and the mounts are found; ``None``: the machine's."""
    make_working_dir: bool = True
    """Make the working directory by its path; not where a pod may have put a link in the way."""


class Sandbox:
    """A running container."""

    def __init__(self, *, outer: Child, init_pid: int, program_pid: int, gate: socket.socket) -> None:
        self._outer = outer
        self._gate: socket.socket | None = gate
        self.init_pid = init_pid
        self.program_pid = program_pid
        self._init_fd = os.pidfd_open(init_pid)
        self._program_fd = os.pidfd_open(program_pid)
        self.mount_fd = os.open(f"/proc/{init_pid}/ns/mnt", os.O_RDONLY)
        self.pid_fd = os.open(f"/proc/{init_pid}/ns/pid", os.O_RDONLY)
        self.pid_namespace = os.fstat(self.pid_fd).st_ino
        self._gone = asyncio.get_running_loop().create_task(self._wait_gone())

    @property
    def child(self) -> Child:
        """The outer process; its status is the program's."""
        return self._outer

    def release(self) -> None:
        """Let the program run."""
        if self._gate is not None:
            with suppress(OSError):
                self._gate.send(b"\n")
            self._gate.close()
            self._gate = None

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        _send(self._program_fd, number)

    def kill(self) -> None:
        """Kill the program and everything it started."""
        _send(self._init_fd, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until no process of the container is left, which may be after the program's own end."""
        await asyncio.shield(self._gone)

    async def _wait_gone(self) -> None:
        await self._outer.wait()
        # The outer process leaves as soon as the program has; what it left behind dies with pid 1.
        await _readable(self._init_fd)
        self.release()
        for descriptor in (self._init_fd, self._program_fd, self.mount_fd, self.pid_fd):
            os.close(descriptor)
        self._init_fd = self._program_fd = self.mount_fd = self.pid_fd = -1


async def start(spawner: Spawner, spec: SandboxSpec, *, stdin: int, stdout: int, stderr: int) -> Sandbox:
    """Make the container and stop right before its program; :meth:`Sandbox.release` lets it run."""
    ours, theirs = socket.socketpair()
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    files = {0: stdin, 1: stdout, 2: stderr, _HANDSHAKE: theirs.fileno(), _STATUS: status_write}
    files |= {_FIRST_LOCK + n: lock for n, lock in enumerate(spec.locks)}
    with passed(keyring_filter()) as rules:
        if not spec.privileges.all:
            files[_FILTER] = rules
        high = {target: _above(source) for target, source in files.items()}
    env, _ = deferred(spec.env)
    what = Spawn(argv=bwrap_argv(spec), env=env, files=high, namespaces=spec.namespaces)
    if spec.mount_namespace is not None:
        what = replace(what, mounts=spec.mount_namespace)
    spawning = asyncio.ensure_future(spawner.spawn(what))
    spawning.add_done_callback(lambda _: _close(theirs.detach(), status_write, *high.values()))
    try:
        async with asyncio.timeout(_START_DEADLINE):
            return await _handshake(await asyncio.shield(spawning), ours, status_read)
    except BaseException as error:
        ours.close()
        await asyncio.shield(_abandon(spawning))
        if isinstance(error, FileNotFoundError):
            raise SandboxError("bwrap is missing: install the Debian package bubblewrap") from None
        if isinstance(error, TimeoutError):
            raise SandboxError(f"the sandbox was not ready within {_START_DEADLINE:.0f} s") from None
        raise
    finally:
        # Not before the end of an abandoned one: the outer process would die of writing to it.
        os.close(status_read)


def deferred(env: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """An environment that makes no loader load anything, and the shell commands that complete it."""
    late = [name for name in env if _LOADING.fullmatch(name) and _SHELL_NAME.fullmatch(name)]
    kept = {name: value for name, value in env.items() if name not in late}
    kept |= {f"_MOORING_{n}": env[name] for n, name in enumerate(late)}
    script = (f'export {name}="$_MOORING_{n}"; unset _MOORING_{n}; ' for n, name in enumerate(late))
    return kept, "".join(script)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def _abandon(spawning: asyncio.Future[Child]) -> None:
    """See a sandbox end whose gate was closed before it was released.

    The shell inside notices and ends, and everything with it. Killing the outer process at once would, between
    its clone and the set-up of the inner one, leave that for ever: it has no parent-death signal yet.
    """
    try:
        outer = await spawning
    except OSError:
        return
    try:
        async with asyncio.timeout(_ABANDON_DEADLINE):
            await outer.wait()
    except TimeoutError:
        outer.signal(signal.SIGKILL)


async def _handshake(outer: Child, gate: socket.socket, status: int) -> Sandbox:
    gate.setblocking(False)
    if not await asyncio.get_running_loop().sock_recv(gate, 16):
        code = await outer.wait()
        raise SandboxError(
            f"the sandbox could not be made (bwrap ended with {code}; its words are in the log)"
        )
    init_pid = msgspec.json.decode(os.read(status, 4096))["child-pid"]
    return Sandbox(outer=outer, init_pid=init_pid, program_pid=_only_child(init_pid), gate=gate)


def bwrap_argv(spec: SandboxSpec) -> list[str]:
    """The command line that makes the container."""
    argv = ["/usr/bin/bwrap", "--die-with-parent", "--unshare-pid", "--info-fd", str(_STATUS)]
    if not spec.privileges.all:
        argv += ["--seccomp", str(_FILTER)]
    argv += _capabilities(spec.privileges.at_first())
    argv += _root() if spec.root is None else _image_root(spec.root)
    if spec.tools is not None:
        argv += ["--ro-bind", str(spec.tools.directory), TOOLS]
    for target, source in spec.symlinks.items():
        argv += ["--symlink", source, target]
    # Before the mounts, which may hold links.
    if not spec.privileges.all:
        for name in _PROC_READ_ONLY:
            argv += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    mounts = sorted(spec.mounts, key=lambda mount: len(PurePosixPath(mount.target).parts))
    argv += _mounts(mounts, sealed=spec.root is None)
    if spec.make_working_dir:
        argv += ["--dir", spec.working_dir]
    if spec.read_only_root:
        argv += ["--remount-ro", "/"]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = str(limit if 0 < limit < 1 << 20 else 1 << 20)
    become, exports = spec.privileges.argv(spec.tools), deferred(spec.env)[1]
    shim = [*_shell(spec), "-c", _SHIM.format("" if become else exports), "sh", files]
    if spec.terminal:
        become = [*tool("setsid", spec.tools), "--ctty", *become]
    if spec.privileges.identity and exports:
        become += [*_shell(spec), "-c", exports + 'exec "$@"', "sh"]
    return [*argv, "--chdir", spec.working_dir, "--", *shim, *become, *spec.command]


def _shell(spec: SandboxSpec) -> list[str]:
    """A shell that hands the whole environment on: the quicker one forgets names that no shell can use."""
    if all(_SHELL_NAME.fullmatch(name) for name in spec.env):
        return tool("sh", spec.tools)
    return [*tool("bash", spec.tools), "-p"]  # -p: nothing in the environment makes it run anything


def tool(name: str, tools: Tools | None) -> list[str]:
    """How to call a program of the machine inside a container."""
    return [f"/usr/bin/{name}"] if tools is None else tools.command(name)


def can_become(uid: int) -> bool:
    """Whether that user exists in our user namespace; in a plain user's plane only 0 does."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _outside, count = map(int, line.split())
        if first <= uid < first + count:
            return True
    return False


def _image_root(root: RootFs) -> Iterator[str]:
    yield from ("--bind", str(root.path), "/", "--proc", "/proc", "--dev", "/dev")


def _root() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()).lstrip("/"), f"/{name}")
        elif path.is_dir():
            yield from ("--ro-bind", f"/{name}", f"/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--perms", "1777", "--tmpfs", "/tmp")  # noqa: S108
    yield from (
        "--dir",
        "/var",
        "--symlink",
        "../run",
        "/var/run",
        "--dir",
        "/var/lib",
        "--dir",
        "/var/log",
        "--dir",
        "/root",
    )
    yield from ("--perms", "1777", "--dir", "/var/tmp")  # noqa: S108
    # Made before the first mount in it: what bwrap makes by itself is closed to every user but root.
    yield from ("--dir", "/etc", "--dir", "/etc/ssl")
    for file in _HOST_FILES:
        yield from ("--ro-bind-try", file, file)
    yield from ("--tmpfs", "/usr/local/bin")


def _capabilities(names: Iterable[str]) -> Iterator[str]:
    yield from ("--cap-drop", "ALL")
    for name in names:
        yield from ("--cap-add", name if name == "ALL" else f"CAP_{name}")


def _mounts(mounts: Iterable[Mount], *, sealed: bool) -> Iterator[str]:
    opened: set[Path] = set()
    for mount in mounts:
        if sealed and (directory := _sealed_parent(mount.target)) is not None and directory not in opened:
            opened.add(directory)
            yield from _open_up(directory)
        for parent in reversed(PurePosixPath(mount.target).parents[:-1]):
            # What bwrap makes by itself is closed to every user but root.
            yield from ("--dir", str(parent))
        yield from ("--ro-bind" if mount.read_only else "--bind", str(mount.source), mount.target)


def _sealed_parent(target: str) -> Path | None:
    """The read-only directory of the machine in which a mount point would have to be created, if so."""
    path = Path(target)
    if not path.is_relative_to("/usr") or path.exists() or path.is_relative_to("/usr/local/bin"):
        return None
    return next(parent for parent in path.parents if parent.is_dir())


def _open_up(directory: Path) -> Iterator[str]:
    """Show the same content, in a directory in which mount points can be made."""
    entries = sorted(directory.iterdir())
    if len(entries) > _REBIND_LIMIT:
        raise SandboxError(f"cannot mount below {directory}: it has too many entries; use another mountPath")
    yield from ("--tmpfs", str(directory))
    for entry in entries:
        if entry.is_symlink():
            yield from ("--symlink", str(entry.readlink()), str(entry))
        else:
            yield from ("--ro-bind", str(entry), str(entry))


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


def _above(descriptor: int) -> int:
    """A copy with a number that none of the child's descriptors has."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64)


def _send(pidfd: int, number: int) -> None:
    if pidfd >= 0:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
