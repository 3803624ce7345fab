"""A pod's volumes as directories of this machine.

ConfigMaps, Secrets and the downward API are written the way the kubelet does: a directory per version and
one symbolic link ``..data`` that is moved in one step, so that a reader sees the old files or the new ones,
never a mixture. A mount with ``subPath`` keeps the file it was started with.

A claimed volume has one lock (see :class:`VolumeLock`): a second pod waits until no process of the first is
left, even when that first one belonged to a plane that was killed. One that mounts the claim read-only does not wait.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mooring.kube.objects.core import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    Container,
    DownwardAPIVolumeFile,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    KeyToPath,
    PersistentVolume,
    SecretProjection,
    ServiceAccountTokenProjection,
    Volume,
    VolumeMount,
)
from mooring.local.node.fields import PodFacts, expand
from mooring.local.node.sources import Missing, Sources, config_data, secret_data
from mooring.local.node.staging import Mount
from mooring.local.removal import remove_tree

__all__ = ["PodVolumes", "VolumeBusy", "VolumeError", "VolumeLock"]

_SHARED = ("ReadWriteMany", "ReadOnlyMany")
_MEMORY = Path("/dev/shm")  # noqa: S108


class VolumeError(RuntimeError):
    """A volume cannot be mounted (yet); the message says which and what to do."""


class VolumeBusy(VolumeError):
    """The volume is there, but processes of another pod still use it."""


class File(NamedTuple):
    """A file to be."""

    data: bytes
    mode: int


Payload = dict[str, File]


@dataclass(slots=True)
class VolumeLock:
    """The exclusive right to a claimed volume.

    An ``flock`` whose descriptor is passed on to the pod's programs: the kernel holds it until the last of
    them is gone, so no bookkeeping can be wrong about that.
    """

    descriptor: int

    @classmethod
    def take(cls, path: Path) -> VolumeLock | None:
        """The lock, or ``None`` while someone else has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(descriptor)

    def close(self) -> None:
        """Let go of our own reference."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(slots=True, kw_only=True)
class PodVolumes:
    """The volumes of one pod; the methods touch the disk and belong in a thread."""

    directory: Path
    locks_directory: Path
    plane: str
    sources: Sources
    token: Callable[[ServiceAccountTokenProjection], bytes]
    group: int | None = None
    _paths: dict[str, Path] = field(init=False, default_factory=dict)
    #: Volumes whose files are written here. What their ``..data`` leads to is ours; in others a pod may have made one.
    _written: set[str] = field(init=False, default_factory=set)
    #: Claims that the pod declares read-only: the pod that writes there keeps the lock, and the files keep their group.
    _read_only: set[str] = field(init=False, default_factory=set)
    _locks: dict[str, VolumeLock] = field(init=False, default_factory=dict)
    _memory: list[Path] = field(init=False, default_factory=list)
    #: Held while files are written or removed: a refresh in another thread may be under way when the pod ends.
    _writing: threading.Lock = field(init=False, default_factory=threading.Lock)

    def prepare(self, facts: PodFacts) -> None:
        """Make all volumes there; may be called again. Raises :class:`VolumeError` or ``Missing``."""
        spec = facts.pod.spec
        for volume in (spec.volumes if spec else None) or ():
            name = volume.name or ""
            if (payload := self._payload(volume, facts)) is not None:
                self._paths[name] = self.directory / name
                self._written.add(name)
                write_atomically(self._paths[name], payload, group=self.group)
            elif name not in self._paths:
                self._paths[name] = self._directory_of(volume, facts)

    def refresh(self, facts: PodFacts) -> bool:
        """Write what changed in ConfigMaps, Secrets and the pod; one that went away is left as it was."""
        with self._writing:
            return self._refresh(facts)

    def _refresh(self, facts: PodFacts) -> bool:
        changed = False
        spec = facts.pod.spec
        for volume in (spec.volumes if spec else None) or ():
            if volume.name not in self._paths:  # after remove: none
                continue
            with suppress(Missing):
                payload = self._payload(volume, facts)
                path = self._paths[volume.name or ""]
                if payload is not None and write_atomically(path, payload, group=self.group):
                    changed = True
        return changed

    def mounts(self, container: Container, env: Mapping[str, str]) -> list[Mount]:
        """What a container mounts."""
        return [self._mount(mount, env) for mount in container.volume_mounts or ()]

    def locks(self, container: Container) -> list[int]:
        """Descriptors of the locks of the volumes that a container mounts."""
        names = {mount.name for mount in container.volume_mounts or ()}
        return [lock.descriptor for name, lock in self._locks.items() if name in names]

    def release(self) -> None:
        """Let go of the locks; call it when no process of the pod is left."""
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    def remove(self) -> None:
        """Delete what belongs to the pod alone; claimed and host volumes stay."""
        self.release()
        with self._writing:
            for path in (self.directory, *self._memory):
                with suppress(OSError):
                    remove_tree(path)
            self._paths.clear()

    # --- kinds of volumes

    def _payload(self, volume: Volume, facts: PodFacts) -> Payload | None:
        namespace = facts.pod.metadata.namespace or ""
        if (config := volume.config_map) is not None:
            return self._config(config, namespace, config.default_mode)
        if (secret := volume.secret) is not None:
            projection = SecretProjection(
                name=secret.secret_name, items=secret.items, optional=secret.optional
            )
            return self._secret(projection, namespace, secret.default_mode)
        if (downward := volume.downward_api) is not None:
            return _downward(downward.items, facts, downward.default_mode)
        if (projected := volume.projected) is None:
            return None
        payload: Payload = {}
        for source in projected.sources or ():
            if source.config_map is not None:
                payload |= self._config(source.config_map, namespace, projected.default_mode)
            if source.secret is not None:
                payload |= self._secret(source.secret, namespace, projected.default_mode)
            if source.downward_api is not None:
                payload |= _downward(source.downward_api.items, facts, projected.default_mode)
            if (token := source.service_account_token) is not None:
                mode = 0o644 if projected.default_mode is None else projected.default_mode
                payload[_checked(token.path or "")] = File(self.token(token), mode)
        return payload

    def _config(
        self, source: ConfigMapVolumeSource | ConfigMapProjection, namespace: str, mode: int | None
    ) -> Payload:
        read = lambda: config_data(self.sources, namespace, source.name or "")  # noqa: E731
        return _chosen(
            read, source.items, mode, optional=bool(source.optional), what=f"configmap {source.name}"
        )

    def _secret(self, source: SecretProjection, namespace: str, mode: int | None) -> Payload:
        read = lambda: secret_data(self.sources, namespace, source.name or "")  # noqa: E731
        return _chosen(read, source.items, mode, optional=bool(source.optional), what=f"secret {source.name}")

    def _directory_of(self, volume: Volume, facts: PodFacts) -> Path:
        if volume.empty_dir is not None:
            return self._empty(volume.name or "", volume.empty_dir)
        if volume.host_path is not None:
            return host_path(volume.name or "", volume.host_path)
        if (claim := volume.persistent_volume_claim) is not None:
            return self._claimed(
                volume.name or "", facts, claim.claim_name or "", read_only=bool(claim.read_only)
            )
        if volume.ephemeral is not None:
            return self._claimed(volume.name or "", facts, f"{facts.pod.metadata.name}-{volume.name}")
        raise VolumeError(
            f'volume "{volume.name}" is of a kind this node cannot mount; it can mount emptyDir, configMap, '
            "secret, projected, downwardAPI, hostPath and claims bound to hostPath or local volumes"
        )

    def _empty(self, name: str, source: EmptyDirVolumeSource) -> Path:
        path = self.directory / name
        if source.medium == "Memory" and os.access(_MEMORY, os.W_OK):
            path = _own(memory_directory(self.plane)) / self.directory.parent.name / name
            self._memory.append(path)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        if self.group is not None:
            give_to_group(path, self.group)
        return path

    def _claimed(self, name: str, facts: PodFacts, claim_name: str, *, read_only: bool = False) -> Path:
        namespace = facts.pod.metadata.namespace or ""
        claim = self.sources.claim(namespace, claim_name)
        if claim is None:
            raise VolumeError(f'persistentvolumeclaim "{claim_name}" not found')
        bound = claim.spec.volume_name if claim.spec else None
        volume = self.sources.volume(bound) if bound else None
        if volume is None or (claim.status is None or claim.status.phase != "Bound"):
            raise VolumeError(f'persistentvolumeclaim "{claim_name}" is not bound to a volume yet')
        path = _volume_path(volume)
        if read_only:
            self._read_only.add(name)
            return path
        self._lock(name, volume)
        if self.group is not None:
            give_to_group(path, self.group)
        return path

    def _lock(self, name: str, volume: PersistentVolume) -> None:
        modes = (volume.spec.access_modes if volume.spec else None) or ()
        if name in self._locks or any(mode in _SHARED for mode in modes):
            return
        lock = VolumeLock.take(self.locks_directory / f"{volume.metadata.name}.lock")
        if lock is None:
            raise VolumeBusy(
                f'volume "{volume.metadata.name}" is still in use by the processes of another pod'
            )
        self._locks[name] = lock

    # --- mounts

    def _mount(self, mount: VolumeMount, env: Mapping[str, str]) -> Mount:
        path = self._paths.get(mount.name or "")
        if path is None:
            raise VolumeError(f'volumeMount "{mount.name}" names no volume of the pod')
        below = expand(mount.sub_path_expr, env) if mount.sub_path_expr else mount.sub_path
        written = mount.name in self._written
        if below and (below.startswith("/") or ".." in PurePosixPath(below).parts):
            raise VolumeError(f"subPath {below!r} must be relative and without '..'")
        read_only = bool(mount.read_only) or written or mount.name in self._read_only
        return Mount(path, mount.mount_path or "", read_only, below or "", made=not written)


def memory_directory(plane: str) -> Path:
    """Where a plane keeps its memory-backed volumes."""
    return _MEMORY / f"mooring-{plane}"


def _own(directory: Path) -> Path:
    """The directory, made for us alone: pods' files below may be anybody's, and everybody may write beside it."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise VolumeError(f"{directory} belongs to somebody else: remove it")
    directory.chmod(0o700)
    return directory


