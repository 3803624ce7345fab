"""Credentials, read live: at every use, never kept, never shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mooring.objectstore.encryption import KeyRing
from mooring.objectstore.errors import CredentialsRejected
from mooring.objectstore.target import Encryption

__all__ = ["Secrets", "entry", "keys_of", "mounted_secrets", "read_secret"]

#: Returns the decoded data of the Secret of that name; raises `LookupError` where it does not exist. It is called at
#: every use, from the event loop and from other threads, and must not block: give it a cache, or mounted files.
Secrets = Callable[[str], Mapping[str, bytes]]

_LARGEST: Final = 1 << 20


def mounted_secrets(root: Path) -> Secrets:
    """Secrets that the kubelet mounted, each in the directory of its name below ``root``, read at every use."""

    def read(name: str) -> Mapping[str, bytes]:
        directory = root / name
        if not directory.is_dir():
            raise LookupError(name)
        # ..data and its time-stamped target are how the kubelet swaps the files at once.
        files = (path for path in directory.iterdir() if not path.name.startswith("..") and path.is_file())
        return {path.name: path.read_bytes()[:_LARGEST] for path in files}

    return read


def read_secret(secrets: Secrets, name: str) -> Mapping[str, bytes]:
    """The data of a Secret; raises `CredentialsRejected` that names it."""
    try:
        return secrets(name)
    except (LookupError, OSError):
        missing = CredentialsRejected(
            f"the Secret {name!r} cannot be read",
            reason="SecretNotFound",
            remedy="create it in the same namespace, or correct the name",
        )
    raise missing


def entry(data: Mapping[str, bytes], secret: str, *names: str) -> str:
    """The first entry of these names, as text without space around it; raises `CredentialsRejected`."""
    for name in names:
        if value := data.get(name):
            try:
                return bytes(value).decode().strip()
            except UnicodeDecodeError:
                break
    raise CredentialsRejected(
        f"the Secret {secret!r} has no usable entry {' or '.join(names)}",
        reason="SecretEntryMissing",
        remedy="add the entry to the Secret",
    )


def keys_of(encryption: Encryption, secrets: Secrets) -> KeyRing:
    """The keys a target encrypts with; raises `CredentialsRejected`."""
    return KeyRing.from_secret(read_secret(secrets, encryption.secret or ""), write=encryption.key_id or "")
