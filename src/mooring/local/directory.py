"""The data directory of one embedded control plane: who uses it, its secrets, its kubeconfig."""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["DataDirectory", "DirectoryInUse", "default_directory"]


class DirectoryInUse(OSError):
    """Another control plane runs on this directory."""


def default_directory() -> Path:
    """``/var/lib/mooring`` for root, ``~/.local/share/mooring`` for others."""
    if os.geteuid() == 0:
        return Path("/var/lib/mooring")
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local/share") / "mooring"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Paths below one directory, and what is kept there for good."""

    path: Path

    @property
    def database(self) -> Path:
        """All API objects."""
        return self.path / "api.db"

    @property
    def volumes(self) -> Path:
        """The directories of provisioned volumes: the databases' files."""
        return self.path / "volumes"

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

    def make(self) -> None:
        """Create the directory, for its owner only."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in (self.volumes, self.certificates):
            part.mkdir(mode=0o711 if part == self.volumes else 0o700, exist_ok=True)
        # Pods may run as other users and reach their volumes through here; nothing else is readable.
        self.path.chmod(0o711)

    def take(self, *, keep: bool = False) -> int:
        """Lock the directory for this process; raises :class:`DirectoryInUse` naming who holds it.

        The lock ends with the process, however it ends. Returns the locked descriptor; with ``keep`` it is
        handed on to a program that this process becomes.
        """
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(descriptor, 32).decode().strip()
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
        """The process that holds the directory, ``None`` when nobody does."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = os.read(descriptor, 32).decode().strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(descriptor)
        return None

    def token(self) -> str:
        """The administrator's token, made at first use."""
        path = self.certificates / "admin.token"
        if not path.exists():
            _write_private(path, secrets.token_urlsafe(32).encode())
        return path.read_text().strip()

    def service_account_key(self) -> bytes:
        """The key that signs service accounts' tokens, made at first use."""
        path = self.certificates / "sa.key"
        if not path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            pem = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            _write_private(path, pem)
        return path.read_bytes()

    def write_kubeconfig(self, path: Path, *, server: str, authority: Path) -> None:
        """Write an administrator's kubeconfig, readable by its owner only."""
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
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_private(path, yaml.safe_dump(document, sort_keys=False).encode())


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