def write_atomically(directory: Path, payload: Payload, *, group: int | None = None) -> bool:
    """Bring a directory to exactly this content in one step; false if it had it already.

    With ``group`` the files belong to that group, which may read them.
    """
    if group is not None:
        payload = {name: File(data, mode | 0o040) for name, (data, mode) in payload.items()}
    link = directory / "..data"
    current = directory / os.readlink(link) if link.is_symlink() else None
    if current is not None and _content(current) == payload:
        return False
    directory.mkdir(parents=True, exist_ok=True)
    number = int(current.name.rpartition("_")[2]) + 1 if current else 0
    fresh = directory / f"..version_{number}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for path in (directory, fresh):
        path.chmod(0o755)
    for name, file in payload.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(file.mode)
        if group is not None:
            with suppress(PermissionError):
                os.chown(path, -1, group)
    new_link = directory / "..data_tmp"
    new_link.unlink(missing_ok=True)
    new_link.symlink_to(fresh.name)
    new_link.replace(link)
    _link_visible(directory, {PurePosixPath(name).parts[0] for name in payload})
    if current is not None:
        shutil.rmtree(current, ignore_errors=True)
    return True


def give_to_group(path: Path, group: int) -> None:
    """Let a group read and write below ``path``, as ``fsGroup`` asks; what is not ours is left alone."""
    for root, directories, files in os.walk(path):
        for name in (".", *directories, *files):
            entry = Path(root, name)
            with suppress(OSError):
                mode = entry.lstat().st_mode
                if stat.S_ISLNK(mode):
                    continue
                os.chown(entry, -1, group)
                more = 0o2070 if stat.S_ISDIR(mode) else (0o060 if mode & stat.S_IWUSR else 0o040)
                entry.chmod(stat.S_IMODE(mode) | more)


