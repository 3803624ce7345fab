"""The data directory of one embedded control plane: who uses it, its secrets, its kubeconfig."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = [
    "FORMAT",
    "DataDirectory",
    "DirectoryInUse",
    "DirectoryUnusable",
    "check_kubeconfig",
    "default_directory",
    "write_private",
]

FORMAT: Final = 1
"""What the directory looks like. A version of Mooring that changes it so that earlier ones would misread it counts on."""
#: Seconds for a process that has just taken the lock to write down who it is.
_OWNER_SECONDS = 2.0


class DirectoryInUse(OSError):
    """Another control plane runs on this directory."""


class DirectoryUnusable(OSError):
    """The directory cannot be used as a data directory; the message names the remedy."""


def default_directory() -> Path:
    """``$MOORING_DATA_DIR``, else ``/var/lib/mooring`` for root and ``~/.local/share/mooring`` for others."""
    if given := os.environ.get("MOORING_DATA_DIR"):
        return Path(given)
    if os.geteuid() == 0 and not _only_user():
        return Path("/var/lib/mooring")
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local/share") / "mooring"


def _only_user() -> bool:
    """Whether no other user exists here: then root is a plain user, in the namespace of his plane."""
    return Path("/proc/self/uid_map").read_text().split()[2] == "1"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Paths below one directory, and what is kept there for good."""

    path: Path

    @property
    def database(self) -> Path:
        """All API objects."""
        return self.path / "api.db"

    @property
    def audit(self) -> Path:
        """The audit log, where one was asked for."""
        return self.path / "audit.jsonl"

    @property
    def volumes(self) -> Path:
        """The directories of provisioned volumes: the databases' files."""
        return self.path / "volumes"

    @property
    def images(self) -> Path:
        """The images that were loaded."""
        return self.path / "images"

    @property
    def certificates(self) -> Path:
        """The authority and the serving certificate."""
        return self.path / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.path / "kubeconfig"

    @property
    def log(self) -> Path:
        """The log of a detached control plane."""
        return self.path / "mooring.log"

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    @property
    def _stamp(self) -> Path:
        """The version that used the directory last."""
        return self.path / "version.json"

    def stamp(self, version: str) -> None:
        """Note the version that uses the directory from now on; raises `DirectoryUnusable` for one of a newer format.

        Call it with the directory locked. A directory of a version that noted nothing has the first format.
        """
        try:
            found = json.loads(self._stamp.read_text())
            noted, by = int(found["format"]), str(found["version"])
        except FileNotFoundError:
            noted, by = 1, ""
        except (ValueError, KeyError, TypeError) as error:
            raise DirectoryUnusable(
                f"{self._stamp} cannot be read: restore the directory from a copy, or remove the file if you are sure "
                f"that no later version than {version} used the directory"
            ) from error
        if noted > FORMAT:
            raise DirectoryUnusable(
                f"{self.path} was last used by Mooring {by}, whose data (format {noted}) this version, {version}, cannot "
                f"read (format {FORMAT}); nothing was changed. Use Mooring {by} or later, or give another --data-dir"
            )
        if by != version or noted != FORMAT:
            write_private(self._stamp, json.dumps({"format": FORMAT, "version": version}).encode())

    def exists(self) -> bool:
        """Whether a control plane has used this directory."""
        return self._lock.exists()

    def make(self) -> None:
        """Create the directory, for its owner only; raises :class:`DirectoryUnusable`.

        A directory that holds something else is refused: its permissions would change, and much is kept in it.
        """
        try:
            self._make()
        except DirectoryUnusable:
            raise
        except (FileExistsError, NotADirectoryError):
            raise DirectoryUnusable(f"{self.path} is not a directory: give another --data-dir") from None
        except OSError as error:
            raise DirectoryUnusable(
                f"cannot write the data directory {self.path}: {error.strerror}; "
                "give one of your own with --data-dir"
            ) from error

    def _make(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._lock.exists() and any(self.path.iterdir()):
            raise DirectoryUnusable(
                f"{self.path} holds other files: give an empty or a new directory with --data-dir"
            )
        self._lock.touch(mode=0o600)
        for part in (self.volumes, self.certificates):
            part.mkdir(exist_ok=True)
        # Directories of volumes are open to every user, since pods run as any: pods reach them by mounts, others never.
        for directory in (self.path, self.volumes, self.certificates):
            directory.chmod(0o700)

    def take(self, *, keep: bool = False) -> int:
        """Lock the directory for this process; raises :class:`DirectoryInUse` naming who holds it.

        The lock ends with the process, however it ends. Returns the locked descriptor; with ``keep`` it is
        handed on to a program that this process becomes.
        """
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(descriptor, 32, 0).decode().strip()
            os.close(descriptor)
            raise DirectoryInUse(
                f"{self.path} is in use by process {owner or '?'}: end it with `mooring down --data-dir "
                f"{self.path}`, or give another --data-dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        if keep:
            os.set_inheritable(descriptor, True)
        return descriptor

    def owner(self) -> int | None:
        """The process that holds the directory, ``None`` when nobody does.

        What the file says is believed only of a process that has the file open: right after a lock was
        taken it still names the former owner, whose number may be anybody's by now.
        """
        deadline = time.monotonic() + _OWNER_SECONDS
        while True:
            try:
                descriptor = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            except PermissionError:
                raise DirectoryUnusable(
                    f"{self.path} belongs to another user: do this as that user"
                ) from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return None
            except OSError:
                text = os.pread(descriptor, 32, 0).decode().strip()
                if text.isdigit() and _has_open(int(text), os.fstat(descriptor)):
                    return int(text)
            finally:
                os.close(descriptor)
            if time.monotonic() > deadline:
                raise DirectoryInUse(
                    f"{self.path} is locked by a process that cannot be seen from here: end it where it runs"
                )
            time.sleep(0.01)

    def token(self) -> str:
        """The administrator's token, made at first use."""
        path = self.certificates / "admin.token"
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode())
        return path.read_text().strip()

    def service_account_key(self) -> bytes:
        """The key that signs service accounts' tokens, made at first use."""
        path = self.certificates / "sa.key"
        if not path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            pem = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            write_private(path, pem)
        return path.read_bytes()

    def write_kubeconfig(self, path: Path, *, server: str, authority: Path) -> None:
        """Write an administrator's kubeconfig, readable by its owner only; see :func:`check_kubeconfig`."""
        check_kubeconfig(path)
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "mooring",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode(),
                    },
                }
            ],
            "users": [{"name": "admin", "user": {"token": self.token()}}],
            "contexts": [{"name": "mooring", "context": {"cluster": "mooring", "user": "admin"}}],
            "current-context": "mooring",
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_private(path, yaml.safe_dump(document, sort_keys=False).encode())
        except OSError as error:
            raise OSError(
                f"cannot write the kubeconfig {path}: {error.strerror}; give another file with --kubeconfig"
            ) from error


def check_kubeconfig(path: Path) -> None:
    """Refuse to write over a file that holds anything but a kubeconfig of ours; raises :class:`ValueError`."""
    try:
        present = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        return
    except (OSError, yaml.YAMLError):
        present = ""
    clusters = present.get("clusters") if isinstance(present, dict) else None
    names = {cluster.get("name") for cluster in clusters or () if isinstance(cluster, dict)}
    if present is not None and names != {"mooring"}:
        raise ValueError(
            f"{path} holds something else, which would be lost: give another file with --kubeconfig"
        )


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Whether a process has the file open."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in descriptors:
        try:
            found = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino):
            return True
    return False


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