def host_path(name: str, source: HostPathVolumeSource) -> Path:
    """The path of a ``hostPath`` volume, checked and made as its type asks."""
    path, kind = Path(source.path or ""), source.type or ""
    if not path.is_absolute() or ".." in path.parts:
        raise VolumeError(f'volume "{name}": hostPath {source.path!r} is not an absolute path without ".."')
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    if kind == "FileOrCreate":
        path.touch(exist_ok=True)
    fits = {"Directory": path.is_dir, "File": path.is_file, "Socket": path.is_socket}
    if not fits.get(kind, path.exists)():
        raise VolumeError(f'volume "{name}": hostPath {path} is not a {kind or "path that exists"}')
    return path


def _volume_path(volume: PersistentVolume) -> Path:
    spec = volume.spec
    if spec is not None and spec.host_path is not None:
        return host_path(volume.metadata.name or "", spec.host_path)
    if spec is not None and spec.local is not None:
        path = Path(spec.local.path or "")
        if not path.is_dir():
            raise VolumeError(f'volume "{volume.metadata.name}": local path {path} is not a directory')
        return path
    raise VolumeError(
        f'volume "{volume.metadata.name}" is neither hostPath nor local: this node cannot mount it'
    )


def _chosen(
    read: Callable[[], dict[str, bytes]],
    items: list[KeyToPath] | None,
    mode: int | None,
    *,
    optional: bool,
    what: str,
) -> Payload:
    default = 0o644 if mode is None else mode
    try:
        data = read()
    except Missing:
        if optional:
            return {}
        raise
    if items is None:
        return {key: File(value, default) for key, value in data.items()}
    payload: Payload = {}
    for item in items:
        if item.key not in data:
            if optional:
                continue
            raise Missing(f"{what} has no key {item.key!r}")
        path = _checked(item.path or item.key or "")
        payload[path] = File(data[item.key or ""], default if item.mode is None else item.mode)
    return payload


def _downward(items: list[DownwardAPIVolumeFile] | None, facts: PodFacts, mode: int | None) -> Payload:
    payload: Payload = {}
    default = 0o644 if mode is None else mode
    for item in items or ():
        if item.field_ref is not None:
            value = facts.field(item.field_ref)
        elif item.resource_field_ref is not None:
            value = facts.resource(item.resource_field_ref)
        else:
            continue
        payload[_checked(item.path or "")] = File(value.encode(), default if item.mode is None else item.mode)
    return payload


def _checked(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
        raise VolumeError(f"path {path!r} of a volume's item must be relative and without '..'")
    return path


def _content(directory: Path) -> Payload:
    found: Payload = {}
    for path in directory.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(directory))
            found[name] = File(path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    return found


def _link_visible(directory: Path, names: Iterable[str]) -> None:
    wanted = set(names)
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink()
    for name in wanted:
        link = directory / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
